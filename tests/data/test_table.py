"""The table: appended once, read in order from anywhere, whoever else writes, compacts or damages it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streamgp.errors import SchemaError, TableError
from streamgp_data import scan
from streamgp_data.delta import Conflict
from streamgp_data.quarantine import QUARANTINE, Quarantine
from streamgp_data.table import Table, TableMeta
from tests.words import naming

LOAD = "load (net) [MWh], a=b"
SCHEMA = pa.schema([pa.field("t", pa.int64()), (LOAD, pa.float64())])
META = TableMeta(time="t", clock=False, every_ns=1)


def batch(first: int, count: int) -> pa.Table:
    times = np.arange(first, first + count)
    return pa.Table.from_arrays([pa.array(times), pa.array(times / 8)], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Five commits of a thousand rows."""
    made = Table.create(tmp_path / "t", SCHEMA, META)
    for i in range(5):
        made.append(batch(1000 * i, 1000), "writer", i)
    return made


def times(table: Table, after: int = 0, batch_rows: int = 700) -> list[int]:
    chunks = table.read({"_seq": after}, ["t"], batch_rows)
    return [int(value) for chunk in chunks for value in chunk.rows.column("t").to_numpy()]


def test_names_units_and_meaning_survive(tmp_path: Path) -> None:
    fields: list[pa.Field[Any]] = [pa.field("t", pa.int64()), pa.field("y", pa.float32(), metadata={"unit": "kW"})]
    schema = pa.schema(fields)
    Table.create(tmp_path / "t", schema, META)
    table = Table.open(tmp_path / "t")
    assert table.meta == META
    assert table.schema.names == ["_seq", "t", "y"]
    assert (table.schema.field("y").type, table.schema.field("y").metadata) == (pa.float32(), {b"unit": b"kW"})
    assert (table.schema.field("t").metadata or {})[b"role"] == b"time"
    assert (table.rows, list(table.read())) == (0, [])


@pytest.mark.sampled
@pytest.mark.parametrize("after", [0, 1, 999, 1000, 3210, 4999, 5000])
@pytest.mark.parametrize("batch_rows", [64, 700, 10_000])
def test_reads_from_anywhere(table: Table, after: int, batch_rows: int) -> None:
    assert times(table, after, batch_rows) == list(range(after, 5000))


def test_an_offset_resumes_behind_its_chunk(table: Table) -> None:
    chunks = list(table.read(batch_rows=333))
    for chunk in chunks[::4]:
        rest = [
            row for later in table.read(chunk.after, batch_rows=77) for row in later.rows.column("_seq").to_pylist()
        ]
        assert rest == list(range(int(chunk.after["_seq"]), 5000))


def test_the_same_batch_again_appends_nothing(table: Table) -> None:
    version = table.version
    assert not table.append(batch(4000, 1000), "writer", 4)
    assert table.version == version
    assert table.append(batch(5000, 10), "another", 4)
    assert times(table, 4990) == list(range(4990, 5010))


def test_a_stale_handle_meets_a_conflict_and_looks_again(tmp_path: Path) -> None:
    first = Table.create(tmp_path / "t", SCHEMA, META)
    second = Table.open(tmp_path / "t")
    first.append(batch(0, 10), "a", 0)
    with pytest.raises(Conflict):
        second.commit(batch(10, 10), {"b": 0})
    assert second.append(batch(10, 10), "b", 0)
    assert times(second) == list(range(20))
    assert not first.append(batch(10, 10), "b", 0)  # also stale: it refreshes and finds it done
    assert first.rows == 20


def test_four_writers_at_once(tmp_path: Path) -> None:
    Table.create(tmp_path / "t", SCHEMA, META)

    def work(name: int) -> None:
        mine = Table.open(tmp_path / "t")
        for i in range(8):
            mine.append(batch(1000 * name + 10 * i, 10), f"w{name}", i)

    threads = [Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = Table.open(tmp_path / "t")
    assert sorted(times(table)) == sorted(1000 * name + i for name in range(4) for i in range(80))
    assert [value for chunk in table.read() for value in chunk.rows.column("_seq").to_pylist()] == list(range(320))


def test_compaction_changes_nothing_for_readers(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW", 900)
    table.log.optimize.compact()
    table.refresh()
    table.append(batch(5000, 1000), "writer", 5)
    assert len(table.log.file_uris()) == 2
    assert times(table, 1234) == list(range(1234, 6000))


def test_files_whose_rows_interleave_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compaction by another engine may leave: any row in any file."""
    monkeypatch.setattr(scan, "WINDOW", 64)
    table = Table.create(tmp_path / "t", SCHEMA, META)
    rng = np.random.default_rng(0)
    for part in np.array_split(rng.permutation(500), 4):
        rows = pa.Table.from_arrays([pa.array(part), pa.array(part), pa.array(part / 8)], schema=table.schema)
        write_deltalake(table.log, rows, mode="append")
    table.commit(None, {"_seq": 500})
    assert times(table, 17, 50) == list(range(17, 500))


def test_following_sees_what_is_committed_later(table: Table) -> None:
    writer = Table.open(table.path)
    more: Iterator[int] = iter(range(5, 8))

    def stop() -> bool:
        i = next(more, None)
        if i is not None:
            writer.append(batch(1000 * i, 1000), "writer", i)
        return i is None

    found = [
        n
        for chunk in table.follow({"_seq": 4500}, ["t"], 400, poll=0.001, stop=stop)
        for n in chunk.rows["t"].to_pylist()
    ]
    assert found == list(range(4500, 8000))


def test_a_slow_reader_goes_on_after_a_vacuum(table: Table) -> None:
    slow = table.read(columns=["t"], batch_rows=100)
    next(slow)
    DeltaTable(table.path).optimize.compact()
    DeltaTable(table.path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    Table.open(table.path).append(batch(5000, 10), "another", 1)
    assert [t for chunk in slow for t in chunk.rows["t"].to_pylist()] == list(range(100, 5000))
    table.refresh()
    assert times(table, 100) == list(range(100, 5010))


def test_another_table_in_its_place_is_an_error(table: Table, tmp_path: Path) -> None:
    after = next(table.read(batch_rows=100)).after
    (tmp_path / "t").rename(tmp_path / "old")
    new = Table.create(tmp_path / "t", SCHEMA, META)
    new.append(batch(0, 2000), "writer", 0)
    with pytest.raises(TableError):
        list(new.read(after))
    with pytest.raises(TableError):
        table.refresh()
    with pytest.raises(TableError):
        list(new.read({"_seq": 3000}))


def test_rows_that_do_not_fit_are_refused_by_name(table: Table) -> None:
    wrong = pa.table({"t": pa.array([1.5]), "z": pa.array([1])})
    with pytest.raises(SchemaError, match=naming("t double int64")) as refused:
        table.append(wrong, "writer", 9)
    assert LOAD in refused.value.message
    assert "'z'" in refused.value.message
    assert table.rows == 5000
    with pytest.raises(SchemaError, match=naming("y")):
        next(table.read(columns=["t", "y"]))


def test_what_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableError):
        Table.open(tmp_path / "none")
    pl.DataFrame({"a": [1]}).write_delta(str(tmp_path / "foreign"))
    with pytest.raises(TableError):
        Table.open(tmp_path / "foreign")
    Table.create(tmp_path / "t", SCHEMA, META)
    with pytest.raises(TableError):
        Table.create(tmp_path / "t", SCHEMA, META)
    with pytest.raises(SchemaError, match=naming("ds")):
        Table.create(tmp_path / "u", SCHEMA, TableMeta(time="ds"))


def test_other_programs_read_it(table: Table) -> None:
    assert pl.read_delta(table.path).sort("_seq")["t"].to_list() == list(range(5000))


def test_positions_outlive_the_log_that_wrote_them(table: Table) -> None:
    """Delta folds old commits into checkpoints and removes them: the positions of sources are in the checkpoints."""
    table.commit(None, {"a.csv#bytes": 2**62})
    table.log.create_checkpoint()
    for entry in (Path(table.path) / "_delta_log").glob("*.json"):
        entry.unlink()
    again = Table.open(table.path)
    assert (again.rows, again.mark("a.csv#bytes", 0), again.mark("writer", -1)) == (5000, 2**62, 4)
    assert times(again, 4990) == list(range(4990, 5000))


def test_an_interval_is_declared_later(table: Table) -> None:
    made = Table.create(table.path + "2", SCHEMA, TableMeta(time="t", clock=False))
    made.append(batch(0, 5), "writer", 0)
    made.declare(60)
    assert (made.meta.every_ns, Table.open(made.path).meta.every_ns, made.rows) == (60, 60, 5)


def test_rows_of_another_program_are_an_error(table: Table) -> None:
    foreign = pa.table({"_seq": pa.array([None], pa.int64()), "t": [1], LOAD: [1.0]})
    write_deltalake(table.log, foreign, mode="append")
    with pytest.raises(TableError, match=naming("_seq")):
        list(table.read())


def test_vacuum_leaves_the_quarantine(table: Table) -> None:
    row = ["duplicate", "t", "", "a.csv", 3, "{}"]
    Quarantine(table).add(pa.Table.from_arrays([pa.array([cell]) for cell in row], schema=QUARANTINE), "a.csv", 0)
    table.log.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    kept = Quarantine(table)
    assert (kept.rows, kept.reasons()) == (1, {"duplicate": 1})


def quarantined(*lines: int, source: str = "a.csv") -> pa.Table:
    rows = [["duplicate", "t", "", source, line, "{}"] for line in lines]
    return pa.Table.from_pylist([dict(zip(QUARANTINE.names, row, strict=True)) for row in rows], schema=QUARANTINE)


def lines_in(table: Table) -> list[tuple[str, int]]:
    chunks = Table.open(f"{table.path}/_quarantine").read()
    return [(row["source"], row["line"]) for chunk in chunks for row in chunk.rows.to_pylist()]


def test_the_quarantine_takes_a_row_once_whoever_brings_it(table: Table) -> None:
    one, two = Quarantine(table), Quarantine(table)
    one.add(quarantined(3, 5), "a.csv", 0)
    two.add(quarantined(3, 5, 8), "a.csv", 0)  # has not seen the first one's: it looks again
    one.add(quarantined(8, 9), "a.csv", 5)
    one.add(quarantined(8, 9), "a.csv", 5)  # judged again after a conflict
    two.add(quarantined(8, source="b.csv"), "b.csv", 0)
    Quarantine(table).add(quarantined(9, 11), "a.csv", 8)  # a later run
    two.add(quarantined(11, 12), "a.csv", 9)
    assert lines_in(table) == [*(("a.csv", n) for n in (3, 5, 8, 9)), ("b.csv", 8), ("a.csv", 11), ("a.csv", 12)]


def test_a_writer_meets_every_commit_that_it_has_not_seen(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another commit between its own commit and its look at the log must not slip under its next one."""
    other = Table.open(table.path)
    look = DeltaTable.update_incremental

    def late(log: DeltaTable) -> None:
        monkeypatch.undo()
        look(log)
        other.refresh()
        other.commit(batch(6000, 10), {"other": 1})
        look(log)

    monkeypatch.setattr(DeltaTable, "update_incremental", late)
    table.commit(batch(5000, 10), {"mine": 1})
    assert (table.rows, table.mark("other", 0), other.rows) == (5010, 0, 5020)
    with pytest.raises(Conflict):
        table.commit(batch(7000, 10), {"mine": 2})
    table.refresh()
    assert (table.rows, table.mark("other", 0)) == (5020, 1)


def test_two_declare_the_interval_at_once(tmp_path: Path) -> None:
    Table.create(tmp_path / "t", SCHEMA, TableMeta(time="t", clock=False))
    handles = [Table.open(tmp_path / "t") for _ in range(4)]
    handles[0].declare(60)
    handles[1].declare(60)
    handles[2].declare(60, 5)
    for other in ((30, None), (60, 4)):
        with pytest.raises(TableError):
            handles[3].declare(*other)
    handles[3].declare(60)
    handles[3].commit(batch(0, 5), {})
    handles[0].declare(60)
    assert (Table.open(tmp_path / "t").meta.every_ns, Table.open(tmp_path / "t").meta.tolerance_ns) == (60, 5)


def test_of_many_who_create_a_table_at_once_one_does(tmp_path: Path) -> None:
    schema, meta = pa.schema([("t", pa.int64()), ("y", pa.float64())]), TableMeta(time="t", clock=False, every_ns=1)

    def create(path: Path, start: Barrier) -> str | None:
        start.wait()
        try:
            return Table.create(path, schema, meta).id
        except TableError:
            return None

    with ThreadPoolExecutor(4) as pool:
        for number in range(30):
            path, start = tmp_path / str(number), Barrier(4)
            made = [job.result() for job in [pool.submit(create, path, start) for _ in range(4)]]
            assert [one for one in made if one] == [Table.open(path).id]
