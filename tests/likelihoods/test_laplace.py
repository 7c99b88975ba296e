"""The Laplace likelihood against quadrature and finite differences."""

from __future__ import annotations

import itertools
import math

import pytest
import scipy.integrate
import scipy.stats
import torch

from streamgp.likelihoods.laplace import Config, build


@pytest.mark.parametrize("ratio", [1e-3, 0.3, 3.0, 100.0])
def test_expected_log_prob_is_the_integral(ratio: float) -> None:
    likelihood = build(Config(), columns=1)
    b = likelihood.scale.item()
    latent = scipy.stats.norm(0.2, ratio * b)
    for y in (0.2, 0.2 + 0.7 * ratio * b, 0.2 - 6.0 * b):
        ends = [0.2 - 9 * ratio * b, min(max(y, 0.2 - 9 * ratio * b), 0.2 + 9 * ratio * b), 0.2 + 9 * ratio * b]

        def part(f: float, y: float = y) -> float:
            return -float(latent.pdf(f)) * (math.log(2 * b) + abs(y - f) / b)

        expected = sum(scipy.integrate.quad(part, *pair, epsabs=1e-12)[0] for pair in itertools.pairwise(ends))
        variance = torch.full((1, 1), (ratio * b) ** 2, dtype=torch.float64)
        got = likelihood.expected_log_prob(torch.full((1, 1), y).double(), torch.full((1, 1), 0.2).double(), variance)
        assert got.item() == pytest.approx(expected, rel=1e-6)


def test_gradients_are_finite_differences_and_missing_values_teach_nothing() -> None:
    likelihood = build(Config(), columns=2)
    y = torch.tensor([[0.3, torch.nan], [5.0, -1.0]], dtype=torch.float64)
    mean = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64, requires_grad=True)
    variance = torch.tensor([[0.5], [0.2]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m, v: likelihood.expected_log_prob(y, m, v), (mean, variance))
    likelihood.expected_log_prob(y, mean, variance).sum().backward()
    assert mean.grad is not None and mean.grad[0, 1] == 0
    slope = likelihood.log_scale.grad
    assert slope is not None and slope.isfinite().all() and (slope != 0).all()


@pytest.mark.parametrize("variance", [0.0, 1e-300, 1e-20])
def test_a_known_function_value_has_finite_slopes_even_on_the_truth(variance: float) -> None:
    likelihood = build(Config(), columns=2)
    mean = torch.tensor([[1.0, 7.0]], dtype=torch.float64, requires_grad=True)
    wide = torch.full((1, 1), variance, dtype=torch.float64, requires_grad=True)
    value = likelihood.expected_log_prob(torch.tensor([[1.0, 1.0]]).double(), mean, wide)
    b = likelihood.scale.detach()
    expected = torch.stack((-torch.log(2 * b[0]), -torch.log(2 * b[1]) - 6 / b[1]))[None]
    torch.testing.assert_close(value.detach(), expected, rtol=1e-7, atol=1e-7)
    value.sum().backward()
    assert mean.grad is not None and mean.grad[0, 0] == 0
    torch.testing.assert_close(mean.grad[0, 1], -1 / b[1])
    assert wide.grad is not None and wide.grad.isfinite().all()


def test_noise_starts_at_a_tenth_of_the_variance() -> None:
    likelihood = build(Config(), columns=2)
    likelihood.start(torch.tensor([4.0, 1.0]).double())
    p = likelihood.predictive(torch.zeros(3, 2).double(), torch.zeros(3, 2).double())
    torch.testing.assert_close(p.variance[0], torch.tensor([0.4, 0.1]).double())
