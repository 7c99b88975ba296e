"""Saving and restoring at any moment must change nothing."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeVar
from weakref import ReferenceType

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Generator, Tensor

from streamgp.base import Stateful

S = TypeVar("S", bound=Stateful)

LEFT_OUT = (FunctionType, MethodType, BuiltinFunctionType, type, ReferenceType)
"""What holds nothing of its own."""


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
    if one.layout != torch.strided and one.layout == other.layout:
        one, other = one.to_dense(), other.to_dense()
    return (
        one.shape == other.shape
        and torch.equal(one.isnan(), other.isnan())
        and torch.equal(one.nan_to_num(), other.nan_to_num())
    )


def forgotten(one: Any, other: Any, path: str = "") -> list[str]:
    """Attributes in which two objects differ, everything that they reach included: after a restore, state that nothing
    saved. Functions and what a class names in its `NOT_STATE` are left out.

    Example:
        >>> forgotten({"a": [torch.ones(2), 1]}, {"a": [torch.zeros(2), 1]}, "model")
        ['model.a.0']
    """
    return _differing(one, other, path, set())


def _differing(one: Any, other: Any, path: str, met: set[int]) -> list[str]:
    if id(one) in met or isinstance(one, LEFT_OUT):
        return []
    if type(one) is not type(other):
        return [path]
    if isinstance(one, Tensor):
        return [] if one.dtype == other.dtype and same_bits(one, other) else [path]
    if isinstance(one, np.ndarray):
        return [] if one.dtype == other.dtype and same_bits(torch.tensor(one), torch.tensor(other)) else [path]
    if isinstance(one, Generator):
        return [] if torch.equal(one.get_state(), other.get_state()) else [path]
    if isinstance(one, Mapping):
        parts, others = dict(one), dict(other)
    elif isinstance(one, list | tuple | deque):
        parts, others = dict(enumerate(one)), dict(enumerate(other))
    elif hasattr(one, "__dict__"):
        parts, others = dict(vars(one)), dict(vars(other))
        for kind in type(one).__mro__:
            for name in vars(kind).get("NOT_STATE", {}):
                parts.pop(name, None)
                others.pop(name, None)
    else:
        return [] if one == other or (one != one and other != other) else [path]
    met.add(id(one))
    if parts.keys() != others.keys():
        return [f"{path}.{name}" for name in parts.keys() ^ others.keys()]
    inside = ("_parameters", "_buffers", "_modules")
    return [
        found
        for name, part in parts.items()
        for found in _differing(part, others[name], path if name in inside else f"{path}.{name}", met)
    ]
