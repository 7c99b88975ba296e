"""The quarantine: a second Delta table with every row that the table could not take, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa

from streamgp.errors import TableError
from streamgp.streaming._delta import Conflict
from streamgp.streaming.table import Table, TableMeta

_COLUMNS: dict[str, pa.DataType] = {
    "reason": pa.string(),  # duplicate, unparsable, ragged, no time, no series, skipped hour
    "column": pa.string(),
    "detail": pa.string(),
    "source": pa.string(),
    "line": pa.int64(),  # the record's first line in a text file, its row in others, from 1
    "row": pa.string(),  # the row as JSON, or its text where it could not be split into cells
}
QUARANTINE = pa.schema(_COLUMNS)

SEEN = pl.DataFrame(schema={"line": pl.Int64, "reason": pl.String})
"""No rows of the quarantine: the shape of `Quarantine.lines`."""

FOLDER = "_quarantine"


class Quarantine:
    """The rows of one table that could not be taken."""

    def __init__(self, table: Table) -> None:
        self.path = f"{table.path}/{FOLDER}"
        self._store = Table.open(self.path) if Table.exists(self.path) else None

    @property
    def rows(self) -> int:
        return 0 if self._store is None else self._store.rows

    def add(self, rows: pa.Table) -> None:
        """Append; another writer's commits in between do not matter. The Delta table is made at the first row."""
        while rows.num_rows:
            try:
                if self._store is None:
                    self._store = Table.open(self.path) if Table.exists(self.path) else self._create()
                self._store.commit(rows, {})
                return
            except Conflict:
                assert self._store is not None
                self._store.refresh()

    def lines(self, source: str, after: int) -> pl.DataFrame:
        """line, reason: the rows of `source` behind line `after`, those of a batch that was never committed."""
        found = [SEEN]
        for rows in self._read(["reason", "source", "line"]):
            frame = pl.DataFrame(pl.from_arrow(rows)).filter((pl.col("source") == source) & (pl.col("line") > after))
            found.append(frame.select("line", "reason"))
        return pl.concat(found)

    def reasons(self) -> dict[str, int]:
        """Rows by reason."""
        counts: Counter[str] = Counter()
        for rows in self._read(["reason"]):
            reasons: list[Any] = rows["reason"].to_pylist()
            counts.update(reasons)
        return dict(counts)

    def _create(self) -> Table:
        try:
            return Table.create(self.path, QUARANTINE, TableMeta())
        except TableError:  # somebody else made it in this moment
            return Table.open(self.path)

    def _read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        if self._store is not None:
            for chunk in self._store.read(columns=columns):
                yield chunk.rows
