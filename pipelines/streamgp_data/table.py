"""The table of rows: an append-only Delta table that every run can replay from any row.

Columns keep their names, units and types. `_seq` (int64, first column) numbers the accepted rows 0, 1, 2, ...
in the order in which they were committed; a reader's offset is the next `_seq`. What ingest could not accept is
in a second Delta table, `_quarantine`, inside the same directory (Delta readers skip names that begin with an
underscore, so it travels with the table and nobody mistakes it for data).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streamgp.base import Chunk, Offset
from streamgp.errors import SchemaError, ServiceError, TableError, disk_fault
from streamgp.windows.calendar import Bools, Ints
from streamgp_data import delta
from streamgp_data.columns import check_schema, hidden, stored_columns
from streamgp_data.delta import SEQ as SEQ
from streamgp_data.delta import Conflict
from streamgp_data.disk import Disk, sync_above
from streamgp_data.event_time import in_order
from streamgp_data.meaning import TableMeta as TableMeta
from streamgp_data.meaning import description, meaning
from streamgp_data.parts import Verified, cause
from streamgp_data.scan import Gone, scan
from streamgp_data.versions import REVISES, Versions

_SUPERSEDED = "_superseded"
_VERSIONS, _FIRST_VERSION = "_versions", "_versions#first"
KNOWN = "known"
"""Key of an offset: versions of rows that arrived before this `_seq` were known when the reading began."""


class Table:
    """An ACID table of rows; see `Table.create` and `Table.open`.

    Example:
        >>> import tempfile
        >>> schema = pa.schema([("t", pa.int64()), ("y", pa.float64())])
        >>> table = Table.create(tempfile.mkdtemp() + "/demo", schema, TableMeta(time="t", clock=False, every_ns=1))
        >>> table.append(pa.table({"t": [1, 2, 3], "y": [0.5, 0.25, 1.0]}), app_id="demo", n=1)
        True
        >>> table.append(pa.table({"t": [1, 2, 3], "y": [0.5, 0.25, 1.0]}), app_id="demo", n=1)  # the same again
        False
        >>> [(chunk.rows.column("y").to_pylist(), dict(chunk.after)["_seq"]) for chunk in table.read({"_seq": 1})]
        [([0.25, 1.0], 3)]
    """

    def __init__(self, path: str, log: DeltaTable, durable: bool = False) -> None:
        self.path = path
        self.durable = durable
        self.disk = Disk(Path(path)) if durable and "://" not in path else None
        self.verified = Verified(path)
        self._log = log
        self._place = _place(path)
        self._marks: tuple[int, dict[str, int | None]] = (-1, {})  # of this version: each costs a look into the log
        self.stored: pa.Schema = delta.arrow_schema(log)
        self.meta = meaning(log, path)
        self.schema: pa.Schema = pa.schema([field for field in self.stored if field.name not in hidden(self.meta)])
        self._revised: tuple[int, tuple[str, ...], pa.Table | None] = (0, (), None)  # until where, columns, versions

    @classmethod
    def create(cls, path: str | Path, schema: pa.Schema, meta: TableMeta, durable: bool = False) -> Self:
        """A new, empty table. `schema`: the columns without `_seq`; field metadata (unit, ...) is kept. `durable`: as
        `open`.

        Raises:
            SchemaError: a column has a reserved name or is missing.
            TableError: there is a table, or something else, at `path`.
            ServiceError: the storage refused.
        """
        uri = _uri(path)
        columns = stored_columns(schema, meta)
        try:
            made = cls(uri, delta.create_log(uri, columns, description(meta, columns)), durable)
            if made.disk is not None:
                with delta.writing(uri):
                    made.disk.entries(made.version)
                    sync_above(Path(uri))
            return made
        except Conflict:
            raise TableError(f"table {uri} exists already", hint="open it, or name another directory") from None

    @classmethod
    def open(cls, path: str | Path, durable: bool = False, version: int | None = None) -> Self:
        """The table at `path`, at its newest version or at the one named. `durable`: what is committed is on the disk
        when `commit` returns; an object store keeps what it has acknowledged in any case.

        Raises:
            TableError: it is missing, damaged, or was not made by streamgp.
        """
        uri = _uri(path)
        return cls(uri, delta.open_log(uri, version), durable)

    @classmethod
    def exists(cls, path: str | Path) -> bool:
        """Whether there is a Delta table at `path`."""
        return delta.is_log(_uri(path))

    @property
    def version(self) -> int:
        """The version of the log that this handle sees; `refresh` moves it."""
        return self._log.version()

    @property
    def id(self) -> str:
        """Identifies this table among others made at the same place."""
        return str(self._log.metadata().id)

    @property
    def rows(self) -> int:
        """Accepted rows at this version; also the `_seq` of the next one."""
        return self.mark(SEQ, 0)

    @property
    def log(self) -> DeltaTable:
        """The Delta table itself, for what only it can tell (files, statistics, history)."""
        return self._log

    def mark(self, key: str, default: int) -> int:
        """The transaction number that a writer left under `key`.

        Raises:
            TableError: entries of the log that this version needs are gone.
        """
        version, known = self._marks
        if version != self.version:
            self._marks = version, known = self.version, {}
        if key not in known:
            try:
                known[key] = self._log.transaction_version(key)
            except (DeltaError, OSError) as error:
                if "://" in self.path:
                    delta.is_log(self.path)  # which says that the store does not answer
                elif (reason := disk_fault(error)) is not None and "o such file" not in reason:
                    raise ServiceError(
                        f"table {self.path}: its log cannot be read: {reason}",
                        hint="give permission, or allow more open files (ulimit -n), and run the same command again",
                    ) from None
                raise TableError(
                    f"table {self.path}: the log of version {version} is gone: {cause(error)}",
                    hint="it is older than the table keeps: run the same command again",
                ) from None
        found = known[key]
        return default if found is None else found

    def refresh(self) -> int:
        """See what others have committed and declared; returns the version.

        Raises:
            TableError: the table is gone or another one stands in its place.
        """
        place = _place(self.path)
        if place is None or place != self._place or not delta.catch_up(self._log):
            newest = delta.open_log(self.path)
            if newest.metadata().id != self._log.metadata().id:
                raise TableError(
                    f"table {self.path} was replaced by another one", hint="start again with the new table"
                )
            self._log, self._place = newest, place
        self.meta = meaning(self._log, self.path)
        return self.version

    def declare(self, every_ns: int, tolerance_ns: int | None = None) -> None:
        """State the interval, and the tolerance, of a table that was made without; the rows stay as they are.

        Others may declare at the same time, or append: the handle then sees what they did.

        Raises:
            TableError: another interval or tolerance was declared.
            ServiceError: the storage refused.
        """
        while True:
            own = self.meta
            wanted = replace(own, every_ns=every_ns, tolerance_ns=tolerance_ns or own.tolerance_ns)
            if wanted == own:
                return
            if own.every_ns not in (None, every_ns) or own.tolerance_ns not in (None, wanted.tolerance_ns):
                raise TableError(
                    f"table {self.path} has another interval or tolerance: {own.every_ns}, {own.tolerance_ns} ns",
                    hint="leave --every and --tolerance out, or ingest into another table",
                )
            with suppress(Conflict):  # somebody else has declared or appended: look at what they did
                delta.describe(self._log, self.path, description(wanted, self.stored), self.disk)
            self.refresh()

    def commit(
        self, rows: pa.Table | None, marks: Mapping[str, int], revises: Ints | None = None, late: Bools | None = None
    ) -> None:
        """Append `rows` under the next `_seq` and set `marks`, atomically; None sets the marks alone.

        Args:
            rows: with all columns of the table.
            marks: transaction numbers.
            revises: (N,) `_seq` of the row that each is another version of, or -1; None where none is.
            late: (N,) which came later than the lateness of the table; None where none did.

        Raises:
            Conflict: another writer has committed since this handle was refreshed; nothing was written.
            SchemaError: `rows` has other columns or types than the table.
            ServiceError: the storage refused; nothing was written.
        """
        first = self.rows
        numbered = None
        if rows is not None:
            check_schema(rows.schema, self.schema)
            numbers = pa.array(np.arange(first, first + rows.num_rows))
            columns = [pa.chunked_array([numbers]), *(rows.column(name) for name in self.schema.names[1:])]
            again = np.full(rows.num_rows, -1) if revises is None else revises
            if self.meta.duplicates != "first":
                columns.append(pa.chunked_array([pa.array(again, pa.int64(), mask=again < 0)]))
            if len(columns) < len(self.stored):  # a table with a lateness; those made before `_late` was have none
                columns.append(pa.chunked_array([pa.array(np.zeros(len(again), bool) if late is None else late)]))
            numbered = pa.Table.from_arrays(columns, schema=self.stored)
            if (again >= 0).any():
                start = self.mark(_FIRST_VERSION, first + int(np.argmax(again >= 0)))
                marks = {**marks, _VERSIONS: self.versions + int((again >= 0).sum()), _FIRST_VERSION: start}
        count = 0 if rows is None else rows.num_rows
        known, made = self._marks[1], {SEQ: first + count, **marks}
        delta.commit(self._log, self.path, numbered, made, self.disk)
        self._marks = self.version, {**known, **made}

    def sync(self) -> None:
        """See that every row of this version is on the disk, whoever wrote it; nothing where the table is not durable.

        Raises:
            ServiceError: the disk refused.
        """
        if self.disk is not None:
            with delta.writing(self.path):
                self.disk.files(span.path for span in delta.spans(self._log))
                self.disk.entries(self.version)

    @property
    def versions(self) -> int:
        """Rows of the table that are another version of a row, with other values."""
        return 0 if self.meta.duplicates == "first" else self.mark(_VERSIONS, 0)

    @property
    def readable(self) -> int:
        """Rows that a reader gets: `rows` without `versions`, which come in the place of the first."""
        return self.rows - self.versions

    def versions_since(self, row: int) -> int:
        """Of `versions`, those with this `_seq` or a later one.

        Raises:
            TableError: rows have gone from the table, or a file is damaged.
        """
        if not self.versions:
            return 0
        start = max(row, self.mark(_FIRST_VERSION, 0))
        batches = self._batches(start, (SEQ, REVISES), 1 << 18) if start < self.rows else ()
        return sum(len(batch) - batch.column(REVISES).null_count for batch in batches)

    @property
    def superseded(self) -> pa.Array[Any] | None:
        """The `_seq` of the rows that are not read any more, or None."""
        count = self.mark(f"{_SUPERSEDED}#count", 0)
        return pa.array([self.mark(f"{_SUPERSEDED}#{i}", -1) for i in range(count)], pa.int64()) if count else None

    def supersede(self, row: int, marks: Mapping[str, int]) -> None:
        """Leave the row with `_seq` `row` out of every later reading, and set `marks`, atomically.

        An append-only table keeps the row, for other programs too. Its (series, time) is free again.

        Raises:
            Conflict: another writer has committed since this handle was refreshed; nothing was written.
            ServiceError: the storage refused; nothing was written.
        """
        count = self.mark(f"{_SUPERSEDED}#count", 0)
        self.commit(None, {f"{_SUPERSEDED}#count": count + 1, f"{_SUPERSEDED}#{count}": row, **marks})

    def find(self, row: pa.Table) -> int | None:
        """The `_seq` of the last row that equals the only one of `row` in every column, or None."""
        wanted = row.combine_chunks().to_batches()[0].to_pylist()[0]
        found = None
        for chunk in self.arrived({}):
            same = np.ones(chunk.rows.num_rows, bool)
            for name, value in wanted.items():
                column = chunk.rows.column(name)
                equal: Any = column.is_null() if value is None else pc.equal(column, pa.scalar(value, column.type))
                same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
            if same.any():
                found = int(chunk.rows.column(SEQ).to_numpy()[same][-1])
        return found

    def append(self, rows: pa.Table | pa.RecordBatch, app_id: str, n: int) -> bool:
        """Append unless `app_id` has already committed its batch `n` or a later one; says whether it appended.

        A commit that meets another writer's is retried under new `_seq` after looking again.
        """
        whole = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        while True:
            if self.mark(app_id, -1) >= n:
                return False
            try:
                self.commit(whole, {app_id: n})
                return True
            except Conflict:
                self.refresh()

    def read(
        self,
        after: Offset | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = 65_536,
        hold: Callable[[pa.RecordBatch | None], None] | None = None,
    ) -> Iterator[Chunk]:
        """The rows of this version from `after` on; `_seq` is always among the columns.

        They come in `_seq` order or, in a table with a lateness, in the order of their times (`event_time.in_order`);
        then `hold` is called at the end with the rows that newer ones may still come before, which are the last chunk
        where it is None. Rows that were superseded are left out; a chunk may be empty then. A row of which the table
        has several versions comes once, at the place of the first, as the policy says: of all versions that were there
        when the reading began, and in a table with a lateness also of those that came before the row went out.

        Raises:
            SchemaError: there is no such column.
            TableError: the table is not the one that gave the offset, rows have gone from it, or a file is damaged.
        """
        lateness, keys, after = self.meta.lateness, list(self.meta.keys), after or {}
        keep = self.meta.duplicates != "first"
        known = int(after.get(KNOWN, self.rows))
        names = self.schema.names if columns is None else [SEQ, *(name for name in columns if name != SEQ)]
        wanted = names if lateness is None else list(dict.fromkeys([*names, *keys]))
        versions = self._known(tuple(wanted), known)
        arrived = self.arrived(after, wanted if versions is None else [*wanted, REVISES], batch_rows)
        if keep:
            arrived = (chunk._replace(after={**chunk.after, KNOWN: known}) for chunk in arrived)
        if lateness is None:
            yield from arrived if versions is None else _firsts(arrived, versions)
            return

        def cut(rows: pa.RecordBatch) -> pa.RecordBatch:
            return rows.select(names)

        held = None if hold is None else lambda rows: hold(None if rows is None else cut(rows))
        for chunk in in_order(arrived, after, keys[0], self.meta.series, lateness, held, versions):
            yield chunk._replace(rows=cut(chunk.rows))

    def _known(self, names: tuple[str, ...], known: int) -> Versions | None:
        """All versions that the table has; None where it has none."""
        if not self.versions:
            return None
        until, of, found = self._revised
        if of != names or found is None:
            until, found = self.mark(_FIRST_VERSION, 0), None
        if until < self.rows:
            aside, parts = self.superseded, [] if found is None else [found]
            for batch in self._batches(until, [*names, REVISES], 1 << 16):
                rows = batch.filter(batch.column(REVISES).is_valid())
                parts.append(pa.Table.from_batches([rows if aside is None else rows.filter(without(rows[SEQ], aside))]))
            found = pa.concat_tables(parts)
            self._revised = self.rows, names, found
        assert found is not None
        return Versions(found, self.meta.duplicates, self.meta.keys, known)

    def arrived(self, after: Offset, columns: Sequence[str] | None = None, batch_rows: int = 65_536) -> Iterator[Chunk]:
        """The rows from `after` on, in the order in which they came, which is that of `_seq`; see `read`."""
        start = self._start(after)
        for name in columns or ():
            if name not in self.stored.names:
                known = ", ".join(self.schema.names[1:])
                raise SchemaError(f"table {self.path} has no column {name!r}", hint=f"there are: {known}")
        names = self.schema.names if columns is None else [SEQ, *(name for name in columns if name != SEQ)]
        aside = self.superseded
        for batch in self._batches(start, names, batch_rows):
            after_it = {SEQ: batch.column(SEQ)[-1].as_py() + 1, "table": self.id}
            yield Chunk(batch if aside is None else batch.filter(without(batch.column(SEQ), aside)), after_it)

    def _batches(self, start: int, names: Sequence[str] | None, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of this version from `start` on. Where files of it are gone that were merged since, the newest
        version has their rows, under the same `_seq`."""
        log, stop = self._log, self.rows
        while True:
            try:
                for batch in scan(log, self.path, start, stop, names, batch_rows, self.verified):
                    start = batch.column(SEQ)[-1].as_py() + 1
                    yield batch
                return
            except Gone:
                newest = delta.open_log(self.path)
                if newest.version() == log.version() or str(newest.metadata().id) != self.id:
                    raise
                log = newest

    def follow(
        self,
        after: Offset | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = 65_536,
        poll: float = 1.0,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Chunk]:
        """`read`, and then whatever is committed later, looking every `poll` seconds until `stop()`."""
        offset: Offset = after or {}
        while True:
            for chunk in self.read(offset, columns, batch_rows, hold=lambda _: None):
                yield chunk
                offset = chunk.after
            if stop():
                return
            sleep(poll)
            self.refresh()

    def _start(self, after: Offset) -> int:
        start = int(after.get(SEQ, 0))
        if after.get("table", self.id) != self.id:
            raise TableError(
                f"table {self.path} is not the one that was read before", hint="start afresh, or restore it"
            )
        if start > self.rows:
            raise TableError(
                f"table {self.path} has {self.rows} rows, but {start} were read before: it was rolled back",
                hint="start afresh, or restore it",
            )
        return start


def _firsts(chunks: Iterator[Chunk], versions: Versions) -> Iterator[Chunk]:
    """First versions, with what was known of them when the reading began."""
    for rows, after in chunks:
        first = rows.filter(rows.column(REVISES).is_null())
        yield Chunk(versions.resolve(first, first.column(SEQ).to_numpy()), after)


def without(numbers: pa.Array[Any], aside: pa.Array[Any]) -> pa.Array[Any]:
    """(N,) which of the `_seq` are not among those aside."""
    kept: pa.Array[Any] = pc.invert(pc.is_in(numbers, value_set=aside))
    return kept


def _place(path: str) -> tuple[int, int] | None:
    """What tells a local log from another one in its place; None where there is none, or it is not local."""
    try:
        found = None if "://" in path else (Path(path) / "_delta_log").stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def _uri(path: str | Path) -> str:
    text = str(path)
    return text if "://" in text else str(Path(text).absolute())
