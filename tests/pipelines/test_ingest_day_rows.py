"""Ingest: a row a day, of which columns are the hours or the quarters of these."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
import xlsxwriter

from streamgp import Forecaster, compare
from streamgp.errors import DataError, UsageError
from streamgp_data.sources import csv
from streamgp_pipelines.config import DescribeConfig
from streamgp_pipelines.describe_file import describe_file
from tests.pipelines.ingesting import quarantine, rows, take, write

pytestmark = pytest.mark.usefixtures("read_here")

MADRID = ZoneInfo("Europe/Madrid")
SPRING, AUTUMN = date(2024, 3, 29), date(2024, 10, 25)


def instants(day: date, minutes: int = 60) -> list[datetime]:
    """Of the periods of a day in Madrid, in UTC."""
    first, last = (datetime.combine(one, time(), MADRID).astimezone(UTC) for one in (day, day + timedelta(days=1)))
    return [first + timedelta(minutes=minutes * at) for at in range(int((last - first) / timedelta(minutes=minutes)))]


def value(at: datetime) -> float:
    return round((at - datetime(2024, 1, 1, tzinfo=UTC)) / timedelta(minutes=15)) / 4


def text(heads: list[str], days: dict[date, list[datetime | None]], form: str = "%Y-%m-%d") -> str:
    """A CSV of a row a day; where there is no instant a cell is empty."""
    lines = [",".join(["Date", *heads])]
    for day, cells in days.items():
        lines.append(",".join([f"{day:{form}}", *("" if at is None else str(value(at)) for at in cells)]))
    return "\n".join(lines) + "\n"


def counted(start: date, width: int, minutes: int = 60, days: int = 5) -> dict[date, list[datetime | None]]:
    """Days whose periods are counted, also where the clock is changed."""
    found: dict[date, list[datetime | None]] = {}
    for day in (start + timedelta(days=at) for at in range(days)):
        cells = instants(day, minutes)
        found[day] = [*cells, *[None] * (width - len(cells))]
    return found


def by_the_clock(start: date, again: int | None) -> dict[date, list[datetime | None]]:
    """Days whose hours are those of the clock, with a column behind hour `again` for the second of two."""
    found: dict[date, list[datetime | None]] = {}
    for day in (start + timedelta(days=at) for at in range(5)):
        shown: dict[int, list[datetime]] = {}
        for at in instants(day):
            shown.setdefault(at.astimezone(MADRID).hour, []).append(at)
        cells: list[datetime | None] = []
        for hour in range(24):
            both: list[datetime | None] = [*shown.get(hour, []), None, None]
            cells += both[:2] if hour == again else both[:1]
        found[day] = cells
    return found


NUMBERED = [[f"H{k}" for k in range(1, 25 + more)] for more in (0, 1)]
CLOCK = [f"{at // 60:02d}:{at % 60:02d}" for at in range(0, 1440, 15)]
CASES: dict[str, tuple[list[str], dict[date, list[datetime | None]], str]] = {
    "25 columns in autumn": (NUMBERED[1], counted(AUTUMN, 25), "%d/%m/%Y"),
    "25 columns in spring": (NUMBERED[1], counted(SPRING, 25), "%Y-%m-%d"),
    "24 counted in spring": (NUMBERED[0], counted(SPRING, 24), "%Y%m%d"),
    "100 quarters": ([f"Q{k:03d}" for k in range(1, 101)], counted(AUTUMN, 100, 15), "%m/%d/%Y"),
    "hour 3 is empty": (NUMBERED[0], by_the_clock(SPRING, None), "%d.%m.%Y"),
    "hour 3 is there twice": (
        ["Hour 1", "Hour 2", "Hour 3A", "Hour 3B", *(f"Hour {k}" for k in range(4, 25))],
        by_the_clock(AUTUMN, 2),
        "%Y-%m-%d",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("case", list(CASES))
def test_days_of_23_and_25_hours_are_right(case: str, tmp_path: Path) -> None:
    heads, days, form = CASES[case]
    path = write(tmp_path / "a.csv", text(heads, days, form))
    every = [at for cells in days.values() for at in cells if at is not None]
    summary = take(tmp_path / "t", path, timezone="Europe/Madrid")
    assert summary["quarantined"] == {} and summary["rows"] == len(every)
    found = rows(tmp_path / "t").rename(lambda name: "at" if name.startswith("Date,") else name).sort("at")
    assert found["at"].to_list() == sorted(every) and found["y"].to_list() == sorted(map(value, every))
    assert "--signals '*' keeps them" in summary["hints"][0]
    last = {day: cells for day, cells in days.items() if day == max(days)}
    more = write(tmp_path / "b.csv", text(heads, last, form))  # one day is enough where the table has such rows
    assert take(tmp_path / "t", more, timezone="Europe/Madrid")["duplicates"] == sum(
        at is not None for at in last[max(last)]
    )


def right(table: Path) -> bool:
    """Whether all rows of a table have the instants of their values."""
    found = rows(table)
    return found["y"].to_list() == [value(at) for at in found["Date,hour"]]


@pytest.mark.sampled
@pytest.mark.parametrize("days", [counted(AUTUMN, 25), counted(SPRING, 24), by_the_clock(SPRING, None)])
@pytest.mark.parametrize("later", ["file", "block"])
def test_each_day_says_what_its_numbers_are(
    days: dict[date, list[datetime | None]], later: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "SAMPLE", 1000)
    width = max(map(len, days.values()))
    before = counted(min(days) - timedelta(days=20), width if later == "block" else 24, days=20)
    parts = [before | days] if later == "block" else [before, days]
    for at, part in enumerate(parts):
        heads = NUMBERED[len(next(iter(part.values()))) - 24]
        take(tmp_path / "t", write(tmp_path / f"{at}.csv", text(heads, part)), timezone="Europe/Madrid")
    assert right(tmp_path / "t") and rows(tmp_path / "t").height == sum(
        at is not None for cells in (before | days).values() for at in cells
    )


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("start", "heads", "empty", "filled"),
    [
        (AUTUMN, 24, (), ()),  # an hour of 25 has no column
        (AUTUMN, 25, (24,), ()),  # the second 2:00, or the last of the day
        (SPRING, 24, (), (23,)),  # 24 of 23 hours
        (SPRING, 24, (2,), ()),  # the one that is skipped, or lacks its value
    ],
)
def test_a_day_that_does_not_say_which_hours_it_has_is_put_aside(
    start: date, heads: int, empty: tuple[int, ...], filled: tuple[int, ...], tmp_path: Path
) -> None:
    days = counted(start, heads)
    cells = days[start + timedelta(days=2)] = days[start + timedelta(days=2)][:heads]
    for at in (*empty, *filled):
        cells[at] = cells[0] if at in filled else None
    path = write(tmp_path / "a.csv", text(NUMBERED[heads - 24], days))
    assert take(tmp_path / "t", path, timezone="Europe/Madrid")["quarantined"] == {"unclear day": 1}
    assert right(tmp_path / "t") and rows(tmp_path / "t").height == 4 * 24
    aside = quarantine(tmp_path / "t").row(0, named=True)
    assert aside["line"] == 4 and f'"H2": {value(instants(start + timedelta(days=2))[1])}' in aside["row"]


def test_a_day_that_lacks_its_last_hour_is_put_aside_where_no_zone_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "SAMPLE", 1000)
    days = counted(date(2024, 3, 11), 24, days=22)
    take(tmp_path / "t", write(tmp_path / "a.csv", text(NUMBERED[0], days)))
    aside = quarantine(tmp_path / "t")["reason"].to_list()
    assert aside == ["unclear day"] and rows(tmp_path / "t").height == 21 * 24


def test_days_and_months_are_not_guessed(tmp_path: Path) -> None:
    days = counted(date(2024, 1, 1), 24)
    path = write(tmp_path / "a.csv", text(NUMBERED[0], days, "%m/%d/%Y"))
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", path)
    assert refused.value.hint == "say --time-format '%m/%d/%Y' or '%d/%m/%Y'"
    assert "may be the other way round" in str(describe_file(DescribeConfig(source=path))["note"])
    take(tmp_path / "t", path, time_format="%m/%d/%Y")
    assert rows(tmp_path / "t")["Date,hour"][-1] == datetime(2024, 1, 5, 23)


@pytest.mark.sampled
@pytest.mark.parametrize("case", ["25 columns in autumn", "hour 3 is there twice", "24 counted in spring"])
def test_a_changed_clock_without_a_zone_is_refused(case: str, tmp_path: Path) -> None:
    heads, days, _ = CASES[case]
    with pytest.raises(DataError, match="where the clock is changed") as refused:
        take(tmp_path / "t", write(tmp_path / "a.csv", text(heads, days)))
    assert refused.value.hint is not None and "--timezone Europe/" in refused.value.hint


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("heads", "minutes"),
    [
        ([str(k) for k in range(1, 25)], 60),
        ([str(k) for k in range(24)], 60),
        ([f"HE{k:02d}" for k in range(1, 25)], 60),
        ([f"Hour Ending {k}" for k in range(1, 25)], 60),
        ([f"{k:02d}:00" for k in range(1, 25)], 60),
        ([f"{k:02d}:00-{k + 1:02d}:00" for k in range(24)], 60),
        (CLOCK, 15),
        ([*CLOCK[1:], "00:00"], 15),
    ],
)
def test_columns_of_hours_are_rows(heads: list[str], minutes: int, tmp_path: Path) -> None:
    start, count = datetime(2024, 1, 1), 1440 // minutes
    lines = [
        f"{start + timedelta(days=d):%Y-%m-%d},north,{','.join(str(d * count + k) for k in range(count))}"
        for d in range(3)
    ]
    path = write(tmp_path / "a.csv", "\n".join([",".join(["Date", "unique_id", *heads]), *lines]) + "\n")
    take(tmp_path / "t", path)
    found = rows(tmp_path / "t")
    assert found.columns == ["_seq", f"Date,{'hour' if minutes == 60 else 'period'}", "unique_id", "y"]
    assert found.rows()[:] == [(k, start + timedelta(minutes=minutes * k), "north", float(k)) for k in range(3 * count)]
    note: Any = describe_file(DescribeConfig(source=path))["note"]
    assert "are read as the" in note


def test_a_workbook_of_hours(tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        sheet, day = book.add_worksheet(), book.add_format({"num_format": "dd.mm.yyyy"})
        sheet.write_row(0, 0, ["Date", *range(1, 26)])
        for row, (one, cells) in enumerate(counted(AUTUMN, 25).items(), 1):
            sheet.write_datetime(row, 0, datetime.combine(one, time()), day)
            sheet.write_row(row, 1, [None if at is None else value(at) for at in cells])
    assert take(tmp_path / "t", tmp_path / "a.xlsx", timezone="Europe/Madrid")["quarantined"] == {}
    assert rows(tmp_path / "t")["Date,hour"].to_list() == [
        at for d in range(5) for at in instants(AUTUMN + timedelta(days=d))
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("ends", [False, True])
def test_a_workbook_with_times_for_titles(ends: bool, tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        sheet, day = book.add_worksheet(), book.add_format({"num_format": "dd.mm.yyyy"})
        clock = book.add_format({"num_format": "hh:mm"})
        sheet.write(2, 0, "Datum")
        for at in range(96):
            sheet.write(2, at + 1, (at + ends) / 96, clock)  # a part of a day; 1 is 24:00
        for row in range(3):
            sheet.write_datetime(3 + row, 0, datetime(2024, 1, 1 + row), day)
            sheet.write_row(3 + row, 1, range(96 * row, 96 * row + 96))
    take(tmp_path / "t", tmp_path / "a.xlsx")
    found = rows(tmp_path / "t").select("Datum,period", "y").rows()
    assert found == [(datetime(2024, 1, 1) + timedelta(minutes=15 * k), float(k)) for k in range(288)]


def test_a_cell_that_is_no_number_goes_to_the_quarantine_alone(tmp_path: Path) -> None:
    lines = [[f"2024-01-0{d}", *map(str, range(24))] for d in range(1, 5)]
    lines[1][3], lines[1][7], lines[1][8], lines[2][9] = "n/e", "-", "", ""
    path = write(
        tmp_path / "a.csv", "\n".join(map(",".join, [["Date", *NUMBERED[0]], *lines])) + "\nonly,three,cells\n"
    )
    assert take(tmp_path / "t", path)["quarantined"] == {"unparsable": 2, "ragged": 1}
    assert rows(tmp_path / "t").height == 4 * 24 - 4  # an empty cell is no row
    aside = quarantine(tmp_path / "t").select("line", "column", "detail").rows()
    assert aside[0] == (3, "H3", "'n/e' is not a number") and aside[1] == (3, "H7", "'-' is not a number")
    with path.open("a") as file:
        file.write(f"soon{',1' * 24}\nonly,two\n")
    assert take(tmp_path / "t", path)["quarantined"] == {"unparsable": 1, "ragged": 1}  # a day is a row
    take(tmp_path / "u", path, null=["-"], time="Date,hour")
    assert quarantine(tmp_path / "u")["column"].to_list() == ["H3", "", "Date,hour", ""]
    lines[1][3] = lines[1][7] = "-9.0"
    path = write(tmp_path / "b.csv", "\n".join(map(",".join, [["Date", *NUMBERED[0]], *lines])) + "\n")
    assert take(tmp_path / "v", path, null=["-9"])["quarantined"] == {}
    assert rows(tmp_path / "v").height == 4 * 24 - 4


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{}, {"melt": ["H*"]}, {"repair": True}])
def test_half_a_line_of_several_rows_is_not_repaired(options: dict[str, Any], tmp_path: Path) -> None:
    whole = text(NUMBERED[0], counted(date(2024, 1, 1), 24))
    path, first = write(tmp_path / "a.csv", whole[:-3]), {key: one for key, one in options.items() if key == "melt"}
    take(tmp_path / "t", path, final=True, **first)
    path.write_text(whole)
    with pytest.raises(DataError, match=r"line 6: .* rows of half a line") as refused:
        take(tmp_path / "t", path, **options)
    assert "into a new table" in str(refused.value.hint)


def test_a_column_of_whole_days_is_named(tmp_path: Path) -> None:
    lines = [f"2024-01-0{day},7,{','.join(map(str, range(24)))},{day}" for day in range(1, 4)]
    path = write(tmp_path / "a.csv", "\n".join([",".join(["Date", "zone", *NUMBERED[0], "Total"]), *lines]) + "\n")
    assert "; 'Total' may say of a whole day" in take(tmp_path / "t", path)["hints"][0]


def test_a_table_of_other_rows_refuses_columns_of_hours(tmp_path: Path) -> None:
    hours, days = (
        write(tmp_path / "h.csv", text(NUMBERED[0], counted(date(2024, 1, 1), 24))),
        "Date,temp\n2024-01-01,1\n",
    )
    take(tmp_path / "t", hours)
    quarters = write(tmp_path / "q.csv", text(CLOCK, counted(date(2024, 2, 1), 96, 15)))
    with pytest.raises(DataError, match="are 15min apart, and the rows of the table 1h apart"):
        take(tmp_path / "t", quarters)
    take(tmp_path / "u", write(tmp_path / "d.csv", days))
    with pytest.raises(DataError, match="it has no 'temp', but 'H1'") as refused:
        take(tmp_path / "u", hours)
    assert "--time" not in str(refused.value.hint)


DAYS = [f"2024-01-{day:02d}" for day in range(1, 21)]
HOURS = [[day, f"{hour:02d}:00"] for day in DAYS[:3] for hour in range(24)]
MONTHS = [f"20{year}-{month:02d}-01" for year in (22, 23) for month in range(1, 13)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("names", "heads", "keys", "options"),
    [
        (["Date", "Time"], range(1, 25), HOURS, {"time": "Date,Time"}),  # zones of hourly rows
        (["Date", "Hour"], [f"h{k}" for k in range(1, 25)], [[a, b[:2]] for a, b in HOURS], {"time": "Date,Hour"}),
        (["Date"], [f"h{k}" for k in range(1, 25)], [[month] for month in MONTHS], {}),
        (["Date"], [f"Q{k}" for k in range(1, 25)], [[day] for day in DAYS], {}),  # questions
        (["Date"], [f"std{k}" for k in range(1, 25)], [[day] for day in DAYS], {}),
        (["Date"], [f"h{k}" for k in range(1, 49)], [[day] for day in DAYS], {}),  # steps ahead
        (["Date"], range(1, 25), [[day] for day in DAYS], {"every": "1d", "time": "Date"}),
        (["Date"], range(1, 25), [[day] for day in DAYS[:1]], {}),
    ],
)
def test_what_may_be_no_hours_stays(names: Any, heads: Any, keys: Any, options: Any, tmp_path: Path) -> None:
    lines = [[*names, *map(str, heads)], *([*key, *(["1.5"] * len(heads))] for key in keys)]
    hints = take(tmp_path / "t", write(tmp_path / "a.csv", "\n".join(map(",".join, lines)) + "\n"), **options)["hints"]
    assert any("--time 'Date,hour'" in hint for hint in hints) == (keys[0] in ([MONTHS[0]], keys[-1]))
    assert rows(tmp_path / "t").height == len(keys) and {*map(str, heads)} <= {*rows(tmp_path / "t").columns}


def test_columns_that_are_asked_for_stay_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", text(NUMBERED[0], counted(date(2024, 1, 1), 24)))
    take(tmp_path / "t", path, signals="*")
    assert rows(tmp_path / "t").columns == ["_seq", "Date", *NUMBERED[0]]
    take(tmp_path / "t", path, as_name="again")  # the table has these columns
    inputs = write(tmp_path / "c.csv", "Date,y," + ",".join(NUMBERED[0]) + "\n2024-01-01" + ",1" * 25 + "\n")
    take(tmp_path / "v", inputs)  # a target of days, and inputs of hours
    assert rows(tmp_path / "v").height == 1
    hourly = write(
        tmp_path / "b.csv",
        "ds,"
        + ",".join(map(str, range(1, 25)))
        + "\n"
        + "".join(f"2024-01-01T{hour:02d}:00:00,{','.join(map(str, range(24)))}\n" for hour in range(24)),
    )
    take(tmp_path / "u", hourly)  # rows are hours: what is numbered are zones
    assert rows(tmp_path / "u").height == 24


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["polars", "pandas", "pandas with an index"])
def test_a_frame_is_told_how_to_make_rows(kind: str, tmp_path: Path) -> None:
    wide: Any = pl.read_csv(text(NUMBERED[0], counted(date(2024, 1, 1), 24, days=10)).encode())
    df = wide if kind == "polars" else wide.to_pandas()
    df = df.set_index("Date") if "index" in kind else df
    for ask in (lambda: Forecaster(target="value").fit(df), lambda: compare(df, "y", comparison=tmp_path / "c")):
        with pytest.raises(UsageError, match="are the hours of a day") as refused:
            ask()
    hint = str(refused.value.hint)
    made, _, rest = hint.removeprefix("make rows of them: df = ").partition("; then ")
    found = eval(rest, {"df": eval(made, {"df": df}), "Forecaster": Forecaster})
    assert found.rows == 10 * 24 and found.forecast()["ds"][0] == datetime(2024, 1, 11)
    assert Forecaster("H7", model="linear").fit(df).rows == 10  # columns stay those of the frame


def test_other_frames_are_not_told_so(tmp_path: Path) -> None:
    zones = {str(k): [1.0] * 96 for k in range(1, 25)}
    hourly = {"ds": [datetime(2024, 1, 1) + timedelta(hours=at) for at in range(96)], "Power [kW]": [2.0, 1.0] * 48}
    assert Forecaster("Power", model="linear").fit(hourly | zones).rows == 96
    daily = pl.DataFrame({"Date": DAYS, "load": [1.0] * 20} | {f"h{k}": [1.0] * 20 for k in range(1, 25)})
    for frame, options in ((daily, {}), (daily.drop("Date"), {"time": "row"}), (hourly | zones, {})):
        with pytest.raises(UsageError, match="has no column 'laod'"):
            Forecaster("laod", **options).fit(frame)
