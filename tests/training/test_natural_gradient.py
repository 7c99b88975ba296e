"""Natural-gradient steps: where they end, what one of them does, and what a site is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.likelihoods import Likelihood
from streamgp.objectives.sparse import Belief
from streamgp.training.natural_gradient import Natural, sites, weighted_gram


def rows(count: int, functions: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    phi = torch.randn(count, functions, generator=generator, dtype=FLOAT) / functions**0.5
    weights = torch.randn(functions, 2, generator=generator, dtype=FLOAT)
    return phi, phi @ weights + 0.3 * torch.randn(count, 2, generator=generator, dtype=FLOAT)


def elbo(likelihood: Likelihood, phi: Tensor, y: Tensor, belief: Belief) -> float:
    """Prior variances are ‖φ‖²: nothing is left that the functions do not reach."""
    mean, variance = belief.moments(phi, phi.square().sum(1))
    value = likelihood.expected_log_prob(y, mean, variance.expand_as(mean)).sum() - belief.divergence()
    return float(value.detach())


def test_one_whole_step_on_all_rows_is_the_optimal_gaussian() -> None:
    phi, y = rows(50, 4)
    natural = Natural(4, 2, shared=True)
    natural.step(torch.ones(1, 4, 4, dtype=FLOAT), torch.ones(4, 2, dtype=FLOAT), rate=0.3)  # wherever it stood
    natural.step(weighted_gram(phi, phi.new_ones(50))[None], phi.T @ y, rate=1.0)
    belief = natural.belief(torch.tensor(1 / 0.09, dtype=FLOAT))
    precision = np.eye(4) + phi.T.numpy() @ phi.numpy() / 0.09
    np.testing.assert_allclose(belief.excess[0] + torch.eye(4), np.linalg.inv(precision), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(belief.mean, np.linalg.solve(precision, phi.T.numpy() @ y.numpy() / 0.09), rtol=1e-9)
    assert float(belief.logs) == pytest.approx(-np.linalg.slogdet(precision)[1])


def test_small_steps_on_mini_batches_end_around_the_optimum() -> None:
    phi, y = rows(600, 3)
    best, natural = Natural(3, 2, shared=True), Natural(3, 2, shared=True)
    best.step(weighted_gram(phi, phi.new_ones(600))[None], phi.T @ y, rate=1.0)
    generator, means = torch.Generator().manual_seed(1), []
    factor = torch.tensor(1 / 0.09, dtype=FLOAT)
    for step in range(600):
        chosen = torch.randperm(600, generator=generator)[:60]
        own = phi[chosen]
        natural.step(10 * weighted_gram(own, own.new_ones(60))[None], 10 * own.T @ y[chosen], rate=0.05)
        if step >= 200:
            means.append(natural.belief(factor).mean)
    found, wanted = torch.stack(means), best.belief(factor).mean
    spread = found.std(0) / (400 * 0.05 / 2) ** 0.5  # successive steps share 1/0.05 batches
    assert bool(((found.mean(0) - wanted).abs() < 5 * spread + 2e-3).all())


CASES: list[dict[str, Any]] = [
    {"name": "logistic"},
    {"name": "laplace", "noise": 0.2},
    {"name": "student_t", "noise": 0.2},
    {"name": "gaussian", "noise": 0.2},
]


@pytest.mark.sampled
@pytest.mark.parametrize("options", CASES, ids=lambda one: str(one["name"]))
def test_steps_end_where_the_bound_is_largest(options: dict[str, Any]) -> None:
    likelihood = choice.build("likelihoods", choice.read("likelihoods", options), 2)
    phi, y = rows(80, 3)
    if options["name"] == "logistic":
        y = (y > 0).to(FLOAT)
    else:
        likelihood.start(torch.ones(2, dtype=FLOAT))
    y[5, 0] = torch.nan
    natural, prior, weight = Natural(3, 2, shared=False), phi.square().sum(1), torch.ones(80, dtype=FLOAT)
    for _ in range(100):
        site = sites(likelihood, y, *natural.belief().moments(phi, prior), weight)
        outer = torch.stack([weighted_gram(phi, column) for column in site.precision.T])
        natural.step(outer, phi.T @ site.pull, rate=0.5)
    belief = natural.belief()
    value = elbo(likelihood, phi, y, belief)
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):  # no other Gaussian is better, however it differs
        nudge = 1e-2 * torch.randn(3, 2, generator=generator, dtype=FLOAT)
        tilt = torch.eye(3, dtype=FLOAT) + 1e-2 * torch.randn(3, 3, generator=generator, dtype=FLOAT)
        covariance = tilt @ (belief.excess + torch.eye(3, dtype=FLOAT)) @ tilt.T
        other = Belief(belief.mean + nudge, covariance - torch.eye(3, dtype=FLOAT), torch.linalg.slogdet(covariance)[1])
        assert elbo(likelihood, phi, y, other) < value
    assert elbo(likelihood, phi, y, belief._replace(mean=belief.mean + 1e-3)) < value + 1e-9


@pytest.mark.parametrize("options", CASES, ids=lambda one: str(one["name"]))
def test_sites_are_the_slopes_of_the_expected_log_probability(options: dict[str, Any]) -> None:
    likelihood = choice.build("likelihoods", choice.read("likelihoods", options), 1)
    y = torch.tensor([[1.0], [0.0], [torch.nan]], dtype=FLOAT)
    mean, variance = torch.tensor([[0.3], [0.4], [0.1]]).double(), torch.tensor([[0.5], [0.9], [0.7]]).double()
    weight, step = torch.tensor([2.0, 1.0, 1.0], dtype=FLOAT), 1e-5
    found = sites(likelihood, y, mean, variance, weight)

    def value(m: Tensor, v: Tensor) -> Tensor:
        found: Tensor = (weight[:, None] * likelihood.expected_log_prob(y, m, v)).detach()
        return found

    slope = (value(mean + step, variance) - value(mean - step, variance)) / (2 * step)
    curve = (value(mean, variance + step) - value(mean, variance - step)) / (2 * step)
    torch.testing.assert_close(found.slope, slope, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(found.curve, curve, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(found.pull, found.slope + found.precision * mean, rtol=1e-12, atol=0)
    assert found.precision[2] == 0 and found.pull[2] == 0 and bool((found.precision >= 0).all())
    assert float(found.value) == pytest.approx(float(value(mean, variance).sum()))


@pytest.mark.parametrize("columns", [1, 3])
def test_functions_that_no_row_reaches_stay_as_in_the_prior(columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    phi = torch.zeros(20, 9, dtype=FLOAT)
    phi[:, :4] = torch.randn(20, 4, dtype=FLOAT, generator=generator)
    natural = Natural(9, columns, shared=columns == 1)
    assert natural.used == 1 and torch.equal(natural.belief().mean, torch.zeros(9, columns, dtype=FLOAT))
    outer = torch.stack([weighted_gram(phi, (1.0 + at) * torch.ones(20, dtype=FLOAT)) for at in range(columns)])
    natural.step(outer, phi.T @ torch.ones(20, columns, dtype=FLOAT), rate=1.0)
    assert natural.used == 4 and natural.root().shape == (columns, 4, 4)  # what it costs
    belief, whole = natural.belief(), torch.linalg.inv(torch.eye(9, dtype=FLOAT) + outer)
    torch.testing.assert_close(belief.excess + torch.eye(9, dtype=FLOAT), whole)
    torch.testing.assert_close(belief.mean.T, (whole @ natural.moment.T[..., None])[..., 0])
    torch.testing.assert_close(belief.logs, torch.logdet(whole))
