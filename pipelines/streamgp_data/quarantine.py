"""The quarantine: a second Delta table with every row that the table could not take, and why."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from streamgp.base import Json
from streamgp.errors import TableError
from streamgp_data.compaction import Compaction
from streamgp_data.delta import Conflict
from streamgp_data.table import SEQ, Table, TableMeta

_COLUMNS: dict[str, pa.DataType] = {
    "reason": pa.string(),  # duplicate, conflict, unparsable, ragged, too long, no time, no series, superseded, ...
    "column": pa.string(),
    "detail": pa.string(),
    "source": pa.string(),
    "line": pa.int64(),  # the record's first line in a text file, its row in others, from 1
    "row": pa.string(),  # the row as JSON, or its text where it could not be split into cells
}
QUARANTINE = pa.schema(_COLUMNS)

_KEY = ["line", "reason", "row"]
_NOTHING = pl.DataFrame(schema={"line": pl.Int64, "reason": pl.String, "row": pl.String})

SUPERSEDED = "superseded"
"""The reason of an accepted row that was of half a line; see `Table.supersede`."""

CLOCK = ("future", "out of range")
"""The reasons of rows whose time is far from all others."""

FOLDER = "_quarantine"


class _Known(NamedTuple):
    """What the quarantine holds of a source: (line, reason, row) of its rows before `_seq` `place`."""

    place: int
    rows: pl.DataFrame


class Quarantine:
    """The rows of one table that could not be taken."""

    def __init__(self, table: Table) -> None:
        self.path = f"{table.path}/{FOLDER}"
        self._store: Table | None = None
        self._compaction: Compaction | None = None
        self._durable = table.durable
        if Table.exists(self.path):
            self._use(Table.open(self.path, self._durable))
        self._known: dict[str, _Known] = {}

    @property
    def rows(self) -> int:
        return 0 if self._store is None else self._store.rows

    def add(self, rows: pa.Table, source: str, after: int) -> None:
        """Append those of `rows` that are not there yet, rows of `source` after line `after`.

        A run that was killed, or another one of the same source at the same time, may have put some of them there: a
        (line, reason, row) is there once, because a commit meets every other one since the look as a conflict, and then
        looks again. The Delta table is made at the first row.

        Raises:
            TableError: the quarantine is damaged.
            ServiceError: the storage refused.
        """
        while rows.num_rows:
            try:
                if self._store is None or self._compaction is None:
                    self._use(Table.open(self.path, self._durable) if Table.exists(self.path) else self._create())
                    continue
                known = self._look(self._store, source, after)
                given = pl.DataFrame(pl.from_arrow(rows))
                fresh = given.join(known, on=_KEY, how="anti", maintain_order="left")
                if fresh.height:
                    self._store.commit(fresh.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(QUARANTINE), {})
                    self._known[source] = _Known(self._store.rows, pl.concat([known, fresh.select(_KEY)]))
                    self._compaction.committed()
                return
            except Conflict:
                assert self._store is not None
                self._store.refresh()

    def _look(self, store: Table, source: str, after: int) -> pl.DataFrame:
        """line, reason, row: the rows of `source` after line `after`; only what is new since the last look is read."""
        before = self._known.get(source, _Known(0, _NOTHING))
        found = [before.rows]
        for chunk in store.read({SEQ: before.place}, ["source", *_KEY]):
            frame = pl.DataFrame(pl.from_arrow(chunk.rows)).filter(pl.col("source") == source)
            found.append(frame.select(_KEY))
        rows = pl.concat(found).filter(pl.col("line") > after)
        self._known[source] = _Known(store.rows, rows)
        return rows

    def lines(self, source: str) -> dict[int, set[str]]:
        """Line -> why it is here, of those of a source."""
        found: dict[int, set[str]] = {}
        for chunk in self._store.read(columns=["reason", "source", "line"]) if self._store is not None else ():
            here = pl.DataFrame(pl.from_arrow(chunk.rows)).filter(source=source)
            for line, reason in here.select("line", "reason").iter_rows():
                found.setdefault(line, set()).add(reason)
        return found

    def reasons_of(self, source: str, line: int) -> set[str]:
        """Why a line of a source is here; nothing where it is not."""
        return self.lines(source).get(line, set())

    def reasons(self) -> dict[str, int]:
        """Rows by reason."""
        counts: Counter[str] = Counter()
        for chunk in self._store.read(columns=["reason"]) if self._store is not None else ():
            reasons: list[Any] = chunk.rows["reason"].to_pylist()
            counts.update(reasons)
        return dict(counts)

    def leaps(self) -> tuple[int, str]:
        """How many rows are here because their time is far from all others, and what is said of the last."""
        count, last = 0, ""
        for chunk in self._store.read(columns=["reason", "detail"]) if self._store is not None else ():
            found = pl.DataFrame(pl.from_arrow(chunk.rows)).filter(pl.col("reason").is_in(CLOCK))
            count, last = count + found.height, found["detail"][-1] if found.height else last
        return count, last

    def newest(self, rows: int) -> list[Json]:
        """The last rows that were put aside, at most `rows`: source, line, reason, column and detail."""
        columns = ["source", "line", "reason", "column", "detail"]
        found: list[Json] = []
        if self._store is not None:
            for chunk in self._store.read({SEQ: max(0, self._store.rows - rows)}, columns=columns):
                found += chunk.rows.select(columns).to_pylist()
        return found

    def _use(self, store: Table) -> None:
        self._store, self._compaction = store, Compaction(store)

    def _create(self) -> Table:
        try:
            return Table.create(self.path, QUARANTINE, TableMeta(), self._durable)
        except TableError:  # somebody else made it in this moment
            return Table.open(self.path, self._durable)
