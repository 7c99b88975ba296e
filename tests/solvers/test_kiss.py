"""The KISS solver against a NumPy twin of the same model, finite differences, and the exact solver."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from streamgp.errors import NotPositiveDefinite, UsageError
from streamgp.kernels import Kernel, Stationary, linear, matern, spectral_mixture, squared_exponential
from streamgp.kernels import sum as composed
from streamgp.linalg.interpolate import Grid, kronecker, toeplitz
from streamgp.solvers import exact, kiss
from streamgp.solvers.kiss.basis import contract, eigenbasis, fold
from streamgp.testing.solvers import example_rows
from tests.solvers.oracles import gaussian_process, keys_matrix
from tests.words import naming


def se(dims: int, lengthscale: float = 0.5) -> Kernel:
    return squared_exponential.build(squared_exponential.Config(lengthscale=lengthscale, outputscale=1.3), dims)


def solver(kernel: Kernel, columns: int, **options: Any) -> kiss.Kiss:
    """With noises that differ."""
    built = kiss.build(kiss.Config(**options), kernel, columns)
    with torch.no_grad():
        built.log_noise.copy_(torch.linspace(-2.5, -1.0, columns, dtype=torch.float64))
    return built


def learned(built: kiss.Kiss, h: Tensor, y: Tensor) -> kiss.GridSums:
    data = built.data()
    data.add(h, y)
    return data


def grid_matrix(built: kiss.Kiss) -> NDArray[np.float64]:
    """(m, m) K_UU by the kernel itself."""
    points = built.grid.points()
    return built.kernel(points, points).detach().numpy()


def twins(built: kiss.Kiss, h: Tensor, y: Tensor, weight: NDArray[np.float64], at: Tensor) -> list[Any]:
    """A dense NumPy GP a column with covariance W K_UU Wᵀ, nothing truncated."""
    w, there, k = keys_matrix(built.grid, h.numpy()), keys_matrix(built.grid, at.numpy()), grid_matrix(built)
    prior = (there @ k * there).sum(1)
    return [
        gaussian_process(w @ k @ w.T, w @ k @ there.T, prior, column, weight, noise)
        for column, noise in zip(y.numpy().T, built.noise.tolist(), strict=True)
    ]


KERNELS = {
    "se": se(2),
    "matern": matern.build(matern.Config.model_validate({"nu": 1.5, "separable": True}), 2),
    "mixture": spectral_mixture.build(spectral_mixture.Config(), 2),
}


@pytest.mark.parametrize("name", KERNELS)
def test_it_is_the_dense_model_on_the_grid(name: str) -> None:
    h, y = example_rows(60, 2, 2)
    at, _ = example_rows(9, 2, 1, seed=1)
    built = solver(KERNELS[name], 2, grid=9, rank=1000)
    data = learned(built, h[:40], y[:40])
    data.forget(0.3)
    data.add(h[40:], y[40:])
    weight = np.r_[np.full(40, 0.3), np.ones(20)]
    dense, posterior = twins(built, h, y, weight, at), built.condition(data)
    assert data.count == pytest.approx(32.0)
    assert built.nlml(data).item() == pytest.approx(sum(twin.nlml for twin in dense), rel=1e-9)
    np.testing.assert_allclose(posterior.mean(at), np.stack([twin.mean for twin in dense], 1), atol=1e-8)
    np.testing.assert_allclose(posterior.variance(at), np.stack([twin.variance for twin in dense], 1), atol=1e-8)


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_are_the_finite_differences_of_the_dense_model(name: str) -> None:
    h, y = example_rows(50, 2, 2)
    built = solver(KERNELS[name], 2, grid=8, rank=1000)
    got = torch.autograd.grad(built.nlml(learned(built, h, y)), list(built.parameters()))

    def value() -> float:
        return sum(twin.nlml for twin in twins(built, h, y, np.ones(50), h[:1]))

    for parameter, slope in zip(built.parameters(), got, strict=True):
        flat = parameter.detach().view(-1)
        for place in range(min(3, len(flat))):
            at, step, ends = flat[place].item(), 1e-4, []
            for shift in (1, -1, 2, -2):
                flat[place] = at + shift * step
                ends.append(value())
            flat[place] = at
            wanted = (8 * (ends[0] - ends[1]) - (ends[2] - ends[3])) / (12 * step)  # fourth order
            assert slope.flatten()[place].item() == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("dims", [1, 3])
def test_other_dimensions_are_the_dense_model_too(dims: int) -> None:
    h, y = example_rows(40, dims, 1)
    built = solver(se(dims), 1, grid={1: 30, 3: 7}[dims], rank=1000)
    (twin,) = twins(built, h, y, np.ones(40), h)
    data = learned(built, h, y)
    assert built.nlml(data).item() == pytest.approx(twin.nlml, rel=1e-9)
    np.testing.assert_allclose(built.condition(data).variance(h)[:, 0], twin.variance, atol=1e-8)


def test_against_the_exact_process_on_the_default_grid() -> None:
    """The acceptance of the solver: NLML 1e-3, gradients in θ, σ² and the rows 1 %, ℓ = 5 dx and 10 dx."""
    h, y = example_rows(300, 2, 2)
    for cells in (5.0, 10.0):
        step = Grid.cover(2, 32).steps[0]
        built = solver(se(2, lengthscale=cells * step), 2)
        oracle = exact.build(exact.Config(), built.kernel, 2)
        oracle.log_noise = built.log_noise
        data, rows = learned(built, h, y), oracle.data()
        rows.add(h, y)
        ours, theirs = built.nlml(data), oracle.nlml(rows)
        assert built.grid.shape == (32, 32) and ours.item() == pytest.approx(theirs.item(), rel=1e-3)
        names = [name for name, _ in built.named_parameters()]
        slopes = [torch.autograd.grad(v, list(s.parameters())) for v, s in ((ours, built), (theirs, oracle))]
        assert names == [name for name, _ in oracle.named_parameters()]
        got, wanted = (torch.cat([part.flatten() for part in parts]) for parts in slopes)
        assert (got - wanted).norm() <= 1e-2 * wanted.norm()
        free, posterior = h.clone().requires_grad_(), built.condition(data)
        e = ((y - posterior.mean(free)).square() + posterior.variance(free)) / (2 * posterior.noise)
        own, true = torch.autograd.grad(e.sum(), free)[0], oracle.row_gradients(h, y)
        assert (own - true).norm() <= 1e-2 * true.norm()


def test_the_gradient_survives_repeated_eigenvalues() -> None:
    """Equal lengthscales: every eigenvalue of a square grid comes twice."""
    h, y = example_rows(50, 2, 1)
    slopes = []
    for apart in (0.0, 1e-4):
        built = solver(se(2), 1, grid=10, rank=40)
        with torch.no_grad():
            built.kernel.log_lengthscale[0] += apart - (
                built.kernel.log_lengthscale[0] - built.kernel.log_lengthscale[1]
            )
        value = built.nlml(learned(built, h, y))
        slopes.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, list(built.parameters()))]))
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-2, atol=1e-2)


def test_rank_grows_until_little_is_lost() -> None:
    axes = Grid.cover(2, 12).axes
    rough = matern.build(matern.Config.model_validate({"nu": 0.5, "separable": True}), 2)
    with torch.no_grad():
        terms = rough.grid_terms(axes)
    full = kronecker([toeplitz(column) for column in terms[0]])
    for lost in (1.0, 1e-1, 1e-2):
        basis = eigenbasis(terms, 10, lost)
        left = torch.linalg.eigvalsh(full - basis @ basis.T)
        assert left[0] > -1e-10 and left[-1] <= lost and basis.shape[1] >= 10
    widths = [eigenbasis(terms, 10, lost).shape[1] for lost in (10.0, 1e-1, 0.0)]
    assert widths[0] == 10 < widths[1] < widths[2] == 144
    assert eigenbasis(terms, 500, 10.0).shape[1] == 144


def test_terms_stand_side_by_side_until_one_dense_problem_is_smaller() -> None:
    axes = Grid.cover(2, 8).axes
    with torch.no_grad():
        terms = se(2).grid_terms(axes) + KERNELS["matern"].grid_terms(axes)
    full = torch.stack([kronecker([toeplitz(column) for column in term]) for term in terms]).sum(0)
    for rank in (20, 63, 64, 200):
        basis = eigenbasis(terms, rank, 3.0)
        assert min(rank, 64) <= basis.shape[1] <= 64
        assert torch.linalg.matrix_norm(full - basis @ basis.T, 2) < (3.0 if rank < 64 else 1e-12)


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4)])
def test_folding_keeps_every_toeplitz_product(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    generator = Generator().manual_seed(0)
    factors, weights = torch.randn(math.prod(shape), 5, dtype=torch.float64, generator=generator), torch.arange(5.0) - 1
    matrix = factors @ (weights.double() * factors).T
    terms = [[torch.randn(m, dtype=torch.float64, generator=generator) for m in shape] for _ in range(2)]
    wanted = sum((matrix * kronecker([toeplitz(column) for column in term])).sum() for term in terms)
    for numbers in (1, 1 << 20):
        monkeypatch.setattr("streamgp.solvers.kiss.basis.NUMBERS", numbers)
        folded = fold(factors, weights.double(), shape)
        torch.testing.assert_close(contract(folded, terms), wanted)


def test_memory_and_state_do_not_grow_with_the_rows() -> None:
    built = solver(se(2), 1, grid=10)
    data = built.data()
    sizes = set()
    for seed in range(3):
        data.add(*example_rows(200, 2, 1, seed))
        sizes.add(sum(tensor.numel() for tensor in data.state()[0].values()))
    assert sizes == {49 * 100 + 100 + 1} and data.count == 600


def test_prediction_in_chunks_is_prediction() -> None:
    h, y = example_rows(100, 2, 1)
    built = solver(se(2), 1, grid=10)
    posterior = built.condition(learned(built, h, y))
    at, _ = example_rows(kiss._CHUNK + 5, 2, 1, seed=1)
    whole = posterior.variance(at)
    torch.testing.assert_close(whole[-3:], posterior.variance(at[-3:]), rtol=1e-12, atol=1e-14)
    assert len(whole) == len(at) and (whole > 0).all() and (whole <= 1.3).all()
    mean, variance = posterior.moments(at)
    assert torch.equal(variance, whole)
    torch.testing.assert_close(mean, posterior.mean(at), rtol=1e-12, atol=1e-14)


def test_what_it_cannot_do_is_told() -> None:
    with pytest.raises(UsageError, match=naming("1 3 4")):
        kiss.build(kiss.Config(), se(4), 1)
    with pytest.raises(UsageError):
        kiss.build(kiss.Config(), linear.build(linear.Config(), 2), 1)
    lost = solver(se(2), 1, grid=8)
    with torch.no_grad():
        next(lost.kernel.parameters()).fill_(torch.nan)
    with pytest.raises(NotPositiveDefinite, match=naming("NaN")):
        lost.nlml(lost.data())


PARTS = {"parts": [{"name": "matern", "separable": True}, "periodic"]}


def test_lengthscales_are_kept_at_five_cells_where_they_are_in_units_of_the_latents() -> None:
    """Inside sums too; a periodic kernel's lengthscale is one on the circle and stays."""
    for room in (kiss,):
        kernel: Any = composed.build(composed.Config.model_validate(PARTS), 2)
        built = room.build(room.Config(grid=25), kernel, 1)
        step = built.grid.steps[0]
        spatial, circular = (part for part in kernel.modules() if isinstance(part, Stationary))
        with torch.no_grad():
            spatial.log_lengthscale.copy_(torch.tensor([step, 9 * step]).log())
            circular.log_lengthscale.fill_(-5.0)
        built.project()
        assert spatial.lengthscale.tolist() == pytest.approx([5 * step, 9 * step])
        assert circular.log_lengthscale.eq(-5.0).all()


def test_a_weight_is_so_many_rows() -> None:
    h, y = example_rows(30, 2, 2)
    built = solver(se(2), 2, grid=9)
    weighted, twice = built.data(), learned(built, torch.cat([h, h[:10]]), torch.cat([y, y[:10]]))
    weighted.add(h, y, torch.cat([torch.full((10,), 2.0), torch.ones(20)]).to(h))
    for one, other in zip(weighted.sums(), twice.sums(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
