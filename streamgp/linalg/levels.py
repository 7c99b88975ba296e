"""Columns with a noise each: those that have the same one share a factor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def levels(noise: Tensor) -> list[tuple[Tensor, Tensor | slice]]:
    """The values of () or (T,) σ², L of them, and the columns that have each.

    Example:
        >>> levels(torch.tensor([2.0, 1.0, 2.0]))
        [(tensor(1.), tensor([1])), (tensor(2.), tensor([0, 2]))]
    """
    if noise.dim() == 0:
        return [(noise, slice(None))]
    return [(value, (noise == value).nonzero()[:, 0]) for value in noise.unique()]


def factors(found: Sequence[Tensor]) -> Tensor:
    """One (M, M) for each level -> (M, M) of one level, else (L, M, M)."""
    return found[0] if len(found) == 1 else torch.stack(list(found))


def parted(noise: Tensor, held: Tensor) -> list[tuple[Tensor, Tensor | slice, Tensor]]:
    """Of every level: () its value, its columns, and its factor in what `factors` returned."""
    own = held.unbind(0) if held.dim() == 3 else [held]
    return [(value, columns, factor) for (value, columns), factor in zip(levels(noise), own, strict=True)]


def beside(noise: Tensor, values: Sequence[Tensor]) -> Tensor:
    """(N,) of every level -> (N, 1) of one noise for all columns, else (N, T)."""
    if noise.dim() == 0:
        return values[0][:, None]
    found = values[0].new_empty(len(values[0]), len(noise))
    for (_, columns), value in zip(levels(noise), values, strict=True):
        found[:, columns] = value[:, None]
    return found


def each_column(noise: Tensor, values: Sequence[Tensor]) -> Tensor:
    """(N, N) of every level -> (1, N, N) of one noise for all columns, else (T, N, N)."""
    if noise.dim() == 0:
        return values[0][None]
    found = values[0].new_empty(len(noise), *values[0].shape)
    for (_, columns), value in zip(levels(noise), values, strict=True):
        found[columns] = value
    return found
