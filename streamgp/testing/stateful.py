"""Saving and restoring at any moment must change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from safetensors.torch import load, save
from torch import Tensor

from streamgp.base import Stateful

S = TypeVar("S", bound=Stateful)


def check_stateful(
    make: Callable[[], S], advance: Callable[[S, int], Any], steps: int, equal: Callable[[Any, Any], bool]
) -> None:
    """Saving and restoring at any moment changes nothing that comes later.

    Args:
        make: a fresh part.
        advance: takes the part one step further, and returns what can be seen of it.
        steps: to take; after each the part is saved through bytes and JSON, and restored into a fresh one.
        equal: whether two sights are the same, bit for bit.

    Raises:
        AssertionError: a restored part went another way.
    """
    whole, broken = make(), make()
    for step in range(steps):
        assert equal(advance(whole, step), advance(broken, step)), f"step {step} differs after a restore"
        broken = reborn(broken, make())


def reborn(part: Stateful, fresh: S) -> S:
    """`fresh` with the state of `part`, by way of safetensors bytes and JSON text, as a checkpoint would do it."""
    tensors, rest = part.state()
    data = save({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()})
    fresh.restore(load(data), json.loads(json.dumps(rest)))
    return fresh


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equal, NaN to NaN."""
    return (
        one.shape == other.shape
        and torch.equal(one.isnan(), other.isnan())
        and torch.equal(one.nan_to_num(), other.nan_to_num())
    )
