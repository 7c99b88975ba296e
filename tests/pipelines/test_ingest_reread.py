"""Ingest: a source that was read before, and is asked for with other options."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from streamgp.errors import DataError, TableError
from streamgp_data.table import Table
from tests.pipelines.ingesting import FRAME, quarantine, rows, take, text_of, write

pytestmark = pytest.mark.usefixtures("read_here")

DAYS = "time,y\n" + "".join(f"01/{at:02d}/2024,{at}\n" for at in range(1, 13))
WRONG, RIGHT = {"time": "time", "time_format": "%m/%d/%Y"}, {"time": "time", "time_format": "%d/%m/%Y"}


def test_a_wrong_format_of_times_is_not_unchanged_with_the_right_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", DAYS)
    take(tmp_path / "t", path, **WRONG)
    before, version = rows(tmp_path / "t"), Table.open(tmp_path / "t").version
    for options in ({}, {"dry_run": True}):
        with pytest.raises(TableError, match=r"a\.csv was read before with another --time-format.* line 3 ") as refused:
            take(tmp_path / "t", path, **RIGHT, **options)
        assert "new table" in refused.value.hint and "--as" in refused.value.hint
    assert rows(tmp_path / "t").equals(before) and Table.open(tmp_path / "t").version == version
    assert take(tmp_path / "t", path, **WRONG)["sources"][0]["state"] == "unchanged"  # type: ignore[index]
    take(tmp_path / "u", path, **RIGHT)
    assert rows(tmp_path / "u")["time"][1] == datetime(2024, 2, 1)


def test_new_rows_of_such_a_source_wait_for_keep_going(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", DAYS)
    take(tmp_path / "t", path, **WRONG)
    write(path, DAYS + "13/12/2024,13\n")
    with pytest.raises(TableError, match="another --time-format"):
        take(tmp_path / "t", path, **RIGHT)
    assert Table.open(tmp_path / "t").rows == 12
    summary = take(tmp_path / "t", path, keep_going=True, **RIGHT)
    assert summary["added"] == 1 and "line 3 would be another row now" in "".join(summary["hints"])
    assert rows(tmp_path / "t")["time"][-1] == datetime(2024, 12, 13)
    assert take(tmp_path / "t", path, **RIGHT)["hints"] == []


def test_options_that_read_the_same_rows_are_no_others(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", text_of(FRAME.drop("note")).replace("0.0\n", "oops\n", 1))
    take(tmp_path / "t", path)
    assert quarantine(tmp_path / "t")["line"].to_list() == [2]
    for options in ({"time_format": "iso"}, {"encoding": "utf-8", "separator": ","}, {}):
        summary = take(tmp_path / "t", path, **options)
        assert (summary["sources"][0]["state"], summary["added"]) == ("unchanged", 0)
        version = Table.open(tmp_path / "t").version
        assert take(tmp_path / "t", path, **options)["table_version"] == version  # looked at once
    with pytest.raises(TableError, match="another --null"):  # a row of the quarantine could be read now
        take(tmp_path / "t", path, null=["oops"])


@pytest.mark.sampled
@pytest.mark.parametrize("duplicates", ["first", "last", "mean", "quarantine"])
def test_rows_that_were_not_taken_and_versions_are_the_same_too(duplicates: str, tmp_path: Path) -> None:
    text = "ds,y\n2024-01-01,1\n2024-01-02,2\n2024-01-01,3\n2024-01-01,1\n,4\n2024-01-03,x\n2024-01-04,5\n"
    path = write(tmp_path / "a.csv", text + "".join(f"2024-02-{at:02d},{at}\n" for at in range(1, 20)))
    take(tmp_path / "t", path, duplicates=duplicates)
    assert take(tmp_path / "t", path, time_format="iso")["sources"][0]["state"] == "unchanged"


@pytest.mark.parametrize(
    ("given", "then", "flag"),
    [
        ({"timezone": "Europe/Berlin"}, {"timezone": "UTC"}, "--timezone"),
        ({"decimal": "."}, {"decimal": ","}, "--decimal"),
        ({}, {"max_ahead": "1d"}, "--max-ahead"),
    ],
)
def test_every_option_that_changes_a_row_is_named(
    given: dict[str, str], then: dict[str, str], flag: str, tmp_path: Path
) -> None:
    lines = [f"{START + timedelta(hours=at):%Y-%m-%d %H:%M};1.{at:03d};" for at in range(30)]
    path = write(tmp_path / "a.csv", "ds;y;z\n" + "\n".join(lines) + "\n")
    take(tmp_path / "t", path, **{"timezone": "UTC", **given})
    with pytest.raises(TableError, match=f"another {flag}, or without.* line 2 "):
        take(tmp_path / "t", path, **{"timezone": "UTC", **given, **then})


START = datetime(2190, 1, 1)


def test_another_sheet_of_a_workbook_is_another_source(tmp_path: Path) -> None:
    frame = pl.DataFrame({"ds": [datetime(2024, 1, day) for day in (1, 2, 3)], "y": [1.0, 2.0, 3.0]})
    import xlsxwriter

    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        frame.write_excel(book, "one")
        frame.with_columns(pl.col("ds") + timedelta(days=3)).write_excel(book, "two")
    take(tmp_path / "t", tmp_path / "a.xlsx", sheet="one")
    with pytest.raises(TableError, match="another --sheet"):
        take(tmp_path / "t", tmp_path / "a.xlsx", sheet="two")
    take(tmp_path / "t", tmp_path / "a.xlsx", sheet="two", as_name="two")
    assert Table.open(tmp_path / "t").rows == 6


def test_without_times_rows_cannot_be_compared_and_that_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "x,y\n1,2\n3,4\n")
    take(tmp_path / "t", path, time="row")
    assert take(tmp_path / "t", path, time="row")["added"] == 0
    with pytest.raises(TableError, match="another --decimal") as refused:
        take(tmp_path / "t", path, time="row", decimal=".")
    assert "line" not in refused.value.message


def test_a_file_that_was_changed_says_so_first(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", DAYS)
    take(tmp_path / "t", path, **WRONG)
    write(path, DAYS.replace(",12\n", ",99\n"))
    with pytest.raises(DataError, match="changed"):
        take(tmp_path / "t", path, **RIGHT)
