"""Ingest that is killed: wherever it dies, run again it has every row exactly once, and the same quarantine."""

from __future__ import annotations

import os
import random
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.pipelines.ingesting import quarantine, rows, take
from tests.pipelines.killed import Crash, code_of, quick_and_slow, start

COMMIT = ("streamgp_data.delta", "commit")
CREATE = ("streamgp_data.delta", "create_log")
CRASHES = {
    "before the table is made": Crash(*CREATE, 1),
    "when the table is made": Crash(*CREATE, 1, after=True),
    "before the quarantine is made": Crash(*CREATE, 2),
    "when the quarantine is made": Crash(*CREATE, 2, after=True),
    "before the first commit": Crash(*COMMIT, 1),
    "between quarantine and table": Crash(*COMMIT, 1, after=True),
    "between them, later": Crash(*COMMIT, 5, after=True),
    "before the second batch": Crash(*COMMIT, 3),
    "after the second batch": Crash(*COMMIT, 4, after=True),
    "in the middle of parsing": Crash("streamgp_data.reading.records", "Records.blocks", 1),
    "at a judgement": Crash("streamgp_data.admission", "Admission.judge", 3),
    "when all is done but told": Crash("streamgp_data.ingestion.run", "summary", 1),
}
QUICK = {"between quarantine and table"}


@dataclass(frozen=True)
class Bomb:
    """The process dies some seconds after it was armed."""

    seconds: float

    def arm(self) -> None:
        threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def write_source(path: Path, count: int = 1200) -> None:
    """Rows of two series with every kind of fault, all over the file."""
    rng = random.Random(1)
    with path.open("w") as file:
        file.write("ds,unique_id,y,note\n")
        for i in range(count):
            ds = f"2024-03-{1 + i // 1440 % 28:02d} {i // 60 % 24:02d}:{i % 60:02d}:00"
            y = "oops" if rng.random() < 0.01 else f"{rng.gauss(0, 1):.6f}"
            file.write(f'{ds},{"ab"[i % 2]},{y},"a ""note"""\n')
            if rng.random() < 0.02:
                file.write(f"{ds},{'ab'[i % 2]},{y},again\n")
            if rng.random() < 0.01:
                file.write("torn,li\n")


def ingest_apart(source: str, table: str, mine: Crash | Bomb | None) -> None:
    """What the process does."""
    from streamgp_data.reading import records

    records.BLOCK = 10_000
    if mine is not None:
        mine.arm()
    take(Path(table), source, timezone="Europe/Berlin")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source, and its table made without interruption."""
    home = tmp_path_factory.mktemp("whole")
    write_source(home / "a.csv")
    assert code_of(start(ingest_apart, str(home / "a.csv"), str(home / "t"), None)) == 0
    return home / "a.csv", home / "t"


def same(table: Path, other: Path) -> None:
    assert rows(table).equals(rows(other))
    names = ["reason", "column", "detail", "source", "line", "row"]
    assert quarantine(table).select(names).equals(quarantine(other).select(names))


@pytest.mark.slow
@pytest.mark.parametrize("crash", quick_and_slow(CRASHES, QUICK), ids=CRASHES)
def test_crash_scripts(crash: Crash, whole: tuple[Path, Path], tmp_path: Path) -> None:
    source, table = whole
    assert code_of(start(ingest_apart, str(source), str(tmp_path / "t"), crash)) == -signal.SIGKILL
    assert code_of(start(ingest_apart, str(source), str(tmp_path / "t"), None)) == 0
    same(tmp_path / "t", table)


@pytest.mark.slow
def test_killed_at_random_moments(whole: tuple[Path, Path], tmp_path: Path) -> None:
    """Twenty kills, each at another moment of the same run."""
    source, table = whole
    rng = random.Random(0)
    killed = 0
    for _ in range(20):
        code = code_of(start(ingest_apart, str(source), str(tmp_path / "t"), Bomb(rng.uniform(0.0, 0.35))))
        assert code in (0, -signal.SIGKILL)
        killed += code != 0
    assert code_of(start(ingest_apart, str(source), str(tmp_path / "t"), None)) == 0
    assert killed
    same(tmp_path / "t", table)


@pytest.mark.slow
def test_a_file_that_grows_while_runs_are_killed(whole: tuple[Path, Path], tmp_path: Path) -> None:
    """Every run sees a longer file than the one before, cut anywhere; most runs are killed."""
    source, table = whole
    text = source.read_bytes()
    growing = tmp_path / source.name
    rng = random.Random(2)
    for _ in range(8):
        size = rng.randrange(growing.stat().st_size if growing.exists() else 30, len(text))
        growing.write_bytes(text[:size])
        start_it = start(ingest_apart, str(growing), str(tmp_path / "t"), Bomb(rng.uniform(0.05, 0.4)))
        assert code_of(start_it) in (0, -signal.SIGKILL)
    growing.write_bytes(text)
    assert code_of(start(ingest_apart, str(growing), str(tmp_path / "t"), None)) == 0
    assert rows(tmp_path / "t").equals(rows(table))
    names: list[Any] = ["reason", "line", "row"]
    assert quarantine(tmp_path / "t").select(names).equals(quarantine(table).select(names))


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Two sources that overlap, into one table, at the same time: every key once, `_seq` without a gap."""
    for name, first in (("a", 0), ("b", 1500)):
        lines = [f"{i},{i}" for i in range(first, first + 3000)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["step,y", *lines, ""]))
    jobs = [start(steps_apart, str(tmp_path / f"{name}.csv"), str(tmp_path / "t")) for name in "ab"]
    assert [code_of(job) for job in jobs] == [0, 0]
    found = rows(tmp_path / "t")
    assert found["_seq"].to_list() == list(range(4500))
    assert sorted(found["step"].to_list()) == list(range(4500))
    assert quarantine(tmp_path / "t").select(pl.col("reason").value_counts()).item()["count"] == 1500


def steps_apart(source: str, table: str) -> None:
    from streamgp_data.reading import records

    records.BLOCK = 2000
    take(Path(table), source, time="step")
