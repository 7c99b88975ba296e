"""Persistence, seasonal naive and the recursive linear regression against direct formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from streamgp.base import Inputs, Shape
from streamgp.errors import UsageError
from streamgp.models import linear, persistence, seasonal_naive
from streamgp.models.linear.conjugate import RIDGES
from streamgp.testing import SHAPES, example_windows

WIDE = SHAPES[1]


def test_persistence_and_its_errors() -> None:
    x, y = example_windows(WIDE, 50)
    model = persistence.build(persistence.Config(), WIDE)
    model.update(x.rows(slice(0, 30)), y[:30])
    model.update(x.rows(slice(30, 50)), y[30:])
    issued = model.predict(x)
    last = x.past[:, -1, :2].repeat_interleave(3, 1)
    assert torch.equal(issued.mean, last)
    steps = torch.arange(1, 4).repeat(2)
    walk = x.past[..., :2].diff(dim=1).square().mean(1).repeat_interleave(3, 1) * steps
    wanted = ((y - last).square().sum(0) + walk) / 51
    torch.testing.assert_close(issued.variance, wanted, rtol=1e-12, atol=0)
    assert (issued.latent_variance == 0).all()


def test_seasonal_naive_is_the_season_or_else_persistence() -> None:
    x, _ = example_windows(WIDE, 5)
    mean = seasonal_naive.build(seasonal_naive.Config(), WIDE).predict(x).mean
    assert torch.equal(mean, x.future[..., :2].transpose(1, 2).flatten(1))
    plain, _ = example_windows(SHAPES[0], 5)
    mean = seasonal_naive.build(seasonal_naive.Config(), SHAPES[0]).predict(plain).mean
    assert torch.equal(mean, plain.past[:, -1])


def test_errors_are_forgotten() -> None:
    x, y = example_windows(SHAPES[0], 40)
    model = persistence.build(persistence.Config(memory=10.0), SHAPES[0])
    error = (y - x.past[:, -1]).square()
    wanted, weight = 0.0, 0.0
    for start in range(0, 40, 8):
        model.update(x.rows(slice(start, start + 8)), y[start : start + 8])
        wanted = np.exp(-0.8) * wanted + error[start : start + 8].sum().item()
        weight = np.exp(-0.8) * weight + 8
    assert model.sums.squeeze().tolist() == pytest.approx([weight, wanted])


@pytest.mark.parametrize("module", [persistence, seasonal_naive])
def test_without_lags_there_is_nothing_to_repeat(module) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError) as caught:
        module.build(module.Config(), SHAPES[2])
    assert "--lags" in caught.value.hint


# --- linear ---------------------------------------------------------------------------------------------------------


def direct(x: Inputs, y: torch.Tensor, at: Inputs, ridge: float, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """Location, scale² and degrees of freedom of the t by dense weighted regression, level targets."""
    flat = np.concatenate([x.past.flatten(1).numpy(), x.future.flatten(1).numpy()], 1)
    new = np.concatenate([at.past.flatten(1).numpy(), at.future.flatten(1).numpy()], 1)
    truth, n = y.numpy(), weight.sum()
    centre, middle = flat[: len(flat) // 2].mean(0), truth[: len(flat) // 2].mean(0)  # of the first batch
    u = np.concatenate([np.ones((len(flat), 1)), flat - centre], 1)
    v = np.concatenate([np.ones((len(new), 1)), new - centre], 1)
    moments = (weight @ u / n, weight @ u**2 / n)
    spread = np.concatenate([[1e-3 / ridge], (moments[1] - moments[0] ** 2)[1:]])
    inverse = np.linalg.inv(u.T * weight @ u + ridge * np.diag(spread))
    target = truth - middle
    coefficients = inverse @ (u.T * weight @ target)
    square = weight @ target**2
    variance = square / n - (weight @ target / n) ** 2
    b = variance + 0.5 * (square - ((u.T * weight @ target) * coefficients).sum(0))
    a = 2 + n / 2
    leverage = np.einsum("ni,ij,nj->n", v, inverse, v)[:, None]
    return middle + v @ coefficients, b / a * (1 + leverage), 2 * a


@pytest.mark.parametrize("memory", [None, 40.0])
def test_linear_is_the_conjugate_posterior(memory: float | None) -> None:
    x, y = example_windows(WIDE, 120)
    at, truth = x.rows(slice(100, 120)), y[100:]
    x, y = x.rows(slice(0, 100)), y[:100]
    config = linear.Config(target="level", ridge=3.0, memory=memory, predictive="student_t")
    model = linear.build(config, WIDE)
    model.update(x.rows(slice(0, 50)), y[:50])
    model.update(x.rows(slice(50, 100)), y[50:])
    weight = np.ones(100)
    if memory:
        weight[:50] = np.exp(-50 / memory)
    location, scale2, dof = direct(x, y, at, 3.0, weight)
    issued = model.predict(at)
    np.testing.assert_allclose(issued.mean.numpy(), location, rtol=1e-9)
    density = student.logpdf(truth.numpy(), dof, location, np.sqrt(scale2))
    np.testing.assert_allclose(issued.log_prob(truth).numpy(), density, rtol=1e-8)
    plain = linear.build(linear.Config(target="level", ridge=3.0, memory=memory), WIDE)
    plain.update(x.rows(slice(0, 50)), y[:50])
    plain.update(x.rows(slice(50, 100)), y[50:])
    np.testing.assert_allclose(plain.predict(at).mean.numpy(), location, rtol=1e-9)
    np.testing.assert_allclose(plain.predict(at).variance.numpy(), scale2 * dof / (dof - 2), rtol=1e-9)


def test_batches_of_any_size_give_the_same_posterior_when_nothing_is_forgotten() -> None:
    """Up to the centre, which the first batch fixes and to which the weak prior of the intercept refers."""
    x, y = example_windows(WIDE, 300)
    means = []
    for size in (300, 100, 1):
        model = linear.build(linear.Config(), WIDE)
        for start in range(0, 300, size):
            model.update(x.rows(slice(start, start + size)), y[start : start + size])
        means.append(model.predict(x).mean)
    torch.testing.assert_close(means[1], means[0], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(means[2], means[0], rtol=1e-4, atol=1e-3)


def test_the_ridge_is_that_of_the_least_generalised_cross_validation() -> None:
    """From the hat matrix of the rows, with collinear columns, where it is far from 1."""
    g = np.random.default_rng(0)
    u = np.cumsum(g.normal(size=(400, 1)), 0) + 1e-3 * g.normal(size=(400, 8))
    y = u @ g.normal(size=(8, 2)) + 0.002 * g.normal(size=(400, 2))
    shape = Shape(targets=("a", "b"), horizon=1, lags=0, past=("a", "b", *map(str, range(8))), future=tuple("01234567"))
    model = linear.build(linear.Config(), shape)
    model.update(Inputs(torch.zeros(400, 0, 10).double(), torch.from_numpy(u)[:, None]), torch.from_numpy(y))
    z, centred = (u - u.mean(0)) / u.std(0), y - y.mean(0)
    scores = []
    for ridge in RIDGES.tolist():
        hat = z @ np.linalg.solve(z.T @ z + ridge * np.eye(8), z.T)
        left = np.square(centred - hat @ centred).mean(0)
        scores.append(np.log(left).mean() - 2 * np.log(1 - (1 + np.trace(hat)) / 400))
    assert model.state()[0]["ridge"].item() == RIDGES[np.argmin(scores)] < 0.1


def test_units_do_not_matter() -> None:
    """Columns scaled and shifted by a million change nothing but the units of the answer."""
    x, y = example_windows(WIDE, 200)
    scaled = Inputs(x.past * 1e6 + 1e8, x.future * 1e6 + 1e8)
    one, other = linear.build(linear.Config(), WIDE), linear.build(linear.Config(), WIDE)
    one.update(x, y)
    other.update(scaled, y * 1e6 + 1e8)
    mean = one.predict(x)
    torch.testing.assert_close(other.predict(scaled).mean, mean.mean * 1e6 + 1e8, rtol=1e-9, atol=0)
    torch.testing.assert_close(other.predict(scaled).variance, mean.variance * 1e12, rtol=1e-6, atol=0)


def test_missing_columns_leave_their_coefficients_as_they_were() -> None:
    x, y = example_windows(WIDE, 200)
    model = linear.build(linear.Config(target="level"), WIDE)
    model.update(x.rows(slice(0, 100)), y[:100])
    before = model.predict(x).mean
    holes = y[100:].clone()
    holes[:, 2] = torch.nan
    model.update(x.rows(slice(100, 200)), holes)
    after = model.predict(x).mean
    torch.testing.assert_close(after[:, 2], before[:, 2], rtol=1e-3, atol=1e-2)  # up to the prior's changed spread
    assert (after[:, 1] - before[:, 1]).abs().max() > 0.05


def test_a_target_that_never_varies_keeps_a_finite_density() -> None:
    shape = Shape(targets=("y",), horizon=1, lags=2, past=("y",), future=())
    x = Inputs(torch.full((50, 2, 1), 7.0).double(), torch.zeros(50, 1, 0).double())
    y = torch.full((50, 1), 7.0).double()
    for module in (linear, persistence, seasonal_naive):
        model = module.build(module.Config(), shape)
        for _ in range(3):
            assert model.update(x, y).healthy
        issued = model.predict(x)
        assert torch.isfinite(issued.log_prob(y)).all() and (issued.variance > 0).all()
        assert issued.mean[0, 0].item() == pytest.approx(7.0)


def test_coverage_of_the_linear_model_on_its_own_ground() -> None:
    x, _ = example_windows(SHAPES[2], 3000)
    model = linear.build(linear.Config(), SHAPES[2])
    y = (
        3 * x.future[:, 0, :1]
        - 2 * x.future[:, 0, 1:]
        + 5
        + 0.7 * torch.from_numpy(np.random.default_rng(0).normal(size=(3000, 1)))
    )
    model.update(x.rows(slice(0, 1500)), y[:1500])
    low, high = model.predict(x.rows(slice(1500, 3000))).quantile(torch.tensor([0.05, 0.95], dtype=torch.float64))
    inside = ((y[1500:] >= low) & (y[1500:] <= high)).double().mean().item()
    assert inside == pytest.approx(0.9, abs=0.03)
