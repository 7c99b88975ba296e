"""A table whose files are damaged: every changed byte is an error that names the file, and never a number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamgp.errors import ServiceError, TableError
from streamgp_data import delta, parts
from streamgp_data.admission import Admission
from streamgp_data.quarantine import QUARANTINE, Quarantine
from streamgp_data.table import Table, TableMeta
from tests.words import naming

SCHEMA = pa.schema([("t", pa.timestamp("us", "UTC")), ("y", pa.float64())])


def batch(first: int, count: int) -> pa.Table:
    times = np.arange(first, first + count)
    return pa.table({"t": pa.array(1_000_001 * times).cast(SCHEMA.field("t").type), "y": times / 8}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three commits of forty rows."""
    made = Table.create(tmp_path / "t", SCHEMA, TableMeta(time="t", zone="UTC"))
    for i in range(3):
        made.append(batch(40 * i, 40), "writer", i)
    return made


def files(table: Table) -> list[Path]:
    return sorted(Path(table.path).glob("part-*.parquet"))


def count(table: Table, after: int = 0) -> int:
    opened = Table.open(table.path)
    return sum(chunk.rows.num_rows for chunk in opened.read({"_seq": after}))


def test_flips_all_over_a_file_are_found(table: Table) -> None:
    damaged = files(table)[1]
    whole = damaged.read_bytes()
    for place in range(0, len(whole), 29):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(TableError, match=damaged.name):
            count(table)
    damaged.write_bytes(whole)
    assert count(table) == 120


def _without(path: Path) -> None:
    path.unlink()


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _another(path: Path) -> None:
    path.write_bytes(min(path.parent.glob("part-*.parquet")).read_bytes())


@pytest.mark.parametrize("harm", [_without, _half, _empty, _longer, _another])
def test_a_file_that_is_not_the_one_that_was_written(table: Table, harm: Callable[[Path], None]) -> None:
    harmed = files(table)[1]
    harm(harmed)
    with pytest.raises(TableError, match=harmed.name):
        count(table)
    assert count(table, after=80) == 40  # only files that are read are looked at


@pytest.mark.parametrize("harm", [_without, _half, _empty])
def test_files_without_a_digest_are_read_as_before_and_named_when_they_cannot_be(
    table: Table, harm: Callable[[Path], None]
) -> None:
    table.log.optimize.compact()
    assert parts.digest_in(table.log.file_uris()[0]) is None
    assert count(table) == 120
    compacted = Path(table.log.file_uris()[0].removeprefix("file://"))
    harm(compacted)
    with pytest.raises(TableError, match=compacted.name):
        count(table)


def test_a_file_is_hashed_once_by_a_reader_that_follows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    hashing = parts.file_digest

    def spy(file: Any, name: str) -> Any:
        hashed.append(1)
        return hashing(file, name)

    monkeypatch.setattr(parts, "file_digest", spy)
    reader = Table.open(table.path)
    for polls in range(1, 4):
        assert sum(chunk.rows.num_rows for chunk in reader.read({"_seq": 100})) == 20 * polls
        assert len(hashed) == polls
        table.append(batch(100 + 20 * polls, 20), "later", polls)
        reader.refresh()


def test_a_file_that_was_damaged_after_its_first_read_is_found_by_the_same_reader(table: Table) -> None:
    reader = Table.open(table.path)
    assert len(list(reader.read())) == 3
    _half(files(table)[0])
    with pytest.raises(TableError, match=files(table)[0].name):
        list(reader.read())


def test_a_look_for_duplicates_verifies_the_files_that_it_reads(table: Table) -> None:
    admission = Admission(Table.open(table.path))
    admission.table = Table.open(table.path)  # as after another writer's commit: nothing is verified yet
    _another(files(table)[1])
    with pytest.raises(TableError, match=files(table)[1].name):
        admission.judge(batch(50, 1))


def test_a_damaged_quarantine_is_an_error(table: Table) -> None:
    row = ["duplicate", "t", "", "a.csv", 3, "{}"]
    Quarantine(table).add(pa.Table.from_arrays([pa.array([cell]) for cell in row], schema=QUARANTINE), "a.csv", 0)
    part = next((Path(table.path) / "_quarantine").glob("part-*.parquet"))
    text = part.read_bytes()
    assert text.count(b"a.csv") > 0
    part.write_bytes(text.replace(b"a.csv", b"b.csv"))
    with pytest.raises(TableError, match=part.name):
        Quarantine(table).reasons()


def test_statistics_hold_the_rows(table: Table) -> None:
    """Other readers skip files by them: microseconds must lie inside the milliseconds that are written."""
    found = pa.table(table.log.get_add_actions(flatten=True)).sort_by("min._seq")
    assert found["num_records"].to_pylist() == [40, 40, 40]
    assert found["max._seq"].to_pylist() == [39, 79, 119]
    for name, kept in (("min.t", [0, 40, 80]), ("max.t", [39, 79, 119])):
        instants = found[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
        true = 1_000_001 * np.array(kept)
        assert (abs(instants - true) < 1000).all()
        assert (instants <= true if name == "min.t" else instants >= true).all()
    assert found["max.y"].to_pylist() == [39 / 8, 79 / 8, 119 / 8]


def test_a_large_commit_is_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_BYTES", 1000)
    made = Table.create(tmp_path / "t", SCHEMA, TableMeta(time="t", zone="UTC"))
    made.append(batch(0, 300), "writer", 0)
    assert len(files(made)) == 8
    assert count(made) == 300 and made.version == 1


def test_the_same_rows_again_after_a_kill_are_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Table.create(tmp_path / "t", SCHEMA, TableMeta(time="t", zone="UTC"))
    monkeypatch.setattr(type(made.log), "create_write_transaction", _dies)
    with pytest.raises(KeyboardInterrupt):
        made.append(batch(0, 10), "writer", 0)
    monkeypatch.undo()
    left = files(made)
    schemas = [str(Table.open(made.path).schema.field("t").metadata) for _ in range(20)]
    assert len(set(schemas)) == 1  # the log keeps no order of a column's metadata, and the bytes of a file have one
    again = Table.open(made.path)
    again.append(batch(0, 10), "writer", 0)
    assert len(left) == 1 and files(again) == left and count(again) == 10


def test_the_same_through_an_object_store(tmp_path: Path) -> None:
    """An address with :// goes through deltalake's object store, as s3:// does."""
    made = Table.create(f"file://{tmp_path}/t", SCHEMA, TableMeta(time="t", zone="UTC"))
    made.append(batch(0, 40), "writer", 0)
    part = next((tmp_path / "t").glob("part-*.parquet"))
    assert parts.digest_in(part.name) and count(made) == 40
    whole = part.read_bytes()
    part.write_bytes(whole[:99] + bytes([whole[99] ^ 1]) + whole[100:])
    with pytest.raises(TableError, match=part.name):
        count(made)
    part.unlink()
    with pytest.raises(TableError, match=part.name):
        count(made)


def _dies(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_a_flipped_bit_in_what_the_columns_mean_is_found(tmp_path: Path) -> None:
    """An interval of 1,900 s in place of 1,800 would move every step, and a flipped name would name another column."""
    meta = TableMeta(time="t", every_ns=1_800_000_000_000, zone="UTC")
    table = Table.create(tmp_path / "t", pa.schema([("t", pa.timestamp("us", "UTC")), ("y", pa.float64())]), meta)
    (log,) = Path(table.path, "_delta_log").glob("*0.json")
    before, mark, columns = log.read_bytes().partition(b'{"metaData"')
    for old, new in ((b"1800000000000", b"1900000000000"), (b'\\"t\\"', b'\\"u\\"'), (b"UTC", b"TTC")):
        assert old in columns
        log.write_bytes(before + mark + columns.replace(old, new, 1))
        with pytest.raises(TableError, match=naming("_delta_log")):
            Table.open(table.path)
    log.write_bytes(before + mark + columns)
    assert Table.open(table.path).meta == meta


def test_a_store_that_goes_away_while_a_table_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(f"file://{tmp_path}/t", SCHEMA, TableMeta())

    def away(*_: Any) -> Any:
        raise OSError("Generic S3 error\n \x1b[31m↳\x1b[0m Error performing GET: Connection refused (os error 111)")

    for name in ("transaction_version", "is_deltatable"):
        monkeypatch.setattr(f"{delta.__name__}.DeltaTable.{name}", away)
    with pytest.raises(ServiceError, match="Connection refused") as found:
        table.mark("other", 0)
    assert "\x1b" not in found.value.message and "address" in found.value.hint
