"""Frames whose rows wait to be learned in the order of their times."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from streamgp.streaming.event_time import Waiting
from streamgp.streaming.table import SEQ
from streamgp.streaming.windows import WindowSpec
from streamgp_pipelines.memory import as_polars


def numbered(rows: pa.Table, arrived: int) -> tuple[pa.RecordBatch, int]:
    """Rows with `_seq` from `arrived` on, and that of the next one."""
    numbers = pa.array(range(arrived, arrived + rows.num_rows), pa.int64())
    whole = rows.add_column(0, SEQ, numbers).combine_chunks()
    return whole.to_batches()[0], arrived + rows.num_rows


def first_of_each(rows: pa.RecordBatch, waiting: Waiting, spec: WindowSpec) -> pa.RecordBatch:
    """Rows but those with the time and series of an earlier one, or of one that waits."""
    parts = [rows] if waiting.rows is None else [waiting.rows.select(rows.schema.names), rows]
    keys = as_polars(pa.Table.from_batches(parts).select([name for name in (spec.time, spec.series) if name]))
    new = keys.select(pl.struct(pl.all()).is_first_distinct()).to_series()[-rows.num_rows :]
    return rows.filter(pa.array(new.to_list(), pa.bool_()))


def waiting_again(held: Any, spec: WindowSpec, tail: pa.RecordBatch | None) -> tuple[Waiting, pa.RecordBatch | None]:
    """The rows of a saved tail that wait, and the others."""
    assert spec.time is not None
    waiting, count = Waiting(spec.time, spec.series, held["lateness"], held["newest"]), len(held["before"])
    if tail is None or not count:
        return waiting, tail
    waiting.rows = tail.slice(tail.num_rows - count).sort_by(SEQ)
    waiting.before, waiting.own = np.array(held["before"], np.int64), np.array(held["own"], bool)
    return waiting, tail.slice(0, tail.num_rows - count) if count < tail.num_rows else None
