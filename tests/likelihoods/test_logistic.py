"""The logistic likelihood against quadrature and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

from streamgp.errors import DataError
from streamgp.likelihoods.logistic import Config, build
from tests.words import naming


@pytest.mark.sampled
@pytest.mark.parametrize("sd", [0.01, 1.0, 6.0, 60.0])
@pytest.mark.parametrize("mean", [-8.0, 0.0, 1.5])
def test_expected_log_prob_is_the_integral(sd: float, mean: float) -> None:
    likelihood, latent = build(Config(), columns=1), scipy.stats.norm(mean, sd)
    points = (0.0,) if abs(mean) < 12 * sd else None
    for y, side in ((1.0, 1), (0.0, -1)):
        expected = scipy.integrate.quad(
            lambda f, side=side: -latent.pdf(f) * np.logaddexp(0, -side * f),
            mean - 12 * sd,
            mean + 12 * sd,
            points=points,
            epsabs=1e-12,
            limit=300,
        )[0]
        variance = torch.full((1, 1), sd**2, dtype=torch.float64)
        got = likelihood.expected_log_prob(torch.full((1, 1), y), torch.full((1, 1), mean).double(), variance)
        assert got.item() == pytest.approx(expected, rel=1e-8, abs=1e-9)


def test_gradients_are_finite_differences_and_missing_values_teach_nothing() -> None:
    likelihood = build(Config(), columns=2)
    y = torch.tensor([[0.0, torch.nan], [1.0, 0.0]], dtype=torch.float64)
    mean = torch.tensor([[0.1, 0.2], [-3.0, 40.0]], dtype=torch.float64, requires_grad=True)
    variance = torch.tensor([[0.5], [20.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m, v: likelihood.expected_log_prob(y, m, v), (mean, variance))
    value = likelihood.expected_log_prob(y, mean, variance)
    value.sum().backward()
    assert value[0, 1] == 0 and mean.grad is not None and mean.grad[0, 1] == 0
    assert not list(likelihood.parameters())


def test_a_known_function_value_gives_the_log_of_its_probability() -> None:
    likelihood = build(Config(), columns=1)
    mean = torch.tensor([[-700.0], [0.0], [5.0]], dtype=torch.float64, requires_grad=True)
    nothing = torch.zeros(3, 1, dtype=torch.float64, requires_grad=True)
    value = likelihood.expected_log_prob(torch.ones(3, 1), mean, nothing)
    torch.testing.assert_close(value.detach(), torch.nn.functional.logsigmoid(mean.detach()), rtol=1e-9, atol=1e-9)
    slopes = torch.autograd.grad(value.sum(), (mean, nothing))
    torch.testing.assert_close(slopes[0], torch.sigmoid(-mean.detach()), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        slopes[1], -0.5 * torch.sigmoid(mean.detach()) * torch.sigmoid(-mean.detach()), rtol=1e-8, atol=1e-12
    )


def test_it_begins_at_the_logit_of_the_share_of_ones() -> None:
    likelihood = build(Config(), columns=3)
    y = torch.tensor([[1.0, 0.0, torch.nan], [0.0, 0.0, torch.nan], [0.0, torch.nan, torch.nan]]).double()
    expected = torch.tensor([math.log(1.5 / 2.5), math.log(0.5 / 2.5), 0.0]).double()
    torch.testing.assert_close(likelihood.origin(y), expected)
    before = likelihood.scale.clone()
    likelihood.start(torch.tensor([0.1, 0.2, 0.3]).double())
    assert torch.equal(likelihood.scale, before) and (before == 2).all()


def test_other_values_are_refused_by_the_name_of_their_target() -> None:
    likelihood = build(Config(), columns=4)
    good = torch.tensor([[0.0, 1.0, torch.nan, 1.0]]).double()
    likelihood.check(good, ("rain", "hail"))
    with pytest.raises(DataError, match=naming("hail 0.5")) as refusal:
        likelihood.check(torch.cat([good, torch.tensor([[0.0, 1.0, 0.5, 1.0]]).double()]), ("rain", "hail"))
    assert "0/1" in refusal.value.hint
    with pytest.raises(DataError, match=naming("rain")):
        likelihood.check(torch.tensor([[torch.inf, 1.0, 2.0, 1.0]]).double(), ("rain", "hail"))
