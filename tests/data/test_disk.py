"""What is on the disk when a commit or a checkpoint is reported, in which order: every fsync is watched."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamgp_data import delta
from streamgp_data.compaction import Compaction
from streamgp_data.delta import LOG_EVERY
from streamgp_data.table import Table, TableMeta
from tests.pipelines.ingesting import FRAME, take, text_of, write

SCHEMA = pa.schema([("t", pa.int64()), ("y", pa.float64())])
META = TableMeta(time="t", clock=False, every_ns=1)
FILES, FOLDER = r"part-\S+\.tmp", "t"


class Watch:
    """What was synced, committed and marked, in that order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.seen: list[str] = []
        whole = os.fsync

        def fsync(handle: int) -> None:
            self.seen.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), folder))
            whole(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        self._patch = monkeypatch

    def calls(self, owner: Any, name: str, word: str) -> None:
        """Note the calls of a function too, when they have returned."""
        whole = getattr(owner, name)

        def called(*args: Any, **more: Any) -> Any:
            found = whole(*args, **more)
            self.seen.append(word)
            return found

        self._patch.setattr(owner, name, called)

    def order(self, *patterns: str) -> None:
        """See that what matches these came in this order."""
        rest = iter(self.seen)
        for pattern in patterns:
            assert any(re.fullmatch(pattern, one) for one in rest), (pattern, self.seen)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Watch]:
    found = Watch(monkeypatch, tmp_path)
    found.calls(delta, "_move", "seen by the handle")
    yield found


def commit(table: Table) -> None:
    table.commit(pa.table({"t": [table.rows], "y": [0.5]}, schema=SCHEMA), {"w": table.rows})


def test_files_then_their_folder_then_the_entry_of_the_log(watch: Watch, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, META, durable=True)
    watch.order(r"t/_delta_log/0{20}\.json", "t/_delta_log", "t", r"\.")
    watch.seen.clear()
    commit(table)
    watch.order(r"t/part-\S+\.tmp", "t", r"t/_delta_log/0{19}1\.json", "t/_delta_log", "seen by the handle")
    assert not any("1.json" in one for one in watch.seen[: watch.seen.index("t")])


def test_without_it_nothing_is_synced(watch: Watch, tmp_path: Path) -> None:
    commit(Table.create(tmp_path / "t", SCHEMA, META))
    assert watch.seen == ["seen by the handle"]


def test_entries_of_another_writer_are_synced_with_ours(watch: Watch, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, META, durable=True)
    other = Table.open(tmp_path / "t")
    commit(other)
    other.declare(1)
    table.refresh()
    watch.seen.clear()
    commit(table)
    watch.order(r"t/_delta_log/0{19}1\.json", r"t/_delta_log/0{19}2\.json", "t/_delta_log")


def test_the_log_is_shortened_when_its_checkpoint_is_on_the_disk(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, META, durable=True)
    delta.configure(table.log, table.path, {"delta.checkpointInterval": "2"}, table.disk)
    while table.version < LOG_EVERY - 1:
        commit(table)
    assert not list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))
    watch.seen.clear()
    watch.calls(type(table.log), "cleanup_metadata", "shortened")
    commit(table)
    watch.order(
        r"t/_delta_log/0+32\.json", r"t/_delta_log/0+32\.checkpoint\.parquet", r".*_last_checkpoint", "shortened"
    )
    commit(table)
    Compaction(table).tidy()
    assert Table.open(table.path).rows == LOG_EVERY


def test_ingest_syncs_quarantine_and_rows_before_the_position_counts(watch: Watch, tmp_path: Path) -> None:
    watch.calls(Table, "commit", "position")
    write(tmp_path / "a.csv", text_of(FRAME.head(20)) + "x,1,a\n")
    take(tmp_path / "t", tmp_path / "a.csv", durable=True)
    watch.order(
        r"t/_quarantine/part-\S+", r"t/_quarantine/_delta_log/0+1\.json", "t/_quarantine/_delta_log", "position",
        r"t/part-\S+", "t", r"t/_delta_log/0+1\.json", "t/_delta_log", "position",
    )  # fmt: skip


def test_rows_that_others_wrote_are_synced_by_one_who_learns_them(watch: Watch, tmp_path: Path) -> None:
    commit(Table.create(tmp_path / "t", SCHEMA, META))
    Table.open(tmp_path / "t").sync()
    assert "t" not in watch.seen
    table = Table.open(tmp_path / "t", durable=True)
    table.sync()
    watch.order(r"t/part-\S+\.parquet", "t", r"t/_delta_log/0{19}1\.json", "t/_delta_log")


def test_a_file_that_a_vacuum_took_before_its_commit_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a process sleeps between both for longer than files are kept."""
    table = Table.create(tmp_path / "t", SCHEMA, META)
    whole = delta._commit

    def late(*args: Any) -> None:
        for path in (tmp_path / "t").glob("*.parquet"):
            path.unlink()
        whole(*args)

    monkeypatch.setattr(delta, "_commit", late)
    commit(table)
    assert [chunk.rows.num_rows for chunk in Table.open(table.path).read()] == [1]
