"""The volatility against a loop over rows, and the rows of streams side by side."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from streamgp.base import Shape
from streamgp.forecasting import volatility
from streamgp.forecasting.bands import Bands, Questions
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.streams import StreamIndex, blocks, firsts
from streamgp.forecasting.volatility import AT_ONCE, FOLLOWED, SPIKE, Errors, KnownErrors, Volatility
from streamgp.predictives.gaussian import Gaussian
from tests.properties import examples

OUTPUTS, HORIZON = 2, 8
SHAPE = Shape(targets=("y", "z"), horizon=HORIZON, lags=1, past=("y", "z"), future=())


@pytest.mark.parametrize("halvings", [volatility.MOST_HALVINGS, 1], ids=["at once", "in pieces"])
@pytest.mark.parametrize("series", [[0, 0, 0, 1, 1, 1], [2, 0, 2, 2, 1, 0, 2, 2], [1]])
def test_sums_are_those_of_a_loop_over_rows(series: list[int], halvings: int) -> None:
    rng, code = np.random.default_rng(0), np.array(7 * series)
    count, columns = len(code), OUTPUTS * HORIZON
    row, column = np.nonzero(rng.random((count, columns)) < 0.4)  # of some rows and outputs no error is known
    error = rng.standard_t(2, len(row))
    profile = rng.normal(size=(1, OUTPUTS, HORIZON))
    found = Volatility(SHAPE, 24.0)
    found.reserve(3)
    found._errors[:] = rng.uniform(0.5, 1.5, found._errors.shape)
    found._raw[:] = rng.uniform(0.1, 0.2, found._raw.shape)
    found._newest[:] = rng.uniform(0.5, 1.5, found._newest.shape)
    found._limited[:] = rng.integers(0, 10, found._limited.shape)
    sums, latest, newest = found._errors.copy(), found._latest.copy(), found._newest.copy()
    limited = found._limited.copy()
    known = (sums[..., 0] / sums[..., 1]).max(-1)
    limit = SPIKE * np.maximum(np.maximum(known, latest), found._raw)
    expected = KnownErrors(np.empty((count, OUTPUTS, 3, 2)), np.empty((count, OUTPUTS, AT_ONCE)))
    for at in range(count):
        for output in range(OUTPUTS):
            own = (row == at) & (column // HORIZON == output)
            promised = np.exp(profile[0, output, column[own] % HORIZON])
            if own.any():
                ratio, step = np.abs(error[own]) / promised, column[own] % HORIZON
                followed = FOLLOWED * _lower_median(ratio[step < 3]) if (step < 3).any() else np.inf
                middle, usual = _lower_median(ratio), known[code[at], output]
                limited[code[at], output] += middle > max(followed, usual)
                limited[code[at], output] *= middle > usual
                followed = followed if limited[code[at], output] <= HORIZON else np.inf
                most = min(max(followed, usual), limit[code[at], output])
                new = np.array([np.minimum(np.abs(error[own]), most * promised).sum(), promised.sum()]) / HORIZON
                rate = found._decay[:, None]
                sums[code[at], output] = rate * sums[code[at], output] + (1 - rate) * new
                last = min(middle, followed)
                newest[code[at], output] = [*newest[code[at], output, 1:], last]
        expected.sums[at], expected.newest[at] = sums[code[at]], newest[code[at]]
    errors = Errors(*map(torch.from_numpy, (code, row, column, error)))
    with mock.patch.object(volatility, "MOST_HALVINGS", halvings):
        got = found._follow(errors, profile, np.zeros(count, np.int64))
    assert got is not None
    left = found._errors, found._newest, found._limited
    for part, of in zip((*got, *left), (*expected, sums, newest, limited), strict=True):
        assert_allclose(part, of, rtol=1e-13)


@pytest.mark.sampled
@pytest.mark.parametrize(("horizon", "most"), [(1, 2.6), (2, 2.5), (4, 2.3)])
def test_a_lone_spike_does_not_widen_bands_at_once(horizon: int, most: float) -> None:
    """Forecasts that repeat the last value are wrong at the spike, and once more at each step after it."""
    y = np.random.default_rng(0).normal(size=180)
    y[140] = 30.0
    width = _widths(y, horizon)
    usual, after = np.mean(width[60:135]), max(width[135:])
    assert after < most * usual


def test_a_jump_that_is_followed_does_not_widen_bands_at_once() -> None:
    """At the third row of the new level the median of all 24 steps is of forecasts that began on the old one."""
    y = np.random.default_rng(0).normal(size=180)
    y[140:] += 100.0
    width = _widths(y, 24)
    usual = np.mean(width[60:115])
    assert max(width[143 - 24 : 146 - 24]) < 8 * usual
    assert (
        max(width[146 - 24 :]) < 4 * usual
    )  # 30 times, if the errors of forecasts that began before it counted in full


def _widths(y: NDArray[np.float64], horizon: int) -> list[float]:
    """Of the 95 % band one step ahead, where forecasts repeat the last value."""
    shape = Shape(targets=("y",), horizon=horizon, lags=1, past=("y",), future=())
    bands = Bands(shape, Calibration((95.0,)))
    nobody, width = torch.zeros(1, dtype=torch.int64), list[float]()
    for t in range(horizon, len(y)):
        error = torch.from_numpy(y[t] - y[t - np.arange(1, horizon + 1)])
        mean = torch.full((1, horizon), y[t], dtype=torch.float64)
        phase = torch.zeros(1, horizon, dtype=torch.int64)
        asked = Questions(nobody, nobody, phase, Gaussian(mean, 0 * mean, 0 * mean + 2.0), mean)
        errors = Errors(nobody, 0 * phase[0], torch.arange(horizon), error)
        ends = bands.issue(asked, errors).quantiles[:, 0, 0]
        width.append(float(ends[-1] - ends[0]))
    return width


def _lower_median(values: NDArray[np.float64]) -> float:
    return float(np.sort(values)[(len(values) - 1) // 2])


@given(st.lists(st.integers(0, 6), max_size=60), st.booleans())
@examples(60)
def test_rows_side_by_side_are_those_of_each_stream_in_their_order(codes: list[int], ordered: bool) -> None:
    series = np.array(sorted(codes) if ordered else codes, np.int64)
    streams, values = StreamIndex.of(series), np.random.default_rng(0).normal(size=(len(series), 2))
    assert_array_equal(streams.own[streams.at], series)
    first = dict(zip(*(part.tolist() for part in firsts(series)), strict=True))
    assert first == {code: series.tolist().index(code) for code in set(series.tolist())}
    met, back = list[int](), np.full_like(values, np.nan)
    for block in blocks(streams.at, len(streams.own)):
        laid = block.laid(values, 0.0)
        block.put(back, laid)
        assert 2 * block.there.sum() >= block.there.size
        for own, there, rows in zip(block.own, block.there, laid, strict=True):
            met.append(int(own))
            assert_array_equal(rows[there], values[streams.at == own])
            assert not rows[~there].any()
    assert sorted(met) == list(range(len(streams.own)))
    assert_array_equal(back, values)
