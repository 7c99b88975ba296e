"""What is said of the interval between rows: none was declared and rows are missing, or another one was."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from streamgp_data.pace import Pace
from streamgp_data.table import TableMeta
from tests.pipelines.ingesting import START, take, text_of, write
from tests.pipelines.worlds import frame_of, make_table, run
from tests.words import names

HOUR = 3_600 * 10**6


def hourly(hours: range, without: range = range(0)) -> str:
    kept = [hour for hour in hours if hour not in without]
    frame = pl.DataFrame({"ds": [START] * len(kept), "y": [float(hour) for hour in kept]})
    return text_of(frame.with_columns(pl.col("ds") + pl.duration(hours=pl.Series(kept))))


def test_missing_rows_are_told_where_no_interval_is_declared(tmp_path: Path) -> None:
    outage = write(tmp_path / "a.csv", hourly(range(400), range(100, 120)))
    told = [hint for hint in take(tmp_path / "t", outage)["hints"] if "--every" in hint]
    assert len(told) == 1 and names(told[0], "20 --every 1h")
    assert not any("--every" in hint for hint in take(tmp_path / "declared", outage, every="1h")["hints"])
    whole = write(tmp_path / "b.csv", hourly(range(400)))
    assert not any("--every" in hint for hint in take(tmp_path / "whole", whole)["hints"])
    assert not any("--every" in hint for hint in take(tmp_path / "t", outage, every="1h")["hints"])  # declared since


def test_a_declared_interval_that_is_not_that_of_the_rows_is_told(tmp_path: Path) -> None:
    told = take(tmp_path / "t", write(tmp_path / "a.csv", hourly(range(300))), every="15m")["hints"]
    assert any(names(hint, "--every 15m 1h") for hint in told)


@pytest.mark.sampled
@pytest.mark.parametrize(("every", "wanted"), [(None, "1h"), ("15m", "1h"), ("1h", None)])
def test_train_tells_it_too(tmp_path: Path, every: str | None, wanted: str | None) -> None:
    frame = frame_of(700).filter(~pl.int_range(pl.len()).is_between(400, 419))
    interval = {None: None, "15m": HOUR // 4 * 1000, "1h": HOUR * 1000}[every]
    table = make_table(tmp_path / "t", frame, every_ns=interval)
    told = [note for note in run(table, tmp_path / "c")["warnings"] if "--every" in note]
    assert [names(note, f"--every {wanted}") for note in told] == ([] if wanted is None else [True])


@pytest.mark.parametrize(
    "hours",
    [
        [24 * day for day in range(100) if day % 7 < 5],  # working days
        [1.0 * hour + 0.5 * (hour > 50) for hour in range(100)],  # no whole multiple
        [hour + hour % 2 * 0.2 for hour in range(100)],
    ],
)
def test_clocks_with_pauses_or_jitter_are_no_regular_ones_with_holes(hours: list[float]) -> None:
    pace = Pace()
    pace.add((np.array(hours) * HOUR).astype(np.int64), None)
    assert pace.missing() is None


def test_holes_are_those_of_any_series_however_rows_are_cut() -> None:
    times = np.array([*range(50), *range(10), *range(20, 60)]) * HOUR
    series = pa.array(["a"] * 50 + ["b"] * 50)
    whole, cut = Pace(), Pace()
    whole.add(times, series)
    for at in range(0, 100, 7):
        cut.add(times[at : at + 7], series[at : at + 7])
    assert whole.missing() == cut.missing() == (HOUR, 1, 10)
    assert whole.notes(TableMeta("t", series="s")) == cut.notes(TableMeta("t", series="s"))


def test_rows_between_the_ticks_of_the_clock_are_told(tmp_path: Path) -> None:
    def frame(minutes: list[float]) -> str:
        found = pl.DataFrame({"ds": [START] * len(minutes), "y": [1.0] * len(minutes)})
        return text_of(found.with_columns(pl.col("ds") + pl.duration(seconds=pl.Series(minutes) * 60)))

    on = [30.0 * at for at in range(200)]
    off = write(tmp_path / "a.csv", frame([*on[:101], 3007.0, *on[101:]]))  # 02:07 of the third day
    for every in (None, "30m"):
        told = [hint for hint in take(tmp_path / f"t{every}", off, every=every)["hints"] if "whole number" in hint]
        assert len(told) == 1 and names(told[0], "2 2024-01-03 02:07:00 --tolerance")
    assert not any("whole" in hint for hint in take(tmp_path / "t", write(tmp_path / "b.csv", frame(on)))["hints"])


@pytest.mark.parametrize(
    ("hours", "every", "off"),
    [
        ([24 * day - (day > 50) for day in range(100)], None, 0),  # local days in UTC, where the clock is changed
        ([hour + hour % 2 * 0.2 for hour in range(100)], None, 0),  # no clock
        ([hour + hour % 2 * 0.2 for hour in range(100)], HOUR, 99),
        ([*range(50), *[50 + 0.5 * half for half in range(100)]], HOUR, 99),
    ],
)
def test_intervals_off_the_clock(hours: list[float], every: int | None, off: int) -> None:
    pace = Pace()
    pace.add((np.array(hours) * HOUR).astype(np.int64), None)
    found = pace.off_grid(every)
    assert (0 if found is None else found[1]) == off


@pytest.mark.parametrize("every", [3, 8, 12])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("offsets", [False, True])
def test_the_hour_of_a_clock_change_is_not_off_the_clock(every: int, zone: str, offsets: bool) -> None:
    """Rows at 00:00, 12:00, ... of a zone, for a year; a row that is off by an hour is still told."""
    walls = [
        datetime(2024, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(hours=every * at) for at in range(366 * 24 // every)
    ]
    times = np.array([int(wall.timestamp()) * 10**6 for wall in walls])
    own = TableMeta("t", zone=zone, local=True)
    meta = TableMeta("t", zone="UTC", local=False, time_format="iso-offset") if offsets else own
    declared = TableMeta(
        "t", zone=meta.zone, local=meta.local, time_format=meta.time_format, every_ns=every * HOUR * 1000
    )
    assert off(times, meta) == off(times, declared) == []
    for where in (50, len(times) // 2):
        moved = times.copy()
        moved[where] += HOUR
        assert names(" ".join(off(moved, meta)), "2 intervals whole number")


@pytest.mark.parametrize("zone", ["UTC", "+01:00"])
def test_rows_of_a_clock_that_is_never_changed_are_told(zone: str) -> None:
    times = 12 * HOUR * np.arange(700) + HOUR * (np.arange(700) > 300)
    assert names(" ".join(off(times, TableMeta("t", zone=zone, local=True))), "1 interval whole number")
    assert names(" ".join(off(times, TableMeta("t"))), "1 interval whole number")


def off(times: np.ndarray, meta: TableMeta) -> list[str]:
    """What is said of rows between the ticks, added in two parts."""
    pace = Pace()
    pace.add(times[:123], None)
    pace.add(times[123:], None)
    return [note for note in pace.notes(meta) if "whole number" in note]
