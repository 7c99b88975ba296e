"""Ingest: several series in one file, without --series: the column that names them is named."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from streamgp.errors import DataError
from streamgp_data.ingestion import run
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.ingestion.report import check_share
from streamgp_data.reading import records
from streamgp_data.reading.files import open_source
from streamgp_pipelines.config import IngestConfig
from tests.pipelines.ingesting import rows, take, write
from tests.words import names

HOURS = [f"2024-01-01 {hour:02d}:00" for hour in range(6)]
METERS = {
    "text": ("meter", ["north", "south"]),
    "whole numbers": ("meter", ["4711", "4712"]),
    "three": ("meter", ["a", "b", "c"]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("name", METERS)
def test_the_column_of_the_series_is_named_first(name: str, blocks: bool, tmp_path: Path) -> None:
    column, meters = METERS[name]
    pairs = [(hour, meter) for hour in HOURS for meter in meters]
    pairs = sorted(pairs, key=lambda pair: pair[1]) if blocks else pairs
    lines = [f"{hour},{meter},{7 * at % 13 + 0.5},on" for at, (hour, meter) in enumerate(pairs)]
    path = write(tmp_path / "a.csv", "\n".join([f"ds,{column},y,state", *lines]) + "\n")
    summary = take(tmp_path / "t", path)
    assert summary["quarantined"] == {"conflict": len(pairs) - len(HOURS)}
    named = [place for place, hint in enumerate(summary["hints"]) if f"--series '{column}'" in str(hint)]
    last = [place for place, hint in enumerate(summary["hints"]) if "--duplicates last" in str(hint)]
    assert named == [0] and last and "'state'" not in summary["hints"][0]
    again = take(tmp_path / "u", path, series=column)
    assert (again["added"], again["quarantined"], rows(tmp_path / "u").height) == (len(pairs), {}, len(pairs))
    assert not any("--series" in str(hint) for hint in again["hints"])


def registers(*codes: str) -> str:
    """Two meters, of which each has these."""
    lines = [f"{hour},{meter},{code}" for hour in HOURS for meter in "ab" for code in codes]
    return "\n".join(["ds,meter,code,y", *(f"{line},{7 * at % 31 + 0.5}" for at, line in enumerate(lines)), ""])


@pytest.mark.parametrize("options", [{}, {"duplicates": "mean"}, {"dry_run": True}])
@pytest.mark.parametrize(("series", "codes"), [(None, ("1.8.0", "2.8.0")), ("meter", ("1.8.0", "2.8.0")), (None, "12")])
def test_two_columns_that_name_the_series_are_named_first(
    series: str | None, codes: tuple[str, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    """Import and export of each meter: one of them alone, or their mean, is neither."""
    given = {**options, **({} if series is None else {"series": series})}
    first = str(take(tmp_path / "t", write(tmp_path / "a.csv", registers(*codes)), **given)["hints"][0])
    assert names(first, "'meter' 'code' --series") and "if they are no corrections" in first


@pytest.mark.parametrize("options", [{"dry_run": True}, {"duplicates": "last"}])
def test_the_column_of_the_series_is_named_before_anything_is_written_and_where_versions_are_taken(
    options: dict[str, Any], tmp_path: Path
) -> None:
    lines = [f"{hour},{meter},{at}" for at, hour in enumerate(HOURS) for meter in ("north", "south")]
    text = "\n".join(["ds,meter,y", *(f"{line}.{7 * place % 13}" for place, line in enumerate(lines)), ""])
    hints = take(tmp_path / "t", write(tmp_path / "a.csv", text), **options)["hints"]
    assert "--series 'meter'" in str(hints[0]) and "mean has one row" not in str(hints)


@pytest.mark.parametrize("dry", [False, True])
def test_a_run_that_refuses_most_rows_makes_no_table(dry: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", registers("1.8.0", "2.8.0", "3.8.0"))
    config = IngestConfig.read({"source": [str(path)], "table": str(tmp_path / "t"), "dry_run": dry})
    with pytest.raises(DataError) as caught:
        check_share(config, ingest(config))
    assert "nothing of this source was written" in caught.value.message and not (tmp_path / "t").exists()


def test_standard_input_is_judged_by_its_first_rows_and_files_by_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is opened again for that: a thread reads on in what was opened first."""
    opened, original = list[Any](), open_source

    def seen(*given: Any) -> Any:
        opened.append(original(*given))
        return opened[-1]

    monkeypatch.setattr(records, "LINES", 4)
    monkeypatch.setattr(run, "open_source", seen)
    text = "\n".join(["ds,y", f"{HOURS[0]},1", *["2024-13-01 00:00,1"] * 3, *(f"{hour},1" for hour in HOURS[1:]), ""])
    told = take(tmp_path / "t", write(tmp_path / "a.csv", text), time="ds", time_format="%Y-%m-%d %H:%M")
    assert (told["added"], sum(told["quarantined"].values()), len(opened)) == (6, 3, 2)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    (source,) = take(tmp_path / "u", "-", time="ds", time_format="%Y-%m-%d %H:%M")["sources"]
    assert "2 of the first 3 rows" in source["refused"] and not (tmp_path / "u").exists()


def test_corrections_that_are_declared_name_no_series(tmp_path: Path) -> None:
    head, options = "ds,y,status", {"duplicates": "last"}
    for name in ("W", "E"):
        text = "\n".join([head, *(f"{hour},{at},{name}" for at, hour in enumerate(HOURS)), ""])
        hints = take(tmp_path / "t", write(tmp_path / f"{name}.csv", text), **options)["hints"]
    assert "--series" not in str(hints) and "the last of them is read" in str(hints)


def test_corrected_values_are_no_series(tmp_path: Path) -> None:
    """Counts of a counter, of which some are said again otherwise, and a note that is the same."""
    lines = [f"{hour},{at},{at / 7}" for at, hour in enumerate(HOURS)] + [f"{HOURS[2]},40,1.5", f"{HOURS[3]},41,2.5"]
    hints = take(tmp_path / "t", write(tmp_path / "a.csv", "\n".join(["ds,count,y", *lines]) + "\n"))["hints"]
    assert "--duplicates last" in str(hints) and "--series" not in str(hints)


def test_a_status_of_few_rows_is_a_correction_first(tmp_path: Path) -> None:
    lines = [f"2024-01-{1 + at // 24:02} {at % 24:02}:00,{at},W" for at in range(100)]
    lines += [f"2024-01-01 {at:02}:00,{at + 0.5},E" for at in range(5)]
    hints = take(tmp_path / "t", write(tmp_path / "a.csv", "\n".join(["ds,load,status", *lines, ""])))["hints"]
    first = next(hint for hint in hints if "'status'" in hint)
    assert 0 < first.index("--duplicates last") < first.index("--series 'status'")
