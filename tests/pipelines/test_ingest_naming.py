"""Ingest: several series in one file, without --series: the column that names them is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.ingesting import rows, take, write

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
