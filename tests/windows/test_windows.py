"""Windows against a loop over rows, in any chunking; gaps, series, known inputs, the calendar, state."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from streamgp.errors import DataError, SchemaError, UsageError
from streamgp.windows import timeline
from streamgp.windows.windows import Answers, Asks, Windows, WindowSpec
from tests.properties import examples
from tests.windows.oracles_windows import NAN, OracleWindows, Row
from tests.words import naming

HOUR = 3600 * 10**9
START = 1_711_800_000 * 10**9  # 2024-03-30, the day before the clocks change in Europe


def batch(spec: WindowSpec, rows: list[Row]) -> pa.RecordBatch:
    columns: dict[str, Any] = {name: pa.array([r.values[name] for r in rows], pa.float64()) for name in spec.columns}
    if spec.time:
        columns["t"] = pa.array([r.ds // 1000 for r in rows], pa.timestamp("us", "UTC"))
    if spec.series:
        columns["s"] = pa.array([r.series for r in rows], pa.string())
    return pa.record_batch(columns)


def joined(parts: list[tuple[Asks, Answers]]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    asks = {
        name: np.concatenate([getattr(a, name).numpy() for a, _ in parts])
        for name in ("series", "origin", "position", "cutoff", "ds", "age")
    }
    asks |= {name: np.concatenate([getattr(a.x, name).numpy() for a, _ in parts]) for name in ("past", "future")}
    answers = {name: np.concatenate([getattr(b, name).numpy() for _, b in parts]) for name in Answers._fields}
    return asks, answers


def agree(got: dict[str, np.ndarray], wanted: list[dict[str, Any]]) -> None:
    for name, values in got.items():
        expected = np.array([row[name] for row in wanted])
        assert len(values) == len(wanted), name
        if len(wanted):
            assert_allclose(values, expected.reshape(values.shape), atol=1e-9, rtol=0, err_msg=name)


@st.composite
def streams(draw: st.DrawFn, lost: bool = False) -> tuple[WindowSpec, list[Row], list[int]]:
    lags = draw(st.sampled_from([0, 1, 2, 4]))
    clock = draw(st.sampled_from(["none", "count", "hour", "day"]))
    every = {"hour": HOUR, "day": 24 * HOUR}.get(clock)
    known = draw(st.sampled_from([(), ("k",)]))
    season = draw(st.integers(1, 4)) if lags else 1
    seasons = [(season,), *((short, season) for short in range(2, season))] if season > 1 else []
    spec = WindowSpec(
        targets=draw(st.sampled_from([("y",), ("y", "z")])),
        inputs=draw(st.sampled_from([("u",), ("k", "u")])) if not lags else draw(st.sampled_from([(), ("u",)])),
        known=known,
        calendar=clock != "none" and draw(st.booleans()),
        lags=lags,
        horizon=draw(st.integers(1, 5)) if lags else 1,
        season=season,
        seasons=draw(st.sampled_from([(), *seasons])),
        gaps=draw(st.sampled_from(["reset", "fill"])),
        time=None if clock == "none" else "t",
        series=draw(st.sampled_from([None, "s"])),
        every_ns=every,
        zone=draw(st.sampled_from([None, "Europe/Berlin"])),
        tolerance_ns=draw(st.sampled_from([None, every // 4, every // 2, 3 * every // 4])) if every else None,
        late=draw(st.sampled_from(["skip", "use", "use"])) if every or not lags else "skip",
    )
    names = ["b", "a", "c"] if spec.series else ["y"]
    ds = dict.fromkeys(names, START)
    rows = []
    for _ in range(draw(st.integers(0, 40))):
        name = draw(st.sampled_from(names))
        jump = draw(st.sampled_from([1, 1, 1, 1, 1, 1, 2, 3, 9, 40, 0, -1, -2, -4]))
        wobbles = (
            [0, 0, 0, every // 6, -every // 6, *([every // 3, -every // 2] if spec.tolerance_ns else [])]
            if every
            else [0]
        )
        wobble = draw(st.sampled_from(wobbles))
        ds[name] += jump * (every or HOUR)
        value = st.sampled_from([1.5, -2.0, 3.0, 7.25, 7.5, NAN])
        values = {c: draw(value) for c in ("y", "z", "u", "k")}
        if lags and spec.gaps == "fill" and not lost:  # the oracle does not fill inputs in
            values |= {c: 3.0 if math.isnan(values[c]) else values[c] for c in ("u", "k")}
        rows.append(Row(name, ds[name] + wobble, values))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    return spec, rows, cuts


@pytest.mark.slow
@given(streams(lost=True))
@examples(120)
def test_any_chunking_of_a_stream_that_loses_inputs_gives_the_same(
    stream: tuple[WindowSpec, list[Row], list[int]],
) -> None:
    spec, rows, cuts = stream
    whole = [Windows(spec).push(batch(spec, rows))]
    windows, parts = Windows(spec), []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        parts.append(windows.push(batch(spec, rows[start:end])))
        again = Windows(spec)
        again.restore(*windows.state())
        windows = again
    for once, pieces in zip(joined(whole), joined(parts), strict=True):
        for name, values in once.items():
            assert_allclose(pieces[name], values, atol=1e-9, rtol=0, err_msg=name)
    for name in ("doubt", "stale"):
        once, pieces = (np.concatenate([getattr(asks, name).numpy() for asks, _ in one]) for one in (whole, parts))
        assert_allclose(pieces, once, atol=1e-9, rtol=0, err_msg=name)


@pytest.mark.slow
@given(streams(), st.sampled_from([0, timeline.DENSE, 10**9]))
@examples(120)
def test_any_chunking_gives_what_a_loop_over_rows_gives(
    stream: tuple[WindowSpec, list[Row], list[int]], dense: int
) -> None:
    """The loop knows of no events that are over, and of no week before a lost one: they are not looked for here."""
    spec, rows, cuts = stream
    windows = Windows(spec)
    oracle = OracleWindows(spec, windows.reach)
    parts = []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        windows._asking._weeks = (0, 0)
        with mock.patch.object(timeline, "DENSE", dense):  # rows of the ring are copied, or searched for
            parts.append(windows.push(batch(spec, rows[start:end])))
        again = Windows(spec)
        again.restore(*windows.state())
        windows = again  # every piece goes on from saved state
    for row in rows:
        oracle.push(row)
    asks, answers = joined(parts)
    agree(asks, oracle.asks)
    agree(answers, oracle.answers)
    assert (windows.rows, windows.late, windows.snapped) == (len(rows), oracle.late, oracle.snapped)
    assert windows.late_used == oracle.late_used
    del oracle.answers[:]
    oracle.flush()
    none, rest = windows.flush()
    assert not len(none.origin)
    got = {name: getattr(rest, name).numpy() for name in Answers._fields}
    order = sorted(oracle.answers, key=lambda row: (row["series"], row["step"]))
    agree(got, order)


@pytest.mark.parametrize("minutes", [(60, 180, 190, 180), (60, 180, 190, 180, 240, 180)])
def test_a_row_without_a_step_makes_no_other_one_late(minutes: tuple[int, ...]) -> None:
    """The third is too near to the second: read with it or apart, the next ones are as late as before it."""
    spec = WindowSpec(
        ("y",), lags=1, horizon=1, season=4, gaps="reset", time="t", every_ns=HOUR, tolerance_ns=HOUR // 4, late="use"
    )
    rows = [Row("y", START + minute * HOUR // 60, {"y": 1.5}) for minute in minutes]
    oracle, whole, apart = OracleWindows(spec, Windows(spec).reach), Windows(spec), Windows(spec)
    for row in rows:
        oracle.push(row)
    for parts in ([whole.push(batch(spec, rows))], [apart.push(batch(spec, [row])) for row in rows]):
        asks, answers = joined(parts)
        agree(asks, oracle.asks)
        agree(answers, oracle.answers)
    assert whole.late == apart.late == oracle.late


def jittered(count: int, every: int, jitter: float, drift: float = 0.0, seed: int = 0) -> list[int]:
    """(count,) times, ns, `every` (1 + drift) apart, each interval off by up to `jitter` intervals, in microseconds."""
    rng = np.random.default_rng(seed)
    apart = every * (1 + drift + rng.uniform(-jitter, jitter, count - 1))
    return [START + round(t / 1000) * 1000 for t in np.append(0, apart.cumsum())]


@pytest.mark.parametrize("drift", [0.0, 0.02, -0.02])
def test_a_clock_that_jitters_and_drifts_leaves_no_row_out(drift: float) -> None:
    every = 10 * 10**6
    spec = WindowSpec(targets=("y",), lags=1, time="t", every_ns=every)
    rows = [Row("y", ds, {"y": float(i)}) for i, ds in enumerate(jittered(2000, every, 0.45, drift))]
    loose = Windows(replace(spec, tolerance_ns=every // 2))
    found = [loose.push(batch(spec, rows[i : i + 64]))[1] for i in range(0, 2000, 64)]
    assert np.concatenate([answers.step.numpy() for answers in found]).tolist() == list(range(2000))
    assert (loose.late, loose.snapped) == (0, sum(b.ds - a.ds != every for a, b in pairwise(rows)))
    strict = Windows(spec)
    strict.push(batch(spec, rows))
    assert strict.late > 20  # counted from the first row, two rows share a step


@pytest.mark.sampled
@pytest.mark.parametrize("drift", [0.0, 0.01, -0.01])
@pytest.mark.parametrize("tolerance", [3, 5])
def test_times_that_are_off_each_for_itself_leave_nearly_no_row_out(drift: float, tolerance: int) -> None:
    """4,000 rows each 10 ms, every time off by a normal error of 2 ms: nearly all windows of 24 lags are whole."""
    every, rng = 10 * 10**6, np.random.default_rng(0)
    ds = START + np.round((np.arange(4000) * (1 + drift) + rng.normal(0, 0.2, 4000)) * every).astype(int)
    spec = WindowSpec(targets=("y",), lags=24, time="t", every_ns=every, tolerance_ns=tolerance * 10**6)
    windows = Windows(spec)
    rows = [Row("y", int(when), {"y": float(i)}) for i, when in enumerate(ds)]
    found = [windows.push(batch(spec, rows[i : i + 64])) for i in range(0, 4000, 64)]
    assert windows.late < 20 and sum(len(asks.origin) for asks, _ in found) > 3500
    steps = np.concatenate([answers.step.numpy() for _, answers in found])
    assert abs(int(steps[-1]) - 3999) <= 5


def test_a_missing_row_of_a_clock_that_jitters_is_a_gap() -> None:
    every, rng = 10 * 10**6, np.random.default_rng(1)
    there = np.delete(np.arange(4000), np.arange(50, 4000, 50))
    ds = START + np.round((there + rng.normal(0, 0.1, len(there))) * every).astype(int)
    spec = WindowSpec(targets=("y",), lags=1, time="t", every_ns=every, tolerance_ns=3 * 10**6)
    _, answers = Windows(spec).push(batch(spec, [Row("y", int(when), {"y": 1.0}) for when in ds]))
    assert answers.step.tolist() == there.tolist()


def test_gaps_stay_gaps_and_what_is_too_near_is_late() -> None:
    spec = WindowSpec(targets=("y",), lags=1, time="t", every_ns=10_000, tolerance_ns=2_000)
    windows = Windows(spec)
    moments = [0, 10, 13, 22, 45, 44, 64, 64, 164]  # µs; 13 and 44 are too near, 22 is 12 behind 10, 45 is off by 3
    rows = [Row("y", START + 1000 * moment, {"y": 1.0}) for moment in moments]
    _, answers = windows.push(batch(spec, rows))
    assert (answers.ds.numpy() - START).tolist() == [1000 * moment for moment in (0, 10, 22, 45, 64, 164)]
    assert answers.step.tolist() == [0, 1, 2, 4, 6, 16]
    assert (windows.late, windows.snapped) == (3, 2)


def test_known_values_ahead_are_found_by_the_same_rule() -> None:
    spec = WindowSpec(targets=("y",), known=("k",), lags=1, horizon=3, time="t", every_ns=10_000, tolerance_ns=5_000)
    windows = Windows(spec)
    moments = [0, 14, 23, 37, 46]
    windows.push(batch(spec, [Row("y", START + 1000 * m, {"y": 1.0, "k": 0.0}) for m in moments]))
    times = pa.array([START // 1000 + m for m in (60, 46, 69, 83)], pa.timestamp("us", "UTC"))
    asks = windows.ask_last(pa.table({"t": times, "k": [1.0, 0.0, 2.0, 3.0]}))
    assert asks.x.future[0, :, 0].tolist() == [1.0, 2.0, 3.0]
    near = pa.table({"t": times.take(pa.array([0, 0, 2, 3])), "k": [1.0, 9.0, 2.0, 3.0]})
    with pytest.raises(DataError, match=naming("1 2")):
        windows.ask_last(near)


def line(count: int, **columns: list[float]) -> pa.RecordBatch:
    return pa.record_batch({"y": [float(i) for i in range(count)], **columns})


def test_a_forecast_never_sees_targets_behind_its_origin() -> None:
    """With known inputs rows are read ahead; moving the targets behind an origin must not change its window."""
    spec = WindowSpec(targets=("y",), known=("k",), lags=3, horizon=4, season=5)
    rows = 60
    rng = np.random.default_rng(0)
    y, k = rng.normal(size=rows), rng.normal(size=rows)
    changed = y.copy()
    changed[31:] += 100
    pasts = []
    for values in (y, changed):
        asks, _ = Windows(spec).push(pa.record_batch({"y": values, "k": k}))
        pasts.append({int(o): (asks.x.past[i], asks.x.future[i]) for i, o in enumerate(asks.origin)})
    for origin in range(7, 31):
        assert torch.equal(pasts[0][origin][0], pasts[1][origin][0])
        assert torch.equal(pasts[0][origin][1], pasts[1][origin][1])
    assert not torch.equal(pasts[0][31][0], pasts[1][31][0])


def test_memory_does_not_grow_with_the_rows() -> None:
    spec = WindowSpec(targets=("y",), known=("k",), lags=3, horizon=4, season=5)
    windows, sizes = Windows(spec), []
    for _ in range(20):
        windows.push(line(100, k=[0.0] * 100))
        sizes.append(sum(t.numel() for t in windows.state()[0].values()))
    assert len(set(sizes)) == 1


def test_many_series_keep_to_themselves() -> None:
    spec = WindowSpec(targets=("y",), lags=2, horizon=1, series="s")
    names = [f"n{i}" for i in range(300)]
    windows = Windows(spec)
    for step in range(3):
        asks, _ = windows.push(pa.record_batch({"s": names, "y": [1000.0 * i + step for i in range(300)]}))
    assert windows.names == names
    assert_array_equal(asks.x.past[:, :, 0].numpy(), 1000.0 * np.arange(300)[:, None] + np.array([1, 2]))


def test_what_stands_in_for_a_reference_is_of_the_same_series() -> None:
    """The season before it is farther back than rows are kept, where a micro-batch has another series' rows."""
    spec = WindowSpec(
        targets=("y",), series="s", time="t", every_ns=HOUR, lags=2, season=6, seasons=(6,), gaps="fill", contexts=False
    )
    y = [[size + row % 6 for row in range(60)] for size in (1000.0, 0.0)]
    y[1][20] = NAN
    rows = [Row(name, START + at * HOUR, {"y": y[k][at]}) for at in range(60) for k, name in enumerate("ab")]
    windows = Windows(spec)
    asks, _ = joined([windows.push(batch(spec, part)) for part in (rows[:50], rows[50:])])
    reference = asks["future"][asks["series"] == 1][:, 0, 0]
    assert len(reference) and reference.max() <= 5


def test_dictionary_encoded_and_numbered_series() -> None:
    spec = WindowSpec(targets=("y",), lags=1, series="s")
    for series in (pa.array(["b", "a", "b"]).dictionary_encode(), pa.array([7, 3, 7])):
        windows = Windows(spec)
        asks, _ = windows.push(pa.record_batch({"s": series, "y": [1.0, 2.0, 3.0]}))
        assert asks.series.tolist() == [0, 1, 0]
        assert windows.names in (["b", "a"], ["7", "3"])


def test_infinite_values_and_nulls_are_missing() -> None:
    windows = Windows(WindowSpec(targets=("y",), lags=1))
    asks, answers = windows.push(pa.record_batch({"y": pa.array([1.0, float("inf"), None, 2.0])}))
    assert asks.x.past[:, 0, 0].tolist() == [1.0, 1.0, 1.0, 2.0]
    assert asks.age[:, 0].tolist() == [0, 1, 2, 0]
    assert_array_equal(answers.y[:, 0].numpy(), [1, NAN, NAN, 2])


def test_integer_clock() -> None:
    windows = Windows(WindowSpec(targets=("y",), lags=2, horizon=2, time="t", every_ns=5))
    asks, _ = windows.push(pa.record_batch({"t": pa.array([0, 5, 10, 20]), "y": [1.0, 2.0, 3.0, 4.0]}))
    assert asks.origin.tolist() == [1, 2, 4]
    assert asks.ds.tolist() == [[10, 15], [15, 20], [25, 30]]


@pytest.mark.parametrize("lags", [1, 2, 6])
def test_one_long_gap_does_not_move_the_times_ahead(lags: int) -> None:
    hours = [*range(40), *range(2440, 2443)]
    spec = WindowSpec(targets=("y",), lags=lags, horizon=2, time="t", zone="UTC")
    rows = [Row("y", START + h * HOUR, {"y": float(h)}) for h in hours]
    windows = Windows(spec)
    asks, _ = windows.push(batch(spec, rows))
    wanted = [[START + (h + 1) * HOUR, START + (h + 2) * HOUR] for h in hours[-3:]]
    assert asks.ds[-3:].tolist() == wanted
    assert windows.ask_last().ds.tolist() == wanted[-1:]


def test_days_without_a_declared_interval_keep_the_clock_on_the_wall() -> None:
    spec = WindowSpec(targets=("y",), lags=2, time="t", zone="Europe/Berlin")
    midnights = [START + 11 * HOUR - i * 24 * HOUR for i in range(9, -1, -1)]  # the last is 2024-03-31T00:00+01:00
    windows = Windows(spec)
    asks, _ = windows.push(batch(spec, [Row("y", ds, {"y": 1.0}) for ds in midnights]))
    assert (asks.ds[-1] - asks.cutoff[-1]).tolist() == [23 * HOUR]  # the clocks change that day


@pytest.mark.parametrize(
    ("days", "wanted"),
    [
        (["2023-10-01", "2023-11-01", "2023-12-01", "2024-01-01"], ["2024-02-01", "2024-03-01", "2024-04-01"]),
        (["2023-09-30", "2023-10-31", "2023-11-30"], ["2023-12-31", "2024-01-31", "2024-02-29"]),
        (["2023-05-15", "2023-08-15", "2023-11-15"], ["2024-02-15", "2024-05-15", "2024-08-15"]),
        (["2020-02-29", "2021-02-28", "2022-02-28", "2023-02-28"], ["2024-02-29", "2025-02-28", "2026-02-28"]),
        (["2023-10-01", "2023-10-31", "2023-11-30"], ["2023-12-30", "2024-01-29", "2024-02-28"]),  # thirty days
    ],
)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_rows_on_one_day_of_the_month_keep_to_it(days: list[str], wanted: list[str], zone: str | None) -> None:
    def times(texts: list[str]) -> list[int]:
        wall = [datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone or "UTC")) for text in texts]
        return [int(at.timestamp()) * 10**9 for at in wall]

    spec = WindowSpec(targets=("y",), inputs=("x",), known=("x",), lags=2, horizon=3, time="t", zone=zone)
    windows = Windows(spec)
    windows.push(batch(spec, [Row("y", ds, {"y": 1.0, "x": 0.0}) for ds in times(days)]))
    given = batch(spec, [Row("y", ds, {"y": NAN, "x": float(i)}) for i, ds in enumerate(times(wanted))])
    asks = windows.ask_last(pa.Table.from_batches([given.drop_columns(["y"])]))
    assert asks.ds.tolist() == [times(wanted)]
    assert asks.x.future[0, :, -1].tolist() == [0.0, 1.0, 2.0]


def test_rows_before_1823_are_rows() -> None:
    """Half of the negative nanoseconds of int64 lie before."""
    spec = WindowSpec(targets=("y",), lags=2, time="t")
    first = int(np.datetime64("1749-01-01", "ns").astype(np.int64))
    windows = Windows(spec)
    asks, _ = windows.push(batch(spec, [Row("y", first + i * 24 * HOUR, {"y": float(i)}) for i in range(6)]))
    assert windows.late == 0 and asks.origin.tolist() == [1, 2, 3, 4, 5]


def test_windows_of_another_size_do_not_go_on() -> None:
    spec = WindowSpec(targets=("y",), lags=2)
    with pytest.raises(ValueError):
        Windows(WindowSpec(targets=("y",), lags=3)).restore(*Windows(spec).state())


def test_windows_that_have_read_nothing_go_on() -> None:
    """A run that is interrupted before its first row is saved so."""
    spec = WindowSpec(targets=("y",), lags=2)
    before, again = Windows(spec), Windows(spec)
    again.restore(*before.state())
    rows = batch(spec, [Row("y", i * HOUR, {"y": float(i)}) for i in range(6)])
    assert torch.equal(again.push(rows)[0].x.past, before.push(rows)[0].x.past)


# --- the question of a forecast -------------------------------------------------------------------------------------


def test_ask_last_equals_the_question_that_the_stream_asks() -> None:
    spec = WindowSpec(
        targets=("y",), known=("k",), lags=3, horizon=4, season=5, series="s", time="t", every_ns=HOUR, calendar=True
    )
    rng = np.random.default_rng(1)
    rows = [
        Row(name, START + i * HOUR, {"y": rng.normal(), "k": rng.normal(), "u": 0.0, "z": 0.0})
        for i in range(30)
        for name in ("a", "b")
    ]
    whole = Windows(spec)
    asks, _ = whole.push(batch(spec, rows))
    windows = Windows(spec)
    windows.push(batch(spec, rows[:40]))  # 20 rows each
    future = pa.Table.from_batches([batch(spec, rows[30:])]).select(["t", "k", "s"])
    last = windows.ask_last(future)
    place = [int(torch.nonzero((asks.series == code) & (asks.origin == 19))[0, 0]) for code in (0, 1)]
    assert last.series.tolist() == [0, 1]
    assert torch.equal(last.x.past, asks.x.past[place])
    assert torch.equal(last.x.future, asks.x.future[place])
    assert torch.equal(last.ds, asks.ds[place])
    one = windows.ask_last(future.filter(pa.compute.field("s") == "b"))
    assert one.series.tolist() == [1]
    history = windows.history(4)
    assert history.series.tolist() == [0] * 4 + [1] * 4
    assert (
        history.y[:, 0].tolist()
        == [r.values["y"] for n in "ab" for r in rows[:40] if r.series == n][16:20]
        + [r.values["y"] for r in rows[:40] if r.series == "b"][16:]
    )


@pytest.mark.parametrize("season", [1, 24])
def test_ask_known_equals_the_last_question_that_the_stream_has_asked(season: int) -> None:
    generator = np.random.default_rng(0)
    y, k = generator.normal(size=(2, 400))
    y[generator.random(400) < 0.1] = k[generator.random(400) < 0.05] = np.nan
    windows = Windows(WindowSpec(targets=("y",), known=("k",), lags=6, horizon=4, season=season))
    assert not len(windows.ask_known().origin)
    for start in range(0, 400, 37):
        asks, _ = windows.push(pa.record_batch({"y": y[start : start + 37], "k": k[start : start + 37]}))
    again, place = windows.ask_known(), len(asks.origin) - 1
    assert again.origin.tolist() == asks.origin[place:].tolist() == [395]
    for found, wanted in ((again.x, asks.x.rows(slice(place, None))), ([again.ds], [asks.ds[place:]])):
        assert all(torch.equal(one, two) for one, two in zip(found, wanted, strict=True) if one is not None)


def test_ask_last_by_count_and_without_a_clock() -> None:
    spec = WindowSpec(targets=("y",), known=("k",), lags=2, horizon=2)
    windows = Windows(spec)
    windows.push(line(5, k=[0.0] * 5))
    asks = windows.ask_last(pa.table({"k": [7.0, 8.0, 9.0]}))
    assert asks.x.past[0, :, 0].tolist() == [3.0, 4.0]
    assert asks.x.future[0, :, 0].tolist() == [7.0, 8.0]
    assert asks.ds.tolist() == [[5, 6]]


def test_ask_last_without_lags_asks_at_every_row_of_the_future() -> None:
    spec = WindowSpec(targets=("y",), inputs=("u",), lags=0)
    windows = Windows(spec)
    windows.push(line(3, u=[0.0, 1.0, 2.0]))
    asks = windows.ask_last(pa.table({"u": [5.0, 6.0]}))
    assert asks.x.future[:, 0, 0].tolist() == [5.0, 6.0]
    with pytest.raises(DataError, match=naming("2 u")):
        windows.ask_last(pa.table({"u": [5.0, None]}))


def test_ask_last_names_what_the_future_lacks() -> None:
    spec = WindowSpec(targets=("y",), known=("k",), lags=1, horizon=3, series="s", time="t", every_ns=HOUR)
    windows = Windows(spec)
    rows = [Row("a", START + i * HOUR, {"y": 1.0, "k": 0.0}) for i in range(4)]
    windows.push(batch(spec, rows))
    later = [Row("a", START + i * HOUR, {"y": NAN, "k": 0.0}) for i in (4, 6)]
    with pytest.raises(DataError, match=naming("a k 2")):
        windows.ask_last(pa.Table.from_batches([batch(spec, later)]))
    with pytest.raises(DataError, match=naming("1")):
        windows.ask_last(pa.Table.from_batches([batch(spec, [Row("q", START, {"y": NAN, "k": 0.0})])]))
    with pytest.raises(UsageError, match=naming("k")):
        windows.ask_last()


BETWEEN = "1"  # the row of the future that is between the newest row and the first step
FUTURES: list[tuple[list[float], str | None]] = [
    ([1, 2, 3], None),
    ([3, 1, 2], None),
    ([-1, 0, 1, 2, 3, 4, 4, 5.5], None),  # what was seen, and what is not needed
    ([1.4, 2.3, 2.6], None),
    ([1, 3], "k 2"),
    ([1, 1, 2, 3], "1 2"),
    ([1, 2, 2.3, 3], "2 3"),
    ([0.3, 1, 2, 3], BETWEEN),
    ([], "k 1"),
]


@pytest.mark.parametrize(("hours", "message"), FUTURES)
@pytest.mark.parametrize("every", [None, HOUR])
def test_a_future_is_matched_by_time(hours: list[float], message: str | None, every: int | None) -> None:
    spec = WindowSpec(targets=("y",), known=("k",), lags=2, horizon=3, series="s", time="t", every_ns=every)
    windows = Windows(spec)
    windows.push(batch(spec, [Row("a", START + i * HOUR, {"y": 1.0, "k": 0.0}) for i in range(-9, 1)]))
    future = batch(spec, [Row("a", START + int(h * HOUR), {"y": NAN, "k": h}) for h in [*hours, *([9] * (not hours))]])
    if every and message == BETWEEN:
        message = None  # on a declared grid that row is the newest one once more
    if message is None:
        known = windows.ask_last(pa.Table.from_batches([future])).x.future[0, :, 0]
        assert_allclose(known, sorted(h for h in hours if 0.5 <= h < 3.5))
    else:
        with pytest.raises(DataError, match=naming(message)):
            windows.ask_last(pa.Table.from_batches([future]))


def test_nothing_is_asked_of_nothing() -> None:
    windows = Windows(WindowSpec(targets=("y",), lags=2))
    assert len(windows.ask_last().origin) == 0
    assert len(windows.history(5).ds) == 0
    asks, answers = windows.push(line(0))
    assert (len(asks.origin), len(answers.y)) == (0, 0)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": ()}, ""),
        ({"inputs": ("y",)}, ""),
        ({"inputs": ("u", "u")}, ""),
        ({"lags": 0, "horizon": 2}, ""),
        ({"lags": 0}, ""),
        ({"horizon": 0}, ""),
        ({"calendar": True, "time": None}, ""),
        ({"time": None, "every_ns": 5}, ""),
        ({"time": "t", "every_ns": 5, "tolerance_ns": 5}, ""),
        ({"time": "t", "tolerance_ns": 5}, ""),
        ({"zone": "Mars/Base"}, "Mars/Base"),
    ],
)
def test_impossible_windows_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=naming(message)):
        WindowSpec(**{"targets": ("y",), "time": "t", **changes})


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"t": pa.array([1])}, SchemaError, "y"),
        ({"t": pa.array([1]), "y": pa.array(["x"])}, SchemaError, "string"),
        ({"t": pa.array(["x"]), "y": pa.array([1.0])}, SchemaError, "string"),
        ({"t": pa.array([None], pa.int64()), "y": pa.array([1.0])}, DataError, ""),
        ({"t": pa.array([2**61], pa.timestamp("us")), "y": pa.array([1.0])}, DataError, "t"),
        ({"t": pa.array([0, -(10**11)], pa.timestamp("s")), "y": pa.array([1.0, 1.0])}, DataError, "-1199 1678 2261"),
    ],
)
def test_unfit_rows_are_refused(columns: dict[str, pa.Array], error: type[Exception], message: str) -> None:
    windows = Windows(WindowSpec(targets=("y",), time="t"))
    with pytest.raises(error, match=naming(message)):
        windows.push(pa.record_batch(columns))
    assert windows.rows == 0


@pytest.mark.parametrize(("gaps", "every"), [("fill", 1), ("reset", 1), ("fill", None)])
def test_the_time_of_a_last_value_is_told_for_longer_than_rows_are_kept(gaps: Any, every: Any) -> None:
    """Also of a restored state; of one from before it was kept, what can be known, which no longer moves."""
    spec = WindowSpec(targets=("y", "z", "never"), lags=2, gaps=gaps, time="t", every_ns=every)
    windows, again, old = Windows(spec), Windows(spec), Windows(spec)
    y, z, never = (
        pa.array([1.0 + row if row < end else None for row in range(90)], pa.float64()) for end in (10, 59, 0)
    )
    rows = pa.record_batch({"t": pa.array(range(90), pa.int64()), "y": y, "z": z, "never": never})
    windows.push(rows.slice(0, 60))
    oldest = 60 - windows.reach
    assert oldest > 10 and windows.last_values().tolist() == [[9, 58, 0]]
    assert windows.last_values(latest=58).tolist()[0][1] == 58
    tensors, rest = windows.state()
    again.restore(tensors, rest)
    old.restore({name: part for name, part in tensors.items() if name != "valued"}, rest)
    for one in (windows, again, old):
        one.push(rows.slice(60))
    known = 9 if (gaps, every) == ("fill", 1) else oldest
    assert windows.last_values().tolist() == again.last_values().tolist() == [[9, 58, 0]]
    assert old.last_values().tolist() == [[known, 58, oldest]]


def test_what_a_dead_sensor_repeats_is_no_last_value() -> None:
    windows = Windows(WindowSpec(targets=("y",), lags=2, time="t", season=24))
    y = np.where(np.arange(400) < 200, np.random.default_rng(0).standard_normal(400), 0.1)
    windows.push(pa.record_batch({"t": pa.array(range(400), pa.int64()), "y": y}))
    assert windows.told() and 199 <= windows.last_values()[0, 0] <= 204  # 204: the oldest row then kept
