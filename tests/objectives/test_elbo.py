"""The bound against dense Gaussians, quadrature, finite differences, Monte Carlo and the exact evidence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.kernels.squared_exponential import correlation
from streamgp.likelihoods.gaussian import Config, build
from streamgp.linalg.cholesky import cholesky, whiten
from streamgp.objectives import elbo
from tests.objectives import oracles_elbo as oracle

SCALE = torch.tensor([0.8, 1.3], dtype=torch.float64)
ALPHA, BETA = slice(0, 6), slice(6, 10)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def lower(size: int, seed: int) -> Tensor:
    root = draw(size, size, seed=seed).tril()
    root.diagonal().abs_().add_(0.3)
    return root


def gram() -> Tensor:
    """Of ten basis functions: six for the mean, four for the covariance."""
    points = draw(10, 2, seed=1) / SCALE
    return correlation(points, points)


def test_kl_is_the_dense_gaussians() -> None:
    a, m, root, joint = draw(6, 2, seed=5), draw(4, 2, seed=6), lower(4, 7), gram()
    k, across = joint[BETA, BETA], joint[BETA, ALPHA]
    own = 0.5 * (a * (joint[ALPHA, ALPHA] @ a)).sum()
    lk = cholesky(k).lower
    white_root, white_mean = whiten(lk, root), whiten(lk, m)
    white = elbo.hybrid_whitened_kl(white_mean, white_root, whiten(lk, across @ a)) + own
    dense = joint.numpy()
    expected = 0.0
    for t in range(2):
        mean, cov = oracle.hybrid(dense, BETA, ALPHA, m[:, t].numpy(), (root @ root.T).numpy(), a[:, t].numpy())
        expected += oracle.gaussian_kl(mean, cov, dense)
    assert white.item() == pytest.approx(expected, rel=1e-5)  # the jitter of 1e-8 is in K, not in the dense twin
    variance = elbo.hybrid_variance(joint.diagonal(), whiten(lk, joint[BETA]), white_root)
    np.testing.assert_allclose(variance, np.diag(cov), rtol=1e-5)


@pytest.mark.slow
def test_sampled_columns_are_unbiased_with_the_variance_of_sampling_without_replacement() -> None:
    a, k = draw(10, 2, seed=8), gram()
    draws, size, m = 20_000, 3, 10
    generator = torch.Generator().manual_seed(0)
    values = torch.empty(draws, dtype=torch.float64)
    gradients = torch.zeros_like(a)
    for i in range(draws):
        index = torch.randperm(m, generator=generator)[:size]
        values[i] = elbo.quadratic_sampled(a, k[:, index], index)
        gradients += 0.5 * m / size * (k[:, index] @ a[index]) / draws
        gradients[index] += 0.5 * m / size * (k[index] @ a) / draws
    terms = 0.5 * m * (a * (k @ a)).sum(1)  # a value is the mean of `size` of these
    variance = (terms.var() / size * (1 - size / m)).item()
    exact = 0.5 * (a * (k @ a)).sum().item()
    error = (variance / draws) ** 0.5
    assert abs(values.mean().item() - exact) < 5 * error
    assert values.var().item() == pytest.approx(variance, rel=0.05)
    torch.testing.assert_close(gradients, k @ a, rtol=0, atol=0.05 * float((k @ a).abs().max()))


def test_a_scaled_batch_is_unbiased() -> None:
    terms = draw(6, 2, seed=9)
    batches = torch.combinations(torch.arange(6), 2)
    mean = torch.stack([elbo.scaled(terms[pair], torch.full((2,), 3.0).double()) for pair in batches]).mean()
    assert mean.item() == pytest.approx(terms.sum().item(), rel=1e-12)


def test_the_bound_is_below_the_evidence_and_meets_it_where_the_basis_is_the_data() -> None:
    x, y, noise = draw(8, 2, seed=12), draw(8, 1, seed=13), 0.3
    k = correlation(x / SCALE, x / SCALE)
    evidence = oracle.log_evidence(y[:, 0].numpy(), k.numpy(), noise)
    likelihood = build(Config(noise=noise), columns=1)
    eye = torch.eye(8, dtype=torch.float64)

    def value(a: Tensor, precision: float) -> float:
        """The bound at mean K a and the covariance (K⁻¹ + precision I)⁻¹."""
        mean = k @ a
        lk = cholesky(k).lower
        inner = torch.linalg.inv(eye + precision * lk.T @ lk)
        root = torch.linalg.cholesky(inner)
        variance = elbo.hybrid_variance(k.diagonal(), whiten(lk, k), root)
        kl = elbo.hybrid_whitened_kl(lk.T @ a, root, torch.zeros_like(a))
        fit = likelihood.expected_log_prob(y, mean, variance[:, None])
        return (elbo.scaled(fit, torch.ones(8).double()) - kl).item()

    best = torch.linalg.solve(k + noise * eye, y)
    assert value(best, 1 / noise) == pytest.approx(evidence, abs=1e-5)
    for seed in range(5):
        assert value(best + 0.1 * draw(8, 1, seed=seed), 1 / noise) < evidence
        assert value(best, (0.2 + seed) / noise) < evidence
