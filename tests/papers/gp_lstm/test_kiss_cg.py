"""kiss_cg against the dense model W K_UU Wᵀ + σ²I, against exact and kiss, and W K_UU Wᵀ against GPyTorch."""

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import NumericalError, UsageError
from streamgp.kernels import linear, matern, spectral_mixture, squared_exponential
from streamgp.kernels import sum as sum_kernel
from streamgp.linalg.interpolate import Grid, Stencil, interpolate, stencil
from streamgp.linalg.krylov import conjugate_gradients
from streamgp.papers.gp_lstm.kiss_cg import KissCG, LatentRows
from streamgp.papers.gp_lstm.system import CgSettings, KissSystem, Sparse, grid_variance
from streamgp.papers.gp_lstm.toeplitz import KroneckerSum
from streamgp.solvers import exact, kiss, kiss_cg
from tests.properties import examples
from tests.words import naming


def smooth(dims: int, lengthscale: float = 0.7) -> squared_exponential.SquaredExponential:
    return squared_exponential.build(squared_exponential.Config(lengthscale=lengthscale), dims)


def rough(dims: int) -> torch.nn.Module:
    return matern.build(matern.Config(nu=0.5, lengthscale=0.5, separable=True), dims)


def rows(count: int, dims: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    h = 2 * torch.rand(count, dims, generator=generator, dtype=FLOAT) - 1
    noise = 0.1 * torch.randn(count, 2, generator=generator, dtype=FLOAT)
    return h, torch.stack([torch.sin(3 * h.sum(1)), torch.cos(2 * h[:, 0])], 1) + noise


def solver_of(kernel: torch.nn.Module, columns: int = 2, **options: float) -> KissCG:
    solver = kiss_cg.build(kiss_cg.Config(noise=0.01, **options), kernel, columns)
    with torch.no_grad():
        solver.log_noise += torch.arange(columns)  # every column its own noise
    return solver


def learned(solver: KissCG, h: Tensor, y: Tensor) -> LatentRows:
    """Half of the rows forgotten a little."""
    data = solver.data()
    data.add(h[: len(h) // 2], y[: len(h) // 2])
    data.forget(0.7)
    data.add(h[len(h) // 2 :], y[len(h) // 2 :])
    return data


def dense_rows(solver: KissCG, h: Tensor) -> Tensor:
    """(N, m) W."""
    return interpolate(stencil(solver.grid, h), torch.eye(solver.grid.count, dtype=FLOAT))


class Dense:
    """The model in dense matrices; K_UU by the kernel itself."""

    def __init__(self, solver: KissCG, data: LatentRows) -> None:
        points = solver.grid.points()
        self.solver, self.grid_covariance = solver, solver.kernel(points, points)  # (m, m)
        self.w, self.weight, self.y = dense_rows(solver, data.h), data.weight, data.y
        self.k = self.w @ self.grid_covariance @ self.w.T  # (N, N)
        self.noisy = [self.k + torch.diag(noise / self.weight) for noise in solver.noise]

    def nlml(self) -> Tensor:
        total = torch.zeros((), dtype=FLOAT)
        for noise, noisy, y in zip(self.solver.noise, self.noisy, self.y.T, strict=True):
            spare = (self.weight * (2 * math.pi * noise).log()).sum() - (noise / self.weight).log().sum()
            total = total + 0.5 * (y @ torch.linalg.solve(noisy, y) + torch.logdet(noisy) + spare)
        return total

    def moments(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """(M, T) means, (T, M, M) covariances."""
        w = dense_rows(self.solver, at)
        cross, own = self.w @ self.grid_covariance @ w.T, w @ self.grid_covariance @ w.T
        solved = [torch.linalg.solve(noisy, cross) for noisy in self.noisy]
        means = [part.T @ y for part, y in zip(solved, self.y.T, strict=True)]
        return torch.stack(means, 1), torch.stack([own - cross.T @ part for part in solved])

    def divergence(self) -> Tensor:
        parts = []
        for noise, noisy, y in zip(self.solver.noise, self.noisy, self.y.T, strict=True):
            alpha = torch.linalg.solve(noisy, y)
            inner = torch.eye(len(y), dtype=FLOAT) + self.k * self.weight / noise
            parts.append(alpha @ self.k @ alpha - torch.linalg.solve(noisy, self.k).trace() + torch.logdet(inner))
        return 0.5 * torch.stack(parts)


def slopes(value: Tensor, solver: KissCG) -> Tensor:
    return torch.cat([part.flatten() for part in torch.autograd.grad(value, list(solver.parameters()))])


CASES = {
    "1-D": (lambda: smooth(1), {}, 120),
    "2-D": (lambda: smooth(2), {"grid": 20}, 120),
    "3-D": (lambda: smooth(3, 1.2), {"grid": 10, "rank": 120}, 120),
    "4-D": (lambda: smooth(4, 2.0), {"grid": 7, "rank": 80, "products": "fft"}, 80),
    "by FFT": (lambda: smooth(2), {"grid": 16, "products": "fft"}, 100),
    "mixture": (lambda: spectral_mixture.build(spectral_mixture.Config(), 1), {"grid": 60}, 80),
    "sum": (
        lambda: sum_kernel.build(sum_kernel.Config(parts=("squared_exponential", {"name": "matern", "nu": 2.5})), 1),
        {"grid": 60, "rank": 120},
        120,
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_with_a_complete_preconditioner_it_is_the_dense_model(name):
    make, options, count = CASES[name]
    solver = solver_of(make(), **options)
    data, at = learned(solver, *rows(count, solver.kernel.dims)), rows(20, solver.kernel.dims, seed=1)[0]
    oracle, found = Dense(solver, data), solver.nlml(data)
    truth = oracle.nlml()
    assert found.item() == pytest.approx(truth.item(), rel=1e-6)
    torch.testing.assert_close(slopes(found, solver), slopes(truth, solver), rtol=1e-5, atol=1e-4)
    oracle, posterior = Dense(solver, data), solver.condition(data)
    mean, covariance = oracle.moments(at)
    torch.testing.assert_close(posterior.mean(at), mean, rtol=1e-6, atol=1e-6)
    variance = covariance.diagonal(dim1=1, dim2=2).T
    torch.testing.assert_close(posterior.variance(at), variance, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(posterior.divergence(), oracle.divergence(), rtol=1e-6, atol=1e-5)


def test_products_and_solves_are_the_dense_ones():
    solver = solver_of(rough(2), grid=20)
    data = learned(solver, *rows(100, 2))
    oracle, root = Dense(solver, data), data.weight.sqrt()
    system, v = solver.condition(data).system, rows(100, 2, seed=3)[1]
    k = root[:, None] * oracle.k * root
    torch.testing.assert_close(system.product(v), k @ v, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(grid_variance(data.sparse().stencil, system.covariance), oracle.k.diagonal())
    for t, noise in enumerate(solver.noise):
        wanted = torch.linalg.solve(k + noise * torch.eye(100, dtype=FLOAT), root * data.y[:, t])
        assert (system.alpha[:, t] - wanted).norm() <= 1e-6 * wanted.norm()


POOR = {"pivoted": {"rank": 10}, "circulant": {"preconditioner": "circulant"}}


@pytest.mark.parametrize("name", ["pivoted", pytest.param("circulant", marks=[pytest.mark.slow])])
def test_with_a_poor_preconditioner_value_and_gradient_are_unbiased(name):
    """Means over 25 seeds are within 5 of their standard errors of the dense ones, and the spread is not 0."""
    data = learned(solver := solver_of(rough(2), grid=9), *rows(40, 2))
    truth = Dense(solver, data).nlml()
    wanted = torch.cat([truth.detach()[None], slopes(truth, solver)])
    drawn = []
    for seed in range(25):
        solver = solver_of(rough(2), grid=9, steps=40, seed=seed, **POOR[name])
        value = solver.nlml(data)
        drawn.append(torch.cat([value.detach()[None], slopes(value, solver)]))
    found = torch.stack(drawn)
    error = found.std(0) / 5
    assert bool(((found.mean(0) - wanted).abs() <= 5 * error).all()), (found.mean(0) - wanted) / error
    assert bool((error > 1e-4).all())
    assert float(error[0]) < 0.03 * abs(float(wanted[0])) + 1


@pytest.mark.parametrize("name", POOR)
def test_the_log_determinant_is_unbiased_over_the_probes(name):
    solver = solver_of(rough(2), grid=9, steps=40, probes=100, **POOR[name])
    data = learned(solver, *rows(40, 2))
    root, found = data.weight.sqrt(), solver.condition(data).system.stochastic
    k = root[:, None] * Dense(solver, data).k.detach() * root
    for noise, probes, traces in zip(solver.noise, found.log_determinant, found.inverse_trace, strict=True):
        a = k + noise.detach() * torch.eye(40, dtype=FLOAT)
        for estimates, wanted in ((probes, torch.logdet(a)), (traces, torch.linalg.inv(a).trace())):
            error = estimates.std() / len(estimates) ** 0.5
            assert error > 0 and (estimates.mean() - wanted).abs() <= 5 * error


def test_the_circulant_preconditioner_is_positive_definite_and_saves_steps():
    h, y = rows(300, 1)
    solver = solver_of(rough(1), grid=160, preconditioner="circulant")
    system = solver.condition(learned(solver, h, y)).system
    which, eye = torch.zeros(300, dtype=torch.int64), torch.eye(300, dtype=FLOAT)
    inverse = system.preconditioner(which)(eye)
    torch.testing.assert_close(inverse, inverse.T, rtol=0, atol=1e-9)
    assert torch.linalg.eigvalsh(inverse)[0] > 0
    whole = system.product(eye) + system.noise[0] * eye
    torch.testing.assert_close(system.alpha[:, :1], torch.linalg.solve(whole, system.y[:, :1]), rtol=1e-5, atol=1e-6)
    counts = [
        conjugate_gradients(lambda v: whole @ v, system.y[:, :1], precondition=one).iterations.item()
        for one in (None, system.preconditioner(which[:1]))
    ]
    assert counts[1] < 0.95 * counts[0], counts  # a kernel with a long tail of eigenvalues; smooth ones need more


def test_where_rows_lie_evenly_the_circulant_preconditioner_is_woodburys_inverse():
    """A row on every grid point: WᵀW = I."""
    covariance = KroneckerSum(smooth(2).grid_terms(Grid.cover(2, 7).axes)).detach()
    point = torch.arange(49)[:, None]
    index = point.clamp(max=33) + torch.arange(16)
    weight = (index == point).to(FLOAT)
    sparse = Sparse(Stencil(index, weight), torch.ones(49, dtype=FLOAT), 49)
    noise = torch.tensor([0.3, 0.1], dtype=FLOAT)
    system = KissSystem(sparse, covariance, noise, torch.ones(49, 2, dtype=FLOAT), CgSettings(1e-8, 99, 0, 1, 5, 0))
    circulant, most = system.circulant
    c = circulant.apply(lambda values: values, torch.eye(49, dtype=FLOAT))
    assert most == 1.0
    for t in range(2):
        got = system.preconditioner(torch.full((49,), t))(torch.eye(49, dtype=FLOAT))
        torch.testing.assert_close(got, torch.linalg.inv(c + noise[t] * torch.eye(49, dtype=FLOAT)))


def test_the_seed_alone_decides_the_probes():
    h, y = rows(80, 2)

    def value(seed: int) -> float:
        solver = solver_of(rough(2), grid=16, rank=5, seed=seed)
        return solver.nlml(learned(solver, h, y)).item()

    assert value(0) == value(0) != value(1)


def test_it_agrees_with_kiss_at_full_rank():
    (h, y), (at, _) = rows(300, 2), rows(40, 2, seed=1)
    found = []
    for module, options in ((kiss, {"rank": 256}), (kiss_cg, {})):
        solver = module.build(module.Config(noise=0.01, grid=16, **options), smooth(2), 2)
        data = solver.data()
        data.add(h, y)
        found.append((solver, solver.nlml(data), solver.condition(data)))
    (one, one_value, one_posterior), (other, other_value, other_posterior) = found
    assert other_value.item() == pytest.approx(one_value.item(), rel=1e-5)
    torch.testing.assert_close(slopes(other_value, other), slopes(one_value, one), rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(other_posterior.mean(at), one_posterior.mean(at), rtol=0, atol=1e-5)
    torch.testing.assert_close(other_posterior.variance(at), one_posterior.variance(at), rtol=1e-3, atol=1e-5)


def test_on_smooth_data_it_agrees_with_exact():
    (h, y), (at, _) = rows(200, 2), rows(40, 2, seed=1)
    solver, truth = solver_of(smooth(2)), exact.build(exact.Config(noise=0.01), smooth(2), 2)
    with torch.no_grad():
        truth.log_noise.copy_(solver.log_noise)
    known, data = truth.data(), learned(solver, h, y)
    known.h, known.y, known.weight = data.h, data.y, data.weight
    assert solver.nlml(data).item() == pytest.approx(truth.nlml(known).item(), rel=1e-3)
    one, other = solver.condition(data), truth.condition(known)
    torch.testing.assert_close(one.mean(at), other.mean(at), rtol=0, atol=1e-3)
    torch.testing.assert_close(one.variance(at), other.variance(at), rtol=0.02, atol=1e-5)
    torch.testing.assert_close(one.divergence(), other.divergence(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("dims", [1, 2])
def test_the_covariance_is_gpytorchs_on_the_same_grid(dims):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gpytorch

        base = gpytorch.kernels.RBFKernel().double()
        base.lengthscale = 0.6
        peer = gpytorch.kernels.GridInterpolationKernel(base, grid_size=14, grid_bounds=[(-1.3, 1.3)] * dims).double()
        h = 0.9 * rows(30, dims)[0]
        with torch.no_grad():
            oracle = peer(h).to_dense()
        grid = Grid(tuple(axis.double() for axis in peer.grid))
    covariance = KroneckerSum(smooth(dims, 0.6).grid_terms(grid.axes)).detach()
    sparse = Sparse(stencil(grid, h), torch.ones(30, dtype=FLOAT), grid.count)
    system = KissSystem(sparse, covariance, torch.ones(1, dtype=FLOAT), h[:, :1], CgSettings(1e-8, 10, 10, 1, 5, 0))
    # GPyTorch makes its grid in single precision
    torch.testing.assert_close(system.product(torch.eye(30, dtype=FLOAT)), oracle, rtol=0, atol=2e-6)


def test_the_variance_falls_with_the_rank_and_never_below_the_models_own():
    data, at = learned(solver := solver_of(rough(2), grid=20), *rows(100, 2)), rows(30, 2, seed=1)[0]
    own = Dense(solver, data).moments(at)[1].diagonal(dim1=1, dim2=2).T.detach()
    before = grid_variance(stencil(solver.grid, at), solver.condition(data).covariance)[:, None].expand(-1, 2)
    for rank in (1, 10, 50, 100):
        variance = solver_of(rough(2), grid=20, variance_rank=rank).condition(data).variance(at)
        assert bool((variance <= before + 1e-10).all()) and bool((variance >= own - 1e-10).all())
        before = variance
    torch.testing.assert_close(before, own, rtol=1e-6, atol=1e-8)


@examples(10)
@given(dims=st.integers(1, 3), seed=st.integers(0, 99))
def test_one_row_is_its_row_of_the_batch_and_moments_are_differentiable(dims, seed):
    solver = solver_of(smooth(dims), grid=8, variance_rank=30)
    posterior = solver.condition(learned(solver, *rows(30, dims, seed=seed)))
    at = (0.9 * rows(5, dims, seed=seed + 1)[0]).requires_grad_()
    for moment in (posterior.mean, posterior.variance):
        batch = moment(at)
        torch.testing.assert_close(moment(at[2:3]), batch[2:3], rtol=1e-10, atol=1e-12)
        (slope,) = torch.autograd.grad(batch.sum(), at)
        step = torch.randn(at.shape, generator=torch.Generator().manual_seed(seed), dtype=FLOAT)
        with torch.no_grad():
            difference = (moment(at + 1e-6 * step) - moment(at - 1e-6 * step)).sum() / 2e-6
        assert (slope * step).sum().item() == pytest.approx(difference.item(), rel=1e-4, abs=1e-5)


def test_draws_are_functions_with_the_models_own_moments():
    data, at = learned(solver := solver_of(rough(1), grid=30), *rows(40, 1)), rows(5, 1, seed=1)[0]
    draw = solver.condition(data).draw(3000, torch.Generator().manual_seed(0))
    values = draw(at.expand(3000, 5, 1))  # (P, S, T)
    assert torch.equal(draw(at[1:3].expand(3000, 2, 1)), values[:, 1:3])
    mean, covariance = Dense(solver, data).moments(at)
    spread = covariance.diagonal(dim1=1, dim2=2).T
    assert bool(((values.mean(0) - mean).abs() <= 5 * (spread / 3000).sqrt()).all())
    for t in range(2):
        allowed = 5 * ((spread[:, t, None] * spread[:, t] + covariance[t].square()) / 3000).sqrt()
        assert bool(((torch.cov(values[..., t].T) - covariance[t]).abs() <= allowed).all())
    assert torch.cov(values[:, 0].T)[0, 1].abs() < 5 * (spread[0].prod() / 3000).sqrt()  # columns are independent


def test_rows_of_vanishing_weight_do_no_harm():
    solver, (h, y) = solver_of(smooth(1)), rows(60, 1)
    plain, faded = solver.data(), solver.data()
    faded.add(h, 100 * y)
    for _ in range(40):
        faded.forget(1e-4)
    for data in (plain, faded):
        data.add(h, y)
    assert faded.count == pytest.approx(60)
    torch.testing.assert_close(solver.nlml(faded), solver.nlml(plain), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(solver.condition(faded).mean(h), solver.condition(plain).mean(h), rtol=1e-6, atol=1e-6)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(UsageError, match=naming("4")):
        kiss_cg.build(kiss_cg.Config(), smooth(5), 1)
    with pytest.raises(UsageError, match=naming("Toeplitz")):
        kiss_cg.build(kiss_cg.Config(), linear.build(linear.Config(), 2), 1)
    solver = solver_of(rough(2), grid=16, rank=1, iterations=2)
    with pytest.raises(NumericalError, match=naming("2")):
        solver.condition(learned(solver, *rows(60, 2)))
