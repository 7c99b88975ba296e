"""Events that are over are no references: what windows look back on a day and a week later is as usual."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
import torch

from streamgp.transforms import Transform
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


@pytest.mark.sampled
@pytest.mark.parametrize(("value", "rows"), [(0.0, 3), (0.0, 5), *product((-300.0, 400.0), (1, 3, 5))])
def test_an_event_is_forgotten_once_it_is_over(value: float, rows: int) -> None:
    y = weeks()
    y[AT : AT + rows] = value
    told = far(y, weeks(), AT + rows + 3, ROWS, chunk=40)
    assert told < 30.0


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


@pytest.mark.parametrize("days", ["every", "busy"])
def test_a_habit_in_its_second_week_is_what_it_was_a_week_before(days: str) -> None:
    """From its ninth day on, each reference of it is that of a week before."""
    y = weeks(2 * ROWS)
    y[AT::DAY] = 400.0
    if days == "busy":
        y = np.where((np.arange(len(y)) % WEEK >= 5 * DAY) & (y == 400.0), 10.0, y)
    assert far_from_last_week(y, AT + WEEK + 2 * DAY, 2 * ROWS) == 0


def test_a_level_in_its_second_and_third_week_is_what_it_was_a_week_before() -> None:
    y = weeks(2 * ROWS)
    y[AT:] += 400.0
    assert far_from_last_week(y, AT + WEEK + 2 * DAY, 2 * ROWS) == 0


def far_from_last_week(y: np.ndarray, since: int, until: int) -> int:
    """References, of rows from `since` to `until`, that are 100 or more away from the values a week before the step."""
    found = asked(y)
    own = (found.position >= since) & (found.position < until)
    before = y[found.position[own].numpy()[:, None] + np.arange(1, DAY + 1) - WEEK]
    return int((np.abs(found.x.future[own, :, 0].numpy() - before) > 100.0).sum())


@pytest.mark.parametrize("chunk", [1, 40])
def test_an_event_is_found_however_the_stream_is_cut(chunk: int) -> None:
    """With a known input, the last rows before a gap wait for it, and become current after it."""
    spec = replace(SPEC, known=("k",))
    y = weeks(400)
    y[192:196] = -300.0
    steps = np.r_[0:240, 1200:1360]

    def found(chunk: int) -> Asks:
        times = [datetime(2024, 1, 1) + timedelta(hours=4 * int(step)) for step in steps]
        columns = {"ds": pa.array(times, pa.timestamp("ns")), "y": pa.array(y), "k": pa.array(np.arange(400) % 5.0)}
        table, windows = pa.record_batch(columns), Windows(spec)
        return Asks.cat([windows.push(table.slice(at, chunk))[0] for at in range(0, 400, chunk)])

    whole, cut = found(400), found(chunk)
    order = cut.position.argsort()
    assert torch.equal(whole.position, cut.position[order])
    own = (whole.position >= 200) & (whole.position < 240)
    assert float(whole.x.future[own][:, :, 0].min()) > -100.0
    for one, two in ((whole.x.future, cut.x.future), (whole.x.past, cut.x.past), (whole.x.context, cut.x.context)):
        assert one is not None and two is not None
        assert torch.equal(one[own].nan_to_num(), two[order][own].nan_to_num())


def test_of_two_targets_and_two_series_the_one_with_the_event_forgets_it() -> None:
    """Also where the targets are transformed."""
    spec = WindowSpec(
        targets=("y", "z"), lags=8, horizon=6, season=WEEK, seasons=(DAY, WEEK), time="ds", series="id",
        every_ns=4 * 3600 * 10**9, transforms=(Transform("log"), Transform("none")),
    )  # fmt: skip
    y, z = weeks() + 20.0, weeks() + 5.0
    with_event = y.copy()
    with_event[AT : AT + 3] = 4000.0

    def found(y: np.ndarray) -> Asks:
        times = [datetime(2024, 1, 1) + timedelta(hours=4 * at) for at in range(ROWS) for _ in range(2)]
        both = np.stack([y, weeks() + 20.0], 1).ravel(), np.repeat(z, 2)
        columns = {"ds": pa.array(times, pa.timestamp("ns")), "y": pa.array(both[0]), "z": pa.array(both[1])}
        return Windows(spec).push(pa.record_batch(columns | {"id": pa.array(["a", "b"] * ROWS)}))[0]

    one, two = found(with_event), found(y)
    away = (one.x.future - two.x.future).abs().nan_to_num()
    assert 0.0 < float(away.max()) < 0.1  # of a logarithm; an echo would be 4
    assert float(away[..., 1].max()) == float(away[one.position % 2 == 1].max()) == 0.0


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
