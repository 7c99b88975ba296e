"""WᵀW of local interpolation: a matrix over grid points that links only points at most three steps apart.

Two points share a row of W only where its stencil of 4 points a dimension holds both. Of the m columns of a row of
WᵀW at most 7^d are then not 0, and these bands are all that is kept: 400 kB instead of 8 MB on a 32×32 grid.

Shapes: m = Π m_d grid points in row order, b = 7^d bands; band e of row i links point i and point i + δ_e, with the
offsets δ_e in {−3 … 3}^d in row order. Entries whose second point would lie beyond the grid are 0.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from streamgp.base import FLOAT
from streamgp.linalg.interpolate import Grid, Stencil

REACH = 3
"""Steps between two points of one stencil, at most."""
_ENTRIES = 1 << 22
"""Products of weights that `gram` makes at a time: 32 MB."""


def empty(grid: Grid) -> Tensor:
    """(m, b) zeros, float64.

    Example:
        >>> empty(Grid.cover(dims=2, size=9)).shape
        torch.Size([81, 49])
    """
    return torch.zeros(grid.count, (2 * REACH + 1) ** grid.dims, dtype=FLOAT)


def gram(rows: Stencil, grid: Grid, out: Tensor | None = None) -> Tensor:
    """Wᵀ W, (m, b) bands, in O(N 16^d); added to `out` in place where one is given.

    Rows are summed by the cell that they are in, in their order, and the cells then laid over each other: most of
    the work is on contiguous memory. Rows added in pieces differ from rows at once by rounding.

    Args:
        rows: from `stencil`, as it gave them.
        grid: their grid.

    Example:
        >>> from streamgp.linalg.interpolate import stencil
        >>> grid = Grid.cover(dims=1, size=9)
        >>> rows = stencil(grid, torch.tensor([[0.5], [0.5]], dtype=torch.float64))
        >>> gram(rows, grid)[5].tolist()
        [0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0]
    """
    index, weight = rows.index, rows.weight.detach()
    if out is None:
        out = empty(grid).to(weight.device)
    size = index.shape[1]
    cell, own = index[:, 0].unique(return_inverse=True)  # a cell is known by the first point of its stencil
    sums = torch.zeros(len(cell), size * size, dtype=weight.dtype, device=weight.device)
    chunk = max(1, _ENTRIES // size**2)
    for start in range(0, len(index), chunk):
        value = weight[start : start + chunk]
        sums.index_add_(0, own[start : start + chunk], (value[:, :, None] * value[:, None, :]).flatten(1))
    at = cell[:, None] + (index[:1] - index[:1, :1])  # (cells, K), as every stencil has the same shape
    place = (at * out.shape[1])[:, :, None] + _pair_bands(grid.dims).to(at.device)
    out.view(-1).index_add_(0, place.flatten(), sums.flatten())
    return out


def multiply(bands: Tensor, grid: Grid, values: Tensor) -> Tensor:
    """The matrix times (m, r), (m, r), in O(7^d m r).

    Example:
        >>> from streamgp.linalg.interpolate import stencil
        >>> grid = Grid.cover(dims=1, size=9)
        >>> bands = gram(stencil(grid, torch.tensor([[0.5]], dtype=torch.float64)), grid)
        >>> multiply(bands, grid, grid.points())[5].item()
        0.5
    """
    index = _neighbours(grid.shape).to(bands.device)
    out: Tensor = functional.embedding_bag(index, values, mode="sum", per_sample_weights=bands)
    return out


def folded(bands: Tensor, grid: Grid) -> Tensor:
    """(m_1, …, m_d): sums over pairs of points that are (o_1, …, o_d) steps apart in either direction; O(7^d m).

    Example:
        >>> from streamgp.linalg.interpolate import stencil
        >>> grid = Grid.cover(dims=1, size=9)
        >>> bands = gram(stencil(grid, torch.tensor([[0.25]], dtype=torch.float64)), grid)
        >>> whole = multiply(bands, grid, torch.eye(grid.count, dtype=bands.dtype))
        >>> bool(torch.isclose(folded(bands, grid).sum(), whole.sum()))
        True
    """
    out = torch.zeros(grid.shape, dtype=bands.dtype, device=bands.device)
    steps = _offsets(grid.dims).abs().to(bands.device)
    out.index_put_(tuple(steps.unbind(1)), bands.sum(0), accumulate=True)
    return out


def _offsets(dims: int) -> Tensor:
    """(b, d) int64."""
    return torch.tensor(list(product(range(-REACH, REACH + 1), repeat=dims)))


@lru_cache(maxsize=8)
def _pair_bands(dims: int) -> Tensor:
    """(K, K): the band that links point k and point l of a stencil."""
    points = torch.tensor(list(product(range(4), repeat=dims)))  # (K, d)
    apart = points[None] - points[:, None] + REACH  # (K, K, d), what has to be added to reach the second
    place = torch.zeros(apart.shape[:2], dtype=torch.int64)
    for one in apart.unbind(2):
        place = place * (2 * REACH + 1) + one
    return place


@lru_cache(maxsize=8)
def _neighbours(shape: tuple[int, ...]) -> Tensor:
    """(m, b) the second point of every entry; a point of the grid's edge where there is none."""
    place = torch.zeros(1, 1, dtype=torch.int64)  # (points so far, bands so far)
    for size in shape:
        one = (torch.arange(size)[:, None] + torch.arange(-REACH, REACH + 1)).clamp(0, size - 1)  # (m_k, 7)
        place = (place[:, None, :, None] * size + one[None, :, None, :]).flatten(2).flatten(0, 1)
    return place
