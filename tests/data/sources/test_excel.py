"""Excel workbooks, and cells with units."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import xlsxwriter

from streamgp.errors import DataError, UsageError
from streamgp_data.reading import workbook
from streamgp_data.table import Table
from tests.pipelines.ingesting import quarantine, rows, take

START = datetime(2024, 3, 1, 6)
TIMES = [START + timedelta(minutes=15 * at) for at in range(200)]


def book(path: Path, serial: bool = False, more: bool = False) -> Path:
    with xlsxwriter.Workbook(path) as file:
        sheet = file.add_worksheet("Messung")
        form = None if serial else file.add_format({"num_format": "yyyy-mm-dd hh:mm"})
        sheet.write_row(0, 0, ["Zeit", "power [kW]", "note"])
        for at, time in enumerate(TIMES):
            sheet.write_datetime(at + 1, 0, time, form) if form else sheet.write_number(
                at + 1, 0, (time - datetime(1899, 12, 30)) / timedelta(days=1)
            )
            sheet.write_number(at + 1, 1, at / 4)
            sheet.write_string(at + 1, 2, f"n{at}")
        file.add_worksheet("leer")
        if more:
            file.add_worksheet("zweites").write_column(0, 0, ["x", 1.0, 2.0])
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("serial", "given"),
    [(False, {}), (True, {"time": "Zeit", "time_format": "excel"})],
)
def test_dates_of_a_workbook(tmp_path: Path, serial: bool, given: dict[str, Any]) -> None:
    path = book(tmp_path / "a.xlsx", serial)
    assert take(tmp_path / "t", path, **given)["added"] == 200
    found = rows(tmp_path / "t")
    assert found["Zeit"].to_list() == TIMES
    assert found["power [kW]"].to_list() == [at / 4 for at in range(200)]
    assert Table.open(tmp_path / "t").schema.field("power [kW]").metadata == {b"unit": b"kW"}
    assert take(tmp_path / "t", path, **given)["added"] == 0


@pytest.mark.slow
def test_several_sheets_are_no_guess(tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", more=True)
    with pytest.raises(UsageError) as caught:
        take(tmp_path / "t", path)
    assert "--sheet 'Messung', --sheet 'zweites'" in caught.value.hint
    assert take(tmp_path / "t", path, sheet="Messung")["added"] == 200
    with pytest.raises(UsageError):
        take(tmp_path / "t", path, sheet="drittes")


@pytest.mark.sampled
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_half_a_workbook_is_refused(tmp_path: Path, share: float) -> None:
    path = book(tmp_path / "a.xlsx")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DataError) as caught:
        take(tmp_path / "t", path)
    assert "a.xlsx" in caught.value.message


def test_a_cell_that_is_far_from_all_others_is_refused(tmp_path: Path) -> None:
    whole, path = book(tmp_path / "whole.xlsx"), tmp_path / "a.xlsx"
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for part in old.infolist():
            new.writestr(part, old.read(part).replace(b'<row r="3"', b'<row r="4000000000"'))
    with pytest.raises(DataError, match="far from all others"):
        take(tmp_path / "t", path)


@pytest.mark.parametrize("end", ["os.abort()", "sys.exit()", "time.sleep(60)"])
def test_a_library_that_dies_or_hangs_ends_no_process_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    words = [sys.executable, "-c", f"import os, sys, time; {end}"]
    monkeypatch.setattr(workbook, "started", lambda *_: subprocess.Popen(words, stdout=subprocess.PIPE))
    monkeypatch.setattr(workbook, "time_limit", lambda _: 0.5)
    with pytest.raises(DataError, match="no end" if "sleep" in end else "died"):
        take(tmp_path / "t", book(tmp_path / "a.xlsx"))


def test_a_table_that_nothing_closes_is_refused_at_once(tmp_path: Path) -> None:
    """Of an OpenDocument: the library would look for its end for ever."""
    text = "<a><table:table table:name='S'><table:table-row/></a>"
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as file:
        file.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        file.writestr("content.xml", text)
    with pytest.raises(DataError, match=r"content\.xml, mismatched tag"):
        take(tmp_path / "t", tmp_path / "a.ods")


def test_units_in_cells(tmp_path: Path) -> None:
    """As exports of car diagnostics have them: a cell with another unit, or without one, is no number."""
    lines = [f"2024-01-01 00:00:{at:02},{40 + at} km/h,{at / 2}%,{800 + at} rpm,a{at}" for at in range(40)]
    lines[5] = "2024-01-01 00:00:05,,2.5%,NODATA,a"
    lines[7] = "2024-01-01 00:00:07,35 mph,3.5%,1 rpm,a"
    lines[9] = "2024-01-01 00:00:09,57,3.5%,1 rpm,a"
    (tmp_path / "obd.csv").write_text("\n".join(["time,speed,load,rpm,note", *lines, ""]))
    summary = take(tmp_path / "t", tmp_path / "obd.csv", null=["NODATA"])
    assert (summary["added"], summary["quarantined"]) == (38, {"unparsable": 2})
    assert quarantine(tmp_path / "t")["line"].to_list() == [9, 11]
    found = rows(tmp_path / "t")
    assert found["speed"].to_list()[:6] == [40, 41, 42, 43, 44, None]
    assert found["rpm"].dtype == found["load"].dtype == pl.Float64
    schema = Table.open(tmp_path / "t").schema
    assert [schema.field(name).metadata[b"unit"] for name in ("speed", "load", "rpm")] == [b"km/h", b"%", b"rpm"]
    assert schema.field("note").type == "string"


def test_texts_that_are_no_units_stay(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ds,seat,when\n2024-01-01,12A,3 Jan 2024\n2024-01-02,13A,4 Jan 2024\n")
    take(tmp_path / "t", tmp_path / "a.csv")
    assert rows(tmp_path / "t")["seat"].to_list() == ["12A", "13A"]
    assert rows(tmp_path / "t")["when"].to_list() == ["3 Jan 2024", "4 Jan 2024"]


def test_text_among_numbers_is_put_aside(tmp_path: Path) -> None:
    """As in a CSV; wherever it stands. A column of keys is text."""
    count = 1500
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as file:
        sheet, form = file.add_worksheet(), file.add_format({"num_format": "yyyy-mm-dd hh:mm"})
        sheet.write_row(0, 0, ["ds", "load", "key"])
        for at in range(count):
            sheet.write_datetime(at + 1, 0, START + timedelta(hours=at), form)
            odd = {3: "broken", 7: "NA", 9: "inf", 1400: "31.12-"}
            sheet.write(at + 1, 1, odd.get(at, round(at / 7, 12)))
            sheet.write_string(at + 1, 2, f"{at:05}")
    summary = take(tmp_path / "t", tmp_path / "a.xlsx")
    assert (summary["added"], summary["quarantined"]) == (count - 2, {"unparsable": 2})
    assert quarantine(tmp_path / "t")["line"].to_list() == [5, 1402]  # rows of the sheet
    found = rows(tmp_path / "t")
    assert found["load"].to_list() == [
        None if at in (7, 9) else round(at / 7, 12) for at in range(count) if at not in (3, 1400)
    ]
    assert found["key"][0] == "00000"


def test_empty_columns_before_a_far_cell_are_not_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each conversion takes a millisecond: thousands of them once took longer than a reader is waited for."""
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as file:
        sheet = file.add_worksheet()
        sheet.write_row(0, 0, ["ds", "load"])
        sheet.write_row(1, 0, [1, 2.0])
        sheet.write_row(2, 0, [2, "broken"])
        sheet.write(1, 400, "far")
    seen: list[str] = []
    convert = workbook.convert
    monkeypatch.setattr(workbook, "convert", lambda cells, *rest: seen.append(cells.name) or convert(cells, *rest))
    _, sheets = workbook.sheets_of(str(tmp_path / "a.xlsx"), "a.xlsx", None, None)
    assert sheets["Sheet1"].cells.shape == (2, 401) and sheets["Sheet1"].numbers == ["load"]
    assert seen == ["load", "__UNNAMED__400"]
