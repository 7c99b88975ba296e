"""The Gaussian likelihood against quadrature."""

from __future__ import annotations

import pytest
import scipy.integrate
import scipy.stats
import torch

from streamgp.likelihoods.gaussian import Config, build


def test_expected_log_prob_is_the_integral() -> None:
    likelihood = build(Config(), columns=2)
    likelihood.start(torch.tensor([3.0, 0.5]))
    y, mean = torch.tensor([[0.3, torch.nan]], dtype=torch.float64), torch.tensor([[-0.4, 1.0]], dtype=torch.float64)
    got = likelihood.expected_log_prob(y, mean, torch.tensor([[0.7]], dtype=torch.float64))
    noise = scipy.stats.norm(scale=likelihood.scale[0].item())
    latent = scipy.stats.norm(-0.4, 0.7**0.5)
    expected = scipy.integrate.quad(lambda f: latent.pdf(f) * noise.logpdf(0.3 - f), -12, 12)[0]
    assert got[0, 0].item() == pytest.approx(expected, rel=1e-9)
    assert got[0, 1].item() == 0.0


def test_missing_values_teach_nothing_and_spoil_no_gradient() -> None:
    likelihood = build(Config(), columns=2)
    mean = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[torch.nan, 1.0]]).double()
    likelihood.expected_log_prob(y, mean, torch.ones(1, 1).double()).sum().backward()
    assert mean.grad is not None and mean.grad[0, 0] == 0 and mean.grad[0, 1] > 0
    assert likelihood.log_noise.grad is not None and likelihood.log_noise.grad[0] == 0


def test_noise_starts_at_a_tenth_of_the_variance_and_is_in_the_predictive() -> None:
    likelihood = build(Config(), columns=2)
    likelihood.start(torch.tensor([4.0, 0.0]))
    p = likelihood.predictive(torch.zeros(3, 2).double(), torch.ones(3, 2).double())
    torch.testing.assert_close(p.variance, torch.tensor([1.4, 1.0]).double().expand(3, 2), rtol=0, atol=1e-6)
    torch.testing.assert_close(p.latent_variance, torch.ones(3, 2).double())
