"""A linear regression of all series as the prior mean of each: against ridge regression and GP regression in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import UsageError
from streamgp.models.svdgp import Config, SharedFleet
from streamgp.models.svdgp.pooled import WAITING, PooledRegression
from streamgp.testing.stateful import check_stateful, same_bits
from tests.models.oracles_svdgp import exact
from tests.models.test_svdgp_fleet import SERIES, SHAPE, SMALL, batch

Array = NDArray[np.float64]
POOLED: dict[str, Any] = SMALL | {"pooled": True}


class Units:
    """What a window is in the units of its series: means and standard deviations of channels and of what the change
    from the present leaves."""

    def __init__(self, x: Inputs, y: Tensor) -> None:
        past, future = x.past.flatten(0, 1).numpy(), x.future.flatten(0, 1).numpy()
        self.mean = np.concatenate([np.tile(past.mean(0), 3), np.tile(future.mean(0), 2)])
        self.deviation = np.concatenate([np.tile(past.std(0), 3), np.tile(future.std(0), 2)])
        self.target = past.std(0)[:2].repeat(2)  # of the channels of both targets, for two steps each
        rest = y.numpy() - self.present(x)
        self.location, self.scale = rest.mean(0), rest.std(0)

    def present(self, x: Inputs) -> Array:
        return x.past[:, -1, :2].repeat_interleave(2, 1).numpy()

    def z(self, x: Inputs) -> Array:
        flat = torch.cat([x.past.flatten(1), x.future.flatten(1)], 1).numpy()
        return (flat - self.mean) / self.deviation


def ones(z: Array) -> Array:
    return np.concatenate([z, np.ones((len(z), 1))], 1)


def test_the_sums_are_ridge_regression_of_the_stacked_panel() -> None:
    generator = np.random.default_rng(0)
    pooled, z, t = PooledRegression(4, 2), generator.normal(size=(90, 4)), generator.normal(size=(90, 2))
    z[5, 1] = 40.0  # its units are off
    for at in range(3):
        own = slice(30 * at, 30 * at + 30)
        pooled.add(torch.from_numpy(z[own]), torch.from_numpy(t[own]), torch.ones(30, dtype=FLOAT), 0.5, 10 * at)
    pooled.reach(19)
    weight = np.repeat([0.5, 1.0], 30)
    weight[5] = 0.0
    left = ones(z[:60])
    expected = np.linalg.solve(np.eye(5) + left.T @ (weight[:, None] * left), left.T @ (weight[:, None] * t[:60]))
    assert pooled.coefficients is not None
    np.testing.assert_allclose(pooled.coefficients.numpy(), expected, rtol=1e-9)
    before = pooled.coefficients
    pooled.begin()
    pooled.reach(0)  # the series is behind, and the rows are not
    assert not torch.equal(pooled.coefficients, before)


def test_sums_that_wait_are_bounded_and_none_is_lost() -> None:
    one, all_ = PooledRegression(1, 1), PooledRegression(1, 1)
    z = torch.randn(WAITING + 5, 1, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    for at, row in enumerate(z):
        one.add(row[None], 2 * row[None], torch.ones(1, dtype=FLOAT), 0.9, at)
        all_.add(row[None], 2 * row[None], torch.ones(1, dtype=FLOAT), 0.9, at)
        all_.begin()
    assert len(one.state()[1]["pending"]) == WAITING + 1  # type: ignore[arg-type]
    one.begin()
    torch.testing.assert_close(one.spread()[0], all_.spread()[0])


def test_each_series_is_gp_regression_around_the_regression_of_all() -> None:
    fleet = SharedFleet(Config(**POOLED, limit=None, memory="all", temper=1.0), SHAPE)
    x, y, series = batch(0, 400)
    fleet.fit(x, y, series)
    more, truth, of = batch(1, 40)  # too few for a rebuild
    assert {step.done for step in fleet.update(more, truth, of)} == {"update"}
    units = [Units(x.rows(series == code), y[series == code]) for code in range(SERIES)]
    every, target, whose = Inputs.cat([x, more]), torch.cat([y, truth]), torch.cat([series, of])
    rows = [(every.rows(whose == code), target[whose == code]) for code in range(SERIES)]
    z = [ones(unit.z(own)) for unit, (own, _) in zip(units, rows, strict=True)]
    t = [(own.numpy() - unit.present(at)) / unit.target for unit, (at, own) in zip(units, rows, strict=True)]
    stacked, truths = np.concatenate(z), np.concatenate(t)
    pooled = np.linalg.solve(np.eye(12) + stacked.T @ stacked, stacked.T @ truths)
    asked, _, whom = batch(99, 50)
    found, kernel = fleet.predict(asked, whom), fleet.shared.kernels[0]
    noise = float(kernel.noise)
    first = np.concatenate([ones(unit.z(x.rows(series == code))) for code, unit in enumerate(units)])
    spread = first.T @ first / 400
    spread += 1e-4 * np.trace(spread) / 12 * np.eye(12)
    kappa = fleet.state()[1]["pooled"]["strength"]["0"]  # type: ignore[index, call-overload]
    assert 1.0 < kappa < 400.0, "the series are alike, and there are 400 rows"

    def smooth(values: Array) -> Array:
        return kernel.features(torch.from_numpy(values[:, :-1]))[:, kernel.explicit :].numpy()

    for code, unit in enumerate(units):
        own, (at, truth) = whom == code, rows[code]
        q = ones(unit.z(asked.rows(own)))
        slope = noise / kappa * np.linalg.inv(spread)
        cross = q @ slope @ z[code].T + smooth(q) @ smooth(z[code]).T
        train = z[code] @ slope @ z[code].T + smooth(z[code]) @ smooth(z[code]).T
        prior = ((q @ slope) * q).sum(1) + float(kernel.outputscale)  # the basis reaches a part of it
        left = truth.numpy() - unit.present(at) - z[code] @ pooled * unit.target
        mean, latent = exact(train, prior, cross, left, np.full(len(left), noise))
        mean += unit.present(asked.rows(own)) + q @ pooled * unit.target
        size = 10.0 ** (code - 2)
        np.testing.assert_allclose(found[0][own].numpy(), mean, rtol=1e-7, atol=1e-8 * size)
        np.testing.assert_allclose(found[1][own].numpy(), latent[:, None] * unit.scale**2, rtol=1e-6, atol=1e-8)


def test_a_series_with_few_rows_profits_from_the_others() -> None:
    errors = []
    for pooled in (False, True):
        fleet = SharedFleet(Config(**POOLED | {"pooled": pooled}), SHAPE)
        x, y, series = batch(0, 600)
        few = series == 3
        few[few.nonzero()[12:, 0]] = False
        own = few | (series < 3)
        fleet.fit(x.rows(own), y[own], series[own])
        x, y, series = batch(1, 400)
        errors.append(float((fleet.predict(x, series)[0] - y)[series == 3].abs().mean()))
    assert errors[1] < 0.8 * errors[0]


def test_what_came_later_in_another_series_is_not_used() -> None:
    x, y, _ = batch(0, 400)
    asked = batch(9, 20)[0]
    first, second = torch.zeros(100, dtype=torch.int64), torch.ones(100, dtype=torch.int64)
    issued = []
    for factor in (1.0, -1.0):
        fleet = SharedFleet(Config(**POOLED, rebuild=0), SHAPE)
        fleet.reach(50, 50)
        fleet.fit(x.rows(slice(0, 100)), y[:100], first)
        fleet.begin()
        fleet.reach(90, 90)
        fleet.update(x.rows(slice(100, 200)), factor * y[100:200], first)
        for together, rows in ((80, slice(200, 300)), (95, slice(300, 400))):
            fleet.reach(together, together)
            fleet.update(x.rows(rows), y[rows], second)
            issued.append(fleet.predict(asked, second[:20]))
    assert same_bits(issued[0], issued[2]), "at time 80 nothing is known of time 90"
    assert not same_bits(issued[1], issued[3])


def test_it_goes_on_from_its_state_bit_for_bit() -> None:
    def advance(fleet: SharedFleet, turn: int) -> Tensor:
        x, y, series = batch(turn, 120, gaps=0.1)
        fleet.begin()
        for time, part in ((turn + 1, series > 1), (turn, series < 2)):  # sums wait
            fleet.reach(turn, time)
            fleet.update(x.rows(part), y[part], series[part])
        if turn == 3:
            fleet.begin()  # rows that only wait follow
        return fleet.predict(x, series)

    check_stateful(lambda: SharedFleet(Config(**POOLED), SHAPE), advance, 5, torch.equal)


def test_a_basis_smaller_than_a_window_is_refused() -> None:
    with pytest.raises(UsageError, match="11 columns"):
        SharedFleet(Config(**POOLED | {"basis": 10}), SHAPE)
    with pytest.raises(ValueError, match="shared=true"):
        Config(pooled=True)


def test_regression_without_lags_has_the_units_of_the_truths() -> None:
    shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
    fleet = SharedFleet(Config(**POOLED), shape)
    u = torch.linspace(-1, 1, 400, dtype=FLOAT)
    series = torch.arange(400) % 2
    x, y = Inputs(u.new_zeros(400, 0, 2), u.view(400, 1, 1)), ((3 * u + 7) * (1 + series))[:, None]
    fleet.fit(x, y, series)
    torch.testing.assert_close(fleet.predict(x, series)[0], y, rtol=0.0, atol=0.02)
