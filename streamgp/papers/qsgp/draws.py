"""Draws of features in time independent of their number m (Evans & Nair 2020, Theorem 1).

Two ways, both unbiased with the weight that comes with them:

- one by one, uniformly **with replacement**: weight m/m̃, as the paper draws;
- a whole cell of a **fixed partition** of the m features into B cells, uniformly: weight B, also when cells differ in
  size, since every feature lies in exactly one cell. Blocks are contiguous, so nothing is gathered. Features inside a
  cell are always drawn together: harmless for random features, but order inducing points at random first.

A random start in [0, m − m̃] without wrapping is biased (the ends are drawn too seldom), and so are i ≠ j by force
(μ_jᵀΦᵀΦμ_i then misses the pairs inside a cell) and i = j (it then holds nothing else).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor


class CellPair(NamedTuple):
    """Two independent cells.

    Attributes:
        i, j: numbers of cells, 0 to B − 1; they may be equal.
        weight: cells that a drawn one stands for: B.
    """

    i: int
    j: int
    weight: float

    @property
    def touched(self) -> tuple[int, ...]:
        """The cells of i ∪ j, without repetition."""
        return (self.i,) if self.i == self.j else (self.i, self.j)

    @property
    def scale(self) -> float:
        """m/|i ∪ j| of appendix F.1, in cells: the factor of a gradient that is kept on i ∪ j only."""
        return self.weight / len(self.touched)


class Indices(NamedTuple):
    """Two independent draws of features with replacement.

    Attributes:
        i, j: (m̃,) numbers of features; repetitions may occur.
        weight: m/m̃.
        touched: (|i ∪ j|,) the features of i ∪ j in order, without repetition.
        scale: m/|i ∪ j| (appendix F.1).
    """

    i: Tensor
    j: Tensor
    weight: float
    touched: Tensor
    scale: float


def draw_cells(cells: int, generator: Generator) -> CellPair:
    """Two cells out of B, uniformly and independently.

    Example:
        >>> draw = draw_cells(1, torch.Generator())
        >>> draw.touched, draw.scale
        ((0,), 1.0)
    """
    i, j = torch.randint(cells, (2,), generator=generator).tolist()
    return CellPair(int(i), int(j), float(cells))


def draw_indices(features: int, size: int, generator: Generator) -> Indices:
    """Twice m̃ = `size` features out of m, uniformly with replacement; O(m̃ log m̃).

    Example:
        >>> draw = draw_indices(10**7, 500, torch.Generator().manual_seed(0))
        >>> draw.weight, len(draw.touched) <= 1000
        (20000.0, True)
    """
    i, j = torch.randint(features, (2, size), generator=generator)
    touched = torch.cat((i, j)).unique()
    return Indices(i, j, features / size, touched, features / len(touched))
