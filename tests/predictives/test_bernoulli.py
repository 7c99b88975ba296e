"""Bernoulli outcomes behind a Gaussian logit, against fine quadrature."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import scipy.special
import torch

from streamgp.predictives import expected_slope, expected_softplus, log_probabilities, spread
from streamgp.predictives.bernoulli import Bernoulli

MEANS = (-60.0, -10.0, -1.0, 0.0, 0.3, 4.0, 30.0)
SPREADS = (1e-3, 0.1, 0.5, 0.99, 1.01, 2.0, 5.0, 20.0, 100.0)


@functools.cache
def oracle(mean: float, sd: float) -> dict[str, float]:
    """By the trapezoidal rule in f, 4·10⁵ points over 40 standard deviations around the mean and every tilted mean."""
    reach = 40 * sd + sd * sd
    f = np.linspace(min(mean - reach, -60), max(mean + reach, 60), 400_001)
    logs = -0.5 * ((f - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi)) + np.log(f[1] - f[0])
    one = scipy.special.logsumexp(logs - np.logaddexp(0, -f))
    weights = np.exp(logs)
    return {
        "one": one,
        "zero": scipy.special.logsumexp(logs - np.logaddexp(0, f)),
        "softplus": weights @ np.logaddexp(0, f),
        "slope": weights @ (scipy.special.expit(f) * scipy.special.expit(-f)),
        "spread": weights @ (scipy.special.expit(f) - np.exp(one)) ** 2,
    }


@pytest.mark.slow
def test_every_expectation_is_the_integral_for_every_mean_and_variance() -> None:
    """Logarithms absolutely to 1e-9, that is, probabilities to 1e-9 of themselves, however small they are."""
    mean, sd = torch.cartesian_prod(torch.tensor(MEANS).double(), torch.tensor(SPREADS).double()).unbind(1)
    one, zero = log_probabilities(mean, sd.square())
    found = {
        "one": one,
        "zero": zero,
        "softplus": expected_softplus(mean, sd.square()),
        "slope": expected_slope(mean, sd.square()),
        "spread": spread(mean, sd.square()),
    }
    truth = [oracle(m, s) for m, s in zip(mean.tolist(), sd.tolist(), strict=True)]
    for name, values in found.items():
        expected = np.array([one[name] for one in truth])
        np.testing.assert_allclose(
            values.numpy(), expected, rtol=2e-9 if name == "softplus" else 0, atol=2e-9, err_msg=name
        )


def test_few_rows_have_the_bits_that_they_have_among_many() -> None:
    mean, variance = torch.linspace(-60, 60, 5000).double(), torch.linspace(0, 9, 5000).double()
    few = slice(0, None, 617)
    for function in (lambda *row: torch.stack(log_probabilities(*row)), expected_softplus, expected_slope, spread):
        assert torch.equal(function(mean[few], variance[few]), function(mean, variance)[..., few])


def test_a_known_logit_gives_its_own_probability() -> None:
    mean = torch.tensor([-800.0, -30.0, -1e-9, 0.0, 0.7, 40.0]).double()
    p = Bernoulli(mean, torch.zeros_like(mean))
    torch.testing.assert_close(p.logs[0], torch.nn.functional.logsigmoid(mean), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(p.latent_variance, torch.zeros_like(mean), rtol=0, atol=1e-18)


def test_tails_are_those_of_the_lognormal() -> None:
    """Far below 0 the probability is E eᶠ = e^(m + v/2), far beyond what a double can hold of it."""
    mean, variance = torch.tensor([-50.0, -1000.0, -5000.0]).double(), torch.tensor([9.0, 400.0, 0.25]).double()
    torch.testing.assert_close(log_probabilities(mean, variance)[0], mean + variance / 2, rtol=1e-9, atol=1e-9)
    wide = log_probabilities(torch.tensor(-3.0).double(), torch.tensor(1e8).double())[0].exp()  # a probit then
    assert wide.item() == pytest.approx(scipy.special.ndtr(-3e-4), abs=1e-7)


def test_moments_quantiles_samples_and_scores() -> None:
    mean, variance = torch.tensor([[0.4, -2.0], [3.0, 0.0]]).double(), torch.tensor([[1.0, 5.0], [0.0, 50.0]]).double()
    p = Bernoulli(mean, variance)
    chance = p.mean
    torch.testing.assert_close(p.variance, chance * (1 - chance))
    assert (p.latent_variance >= 0).all() and (p.latent_variance <= p.variance).all()
    levels = torch.tensor([0.01, 0.3, 0.8, 0.99]).double()
    q = p.quantile(levels)
    for level, found in zip(levels, q, strict=True):  # P(y < q) < level <= P(y <= q)
        assert ((found == 1) == (1 - chance < level)).all() and ((found == 0) | (found == 1)).all()
    draws = p.sample(20_000, torch.Generator().manual_seed(0))
    assert ((draws == 0) | (draws == 1)).all()
    assert ((draws.mean(0) - chance).abs() < 5 * (p.variance / 20_000).sqrt()).all()
    for outcome in (0.0, 1.0):
        y = torch.full_like(mean, outcome)
        torch.testing.assert_close(p.log_prob(y).exp(), chance if outcome else 1 - chance)
        torch.testing.assert_close(p.crps(y), (chance - outcome) ** 2)
    y = torch.tensor([[torch.nan, 0.5], [1.0, 0.0]]).double()
    assert p.log_prob(y)[0, 0].isnan() and p.log_prob(y)[0, 1] == -math.inf and p.crps(y)[0, 0].isnan()


def test_parameters_go_round_and_there_are_no_units() -> None:
    p = Bernoulli(torch.zeros(3, 2).double(), torch.ones(2).double())
    again = Bernoulli.from_parameters(p.parameters())
    assert torch.equal(again.parameters(), p.parameters()) and torch.equal(again.mean, p.mean)
    assert p.quantile(torch.zeros(0)).shape == (0, 3, 2)
    with pytest.raises(TypeError):
        p.affine(torch.ones(()), torch.zeros(()))
