"""Which rows are new: others have the (series, time) of an accepted row, with its values or with other ones.

Memory is one number a series: a row before its series' last accepted time may be a duplicate, and only such rows
are looked up in the table, in the files whose time range holds them. All others are new for certain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp_data.delta import filesystem
from streamgp_data.table import SEQ, Table, without
from streamgp_data.versions import REVISES

SAME = ("duplicate", "its series has an accepted row at this time, with the same values")
OTHER = ("conflict", "its series has an accepted row at this time, with other values (--duplicates)")
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Verdict(NamedTuple):
    """What is to be done with each of N rows.

    Attributes:
        duplicate: (N,) the values of an accepted row with its key, or of an earlier one of these.
        conflict: (N,) other values, in a table that keeps the first row.
        late: (N,) new, but before its series' last time by more than the table's lateness.
        revises: (N,) `_seq` of the row that each accepted one is another version of, or -1.
    """

    duplicate: Bools
    conflict: Bools
    late: Bools
    revises: Ints

    @property
    def accepted(self) -> Bools:
        """(N,) whether the table takes it."""
        return ~(self.duplicate | self.conflict)

    @property
    def faults(self) -> dict[int, tuple[str, str]]:
        """Reason and detail of each row that the table does not take."""
        same = dict.fromkeys(np.flatnonzero(self.duplicate).tolist(), SAME)
        return same | dict.fromkeys(np.flatnonzero(self.conflict).tolist(), OTHER)


class Admission:
    """The last time of every series of a table, and the judgement on what comes next."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._codes: dict[Any, int] = {}
        self._last: Ints = np.empty(0, np.int64)
        self._load()

    @property
    def newest(self) -> int:
        """The last time of all series, as an integer; the least one where there is none."""
        return int(self._last.max(initial=np.iinfo(np.int64).min))

    @property
    def series(self) -> set[Any]:
        """The series that have rows."""
        return set(self._codes) - {None}

    def judge(self, rows: pa.Table) -> Verdict:
        """Judge rows that have a time, in the order of their source, and count the new ones as accepted.

        Rows that were judged new before must be in the table by now.
        """
        meta = self.table.meta
        nothing, none = np.zeros(rows.num_rows, bool), np.full(rows.num_rows, -1)
        if meta.time is None or not rows.num_rows:
            return Verdict(nothing, nothing, nothing, none)
        times, codes = self._keys(rows)
        before = self._before(times, codes)
        behind = times <= before
        duplicate, conflict, revises = nothing, nothing.copy(), none
        if behind.any():
            duplicate, conflict, revises = self._compared(rows, times, codes, behind)
        late = behind & ~duplicate & ~conflict & (revises < 0)
        if late.any() and meta.lateness is not None:
            late &= times < before - meta.lateness
        np.maximum.at(self._last, codes, times)
        return Verdict(duplicate, conflict, late, revises)

    def known(self, rows: pa.Table) -> tuple[Bools, Bools]:
        """(N,) each: rows that the table has, in any version, and rows whose series and time it has. None is counted.

        Example:
            >>> import tempfile
            >>> from streamgp_data.table import TableMeta
            >>> rows = pa.table({"t": [1, 2], "y": [0.5, 0.25]})
            >>> table = Table.create(tempfile.mkdtemp() + "/t", rows.schema, TableMeta(time="t", clock=False))
            >>> _ = table.append(rows, "demo", 1)
            >>> same, there = Admission(table).known(pa.table({"t": [1, 2, 3], "y": [0.5, 0.75, 1.0]}))
            >>> same.tolist(), there.tolist()
            ([True, False, False], [True, True, False])
        """
        times, codes = self._keys(rows)
        stored = self._stored(times, codes)
        found = [stored.get(key, []) for key in zip(codes.tolist(), times.tolist(), strict=True)]
        cells = self._values(rows)
        same = [any(own == other for _, other in one) for own, one in zip(cells, found, strict=True)]
        return np.array(same, bool), np.array([bool(one) for one in found], bool)

    def _compared(self, rows: pa.Table, times: Ints, codes: Ints, behind: Bools) -> tuple[Bools, Bools, Ints]:
        """(N,) each: duplicate, conflict and revises, of rows of which some may have the key of another."""
        meta, count = self.table.meta, rows.num_rows
        duplicate, conflict = np.zeros(count, bool), np.zeros(count, bool)
        root = np.full(count, -1)  # the earlier one of these rows that a row is a version of
        revises = np.full(count, -1)
        keys = pl.DataFrame({"code": codes, "time": times, "row": np.arange(count)})
        stored = self._stored(times[behind], codes[behind])
        again = keys.filter(pl.struct("code", "time").is_duplicated())
        of_stored = pl.DataFrame(list(stored), schema={"code": pl.Int64, "time": pl.Int64}, orient="row")
        which = keys.join(of_stored, on=["code", "time"], how="semi")["row"].to_list()
        which = sorted({*which, *again["row"].to_list()})
        if not which:
            return duplicate, conflict, revises
        for row, cells in zip(which, self._values(rows.take(pa.array(which, pa.int64()))), strict=True):
            known = stored.setdefault((int(codes[row]), int(times[row])), [])
            if not known:
                known.append((-1 - row, cells))
                continue
            first = known[0][0]
            compared = {"first": known[:1], "last": known[-1:]}.get(meta.duplicates, known)
            if any(cells == other for _, other in compared):
                duplicate[row] = True
            elif meta.duplicates == "first":
                conflict[row] = True
            else:
                known.append((first, cells))
                revises[row], root[row] = max(first, -1), max(-1 - first, -1)
        here = root >= 0
        revises[here] = (self.table.rows - 1 + np.cumsum(~(duplicate | conflict)))[root[here]]
        return duplicate, conflict, revises

    def _load(self) -> None:
        meta = self.table.meta
        if meta.time is None:
            return
        columns = [meta.time] if meta.series is None else [meta.time, meta.series]
        for chunk in self.table.arrived({}, columns, batch_rows=1 << 18):
            times, codes = self._keys(pa.Table.from_batches([chunk.rows]))
            np.maximum.at(self._last, codes, times)

    def _keys(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """(N,) times as integers, (N,) codes of the series, in order of first appearance."""
        meta = self.table.meta
        assert meta.time is not None
        times = rows.column(meta.time).combine_chunks().cast(pa.int64()).to_numpy()
        if meta.series is None:
            self._known([None])
            return times, np.zeros(len(times), np.int64)
        encoded = rows.column(meta.series).combine_chunks().dictionary_encode()
        local = self._known(encoded.dictionary.to_pylist())
        return times, local[encoded.indices.to_numpy()]

    def _known(self, names: list[Any]) -> Ints:
        codes = np.array([self._codes.setdefault(name, len(self._codes)) for name in names], np.int64)
        fresh = len(self._codes) - len(self._last)
        if fresh:
            self._last = np.append(self._last, np.full(fresh, np.iinfo(np.int64).min))
        return codes

    def _before(self, times: Ints, codes: Ints) -> Ints:
        """(N,) the largest time of the series before each row."""
        if len(self._last) == 1:
            return np.maximum.accumulate(np.append(self._last, times[:-1]))
        frame = pl.DataFrame({"code": codes, "time": times})
        largest = frame.select(pl.col("time").cum_max().shift(1).over("code")).to_series()
        before: Ints = np.maximum(largest.fill_null(np.iinfo(np.int64).min).to_numpy(), self._last[codes])
        return before

    def _stored(self, times: Ints, codes: Ints) -> dict[tuple[int, int], list[tuple[int, tuple[Any, ...]]]]:
        """The rows that the table has of these keys, by key, as they came: `_seq` of the first version, and cells."""
        meta = self.table.meta
        if not len(times) or not self.table.rows:
            return {}
        assert meta.time is not None
        kind = self.table.schema.field(meta.time).type
        low, high = (pa.scalar(int(bound), pa.int64()).cast(kind) for bound in (times.min(), times.max()))
        paths = _overlapping(self.table, meta.time, low.as_py(), high.as_py())
        if not paths:
            return {}
        import pyarrow.dataset as ds  # it imports pandas, and few batches have rows older than the newest

        store = filesystem(self.table.log, self.table.path)
        for path in paths:
            self.table.verified.check(store, path)
        data = ds.dataset(paths, format="parquet", filesystem=store)
        inside = (pc.field(meta.time) >= low) & (pc.field(meta.time) <= high)
        names = [SEQ, meta.time] if meta.series is None else [SEQ, meta.time, meta.series]
        wanted, aside = pl.DataFrame({"code": codes, "time": times}), self.table.superseded
        numbers = [np.empty(0, np.int64)]
        for batch in data.to_batches(columns=names, filter=inside):
            if aside is not None:
                batch = batch.filter(without(batch.column(SEQ), aside))
            if batch.num_rows:
                found, of = self._keys(pa.Table.from_batches([batch]))
                there = pl.DataFrame({"code": of, "time": found, "seq": batch.column(SEQ).to_numpy()})
                numbers.append(there.join(wanted, on=["code", "time"], how="semi")["seq"].to_numpy())
        seq = np.sort(np.concatenate(numbers))
        if not len(seq):
            return {}
        ours = inside & pc.field(SEQ).isin(pa.array(seq))
        whole = data.to_table(filter=ours).sort_by(SEQ)
        found, of = self._keys(whole)
        first = whole.column(SEQ).to_numpy()
        if self.table.meta.duplicates != "first":
            revised = whole.column(REVISES)
            first = pc.coalesce(revised, whole.column(SEQ)).to_numpy()
        known: dict[tuple[int, int], list[tuple[int, tuple[Any, ...]]]] = {}
        for code, time, at, cells in zip(of.tolist(), found.tolist(), first.tolist(), self._values(whole), strict=True):
            known.setdefault((code, time), []).append((at, cells))
        return known

    def _values(self, rows: pa.Table) -> list[tuple[Any, ...]]:
        """The cells of each row, but for its key, as they can be compared."""
        keys = (self.table.meta.time, self.table.meta.series)
        names = [name for name in self.table.schema.names if name != SEQ and name not in keys]
        columns = {}
        for name in names:
            column = rows.column(name)
            columns[name] = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        if not columns:
            return [()] * rows.num_rows
        frame = pl.DataFrame(pl.from_arrow(pa.table(columns)))
        return frame.fill_nan(None).rows()


def _overlapping(table: Table, time: str, low: Any, high: Any) -> list[str]:
    """Files whose time statistics touch [low, high]; files without statistics always do."""
    actions: Any = pa.table(table.log.get_add_actions(flatten=True))
    paths = actions.column("path").to_pylist()
    if f"min.{time}" not in actions.column_names:
        return list(paths)
    # statistics may be cut to milliseconds: one is added on the far side
    bounds = zip(paths, *(actions.column(f"{end}.{time}").to_pylist() for end in ("min", "max")), strict=True)
    return [path for path, first, last in bounds if first is None or not (first > high or _later(last) < low)]


def _later(last: Any) -> Any:
    from datetime import datetime, timedelta

    return last + timedelta(milliseconds=1) if isinstance(last, datetime) else last
