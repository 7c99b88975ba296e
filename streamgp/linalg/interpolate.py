"""Local cubic interpolation from a regular grid: the sparse W of structured kernel interpolation.

Cubic convolution (Keys 1981, "Cubic convolution interpolation for digital image processing", eq. 15, a = −½): a
value between two grid points is a weighted sum of the four nearest points of each dimension, 4^d in all. With
u in [0, 1] the place between the second and the third of them

    w = ½ [ −u³ + 2u² − u,  3u³ − 5u² + 2,  −3u³ + 4u² + u,  u³ − u² ]

It is C¹ in the place, exact for quadratic functions, third order in the spacing, and the weights sum to 1. Two steps
from the grid's edge no point is missing, so that Keys' boundary conditions are not needed.

Shapes: N rows, d dimensions, m = Π m_d grid points, K = 4^d; grid points are in row order, the last dimension fastest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional

from streamgp.base import FLOAT
from streamgp.errors import NumericalError, UsageError

LEAST = 6
"""Points of a dimension: two beyond each side, and one cell between."""
SIZES = {1: 128, 2: 32, 3: 16}
"""Grid points a dimension, by dimensions, where none are asked for."""
MOST = {1: 2048, 2: 512, 3: 64}
"""Grid points a dimension, at most: half a gigabyte for a hundred columns of numbers on the grid and its bands."""
_KEYS = torch.tensor(
    [[0.0, 1.0, 0.0, 0.0], [-0.5, 0.0, 0.5, 0.0], [1.0, -2.5, 2.0, -0.5], [-0.5, 1.5, -1.5, 0.5]], dtype=FLOAT
)
"""Coefficients of 1, u, u², u³ in each of the four weights."""
_FOUR = torch.arange(-1, 3)


@dataclass(frozen=True)
class Grid:
    """A regular grid.

    Attributes:
        axes: one (m_d,) a dimension: float64, ascending, evenly spaced.

    Example:
        >>> grid = Grid.cover(dims=2, size=9)
        >>> grid.shape, grid.count, grid.axes[0].tolist()
        ((9, 9), 81, [-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0])
    """

    NOT_STATE: ClassVar[Mapping[str, str]] = {"_bounds": "of the axes, made when they are asked for"}

    axes: tuple[Tensor, ...]

    @classmethod
    def cover(cls, dims: int, size: int, low: float = -1.0, high: float = 1.0) -> Self:
        """`size` points a dimension over [low, high], two of them beyond each end, so that no stencil is cut.

        Raises:
            UsageError: fewer than 6 points, or more than memory takes.
        """
        if size < LEAST:
            raise UsageError(
                f"a grid of {size} points a dimension has no cell between its borders",
                hint=f"use grid={LEAST} or more",
            )
        if size > (most := MOST.get(dims, size)):
            raise UsageError(
                f"a grid of {size:,} points in each of {dims} dimensions is beyond memory",
                hint=f"use grid={most} or less",
            )
        step = (high - low) / (size - 5)
        axis = low + step * (torch.arange(size, dtype=FLOAT) - 2)
        return cls((axis,) * dims)

    @property
    def dims(self) -> int:
        """d"""
        return len(self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """(m_1, …, m_d)"""
        return tuple(len(axis) for axis in self.axes)

    @property
    def count(self) -> int:
        """m"""
        return math.prod(self.shape)

    @property
    def steps(self) -> tuple[float, ...]:
        """The spacing of each dimension, in the units of the latents."""
        return tuple(float(axis[-1] - axis[0]) / (len(axis) - 1) for axis in self.axes)

    def bounds(self, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(d,) the first point, the spacing and the last place of latents like h, in steps from the first point."""
        first, step, last = self._bounds
        return first.to(h), step.to(h), last.to(h)

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor, Tensor]:
        first = [float(axis[0]) for axis in self.axes]
        last = [size - 2.0 for size in self.shape]
        made = (torch.tensor(part, dtype=FLOAT) for part in (first, self.steps, last))
        return next(made), next(made), next(made)

    def points(self) -> Tensor:
        """(m, d), the grid points in row order."""
        return torch.stack([part.flatten() for part in torch.meshgrid(*self.axes, indexing="ij")], 1)


@dataclass(frozen=True)
class Stencil:
    """N rows of W, each by its 4^d entries.

    Attributes:
        index: (N, K) int64, columns of W: grid points.
        weight: (N, K), the entries; negative ones among them. Differentiable in h.
    """

    index: Tensor
    weight: Tensor


def stencil(grid: Grid, h: Tensor) -> Stencil:
    """The rows of W for latents h.

    A latent beyond the second point from an edge, one step outside what `Grid.cover` was asked to cover, is taken
    for the nearest place that is not, and its gradient there is 0.

    Args:
        h: (N, d) float64.

    Raises:
        UsageError: h does not have the grid's dimensions.
        NumericalError: a latent is not finite.

    Example:
        >>> grid = Grid.cover(dims=1, size=9)
        >>> rows = stencil(grid, torch.tensor([[0.5], [0.25]], dtype=torch.float64))
        >>> rows.index.tolist(), rows.weight.tolist()
        ([[4, 5, 6, 7], [3, 4, 5, 6]], [[0.0, 1.0, 0.0, 0.0], [-0.0625, 0.5625, 0.5625, -0.0625]])
    """
    if h.shape[1] != grid.dims:
        raise UsageError(
            f"latents of {h.shape[1]} columns on a grid of {grid.dims} dimensions",
            hint="build the kernel, the grid and the encoder for the same latent width",
        )
    if not math.isfinite(float(h.detach().sum())) and not bool(torch.isfinite(h).all()):
        raise NumericalError("latents hold NaN or infinity", hint="look for infinite inputs, or lower the step size")
    first, step, last = grid.bounds(h)
    place = torch.clamp((h - first) / step, torch.ones_like(last), last)  # in steps from the first point
    left = place.detach().floor().minimum(last - 1)
    weights = _cubic(place - left)  # (N, d, 4)
    points = left.to(torch.int64)[:, :, None] + _FOUR.to(h.device)  # (N, d, 4)
    index, weight = points[:, 0], weights[:, 0]
    for dim, size in enumerate(grid.shape[1:], 1):
        index = (index[:, :, None] * size + points[:, dim, None, :]).flatten(1)
        weight = (weight[:, :, None] * weights[:, dim, None, :]).flatten(1)
    return Stencil(index, weight)


def interpolate(rows: Stencil, values: Tensor) -> Tensor:
    """W values: grid values (m, R) at the rows, (N, R); differentiable once in h and in the values.

    Example:
        >>> grid = Grid.cover(dims=1, size=9)
        >>> rows = stencil(grid, torch.tensor([[0.3]], dtype=torch.float64))
        >>> round(interpolate(rows, grid.points() ** 2).item(), 12)
        0.09
    """
    out: Tensor = functional.embedding_bag(rows.index, values, mode="sum", per_sample_weights=rows.weight)
    return out


def spread(rows: Stencil, y: Tensor, count: int) -> Tensor:
    """Wᵀ y: (N, T) row values -> (m, T) sums at the m = `count` grid points, in the order of the rows.

    Example:
        >>> grid = Grid.cover(dims=1, size=9)
        >>> rows = stencil(grid, torch.tensor([[0.5], [0.5]], dtype=torch.float64))
        >>> spread(rows, torch.tensor([[1.0], [2.0]], dtype=torch.float64), grid.count)[5].item()
        3.0
    """
    parts = (rows.weight[:, :, None] * y[:, None, :]).flatten(0, 1)
    return torch.zeros(count, y.shape[1], dtype=y.dtype, device=y.device).index_add_(0, rows.index.flatten(), parts)


def toeplitz(column: Tensor) -> Tensor:
    """The symmetric Toeplitz matrix (m, m) with the first column (m,).

    Example:
        >>> toeplitz(torch.tensor([3.0, 1.0, 0.0]))
        tensor([[3., 1., 0.],
                [1., 3., 1.],
                [0., 1., 3.]])
    """
    place = torch.arange(len(column), device=column.device)
    return column[(place[:, None] - place).abs()]


def kronecker(factors: Sequence[Tensor]) -> Tensor:
    """T_1 ⊗ … ⊗ T_d of (m_d, n_d) matrices, (Π m_d, Π n_d): grid matrices in this module's row order.

    Example:
        >>> kronecker([torch.eye(2), torch.tensor([[1.0, 2.0]])]).tolist()
        [[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0]]
    """
    out = factors[0]
    for factor in factors[1:]:
        out = torch.kron(out, factor)
    return out


def _cubic(u: Tensor) -> Tensor:
    """(...) places in [0, 1] -> (..., 4) weights."""
    square = u.square()
    return torch.stack((torch.ones_like(u), u, square, square * u), -1) @ _KEYS.to(u)
