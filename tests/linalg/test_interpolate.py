"""Cubic convolution against its definition, its order and its laws; the sparse products against dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp.errors import NumericalError, UsageError
from streamgp.linalg.interpolate import Grid, interpolate, kronecker, spread, stencil
from tests.solvers.oracles import keys_matrix
from tests.words import naming


def latents(rows: int, dims: int, seed: int = 0) -> Tensor:
    return 2 * torch.rand(rows, dims, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 1


def matrix(grid: Grid, h: Tensor) -> Tensor:
    """Dense W (N, m)."""
    rows = stencil(grid, h)
    return torch.zeros(len(h), grid.count, dtype=h.dtype).scatter_add(1, rows.index, rows.weight)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_weights_are_keys_kernel_of_the_distances(dims: int) -> None:
    grid, h = Grid.cover(dims, 8), latents(30, dims)
    np.testing.assert_allclose(matrix(grid, h), keys_matrix(grid, h.numpy()), atol=1e-13)


def test_a_grid_covers_with_two_points_beyond() -> None:
    grid = Grid.cover(2, 12, low=-0.5, high=2.0)
    for axis in grid.axes:
        assert axis[2].item() == pytest.approx(-0.5) and axis[-3].item() == pytest.approx(2.0)
    assert grid.points()[1].tolist() == [grid.axes[0][0].item(), grid.axes[1][1].item()]
    assert grid.steps == pytest.approx((2.5 / 7, 2.5 / 7))


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=2), st.integers(6, 40))
def test_weights_sum_to_one_and_stay_on_the_grid(place: list[float], size: int) -> None:
    grid = Grid.cover(2, size)
    rows = stencil(grid, torch.tensor([place], dtype=torch.float64))
    assert rows.weight.sum().item() == pytest.approx(1.0, abs=1e-12)
    assert rows.index.min() >= 0 and rows.index.max() < grid.count and len(set(rows.index[0].tolist())) == 16
    assert rows.weight.square().sum().item() <= 1 + 1e-9  # what the solver's truncation guard counts on


def test_grid_points_have_one_weight() -> None:
    grid = Grid.cover(2, 9)
    inside = (grid.points().abs() <= 1).all(1)
    eye = torch.eye(grid.count, dtype=torch.float64)[inside]
    torch.testing.assert_close(matrix(grid, grid.points()[inside]), eye, rtol=0, atol=1e-12)


def test_it_is_exact_for_quadratics_and_of_third_order() -> None:
    h = latents(400, 2)
    grid = Grid.cover(2, 10)
    quadratic = lambda x: 1 + x[:, :1] - 2 * x[:, 1:] + 3 * x[:, :1] * x[:, 1:] + x[:, 1:] ** 2  # noqa: E731
    torch.testing.assert_close(interpolate(stencil(grid, h), quadratic(grid.points())), quadratic(h))
    wave = lambda x: (4 * x).sin().sum(1, keepdim=True)  # noqa: E731
    errors = []
    for cells in (20, 40, 80):
        fine = Grid.cover(2, cells + 5)
        errors.append((interpolate(stencil(fine, h), wave(fine.points())) - wave(h)).abs().max().item())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders.min() > 2.7, f"errors {errors}"


def test_it_is_differentiable_across_cells() -> None:
    grid = Grid.cover(2, 9)
    values = torch.randn(grid.count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h, v: interpolate(stencil(grid, h), v), (latents(4, 2).requires_grad_(), values)
    )
    slopes = []
    for side in (-1e-9, 1e-9):  # both sides of a grid point
        h = torch.tensor([[0.5 + side, 0.1]], dtype=torch.float64, requires_grad=True)
        slopes.append(torch.autograd.grad(interpolate(stencil(grid, h), values).sum(), h)[0])
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-6, atol=1e-6)


def test_beyond_the_grid_the_nearest_place_answers() -> None:
    grid = Grid.cover(1, 9)
    far = torch.tensor([[-7.0], [-1.5], [1.5], [9.0]], dtype=torch.float64, requires_grad=True)
    rows = stencil(grid, far)
    assert torch.equal(rows.weight[0], rows.weight[1]) and torch.equal(rows.weight[2], rows.weight[3])
    out = interpolate(rows, grid.points())
    assert out.flatten().tolist() == [-1.5, -1.5, 1.5, 1.5]
    out.sum().backward()
    assert far.grad is not None and far.grad[0] == 0 and far.grad[3] == 0


def test_products_are_the_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, h = Grid.cover(2, 8), latents(50, 2)
    w, y, rows = matrix(grid, h), latents(50, 3, seed=1), stencil(grid, h)
    torch.testing.assert_close(spread(rows, y, grid.count), w.T @ y)


def test_kronecker_is_numpys() -> None:
    a, b = latents(3, 2), latents(2, 4, seed=1)
    np.testing.assert_allclose(kronecker([a, b, a]), np.kron(np.kron(a, b), a))


def test_impossible_grids_are_told() -> None:
    with pytest.raises(UsageError):
        Grid.cover(1, 5)
    with pytest.raises(UsageError, match=naming("3 2")):
        stencil(Grid.cover(2, 8), latents(1, 3))
    with pytest.raises(NumericalError, match=naming("NaN")):
        stencil(Grid.cover(1, 8), torch.full((1, 1), torch.nan, dtype=torch.float64))
