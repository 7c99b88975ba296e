"""Ingest: a date and a time of day, or the number of a period, in two columns."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xlsxwriter

import streamgp
from streamgp import Forecaster
from streamgp.errors import DataError, TableError, UsageError
from streamgp_data.table import Table
from streamgp_data.times import Clock, TimeReader
from streamgp_pipelines.config import DescribeConfig
from streamgp_pipelines.describe_file import describe_file
from tests.pipelines.ingesting import quarantine, rows, take, write
from tests.words import names

pytestmark = pytest.mark.usefixtures("read_here")

LONDON = ZoneInfo("Europe/London")


def wall(days: int = 3, minutes: int = 30, start: datetime = datetime(2024, 2, 28)) -> list[datetime]:
    return [start + timedelta(minutes=minutes * at) for at in range(days * 1440 // minutes)]


def halves(start: datetime, days: int) -> pl.DataFrame:
    """Settlement periods as the British market numbers them, through changes of the clock, with their instants."""
    begin = start.replace(tzinfo=LONDON).astimezone(UTC)
    end = (start + timedelta(days=days)).replace(tzinfo=LONDON).astimezone(UTC)
    instants = [begin + timedelta(minutes=30 * at) for at in range(int((end - begin) / timedelta(minutes=30)))]
    local = [instant.astimezone(LONDON).date() for instant in instants]
    numbers = [local[: at + 1].count(day) for at, day in enumerate(local)]
    return pl.DataFrame({"Date": local, "Period": numbers, "y": range(len(local)), "at": instants})


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("day", "clock", "form"),
    [
        ("%Y-%m-%d", "%H:%M", None),
        ("%Y%m%d", "%H:%M:%S", None),
        ("%Y-%m-%d 00:00:00", "%H:%M", None),
        ("%Y/%m/%d", "%H:%M", None),
        ("%d/%m/%Y", "%H:%M", "%d/%m/%Y %H:%M"),
        ("%m/%d/%Y", "%I:%M %p", "%m/%d/%Y %I:%M %p"),
    ],
)
def test_a_date_and_a_time_are_one(day: str, clock: str, form: str | None, tmp_path: Path) -> None:
    times = wall()
    cells = "".join(f"{at:{day}};{at:{clock}};{i}\n" for i, at in enumerate(times))
    path = write(tmp_path / "a.csv", f"Date;Time;y\n{cells}")
    for given in ("Date,Time", "Date, Time"):
        assert take(tmp_path / "t", path, time=given, time_format=form)["quarantined"] == {}
    assert rows(tmp_path / "t")["Date,Time"].to_list() == times
    assert (
        take(tmp_path / "d", path, time="Date,Time", time_format=form, dry_run=True)["sources"][0]["would_add"] == 144
    )
    more = write(tmp_path / "b.csv", f"Date;Time;y\n{cells}")
    assert take(tmp_path / "t", more, time_format=form)["duplicates"] == 144  # the table knows its columns


def test_the_message_gives_the_command(tmp_path: Path) -> None:
    for form in ("%d.%m.%Y", "%Y-%m-%d", "%Y/%m/%d"):
        cells = "".join(f"{at:{form}};{at:%H:%M};1\n" for at in wall())
        path = write(tmp_path / "a.csv", f"Date;Time;y\n{cells}")
        with pytest.raises(UsageError) as refused:
            take(tmp_path / "t", path)
        extra = "" if form[1] == "Y" else " --time-format '%d.%m.%Y %H:%M'"
        assert refused.value.hint is not None and f"--time 'Date,Time'{extra}" in refused.value.hint
    cells = "".join(f"{at:%Y-%m-%d};{at.hour * 2 + at.minute // 30 + 1};1\n" for at in wall())
    path = write(tmp_path / "b.csv", f"Date;Settlement Period;y\n{cells}")
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", path)
    assert refused.value.hint is not None and "--time 'Date,Settlement Period'" in refused.value.hint


def test_dates_of_a_format_beside_periods(tmp_path: Path) -> None:
    cells = "".join(f"{at:%d-%b-%Y};{at.hour * 2 + at.minute // 30 + 1};1\n" for at in wall())
    path = write(tmp_path / "a.csv", f"DATE;SETTLEMENT_PERIOD;y\n{cells}")
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", path, time="DATE,SETTLEMENT_PERIOD")
    assert names(refused.value.hint, "--time-format %d-%b-%Y")
    for _ in range(2):
        take(tmp_path / "t", path, time="DATE,SETTLEMENT_PERIOD", time_format="%d-%b-%Y")
    assert rows(tmp_path / "t")["DATE,SETTLEMENT_PERIOD"].to_list() == wall()


def test_dates_and_times_of_parquet_and_of_a_workbook(tmp_path: Path) -> None:
    times = wall()
    columns = {"Date": [at.date() for at in times], "Time": [at.time() for at in times], "y": range(len(times))}
    pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        sheet, day = book.add_worksheet(), book.add_format({"num_format": "dd.mm.yyyy"})
        clock = book.add_format({"num_format": "hh:mm"})
        sheet.write_row(0, 0, ["Date", "Time", "y"])
        for row, at in enumerate(times, 1):
            sheet.write_datetime(row, 0, datetime.combine(at, time()), day)
            sheet.write_datetime(row, 1, at.time(), clock)
            sheet.write(row, 2, row)
    for suffix in ("parquet", "xlsx"):
        take(tmp_path / suffix, tmp_path / f"a.{suffix}", time="Date,Time")
        assert rows(tmp_path / suffix)["Date,Time"].to_list() == times


def test_a_name_with_a_comma_is_a_name(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", '"Date,Time",Date,Time\n2024-01-01,2024-02-02,00:30\n2024-01-02,2024-02-02,01:00\n'
    )
    take(tmp_path / "t", path, time="Date,Time")
    assert rows(tmp_path / "t")["Date,Time"].to_list() == [datetime(2024, 1, 1), datetime(2024, 1, 2)]


@pytest.mark.sampled
@pytest.mark.parametrize("every", [None, "30m"])
@pytest.mark.parametrize("start", [datetime(2024, 3, 29), datetime(2024, 10, 25)])
def test_settlement_periods_through_a_change_of_the_clock(start: datetime, every: str | None, tmp_path: Path) -> None:
    frame = halves(start, 5)
    assert frame["Period"].max() == (50 if start.month == 10 else 48) and len(frame) == 240 + (
        2 if start.month == 10 else -2
    )
    frame.drop("at").write_csv(tmp_path / "a.csv")
    given: dict[str, Any] = {"time": "Date,Period", "every": every}
    take(tmp_path / "t", tmp_path / "a.csv", timezone="Europe/London", **given)
    assert rows(tmp_path / "t")["Date,Period"].to_list() == frame["at"].to_list()
    assert Table.open(tmp_path / "t").meta.every_ns == 1800 * 10**9
    with pytest.raises((DataError, UsageError)) as refused:  # by a clock that is never changed they are no times
        take(tmp_path / "u", tmp_path / "a.csv", **given)
    assert names(refused.value.hint, "--timezone")


@pytest.mark.sampled
@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Australia/Sydney", "Australia/Lord_Howe"])
@pytest.mark.parametrize("count", [24, 48])
@pytest.mark.parametrize("style", ["counted", "shown", "extra"])
def test_numbers_of_a_clock_that_is_changed_as_sources_have_them(zone: str, count: int, style: str) -> None:
    """Counted through the day, as the clock shows them, or with one beyond the last for those that come twice."""
    local, minutes, cells, series, expected = ZoneInfo(zone), 1440 // count, [], [], []
    if zone.endswith("Howe") and count == 24:  # its days have half an hour more
        return
    for month, first in ((3, 29), (4, 5), (9, 30), (10, 4), (10, 26), (11, 2), (3, 9)):
        for at in range(3):
            day = datetime(2024, month, first) + timedelta(days=at)
            begin, end = (one.replace(tzinfo=local).astimezone(UTC) for one in (day, day + timedelta(days=1)))
            instants = [
                begin + timedelta(minutes=minutes * k)
                for k in range(int((end - begin).total_seconds()) // 60 // minutes)
            ]
            shown = [(t.astimezone(local).hour * 60 + t.astimezone(local).minute) // minutes + 1 for t in instants]
            again = [k for k, number in enumerate(shown) if number in shown[:k]]
            numbers = [*range(1, len(shown) + 1)] if style == "counted" else list(shown)
            if style == "extra":
                for k, place in enumerate(again, count + 1):
                    numbers[place] = k
            cells += [f"{day:%Y-%m-%d} period {number}" for number in numbers for _ in "ab"]
            series += [name for _ in numbers for name in "ab"]
            expected += [instant for instant in instants for _ in "ab"]
    clock = Clock("period", f"period-{count}", zone, localise=True)
    for size in (len(cells), 19):  # blocks do not matter
        reader, found = TimeReader(clock), []
        for start in range(0, len(cells), size):
            part = slice(start, start + size)
            found += reader.read(pa.array(cells[part]), pa.array(series[part])).values.to_pylist()
        assert found == expected


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["HE", "Hr_End", "HourEnding", "hour_ending", "Hour", "Heure"])
@pytest.mark.parametrize("month", [3, 11])
def test_hours_that_end_are_found_by_any_name_and_read_as_the_clock_has_them(
    name: str, month: int, tmp_path: Path
) -> None:
    zone = ZoneInfo("America/New_York")
    begin = datetime(2024, month, 1, 5 if month == 3 else 4, tzinfo=UTC)
    instants = [begin + timedelta(hours=at) for at in range(23 + 13 * 24 if month == 3 else 25 + 13 * 24)]
    lines = [f"{t.astimezone(zone):%Y-%m-%d},{t.astimezone(zone).hour + 1},{at}\n" for at, t in enumerate(instants)]
    path = write(tmp_path / "a.csv", f"Date,{name},Load\n{''.join(lines[:200])}")
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", path)
    assert names(refused.value.hint, f"--time 'Date,{name}'")
    given: dict[str, Any] = {"time": f"Date,{name}", "timezone": "America/New_York"}
    for end in (len(lines), 221, 223):  # also where a run ends within the day
        path = write(tmp_path / "a.csv", f"Date,{name},Load\n{''.join(lines[:end])}")
        table = tmp_path / f"t{end}"
        assert take(table, path, **given)["quarantined"] == {}
        assert take(table, write(path, f"Date,{name},Load\n{''.join(lines)}"), **given)["quarantined"] == {}
        assert rows(table)[f"Date,{name}"].to_list() == instants


@pytest.mark.sampled
@pytest.mark.parametrize("minutes", [60, 30])
@pytest.mark.parametrize("month", [3, 11])
@pytest.mark.parametrize("mark", ["", "*", "X"])
@pytest.mark.parametrize("form", [None, "%m/%d/%Y"])
def test_ends_of_periods_are_read_as_their_numbers(
    minutes: int, month: int, mark: str, form: str | None, tmp_path: Path
) -> None:
    """01:00 to 24:00, and 02:00* where the clock shows it again; the interval is that of the rows."""
    zone = ZoneInfo("America/New_York")
    begin = datetime(2024, month, 1, 5 if month == 3 else 4, tzinfo=UTC)
    hours = 23 + 13 * 24 if month == 3 else 25 + 13 * 24
    instants = [begin + timedelta(minutes=minutes * at) for at in range(hours * 60 // minutes)]
    lines = []
    for at, instant in enumerate(instants):
        local = instant.astimezone(zone)
        end = (local.hour * 60 + local.minute) // minutes * minutes + minutes
        cell = f"{end // 60:02d}:{end % 60:02d}{mark if local.fold else ''}"
        lines.append(f"{local:{form or '%Y/%m/%d'}},{cell},{at}\n")
    path = write(tmp_path / "a.csv", f"Date,Hour Ending,Load\n{''.join(lines)}")
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", path)
    assert refused.value.hint is not None
    assert ("--time-format '%m/%d/%Y'" if form else "--time 'Date,Hour Ending';") in refused.value.hint
    given: dict[str, Any] = {"time": "Date,Hour Ending", "time_format": form, "timezone": "America/New_York"}
    assert take(tmp_path / "t", path, **given)["quarantined"] == {}
    assert rows(tmp_path / "t")["Date,Hour Ending"].to_list() == instants
    assert Table.open(tmp_path / "t").meta.every_ns == minutes * 60 * 10**9


def test_a_mark_behind_the_first_rows_of_a_file_is_read(tmp_path: Path) -> None:
    zone, begin = ZoneInfo("America/New_York"), datetime(2024, 9, 1, 4, tzinfo=UTC)
    local = [(begin + timedelta(hours=at)).astimezone(zone) for at in range(1 + 91 * 24)]
    lines = [f"{t:%Y-%m-%d},{t.hour + 1:02d}{'*' * t.fold},{at}\n" for at, t in enumerate(local)]
    path = write(tmp_path / "a.csv", f"Date,HE,Load\n{''.join(lines)}")
    assert take(tmp_path / "t", path, time="Date,HE", timezone="America/New_York")["quarantined"] == {}
    assert rows(tmp_path / "t")["Date,HE"].to_list() == [one.astimezone(UTC) for one in local]


def test_a_panel_of_days_is_told_how_to_name_its_series(tmp_path: Path) -> None:
    lines = "".join(f"2024-05-{day:02d},{site},{day * site}\n" for day in range(1, 8) for site in range(1, 25))
    path = write(tmp_path / "a.csv", f"date,site,y\n{lines}")
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", path)
    assert names(refused.value.hint, "--series 'site'")
    assert take(tmp_path / "t", path, series="site")["added"] == 168


def test_periods_that_no_day_has_are_put_aside(tmp_path: Path) -> None:
    frame = halves(datetime(2024, 3, 29), 5).drop("at")
    lines = (
        frame.write_csv() + "2024-04-03,0,1\n2024-04-03,49,1\n2024-03-31,47,1\n2024-04-03,x,1\n,1,1\n2024-04-03,1,7\n"
    )
    summary = take(
        tmp_path / "t", write(tmp_path / "a.csv", lines), time="Date,Period", timezone="Europe/London", every="30m"
    )
    assert summary["quarantined"] == {"no time": 1, "out of range": 3, "unparsable": 1}
    assert len(quarantine(tmp_path / "t")) == 5 and rows(tmp_path / "t").height == 239


@pytest.mark.sampled
@pytest.mark.parametrize(("periods", "every"), [(24, "1h"), (48, "30min"), (96, "15min")])
def test_periods_without_a_zone_shuffled_and_of_several_series(periods: int, every: str, tmp_path: Path) -> None:
    times = wall(4, 1440 // periods)
    first = [{"Date": at.date(), "Period": i % periods + 1, "site": "a", "at": at} for i, at in enumerate(times)]
    frame = pl.DataFrame([*first, *({**row, "site": "b"} for row in first)]).sample(fraction=1, shuffle=True, seed=2)
    frame.with_columns(y=pl.int_range(pl.len())).drop("at").write_csv(tmp_path / "a.csv")
    summary = take(tmp_path / "t", tmp_path / "a.csv", time="Date,Period", series="site")
    assert rows(tmp_path / "t")["Date,Period"].to_list() == frame["at"].to_list()
    assert any(names(hint, f"'Date,Period' {periods} --timezone") for hint in summary["hints"])
    with pytest.raises(TableError):
        take(tmp_path / "t", tmp_path / "a.csv", every="7m")


def test_hours_from_0_are_those_of_the_wall(tmp_path: Path) -> None:
    """An hour that occurs twice is 23 o'clock and the like in any zone; one that was skipped is none."""
    cells = "".join(f"2024-10-{day},{hour},1\n" for day in (26, 27, 28) for hour in [*range(3), *range(2, 24)])
    path = write(tmp_path / "a.csv", f"Date,Hour,y\n{cells}")
    take(tmp_path / "t", path, time="Date,Hour", timezone="Europe/Berlin", every="1h")
    found = rows(tmp_path / "t")["Date,Hour"].dt.convert_time_zone("Europe/Berlin")
    assert found.dt.hour().to_list()[:3] == [0, 1, 2] and found.filter(found.dt.day() == 27).len() == 25


@pytest.mark.parametrize("cells", ["1,2,3", "0,15,2345", "a,b,c", "1.5,2,3"])
def test_numbers_that_do_not_say_how_many_a_day_has_are_refused(cells: str, tmp_path: Path) -> None:
    text = "Date,Period,y\n" + "".join(f"2024-01-01,{cell},1\n" for cell in cells.split(","))
    with pytest.raises((UsageError, DataError)) as refused:
        take(tmp_path / "t", write(tmp_path / "a.csv", text), time="Date,Period")
    assert refused.value.hint


def test_describe_reads_both_and_says_what_seems_to_be(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    halves(datetime(2024, 1, 1), 3).drop("at").write_csv(path)
    found: Any = describe_file(DescribeConfig(source=path))
    assert "--time 'Date,Period'" in found["note"] and len(found["columns"]) == 3
    found = describe_file(DescribeConfig(source=path, time="Date,Period"))
    assert [one["column"] for one in found["columns"]] == ["Date,Period", "y"]
    assert found["columns"][0]["type"] == "timestamp[us]"


@pytest.mark.sampled
@pytest.mark.parametrize("second", ["Period", "Time"])
def test_a_forecaster_reads_both(second: str, tmp_path: Path) -> None:
    times = wall(8)
    clock: list[Any] = (
        [i % 48 + 1 for i in range(len(times))] if second == "Period" else [f"{at:%H:%M}" for at in times]
    )
    frame = pl.DataFrame({"Date": [at.date() for at in times], second: clock, "y": [float(i % 48) for i in range(384)]})
    frame = frame.with_columns(k=pl.col("y") / 2)
    given: dict[str, Any] = {"known": "k", "lags": 4, "model": "linear", "every": "30m", "batch": 96}
    given["time"] = ["Date", second]
    learned = Forecaster("y", **given).learn(frame[:200]).learn(frame[200:383])
    found = learned.forecast(future=frame[383:])
    assert found["ds"].to_list() == times[383:]
    learned.save(tmp_path / "c")
    assert streamgp.load(tmp_path / "c").learn(frame[383:]).rows == 384


def test_a_date_in_three_columns_is_joined_with_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "No,year,month,day,hour,y\n1,2024,1,31,23,5\n2,2024,2,1,0,6\n")
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", path)
    df = pd.read_csv(path)
    exec(str(refused.value.hint).partition("such as with ")[2], {"df": df, "pandas": pd})
    assert df["ds"].tolist() == [datetime(2024, 1, 31, 23), datetime(2024, 2, 1)]
