"""Events that are over are no references: what windows look back on a day and a week later is as usual."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from streamgp.windows.windows import Asks, Windows, WindowSpec

DAY, WEEK, ROWS, AT = 6, 42, 240, 150
SPEC = WindowSpec(
    targets=("y",), lags=8, horizon=6, season=WEEK, seasons=(DAY, WEEK), time="ds", every_ns=4 * 3600 * 10**9
)


def weeks(rows: int = ROWS) -> np.ndarray:
    """Five busy days of six rows, two quiet ones, and noise."""
    busy = np.array([10.0, 40.0, 90.0, 80.0, 60.0, 20.0])
    week = np.concatenate([busy] * 5 + [np.full(DAY, 10.0)] * 2)
    return np.resize(week, rows) + np.random.default_rng(0).standard_normal(rows)


def asked(y: np.ndarray, chunk: int = ROWS, spec: WindowSpec = SPEC) -> Asks:
    times = [datetime(2024, 1, 1) + timedelta(hours=4 * at) for at in range(len(y))]
    table = pa.record_batch({"ds": pa.array(times, pa.timestamp("ns")), "y": pa.array(y, from_pandas=True)})
    windows = Windows(spec)
    return Asks.cat([windows.push(table.slice(at, chunk))[0] for at in range(0, len(y), chunk)])


def far(y: np.ndarray, clean: np.ndarray, since: int, until: int, chunk: int = ROWS) -> float:
    """The largest difference of what windows at rows from `since` to `until` hold, in two streams."""
    one, two = asked(y, chunk), asked(clean)
    own = (one.position >= since) & (one.position < until)
    assert one.x.context is not None and two.x.context is not None
    pairs = [(one.x.context, two.x.context), (one.x.future, two.x.future), (one.x.past, two.x.past)]
    return max(float((a - b)[own].abs().nan_to_num(0.0).max()) for a, b in pairs)


@pytest.mark.parametrize("value", [0.0, -300.0, 400.0])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_an_event_is_forgotten_once_it_is_over(value: float, rows: int) -> None:
    y = weeks()
    y[AT : AT + rows] = value
    told = far(y, weeks(), AT + rows + 3, ROWS, chunk=40)
    assert told < 30.0 if rows > 1 or abs(value) > 200 else told <= 60.0


@pytest.mark.parametrize("rows", [3, 5])
def test_while_it_lasts_it_is_what_there_is(rows: int) -> None:
    y = weeks()
    y[AT : AT + rows] = -300.0
    assert far(y, weeks(), AT + rows - 1, AT + rows) > 200.0


def test_what_comes_back_is_no_event() -> None:
    weekly, daily, level = weeks(), weeks(), weeks()
    weekly[AT % WEEK :: WEEK] = 400.0
    assert float(asked(weekly).x.future.max()) > 300.0
    daily[AT::DAY] = 400.0
    level[AT:] += 400.0
    for y in (daily, level):
        found = asked(y)
        own = (found.position >= AT + DAY + 4) & (found.position < AT + WEEK - DAY)
        assert float(found.x.past[own].max()) > 300.0  # it stands among the lags


def test_usual_weeks_stay_as_they_are() -> None:
    y = weeks(8 * ROWS)
    found = asked(y)
    assert np.array_equal(found.x.past[:, :, 0], np.stack([y[at - 7 : at + 1] for at in found.position.tolist()]))


def test_a_lost_week_is_the_one_before_where_days_are_unlike() -> None:
    """A Saturday's references, of which the last is lost, are those two weeks before: the Friday was busy."""
    y = weeks()
    saturday = 5 * DAY + 3 * WEEK
    y[saturday : saturday + DAY] = np.nan
    found = asked(y)
    rows = found.x.future[found.position == saturday + WEEK - 1, :, 0]
    assert float(rows.max()) < 20.0
    assert np.array_equal(asked(y, 5).x.future, found.x.future)


@pytest.mark.parametrize("gone", [1, 2, 4, 9])
def test_a_level_before_an_outage_is_no_event(gone: int) -> None:
    y = weeks()
    y[AT - 3 :] += 400.0
    y[AT : AT + gone] = np.nan
    found = asked(y)
    own = (found.position >= AT) & (found.position < AT + min(gone, 4))
    assert float(found.x.past[own][:, :, 0].max()) > 300.0


def test_a_glitch_within_an_outage_is_an_event() -> None:
    y = weeks()
    y[AT : AT + 6] = np.nan
    y[AT + 2] = 400.0
    found = asked(y)
    own = (found.position >= AT + 3) & (found.position < AT + 6)
    assert float(found.x.past[own].max()) < 120.0 and found.age[own].flatten().tolist() == [4, 5, 6]
