"""The Student-t likelihood against adaptive quadrature and finite differences."""

from __future__ import annotations

import pytest
import scipy.integrate
import scipy.stats
import torch

from streamgp.likelihoods.student_t import Config, build


@pytest.mark.sampled
@pytest.mark.parametrize(("ratio", "tolerance"), [(0.1, 1e-6), (1.0, 1e-4), (3.0, 0.01), (10.0, 0.2)])
@pytest.mark.parametrize("dof", [3.0, 12.0])
def test_expected_log_prob_is_the_integral_to_the_stated_tolerance(ratio: float, tolerance: float, dof: float) -> None:
    likelihood = build(Config(dof=dof), columns=1)
    s = likelihood.scale.item()
    noise = scipy.stats.t(dof, scale=s)
    for y in (0.0, 0.7 * ratio * s, 6.0 * s):
        latent = scipy.stats.norm(0.0, ratio * s)
        ends = (-9 * ratio * s, 9 * ratio * s)
        expected = scipy.integrate.quad(lambda f, d=latent, y=y: d.pdf(f) * noise.logpdf(y - f), *ends, points=[y])[0]
        variance = torch.full((1, 1), (ratio * s) ** 2, dtype=torch.float64)
        got = likelihood.expected_log_prob(torch.full((1, 1), y).double(), torch.zeros(1, 1).double(), variance)
        assert got.item() == pytest.approx(expected, abs=tolerance)


def test_gradients_are_finite_differences_and_missing_values_teach_nothing() -> None:
    likelihood = build(Config(), columns=2)
    y = torch.tensor([[0.3, torch.nan], [5.0, -1.0]], dtype=torch.float64)
    mean = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64, requires_grad=True)
    variance = torch.tensor([[0.5], [0.2]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m, v: likelihood.expected_log_prob(y, m, v), (mean, variance))
    likelihood.expected_log_prob(y, mean, variance).sum().backward()
    assert mean.grad is not None and mean.grad[0, 1] == 0 and mean.grad.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in likelihood.parameters())


def test_noise_starts_at_a_tenth_of_the_variance() -> None:
    likelihood = build(Config(dof=4.0), columns=2)
    likelihood.start(torch.tensor([4.0, 1.0]).double())
    p = likelihood.predictive(torch.zeros(3, 2).double(), torch.zeros(3, 2).double())
    torch.testing.assert_close(p.variance[0], torch.tensor([0.4, 0.1]).double())
