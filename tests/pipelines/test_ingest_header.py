"""Ingest: a title above the header."""

from __future__ import annotations

from pathlib import Path

import pytest
import xlsxwriter

from streamgp.errors import DataError, UsageError
from tests.pipelines.ingesting import rows, take, write

TITLED = {
    "padded": "Report;;\nSite;North;\nZeit;kW;state\n2024-01-01 00:00;1,5;a\n2024-01-01 00:15;2,5;a\n",
    "many rows": "Report;;\nSite;North;\nZeit;kW;state\n"
    + "".join(f"2024-01-0{day};{day},5;a\n" for day in range(1, 9)),
    "one cell": "Report 2024\nNorth\nZeit;kW;state\n2024-01-01 00:00;1,5;a\n2024-01-01 00:15;2,5;a\n",
}


@pytest.mark.parametrize("name", TITLED)
def test_the_row_of_the_header_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"header seems to be in row 3$"):
        take(tmp_path / "t", write(tmp_path / "a.csv", TITLED[name]))
    whole = write(tmp_path / "b.csv", "".join(TITLED[name].splitlines(keepends=True)[2:]))
    take(tmp_path / "t", whole)
    assert rows(tmp_path / "t")["kW"].to_list()[:2] == [1.5, 2.5]


def test_of_a_workbook_too(tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        sheet = book.add_worksheet("Messung")
        days = [[f"2024-01-0{day}", day / 2, "a"] for day in range(1, 9)]
        for place, row in enumerate([["Report"], ["Site", "North"], ["Zeit", "kW", "state"], *days]):
            sheet.write_row(place, 0, row)
    with pytest.raises(UsageError, match=r"header seems to be in row 3$"):
        take(tmp_path / "t", tmp_path / "a.xlsx")


def test_a_first_line_with_fewer_cells_than_all_others(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", write(tmp_path / "a.csv", "Report\ntime,kW\n2024-01-01,1\n2024-01-02,2\n"))
    assert "the lines above" in refused.value.hint


def test_columns_with_names_are_a_header(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "t", write(tmp_path / "a.csv", "name,kind\nnorth,meter\nsouth,meter\n"))
    assert "header" not in refused.value.message


def test_a_column_without_a_name_is_no_title(tmp_path: Path) -> None:
    """As the index of a frame in a CSV."""
    take(tmp_path / "t", write(tmp_path / "a.csv", ",state\n2024-01-01T00:00Z,on\n2024-01-02T00:00Z,off\n"))
    assert rows(tmp_path / "t")["state"].to_list() == ["on", "off"]
