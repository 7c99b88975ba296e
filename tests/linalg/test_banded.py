"""WᵀW by its bands against the dense product."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from streamgp.linalg import banded
from streamgp.linalg.interpolate import Grid, kronecker, stencil, toeplitz


def latents(rows: int, dims: int, seed: int = 0) -> Tensor:
    return 2 * torch.rand(rows, dims, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 1


def product(grid: Grid, h: Tensor) -> Tensor:
    """Dense WᵀW (m, m)."""
    rows = stencil(grid, h)
    w = torch.zeros(len(h), grid.count, dtype=h.dtype).scatter_add(1, rows.index, rows.weight)
    return w.T @ w


def grid_of(dims: int) -> Grid:
    """Axes of different lengths, with latents in every corner."""
    return Grid(tuple(Grid.cover(1, 6 + k).axes[0] for k in range(dims)))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_bands_are_the_dense_product(dims: int) -> None:
    grid = grid_of(dims)
    h = torch.cat([latents(40, dims), torch.ones(1, dims).double(), -torch.ones(1, dims).double()])
    wanted, bands = product(grid, h), banded.gram(stencil(grid, h), grid)
    torch.testing.assert_close(banded.multiply(bands, grid, torch.eye(grid.count, dtype=bands.dtype)), wanted)
    values = latents(grid.count, 3, seed=1)
    torch.testing.assert_close(banded.multiply(bands, grid, values), wanted @ values)
    columns = [latents(size, 1, seed=2)[:, 0] for size in grid.shape]
    inner = (banded.folded(bands, grid).flatten() * kronecker([c[:, None] for c in columns])[:, 0]).sum()
    torch.testing.assert_close(inner, (wanted * kronecker([toeplitz(c) for c in columns])).sum())


def test_rows_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, h = Grid.cover(2, 8), latents(50, 2)
    rows = stencil(grid, h)
    whole = banded.gram(rows, grid)
    monkeypatch.setattr("streamgp.linalg.banded._ENTRIES", 3000)
    assert torch.equal(banded.gram(rows, grid), whole)  # chunks do not change a bit
    parts = banded.gram(stencil(grid, h[:20]), grid)
    torch.testing.assert_close(banded.gram(stencil(grid, h[20:]), grid, out=parts), whole, rtol=1e-13, atol=1e-13)
    assert not banded.gram(stencil(grid, h[:0]), grid).any()
