"""Rows of one series and time with other values, against polars: every policy, order, cut and resumption."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp.base import Offset
from streamgp_data.admission import Admission
from streamgp_data.compaction import Compaction
from streamgp_data.table import KNOWN, SEQ, Table, TableMeta
from streamgp_data.versions import Policy
from tests.properties import examples

SCHEMA = pa.schema([("t", pa.int64()), ("id", pa.string()), ("y", pa.float64()), ("n", pa.int64()), ("s", pa.string())])
POLICIES: tuple[Policy, ...] = get_args(Policy)
CELLS = st.tuples(
    st.sampled_from([None, 0.1, 0.2, 0.7, 3.0]), st.sampled_from([None, 1, 2, 4]), st.sampled_from([None, "a", "b"])
)
ROWS = st.lists(st.tuples(st.integers(0, 8), st.sampled_from("ab"), CELLS), max_size=30)
Rows = list[tuple[int, str, tuple[Any, ...]]]


def as_table(rows: Rows) -> pa.Table:
    named = [dict(zip(SCHEMA.names, (t, name, *cells), strict=True)) for t, name, cells in rows]
    return pa.Table.from_pylist(named, SCHEMA)


def make(path: Path, policy: Policy, lateness: int | None = None) -> Table:
    meta = TableMeta("t", "id", clock=False, every_ns=1, lateness_ns=lateness, duplicates=policy)
    return Table.create(path, SCHEMA, meta)


def add(table: Table, rows: Rows) -> tuple[int, int]:
    """Take rows as ingest does; how many are duplicates, and conflicts."""
    whole = as_table(rows)
    verdict = Admission(table).judge(whole)
    taken = pa.array(verdict.accepted, pa.bool_())
    if verdict.accepted.any():
        table.commit(whole.filter(taken), {}, verdict.revises[verdict.accepted])
    return int(verdict.duplicate.sum()), int(verdict.conflict.sum())


def frame(batches: list[pa.RecordBatch]) -> pl.DataFrame:
    whole = pa.Table.from_batches(batches, pa.schema([(SEQ, pa.int64()), *SCHEMA]))
    return pl.DataFrame(pl.from_arrow(whole)).drop(SEQ)


def oracle(rows: Rows, policy: Policy) -> tuple[pl.DataFrame, int, int]:
    """One row a key, at the place of the first; and how many rows had the values of one before, or other ones."""
    data = pl.DataFrame(pl.from_arrow(as_table(rows)))
    kept: dict[tuple[int, str], list[tuple[Any, ...]]] = {}
    same = other = 0
    for t, name, cells in rows:
        known = kept.setdefault((t, name), [])
        compared = {"first": known[:1], "last": known[-1:]}.get(policy, known)
        if cells in compared:
            same += 1
        elif known and policy == "first":
            other += 1
        else:
            known.append(cells)
    found = []
    for (t, name), versions in kept.items():
        cells = versions[-1 if policy == "last" else 0]
        if policy == "mean" and len(versions) > 1:
            kinds = {one: data.schema[one] for one in ("y", "n", "s")}
            columns = pl.DataFrame(versions, schema=kinds, orient="row")
            whole: Any = columns["n"].mean()
            agreed = columns["s"][0] if columns["s"].n_unique() == 1 else None
            cells = (columns["y"].mean(), None if whole is None else round(whole), agreed)
        elif policy == "quarantine" and len(versions) > 1:
            cells = (None, None, None)
        found.append((t, name, *cells))
    return pl.DataFrame(found, schema=data.schema, orient="row"), same, other


def rounded(data: pl.DataFrame) -> pl.DataFrame:
    return data.with_columns(pl.col("y").round(12))


@pytest.mark.sampled
@pytest.mark.parametrize("policy", POLICIES)
@given(rows=ROWS, cuts=st.lists(st.integers(0, 30), max_size=4), size=st.integers(1, 30))
@examples(25)
def test_a_table_reads_one_row_a_key_as_its_policy_says(
    policy: Policy, rows: Rows, cuts: list[int], size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = make(tmp_path_factory.mktemp("v") / "t", policy)
    same = other = 0
    for start, end in pairwise([0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]):
        more = add(table, rows[start:end])
        same, other = same + more[0], other + more[1]
    wanted, *counts = oracle(rows, policy)
    read = frame([chunk.rows for chunk in table.read(batch_rows=size)])
    assert rounded(read).equals(rounded(wanted))
    assert [same, other] == counts
    assert table.versions == (0 if policy == "first" else table.rows - len(wanted))
    values = [chunk.rows.column("y") for chunk in table.read(columns=["y"])]
    assert [y for part in values for y in part.to_pylist()] == read["y"].to_list()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mean", "quarantine"])
@given(rows=ROWS, data=st.data())
@examples(20)
def test_where_the_policy_is_symmetric_the_order_of_arrival_changes_no_bit(
    policy: Policy, rows: Rows, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("v")
    found = []
    for name, order in (("a", rows), ("b", data.draw(st.permutations(rows)))):
        table = make(home / name, policy)
        add(table, order)
        found.append(frame([chunk.rows for chunk in table.read()]).sort("t", "id"))
    assert found[0].equals(found[1])


def read_in_parts(table: Table, offset: Offset, ends: list[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What goes out and what waits, where the reading stops after so many chunks and goes on from there."""
    out: list[pa.RecordBatch] = []
    for end in [*ends, 10**9]:
        waits: list[pa.RecordBatch] = []
        reading = table.read(offset, batch_rows=3, hold=lambda rows: waits.extend([] if rows is None else [rows]))  # noqa: B023
        for number, chunk in enumerate(reading):
            out.append(chunk.rows)
            offset = chunk.after
            if number + 1 == end:
                break
    return frame(out), frame(waits)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["last", "mean", "quarantine"])
@given(rows=ROWS, lateness=st.integers(0, 5), cut=st.integers(0, 30), ends=st.lists(st.integers(1, 8), max_size=2))
@examples(25)
def test_what_a_run_reads_does_not_depend_on_where_it_was_cut(
    policy: Policy, rows: Rows, lateness: int, cut: int, ends: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A row goes out with the versions that came before it went; one that began later knows those before it began."""
    table = make(tmp_path_factory.mktemp("v") / "t", policy, lateness)
    add(table, rows[:cut])
    begun: Offset = {KNOWN: table.rows}
    offset, live = begun, list[pa.RecordBatch]()
    for chunk in table.read(begun, hold=lambda _: None):
        live.append(chunk.rows)
        offset = chunk.after
    add(table, rows[cut:])
    rest, waiting = read_in_parts(table, offset, [])
    whole, held = read_in_parts(table, begun, ends)
    assert pl.concat([frame(live), rest]).equals(whole)
    assert held.equals(waiting)
    fresh, last = read_in_parts(table, {}, ends)
    wanted = oracle(rows, policy)[0].sort("t", "id")  # it knows all
    assert rounded(pl.concat([fresh, last]).sort("t", "id")).equals(rounded(wanted))


def test_a_correction_is_kept_behind_the_row_and_a_run_that_read_it_goes_on(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "last")
    add(table, [(t, "a", (float(t), 1, None)) for t in range(4)])
    *_, before = table.read()
    add(table, [(1, "a", (9.0, 1, None)), (4, "a", (4.0, 1, None))])
    assert (table.rows, table.versions, table.versions_since(4), table.versions_since(5)) == (6, 1, 1, 0)
    stored = pl.read_delta(table.path).sort(SEQ)
    assert stored["_revises"].to_list() == [None, None, None, None, 1, None]
    rest = [chunk.rows.column("y").to_pylist() for chunk in table.read(before.after)]
    assert [y for part in rest for y in part] == [4.0]
    again = [y for chunk in table.read() for y in chunk.rows.column("y").to_pylist()]
    assert again == [0.0, 9.0, 2.0, 3.0, 4.0]


@pytest.mark.slow
def test_compaction_keeps_the_versions(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "last")
    for n in range(24):
        add(table, [(n, "a", (float(n), 1, None)), (max(n - 2, 0), "a", (n + 0.5, 2, None))])
    before = frame([chunk.rows for chunk in table.read()])
    Compaction(table).tidy()
    assert frame([chunk.rows for chunk in Table.open(table.path).read()]).equals(before)
    assert before["y"].to_list() == [*(n + 2.5 for n in range(22)), 22.0, 23.0]
