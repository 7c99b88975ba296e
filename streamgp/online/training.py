"""Small things that models behind an encoder share: what a head predicts, weights set aside, the latent width."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from streamgp.errors import NumericalError

OUTLIER = 25.0
"""Squared standardised error that one row counts for at most in a variance: sensor glitches would dominate it."""


class Moments(NamedTuple):
    """Standardised: mean (N, T), latent variance (N, T), noise (N, T) or (T,)."""

    mean: Tensor
    latent: Tensor
    noise: Tensor


@torch.no_grad()
def in_chunks(moments: Callable[[Tensor], Moments], z: Tensor, size: int) -> Moments:
    """`moments` of z (N, W), so many rows at a time.

    Example:
        >>> z = torch.ones(5, 1)
        >>> in_chunks(lambda some: Moments(some, some, torch.ones(1)), z, 2).mean.shape
        torch.Size([5, 1])
    """
    parts = [moments(part) for part in z.split(size)]
    mean, latent = (torch.cat([part[place] for part in parts]) for place in (0, 1))
    return Moments(mean, latent, parts[0].noise)


def weights(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Copies of parameters and buffers, as "module.tensor".

    Example:
        >>> sorted(weights({"head": nn.Linear(2, 1)}))
        ['head.bias', 'head.weight']
    """
    return {
        f"{name}.{key}": value.detach().clone()
        for name, module in modules.items()
        for key, value in module.state_dict().items()
    }


@torch.no_grad()
def load(modules: Mapping[str, nn.Module], copies: Mapping[str, Tensor]) -> None:
    """Put the modules back to such copies; without any they stay as they are."""
    for name, module in modules.items():
        for key, value in module.state_dict().items():
            if f"{name}.{key}" in copies:
                value.copy_(copies[f"{name}.{key}"])


def attempt(work: Callable[[], object], put_back: Callable[[], object]) -> str:
    """Do some work; where it fails numerically, put back what was. Returns why it failed, or nothing.

    Example:
        >>> def solve() -> None:
        ...     raise NumericalError("no factor")
        >>> attempt(solve, lambda: print("as before"))
        as before
        'no factor'
    """
    try:
        work()
    except NumericalError as error:
        put_back()
        return error.message
    return ""


def sized(encoder: BaseModel, width: int | None) -> BaseModel:
    """An encoder's Config with this latent width, unless it names one; None: as wide as its hidden layer.

    Example:
        >>> from streamgp.encoders import lstm
        >>> sized(lstm.Config(hidden=8), None).width, sized(lstm.Config(width=3), 2).width
        (8, 3)
    """
    if "width" in encoder.model_fields_set or "width" not in type(encoder).model_fields:
        return encoder
    return encoder.model_copy(update={"width": width or encoder.model_dump()["hidden"]})


@contextmanager
def training(encoder: nn.Module) -> Iterator[None]:
    """Inside, the encoder is in training mode: its arithmetic may be cheaper."""
    encoder.train()
    try:
        yield
    finally:
        encoder.eval()
