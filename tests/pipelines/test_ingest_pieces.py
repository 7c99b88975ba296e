"""Ingest: several recordings in one file, and headers between rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgp_data.table import Table
from tests.pipelines.ingesting import quarantine, rows, take, write

RUN = "".join(f"{at / 2},{at}.5\n" for at in range(8))
OTHER = RUN.replace(".5\n", ".75\n")
ELAPSED = {"time": "t", "time_format": "elapsed-s"}


def test_a_clock_that_starts_again_asks_for_a_column_of_series(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "t,y\n" + RUN + OTHER + OTHER.replace("0.0,", "0.01,", 1))
    for options in ({}, {"dry_run": True}, {"sort": True}):
        table = tmp_path / "".join(["t", *options])
        hints = take(table, path, **ELAPSED, **options)["hints"]
        said = " ".join(hints)
        assert "a.csv, lines 10, 18: the clock 't' starts again, at 0.0: if these are 3 recordings" in said
        assert "--series" in said and "--duplicates" not in said and "--timezone" not in said and "--sort" not in said


def test_a_clock_of_steps_and_one_of_a_series_too(tmp_path: Path) -> None:
    steps = "".join(f"{at},{at}.5\n" for at in range(8))
    hints = take(tmp_path / "t", write(tmp_path / "a.csv", "t,y\n" + steps + steps.replace(".5", ".75")), time="t")
    assert "line 10: the clock 't' starts again, at 0" in hints["hints"][0]
    lines = RUN.splitlines()
    two = "".join(f"{one},{name}\n" for one in lines for name in "ab") + "".join(f"{one}1,a\n" for one in lines)
    hints = take(tmp_path / "u", write(tmp_path / "b.csv", "t,y,s\n" + two), series="s", **ELAPSED)
    assert "line 18: the clock 't' starts again, at 0.0: if these are 2 recordings" in hints["hints"][0]


@pytest.mark.parametrize("text", [RUN + "1.25,9\n", "0.5,1\n0.0,2\n" + RUN[8:], RUN + "4.5,1\n4.0,2\n"])
def test_late_rows_are_no_start(text: str, tmp_path: Path) -> None:
    hints = take(tmp_path / "t", write(tmp_path / "a.csv", "t,y\n" + text), **ELAPSED)["hints"]
    assert not any("starts again" in hint for hint in hints)


def test_files_with_a_clock_each_are_told_of_series_and_not_of_a_time_zone(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.csv", "t,y\n" + run) for name, run in (("a", RUN), ("b", OTHER))]
    said = " ".join(take(tmp_path / "t", *files, **ELAPSED)["hints"])
    assert "each file has a clock of its own" in said and "--series" in said and "--timezone" not in said


def test_a_header_between_rows_is_named_with_its_line(tmp_path: Path) -> None:
    text = "ds,y\n2024-01-01,1\nds,y\n2024-01-02,2\ny,ds\n2024-01-03,3\n"
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", text))
    assert summary["quarantined"] == {"header": 2} and Table.open(tmp_path / "t").rows == 3
    assert "a.csv, lines 3, 5: a header between rows" in summary["hints"][0] and "--series" in summary["hints"][0]
    details = rows(tmp_path / "t" / "_quarantine").sort("line")["detail"].to_list()
    assert details == ["the header again", "another header: y, ds; the columns are read as ds, y"]


def test_where_the_clock_starts_again_below_a_header_the_clock_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "t,y\n" + RUN + "t,y\n" + OTHER)
    hints = take(tmp_path / "t", path, keep_going=True, **ELAPSED)["hints"]
    assert "line 11: the clock 't' starts again" in hints[0] and not any("a header between" in one for one in hints)
    assert quarantine(tmp_path / "t")["reason"].unique().sort().to_list() == ["conflict", "header"]


def test_a_column_that_numbers_them_keeps_all(tmp_path: Path) -> None:
    numbered = "".join(f"{one},{at}\n" for at, run in enumerate((RUN, OTHER)) for one in run.splitlines())
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", "t,y,run\n" + numbered), series="run", **ELAPSED)
    assert (summary["added"], summary["hints"]) == (16, [])
