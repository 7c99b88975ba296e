"""Formulas of the relevance vector machine against marginal likelihoods in row space, with NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch import Tensor

from streamgp.regression import relevance as r
from tests.properties import examples
from tests.regression.relevance_toys import covariance, log_evidence, normal, sums_of

N, M, T = 30, 9, 2
NOISE = 0.3


def case(columns: int = T, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Φ (N, M), y (N, T), s (M,)."""
    phi = normal(N, M, seed=seed)
    y = 0.5 * phi[:, :3].sum(1, keepdim=True) + normal(N, columns, seed=seed + 1)
    return phi, y, 0.3 + normal(M, seed=seed + 2).square()


def evidence(phi: Tensor, y: Tensor, precision: Tensor, noise: float = NOISE) -> float:
    """Of the average column."""
    matrix = covariance(phi, precision, noise)
    return float(np.mean([multivariate_normal(np.zeros(len(phi)), matrix).logpdf(column) for column in y.numpy().T]))


def test_the_evidence_is_a_normal_density_in_row_space() -> None:
    phi, y, s = case()
    kept = r.Selection(torch.tensor([0, 3, 7]), s[:3], NOISE, 0)
    assert log_evidence(sums_of(phi, y), kept) == pytest.approx(evidence(phi[:, [0, 3, 7]], y, s[:3]), rel=1e-10)


def test_a_row_of_weight_two_is_two_rows() -> None:
    phi, y, s = case()
    weight = torch.ones(N, dtype=torch.float64)
    weight[4] = 2.0
    twice = torch.cat((torch.arange(N), torch.tensor([4])))
    one, other = sums_of(phi, y, weight), sums_of(phi[twice], y[twice])
    kept = r.Selection(torch.arange(M), s, NOISE, 0)
    assert log_evidence(one, kept) == pytest.approx(log_evidence(other, kept), rel=1e-12)


def test_the_posterior_is_the_dense_one() -> None:
    phi, y, s = case()
    found = r.posterior(phi.T @ phi, phi.T @ y, y.square().sum(0), s, NOISE)
    inverse = np.linalg.inv((phi.T @ phi / NOISE + torch.diag(s)).numpy())
    mean = inverse @ (phi.T @ y).numpy() / NOISE
    np.testing.assert_allclose(found.mean.numpy(), mean, rtol=1e-9)
    np.testing.assert_allclose(found.determined.numpy(), 1.0 - s.numpy() * np.diag(inverse), rtol=1e-9)
    np.testing.assert_allclose(found.residual.numpy(), ((y.numpy() - phi.numpy() @ mean) ** 2).sum(0), rtol=1e-9)


def test_the_noise_is_where_its_evidence_has_a_maximum_once_it_stays() -> None:
    """Tipping's update is a fixed-point step: where it changes nothing, the derivative of the evidence is zero."""
    phi, y, s = case()
    noise = NOISE
    for _ in range(200):
        noise = r.new_noise(r.posterior(phi.T @ phi, phi.T @ y, y.square().sum(0), s, noise), N)
    slope = (evidence(phi, y, s, noise * 1.001) - evidence(phi, y, s, noise / 1.001)) / 0.002
    assert abs(slope) < 1e-3


def test_qualities_are_those_of_row_space() -> None:
    phi, y, s = case()
    inside = torch.tensor([1, 5])
    sums = sums_of(phi, y)
    found = r.posterior((phi.T @ phi)[inside][:, inside], sums.moment[inside], sums.total, s[inside], NOISE)
    sparsity, quality = r.qualities(sums, sums.columns(inside), found, NOISE)
    inverse = np.linalg.inv(covariance(phi[:, inside], s[inside], NOISE))
    np.testing.assert_allclose(sparsity.numpy(), np.diag(phi.numpy().T @ inverse @ phi.numpy()), rtol=1e-9)
    np.testing.assert_allclose(quality.numpy(), phi.numpy().T @ inverse @ y.numpy(), rtol=1e-8, atol=1e-10)


@examples(25)
@given(seed=st.integers(0, 1000), columns=st.integers(1, 3))
def test_adding_a_function_is_worth_what_the_evidence_says(seed: int, columns: int) -> None:
    """And its precision is the best one: a fifth more or less is worth less."""
    phi, y, s = case(columns, seed)
    inside = torch.tensor([1, 5])
    sums = sums_of(phi, y)
    found = r.posterior((phi.T @ phi)[inside][:, inside], sums.moment[inside], sums.total, s[inside], NOISE)
    sparsity, quality = r.qualities(sums, sums.columns(inside), found, NOISE)
    squared = quality.square().mean(1)
    gain, wanted = r.gain_of_adding(sparsity, squared), r.best_precision(sparsity, squared)
    before = evidence(phi[:, inside], y, s[inside])
    for j in (0, 8):
        more = phi[:, [1, 5, j]]
        if torch.isinf(wanted[j]):
            assert gain[j] == 0.0
            assert evidence(more, y, torch.cat((s[inside], torch.tensor([50.0]).double()))) < before
            continue
        after = [evidence(more, y, torch.cat((s[inside], factor * wanted[j : j + 1]))) for factor in (1.0, 0.8, 1.2)]
        assert 2.0 * (after[0] - before) == pytest.approx(float(gain[j]), rel=1e-6, abs=1e-9)
        assert after[0] >= max(after[1:])
