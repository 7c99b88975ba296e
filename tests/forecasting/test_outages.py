"""How much wider old targets make a forecast: a random walk's spread, a season's error as the end of it, Stateful."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from streamgp.base import Due, Inputs, Shape
from streamgp.forecasting.outages import LARGEST, OLD, Outages
from streamgp.predictives.gaussian import Gaussian
from streamgp.testing import check_stateful

HORIZON = 8
SHAPE = Shape(targets=("y",), horizon=HORIZON, lags=1, past=("y",), future=())
SEASONAL = Shape(targets=("y",), horizon=HORIZON, lags=1, past=("y", "season(y)"), future=("season(y)",), season=24)
WALK = 0.5 * np.log(np.arange(1, HORIZON + 1))[None, None]


def due(y: np.ndarray, mean: np.ndarray, series: np.ndarray) -> Due:
    """Truths at the horizon."""
    rows, none = torch.from_numpy(series), torch.zeros(0, HORIZON).double()
    one = torch.ones(len(y), 1).double()
    issued = Gaussian(torch.from_numpy(mean)[:, None], one, one)
    x = Inputs(torch.zeros(0, 1, 1).double(), torch.zeros(0, HORIZON, 0).double())
    column = torch.full_like(rows, HORIZON - 1)
    return Due(
        rows, rows, rows, rows, column, torch.from_numpy(y), issued, none[:, :0], none[:, :0], x, none, none[None]
    )


@pytest.mark.parametrize("age", [0, 1, 5, 40])
def test_a_random_walk_widens_as_it_does(age: int) -> None:
    outages = Outages(SHAPE)
    none = torch.zeros(1, dtype=torch.int64)
    found = outages.wider(none, torch.tensor([[age]]), WALK)[0].numpy()
    steps = np.arange(1, HORIZON + 1)
    wanted = np.sqrt((steps + age) / steps)
    wanted *= np.minimum(LARGEST / np.sqrt(np.maximum(steps + age, HORIZON) / HORIZON), 1.0)
    assert_allclose(found, wanted * (1 + OLD * age / (age + HORIZON)), rtol=1e-12)
    assert age or (found == 1.0).all()


def test_no_outage_makes_bands_wider_than_the_season_is_wrong() -> None:
    generator = np.random.default_rng(0)
    outages = Outages(SEASONAL)
    nil = np.zeros(2000, np.int64)
    before = generator.standard_normal(2000)
    y = before + 3.0 * generator.standard_normal(2000)  # |error| of the season: 3 √(2/π)
    outages.follow(torch.from_numpy(nil), torch.from_numpy(y)[:, None], torch.from_numpy(before)[:, None])
    outages.learn(due(y, y + generator.standard_normal(2000), nil))  # that of the model at the horizon: √(2/π)
    found = outages.wider(torch.zeros(1, dtype=torch.int64), torch.tensor([[10**6]]), 0 * WALK)[0]
    assert_allclose(found.numpy() / (1 + OLD), 3.0, rtol=0.06)


def test_without_a_season_the_end_is_the_spread_of_the_target() -> None:
    generator = np.random.default_rng(1)
    outages = Outages(SHAPE)
    nil = np.zeros(4000, np.int64)
    y = 100.0 + 2.0 * generator.standard_normal(4000)
    for part in np.split(np.arange(4000), 40):
        none = torch.full((100, 1), torch.nan).double()
        outages.follow(torch.from_numpy(nil[part]), torch.from_numpy(y[part])[:, None], none)
        outages.learn(due(y[part], y[part] + generator.standard_normal(100), nil[part]))
    found = outages.wider(torch.zeros(1, dtype=torch.int64), torch.tensor([[10**6]]), 0 * WALK)[0]
    assert_allclose(found.numpy() / (1 + OLD), 2.0 * np.sqrt(2.0), rtol=0.08)  # two draws of it lie √2 of them apart


def test_each_series_of_a_fleet_learns_alone() -> None:
    generator = np.random.default_rng(2)
    series = np.repeat([0, 3], 500)
    before = np.zeros(1000)
    y = generator.standard_normal(1000) * np.where(series == 3, 5.0, 2.0)
    apart, alone = Outages(SEASONAL, apart=True), Outages(SEASONAL)
    for outages, own in ((apart, slice(None)), (alone, slice(500, None))):
        code = torch.from_numpy(series[own] if outages is apart else 0 * series[own])
        outages.follow(code, torch.from_numpy(y[own])[:, None], torch.from_numpy(before[own])[:, None])
        outages.learn(due(y[own], y[own] * 0.5, code.numpy()))
    long = torch.tensor([[10**6]])
    found = [one.wider(torch.tensor([code]), long, 0 * WALK) for one, code in ((apart, 3), (alone, 0))]
    assert torch.equal(*found) and bool((found[0] / (1 + OLD) > 1.9).all())


def test_outages_are_stateful() -> None:
    def act(outages: Outages, _: int) -> torch.Tensor:
        y = torch.arange(40.0).double()[:, None]
        nil = torch.zeros(40, dtype=torch.int64)
        outages.follow(nil, y, y - 7.0)
        outages.learn(due(y[:, 0].numpy(), y[:, 0].numpy() - 2.0, nil.numpy()))
        return outages.wider(nil[:1], torch.tensor([[90]]), WALK)

    check_stateful(lambda: Outages(SEASONAL), act, 3, torch.equal)


def test_sizes_of_other_targets_are_refused() -> None:
    two = Shape(targets=("y", "z"), horizon=2, lags=1, past=("y", "z"), future=())
    with pytest.raises(ValueError, match=r"weight is \(1, 1\) .*, not \(any, 2\)"):
        Outages(two).restore(*Outages(SHAPE).state())
