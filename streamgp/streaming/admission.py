"""Which rows are new: a duplicate has the (series, time) of an accepted row.

Memory is one number a series: a row behind its series' last accepted time may be a duplicate, and only such rows
are looked up in the table, in the files whose time range holds them. All others are new for certain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.streaming.delta import filesystem
from streamgp.streaming.table import SEQ, Table, without

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Verdict(NamedTuple):
    """(N,) duplicate: the key of an accepted row, or of an earlier one of these; (N,) late: new, but behind its
    series' last time, and behind the newest of all by more than the table's lateness."""

    duplicate: Bools
    late: Bools


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
        nothing = np.zeros(rows.num_rows, bool)
        if meta.time is None or not rows.num_rows:
            return Verdict(nothing, nothing)
        times, codes = self._keys(rows)
        behind = times <= self._before(times, codes)
        duplicate = nothing
        if behind.any():
            keys = pl.DataFrame({"code": codes, "time": times})
            repeated = ~keys.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
            candidates = np.flatnonzero(behind & ~repeated)
            known = nothing.copy()
            known[candidates] = self._in_table(times[candidates], codes[candidates])
            duplicate = behind & (repeated | known)
        late = behind & ~duplicate
        if late.any() and meta.lateness is not None:
            late &= times < np.maximum.accumulate(np.append(self.newest, times[:-1])) - meta.lateness
        np.maximum.at(self._last, codes, times)
        return Verdict(duplicate, late)

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

    def _in_table(self, times: Ints, codes: Ints) -> Bools:
        """(N,) which keys the table has."""
        meta = self.table.meta
        found = np.zeros(len(times), bool)
        if not len(times) or not self.table.rows:
            return found
        assert meta.time is not None
        kind = self.table.schema.field(meta.time).type
        low, high = (pa.scalar(int(bound), pa.int64()).cast(kind) for bound in (times.min(), times.max()))
        paths = _overlapping(self.table, meta.time, low.as_py(), high.as_py())
        if not paths:
            return found
        import pyarrow.dataset as ds  # it imports pandas, and few batches have rows behind the newest

        store = filesystem(self.table.log, self.table.path)
        for path in paths:
            self.table.verified.check(store, path)
        data = ds.dataset(paths, format="parquet", filesystem=store)
        inside = (pc.field(meta.time) >= low) & (pc.field(meta.time) <= high)
        columns = [meta.time] if meta.series is None else [meta.time, meta.series]
        keys = pl.DataFrame({"code": codes, "time": times, "row": np.arange(len(times))})
        aside = self.table.superseded
        if aside is not None:
            columns.append(SEQ)
        for batch in data.to_batches(columns=columns, filter=inside):
            if aside is not None:
                batch = batch.filter(without(batch.column(SEQ), aside))
            if batch.num_rows:
                stored, stored_codes = self._keys(pa.Table.from_batches([batch]))
                there = pl.DataFrame({"code": stored_codes, "time": stored})
                found[keys.join(there, on=["code", "time"], how="semi")["row"].to_numpy()] = True
        return found


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
