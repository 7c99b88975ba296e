"""Bands: calibrated over all, by tenth, by step and by phase; quick after a jump; nested; inside bounds; Stateful."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.base import Due, Inputs, Shape
from streamgp.forecasting.bands import Bands, Questions
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.issued import feature_count
from streamgp.forecasting.volatility import Errors
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.mixed import Mixed
from streamgp.testing import check_stateful
from tests.properties import examples

CALIBRATION = Calibration((80.0, 95.0))
HORIZON, BATCH = 6, 64
SHAPE = Shape(targets=("y",), horizon=HORIZON, lags=1, past=("y",), future=())


class Player:
    """Truths of one series or several in turn, forecast by `mean` with the standard deviation 1."""

    def __init__(self, bands: Bands, y: np.ndarray, mean: float = 0.0, series: int = 1, sd: float = 1.0) -> None:
        self.bands, self.y, self.mean, self.series, self.sd = bands, y, mean, series, sd
        self.rows = len(y) - HORIZON * series
        size = len(bands.probabilities)
        self.quantiles = np.full((size, self.rows, HORIZON), np.nan)
        self.features = np.full((feature_count(CALIBRATION), self.rows, HORIZON), np.nan)

    def issued(self, shape: tuple[int, ...]) -> Gaussian:
        one = torch.ones(shape, dtype=torch.float64)
        return Gaussian(self.mean * one, 0 * one, self.sd**2 * one)

    def batch(self, start: int, stop: int) -> None:
        """Rows start to stop: each is asked at and answers the questions of its series at rows before it."""
        rows = np.arange(start, stop)
        origin = rows[:, None] - self.series * np.arange(1, HORIZON + 1)
        row, step = np.nonzero(origin >= 0)
        origin = origin[row, step]
        truth = self.y[rows[row]]
        code, long = torch.from_numpy(rows % self.series), torch.from_numpy
        errors = Errors(code, long(row), long(step), long(truth - self.mean))
        ahead = rows[:, None] // self.series + np.arange(1, HORIZON + 1)
        reference = torch.zeros(len(rows), HORIZON, dtype=torch.float64)
        phase = long(ahead % self.bands.period)
        asked = Questions(code, torch.arange(len(rows)), phase, self.issued((len(rows), HORIZON)), reference)
        issued = self.bands.issue(asked, errors)
        self.quantiles[:, rows], self.features[:, rows] = issued.quantiles.numpy(), issued.features.numpy()
        nil = torch.zeros(len(row), dtype=torch.int64)
        none = Inputs(torch.zeros(0, 1, 1).double(), torch.zeros(0, HORIZON, 0).double())
        kept = [long(part[:, origin, step].copy()) for part in (self.quantiles, self.features)]
        past = torch.zeros(0, HORIZON).double(), torch.zeros(3, 0, HORIZON)
        given = long(truth.copy()), self.issued((len(row), 1))
        self.bands.update(Due(long(origin % self.series), nil, nil, nil, long(step), *given, *kept, none, *past))

    def play(self, until: int | None = None) -> np.ndarray:
        """(levels, rows, H) whether the truth is inside of the bands of 80 and 95 %."""
        stop = self.rows if until is None else until
        for start in range(0, stop, BATCH):
            self.batch(start, min(start + BATCH, stop))
        truth = np.stack([self.y[self.series * h :][: self.rows] for h in range(1, HORIZON + 1)], 1)
        low, high = CALIBRATION.ends()
        return np.asarray((truth >= self.quantiles[low]) & (truth <= self.quantiles[high]))


def scaled(rng: np.random.Generator, row: np.ndarray) -> np.ndarray:
    return 3.0 * rng.normal(size=row.shape)


def heavy(rng: np.random.Generator, row: np.ndarray) -> np.ndarray:
    return rng.standard_t(2.5, size=row.shape)


def drifting(rng: np.random.Generator, row: np.ndarray) -> np.ndarray:
    return np.exp(np.sin(2 * np.pi * row / 8000)) * rng.normal(size=row.shape)


def daily(rng: np.random.Generator, row: np.ndarray) -> np.ndarray:
    return np.exp(1.5 * np.sin(2 * np.pi * row / 24)) * rng.normal(size=row.shape)


def skewed(rng: np.random.Generator, row: np.ndarray) -> np.ndarray:
    return rng.gamma(1.0, 1.0, row.shape) - 1.0


@pytest.mark.sampled
@pytest.mark.parametrize("noise", [scaled, heavy, drifting, daily, skewed])
def test_coverage_over_all_by_tenth_by_step_and_by_phase(
    noise: Callable[[np.random.Generator, np.ndarray], np.ndarray],
) -> None:
    y = noise(np.random.default_rng(0), np.arange(10_000))
    inside = Player(Bands(SHAPE, CALIBRATION, 24), y).play()[1, 256:]
    tenths = [part.mean() for part in np.array_split(inside, 10)]
    phases = [inside[(np.arange(256, 256 + len(inside)) + 1) % 24 // 4 == k, 0].mean() for k in range(6)]
    assert abs(inside.mean() - 0.95) < 0.015
    assert min(tenths) > 0.92 and max(tenths) < 0.98
    assert np.abs(inside.mean(0) - 0.95).max() < 0.02
    assert min(phases) > 0.92 and max(phases) < 0.98


def test_a_long_cycle_does_not_make_calibration_slow() -> None:
    y = np.random.default_rng(0).uniform(-1, 1, 3500)  # their tails are not those of the distribution it begins with
    inside = Player(Bands(SHAPE, CALIBRATION, 1440), y).play()[:, 1500:].mean((1, 2))
    assert inside == pytest.approx([0.8, 0.95], abs=0.02)


def test_each_side_is_calibrated_on_its_own() -> None:
    y = skewed(np.random.default_rng(1), np.arange(8_000))
    played = Player(Bands(SHAPE, CALIBRATION), y)
    played.play()
    truth, quantiles = y[1:][: played.rows], played.quantiles[:, :, 0]
    below = (truth[2000:] < quantiles[:, 2000:]).mean(1)
    assert np.abs(below - np.array(CALIBRATION.probabilities)).max() < 0.05
    assert abs(below[0] - 0.025) < 0.015 and abs(below[-1] - 0.975) < 0.015


def test_a_threefold_spread_is_followed_within_the_day() -> None:
    covered = []
    for seed in (2, 3, 4):
        y = np.random.default_rng(seed).normal(size=3100)
        y[3000:] *= 3
        covered.append(Player(Bands(SHAPE, CALIBRATION, 24), y).play()[1, 2994:].mean(1))
    mean = np.mean(covered, 0)
    assert mean[:6].mean() < 0.8  # the delay itself: issued before
    assert mean[12:30].mean() > 0.82  # 6 to 24 rows after it; 0.73 without the fast volatility
    assert mean[6 + 3 * 24 :].mean() > 0.9


@given(seed=st.integers(0, 10**6), shift=st.floats(10.0, 1e4), start=st.integers(600, 663))
@examples(4)
def test_a_level_that_moves_is_covered_from_its_third_row_on(seed: int, shift: float, start: int) -> None:
    y = np.random.default_rng(seed).normal(size=700)
    y[start:] += shift
    played = Player(Bands(SHAPE, CALIBRATION, 24), y)
    inside = played.play()[1]
    assert inside[start + 1 : start + 24].mean() > 0.9  # the forecasts at its second row know of two rows
    y[start + 1 :] -= shift  # one row alone is no level
    alone = Player(Bands(SHAPE, CALIBRATION, 24), y)
    alone.play()
    width = (alone.quantiles[-1] - alone.quantiles[0]).mean(1)
    assert width[start : start + 24].max() < 2.5 * width[start - 24 : start].mean()


def test_a_raw_deviation_that_is_far_too_large_is_forgotten_within_a_season() -> None:
    played = Player(Bands(SHAPE, CALIBRATION, 12), np.random.default_rng(5).normal(size=80), sd=5.0)
    played.play()
    width = (played.quantiles[-1] - played.quantiles[0]).mean(1)
    assert width[12:64].mean() < 1.5 * 2 * 1.96


def test_one_spike_does_not_widen_the_bands_for_long() -> None:
    y = np.random.default_rng(3).normal(size=3000)
    y[2000] = 1e6
    played = Player(Bands(SHAPE, CALIBRATION, 24), y)
    played.play()
    width = (played.quantiles[-1] - played.quantiles[0]).mean(1)
    assert width[2200:2600].mean() < 1.3 * width[1500:1990].mean()


def test_quantiles_never_cross_and_hold_any_probability() -> None:
    rng = np.random.default_rng(4)
    played = Player(Bands(SHAPE, CALIBRATION, 24), rng.normal(size=1500) * rng.choice([0.1, 5.0], 1500))
    played.play()
    assert (np.diff(played.quantiles[:, :-HORIZON], axis=0) >= 0).all()
    nil = torch.zeros(1, dtype=torch.int64)
    one = torch.ones(1, HORIZON, dtype=torch.float64)
    asked = Questions(nil, nil, nil[:, None].expand(1, HORIZON), Gaussian(0 * one, 0 * one, one), 0 * one)
    before = played.bands.state()[0]
    found = played.bands.quantiles(asked, [0.01, 0.025, 0.25, 0.5, 0.99])
    assert (found.diff(dim=0) > 0).all()
    assert all(torch.equal(tensor, before[name]) for name, tensor in played.bands.state()[0].items())
    played.bands.quantiles(asked._replace(series=nil + 1), [0.5])  # a series that has had no row
    assert all(torch.equal(tensor, before[name]) for name, tensor in played.bands.state()[0].items())


def test_caps_of_a_target_that_is_often_0_do_not_cross_its_median() -> None:
    """The median follows the errors, caps the deviation of the model, which may fall: a car that pulls away."""
    y = np.where(np.random.default_rng(5).random(1500) < 0.3, 0.0, 4.0)
    bands = Bands(SHAPE, CALIBRATION, 1)
    bands.note(torch.zeros(len(y), dtype=torch.int64), torch.from_numpy(y)[:, None])
    played = Player(bands, y)
    played.play()
    nil, one = torch.zeros(1, dtype=torch.int64), torch.ones(1, HORIZON, dtype=torch.float64)
    past = torch.ones(1, 4, 1, dtype=torch.float64)
    issued = Gaussian(0 * one, 0 * one, 1e-4 * one)
    found = bands.quantiles(
        Questions(nil, nil, nil[:, None].expand(1, HORIZON), issued, 0 * one, past), [0.5, 0.9, 0.975]
    )
    assert (found[0] > 2).all() and (found.diff(dim=0) >= 0).all()
    assert (found[1:] == found[0]).all()  # the caps, at the point, are below it


def test_nothing_is_outside_the_bounds() -> None:
    y = np.abs(np.random.default_rng(5).normal(size=2000)) * 0.3
    bands = Bands(SHAPE, Calibration((80.0, 95.0), lower=0.0, upper=1.0), 24)
    played = Player(bands, y.clip(0, 1), mean=0.1)
    inside = played.play()[1, 256:]
    known = played.quantiles[:, ~np.isnan(played.quantiles[0, :, 0])]
    assert known.min() == 0.0 and known.max() <= 1.0 and 0.93 < inside.mean() < 0.99


def test_every_series_has_its_own_volatility() -> None:
    rng, series = np.random.default_rng(6), 5
    y = rng.normal(size=15_000) * 10.0 ** (np.arange(15_000) % series - 2)
    inside = Player(Bands(SHAPE, CALIBRATION, 24), y, series=series).play()[1, 2000:]
    own = [inside[k::series].mean() for k in range(series)]
    assert min(own) > 0.93 and max(own) < 0.975


@pytest.mark.parametrize("sd", [0.0, 1e-6])
def test_bands_of_a_sensor_that_stood_still_widen_once_it_moves(sd: float) -> None:
    played = Player(
        Bands(SHAPE, CALIBRATION, 24), np.r_[np.zeros(600), np.random.default_rng(0).normal(size=600)], sd=sd
    )
    played.play()
    assert np.isfinite(played.quantiles[:, : played.rows]).all()
    width = played.quantiles[-1] - played.quantiles[0]
    assert width[:600].max() < 1e-3
    assert 2.0 < np.median(width[800:1100]) < 30.0  # 3.9 is right; a start from nothing is too wide for long


def test_bands_of_a_constant_hold_it() -> None:
    played = Player(Bands(SHAPE, CALIBRATION, 24), np.zeros(1500), sd=0.01)
    played.play()
    low, high = played.quantiles[0, : played.rows], played.quantiles[-1, : played.rows]
    assert ((low <= 0.0) & (high >= 0.0))[100:].all()


def test_experts_that_differ_widen_the_band() -> None:
    """Errors are as large as the experts are apart."""
    rng = np.random.default_rng(7)
    apart = np.exp(rng.normal(size=4000))
    bands = Bands(SHAPE, CALIBRATION, 24)
    played = Player(bands, np.zeros(4000))
    played.y = rng.normal(size=4000) * np.r_[0.0, apart[:-1]]  # the truth one row ahead

    def issued(shape: tuple[int, ...], rows: np.ndarray) -> Mixed:
        two = torch.from_numpy(apart[rows])[:, None].expand(shape)
        nil = torch.zeros(shape, dtype=torch.float64)
        return Mixed(nil, nil, nil + 1, torch.stack([-two, two]))

    for start in range(0, 3968, BATCH):
        rows = np.arange(start, start + BATCH)
        played.issued = lambda shape, rows=rows: (  # type: ignore[method-assign,misc]
            issued(shape, rows) if shape[1] == HORIZON else Gaussian(*(torch.zeros(shape).double() for _ in range(3)))
        )
        played.batch(start, start + BATCH)
    width = np.log(played.quantiles[-1, 2000:3900, 0] - played.quantiles[0, 2000:3900, 0])
    assert np.corrcoef(width, np.log(apart[2000:3900]))[0, 1] > 0.5


def test_the_past_alone_decides_what_is_issued() -> None:
    """Truths behind a row change nothing that was issued at it or before, also within its micro-batch."""
    y = np.random.default_rng(8).normal(size=1000)
    one, two = Player(Bands(SHAPE, CALIBRATION, 24), y), Player(Bands(SHAPE, CALIBRATION, 24), y.copy())
    two.y[700:] *= 10
    for player in (one, two):
        player.play()
    np.testing.assert_array_equal(one.quantiles[:, :700], two.quantiles[:, :700])
    assert (one.quantiles[:, 700:720] != two.quantiles[:, 700:720]).any()


def test_state() -> None:
    y = np.random.default_rng(9).normal(size=2000)
    played = Player(Bands(SHAPE, CALIBRATION, 24), y)

    def advance(bands: Bands, step: int) -> torch.Tensor:
        played.bands = bands
        played.batch(step * BATCH, (step + 1) * BATCH)
        return torch.from_numpy(played.quantiles[:, step * BATCH : (step + 1) * BATCH].copy())

    check_stateful(lambda: Bands(SHAPE, CALIBRATION, 24), advance, 8, torch.equal)
