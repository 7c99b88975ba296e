"""compact and vacuum: fewer files, every row, and nobody who reads or writes meanwhile is harmed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamgp.errors import ServiceError, TableError, UsageError
from streamgp_data import checkpoint, compaction, delta
from streamgp_data.table import Table
from streamgp_pipelines.config import CompactConfig, VacuumConfig
from streamgp_pipelines.learning.checkpointing import state_digest
from streamgp_pipelines.maintenance import compact, vacuum
from tests.pipelines.killed import code_of, start
from tests.pipelines.worlds import append, frame_of, make_table, run

HOUR = 3600.0


def age(table: Table, seconds: float = 2 * HOUR, least: float = 0.0) -> None:
    """Make every file older that has not been touched for `least` seconds."""
    for path in Path(table.path).rglob("part-*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime >= least:
                os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture(scope="module")
def small_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data, path = frame_of(400), tmp_path_factory.mktemp("commits") / "t"
    made = make_table(path, data[:10])
    for row in range(10, 400, 10):
        append(made, data[row : row + 10])
    return path


@pytest.fixture
def table(small_commits: Path, tmp_path: Path) -> Table:
    """40 commits of ten rows."""
    return Table.open(shutil.copytree(small_commits, tmp_path / "t"))


def rows(table: Table | str) -> pl.DataFrame:
    found = Table.open(table) if isinstance(table, str) else table
    return pl.concat([pl.DataFrame(pl.from_arrow(chunk.rows)) for chunk in found.read()])


def test_one_file_has_every_row_under_its_number(table: Table) -> None:
    before = rows(table)
    (planned,) = compact(CompactConfig(table=table.path, dry_run=True))
    assert (planned.files, planned.files_after, planned.bytes_after) == (40, 1, None)
    assert len(delta.spans(Table.open(table.path).log)) == 40
    (done,) = compact(CompactConfig(table=table.path))
    assert (done.files, done.files_after, done.rows) == (40, 1, 400)
    assert done.bytes_after is not None and done.bytes_after < done.bytes
    assert rows(table.path).equals(before)
    (again,) = compact(CompactConfig(table=table.path))
    assert (again.files, again.files_after) == (1, 1)


def test_a_vacuum_deletes_what_is_old_and_not_needed(table: Table) -> None:
    before = rows(table)
    compact(CompactConfig(table=table.path))
    (young,) = vacuum(VacuumConfig(table=table.path))
    assert (young.deleted, young.kept) == (0, 40)
    age(table)
    (planned,) = vacuum(VacuumConfig(table=table.path, dry_run=True))
    (done,) = vacuum(VacuumConfig(table=table.path))
    assert planned == done and (done.files, done.deleted, done.kept) == (1, 40, 0) and done.freed > done.bytes
    assert len(list(Path(table.path).glob("part-*"))) == 1
    assert rows(table.path).equals(before)
    assert rows(table).equals(before)  # the handle has the version before both
    with pytest.raises(UsageError, match="10m"):
        VacuumConfig.read({"table": table.path, "keep": "1m"})


def test_a_file_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y\n1\n")
    with pytest.raises(TableError, match="not a table"):
        compact(CompactConfig(table=str(tmp_path / "a.csv")))


def test_a_reader_in_the_middle_of_an_older_version_goes_on(table: Table) -> None:
    reading = table.read(batch_rows=7)
    found = [next(reading) for _ in range(5)]
    compact(CompactConfig(table=table.path))
    age(table)
    vacuum(VacuumConfig(table=table.path))
    found += reading
    numbers = [number for chunk in found for number in chunk.rows.column("_seq").to_pylist()]
    assert numbers == list(range(400))


def test_a_checkpoint_goes_on_behind_a_vacuum(table: Table, tmp_path: Path) -> None:
    run(table, tmp_path / "whole")
    run(table, tmp_path / "c", max_rows=250)
    compact(CompactConfig(table=table.path))
    age(table)
    vacuum(VacuumConfig(table=table.path))
    run(Table.open(table.path), tmp_path / "c")
    assert state_digest(checkpoint.read(tmp_path / "c")) == state_digest(checkpoint.read(tmp_path / "whole"))


def test_it_gives_way_to_those_who_write_and_says_when_it_cannot(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    data = frame_of(500)
    other, whole, write = Table.open(table.path), delta.merge, delta.write_merged
    left, written = [3], list[int]()

    def disturbed(*args: Any) -> None:
        if left[0]:
            left[0] -= 1
            append(other, data[other.rows : other.rows + 1])
        whole(*args)

    def counted(log: Any, path: str, rows: Any, disk: Any) -> Any:
        written.append(rows.num_rows)
        return write(log, path, rows, disk)

    monkeypatch.setattr(delta, "merge", disturbed)
    monkeypatch.setattr(delta, "write_merged", counted)
    (done,) = compact(CompactConfig(table=table.path))
    assert done.rows == 403 and done.files_after == 1 and other.refresh()
    assert written == [400, 403]  # not again for each who was first
    left[0] = 1000
    append(other, data[other.rows : other.rows + 1])
    monkeypatch.setattr(compaction, "PATIENCE", 5)
    with pytest.raises(ServiceError, match="too often"):
        compact(CompactConfig(table=table.path))
    assert rows(table.path)["_seq"].to_list() == list(range(table.refresh() and table.rows))


def maintain(path: str) -> None:
    """In a process that is killed: merge and delete, again and again. Files are made older than they are; one that
    is in use all the same is an error, and never wrong rows."""
    while True:
        with suppress(TableError):
            compact(CompactConfig(table=path))
            table = Table.open(path)
            age(table, least=4.0)  # as many as ten minutes are for users
            vacuum(VacuumConfig(table=path))


def follow(path: str, wanted: int, found: list[int]) -> None:
    reader, offset = Table.open(path), dict[str, Any]()
    while len(found) < wanted:
        with suppress(TableError):
            for chunk in reader.read(offset, batch_rows=5):
                found.extend(chunk.rows.column("_seq").to_pylist())
                offset = dict(chunk.after)
        reader.refresh()


@pytest.mark.slow
def test_kills_beside_a_writer_and_a_reader_harm_nothing(tmp_path: Path) -> None:
    """Eight SIGKILLs of compact and vacuum, at random moments."""
    count, data, chance = 400, frame_of(400), random.Random(0)
    table = make_table(tmp_path / "t", data[:1])
    found: list[int] = []
    reader = threading.Thread(target=follow, args=(table.path, count, found))
    reader.start()
    ending = threading.Event()

    def write() -> None:
        writer = Table.open(table.path)
        for row in range(1, count):
            append(writer, data[row : row + 1])
            time.sleep(0.01)
        ending.set()

    writing = threading.Thread(target=write)
    writing.start()
    for _ in range(8):
        process = start(maintain, table.path)
        time.sleep(chance.uniform(0.1, 1.5))
        os.kill(process.pid, signal.SIGKILL)
        assert code_of(process) == -signal.SIGKILL
    writing.join(200)
    reader.join(200)
    assert ending.is_set() and found == list(range(count))
    compact(CompactConfig(table=table.path))
    age(table)
    vacuum(VacuumConfig(table=table.path))
    assert len(list(Path(table.path).glob("part-*"))) == len(delta.spans(Table.open(table.path).log))
    alone = make_table(tmp_path / "alone", data)
    assert rows(table.path).equals(rows(alone))
