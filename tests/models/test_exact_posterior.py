"""A factor that grows by blocks gives the posterior of the same rows at once, by a dense NumPy twin."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.kernels import Kernel, squared_exponential
from streamgp.models.exact.growing import PRIOR_ROWS, GrowingPosterior
from tests.properties import examples

NOISE = torch.tensor([0.1, 0.3], dtype=FLOAT)


def kernel() -> Kernel:
    return squared_exponential.build(squared_exponential.Config(lengthscale=0.8, outputscale=1.7), 2).requires_grad_(
        False
    )


def rows(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(count, 2, generator=generator, dtype=FLOAT)
    noise = torch.randn(count, 2, generator=generator, dtype=FLOAT)
    return h, torch.stack((h[:, 0].sin(), h[:, 1].cos()), 1) + 0.3 * noise


def twin(noise: Tensor, h: Tensor, y: Tensor, at: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """(N', T) means and variances, (T,) yᵀC⁻¹y, NLML a row and column."""
    k = kernel()
    gram, cross, own = (k(a, b).numpy() for a, b in ((h, h), (at, h), (at, at)))
    means, variances, fits, total = [], [], [], 0.0
    for column, variance in zip(y.numpy().T, noise.expand(y.shape[1]).tolist(), strict=True):
        covariance = gram + variance * np.eye(len(h))
        alpha = np.linalg.solve(covariance, column)
        means.append(cross @ alpha)
        variances.append(np.diag(own - cross @ np.linalg.solve(covariance, cross.T)))
        fits.append(column @ alpha)
        total += 0.5 * (column @ alpha + np.linalg.slogdet(covariance)[1] + len(h) * np.log(2 * np.pi))
    return np.stack(means, 1), np.stack(variances, 1), np.array(fits), total / y.numel()


@examples(25)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.booleans())
def test_any_split_gives_the_batch_posterior(sizes: list[int], shared: bool) -> None:
    noise = NOISE[:1] if shared else NOISE
    h, y = rows(sum(sizes))
    at, _ = rows(7, seed=1)
    grown = GrowingPosterior(kernel(), noise, 2, gap=None)
    for part, target in zip(h.split(sizes), y.split(sizes), strict=True):
        grown = grown.append(part, target)
    means, variances, _, loss = twin(noise, h, y, at)
    mean, variance = grown.moments(at)
    np.testing.assert_allclose(mean, means, rtol=0, atol=1e-9)
    np.testing.assert_allclose(variance, variances, rtol=0, atol=1e-9)
    assert grown.loss() == pytest.approx(loss, abs=1e-9) and grown.blocks == tuple(sizes)
    assert torch.equal(grown.noises, noise.expand(2))


def test_the_newest_rows_alone() -> None:
    h, y = rows(50)
    prior = GrowingPosterior(kernel(), NOISE, 2, gap=0)
    whole = prior.append(h, y)
    some, wanted = whole.newest(20), prior.append(h[30:], y[30:])
    assert torch.equal(some.alpha, wanted.alpha) and torch.equal(some.scale, wanted.scale)
    assert whole.rows == 50 and some.rows == 20 and whole.newest(80).rows == 50


@pytest.mark.parametrize("gap", [0, 3])
def test_variances_are_scaled_by_errors_of_forecasts_from_what_was_known(gap: int) -> None:
    """From the rows before, but for the newest `gap` of them."""
    h, y = rows(40)
    y[:, 1] *= 5.0
    grown = GrowingPosterior(kernel(), NOISE, 2, gap=gap)
    for part, target in zip(h.split(16), y.split(16), strict=True):
        grown = grown.append(part, target)
    errors = np.empty((40, 2))
    for row in range(40):
        at, known = h[row : row + 1], row - gap
        if known > 0:
            means, variances, _, _ = twin(NOISE, h[:known], y[:known], at)
        else:
            means, variances = np.zeros((1, 2)), np.full((1, 2), 1.7)
        errors[row] = (y[row].numpy() - means[0]) / np.sqrt(variances[0] + NOISE.numpy())
    wanted = ((errors**2).sum(0) + PRIOR_ROWS) / (40 + PRIOR_ROWS)
    np.testing.assert_allclose(grown.scale, wanted, rtol=1e-9)
    assert grown.scale[1] > 10 * grown.scale[0]
    plain = GrowingPosterior(kernel(), NOISE, 2, gap=None).append(h, y)
    at, _ = rows(5, seed=2)
    assert torch.allclose(grown.moments(at)[1], plain.moments(at)[1] * grown.scale, rtol=1e-9)
    assert torch.allclose(grown.moments(at)[0], plain.moments(at)[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("shared", [True, False])
def test_functions_have_the_posteriors_moments(shared: bool) -> None:
    h, y = rows(30)
    grown = GrowingPosterior(kernel(), NOISE[:1] if shared else NOISE, 2, gap=None).append(h, y)
    at, paths = torch.tensor([[0.1, 0.2], [2.5, -2.0], [2.6, -2.0]], dtype=FLOAT), 4000
    draw = grown.draw(paths, torch.Generator().manual_seed(0))
    values = torch.cat([draw(part.expand(paths, 1, 2)) for part in at.split(1)], 1)  # (P, 3, T)
    mean, variance = grown.moments(at)
    assert ((values.mean(0) - mean) / (variance / paths).sqrt()).abs().max() < 5
    assert ((values.var(0) / variance - 1) / (2 / paths) ** 0.5).abs().max() < 5
    for column in (0, 1):
        assert torch.corrcoef(values[:, 1:, column].T)[0, 1] > 0.98, "one function at near points"
    assert (torch.corrcoef(values[:, 1].T)[0, 1].abs() < 5 / paths**0.5).item(), "columns are independent"
