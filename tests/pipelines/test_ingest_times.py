"""Ingest: times as people and programs write them, found by themselves, or named by the hint."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
import xlsxwriter

from streamgp.errors import DataError, UsageError
from streamgp_data.table import Table
from tests.pipelines.ingesting import quarantine, rows, take, write
from tests.words import names

pytestmark = pytest.mark.usefixtures("read_here")

START = datetime(2024, 1, 1)
TIMES = [START + timedelta(minutes=15 * at) for at in range(8)]
SCALES = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("unit", SCALES)
def test_an_epoch_with_the_name_of_a_time_is_the_time(unit: str, suffix: str, tmp_path: Path) -> None:
    numbers = [int(time.replace(tzinfo=UTC).timestamp()) * SCALES[unit] for time in TIMES]
    frame = pl.DataFrame({"Time": numbers, "kW": [at / 2 for at in range(8)], "count": [1_704_067_200] * 8})
    path = tmp_path / f"a{suffix}"
    {".csv": frame.write_csv, ".jsonl": frame.write_ndjson, ".parquet": frame.write_parquet}[suffix](path)
    summary = take(tmp_path / "t", path)
    assert rows(tmp_path / "t")["Time"].to_list() == [time.replace(tzinfo=UTC) for time in TIMES]
    assert f"'Time' is read as {unit} since 1970" in summary["hints"][0]
    again = take(tmp_path / "t", path)
    assert (again["added"], again["hints"]) == (0, [])
    take(tmp_path / "u", path, time="Time")
    assert rows(tmp_path / "u").equals(rows(tmp_path / "t"))


@pytest.mark.parametrize(
    ("name", "cells", "words"),
    [
        ("t", [0.0, 0.1, 0.2], "'t' elapsed-s"),
        ("time_ms", [5, 10, 15], "'time_ms' elapsed-ms steps"),
        ("Time [us]", [5.5, 10.0, 15.0], "elapsed-us"),
        ("t", [0.3, 0.1, 0.2], "--time COLUMN"),
        ("length", [0.0, 0.1, 0.2], "--time COLUMN"),
    ],
)
def test_time_that_counts_from_a_start_is_named(name: str, cells: list[float], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none of the columns") as refused:
        take(tmp_path / "t", write(tmp_path / "a.csv", f"{name},y\n" + "".join(f"{cell},1\n" for cell in cells)))
    assert names(refused.value.hint, words)


def test_a_file_without_rows_is_not_told_of_a_header_alone(tmp_path: Path) -> None:
    pl.DataFrame(schema={"ds": pl.Datetime, "y": pl.Float64}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no source has a row") as refused:
        take(tmp_path / "t", tmp_path / "a.parquet")
    assert names(refused.value.hint, "one row")


def test_whole_numbers_with_a_fraction_that_are_read_as_steps_are_said_to(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ds,y\n0.0,1\n1.0,2\n2.0,3\n")
    assert any(names(hint, "'ds' steps 0.0 elapsed-s") for hint in take(tmp_path / "t", path)["hints"])
    assert take(tmp_path / "u", write(tmp_path / "b.csv", "ds,y\n0,1\n1,2\n"))["hints"] == []


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("count", [1_704_067_200, 1_704_067_260]),
        ("time", [1, 2]),
        ("time", [4e8, 5e8]),
    ],
)
def test_other_numbers_are_no_time_by_themselves(name: str, cells: list[object], tmp_path: Path) -> None:
    text = "".join(f"{cell},1\n" for cell in cells)
    with pytest.raises(UsageError, match="none of the columns"):
        take(tmp_path / "t", write(tmp_path / "a.csv", f"{name},y\n{text}"))


def test_dates_win_over_an_epoch(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", "time,day,y\n1704067200,2024-01-01,1\n1704153600,2024-01-02,2\n"))
    assert Table.open(tmp_path / "t").meta.time == "day"


def test_the_first_message_names_the_format_of_a_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "Zeitstempel;kW;leer\n31.12.2024 23:45;1,5;\n01.01.2025 00:00;2,5;\n")
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", path)
    assert refused.value.hint.startswith("it looks like --time 'Zeitstempel' --time-format '%d.%m.%Y %H:%M';")
    assert names(refused.value.hint, "--timezone --every")
    take(tmp_path / "t", path, time="Zeitstempel", time_format="%d.%m.%Y %H:%M")
    assert rows(tmp_path / "t")["Zeitstempel"].to_list() == [datetime(2024, 12, 31, 23, 45), datetime(2025, 1, 1)]


@pytest.mark.sampled
@pytest.mark.parametrize("file", ["comma.csv", "point.csv", "a.jsonl", "a.parquet", "a.xlsx"])
def test_days_of_a_workbook_in_every_file(file: str, tmp_path: Path) -> None:
    serials = [round((time - datetime(1899, 12, 30)) / timedelta(days=1), 6) for time in TIMES]
    frame = pl.DataFrame({"Serial": serials, "y": [0.5 + at for at in range(8)]})
    path = tmp_path / file
    if file.endswith(".csv"):
        frame.write_csv(path, separator=";", decimal_comma=file == "comma.csv")
    elif file == "a.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))
    elif file == "a.parquet":
        frame.write_parquet(path)
    else:
        frame.write_excel(path, dtype_formats={pl.Float64: "0.000000"})
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", path, time="Serial")
    assert "--time-format excel" in refused.value.hint
    summary = take(tmp_path / "t", path, time="Serial", time_format="excel")
    assert (summary["added"], summary["quarantined"]) == (8, {})
    found = rows(tmp_path / "t")["Serial"].to_list()
    assert found == [START + timedelta(milliseconds=round((day - 45292) * 86_400_000)) for day in serials]
    assert all(abs(one - time) < timedelta(milliseconds=50) for one, time in zip(found, TIMES, strict=True))
    take(tmp_path / "z", path, time="Serial", time_format="excel", timezone="Europe/Berlin")
    assert rows(tmp_path / "z")["Serial"][0] == datetime(2023, 12, 31, 23, tzinfo=UTC)


def test_a_day_that_is_none_goes_to_the_quarantine(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "t,y\n45292.5,1\nsoon,2\n1e300,3\n,4\n45293,5\n45294,6\n")
    summary = take(tmp_path / "t", path, time="t", time_format="excel")
    assert (summary["added"], summary["quarantined"]) == (3, {"no time": 1, "unparsable": 2})
    assert quarantine(tmp_path / "t")["line"].to_list() == [3, 4, 5]


@pytest.mark.parametrize(
    ("suffix", "first", "said"),
    [
        (".csv", 45292, True),
        (".jsonl", 33000, True),
        (".parquet", 58000, True),
        (".csv", 1, False),
        (".csv", 20240101, False),
        (".parquet", 60000, False),
    ],
)
def test_whole_days_of_a_workbook_are_not_taken_for_steps_in_silence(
    suffix: str, first: int, said: bool, tmp_path: Path
) -> None:
    frame = pl.DataFrame({"day": [first + at for at in range(8)], "y": [0.5 + at for at in range(8)]})
    path = tmp_path / f"a{suffix}"
    {".csv": frame.write_csv, ".jsonl": frame.write_ndjson, ".parquet": frame.write_parquet}[suffix](path)
    hints = take(tmp_path / "t", path, time="day")["hints"]
    assert any(f"such as {first}" in one and "--time-format excel" in one for one in hints) is said
    assert not take(tmp_path / "t", path, time="day")["hints"]  # it is decided
    assert not take(tmp_path / "u", path, time="day", time_format="step")["hints"]


@pytest.mark.parametrize(
    ("first", "form", "zone"),
    [
        ("30.03.2024 23:00", "%d.%m.%Y %H:%M", "Europe/Berlin"),
        ("2024-03-30 23:00", None, "Europe/Berlin"),
        ("2024-02-28T23:00:00", None, None),
        ("12/31/2024 23:00", "%m/%d/%Y %H:%M", None),
        ("2024-12-31T23:00:00+01:00", None, None),
    ],
)
def test_24_00_is_the_midnight_that_ends_a_day(first: str, form: str | None, zone: str | None, tmp_path: Path) -> None:
    """As exports of meters have it, which name the end of an interval."""
    given = {"time_format": form, "timezone": zone, "time": "t"}
    text = f"t,y\n{first},1\n{first.replace('23:00', '24:00')},2\n{first.replace('23:00', '24:01')},3\n"
    take(tmp_path / "t", write(tmp_path / "a.csv", text), **given)
    times = rows(tmp_path / "t")["t"]
    assert times[1] - times[0] == timedelta(hours=1)
    assert quarantine(tmp_path / "t")["line"].to_list() == [4]


@pytest.mark.parametrize("every", ["1mo", "3 months", "MS", "QS-OCT", "1y"])
def test_a_month_is_no_interval_and_needs_none(every: str, tmp_path: Path) -> None:
    lines = "".join(f"{2000 + at // 12}/{at % 12 + 1}/1,{at}\n" for at in range(60))
    path = write(tmp_path / "a.csv", f"ds,y\n{lines}")
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", path, every=every)
    assert refused.value.hint is not None and names(refused.value.hint, "--every out")
    assert take(tmp_path / "t", path)["added"] == 60


def test_a_row_of_units_hides_no_format(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "Zeit;kW\n[lokal];[kW]\n31.12.2024 23:45;1,5\n31.12.2024 24:00;2,5\n")
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", path)
    assert refused.value.hint.startswith("it looks like --time 'Zeit' --time-format '%d.%m.%Y %H:%M';")


@pytest.mark.parametrize(
    "text",
    [
        "Date;Time;kWh\n31/12/2024;23:45;1\n01/01/2025;00:00;2\n",
        "Date;Time;kWh\ndd.mm.yyyy;HH:MM;kWh\n31.12.2024;23:30;1\n31.12.2024;23:45;1\n01.01.2025;00:00;2\n",
        "Date,Time,kWh\n2024-12-31,23:30,1\n2024-12-31,23:45,1\n2025-01-01,00:00,2\n",
    ],
)
def test_a_date_and_a_time_of_day_in_two_columns_are_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in two columns, 'Date' and 'Time'"):
        take(tmp_path / "t", write(tmp_path / "a.csv", text))


def test_a_date_in_a_column_of_its_own_that_may_be_either_has_both_formats_named(tmp_path: Path) -> None:
    text = "Date;Time;kWh\n" + "".join(f"03/{day:02}/2024;{hour}:00;1\n" for day in (1, 2) for hour in (10, 11))
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", write(tmp_path / "a.csv", text))
    assert "--time-format '%m/%d/%Y %H:%M' or --time-format '%d/%m/%Y %H:%M'" in str(refused.value.hint)


@pytest.mark.parametrize("unit", ["", "-"])
def test_a_date_and_a_time_of_day_in_a_workbook_are_named(unit: str, tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        sheet = book.add_worksheet()
        day, clock = book.add_format({"num_format": "dd.mm.yyyy"}), book.add_format({"num_format": "hh:mm"})
        sheet.write_row(0, 0, ["Date", "Time", "kW"])
        if unit:
            sheet.write_row(1, 0, [unit, unit, "kW"])
        for row in range(2, 100):
            at = datetime(2026, 1, 1) + timedelta(minutes=15 * row)
            sheet.write_datetime(row, 0, datetime(at.year, at.month, at.day), day)
            sheet.write_datetime(row, 1, at.time(), clock)
            sheet.write(row, 2, row)
    with pytest.raises(UsageError, match="in two columns, 'Date' and 'Time'"):
        take(tmp_path / "t", tmp_path / "a.xlsx")


def test_days_with_the_hour_of_a_closing_are_times_by_themselves(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "Date,Closing,price\n2024-12-30,17:30,1\n2024-12-31,14:00,1\n2025-01-02,17:30,2\n")
    take(tmp_path / "t", path)
    assert rows(tmp_path / "t")["Date"].dt.day().to_list() == [30, 31, 2]


def test_an_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", tmp_path / "a.zip")
    assert refused.value.hint.startswith("unpack it")


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("a.csv", "Day,Load\n45292,1\n45293,2\n", "--time 'Day' --time-format 'excel'"),
        ("a.csv", "count,Load\n45292,45293\n45292,45291\n", "name one with --time"),
        ("a.csv", "Tag;kWh\n31-Dec-2024 23:45;1\n", "--time 'Tag' --time-format '%d-%b-%Y %H:%M'"),
        ("a.csv", "2024-01-01 00:00,0,0\n2024-01-01 01:00,1,2\n", "a header line"),
        ("a.txt", "time value\n2024-01-01T00:00 1\n", "--separator ' '"),
        ("a.json", "[]", "jq -c '.[]'"),
    ],
)
def test_the_first_message_names_what_to_do(name: str, text: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, DataError)) as refused:
        take(tmp_path / "t", write(tmp_path / name, text))
    assert hint in refused.value.hint


@pytest.mark.sampled
@pytest.mark.parametrize(("time", "form"), [("when", "%d/%m/%Y %H:%M"), ("Date,Time", "%d/%m/%Y %H:%M")])
def test_a_later_source_is_read_in_the_format_of_the_first(time: str, form: str, tmp_path: Path) -> None:
    """And says so; a source in another format is refused with that one's hint, one in ISO 8601 is read as that."""
    gap = "," if "," in time else " "
    stamps = [f"01/02/2024{gap}00:00,1\n", f"02/02/2024{gap}00:00,2\n", f"03.02.2024{gap}00:00,3\n"]
    files = [write(tmp_path / f"{at}.csv", f"{time},y\n{text}") for at, text in enumerate(stamps)]
    take(tmp_path / "t", files[0], time=time, time_format=form)
    found = take(tmp_path / "t", files[1])
    assert any(f"is read as {form}, like the first source" in hint for hint in found["hints"])
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", files[2])
    assert "'%d.%m.%Y %H:%M'" in str(refused.value.hint)
    iso = take(tmp_path / "t", write(tmp_path / "iso.csv", f"{time},y\n2024-02-04{gap}00:00,4\n"))
    assert not iso["hints"]
    assert [day.day for day in rows(tmp_path / "t")[time].to_list()] == [1, 2, 4]


@pytest.mark.parametrize("days", [["03/05/2024"], ["03/05/2024", "03/06/2024"]])
def test_of_a_day_and_a_month_that_may_be_either_both_are_named(days: list[str], tmp_path: Path) -> None:
    lines = [f"{day} {hour:02}:00,{hour}" for day in days for hour in range(24)]
    with pytest.raises(UsageError) as caught:
        take(tmp_path / "t", write(tmp_path / "a.csv", "\n".join(["time,load", *lines, ""])))
    hint = str(caught.value.hint)
    assert names(hint, "%d/%m/%Y %m/%d/%Y") and (len(days) == 1) == (hint.index("%d/%m") < hint.index("%m/%d"))
