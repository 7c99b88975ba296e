"""Several processes at once: one source, one table; every row once in the table, or once in the quarantine."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from streamgp.errors import TableError
from tests.pipelines.ingesting import quarantine, rows, take
from tests.pipelines.killed import Crash, code_of, start

ROWS = 200


def write_source(path: Path) -> None:
    """Rows without a clock, so that nothing but the position tells a row from its repetition; every fourth one bad."""
    lines = [f"{i},{'bad' if i % 4 == 3 else i}" for i in range(ROWS)]
    path.write_text("\n".join(["n,y", "0,0", *lines, ""]))


def apart(source: str, table: str, crash: Crash | None = None) -> None:
    """What a process does: many small commits."""
    from streamgp_data.reading import records

    records.BLOCK = 300
    if crash is not None:
        crash.arm()
    take(Path(table), source, time="row")


def assert_once(table: Path) -> None:
    found = rows(table)
    assert found["_seq"].to_list() == list(range(found.height))
    assert found["n"].to_list() == [0, *(i for i in range(ROWS) if i % 4 != 3)]
    assert quarantine(table)["line"].to_list() == [i + 3 for i in range(ROWS) if i % 4 == 3]


@pytest.mark.slow
def test_one_source_by_several_processes(tmp_path: Path) -> None:
    write_source(tmp_path / "a.csv")
    jobs = [start(apart, str(tmp_path / "a.csv"), str(tmp_path / "t")) for _ in range(3)]
    assert [code_of(job) for job in jobs] == [0, 0, 0]
    assert_once(tmp_path / "t")


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_one_of_two_is_killed_between_its_commits(tmp_path: Path, count: int) -> None:
    """It has written to the quarantine and not to the table, while the other one is at the same rows."""
    write_source(tmp_path / "a.csv")
    crash = Crash("streamgp_data.quarantine", "Quarantine.add", count, after=True)
    jobs = [start(apart, str(tmp_path / "a.csv"), str(tmp_path / "t"), mine) for mine in (crash, None)]
    codes = [code_of(job) for job in jobs]
    assert codes[0] in (0, -signal.SIGKILL) and codes[1] == 0
    take(tmp_path / "t", tmp_path / "a.csv", time="row")
    assert_once(tmp_path / "t")


def ingest_every(source: str, table: str, every: str) -> None:
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines.config import IngestConfig

    try:
        ingest(IngestConfig.read({"source": [source], "table": table, "every": every}))
    except TableError as error:
        raise SystemExit(error.exit_code) from None


@pytest.mark.slow
def test_the_interval_is_declared_by_several_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ds,y\n2024-01-01 00:00,1\n")
    take(tmp_path / "t", tmp_path / "a.csv")
    jobs = [start(ingest_every, str(tmp_path / "a.csv"), str(tmp_path / "t"), "30m") for _ in range(4)]
    assert [code_of(job) for job in jobs] == [0] * 4
    take(tmp_path / "u", tmp_path / "a.csv")
    jobs = [start(ingest_every, str(tmp_path / "a.csv"), str(tmp_path / "u"), every) for every in ("30m", "1h", "2h")]
    assert sorted(code_of(job) for job in jobs) == [0, 4, 4]
