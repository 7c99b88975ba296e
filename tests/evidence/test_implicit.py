"""The reduced gradient at work: the dense optimum, both optimisers, variances, columns, restarts, failures."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence import implicit
from streamgp.evidence.cross_validated import KernelVector, parts
from streamgp.evidence.implicit import CrossValidatedProblem, ImplicitConfig, cv_implicit
from streamgp.kernels import Tied
from tests.evidence.cross_validation_toys import LP, ONE, SE, drawn, error, optimum, tied

START = torch.tensor([-1.0], dtype=FLOAT)


def config(**options: Any) -> ImplicitConfig:
    return ImplicitConfig(**options)


def test_iterations_are_those_of_the_start_that_won_scouting_included() -> None:
    """One history, which falls from one value to the next and ends at what is returned."""
    x, y = drawn(tied(SE), 80)
    for restarts in (0, 2):
        found = cv_implicit(tied(SE, lengthscale=3.0), START, x, y, config(restarts=restarts))
        assert 3 <= len(found.history) <= found.evaluations
        assert list(found.history) == sorted(found.history, reverse=True)
        assert found.history[-1] == pytest.approx(found.loss, rel=1e-3)


@pytest.mark.sampled
@pytest.mark.parametrize("folds", [1, 2, 5])
def test_it_ends_at_the_dense_optimum(folds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implicit, "IMPROVEMENT", 1e-6)
    kernel, asked = tied(SE, lengthscale=1.0), config(folds=folds, iterations=100)
    x, y = drawn(tied(SE), 200)
    found = cv_implicit(kernel, START, x, y, asked)
    best = optimum(kernel, START, x, y, parts(x, asked))
    assert found.loss / best - 1.0 < 1e-3
    assert found.loss == pytest.approx(error(kernel, found.kernel, found.noise, x, y, parts(x, asked)), rel=1e-4)


def test_gradient_and_value_are_those_of_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implicit, "CG_TOLERANCE", 1e-12)
    monkeypatch.setattr(implicit, "CG_STEPS", 1000)
    kernel = tied(LP, lengthscale=1.0)
    x, y = drawn(tied(LP), 60, columns=2)
    problem = CrossValidatedProblem(kernel, START.expand(2), x, y, config())
    at = problem.learned.read()
    value, slope = problem(at)
    direction = torch.randn(len(at), generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    sides = [problem(at + step * direction)[0] for step in (1e-5, -1e-5)]
    assert float(slope @ direction) == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6)
    assert problem(at)[0] == pytest.approx(value, rel=1e-9) and problem.evaluations == 4  # wherever solves start


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_variances_are_those_of_the_data(scale: float) -> None:
    """Ten draws from a process, all hyper-parameters in the right proportion: only the factor is missing."""
    x, y = drawn(tied(SE), 200, columns=10)
    asked = config(floor=1e-12, iterations=1)
    found = cv_implicit(tied(SE), torch.full((10,), 0.1).double().log(), x, scale * y, asked)
    assert found.kernel["log_outputscale"].exp().item() == pytest.approx(scale**2, rel=0.15)
    assert found.noise.tolist() == pytest.approx([0.1 * scale**2] * 10, rel=0.4)


def test_the_noise_is_found() -> None:
    x, y = drawn(tied(SE), 300, noise=0.3, columns=4)
    found = cv_implicit(tied(SE, lengthscale=1.0), START.expand(4) - 1.0, x, y, config())
    assert found.noise.tolist() == pytest.approx([0.3] * 4, rel=0.25)


@pytest.mark.slow
def test_groups_of_columns_and_any_kernel() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 3, generator=generator, dtype=FLOAT)
    y = torch.stack((x[:, 0].sin() + x[:, 2], x[:, 1]), 1) + 0.1 * torch.randn(80, 2, generator=generator, dtype=FLOAT)
    for options in ("matern", "rational_quadratic", "linear", "spectral_mixture", "sum"):
        kernel = Tied(choice.read("kernels", options), torch.tensor([0, 1, 0]))
        found = cv_implicit(kernel, START.expand(2), x, y, config(iterations=15))
        start = error(kernel, kernel.state_dict(), START.expand(2).exp(), x, y, parts(x, config()))
        assert found.loss <= start and {name: v.shape for name, v in found.kernel.items()} == {
            name: v.shape for name, v in kernel.state_dict().items()
        }


def test_noise_stays_above_its_floor() -> None:
    x = torch.linspace(0, 6, 50, dtype=FLOAT)[:, None]
    found = cv_implicit(tied(SE), START, x, x.sin(), config(floor=1e-3))
    assert found.noise.item() >= 1e-3


@pytest.mark.slow
def test_further_starts_find_another_period() -> None:
    kernel = tied(LP, lengthscale=2.0, period=0.3)
    x, y = drawn(tied(LP, lengthscale=2.0), 100)
    alone, some = (cv_implicit(kernel, START, x, y, config(restarts=restarts)) for restarts in (0, 6))
    assert some.loss < 0.99 * alone.loss and some.evaluations > alone.evaluations


def test_the_kernel_given_is_not_changed_and_runs_repeat() -> None:
    kernel = tied(LP, lengthscale=1.0)
    x, y = drawn(tied(LP), 60)
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    found, again = (cv_implicit(kernel, START, x, y, config(restarts=1)) for _ in range(2))
    assert all(torch.equal(value, before[name]) for name, value in kernel.state_dict().items())
    assert found.loss == again.loss and all(torch.equal(v, again.kernel[name]) for name, v in found.kernel.items())
    assert found.history == again.history and found.evaluations == again.evaluations


def test_little_memory_changes_little() -> None:
    x, y = drawn(tied(SE), 100)
    much, little = (cv_implicit(tied(SE), START, x, y, config(memory=memory)) for memory in (1.0, 2e-5))
    assert little.loss == pytest.approx(much.loss, rel=1e-3)


def test_the_vector_is_what_was_given_within_bounds() -> None:
    kernel = Tied(tied(SE).config, ONE)
    learned = KernelVector(kernel, torch.tensor([-30.0, 1.0], dtype=FLOAT), 1e-4)
    assert learned.noise.tolist() == pytest.approx([1e-4, torch.tensor(1.0).exp().item()])
    learned.write(torch.full((4,), 1e3, dtype=FLOAT))
    assert learned.read().tolist() == pytest.approx([20.0] * 4)


def test_what_leads_nowhere_is_told() -> None:
    x, y = drawn(tied(SE), 20)
    for restarts in (0, 2):
        with pytest.raises(NumericalError):
            cv_implicit(tied(SE), START, x, y * torch.nan, config(restarts=restarts))
    with pytest.raises(UsageError):
        cv_implicit(tied(SE), START, x[:1], y[:1], config())
