"""What an ingest would add and put aside, counted without writing anything."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from streamgp_data.admission import OTHER, SAME
from streamgp_data.ingestion.repeats import Repeats
from streamgp_data.table import Table, TableMeta


class DryRun:
    """Counts the rows of all sources of a run. Memory is a key and a digest a row, also of the table's.

    Args:
        meta: of the table.
        table: where there is one.
    """

    def __init__(self, meta: TableMeta, table: Table | None) -> None:
        self._first, self._repeats = meta.duplicates == "first", Repeats(meta)
        for chunk in () if table is None or meta.time is None else table.arrived({}):
            self._repeats.look(pa.Table.from_batches([chunk.rows]))

    def count(self, rows: pa.Table) -> tuple[int, int, Counter[str], pa.Table]:
        """Of the rows that can be read, how many a table would take, how many of these are versions of others, why
        it would not take the rest, and the rows that have the time of another one and other values."""
        again = self._repeats.look(rows)
        other, same = int(again.other.sum()), int(((again.first >= 0) & ~again.other).sum())
        aside = ((SAME, same), (OTHER, other if self._first else 0))
        reasons = Counter({reason: count for (reason, _), count in aside if count})
        differ = rows.filter(pa.array(again.other))
        return rows.num_rows - reasons.total(), 0 if self._first else other, reasons, differ
