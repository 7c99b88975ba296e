"""How far quantiles lie beyond what a series has had: what stays within a range is held to it, what wanders is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamgp.forecasting.bands import Bands, Questions
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.reach import FEWEST, Reach
from streamgp.forecasting.volatility import Errors
from streamgp.predictives.gaussian import Gaussian
from streamgp.testing import check_stateful

from .frames import SHAPE

HORIZON = 12


def made(y: np.ndarray, horizon: int = HORIZON) -> Reach:
    """Of one series with these values (R,)."""
    reach = Reach(1, horizon)
    reach.reserve(1)
    reach.follow(np.zeros(len(y), np.int64), y[:, None])
    return reach


def ends(reach: Reach, past: np.ndarray | None = None) -> tuple[float, float]:
    low, high = reach.limits(np.zeros(1, np.int64), None if past is None else past[None, :, None])[0, 0]
    return float(low), float(high)


def test_what_stays_within_a_range_is_held_to_it() -> None:
    day = np.sin(np.arange(1000) / 24 * 2 * np.pi) + 0.05 * np.random.default_rng(0).normal(size=1000)
    low, high = ends(made(day))
    assert day.min() - 0.5 < low < day.min() and day.max() < high < day.max() + 0.5
    assert ends(made(day[:FEWEST])) != (-np.inf, np.inf) == ends(made(day[: FEWEST - 1]))
    assert ends(made(day[:FEWEST], horizon=80)) == (-np.inf, np.inf)  # three horizons are 240 rows


def test_rows_without_a_value_do_not_count() -> None:
    y = np.full((FEWEST + 900, 2), np.nan)
    y[:, 0] = np.random.default_rng(5).normal(size=len(y))
    y[-FEWEST:, 1] = y[:FEWEST, 0]
    reach = Reach(2, HORIZON)
    reach.reserve(1)
    reach.follow(np.zeros(len(y) - 1, np.int64), y[:-1])
    limits = reach.limits(np.zeros(1, np.int64), None)[0]
    assert np.isfinite(limits[0]).all() and np.isinf(limits[1]).all()
    reach.follow(np.zeros(1, np.int64), y[-1:])
    assert tuple(reach.limits(np.zeros(1, np.int64), None)[0, 1]) == ends(made(y[:FEWEST, 0]))


def test_what_wanders_or_rises_is_not() -> None:
    for step in (np.random.default_rng(1).normal(size=(40, 800)), np.full((1, 800), 0.1)):
        y = step.cumsum(1)
        held = [ends(made(own[:-HORIZON])) for own in y]
        beyond = [(own[-HORIZON:] < low) | (own[-HORIZON:] > high) for own, (low, high) in zip(y, held, strict=True)]
        assert np.mean(beyond) < 0.01


def test_a_jump_is_within_reach_at_once() -> None:
    """The rows of a batch are not followed before its questions are asked: the newest L stand in their windows."""
    flat = np.random.default_rng(2).normal(size=600)
    assert ends(made(flat), np.full(3, 50.0))[1] > 90
    assert ends(made(flat), np.full(3, np.nan)) == ends(made(flat))


def test_a_longer_series_beside_it_changes_nothing() -> None:
    y = np.random.default_rng(4).normal(size=560)
    y[259] = 20.0
    both = Reach(1, HORIZON)
    both.reserve(2)
    both.follow(np.repeat([0, 1], [260, 300]), y[:, None])
    assert tuple(both.limits(np.zeros(1, np.int64), None)[0, 0]) == ends(made(y[:260]))


def test_rows_in_other_pieces_and_series_apart_give_the_same() -> None:
    generator = np.random.default_rng(3)
    y = np.where(generator.random((900, 2)) < 0.1, np.nan, generator.normal(size=(900, 2)).cumsum(0))
    whole, series = Reach(2, HORIZON), np.tile([0, 1, 1], 300)
    whole.reserve(2)
    for start in range(0, 900, 70):
        whole.follow(series[start : start + 70], y[start : start + 70])
    for code in range(2):
        alone = Reach(2, HORIZON)
        alone.reserve(1)
        alone.follow(np.zeros((series == code).sum(), np.int64), y[series == code])
        assert np.array_equal(alone.limits(np.zeros(1, np.int64), None)[0], whole.limits(np.array([code]), None)[0])


def test_the_largest_numbers_there_are_have_no_reach() -> None:
    y = np.tile([1e308, -1e308], 300)
    with np.errstate(all="raise"):
        assert ends(made(y)) == (-np.inf, np.inf)


def test_bands_keep_to_it_and_a_point_beyond_it_has_both_sides() -> None:
    bands, values = Bands(SHAPE, Calibration((95.0,))), torch.rand(400, 2, dtype=torch.float64)
    wide = torch.full((2, 6), 9.0, dtype=torch.float64)
    mean = torch.tensor([[0.5], [7.0]], dtype=torch.float64).expand(2, 6)
    nobody, phase = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int64)
    asked = Questions(nobody, nobody, phase, Gaussian(mean, 0 * wide, wide), torch.full_like(mean, torch.nan))
    before = bands.quantiles(asked, [0.025, 0.975])
    bands.see(torch.zeros(400, dtype=torch.int64), values)
    after = bands.quantiles(asked, [0.025, 0.975])
    assert before[0, 0].max() < -3 and before[1, 0].min() > 4
    assert after[0, 0].min() > -0.3 and after[1, 0].max() < 1.3
    assert torch.equal(after[1, 1], before[1, 1])
    tensors, rest = bands.state()
    with pytest.raises(ValueError, match=r"reach\.rows"):
        bands.restore(tensors | {name: tensors[name][:0] for name in tensors if name.startswith("reach.")}, rest)


def test_caps_are_judged_by_quantiles_within_reach() -> None:
    bands, nobody = Bands(SHAPE, Calibration((95.0,))), torch.zeros(400, dtype=torch.int64)
    values = torch.rand(400, 2, dtype=torch.float64) * (torch.arange(400) % 2)[:, None]
    bands.see(nobody, values)
    bands.note(nobody, values)
    mean, one = torch.full((1, 6), 0.5, dtype=torch.float64), nobody[:1]
    raw = Gaussian(mean, 0 * mean, 0 * mean + 81.0)
    asked = Questions(one, one, torch.zeros(1, 3, dtype=torch.int64), raw, torch.full_like(mean, torch.nan))
    issued = bands.issue(asked, Errors(one[:0], one[:0], one[:0], mean[0, :0]))
    assert issued.features[-2:].max() <= issued.quantiles.max() < 1.3


def test_state() -> None:
    def make() -> Reach:
        reach = Reach(1, HORIZON)
        reach.reserve(2)
        return reach

    def advance(reach: Reach, step: int) -> torch.Tensor:
        values = np.random.default_rng(step).normal(size=(150, 1))
        reach.follow(np.arange(150) % 2, values)
        return torch.from_numpy(reach.limits(np.arange(2), None).copy())

    check_stateful(make, advance, 5, torch.equal)
