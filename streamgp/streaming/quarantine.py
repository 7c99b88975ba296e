"""The quarantine: a second Delta table with every row that the table could not take, and why."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamgp.errors import TableError
from streamgp.streaming._delta import Conflict
from streamgp.streaming.table import Table, TableMeta

QUARANTINE = pa.schema(
    [
        pa.field("reason", pa.string()),  # duplicate, unparsable, ragged, no time, no series, skipped hour
        pa.field("column", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("source", pa.string()),
        pa.field("line", pa.int64()),  # the record's first line in a text file, its row in others, from 1
        pa.field("row", pa.string()),  # the row as JSON, or its text where it could not be split into cells
    ]
)

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

    def lines(self, source: str, after: int) -> set[tuple[int, str]]:
        """(line, reason) of the rows of `source` behind line `after`: those of a batch whose rows were never committed."""
        found: set[tuple[int, str]] = set()
        for rows in self._read(["reason", "source", "line"]):
            mine = rows.filter(pc.and_(pc.equal(rows["source"], source), pc.greater(rows["line"], after)))
            found |= set(zip(mine["line"].to_pylist(), mine["reason"].to_pylist(), strict=True))
        return found

    def reasons(self) -> dict[str, int]:
        """Rows by reason."""
        counts: dict[str, int] = {}
        for rows in self._read(["reason"]):
            for entry in rows["reason"].value_counts().to_pylist():
                counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
        return counts

    def _create(self) -> Table:
        try:
            return Table.create(self.path, QUARANTINE, TableMeta())
        except TableError:  # somebody else made it in this moment
            return Table.open(self.path)

    def _read(self, columns: list[str]) -> list[pa.RecordBatch]:
        return [] if self._store is None else [chunk.rows for chunk in self._store.read(columns=columns)]
