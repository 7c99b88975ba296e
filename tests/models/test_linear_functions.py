"""Functions drawn from the linear model's posterior, against its own predictive and brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Generator, Tensor

from streamgp.base import Inputs, Shape, Simulates
from streamgp.models import linear, persistence
from streamgp.models.linear import Linear


def fitted(rows: int, seed: int = 0, targets: tuple[str, ...] = ("y",), **options: Any) -> tuple[Linear, Inputs]:
    """A model of random windows of two lags and one known input, and five further windows."""
    shape = Shape(targets=targets, horizon=1, lags=2, past=(*targets, "u"), future=("k",))
    model = linear.build(linear.Config(**options), shape)
    g = Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=g, dtype=torch.float64)

    x = Inputs(draw(rows + 5, 2, len(shape.past)), 3 + draw(rows + 5, 1, 1))
    y = x.past[:, -1, : len(targets)] * 0.7 + x.future[:, 0] + 5 + draw(rows + 5, len(targets))
    if rows:
        _ = list(model.fit(x.rows(slice(0, rows)), y[:rows], 1))
    return model, x.rows(slice(rows, None))


@pytest.mark.sampled
@pytest.mark.parametrize("predictive", ["gaussian", "student_t"])
@pytest.mark.parametrize("targets", [("y",), ("y", "z")])
@pytest.mark.parametrize("rows", [0, 6, 40])
def test_one_step_is_distributed_as_predict_says(predictive: str, targets: tuple[str, ...], rows: int) -> None:
    model, x = fitted(rows, targets=targets, predictive=predictive)
    assert isinstance(model, Simulates)
    paths, count = 40_000, len(x.future)
    tiled = Inputs(x.past.repeat(paths, 1, 1), x.future.repeat(paths, 1, 1))
    y = model.functions(paths, Generator().manual_seed(1))(tiled).reshape(paths, count, len(targets))
    expected = model.predict(x)
    error = (y.mean(0) - expected.mean) / expected.variance.sqrt()
    assert error.abs().max() < 5 / np.sqrt(paths)
    p = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9], dtype=torch.float64)
    share = (y < expected.quantile(p)[:, None]).double().mean(1)  # (5, N, T)
    assert (share - p[:, None, None]).abs().max() < 5 * 0.5 / np.sqrt(paths)
    if predictive == "gaussian":
        assert_allclose(y.var(0), expected.variance, rtol=5 * np.sqrt(2 / paths))


def test_a_path_keeps_its_function_and_draws_its_noise_anew() -> None:
    """The same window asked often: its mean over the noise is one draw, which differs between paths alone."""
    model, x = fitted(12)
    paths, times = 300, 400
    draw = model.functions(paths, Generator().manual_seed(0))
    one = x.rows(slice(0, 1))
    tiled = Inputs(one.past.expand(paths, -1, -1), one.future.expand(paths, -1, -1))
    y = torch.stack([draw(tiled)[:, 0] for _ in range(times)])  # (times, P)
    expected = model.predict(one)
    noise = (expected.variance - expected.latent_variance).item()
    assert_allclose(y.var(0).mean(), noise, rtol=0.05)
    assert_allclose(y.mean(0).var(), expected.latent_variance.item() + noise / times, rtol=0.4)


def test_a_path_is_a_straight_line_and_the_same_for_all_its_series() -> None:
    model, x = fitted(12)
    model.noise.mul_(1e-30)  # neither noise nor spread is left to see, but the draws are made
    one = x.rows(slice(0, 1))
    pair = Inputs(one.past.repeat(6, 1, 1), one.future.repeat(6, 1, 1))
    y = model.functions(3, Generator().manual_seed(0))(pair).reshape(3, 2)
    assert_allclose(y[:, 0], y[:, 1], atol=1e-10)
    model, x = fitted(12)
    draws = [model.functions(3, Generator().manual_seed(0)) for _ in range(2)]
    assert torch.equal(*(draw(pair) for draw in draws))


def ar1() -> tuple[Linear, Shape]:
    """y[t+1] = g y[t] + e with a gain that few rows have left uncertain."""
    shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
    model = linear.build(linear.Config(target="level", ridge=0.01), shape)
    g = np.random.default_rng(0)
    y = g.normal(size=8)
    after = 0.95 * y + 0.1 * g.normal(size=8)
    _ = list(
        model.fit(Inputs(torch.from_numpy(y)[:, None, None], torch.zeros(8, 1, 0)), torch.from_numpy(after)[:, None], 1)
    )
    return model, shape


def test_over_several_steps_the_spread_is_that_of_one_gain_a_path() -> None:
    """Against Monte Carlo in NumPy; marginal draws, fresh at each step, spread less."""
    model, _ = ar1()
    paths, steps, start = 20_000, 6, 8.0
    draw = model.functions(paths, Generator().manual_seed(0))
    marginal = Generator().manual_seed(0)
    own = fresh = torch.full((paths, 1), start, dtype=torch.float64)
    none = torch.zeros(paths, 1, 0, dtype=torch.float64)
    for _ in range(steps):
        own = draw(Inputs(own[:, None], none))
        fresh = model.predict(Inputs(fresh[:, None], none)).sample(1, marginal)[0]

    # the same posterior, from its definition
    gram, centre = model.gram.numpy(), float(model.feature_centre)
    ridge = 0.01 * np.diag([0.001 / 0.01, gram[1, 1] / 8 - (gram[0, 1] / 8) ** 2])
    covariance = np.linalg.inv(gram + ridge) * float(model.noise) / (2 + 8 / 2 - 1)
    g = np.random.default_rng(1)
    w = g.multivariate_normal(np.linalg.solve(gram + ridge, model.cross.numpy()[:, 0]), covariance, paths)
    y = np.full(paths, start)
    for _ in range(steps):
        noise = np.sqrt(float(model.noise) / (2 + 8 / 2 - 1)) * g.normal(size=paths)
        y = float(model.target_centre) + w[:, 0] + w[:, 1] * (y - centre) + noise
    assert_allclose(own.mean(), y.mean(), rtol=0.02)
    assert_allclose(own.std(), y.std(), rtol=0.03)
    assert fresh.std() < 0.65 * y.std()


def test_the_two_steps_of_a_gain_in_closed_form() -> None:
    """y₂ = g² y₀ + g e₁ + e₂ with g ~ N(m, v): E y₂ = (m² + v) y₀, Var y₂ = (4m²v + 2v²) y₀² + (m² + v) s² + s²."""
    model, _ = ar1()
    model.factor[0, 0], model.factor[1, 0] = 1e9, 0.0  # the intercept is known to be 0
    model.weights[0] = 0.0
    for buffer in (model.feature_centre, model.target_centre):
        buffer.zero_()
    m, s2 = float(model.weights[1]), float(model.noise) / (2 + 8 / 2 - 1)
    v = s2 / float(model.factor[1, 1]) ** 2
    paths, start = 100_000, 20.0
    draw = model.functions(paths, Generator().manual_seed(0))
    none = torch.zeros(paths, 1, 0, dtype=torch.float64)
    y = torch.full((paths, 1), start, dtype=torch.float64)
    for _ in range(2):
        y = draw(Inputs(y[:, None], none))
    variance = (4 * m**2 * v + 2 * v**2) * start**2 + (m**2 + v) * s2 + s2
    assert_allclose(y.mean(), (m**2 + v) * start, rtol=0.01)
    assert_allclose(y.var(), variance, rtol=0.03)
    fresh = v * (m**2 + v) * start**2 + v * m**2 * start**2 + (m**2 + v) * s2 + s2  # independent gains
    assert fresh < 0.8 * variance


def test_an_uncertain_gain_of_the_input_is_one_error_of_the_whole_path() -> None:
    """y' = a y + b u + e with b ~ N(m, v): E y_K = aᴷy₀ + m S, Var y_K = v S² + s² Σ a²ᵏ with S = Σ aᵏ u."""
    shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=("u",))
    model = linear.build(linear.Config(target="level"), shape)
    g = Generator().manual_seed(0)
    y, u, e = torch.randn(3, 30, 1, generator=g, dtype=torch.float64)
    _ = list(model.fit(Inputs(y[:, None], u[:, None]), 0.9 * y + u + 0.5 * e, 1))
    for buffer in (model.feature_centre, model.target_centre, model.weights[0]):
        buffer.zero_()
    sure = 1e9
    model.factor.copy_(torch.diag(torch.tensor([sure, sure, 4.0], dtype=torch.float64)))  # only b is not known
    a, m = model.weights[1:, 0].tolist()
    s2 = float(model.noise) / (2 + 30 / 2 - 1)
    paths, steps, start, given = 40_000, 40, 3.0, 0.7
    draw, marginal = model.functions(paths, Generator().manual_seed(1)), Generator().manual_seed(2)
    own = fresh = torch.full((paths, 1), start, dtype=torch.float64)
    ahead = torch.full((paths, 1, 1), given, dtype=torch.float64)
    for _ in range(steps):
        own = draw(Inputs(own[:, None], ahead))
        fresh = model.predict(Inputs(fresh[:, None], ahead)).sample(1, marginal)[0]
    powers = a ** np.arange(steps)
    reach = given * powers.sum()
    variance = s2 / 16 * reach**2 + s2 * (powers**2).sum()
    assert_allclose(own.mean(), a**steps * start + m * reach, atol=5 * np.sqrt(variance / paths))
    assert_allclose(own.var(), variance, rtol=5 * np.sqrt(2 / paths))
    assert fresh.var() < 0.8 * variance  # a gain of its own at each step averages out


def test_a_model_that_draws_no_functions() -> None:
    shape = Shape(targets=("y",), horizon=1, lags=2, past=("y",), future=())
    assert not isinstance(persistence.build(persistence.Config(), shape), Simulates)
