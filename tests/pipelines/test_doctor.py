"""`doctor`: each fault is found with its remedy, and only what is safe is mended."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamgp.errors import UsageError
from streamgp_data.table import Table
from streamgp_pipelines.config import DoctorConfig
from streamgp_pipelines.doctor import Finding, doctor
from streamgp_pipelines.learning.checkpointing import held
from tests.pipelines.ingesting import take
from tests.pipelines.worlds import append, frame_of, make_table, run
from tests.words import names

OLD = 7200


def findings(now: float | None = None, **options: Any) -> dict[str, Finding]:
    given = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    return {one.what: one for one in doctor(DoctorConfig.read(given), now)}


def faults(found: dict[str, Finding]) -> set[str]:
    return {name for name, one in found.items() if one.state == "fault"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(tmp_path / "t", frame_of(300))


def test_what_is_well_is_ok(table: Table, tmp_path: Path) -> None:
    run(table, tmp_path / "c")
    found = findings(table=table.path, checkpoint=tmp_path / "c")
    assert {one.state for one in found.values()} == {"ok"} and len(found) > 6
    assert found["files"].about == "1 file"
    assert found["table"].about == str(table.path)  # the rows of the last, partial micro-batch are known
    append(table, frame_of(307)[300:])
    assert findings(checkpoint=tmp_path / "c")["table"].about.endswith(" has 7 rows more")


def test_a_table_has_the_name_that_it_was_given(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(table.path).parent)
    assert {one.of for one in findings(table="t").values()} == {"t"}


def test_a_damaged_file_is_named(table: Table) -> None:
    file = next(Path(table.path).glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-9] + b"123456789")
    found = findings(table=table.path)
    assert faults(found) == {"files"} and file.name in found["files"].about and found["files"].remedy
    file.unlink()
    assert "gone" in findings(table=table.path)["files"].about


def test_no_table_and_a_broken_log(tmp_path: Path, table: Table) -> None:
    assert faults(findings(table=tmp_path / "nothing")) == {"log"}
    for entry in (Path(table.path) / "_delta_log").glob("*.json"):
        entry.write_text("{")
    assert faults(findings(table=table.path)) == {"log"}


@pytest.mark.slow
def test_small_files_are_merged_and_the_rows_stay(tmp_path: Path) -> None:
    data = frame_of(180)
    table = make_table(tmp_path / "t", data[:100])
    for row in range(100, 180):
        append(table, data[row : row + 1])
    assert findings(table=table.path)["files"].state == "note"
    before = pl.read_delta(table.path).sort("_seq")
    mended = findings(table=table.path, mend=True)["files"]
    assert mended.state == "mended" and findings(table=table.path)["files"].state == "ok"
    assert pl.read_delta(table.path).sort("_seq").equals(before)
    assert table.refresh() and Table.open(table.path).rows == 180


def test_what_killed_writers_left_is_deleted_and_nothing_else(table: Table) -> None:
    home = Path(table.path)
    theirs = list(home.glob("part-*"))
    names = [f"part-{'0' * 12}-{letter * 32}.parquet" for letter in "ab"]
    left = [home / names[0], home / f"{names[0]}.17.tmp"]
    young, foreign = home / names[1], home / "notes.parquet"
    for path in (*left, young, foreign):
        path.write_bytes(b"x")
    for path in (*left, foreign, *theirs):
        os.utime(path, (time.time() - OLD,) * 2)
    assert findings(table=table.path)["left over"].state == "note" and all(path.exists() for path in left)
    assert findings(table=table.path, mend=True)["left over"].state == "mended"
    assert not any(path.exists() for path in left) and young.exists() and foreign.exists()
    assert findings(table=table.path)["left over"].state == "ok"


def test_a_leap_of_the_clock_that_makes_all_rows_late(tmp_path: Path) -> None:
    hours = [*range(50), 700, *range(50, 80)]
    frame = pl.DataFrame({"ds": [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in hours], "y": [1.0] * 81})
    table = make_table(tmp_path / "t", frame.rename({"ds": "t"}), cuts=[20, 51, 60])
    found = findings(table=table.path)
    assert names(found["leap"].about, "30 2024-01-30 2024-01-03") and found["leap"].state == "fault"
    some = [*range(50), 52, *range(50, 52), *range(53, 80)]
    frame = frame[:80].with_columns(ds=pl.Series([datetime(2024, 1, 1) + timedelta(hours=hour) for hour in some]))
    assert "leap" not in findings(table=make_table(tmp_path / "u", frame.rename({"ds": "t"})).path)


def test_times_that_harm(tmp_path: Path) -> None:
    pl.DataFrame({"ds": ["2024-01-01", "2024-01-03", "2024-01-02"], "y": [1.0, 2.0, 3.0]}).write_csv(tmp_path / "a.csv")
    take(tmp_path / "t", tmp_path / "a.csv")
    then = 1_704_067_200.0  # 2024-01-01
    found = findings(then - 30 * 86_400, table=tmp_path / "t")
    assert (
        faults(found) == {"clock"} and "--lateness" in found["order"].remedy and "--max-ahead" in found["clock"].remedy
    )
    assert "clock" not in findings(then + 30 * 86_400, table=tmp_path / "t")


def test_a_checkpoint_that_was_passed_over_or_whose_table_is_gone(table: Table, tmp_path: Path) -> None:
    run(table, tmp_path / "c")
    assert findings(checkpoint=tmp_path / "c")["state"].about == f"{table.rows:,} rows"
    newest = max((tmp_path / "c").glob("[0-9]*"))
    half = tmp_path / "c" / ".tmp-17"
    half.mkdir()
    (newest / "state.json").write_text("{}")
    found = findings(checkpoint=tmp_path / "c")
    assert found["state"].state == "note" and "learns the rest again" in found["state"].remedy
    assert found["left over"].state == "note" and half.exists()
    assert findings(checkpoint=tmp_path / "c", mend=True)["left over"].state == "mended" and not half.exists()
    with held(tmp_path / "c"):
        assert findings(checkpoint=tmp_path / "c")["process"].about.startswith("another process trains in")
    Path(table.path).rename(tmp_path / "elsewhere")
    assert faults(findings(checkpoint=tmp_path / "c")) == {"table"}
    assert faults(findings(checkpoint=tmp_path)) == {"state"}


def test_a_source_that_has_grown_or_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("ds,y\n2024-01-01,1\n2024-01-02,2\n")
    take(tmp_path / "t", file)
    given = {"source": [str(file)], "table": tmp_path / "t"}
    assert findings(**given)["position"].state == "ok"
    with file.open("a") as grown:
        grown.write("2024-01-03,3\n")
    assert "streamgp ingest" in findings(**given)["position"].remedy
    file.write_text("ds,y\n2024-01-01,7\n2024-01-02,2\n")
    assert faults(findings(**given)) == {"source"}
    assert faults(findings(source=[str(tmp_path / "none.csv")])) == {"source"}


def test_a_source_with_rows_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("ds,y\n" + "".join(f"2024-01-{day:02},{day if day != 7 else 'x'}\n" for day in range(1, 20)))
    found = findings(source=[str(file)])
    assert found["rows"].state == "note" and "line 8" in found["rows"].about


def test_something_must_be_named() -> None:
    with pytest.raises(UsageError, match="--table"):
        DoctorConfig.read({})
