"""Files of small commits are merged: fewer files, the same rows under the same numbers, whoever reads or writes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamgp.errors import TableError
from streamgp_data import compaction, delta
from streamgp_data.admission import Admission
from streamgp_data.compaction import EVERY, Compaction
from streamgp_data.delta import Conflict, Span
from streamgp_data.parts import digest_in
from streamgp_data.quarantine import QUARANTINE, Quarantine
from streamgp_data.table import Table, TableMeta

SCHEMA = pa.schema([("t", pa.int64()), ("y", pa.float64())])
META = TableMeta(time="t", clock=False, every_ns=1)


def batch(first: int, count: int = 1) -> pa.Table:
    times = np.arange(first, first + count)
    return pa.table({"t": times, "y": times / 8}, schema=SCHEMA)


def times(table: Table, after: int = 0) -> list[int]:
    return [int(t) for chunk in table.read({"_seq": after}, ["t"], 50) for t in chunk.rows.column("t").to_numpy()]


def write(table: Table, rows: int, merging: Compaction) -> None:
    """A commit a row, behind those of the table."""
    for row in range(table.rows, table.rows + rows):
        table.commit(batch(row), {"writer": row})
        merging.committed()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table of five times EVERY commits of a row and 20 more, merged."""
    table = Table.create(tmp_path_factory.mktemp("small") / "t", SCHEMA, META)
    write(table, 5 * EVERY + 20, Compaction(table))
    return table


@pytest.mark.slow
def test_small_commits_leave_few_files_with_digests_and_the_same_rows(small: Table) -> None:
    files = delta.spans(small.log)
    assert [(file.first, file.rows) for file in files[:2]] == [(0, 4 * EVERY), (4 * EVERY, EVERY)]
    assert len(files) == 2 + 20 and all(digest_in(file.path) for file in files)
    again = Table.open(small.path)
    assert (again.rows, again.mark("writer", -1), again.id) == (small.rows, small.rows - 1, small.id)
    assert times(again) == list(range(small.rows))
    assert times(again, 100) == list(range(100, small.rows))
    assert again.log.metadata().configuration["delta.appendOnly"] == "true"


def test_the_number_of_files_grows_as_the_logarithm() -> None:
    """Simulated: each merge puts one file in the place of those that were due."""
    files: list[Span] = []
    rewritten = 0
    for row in range(100_000):
        files.append(Span(str(row), row, row, 1, 900))
        if (row + 1) % EVERY == 0:
            found = compaction.due(files)
            rows = sum(file.rows for file in found)
            rewritten += rows
            files[len(files) - len(found) :] = [Span("merged", found[0].first, row, rows, 900 + 20 * rows)]
    assert len(files) <= EVERY + 17
    assert rewritten <= 12 * 100_000


def test_what_another_program_packed_otherwise_is_left_alone() -> None:
    ones = [Span(str(row), row, row, 1, 900) for row in range(EVERY)]
    assert compaction.due([*ones[:10], Span("hole", 20, 30, 5, 900), *ones[31:]]) == []
    assert compaction.due(ones[:1]) == []
    large = [file._replace(size=compaction.LARGE) for file in ones]
    assert compaction.due(large) == []


@pytest.mark.slow
def test_a_reader_of_an_older_version_goes_on_in_the_merged_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "KEPT", 0)
    table = Table.create(tmp_path / "t", SCHEMA, META)
    merging = Compaction(table)
    write(table, EVERY - 1, merging)
    slow = Table.open(table.path)
    reading = slow.read(columns=["t"])
    found = [int(next(reading).rows["t"][0].as_py()) for _ in range(10)]
    write(table, 2 * EVERY, merging)
    files = {path.name for path in Path(table.path).glob("part-*")}
    assert len(files) == len(delta.spans(table.log))  # what was merged is gone
    found += [int(t) for chunk in reading for t in chunk.rows.column("t").to_numpy()]
    assert found == list(range(EVERY - 1))  # those of its version, each once
    assert (slow.rows, slow.refresh()) == (EVERY - 1, table.version)
    (Path(table.path) / delta.spans(table.log)[0].path).unlink()
    with pytest.raises(TableError):
        times(slow)


@pytest.mark.slow
def test_merged_files_stay_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, META)
    merging = Compaction(table)
    write(table, EVERY, merging)
    old = sorted(Path(table.path).glob("part-*"))
    assert len(old) == EVERY + 1
    other = tmp_path / "t" / "part-notes.parquet"
    other.write_text("not ours")
    gone = old[10:13]
    for path in (*gone, other):
        os.utime(path, (1, 1))
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    write(table, EVERY, merging)
    left = set(Path(table.path).glob("part-*"))
    assert set(gone) < left  # the file that has their rows now is young
    assert len(left) == 1 + 2 * EVERY + 2  # and two merged files, of which the second has all rows
    os.utime(Path(table.path) / delta.spans(table.log)[0].path, (1, 1))
    assert {one.name for one in compaction.leftovers(table)} == {path.name for path in gone}
    monkeypatch.setattr(time, "monotonic", lambda: 2e9)
    before = compaction.leftovers(table)
    compaction.remove(table, before)
    compaction.remove(table, before)  # another process may have been first
    assert other.exists() and left - set(Path(table.path).glob("part-*")) == set(gone)
    assert times(table) == list(range(2 * EVERY))


@pytest.mark.slow
def test_another_writer_meets_a_conflict_and_a_merge_yields_to_it(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, META)
    merging = Compaction(table)
    write(table, EVERY - 1, merging)
    stale = Table.open(table.path)
    write(table, 1, merging)  # and a merge
    with pytest.raises(Conflict):
        stale.commit(batch(9999), {})
    assert stale.append(batch(EVERY), "other", 1)
    version = table.version
    for _ in range(EVERY):
        merging.committed()
    assert table.version == version  # it saw that another one had written, and left everything as it was
    with pytest.raises(Conflict):
        table.commit(batch(9999), {})
    table.refresh()
    write(table, EVERY, merging)
    assert times(table) == list(range(2 * EVERY + 1))
    late = Admission(table).judge(batch(EVERY - 5, 3))
    assert late.duplicate.all()


@pytest.mark.slow
def test_a_damaged_file_is_not_merged_into_a_sound_one(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, META)
    merging = Compaction(table)
    write(table, EVERY - 1, merging)
    harmed = min(Path(table.path).glob("part-*"))
    harmed.write_bytes(harmed.read_bytes()[:-1] + b"x")
    with pytest.raises(TableError, match=harmed.name):
        write(table, 1, merging)
    assert table.rows == EVERY and len(delta.spans(table.log)) == EVERY


@pytest.mark.slow
def test_the_quarantine_is_merged_too(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, META)
    quarantine = Quarantine(table)
    for line in range(EVERY + 3):
        row = {"reason": "ragged", "column": "", "detail": "", "source": "a", "line": line, "row": "?"}
        quarantine.add(pa.Table.from_pylist([row], schema=QUARANTINE), "a", line - 1)
    assert quarantine.rows == EVERY + 3 and quarantine.reasons() == {"ragged": EVERY + 3}
    assert len(delta.spans(Table.open(quarantine.path).log)) == 1 + 3
