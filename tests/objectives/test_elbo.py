"""The bound against dense Gaussians, quadrature, finite differences, Monte Carlo and the exact evidence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.likelihoods.gaussian import Config, build
from streamgp.linalg.cholesky import cholesky, whiten
from streamgp.models.svdgp.decoupled import Basis, cross, gram
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


def basis() -> Basis:
    """Ten generalised basis functions: six for the mean, four for the covariance."""
    return Basis(draw(10, 2, seed=1), 0.3 * draw(10, 2, seed=2))


def test_decoupled_kl_is_the_dense_gaussians() -> None:
    both, a, root = basis(), draw(6, 3, seed=3), lower(4, 4)
    joint = gram(both, both, SCALE)
    factor = elbo.decoupled_factor(joint[BETA, BETA], root)
    got = elbo.quadratic(a, joint[ALPHA, ALPHA]) + 3 * elbo.decoupled_covariance_kl(factor)
    dense = joint.numpy()
    expected = 0.0
    for t in range(3):
        mean, cov = oracle.decoupled(dense, ALPHA, BETA, a[:, t].numpy(), root.numpy())
        expected += oracle.gaussian_kl(mean, cov, dense)
    assert got.item() == pytest.approx(expected, rel=1e-7)
    reduced = elbo.decoupled_reduction(joint[:, BETA], root, factor)
    np.testing.assert_allclose(joint.diagonal() - reduced, np.diag(cov), rtol=1e-9)


def test_hybrid_kl_is_the_dense_gaussians_plain_and_whitened() -> None:
    both, a, m, root = basis(), draw(6, 2, seed=5), draw(4, 2, seed=6), lower(4, 7)
    joint = gram(both, both, SCALE)
    k, across = joint[BETA, BETA], joint[BETA, ALPHA]
    own = elbo.quadratic(a, joint[ALPHA, ALPHA])
    plain = elbo.hybrid_kl(m, root, k, across @ a) + own
    lk = cholesky(k).lower
    white_root, white_mean = whiten(lk, root), whiten(lk, m)
    white = elbo.hybrid_whitened_kl(white_mean, white_root, whiten(lk, across @ a)) + own
    dense = joint.numpy()
    expected = 0.0
    for t in range(2):
        mean, cov = oracle.hybrid(dense, BETA, ALPHA, m[:, t].numpy(), (root @ root.T).numpy(), a[:, t].numpy())
        expected += oracle.gaussian_kl(mean, cov, dense)
    assert plain.item() == pytest.approx(expected, rel=1e-5)  # the jitter of 1e-8 is in K, not in the dense twin
    assert white.item() == pytest.approx(plain.item(), rel=1e-10)
    variance = elbo.hybrid_variance(joint.diagonal(), whiten(lk, joint[BETA]), white_root)
    np.testing.assert_allclose(variance, np.diag(cov), rtol=1e-5)


def test_sampled_columns_are_unbiased_with_the_variance_of_sampling_without_replacement() -> None:
    a, both = draw(10, 2, seed=8), basis()
    k = gram(both, both, SCALE)
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
    exact = elbo.quadratic(a, k).item()
    error = (variance / draws) ** 0.5
    assert abs(values.mean().item() - exact) < 5 * error
    assert values.var().item() == pytest.approx(variance, rel=0.05)
    torch.testing.assert_close(gradients, k @ a, rtol=0, atol=0.05 * float((k @ a).abs().max()))


def test_a_scaled_batch_is_unbiased() -> None:
    terms = draw(6, 2, seed=9)
    batches = torch.combinations(torch.arange(6), 2)
    mean = torch.stack([elbo.scaled(terms[pair], torch.full((2,), 3.0).double()) for pair in batches]).mean()
    assert mean.item() == pytest.approx(terms.sum().item(), rel=1e-12)


def bound(x: Tensor, y: Tensor, points: Tensor, widths: Tensor, a: Tensor, root: Tensor, logs: Tensor) -> Tensor:
    """A whole decoupled ELBO; logs holds log ρ², log σ² and log s."""
    rho, noise, scale = (0.5 * logs[0]).exp(), logs[1].exp(), logs[2:].exp()
    alpha, beta = Basis(points[ALPHA], widths[ALPHA]), Basis(points[BETA], widths[BETA])
    factor = elbo.decoupled_factor(gram(beta, beta, scale), root)
    mean = rho * cross(x, alpha, scale) @ a
    variance = rho.square() - elbo.decoupled_reduction(rho * cross(x, beta, scale), root, factor)
    fit = -0.5 * (torch.log(2 * torch.pi * noise) + ((y - mean).square() + variance[:, None]) / noise)
    kl = elbo.quadratic(a, gram(alpha, alpha, scale)) + a.shape[1] * elbo.decoupled_covariance_kl(factor)
    return 1.4 * elbo.scaled(fit, torch.ones(5).double()) - kl


def test_every_gradient_of_the_bound_is_a_finite_difference() -> None:
    both = basis()
    logs = torch.cat((torch.tensor([0.4, -1.0], dtype=torch.float64), SCALE.log()))
    leaves = (both.points, both.log_widths, draw(6, 1, seed=3), lower(4, 4), logs)
    x, y = draw(5, 2, seed=10), draw(5, 1, seed=11)
    ready = tuple(leaf.clone().requires_grad_() for leaf in leaves if leaf is not None)
    assert torch.autograd.gradcheck(lambda *t: bound(x, y, *t), ready)


def test_the_root_at_zero_is_a_saddle() -> None:
    root = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    both = basis()
    logs = torch.zeros(4, dtype=torch.float64)
    assert both.log_widths is not None
    bound(draw(5, 2), draw(5, 1), both.points, both.log_widths, draw(6, 1), root, logs).backward()
    assert root.grad is not None and root.grad.abs().max() == 0


def test_the_gradient_for_rho_is_proposition_3() -> None:
    both = basis()
    x, y, a, root = draw(5, 2, seed=10), draw(5, 1, seed=11), draw(6, 1, seed=3), lower(4, 4)
    log_rho = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    likelihood = build(Config(noise=0.3), columns=1)
    alpha, beta = both.rows(ALPHA), both.rows(BETA)
    mean = log_rho.exp() * cross(x, alpha, SCALE) @ a
    factor = elbo.decoupled_factor(gram(beta, beta, SCALE), root)
    variance = (2 * log_rho).exp() - elbo.decoupled_reduction(log_rho.exp() * cross(x, beta, SCALE), root, factor)
    mean.retain_grad(), variance.retain_grad()
    likelihood.expected_log_prob(y, mean, variance[:, None]).sum().backward()
    assert mean.grad is not None and variance.grad is not None and log_rho.grad is not None
    expected = (mean * mean.grad).sum() + 2 * (variance * variance.grad).sum()
    assert log_rho.grad.item() == pytest.approx(expected.item(), rel=1e-10)


@pytest.mark.parametrize("parametrisation", ["decoupled", "hybrid"])
def test_the_bound_is_below_the_evidence_and_meets_it_where_the_basis_is_the_data(parametrisation: str) -> None:
    x, y, noise = draw(8, 2, seed=12), draw(8, 1, seed=13), 0.3
    data = Basis(x)
    k = gram(data, data, SCALE)
    evidence = oracle.log_evidence(y[:, 0].numpy(), k.numpy(), noise)
    likelihood = build(Config(noise=noise), columns=1)
    eye = torch.eye(8, dtype=torch.float64)

    def value(a: Tensor, precision: float) -> float:
        """The bound at mean K a and the covariance (K⁻¹ + precision I)⁻¹."""
        mean = k @ a
        if parametrisation == "decoupled":
            root = precision**0.5 * eye
            factor = elbo.decoupled_factor(k, root)
            variance = k.diagonal() - elbo.decoupled_reduction(k, root, factor)
            kl = elbo.quadratic(a, k) + elbo.decoupled_covariance_kl(factor)
        else:
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
