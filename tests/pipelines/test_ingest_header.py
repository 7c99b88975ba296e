"""Ingest: a title above the header."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import xlsxwriter

from streamgp.errors import DataError, SchemaError, UsageError
from streamgp_pipelines.config import DescribeConfig
from streamgp_pipelines.describe_file import describe_file
from tests.pipelines.ingesting import quarantine, rows, take, write

pytestmark = pytest.mark.usefixtures("read_here")

TITLED = {
    "padded": "Report;;\nSite;North;\nZeit;kW;state\n2024-01-01 00:00;1,5;a\n2024-01-01 00:15;2,5;a\n",
    "many rows": "Report;;\nSite;North;\nZeit;kW;state\n"
    + "".join(f"2024-01-0{day};{day},5;a\n" for day in range(1, 9)),
    "blank lines": "Report\n\nSite;North\n\nZeit;kW;state\n2024-01-01 00:00;1,5;a\n2024-01-01 00:15;2,5;a\n",
    "pairs": "Meter:;DE12\nUnit:;kW\nZeit;kW;state\n2024-01-01 00:00;1,5;a\n2024-01-01 00:15;2,5;a\n",
    "a pair": "Rig 7;Run 12\n\nZeit;kW;state\n2024-01-01 00:00;1,5;a\n2024-01-01 00:15;2,5;a\n",
    "units": "Report 1\nZeit;kW;state\n[UTC];[kW];-\n2024-01-01 00:00;1,5;a\n2024-01-01 00:15;2,5;a\n",
    "one cell": "Report 2024\nNorth\nZeit;kW;state\n2024-01-01 00:00;1,5;a\n2024-01-01 00:15;2,5;a\n",
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", TITLED)
def test_the_row_of_the_header_is_named(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", TITLED[name])
    row = 1 + TITLED[name][: TITLED[name].index("Zeit")].count("\n")
    with pytest.raises((UsageError, DataError)) as refused:
        take(tmp_path / "t", path)
    assert f"--header-row {row}" in refused.value.hint
    with pytest.raises((SchemaError, DataError)) as refused:
        take(tmp_path / "t", path, time="Zeit")
    assert f"--header-row {row}" in refused.value.hint
    take(tmp_path / "t", path, header_row=row)
    assert rows(tmp_path / "t")["kW"].to_list()[:2] == [1.5, 2.5]
    with path.open("a") as file:
        file.write("2024-01-09 00:00;abc;a\n2024-01-10 00:00;10,5;a\n")
    assert take(tmp_path / "t", path, header_row=row)["added"] == 1
    assert rows(tmp_path / "t")["kW"].to_list()[-1] == 10.5
    assert quarantine(tmp_path / "t")["line"].to_list()[-1:] == [path.read_text().count("\n") - 1]


@pytest.mark.slow
def test_of_a_workbook_too(tmp_path: Path) -> None:
    """Its rows are those that a person sees: empty ones and the title count, also in the quarantine."""
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        sheet = book.add_worksheet("Messung")
        sheet.merge_range(1, 0, 1, 2, "Report")
        for place, row in {2: ["Site", "North"], 4: ["Zeit", "kW", "state"]}.items():
            sheet.write_row(place, 0, row)
        for day in range(1, 9):
            sheet.write_row(4 + day, 0, [f"2024-01-0{day}", "off" if day == 3 else day / 2, "a"])
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", tmp_path / "a.xlsx")
    assert "--header-row 5" in refused.value.hint
    for _ in range(2):
        take(tmp_path / "t", tmp_path / "a.xlsx", header_row=5)
        assert rows(tmp_path / "t")["kW"].to_list() == [day / 2 for day in range(1, 9) if day != 3]
        assert quarantine(tmp_path / "t")["line"].to_list() == [8]
    with pytest.raises(DataError, match="no sheet has rows below --header-row 20"):
        take(tmp_path / "u", tmp_path / "a.xlsx", header_row=20)


def test_a_header_in_the_first_filled_row_of_a_sheet_that_begins_with_empty_ones(tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        sheet = book.add_worksheet()
        for place, row in enumerate([["ds", "y"], ["2024-01-01", 1.5], ["2024-01-02", "-"], ["2024-01-03", 2.5]]):
            sheet.write_row(place + 2, 1, row)
    take(tmp_path / "t", tmp_path / "a.xlsx")
    assert quarantine(tmp_path / "t")["line"].to_list() == [5]


@pytest.mark.sampled
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_titles_do_not_move_the_lines(encoding: str, end: str, tmp_path: Path) -> None:
    """A title with quotes, separators and letters beyond ASCII; a quoted cell with a newline in the header."""
    lines = ['Zähler "Süd', "# a,b,c,d", "", '"ds","power\n [kW]",note', "2024-01-01,1.5,a", "2024-01-02,x,b", ""]
    (tmp_path / "a.csv").write_bytes(end.join(lines).encode(encoding))
    take(tmp_path / "t", tmp_path / "a.csv", header_row=4, time="ds")
    assert quarantine(tmp_path / "t")["line"].to_list() == [7]
    assert rows(tmp_path / "t").columns[1:] == ["ds", "power\n [kW]", "note"]


def test_fewer_lines_than_that(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--header-row 9, and it has 3 lines"):
        take(tmp_path / "t", write(tmp_path / "a.csv", "ds,y\n2024-01-01,1\n2024-01-02,2\n"), header_row=9)


def test_faults_above_the_rows_name_their_line(tmp_path: Path) -> None:
    for header, fault in {"1,2": "line 3: these are numbers", "a,a": "line 3: two columns"}.items():
        with pytest.raises(DataError, match=fault):
            take(tmp_path / "t", write(tmp_path / "a.csv", f"Report\n\n{header}\n2024-01-01,1\n"), header_row=2)
    with pytest.raises(DataError, match="line 4: 3 cells"):
        take(tmp_path / "t", write(tmp_path / "a.csv", "Report\nds,y\n\n2024-01-01,1,2\n"), header_row=2)


def test_other_formats_have_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no --header-row"):
        take(tmp_path / "t", write(tmp_path / "a.jsonl", '{"ds": "2024-01-01", "y": 1}\n'), header_row=2)


def test_describe_reads_as_ingest_does(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", TITLED["padded"])
    assert describe_file(DescribeConfig(source=path))["note"] == "the header seems to be in row 3: --header-row 3"
    found: Any = describe_file(DescribeConfig(source=path, header_row=3))
    assert [one["column"] for one in found["columns"]] == ["Zeit", "kW", "state"] and "note" not in found


def test_standard_input_that_comes_line_by_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read, end = os.pipe()

    def fill() -> None:
        for line in TITLED["padded"].splitlines(keepends=True):
            os.write(end, line.encode())
            time.sleep(0.02)
        os.close(end)

    writer = Thread(target=fill)
    writer.start()
    with io.TextIOWrapper(os.fdopen(read, "rb")) as given:
        monkeypatch.setattr("sys.stdin", given)
        take(tmp_path / "t", "-", header_row=3)
    writer.join()
    assert rows(tmp_path / "t")["kW"].to_list() == [1.5, 2.5]


def test_a_first_line_with_fewer_cells_than_all_others(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", write(tmp_path / "a.csv", "Report\ntime,kW\n2024-01-01,1\n2024-01-02,2\n"))
    assert "--header-row 2" in refused.value.hint


def test_columns_with_names_are_a_header(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", write(tmp_path / "a.csv", "name,kind\nnorth,meter\nsouth,meter\n"))
    assert "header" not in refused.value.message + refused.value.hint


def test_a_column_without_a_name_is_no_title(tmp_path: Path) -> None:
    """As the index of a frame in a CSV."""
    take(tmp_path / "t", write(tmp_path / "a.csv", ",state\n2024-01-01T00:00Z,on\n2024-01-02T00:00Z,off\n"))
    assert rows(tmp_path / "t")["state"].to_list() == ["on", "off"]
