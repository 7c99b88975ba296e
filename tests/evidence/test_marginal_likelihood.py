"""ML-II against GPyTorch, a dense NumPy twin, finite differences, and a likelihood with two maxima."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.errors import NumericalError
from streamgp.evidence.marginal_likelihood import LikelihoodProblem, MarginalLikelihoodConfig, maximise
from streamgp.evidence.starts import centres, draw_start
from streamgp.kernels import Tied
from tests.words import naming

with warnings.catch_warnings():  # it still uses torch.jit
    warnings.simplefilter("ignore")
    import gpytorch

GROUPS = torch.tensor([0, 1, 0])
X = torch.randn(30, 3, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
NOISE = torch.randn(30, 2, generator=torch.Generator().manual_seed(1), dtype=FLOAT)
Y = torch.stack((torch.sin(1.5 * X[:, 0]), X[:, 1]), 1) + 0.2 * NOISE
START = torch.tensor([-2.0, -1.0], dtype=FLOAT)


def tied(options: Any, groups: Tensor = GROUPS) -> Tied:
    return Tied(choice.read("kernels", options), groups)


def config(**options: Any) -> MarginalLikelihoodConfig:
    return MarginalLikelihoodConfig(**options)


def dense(kernel: Tied, noise: Tensor, x: Tensor, y: Tensor) -> float:
    """NLML a row and column, by NumPy, one column after another."""
    gram = kernel(x, x).detach().numpy()
    total = 0.0
    for column, own in zip(y.numpy().T, noise.tolist(), strict=True):
        covariance = gram + own * np.eye(len(gram))
        _, determinant = np.linalg.slogdet(covariance)
        total += 0.5 * (column @ np.linalg.solve(covariance, column) + determinant + len(column) * np.log(2 * np.pi))
    return total / y.numel()


@pytest.mark.sampled
@pytest.mark.parametrize("noise", ["own", "shared"])
@pytest.mark.parametrize("options", ["squared_exponential", "sum", {"name": "product", "parts": ["matern", "linear"]}])
def test_value_and_gradient(options: Any, noise: str) -> None:
    problem = LikelihoodProblem(tied(options), 2, X, Y, config(noise=noise, prior=1.5))
    packed = problem.pack(dict(problem.kernel.named_parameters()), START)
    packed = packed + 0.1 * torch.arange(len(packed), dtype=FLOAT)
    loss, gradient = problem(packed)
    off = (packed[: len(problem.centres)] - problem.centres) / 1.5
    wanted = dense(problem.kernel, problem.noise.detach().expand(2), X, Y) + 0.5 * off.square().sum().item() / 60
    assert loss == pytest.approx(wanted, rel=1e-11)
    for place in range(len(packed)):
        step = torch.zeros_like(packed)
        step[place] = 1e-5
        slope = (problem(packed + step)[0] - problem(packed - step)[0]) / 2e-5
        assert gradient[place].item() == pytest.approx(slope, abs=2e-8)


def test_the_optimum_is_that_of_gpytorch() -> None:
    """GPyTorch's own marginal likelihood at what was found: the same value, and no slope."""
    found = maximise(tied("squared_exponential", torch.arange(3)), START[:1], X, Y[:, :1], config(evaluations=200))

    class Twin(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(X, Y[:, 0], likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3))

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-8))
    twin = Twin(likelihood).double()
    twin.covar_module.base_kernel.lengthscale = found.kernel["log_lengthscale"].exp()[None]
    twin.covar_module.outputscale = found.kernel["log_outputscale"].exp()
    likelihood.noise = found.noise
    twin.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, twin)
    with gpytorch.settings.fast_computations(False, False, False):
        loss = -objective(twin(X), Y[:, 0])
        loss.backward()
    assert found.loss == pytest.approx(loss.item(), abs=1e-8)
    slopes = torch.cat([value.grad.flatten() for value in twin.parameters()])
    assert slopes.abs().max() < 1e-4
    assert found.history == tuple(sorted(found.history, reverse=True)) and found.evaluations <= 200


def test_adam_comes_to_the_same_place() -> None:
    kernel = tied("matern")
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    first = maximise(kernel, START, X, Y, config(evaluations=100))
    second = maximise(kernel, START, X, Y, config(method="adam", evaluations=400))
    assert second.loss == pytest.approx(first.loss, abs=1e-4) and second.evaluations == 400
    assert first.evaluations <= 101 and first.seconds >= 0.0
    for name, value in kernel.state_dict().items():
        assert torch.equal(value, before[name]), "the given kernel is left alone"
    assert first.noise[0] != first.noise[1]
    shared = maximise(kernel, START, X, Y, config(noise="shared"))
    assert shared.noise[0] == shared.noise[1] and shared.loss >= first.loss - 1e-9


@pytest.mark.slow
def test_restarts_find_the_better_of_two_modes() -> None:
    """A quick wave on a slow one: from long lengthscales the quick one is taken for noise."""
    x = torch.linspace(-1.0, 1.0, 60, dtype=FLOAT)[:, None]
    y = torch.sin(25.0 * x) + 0.05 * torch.randn(60, 1, generator=torch.Generator().manual_seed(2), dtype=FLOAT)
    y = (y - y.mean()) / y.std()
    kernel = tied({"name": "squared_exponential", "lengthscale": 20.0}, torch.zeros(1, dtype=torch.int64))
    alone = maximise(kernel, START[:1], x, y, config())
    restarted = maximise(kernel, START[:1], x, y, config(restarts=8))
    assert alone.noise.item() > 0.8, "everything is noise"
    assert restarted.noise.item() < 0.05 and restarted.loss < alone.loss - 0.5
    again = maximise(kernel, START[:1], x, y, config(restarts=8))
    assert again.loss == restarted.loss and torch.equal(again.noise, restarted.noise)


def test_a_period_is_found_by_restarts() -> None:
    x = torch.linspace(0.0, 20.0, 120, dtype=FLOAT)[:, None]
    y = torch.sin(2 * math.pi * x / 3.0).sign() + 0.1 * torch.randn(
        120, 1, generator=torch.Generator().manual_seed(3), dtype=FLOAT
    )
    kernel = tied("periodic", torch.zeros(1, dtype=torch.int64))
    found = maximise(kernel, START[:1], x, y, config(restarts=10))
    ratio = found.kernel["log_period"].exp().item() / 3.0
    assert abs(ratio - round(ratio)) < 0.02 * ratio and round(ratio) >= 1  # a multiple of the period fits as well


def test_the_noise_stays_above_its_floor_and_the_prior_holds_lengthscales() -> None:
    y = Y[:, :1] - Y[:, :1]
    y[::2] = 1.0  # nothing depends on x
    free = maximise(tied("squared_exponential"), START[:1], X, X[:, :1], config(floor=1e-2))
    assert 1e-2 <= free.noise.item() < 1.1e-2
    far = maximise(tied("squared_exponential"), START[:1], X[:6], y[:6], config())
    held = maximise(tied("squared_exponential"), START[:1], X[:6], y[:6], config(prior=0.5))
    around = centres(tied("squared_exponential"), X[:6])["log_lengthscale"]
    assert (held.kernel["log_lengthscale"] - around).abs().max() < 1.0
    assert (far.kernel["log_lengthscale"] - around).abs().max() > 1.0


def test_failures_are_told_and_are_not_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    first, right = tied("squared_exponential"), LikelihoodProblem.__call__
    begins = LikelihoodProblem(first, 2, X, Y, config()).pack(dict(first.named_parameters()), START)

    def fail(self: LikelihoodProblem, packed: Tensor) -> tuple[float, Tensor]:
        loss, gradient = right(self, packed)
        if packed.equal(begins):
            self.failure = "no factor"
            return 1e10, torch.zeros_like(gradient)
        return loss, gradient

    monkeypatch.setattr(LikelihoodProblem, "__call__", fail)
    found = maximise(first, START, X, Y, config(restarts=1))
    assert found.failures == ("start 0: no factor",) and math.isfinite(found.loss)
    huge = torch.full_like(Y, torch.inf)
    with pytest.raises(NumericalError, match=naming("2")) as caught:
        maximise(first, START, X, huge, config(restarts=1))
    assert caught.value.hint


def test_draws_are_around_the_data() -> None:
    kernel = tied({"name": "sum", "parts": ["squared_exponential", "locally_periodic", "linear"]})
    generator = torch.Generator().manual_seed(0)
    drawn = [draw_start(kernel, 100 * X, 2, generator) for _ in range(400)]
    around = centres(kernel, 100 * X)
    for name in ("parts.0.log_lengthscale", "parts.1.log_pattern_lengthscale", "parts.2.log_variance"):
        values = torch.stack([one[0][name] for one in drawn])
        assert ((values.mean(0) - around[name]) * 20).abs().max() < 5  # standard errors
        assert ((values.var(0) - 1) * (400 / 2) ** 0.5).abs().max() < 5
    assert around["parts.0.log_lengthscale"].exp().mean() > 50
    periods = torch.stack([one[0]["parts.1.log_period"] for one in drawn]).exp()
    assert periods.amax() <= 1.0001 * (100 * X).abs().max() * 2 and periods.amin() > 1.0
    noises = torch.stack([one[1] for one in drawn])
    assert bool((noises >= math.log(1e-3)).all() and (noises <= 0).all() and (noises[:, 0] == noises[:, 1]).all())
