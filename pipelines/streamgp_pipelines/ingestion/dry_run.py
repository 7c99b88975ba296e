"""What an ingest would add and put aside, counted without writing anything."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pyarrow as pa

from streamgp.streaming.admission import OTHER, SAME
from streamgp.streaming.table import SEQ, Table, TableMeta

_KEY = ("series", "time")


class DryRun:
    """Counts the rows of all sources of a run. Memory is a key and a digest a row, also of the table's.

    Args:
        meta: of the table.
        table: where there is one.
    """

    def __init__(self, meta: TableMeta, table: Table | None) -> None:
        self._meta = meta
        self._seen = pl.DataFrame(schema={"series": pl.String, "time": pl.Int64, "cells": pl.UInt64})
        for chunk in () if table is None or meta.time is None else table.arrived({}):
            self._add(pa.Table.from_batches([chunk.rows]))

    def count(self, rows: pa.Table) -> tuple[int, Counter[str]]:
        """How many of the rows that can be read a table would take, and why not the others."""
        if self._meta.time is None:
            return rows.num_rows, Counter()
        again, new = self._add(rows)
        same, other = (again & ~new).sum(), (again & new).sum() if self._meta.duplicates == "first" else 0
        reasons = Counter({reason: int(count) for (reason, _), count in ((SAME, same), (OTHER, other)) if count})
        return rows.num_rows - reasons.total(), reasons

    def _add(self, rows: pa.Table) -> tuple[pl.Series, pl.Series]:
        """(N,) whether a row has the key of an earlier one, and whether it has other values than those it is compared
        with."""
        known, policy = self._seen, self._meta.duplicates
        whole = pl.concat([known, self._digests(rows)])
        again = ~whole.select(pl.struct(_KEY).is_first_distinct()).to_series()
        if policy in ("first", "last"):
            other = pl.col("cells").first() if policy == "first" else pl.col("cells").shift(1)
            new = whole.select(pl.col("cells") != other.over(_KEY)).to_series().fill_null(True)
        else:
            new = whole.select(pl.struct(pl.all()).is_first_distinct()).to_series()
        keep = pl.struct(_KEY).is_last_distinct() if policy == "last" else pl.struct(_KEY).is_first_distinct()
        self._seen = whole.filter(keep if policy in ("first", "last") else pl.struct(pl.all()).is_first_distinct())
        return again[known.height :], new[known.height :]

    def _digests(self, rows: pa.Table) -> pl.DataFrame:
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
        return pl.DataFrame({"series": series, "time": time, "cells": found})
