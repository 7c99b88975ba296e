"""The normal-Laplace distribution in its tails and where one of its parts vanishes."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from torch import Tensor

from streamgp.predictives.laplace_noise import LaplaceNoise


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def made(latent: float, scale: float) -> LaplaceNoise:
    return LaplaceNoise(column(0.5), column(latent), column(scale))


@pytest.mark.parametrize("latent", [0.0, 1e-30, 1e-14])
def test_without_latent_variance_it_is_laplace(latent: float) -> None:
    p = made(latent, 0.7)
    twin = scipy.stats.laplace(0.5, 0.7)
    for y in (-40.0, 0.4, 0.5, 0.51, 3.0, 1e4):
        assert p.log_prob(column(y)).item() == pytest.approx(-abs(y - 0.5) / 0.7 - math.log(1.4), rel=1e-6)
        assert p.cdf(column(y)).item() == pytest.approx(twin.cdf(y), rel=1e-6)
    for level in (1e-9, 0.2, 0.5, 0.975):
        assert p.quantile(torch.tensor([level], dtype=torch.float64)).item() == pytest.approx(twin.ppf(level), rel=1e-6)
    assert p.crps(column(0.5)).item() == pytest.approx(0.25 * 0.7, rel=1e-6)  # b − 3b/4


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-9])
def test_without_noise_it_is_gaussian(scale: float) -> None:
    p, twin = made(4.0, scale), scipy.stats.norm(0.5, 2.0)
    for y in (-40.0, 0.5, 3.0):
        assert p.log_prob(column(y)).item() == pytest.approx(twin.logpdf(y), rel=1e-9)
        assert p.cdf(column(y)).item() == pytest.approx(twin.cdf(y), rel=1e-9)
    for level in (1e-9, 0.2, 0.975):
        assert p.quantile(torch.tensor([level], dtype=torch.float64)).item() == pytest.approx(twin.ppf(level), rel=1e-7)
    assert p.crps(column(0.5)).item() == pytest.approx(2.0 * (math.sqrt(2) - 1) / math.sqrt(math.pi), rel=1e-9)


def test_nothing_at_all_is_still_finite_where_it_is_asked() -> None:
    p = made(0.0, 0.0)
    assert p.quantile(torch.tensor([0.1, 0.9], dtype=torch.float64)).flatten().tolist() == pytest.approx([0.5, 0.5])
    assert p.crps(column(2.0)).item() == pytest.approx(1.5)
    assert p.log_prob(column(2.0)).item() < -1e100


@pytest.mark.parametrize(("latent", "scale"), [(1.0, 1.0), (25.0, 0.1), (0.01, 2.0)])
def test_far_tails_fall_like_laplace(latent: float, scale: float) -> None:
    """e^(s²/2b² − d/b)/2b and half of that times b beyond the mean; on both sides alike."""
    p = made(latent, scale)
    far = 50 * (scale + latent / scale + math.sqrt(latent))
    exponent = 0.5 * latent / scale**2 - far / scale
    for y in (0.5 - far, 0.5 + far):
        assert p.log_prob(column(y)).item() == pytest.approx(exponent - math.log(2 * scale), rel=1e-9)
    assert math.log(max(p.cdf(column(0.5 - far)).item(), 1e-300)) == pytest.approx(
        max(exponent - math.log(2), math.log(1e-300)), rel=1e-9
    )


def test_extreme_quantiles_invert_the_distribution_function() -> None:
    p = LaplaceNoise(column(0.0, 0.0, 0.0), column(1e-6, 1.0, 1e6), column(1.0, 1.0, 1.0))
    levels = torch.tensor([1e-14, 1e-6, 0.3, 0.5, 0.7, 1 - 1e-6], dtype=torch.float64)
    found = p.quantile(levels)
    assert (found.diff(dim=0) > 0).all() and (found[3] == 0).all()
    for level, quantile in zip(levels, found, strict=True):
        torch.testing.assert_close(p.cdf(quantile), level.expand(3, 1), rtol=1e-8, atol=0)
    torch.testing.assert_close(found[1], -found[5], rtol=1e-9, atol=0)
