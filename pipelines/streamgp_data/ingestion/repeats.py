"""Which rows have the series and time of an earlier one, where no table can be asked: of frames, and of a dry run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from streamgp.windows.calendar import Bools, Ints
from streamgp_data.delta import SEQ
from streamgp_data.meaning import TableMeta

_KEY = ("series", "time")
_KINDS = {"series": pl.String(), "time": pl.Int64(), "cells": pl.UInt64(), "place": pl.Int64()}
PENDING = 4096
"""Rows whose digests are made together."""


class Again(NamedTuple):
    """Of N rows. first: (N,) place of the row whose series and time each one has, or -1; other: (N,) whether it has
    other values than those it is compared with."""

    first: Ints
    other: Bools


class Repeats:
    """Compares rows with those before, as `Admission` does with those of a table.

    Memory is a key and a digest a row.

    Args:
        meta: what the columns mean, and which rows are compared: with the first of their key, the last, or all.
        most: rows that are remembered, the newest; None remembers all.

    Example:
        >>> repeats = Repeats(TableMeta("t", clock=False, duplicates="last"))
        >>> again = repeats.look(pa.table({"t": [1, 2, 1, 2], "y": [1.0, 2.0, 5.0, 2.0]}))
        >>> again.first.tolist(), again.other.tolist()
        ([-1, -1, 0, 1], [False, False, True, False])
        >>> repeats.look(pa.table({"t": [1], "y": [1.0]}))
        Again(first=array([0]), other=array([ True]))
    """

    def __init__(self, meta: TableMeta, most: int | None = None) -> None:
        self._meta, self._most = meta, most
        self.count = 0
        """Rows so far; the place of the next one."""
        self.newest: dict[str, int] = {}
        """The newest time of each series."""
        self._seen, self._pending, self._waiting = pl.DataFrame(schema=_KINDS), list[tuple[int, pa.Table]](), 0

    def look(self, rows: pa.Table, waiting: int | None = None) -> Again:
        """Compare rows, and remember them. Rows from the place `waiting` on are remembered in any case."""
        start, self.count = self.count, self.count + rows.num_rows
        first, other = np.full(rows.num_rows, -1), np.zeros(rows.num_rows, bool)
        if self._meta.time is None or not rows.num_rows:
            return Again(first, other)
        doubtful = self._doubtful(rows)
        if not doubtful.any():
            self._pending.append((start, rows))
            self._waiting += rows.num_rows
            if self._waiting > PENDING:
                self._trim(waiting)
            return Again(first, other)
        keyed = self._digests(start, rows)
        compared = keyed.filter(pl.Series(doubtful))
        known = self.seen().join(compared, on=_KEY, how="semi", maintain_order="left")
        found = self._compared(pl.concat([known, compared]))[known.height :]
        at, again = np.flatnonzero(doubtful), (found["first"] != found["place"]).to_numpy()
        first[at[again]] = found["first"].to_numpy()[again]
        other[at] = again & found["other"].to_numpy()
        kept = (first < 0) | (other & (self._meta.duplicates != "first"))
        self._seen = pl.concat([self._seen, keyed.filter(pl.Series(kept))])
        self._trim(waiting)
        return Again(first, other)

    def seen(self) -> pl.DataFrame:
        """The rows that are remembered: series, time, cells, a digest that this version of polars makes, and place."""
        if self._pending:
            tables = [rows for _, rows in self._pending]
            places = np.concatenate([np.arange(start, start + rows.num_rows) for start, rows in self._pending])
            keyed = self._digests(0, pa.concat_tables(tables)).with_columns(place=pl.Series(places))
            self._seen, self._pending, self._waiting = pl.concat([self._seen, keyed]), [], 0
        return self._seen

    def remember(self, seen: pl.DataFrame, newest: dict[str, int]) -> None:
        """What `seen()` and `newest` were."""
        self._seen, self.newest = seen, dict(newest)

    def _doubtful(self, rows: pa.Table) -> Bools:
        """(N,) rows that may have the key of another one: before the newest of their series, or twice among these."""
        assert self._meta.time is not None
        times = rows.column(self._meta.time).cast(pa.int64()).to_numpy()
        codes, names = np.zeros(len(times), np.int64), [""]
        if self._meta.series is not None:
            encoded: Any = rows.column(self._meta.series).combine_chunks().dictionary_encode()
            codes, names = encoded.indices.to_numpy(), [str(name) for name in encoded.dictionary.to_pylist()]
        least = np.iinfo(np.int64).min
        newest = np.array([self.newest.get(name, least) for name in names])
        order = np.lexsort((times, codes))
        twice = np.flatnonzero((np.diff(times[order]) == 0) & (np.diff(codes[order]) == 0))
        doubtful: Bools = times <= newest[codes]
        doubtful[order[twice]] = doubtful[order[twice + 1]] = True
        np.maximum.at(newest, codes, times)
        self.newest.update(zip(names, newest.tolist(), strict=True))
        return doubtful

    def _compared(self, whole: pl.DataFrame) -> pl.DataFrame:
        first, policy = pl.col("place").first().over(_KEY).alias("first"), self._meta.duplicates
        if policy == "first":
            other = pl.col("cells") != pl.col("cells").first().over(_KEY)
        elif policy == "last":
            other = (pl.col("cells") != pl.col("cells").shift(1).over(_KEY)).fill_null(True)
        else:
            other = pl.struct(*_KEY, "cells").is_first_distinct()
        return whole.select(first, "place", other.alias("other"))

    def _trim(self, waiting: int | None) -> None:
        known = self.seen().height
        if self._most is not None and known > 2 * self._most:
            oldest = self.count - self._most
            self._seen = self._seen.filter(pl.col("place") >= (oldest if waiting is None else min(oldest, waiting)))

    def _digests(self, start: int, rows: pa.Table) -> pl.DataFrame:
        assert self._meta.time is not None
        columns = {name: rows.column(name) for name in rows.column_names if name not in (SEQ, *self._meta.keys)}
        for name, column in columns.items():
            if pa.types.is_timestamp(column.type):
                columns[name] = column.cast(pa.int64())
        cells = pl.DataFrame(pl.from_arrow(pa.table(columns))).fill_nan(None)
        found = cells.hash_rows() if columns else pl.repeat(0, rows.num_rows, dtype=pl.UInt64, eager=True)
        time = pl.Series(pl.from_arrow(rows.column(self._meta.time).cast(pa.int64())), dtype=pl.Int64)
        series = pl.repeat("", rows.num_rows, dtype=pl.String, eager=True)
        if self._meta.series is not None:
            series = pl.Series(pl.from_arrow(rows.column(self._meta.series))).cast(pl.String)
        place = pl.int_range(start, start + rows.num_rows, eager=True)
        return pl.DataFrame({"series": series, "time": time, "cells": found, "place": place}, schema=_KINDS)
