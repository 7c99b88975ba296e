"""Silences are those of a loop over rows, at most as frequent as their rate, and the same however a stream is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp.forecasting.silence import BEFORE, Silences
from tests.properties import examples

RATE = 0.02
DRAWS = {
    "exponential": lambda draw, n: draw.exponential(1.0, n),
    "regular, with lost rows": lambda draw, n: 1.0 + (draw.random(n) < 0.05) + (draw.random(n) < 0.02),
    "lognormal": lambda draw, n: draw.lognormal(0.0, 1.5, n),
    "bursts": lambda draw, n: np.where(draw.random(n) < 0.03, draw.exponential(50.0, n), 0.1),
    "pareto": lambda draw, n: draw.pareto(1.0, n) + 1.0,
}


def oracle(
    series: Any, ds: Any, known: Any, rate: float, horizon: int = 0, every: int | None = None
) -> list[tuple[int, ...]]:
    """(row, series, target, since, clock) of each silence, row by row."""
    block, held, found = int(np.ceil(2 / rate)), dict[tuple[int, int], dict[str, Any]](), []
    for row, clock in enumerate(clocks(series, ds, known, horizon, every)):
        for (code, target), one in sorted(held.items()):
            if one["limit"] is not None and not one["silent"] and clock - one["last"] > one["limit"]:
                one["silent"] = True
                found.append((row, code, target, one["last"], clock))
        for target in np.flatnonzero(known[row]).tolist():
            new = {"last": None, "seen": None, "blocks": [[]], "silent": False, "limit": None}
            one = held.setdefault((int(series[row]), target), new)
            if one["last"] is not None and ds[row] <= one["last"]:
                continue
            if one["last"] is not None and clock > max(one["seen"], one["last"]):
                if len(one["blocks"][-1]) == block:
                    one["blocks"].append([])
                one["blocks"][-1].append(clock - one["last"])
            gaps = sorted(gap for part in one["blocks"][-2:] for gap in part)
            if len(gaps) >= 2:
                one["limit"] = int(gaps[-2] * max(2.0, 2 / (rate * len(gaps))))
            one |= {"last": ds[row], "seen": clock}
            one["silent"] = one["limit"] is not None and clock - ds[row] > one["limit"]
    return found


def clocks(series: Any, ds: Any, known: Any, horizon: int, every: int | None) -> list[int]:
    """The clock after each row: one that is far ahead needs a second, which is the next that is after the clock."""
    clock, longest, held, before, found = BEFORE, 0, None, dict[int, list[int]](), list[int]()
    for row, time in enumerate(ds.tolist()):
        rows = before.setdefault(int(series[row]), [])
        rows.append(time)
        moves = time
        if horizon and not known[row].any():
            back = rows[-1 - horizon] if len(rows) > horizon else BEFORE
            moves = min(time, back) if every is None else time - horizon * every
        if moves > clock:
            near = clock == BEFORE or moves - clock <= 2 * longest or not series[: row + 1].any()
            pair = [moves] if near else sorted([moves, held]) if held is not None else []
            held = None if near or pair else moves
            for one in pair:
                if near or one == pair[0] or one - clock <= 2 * longest:
                    longest, clock = max(longest, one - clock if clock > BEFORE else 0), one
                else:
                    held = one
        found.append(clock)
    return found


def seen(silences: Silences, series: Any, ds: Any, known: Any, cuts: Any) -> list[tuple[int, ...]]:
    """series, target, since, clock of each."""
    found: list[tuple[int, ...]] = []
    for part in np.split(np.arange(len(ds)), cuts):
        one = silences.see(series[part], ds[part], known[part])
        found += zip(*(column.tolist() for column in one[:4]), strict=True)
    return found


@examples(14)
@given(st.integers(0, 10**6), st.sampled_from([0.02, 0.1, 0.4]), st.sampled_from([(0, None), (3, None), (3, 1)]))
def test_they_are_those_of_a_loop_over_rows(seed: int, rate: float, known_ahead: tuple[int, int | None]) -> None:
    draw = np.random.default_rng(seed)
    rows, many = 160, int(draw.integers(1, 5))
    series = draw.integers(0, many, rows)
    ds = np.cumsum(draw.geometric(0.5, rows) - 1) + np.where(draw.random(rows) < 0.05, draw.integers(0, 90, rows), 0)
    ds -= np.where(draw.random(rows) < 0.1, draw.integers(0, 40, rows), 0)  # some come late
    ds += np.where(draw.random(rows) < 0.03, 1000, 0)  # by a wrong clock
    horizon, every = known_ahead
    known = draw.random((rows, 2)) < draw.choice([0.3, 0.9], 2)
    known[(series == 0) & (np.arange(rows) // 30 % 2 == 1)] = False
    expected = oracle(series, ds, known, rate, horizon, every)
    cuts = np.sort(draw.integers(0, rows, 6))
    for pieces in ((), cuts, np.arange(1, rows)):
        silences = Silences(2, rate, every, horizon)
        assert seen(silences, series, ds, known, pieces) == [one[1:] for one in expected]
        assert silences.raised == len(expected)


def test_some_streams_of_the_oracle_are_silent() -> None:
    """So that the comparison above is of more than nothing."""
    time = np.arange(400)
    known = np.ones((400, 1), bool)
    known[200:250] = known[300:350] = False
    assert [one[3:] for one in oracle(0 * time, time, known, RATE)] == [(199, 202), (299, 302)]


@pytest.mark.parametrize("name", DRAWS)
def test_streams_where_nothing_is_wrong_ring_at_most_at_the_rate(name: str) -> None:
    """Over 32 series, each on its own, from the first value on; five standard errors are allowed."""
    draw, many, values = np.random.default_rng(1), 32, 500
    times = np.cumsum(1000 * DRAWS[name](draw, many * values).reshape(many, values) + 1, 1).astype(np.int64)
    raised = 0
    for one in times:
        raised += len(Silences(1, RATE).see(0 * one, one, np.ones((values, 1), bool)).since)
    mean = RATE * many * values
    assert raised <= mean + 5 * np.sqrt(mean)


@pytest.mark.parametrize(("values", "ticks"), [(20, 6), (50, 3), (400, 3)])
def test_a_silence_is_found_as_soon_as_the_evidence_allows(values: int, ticks: int) -> None:
    """Of two series that are read every 15 minutes one ends."""
    every = 15 * 60 * 10**9
    ds = np.repeat(np.arange(values + 30) * every, 2)
    series = np.tile([0, 1], values + 30)
    left = (series == 0) | (ds < values * every)
    found = Silences(1, RATE, every).see(series[left], ds[left], np.ones((left.sum(), 1), bool))
    last = values - 1
    assert [part.tolist() for part in found] == [[1], [0], [last * every], [(last + ticks) * every], [ticks]]


def test_one_outage_does_not_hide_the_next() -> None:
    time = np.arange(600)
    found = Silences(1, RATE).see(0 * time, time, (time % 200 < 150)[:, None])
    assert found.since.tolist() == [149, 349, 549] and found.ds.tolist() == [152, 352, 552]


def test_outages_more_frequent_than_the_rate_are_usual() -> None:
    """Nights: 14 hours after each 10 are more than one gap in 50."""
    time = np.arange(24 * 30)
    found = Silences(1, RATE).see(0 * time, time, (time % 24 < 10)[:, None])
    assert found.since.tolist() == [9, 33]  # not yet known of the first two


def test_values_that_come_together_after_an_outage_are_one_gap() -> None:
    """A logger that was away for 100 rows of another sends all of them, and is away again later."""
    time = np.arange(700)
    away = ((time >= 300) & (time < 400)) | (time >= 600)
    own = np.where((time >= 300) & (time < 400), 399.5, time)[~away | (time < 400)]
    other = np.stack([time, np.zeros(700)], 1)
    logger = np.stack([time[~away | (time < 400)], np.ones(len(own))], 1)
    came = np.concatenate([time + 0.1, own + 0.2])
    rows = np.concatenate([other, logger])[np.argsort(came, kind="stable")].astype(np.int64)
    found = Silences(1, RATE).see(rows[:, 1], rows[:, 0], np.ones((len(rows), 1), bool))
    assert found.series.tolist() == [1, 1] and found.since.tolist() == [299, 599] and found.ds.tolist() == [302, 602]


def test_series_one_after_another_are_not_silent() -> None:
    """As in a file that is sorted by series: each lags behind the clock by all rows of the one before."""
    ds, series = np.tile(np.arange(300), 3), np.repeat(np.arange(3), 300)
    assert not len(Silences(1, RATE).see(series, ds, np.ones((900, 1), bool)).since)


def test_a_clock_that_jumps_is_not_followed_until_others_end() -> None:
    """From row 200 on series 1 is 60 rows ahead of series 0, which ends at 300."""
    time = np.arange(500)
    ds = np.stack([time, time + 60 * (time >= 200)], 1).reshape(-1)
    series = np.tile([0, 1], 500)
    left = (series == 1) | (ds < 300)
    found = Silences(1, RATE).see(series[left], ds[left], np.ones((left.sum(), 1), bool))
    assert list(zip(found.series, found.since, found.ds, strict=True)) == [(0, 299, 360)]


def test_a_state_goes_on_as_without_it() -> None:
    draw = np.random.default_rng(0)
    series, ds = draw.integers(0, 7, 900), np.sort(draw.integers(0, 900, 900))
    known = (draw.random((900, 2)) < 0.5) & ~((series == 3) & (ds > 500))[:, None]
    whole = seen(Silences(2, RATE), series, ds, known, ())
    found: list[tuple[int, ...]] = []
    state = Silences(2, RATE).state()
    for part in np.split(np.arange(900), [100, 101, 400, 777]):
        one = Silences(2, RATE)
        one.restore(*state)
        found += seen(one, series[part], ds[part], known[part], ())
        state = one.state()
    assert found == whole and len(whole) >= 2
    with pytest.raises(ValueError, match="clock"):
        Silences(2, RATE).restore(state[0], state[1] | {"clock": 2**80})


def test_rows_of_known_inputs_that_are_to_come_are_no_silence() -> None:
    """Three rows ahead of the newest value: they move the clock to where the values are."""
    time = np.arange(403)
    known = (time < 400)[:, None]
    assert len(Silences(1, RATE).see(0 * time, time, known).since) == 1
    longer = np.arange(420)
    for every in (1, None):
        assert not len(Silences(1, RATE, every, 3).see(0 * time, time, known).since)
        found = Silences(1, RATE, every, 3).see(0 * longer, longer, (longer < 400)[:, None])
        assert (found.since.tolist(), found.ds.tolist()) == ([399], [402])


@pytest.mark.parametrize("far", [100, 10**6])
def test_a_row_of_a_wrong_clock_neither_rings_nor_ends_alarms(far: int) -> None:
    """Twice, of one of three series; then another one ends, in a restored state."""
    time = np.repeat(np.arange(400), 3)
    series = np.tile([0, 1, 2], 400)
    left = (series != 1) | (time < 350)
    ds = time + far * ((series == 2) & np.isin(time, [200, 207]))
    before, silences = Silences(1, RATE), Silences(1, RATE)
    part = slice(0, 3 * 300)
    assert not len(before.see(series[part], ds[part], np.ones((900, 1), bool)).since) and before.wrong == 2
    silences.restore(*before.state())
    rest = np.flatnonzero(left)[900:]
    found = silences.see(series[rest], ds[rest], np.ones((len(rest), 1), bool))
    assert (found.series.tolist(), found.since.tolist(), found.ds.tolist()) == ([1], [349], [352])


def test_a_state_of_before_goes_on() -> None:
    """Which held no rows ahead, and no times of rows before."""
    time = np.repeat(np.arange(300), 2)
    series, known = np.tile([0, 1], 300), np.ones((600, 1), bool)
    first, after = Silences(1, RATE, None, 3), Silences(1, RATE, None, 3)
    first.see(series[:400], time[:400], known[:400])
    tensors, rest = first.state()
    after.restore({name: part for name, part in tensors.items() if name not in after.later}, rest)
    known[(series == 1) & (time >= 250)] = False
    found = after.see(series[400:], time[400:], known[400:])
    assert (found.series.tolist(), found.since.tolist(), found.ds.tolist()) == ([1], [249], [252])
