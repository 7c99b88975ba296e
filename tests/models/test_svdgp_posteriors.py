"""The two parametrisations as modules: their moments and KL against dense Gaussians, and what growth does to q."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.models.svdgp.decoupled import Basis, gram
from streamgp.models.svdgp.posteriors import Decoupled, Hybrid, Hyper, Posterior
from tests.objectives import oracles_elbo as oracle

COLUMNS, WIDTH, MEANS, COVARIANCES = 2, 3, 7, 5
HYPER = Hyper(
    torch.tensor([0.8, 1.2, 1.5], dtype=torch.float64),
    torch.tensor(1.4, dtype=torch.float64),
    torch.tensor(0.3, dtype=torch.float64),
)
CASES = pytest.mark.parametrize("made", [Decoupled, Hybrid])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def filled(made: type[Posterior], own_widths: bool = True) -> Posterior:
    """A posterior with random points and random coefficients; two places of the mean are left."""
    q = made(MEANS + 2, COVARIANCES, WIDTH, COLUMNS, own_widths)
    q.alpha.add(draw(MEANS, WIDTH, seed=1))
    q.beta.add(draw(COVARIANCES, WIDTH, seed=2))
    with torch.no_grad():
        for number, (name, p) in enumerate(sorted(q.named_parameters())):
            if not name.endswith("points"):
                p.copy_(0.3 * draw(*p.shape, seed=10 + number))
    return q


def dense(q: Posterior, x: Tensor) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Mean (a column each), covariance and prior of q over [α, β, f(x)], from eq. (8) or appendix A.3 in NumPy."""
    ones = torch.zeros_like(x)
    parts = [q.alpha.active, q.beta.active, Basis(x, ones)]
    everything = Basis(torch.cat([p.points for p in parts]), torch.cat([p.log_widths for p in parts]))
    joint = gram(everything, everything, HYPER.lengthscale).detach()
    scale = torch.ones(len(joint), dtype=torch.float64)
    scale[MEANS + COVARIANCES :] = HYPER.rho  # cov(basis, f) = ρ ψᵀφ
    prior = (scale[:, None] * joint * scale).numpy()
    at_alpha, at_beta = slice(0, MEANS), slice(MEANS, MEANS + COVARIANCES)
    a = (q.coefficients[:MEANS] / HYPER.rho).detach().numpy()
    means = []
    for t in range(COLUMNS):
        if isinstance(q, Decoupled):
            root = q.root.tril().detach().numpy() * float(HYPER.rho / HYPER.sigma)
            mean, cov = oracle.decoupled(prior, at_alpha, at_beta, a[:, t], root)
        else:
            assert isinstance(q, Hybrid)
            k = prior[at_beta, at_beta]
            lower = np.linalg.cholesky(k)
            inner = q.root.tril(-1).detach().numpy() + np.diag(np.exp(q.root.diagonal().detach().numpy()))
            m = lower @ q.mean[:, t].detach().numpy() - prior[at_beta, at_alpha] @ a[:, t]
            mean, cov = oracle.hybrid(prior, at_beta, at_alpha, m, lower @ inner @ inner.T @ lower.T, a[:, t])
        means.append(mean)
    return means, cov, prior


@CASES
def test_moments_and_kl_are_the_dense_gaussians(made: type[Posterior]) -> None:
    q, x = filled(made), draw(4, WIDTH, seed=3)
    means, cov, prior = dense(q, x)
    prepared = q.prepare(HYPER)
    mean, variance = q.moments(x, HYPER, prepared)
    for t in range(COLUMNS):
        np.testing.assert_allclose(mean[:, t].detach(), means[t][-4:], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(variance.detach(), np.diag(cov)[-4:], rtol=1e-5)
    ours = slice(0, MEANS + COVARIANCES)
    expected = sum(oracle.gaussian_kl(m[ours], cov[ours, ours], prior[ours, ours]) for m in means)
    assert q.kl(HYPER, prepared, torch.arange(MEANS)).item() == pytest.approx(expected, rel=1e-4)


@CASES
def test_the_sampled_kl_is_unbiased(made: type[Posterior]) -> None:
    q = filled(made)
    prepared = q.prepare(HYPER)
    whole = q.kl(HYPER, prepared, torch.arange(MEANS)).item()
    pairs = torch.combinations(torch.arange(MEANS), 2)
    mean = torch.stack([q.kl(HYPER, prepared, pair).detach() for pair in pairs]).mean().item()
    assert mean == pytest.approx(whole, rel=1e-9)


@CASES
@pytest.mark.parametrize("own_widths", [True, False])
def test_new_points_leave_the_mean_as_it_is(made: type[Posterior], own_widths: bool) -> None:
    q, x = filled(made, own_widths), draw(6, WIDTH, seed=4)
    with torch.no_grad():
        q.coefficients[MEANS:] = 0.0
        before = q.moments(x, HYPER, q.prepare(HYPER))
        fresh = q.add(draw(9, WIDTH, seed=5), start=0.5)
        after = q.moments(x, HYPER, q.prepare(HYPER))
    assert fresh["alpha.points"].tolist() == [7, 8] and q.alpha.room == 0
    assert ("alpha.log_widths" in fresh) == own_widths
    torch.testing.assert_close(after, before)
    assert all(not rows.numel() for rows in q.add(x, 0.5).values() if rows is not None)


def test_an_empty_hybrid_grows_without_moving_q_and_a_decoupled_one_learns_its_rows() -> None:
    x = draw(4, WIDTH, seed=4)
    for made, unknown in ((Hybrid, 1.0), (Decoupled, 0.6)):
        q = made(4, 4, WIDTH, COLUMNS, False)
        assert q.moments(x, HYPER, q.prepare(HYPER))[1].tolist() == pytest.approx([HYPER.rho.item() ** 2] * 4)
        q.add(x, start=1.0)
        mean, variance = q.moments(x, HYPER, q.prepare(HYPER))
        assert mean.abs().max() == 0
        assert (variance <= unknown * HYPER.rho.square() + 1e-9).all()


def test_a_started_decoupled_covariance_is_the_exact_posterior_of_its_rows() -> None:
    x, at = draw(5, WIDTH, seed=4), draw(3, WIDTH, seed=6)
    q = Decoupled(5, 5, WIDTH, 1, False)
    q.add(x, start=1.0)
    k = lambda a, b: (HYPER.rho.square() * gram(Basis(a), Basis(b), HYPER.lengthscale)).numpy()  # noqa: E731
    noisy = k(x, x) + float(HYPER.sigma) ** 2 * np.eye(5)
    exact = np.diag(k(at, at) - k(at, x) @ np.linalg.solve(noisy, k(x, at)))
    np.testing.assert_allclose(q.moments(at, HYPER, q.prepare(HYPER))[1].detach(), exact, rtol=1e-9)


@CASES
def test_replacing_takes_the_least_used_points(made: type[Posterior]) -> None:
    q, new = filled(made), draw(2, WIDTH, seed=7) + 30.0
    with torch.no_grad():
        q.alpha.use[:MEANS] = torch.arange(MEANS, dtype=torch.float64) + 1
        q.beta.use[:] = torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0])
        q.coefficients[:MEANS] = 1.0
    fresh = q.replace(new, HYPER, start=0.5)
    assert sorted(fresh["alpha.points"].tolist()) == [0, 1] and sorted(fresh["beta.points"].tolist()) == [1, 3]
    assert torch.equal(q.beta.points[fresh["beta.points"]], new)
    assert q.coefficients[fresh["coefficients"]].abs().max() == 0
    _, variance = q.moments(new, HYPER, q.prepare(HYPER))
    if made is Hybrid:  # a decoupled covariance takes its rows as seen, the hybrid knows nothing there yet
        assert (variance > 0.9 * HYPER.rho.square()).all()


def test_a_hybrid_keeps_what_it_knows_at_the_points_that_stay() -> None:
    q = filled(Hybrid, own_widths=False)
    with torch.no_grad():
        q.coefficients.zero_()
        q.beta.use[:] = torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0])
        kept = q.beta.points[[0, 2, 4]].clone()
        mean, variance = q.moments(kept, HYPER, q.prepare(HYPER))
        q.replace(draw(2, WIDTH, seed=7), HYPER, start=0.5)
        after_mean, after_variance = q.moments(kept, HYPER, q.prepare(HYPER))
    torch.testing.assert_close(after_mean, mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(after_variance, variance, rtol=1e-4, atol=1e-6)
