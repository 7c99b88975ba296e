"""Reading times, against Python's own clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp.errors import DataError, UsageError
from streamgp_data.instants import FORMATS, text_times
from streamgp_data.times import Clock, TimeReader, Times, decide, format_of, formats_of, is_time
from tests.properties import examples
from tests.words import names, naming

ZONES = ["Europe/Berlin", "US/Eastern", "Australia/Lord_Howe", "Europe/London", "Asia/Kolkata"]


def read(cells: list[Any], given_format: str | None = None, zone: str | None = None) -> tuple[Clock, Times]:
    column = pa.array(cells)
    clock = decide(column, given_format, zone, "a.csv")
    return clock, TimeReader(clock).read(column)


def told(times: Times) -> list[datetime | None]:
    return [None if value is None else value.replace(tzinfo=UTC) for value in times.values.to_pylist()]


MOMENT = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
WRITTEN: list[tuple[Any, str | None, str, datetime]] = [
    ("2024-02-03 04:05:06", None, "iso", MOMENT),
    ("2024-02-03T04:05:06", None, "iso", MOMENT),
    ("2024-02-03 04:05", None, "iso", MOMENT.replace(second=0)),
    ("2024-02-03", None, "iso", MOMENT.replace(hour=0, minute=0, second=0)),
    ("2024/02/03 04:05:06", None, "iso", MOMENT),
    ("2024/2/3T04:05:06Z", None, "iso-offset", MOMENT),
    ("2024.02.03 04:05", None, "iso", MOMENT.replace(second=0)),
    ("2024-02-03 04:05:06.25", None, "iso", MOMENT.replace(microsecond=250_000)),
    ("2024-02-03 04:05:06,25", None, "iso", MOMENT.replace(microsecond=250_000)),
    ("2024-02-03T04:05:06.123456000", None, "iso", MOMENT.replace(microsecond=123_456)),
    (" 2024-02-03 04:05:06 ", None, "iso", MOMENT),
    ("2024-02-03T04:05:06.1234565", None, "iso", MOMENT.replace(microsecond=123_457)),
    ("2024-02-03T04:05:05.9999996+00:00", None, "iso-offset", MOMENT),
    ("1600-02-03T04:05:06.12345649", None, "iso", MOMENT.replace(year=1600, microsecond=123_456)),
    ("03.02.1600 04:05:06.123456501", "%d.%m.%Y %H:%M:%S%.f", "format", MOMENT.replace(year=1600, microsecond=123_457)),
    ("1706933106000000499", None, "epoch-ns", MOMENT),
    (1706933105999999500, None, "epoch-ns", MOMENT),
    ("1706933105.9999995", None, "epoch-s", MOMENT),
    ("1706933106.1234564999", None, "epoch-s", MOMENT.replace(microsecond=123_456)),
    ("2024-02-03T04:05:06Z", None, "iso-offset", MOMENT),
    ("2024-02-03T05:05:06+01:00", None, "iso-offset", MOMENT),
    ("2024-02-03 09:35:06+0530", None, "iso-offset", MOMENT),
    ("2024-02-02T23:05:06-05", None, "iso-offset", MOMENT),
    ("2024-02-02T23:05:06.5-05:00", None, "iso-offset", MOMENT.replace(microsecond=500_000)),
    ("20240203T040506", None, "format", MOMENT),
    ("03.02.2024 04:05:06", "%d.%m.%Y %H:%M:%S", "format", MOMENT),
    ("02/03/2024 04:05:06 AM", "%m/%d/%Y %I:%M:%S %p", "format", MOMENT),
    ("03.02.2024", "%d.%m.%Y", "format", MOMENT.replace(hour=0, minute=0, second=0)),
    ("03/Feb/2024:05:05:06 +0100", "%d/%b/%Y:%H:%M:%S %z", "format", MOMENT),
    ("1706933106", None, "epoch-s", MOMENT),
    ("1706933106000", None, "epoch-ms", MOMENT),
    ("1706933106000000", None, "epoch-us", MOMENT),
    ("1706933106000000000", None, "epoch-ns", MOMENT),
    ("1706933106.5", None, "epoch-s", MOMENT.replace(microsecond=500_000)),
    (1706933106, None, "epoch-s", MOMENT),
    (1706933106.25, None, "epoch-s", MOMENT.replace(microsecond=250_000)),
    (3600, "elapsed-s", "elapsed-s", datetime(1970, 1, 1, 1, tzinfo=UTC)),
    (3600, "epoch-s", "elapsed-s", datetime(1970, 1, 1, 1, tzinfo=UTC)),  # an epoch in its first year is none
    ("0.25", "epoch-s", "elapsed-s", datetime(1970, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)),
    (-1.0, "epoch-s", "epoch-s", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
]


@pytest.mark.parametrize(("cell", "given_format", "kind", "moment"), WRITTEN)
def test_ways_of_writing(cell: Any, given_format: str | None, kind: str, moment: datetime) -> None:
    clock, times = read([cell, cell], given_format)
    assert clock.kind == kind
    assert told(times) == [moment, moment]
    assert not times.bad.any()


@pytest.mark.parametrize(
    "cell",
    ["2024-02-30", "2024-02-03 25:00", "soon", "20240203", "+01:00", "+024-02-03",
     "024-02-03", "24-02-03", "24/02/03", "2024/02.03", "2024/02/031"],
)  # fmt: skip
def test_what_is_no_time_is_bad_and_nothing_is_missing(cell: str) -> None:
    _, times = read(["2024-02-03", "2024-02-04", "2024-02-05", cell, "", None, "NaT"])
    assert times.bad.tolist() == [False, False, False, True, False, False, False]
    assert told(times)[3:] == [None] * 4


@pytest.mark.parametrize("offset", ["+81:00", "-24:00", "+01:60"])
def test_an_offset_of_more_than_a_day_is_none(offset: str) -> None:
    _, times = read(["2024-01-01T00:00Z", "2024-01-02T00:00Z", f"2024-01-03T00:00{offset}"])
    assert times.bad.tolist() == [False, False, True]


def test_offset_and_naive_do_not_mix() -> None:
    clock, times = read(["2024-01-01T00:00Z", "2024-01-02T00:00Z", "2024-01-03 00:00"])
    assert (clock.kind, times.bad.tolist()) == ("iso-offset", [False, False, True])
    clock, times = read(["2024-01-01T00:00", "2024-01-02T00:00", "2024-01-03 00:00+02:00"])
    assert (clock.kind, times.bad.tolist()) == ("iso", [False, False, True])


def test_steps() -> None:
    clock, times = read(["0", "1", "2", "2.5", "x", ""])
    assert (clock.kind, clock.type) == ("step", pa.int64())
    assert times.values.to_pylist() == [0, 1, 2, None, None, None]
    assert times.bad.tolist() == [False, False, False, True, True, False]


def test_arrow_timestamps() -> None:
    fine = pa.array([10**18, 10**18 + 1], pa.timestamp("ns"))
    times = TimeReader(decide(fine, None, None, "a")).read(fine)
    assert (times.bad.tolist(), times.values.cast(pa.int64()).to_pylist()) == ([False, False], [10**15, 10**15])
    berlin = pa.array([0], pa.timestamp("s", "Europe/Berlin"))
    assert decide(berlin, None, None, "a") == Clock("timestamp", zone="Europe/Berlin")
    assert decide(pa.array([0], pa.timestamp("s")), None, "Europe/Berlin", "a").localise
    for unit in ("s", "ms"):
        far = pa.array([10**17, 0, -(10**17), None], pa.timestamp(unit))
        assert TimeReader(decide(far, None, None, "a")).read(far).bad.tolist() == [True, False, True, False]
    days = pa.array([1], pa.date32())
    assert told(TimeReader(decide(days, None, None, "a")).read(days)) == [datetime(1970, 1, 2, tzinfo=UTC)]


def oracle(local: list[datetime], zone: ZoneInfo) -> list[datetime | None]:
    """The rule of `LocalClock`, row by row, with Python's fold."""
    found: list[datetime | None] = []
    peak: datetime | None = None
    for wall in local:
        early, late = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if early.astimezone(zone).replace(tzinfo=None) != wall:
            found.append(None)
        elif early == late:
            found.append(early)
        else:
            same = peak is not None and peak.date() == wall.date()
            found.append(late if same and peak is not None and wall <= peak else early)
            peak = max(peak, wall) if same and peak is not None else wall
    return found


@examples(60)
@given(
    zone=st.sampled_from(ZONES),
    year=st.integers(1990, 2030),
    minutes=st.integers(5, 90),
    start=st.integers(0, 364),
    cuts=st.lists(st.integers(0, 200), max_size=3),
)
def test_local_clocks(zone: str, year: int, minutes: int, start: int, cuts: list[int]) -> None:
    """A year of true instants shown on the wall, read back block by block: the rule, and mostly the instants."""
    clock = ZoneInfo(zone)
    begin = datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=start)
    instants = [begin + timedelta(minutes=minutes * i) for i in range(200)]
    wall = [instant.astimezone(clock).replace(tzinfo=None) for instant in instants]
    check(wall, zone, cuts)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_every_change_of_the_clock_of_a_year(zone: str) -> None:
    clock = ZoneInfo(zone)
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    instants = [begin + timedelta(minutes=10 * i) for i in range(6 * 24 * 366)]
    wall = [instant.astimezone(clock).replace(tzinfo=None) for instant in instants]
    assert told(check(wall, zone, [1000, 20_000, 40_003])) == instants


def check(wall: list[datetime], zone: str, cuts: list[int]) -> Times:
    reader = TimeReader(Clock("timestamp", zone=zone, localise=True))
    bounds = [0, *sorted({min(cut, len(wall)) for cut in cuts}), len(wall)]
    parts = [reader.read(pa.array(wall[a:b], pa.timestamp("us"))) for a, b in pairwise(bounds)]
    values = pa.concat_arrays([part.values for part in parts])
    skipped = np.concatenate([part.skipped for part in parts])
    nothing = np.zeros(len(wall), bool)
    found = Times(values, nothing, skipped, nothing)
    wanted = oracle(wall, ZoneInfo(zone))
    assert told(found) == wanted
    assert skipped.tolist() == [moment is None for moment in wanted]
    return found


def test_every_series_has_its_own_repeated_hour() -> None:
    wall = [datetime(2024, 10, 27, 2, 30)] * 3
    reader = TimeReader(Clock("timestamp", zone="Europe/Berlin", localise=True))
    times = reader.read(pa.array(wall, pa.timestamp("us")), pa.array(["a", "b", "a"]))
    assert [moment.hour for moment in told(times) if moment] == [0, 0, 1]


@pytest.mark.parametrize(("zone", "hours"), [("+10:00", -10), ("UTC-3", 3), ("GMT+5:30", -5.5), ("+0100", -1)])
def test_fixed_offsets(zone: str, hours: float) -> None:
    _, times = read(["2024-03-31 02:30"], None, zone)
    assert told(times) == [datetime(2024, 3, 31, 2, 30, tzinfo=UTC) + timedelta(hours=hours)]


def test_hints() -> None:
    with pytest.raises(DataError, match=naming("31.12.2023 10:00")) as refused:
        decide(pa.array(["31.12.2023 10:00"]), None, None, "a.csv, column 'ds'")
    assert names(refused.value.hint, "--time-format %d.%m.%Y %H:%M")
    with pytest.raises(UsageError, match=naming("Europe/Munich")):
        decide(pa.array(["2024-01-01"]), None, "Europe/Munich", "a")


def test_the_format_of_a_cell_is_the_first_that_reads_it() -> None:
    """Most formats are left out by the letters and the punctuation of the cell alone."""
    one = {"%d": "07", "%m": "1", "%Y": "-2024", "%H": "23", "%I": "1", "%M": "05", "%S": "9", "%b": "jAn", "%p": "pm"}
    other = {"%d": "31", "%m": "12", "%Y": "2024", "%H": "13", "%I": "+1", "%M": "00", "%S": "00", "%b": "MARCH"}
    cells = []
    for form in FORMATS:
        for filled in (one, one | other):
            cell = re.sub("%.", lambda mark, filled=filled: filled[mark[0]], form)
            cells += [cell, f" {cell}\t", f"{cell}.0", cell.replace(" ", "T"), cell.replace(" ", ""), f"{cell} Z"]
    found: dict[str, str] = {}
    for form in FORMATS:
        bad = text_times(pa.array(cells), False, form)[1]
        found = {cell: form for cell, wrong in zip(cells, bad, strict=True) if not wrong} | found
    assert set(FORMATS) - set(found.values()) == set()
    assert [format_of(pa.array([cell])) for cell in cells] == [found.get(cell) for cell in cells]


@pytest.mark.parametrize(("form", "other"), [("%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M"), ("%d/%m/%Y", "%m/%d/%Y")])
def test_days_and_months_that_may_be_either_are_those_that_are_closer_together(form: str, other: str) -> None:
    """The first eleven days of March, each of which may be the third of a month."""
    days = [datetime(2024, 3, day).strftime(form) for day in range(1, 12)]
    assert formats_of(pa.array(days)) == [form, other] and format_of(pa.array(days)) == form
    assert set(formats_of(pa.array(days[4:5]))) == {form, other}  # one day alone
    months = pa.array([datetime(2024, month, 1).strftime(form) for month in range(1, 13)])
    assert formats_of(months) == [form, other]  # of which the other makes twelve days of January


def test_what_looks_like_a_time() -> None:
    yes: list[Any] = [["2024-01-01", "2024-01-02"], ["2024-01-01T00:00Z", ""], [datetime(2024, 1, 1)]]
    no: list[Any] = [["a", "b"], [1, 2], [1706933106], ["", ""], ["12:30"]]
    assert [is_time(pa.chunked_array([pa.array(cells)])) for cells in yes + no] == [True] * len(yes) + [False] * len(no)


@pytest.mark.parametrize(("faults", "kind"), [(5, "epoch-ms"), (16, "epoch-ms"), (46, "step")])
def test_an_epoch_may_have_faults_in_one_cell_of_three(faults: int, kind: str) -> None:
    cells = [1_704_067_200_000 + 60_000 * at for at in range(50)]
    assert decide(pa.array([0] * faults + cells[faults:]), None, None, "a.csv").kind == kind


@pytest.mark.parametrize("faults", [17, 44])
def test_numbers_of_which_too_many_are_no_epoch_are_refused(faults: int) -> None:
    cells = [1_704_067_200_000 + 60_000 * at for at in range(50)]
    with pytest.raises(DataError) as refused:
        decide(pa.array([0] * faults + cells[faults:]), None, None, "a.csv")
    assert names(refused.value.hint, "epoch-ms step")
