"""Every parametrisation of q on every kind of basis: moments and KL against dense Gaussians, and what growth does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.likelihoods import gaussian, laplace, student_t
from streamgp.linalg.cholesky import cholesky, whiten
from streamgp.papers.svdgp.decoupled import Decoupled, Nystrom
from streamgp.papers.svdgp.generalised import GeneralisedBasis
from streamgp.papers.svdgp.hybrid import Hybrid
from streamgp.papers.svdgp.partly_shared import PartlyShared
from streamgp.training.decoupled import GrowingBasis, Hyper, Orthogonal, Parametrisation, SettledRows
from tests.objectives import oracles_elbo as oracle

COLUMNS, WIDTH, MEANS, COVARIANCES = 2, 3, 7, 5
HYPER = Hyper(
    torch.tensor([0.8, 1.2, 1.5], dtype=torch.float64),
    torch.tensor(1.4, dtype=torch.float64),
    torch.tensor(0.6, dtype=torch.float64),
)
Make = Callable[[type[GrowingBasis], int, int], Parametrisation]


def pair(kind: type[GrowingBasis], means: int, covariances: int) -> tuple[GrowingBasis, GrowingBasis]:
    return kind(means, WIDTH), kind(covariances, WIDTH)


def orthogonal(kind: type[GrowingBasis], means: int, covariances: int) -> Parametrisation:
    return Orthogonal(*pair(kind, means, covariances), COLUMNS)


def hybrid(kind: type[GrowingBasis], means: int, covariances: int) -> Parametrisation:
    return Hybrid(*pair(kind, means, covariances), COLUMNS)


def plain(kind: type[GrowingBasis], means: int, covariances: int) -> Parametrisation:
    return Decoupled(*pair(kind, means, covariances), COLUMNS, "none")


def jacobi(kind: type[GrowingBasis], means: int, covariances: int) -> Parametrisation:
    return Decoupled(*pair(kind, means, covariances), COLUMNS)


def full(kind: type[GrowingBasis], means: int, covariances: int) -> Parametrisation:
    return Decoupled(*pair(kind, means, covariances), COLUMNS, "full")


def shared(kind: type[GrowingBasis], means: int, covariances: int) -> Parametrisation:
    beta = kind(covariances, WIDTH)
    return Decoupled(PartlyShared(kind(means - covariances, WIDTH), beta), beta, COLUMNS)


MADE = pytest.mark.parametrize("made", [orthogonal, hybrid, plain, jacobi, full, shared])
KIND = pytest.mark.parametrize("kind", [GrowingBasis, GeneralisedBasis])
UNWHITENED = pytest.mark.parametrize("made", [plain, jacobi, full, shared])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def filled(made: Make, kind: type[GrowingBasis] = GrowingBasis) -> Parametrisation:
    """A posterior with random points and random coefficients; two places of the mean are left."""
    q = made(kind, MEANS + 2, COVARIANCES)
    q.beta.add(draw(COVARIANCES, WIDTH, seed=2))
    q.alpha.add(draw(MEANS - q.alpha.size, WIDTH, seed=1))
    with torch.no_grad():
        named = {**dict(q.named_parameters()), **{name: own for name, own in q.named_buffers() if own.ndim == 2}}
        for number, (name, p) in enumerate(sorted(named.items())):
            if not name.endswith("points"):
                p.copy_(0.3 * draw(*p.shape, seed=10 + number))
            elif kind is GeneralisedBasis:
                p[:, WIDTH:] = 0.3 * draw(len(p), WIDTH, seed=30 + number)
    return q


def dense(q: Parametrisation, x: Tensor) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Mean (a column each), covariance and prior of q over [α, β, f(x)], by the paper's formulas in NumPy."""
    everything = torch.cat([q.alpha.active, q.beta.active, q.beta.made(x)])
    joint = q.beta.gram_of(everything, everything, HYPER.lengthscale).detach()
    scale = torch.ones(len(joint), dtype=torch.float64)
    scale[MEANS + COVARIANCES :] = HYPER.rho  # cov(basis, f) = ρ ψᵀφ
    prior = (scale[:, None] * joint * scale).numpy()
    at_alpha, at_beta = slice(0, MEANS), slice(MEANS, MEANS + COVARIANCES)
    means = []
    if isinstance(q, Decoupled):
        prepared = q.prepare(HYPER)
        a, root = prepared.image.detach().numpy(), prepared.across.detach().numpy()
        for t in range(COLUMNS):
            mean, cov = oracle.decoupled(prior, at_alpha, at_beta, a[:, t], root)
            means.append(mean)
        return means, cov, prior
    assert isinstance(q, Orthogonal)
    a = (q.a / HYPER.rho).detach().numpy()
    for t in range(COLUMNS):
        lower = np.linalg.cholesky(prior[at_beta, at_beta])
        inner = q.root.tril(-1).detach().numpy() + np.diag(np.exp(q.root.diagonal().detach().numpy()))
        m = lower @ q.mean[:, t].detach().numpy() - prior[at_beta, at_alpha] @ a[:, t]
        mean, cov = oracle.hybrid(prior, at_beta, at_alpha, m, lower @ inner @ inner.T @ lower.T, a[:, t])
        means.append(mean)
    return means, cov, prior


@KIND
@MADE
def test_moments_and_kl_are_the_dense_gaussians(made: Make, kind: type[GrowingBasis]) -> None:
    q, x = filled(made, kind), draw(4, WIDTH, seed=3)
    means, cov, prior = dense(q, x)
    prepared = q.prepare(HYPER)
    mean, variance = q.moments(x, HYPER, prepared)
    for t in range(COLUMNS):
        np.testing.assert_allclose(mean[:, t].detach(), means[t][-4:], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(variance[:, 0].detach(), np.diag(cov)[-4:], rtol=1e-5)
    if made is shared:  # its α and β have points in common: the joint prior is singular, and the KL is that of apart
        apart = jacobi(kind, MEANS, COVARIANCES)
        apart.alpha.add(draw(MEANS, WIDTH)), apart.beta.add(draw(COVARIANCES, WIDTH))
        with torch.no_grad():
            apart.alpha.points.copy_(q.alpha.active), apart.beta.points.copy_(q.beta.active)
            apart.coefficients.copy_(q.a), apart.root.copy_(q.root)  # type: ignore[operator,arg-type]
        expected = apart.kl(HYPER, apart.prepare(HYPER), torch.arange(MEANS)).item()
    else:
        ours = slice(0, MEANS + COVARIANCES)
        expected = sum(oracle.gaussian_kl(m[ours], cov[ours, ours], prior[ours, ours]) for m in means)
    assert q.kl(HYPER, prepared, torch.arange(MEANS)).item() == pytest.approx(expected, rel=1e-4)


@MADE
def test_the_sampled_kl_is_unbiased(made: Make) -> None:
    q = filled(made)
    prepared = q.prepare(HYPER)
    whole = q.kl(HYPER, prepared, torch.arange(MEANS)).item()
    pairs = torch.combinations(torch.arange(MEANS), 2)
    mean = torch.stack([q.kl(HYPER, prepared, pair).detach() for pair in pairs]).mean().item()
    assert mean == pytest.approx(whole, rel=1e-9)


@MADE
def test_new_points_leave_the_mean_as_it_is(made: Make) -> None:
    q, x = filled(made), draw(6, WIDTH, seed=4)
    with torch.no_grad():
        q.coefficients[MEANS:] = 0.0
        before = q.moments(x, HYPER, q.prepare(HYPER))
        fresh = q.add(draw(9, WIDTH, seed=5), HYPER)
        after = q.moments(x, HYPER, q.prepare(HYPER))
    places = [2, 3] if made is shared else [7, 8]  # rows of the parameter: of its own points
    assert next(rows for name, rows in fresh.items() if name.startswith("alpha")).tolist() == places
    assert q.alpha.room == 0
    torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-8)


@MADE
def test_an_empty_one_grows(made: Make) -> None:
    """The whitened ones know nothing of the rows yet; a decoupled one has them as seen with twice the noise."""
    x, q = draw(4, WIDTH, seed=4), made(GrowingBasis, 4, 4)
    assert q.moments(x, HYPER, q.prepare(HYPER))[1][:, 0].tolist() == pytest.approx([HYPER.rho.item() ** 2] * 4)
    q.add(x, HYPER)
    mean, variance = q.moments(x, HYPER, q.prepare(HYPER))
    assert mean.abs().max() == 0
    kernel = (HYPER.rho.square() * q.beta.gram(HYPER.lengthscale)).detach().numpy()
    noisy = kernel + 4.0 * HYPER.sigma.item() ** 2 * np.eye(4)
    exact = np.diag(kernel - kernel @ np.linalg.solve(noisy, kernel))
    expected = exact if isinstance(q, Decoupled) else np.full(4, HYPER.rho.item() ** 2)
    np.testing.assert_allclose(variance[:, 0].detach(), expected, rtol=1e-5)


@MADE
def test_replacing_takes_the_least_used_points(made: Make) -> None:
    q, new = filled(made), draw(2, WIDTH, seed=7) + 30.0
    with torch.no_grad():
        q.alpha.use[:MEANS] = torch.arange(MEANS, dtype=torch.float64) + 1
        q.beta.use[:] = torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0])
        q.coefficients[:MEANS] = 1.0
    fresh = q.replace(new, HYPER)
    assert sorted(fresh["beta.points"].tolist()) == [1, 3]
    gone = sorted(fresh["alpha.own.points" if made is shared else "alpha.points"].tolist())
    assert gone == [0, 1]
    assert torch.equal(q.beta.points[fresh["beta.points"]], new)
    mean, variance = q.moments(new, HYPER, q.prepare(HYPER))
    assert mean.abs().max() < 1e-6
    unknown = (variance > 0.9 * HYPER.rho.square()).all()
    assert unknown or isinstance(q, Decoupled)


@pytest.mark.parametrize("made", [orthogonal, hybrid])
def test_what_is_known_at_the_points_that_stay_is_kept(made: Make) -> None:
    q = filled(made)
    with torch.no_grad():
        q.coefficients.zero_()
        q.beta.use[:] = torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0])
        kept = q.beta.points[[0, 2, 4]].clone()
        mean, variance = q.moments(kept, HYPER, q.prepare(HYPER))
        q.replace(draw(2, WIDTH, seed=7), HYPER)
        after_mean, after_variance = q.moments(kept, HYPER, q.prepare(HYPER))
    torch.testing.assert_close(after_mean, mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(after_variance, variance, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("made", [orthogonal, hybrid])
def test_where_the_basis_is_the_data_it_settles_on_the_exact_posterior_in_one_step(made: Make) -> None:
    x, y, at = draw(6, WIDTH, seed=1), draw(6, COLUMNS, seed=2), draw(4, WIDTH, seed=3)
    q, likelihood = made(GrowingBasis, 3, 6), gaussian.build(gaussian.Config(noise=0.36), COLUMNS)
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0, 1.0], dtype=torch.float64)
    q.beta.add(x)
    q.settle(SettledRows(x, y, weight), HYPER, likelihood, None, 1.0, 1)
    mean, variance = q.moments(at, HYPER, q.prepare(HYPER))
    k = lambda u, v: (HYPER.rho.square() * q.beta.gram_of(u, v, HYPER.lengthscale)).numpy()  # noqa: E731
    gain = np.linalg.solve(k(x, x) + np.diag(0.36 / weight.numpy()), k(x, at)).T
    np.testing.assert_allclose(mean.detach(), gain @ y.numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(variance[:, 0].detach(), np.diag(k(at, at) - gain @ k(x, at)), rtol=1e-5)


def test_settling_finds_where_the_bound_is_flat() -> None:
    """Student-t noise has no closed form: the gradient of the bound in μ and the root of S' vanishes."""
    q, x = filled(hybrid), draw(20, WIDTH, seed=4)
    y = torch.sin(2.0 * x[:, :1]).expand(-1, COLUMNS).contiguous()
    y[3, 0] = 9.0
    likelihood, weight = student_t.build(student_t.Config(), COLUMNS), torch.ones(20, dtype=torch.float64)
    q.settle(SettledRows(x, y, weight), HYPER, likelihood, None, 0.5, 200)
    assert isinstance(q, Hybrid)
    prepared = q.prepare(HYPER)
    fit = likelihood.expected_log_prob(y, *q.moments(x, HYPER, prepared)).sum()
    slope = torch.autograd.grad(fit - q.kl(HYPER, prepared, torch.arange(MEANS)), q.mean)[0]
    assert slope.abs().max() < 0.05


def test_the_nystrom_preconditioner_is_its_dense_inverse() -> None:
    alpha, beta = draw(9, WIDTH, seed=1), draw(4, WIDTH, seed=2)
    gram = lambda u, v: GrowingBasis.gram_of(u, v, HYPER.lengthscale)  # noqa: E731
    across, k = gram(alpha, beta), gram(beta, beta)
    found = Nystrom(cholesky(k, first=0.0).lower, across)
    nearly = across @ torch.linalg.solve(k, across.T)
    nearly.diagonal().copy_((1.0 - nearly.diagonal()).clamp(min=0.01) + nearly.diagonal())
    b = draw(9, 2, seed=3)
    torch.testing.assert_close(found.times(b), nearly @ b)
    torch.testing.assert_close(found.solve(b), torch.linalg.solve(nearly, b))


@UNWHITENED
def test_l_at_zero_is_a_saddle(made: Make) -> None:
    q, x = filled(made), draw(4, WIDTH, seed=3)
    assert isinstance(q, Decoupled)
    with torch.no_grad():
        q.root.zero_()
    prepared = q.prepare(HYPER)
    variance = q.moments(x, HYPER, prepared)[1].sum() + q.kl(HYPER, prepared, torch.arange(MEANS))
    assert torch.autograd.grad(variance, q.root)[0].abs().max() == 0


def test_a_full_preconditioner_climbs_faster_where_the_gram_matrix_is_ill_conditioned() -> None:
    """Gradient ascent on the bound of 30 rows, whose points lie close: each with the best of its step sizes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 1, dtype=torch.float64, generator=generator)
    y = torch.sin(6.0 * x) + 0.1 * torch.randn(30, 1, dtype=torch.float64, generator=generator)
    hyper = Hyper(torch.tensor([0.3]).double(), torch.ones(()).double(), torch.tensor(0.1).double())
    likelihood = gaussian.build(gaussian.Config(noise=0.01), 1)
    best = {}
    for kind in ("none", "full"):
        ends = []
        for rate in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
            q = Decoupled(GrowingBasis(30, 1), GrowingBasis(10, 1), 1, kind)  # type: ignore[arg-type]
            q.beta.add(x[:10]), q.alpha.add(x)
            value = -torch.inf
            for _ in range(60):
                prepared = q.prepare(hyper)
                mean, variance = q.moments(x, hyper, prepared)
                loss = q.kl(hyper, prepared, torch.arange(30)) - likelihood.expected_log_prob(y, mean, variance).sum()
                value = -float(loss.detach())
                slope = torch.autograd.grad(loss, q.coefficients)[0]
                q.coefficients.data -= rate * slope
            ends.append(value if np.isfinite(value) else -np.inf)
        best[kind] = max(ends)
    assert best["full"] > best["none"] + 10.0


def test_an_orthogonal_mean_leaves_the_points_alone() -> None:
    """Whatever a is, the mean at X̃ is L_kμ: what the residual functions add there is zero."""
    q = filled(orthogonal)
    assert isinstance(q, Orthogonal)
    lower = cholesky(q.beta.gram(HYPER.lengthscale)).lower
    at = q.beta.active.detach().clone()
    mean = q.moments(at, HYPER, q.prepare(HYPER))[0] / HYPER.rho
    torch.testing.assert_close(whiten(lower, mean), q.mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("likelihood", [gaussian, student_t, laplace])
def test_settling_never_lowers_the_bound(likelihood: ModuleType) -> None:
    """Small noise and targets far off, where a row has hardly any curvature."""
    q, x = filled(hybrid), draw(20, WIDTH, seed=4)
    y, weight = 30.0 * draw(20, COLUMNS, seed=5), torch.full((20,), 7.0, dtype=torch.float64)
    noise = likelihood.build(likelihood.Config(noise=0.001), COLUMNS)

    def bound() -> float:
        prepared = q.prepare(HYPER)
        fit = (weight @ noise.expected_log_prob(y, *q.moments(x, HYPER, prepared))).sum()
        return float((fit - q.kl(HYPER, prepared, torch.arange(MEANS))).detach())

    found = [bound()]
    for _ in range(6):
        q.settle(SettledRows(x, y, weight), HYPER, noise, None, 0.7, 1)
        found.append(bound())
    assert all(after >= before - 1e-6 * abs(before) for before, after in pairwise(found))
    assert found[-1] > found[0]
