"""The posterior as a module: its moments and KL against dense Gaussians, and what growth does to q."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.models.svdgp.posteriors import Hybrid, Hyper, scaled
from tests.objectives import oracles_elbo as oracle

COLUMNS, WIDTH, MEANS, COVARIANCES = 2, 3, 7, 5
HYPER = Hyper(
    torch.tensor([0.8, 1.2, 1.5], dtype=torch.float64),
    torch.tensor(1.4, dtype=torch.float64),
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def filled() -> Hybrid:
    """A posterior with random points and random coefficients; two places of the mean are left."""
    q = Hybrid(MEANS + 2, COVARIANCES, WIDTH, COLUMNS)
    q.alpha.add(draw(MEANS, WIDTH, seed=1))
    q.beta.add(draw(COVARIANCES, WIDTH, seed=2))
    with torch.no_grad():
        for number, (name, p) in enumerate(sorted(q.named_parameters())):
            if not name.endswith("points"):
                p.copy_(0.3 * draw(*p.shape, seed=10 + number))
    return q


def dense(q: Hybrid, x: Tensor) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Mean (a column each), covariance and prior of q over [α, β, f(x)], from appendix A.3 in NumPy."""
    everything = torch.cat([q.alpha.active, q.beta.active, x])
    joint = scaled(everything, everything, HYPER.lengthscale).detach()
    scale = torch.ones(len(joint), dtype=torch.float64)
    scale[MEANS + COVARIANCES :] = HYPER.rho  # cov(basis, f) = ρ ψᵀφ
    prior = (scale[:, None] * joint * scale).numpy()
    at_alpha, at_beta = slice(0, MEANS), slice(MEANS, MEANS + COVARIANCES)
    a = (q.coefficients[:MEANS] / HYPER.rho).detach().numpy()
    means = []
    for t in range(COLUMNS):
        k = prior[at_beta, at_beta]
        lower = np.linalg.cholesky(k)
        inner = q.root.tril(-1).detach().numpy() + np.diag(np.exp(q.root.diagonal().detach().numpy()))
        m = lower @ q.mean[:, t].detach().numpy() - prior[at_beta, at_alpha] @ a[:, t]
        mean, cov = oracle.hybrid(prior, at_beta, at_alpha, m, lower @ inner @ inner.T @ lower.T, a[:, t])
        means.append(mean)
    return means, cov, prior


def test_moments_and_kl_are_the_dense_gaussians() -> None:
    q, x = filled(), draw(4, WIDTH, seed=3)
    means, cov, prior = dense(q, x)
    prepared = q.prepare(HYPER)
    mean, variance = q.moments(x, HYPER, prepared)
    for t in range(COLUMNS):
        np.testing.assert_allclose(mean[:, t].detach(), means[t][-4:], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(variance.detach(), np.diag(cov)[-4:], rtol=1e-5)
    ours = slice(0, MEANS + COVARIANCES)
    expected = sum(oracle.gaussian_kl(m[ours], cov[ours, ours], prior[ours, ours]) for m in means)
    assert q.kl(HYPER, prepared, torch.arange(MEANS)).item() == pytest.approx(expected, rel=1e-4)


def test_the_sampled_kl_is_unbiased() -> None:
    q = filled()
    prepared = q.prepare(HYPER)
    whole = q.kl(HYPER, prepared, torch.arange(MEANS)).item()
    pairs = torch.combinations(torch.arange(MEANS), 2)
    mean = torch.stack([q.kl(HYPER, prepared, pair).detach() for pair in pairs]).mean().item()
    assert mean == pytest.approx(whole, rel=1e-9)


def test_new_points_leave_the_mean_as_it_is() -> None:
    q, x = filled(), draw(6, WIDTH, seed=4)
    with torch.no_grad():
        q.coefficients[MEANS:] = 0.0
        before = q.moments(x, HYPER, q.prepare(HYPER))
        fresh = q.add(draw(9, WIDTH, seed=5))
        after = q.moments(x, HYPER, q.prepare(HYPER))
    assert fresh["alpha.points"].tolist() == [7, 8] and q.alpha.room == 0
    torch.testing.assert_close(after, before)
    assert all(not rows.numel() for rows in q.add(x).values() if rows is not None)


def test_an_empty_one_grows_without_moving_q() -> None:
    x, q = draw(4, WIDTH, seed=4), Hybrid(4, 4, WIDTH, COLUMNS)
    assert q.moments(x, HYPER, q.prepare(HYPER))[1].tolist() == pytest.approx([HYPER.rho.item() ** 2] * 4)
    q.add(x)
    mean, variance = q.moments(x, HYPER, q.prepare(HYPER))
    assert mean.abs().max() == 0 and (variance <= HYPER.rho.square() + 1e-9).all()


def test_replacing_takes_the_least_used_points() -> None:
    q, new = filled(), draw(2, WIDTH, seed=7) + 30.0
    with torch.no_grad():
        q.alpha.use[:MEANS] = torch.arange(MEANS, dtype=torch.float64) + 1
        q.beta.use[:] = torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0])
        q.coefficients[:MEANS] = 1.0
    fresh = q.replace(new, HYPER)
    assert sorted(fresh["alpha.points"].tolist()) == [0, 1] and sorted(fresh["beta.points"].tolist()) == [1, 3]
    assert torch.equal(q.beta.points[fresh["beta.points"]], new)
    assert q.coefficients[fresh["coefficients"]].abs().max() == 0
    _, variance = q.moments(new, HYPER, q.prepare(HYPER))
    assert (variance > 0.9 * HYPER.rho.square()).all(), "nothing is known there yet"


def test_a_hybrid_keeps_what_it_knows_at_the_points_that_stay() -> None:
    q = filled()
    with torch.no_grad():
        q.coefficients.zero_()
        q.beta.use[:] = torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0])
        kept = q.beta.points[[0, 2, 4]].clone()
        mean, variance = q.moments(kept, HYPER, q.prepare(HYPER))
        q.replace(draw(2, WIDTH, seed=7), HYPER)
        after_mean, after_variance = q.moments(kept, HYPER, q.prepare(HYPER))
    torch.testing.assert_close(after_mean, mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(after_variance, variance, rtol=1e-4, atol=1e-6)
