"""What the columnar formats share: one whole-file identity, rows counted from 1, types a Delta table can hold."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.base import Chunk, Offset
from streamgp.errors import DataError, SchemaError
from streamgp_data.reading.bytes import Digest, Position, open_bytes, read_some
from streamgp_data.reading.cells import EXACT, changed, check_names, fault, said, units_in, with_bookkeeping
from streamgp_data.reading.records import Stopped

_PIECE = 1 << 24
_PACKED, _LEAST = 200, 1 << 30
"""A compressed file may become _PACKED times as large, and _LEAST bytes more."""
ROWS = 1 << 17


def spooled(uri: str) -> tuple[str, Position, bool]:
    """The path of the file's plain bytes, the position after it, and whether the path is temporary, for the caller
    to remove: that of a compressed file, or of a pipe.

    Raises:
        DataError: it cannot be read, or decompresses to far more than it can hold.
    """
    stream, compressed = open_bytes(uri)
    limit = _PACKED * os.path.getsize(uri) + _LEAST if compressed and uri != "-" else None
    running, size = Digest(), 0
    spool: Any = tempfile.NamedTemporaryFile(delete=False) if compressed or uri == "-" else None  # noqa: SIM115
    try:
        while piece := read_some(stream, _PIECE, uri):
            running.update(piece)
            size += len(piece)
            if limit is not None and size > limit:
                raise DataError(
                    f"{uri}: it decompresses to more than {limit:,} bytes", hint="decompress it yourself if that is so"
                )
            if spool is not None:
                spool.write(piece)
        return (uri if spool is None else spool.name), Position(size, 0, running.value()), spool is not None
    except BaseException:
        if spool is not None:
            os.unlink(spool.name)
        raise
    finally:
        if uri != "-":
            stream.close()
        if spool is not None:
            spool.close()


def whole_file(uri: str) -> tuple[pa.NativeFile, Position]:
    """The file, seekable (a compressed one or a pipe through a temporary file), and the position after it."""
    path, end, temporary = spooled(uri)
    try:
        return pa.OSFile(path, "rb"), end
    finally:
        if temporary:
            os.unlink(path)  # the open file lives on until it is closed


def storable(kind: pa.DataType, column: str, uri: str) -> pa.DataType:
    """The type that a table keeps: unsigned integers and floats widen, dictionaries are their values.

    Raises:
        SchemaError: a Delta table cannot hold it.
    """
    if pa.types.is_dictionary(kind):
        return storable(kind.value_type, column, uri)
    widened: Mapping[pa.DataType, pa.DataType] = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.int64(),
        pa.float16(): pa.float64(),  # later rows may have more digits, and a table cannot change a type
        pa.float32(): pa.float64(),
        pa.large_string(): pa.string(),
        pa.string_view(): pa.string(),
        pa.null(): pa.float64(),
    }
    if kind in widened:
        return widened[kind]
    if pa.types.is_timestamp(kind):
        try:
            zone = "UTC" if kind.tz else None
        except UnicodeDecodeError:
            raise SchemaError(f"{uri}: the time zone of {column!r} is no text", hint="write the file again") from None
        return pa.int64() if kind.unit == "ns" else pa.timestamp("us", zone)
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_time(kind):  # of a day; beside a date in another column it is a time
        return pa.string()
    simple = (pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    if any(check(kind) for check in (*simple, pa.types.is_decimal128)):
        return kind
    raise SchemaError(
        f"{uri}: column {column!r} is {kind}, which a table cannot hold",
        hint="leave the column out, or write it as numbers, text or times",
    )


def plain(rows: pa.Table) -> pa.Table:
    """The rows with every kind of text as the one that a table keeps, and dictionaries as their values.

    Example:
        >>> plain(pa.table({"t": pa.array(["2024-01-01"], pa.large_string())})).schema.field("t").type
        DataType(string)
    """
    other = (pa.large_string(), pa.string_view())
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in rows.schema]
    kinds = [pa.string() if kind in other else kind for kind in kinds]
    return rows.cast(
        pa.schema([field.with_type(kind).with_nullable(True) for field, kind in zip(rows.schema, kinds, strict=True)])
    )


class Columnar(ABC):
    """A Source over one columnar file; a format says how to open it and how to iterate from a row on.

    Attributes:
        natural: the columns as the file has them.
        schema: the columns as a table keeps them, and the bookkeeping columns.
        sample: the first rows, as the file has them, but for its kind of text.
        waiting, doubts: always False, {}; such a file is whole or damaged, and says what it holds.
        above: rows above the first that is counted from 0: those of a sheet up to its header.
        header: the row that seems to be the header, of a sheet where the one that was taken is none; else None.
    """

    CHANGED = (
        "where rows were added, as to a workbook: ingest it as another source, --as NAME; those that the table has go "
        "to the quarantine as duplicates"
    )
    """What to do about a file that is not the one of before."""
    above = 0
    header: int | None = None

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.waiting = False
        self.doubts: dict[str, str] = {}
        self.stopped: Stopped | None = None
        try:
            self.natural, self._end = self.begin(uri)
            first = next(self._valid(0), None)  # not pa.table, which imports pandas to see what it was given
            self.sample = plain(pa.Table.from_batches([] if first is None else [first], self.natural)[:1000])
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(error) from None
        self.names = self.natural.names
        check_names(self.names, uri)
        self._kinds = {field.name: storable(field.type, field.name, uri) for field in self.natural}
        self.schema = with_bookkeeping(self._kinds)
        self.units = {**units_in(self.names), **own_units(self.natural)}

    @property
    def first_line(self) -> int:
        """The row of the first one, from 1."""
        return self.above + 1

    @abstractmethod
    def begin(self, uri: str) -> tuple[pa.Schema, Position]:
        """Open the file: what it holds, and the position after it."""

    @abstractmethod
    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        """Batches of about ROWS rows, from row `start` on."""

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; names must be the file's own."""
        self._kinds = {name: schema.field(name).type for name in self.names}
        self.schema = with_bookkeeping(self._kinds)

    def torn(self, after: Offset) -> Chunk | None:
        """None: such a file has no lines."""
        return None

    def read(self, after: Offset) -> Iterator[Chunk]:
        """Typed rows after `after`, faulty ones among them with their fault.

        Raises:
            DataError: the file is not the one that was consumed before, or it is damaged.
        """
        start = Position.of(after)
        if start.bytes and start._replace(lines=0) != self._end:
            raise DataError(
                f"{self.uri}: this is not the file that was ingested before: it was changed",
                hint=self.CHANGED,
            )
        row = max(start.lines - self.above, 0)
        try:
            for batch in self._valid(row):
                yield Chunk(
                    self._typed(batch, row), self._end._replace(lines=self.above + row + batch.num_rows).offset()
                )
                row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error, row) from None

    def _valid(self, start: int) -> Iterator[pa.RecordBatch]:
        """The batches; damaged offsets would end the process where they are used.

        Raises:
            ArrowInvalid: a batch contradicts itself, or has text that is not UTF-8.
        """
        for batch in self.batches(start):
            batch.validate(full=True)
            yield batch

    def _typed(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        faults: list[str | None] | None = None
        columns: list[pa.Array[Any]] = []
        for name, kind in self._kinds.items():
            found, bad = retype(batch.column(name), kind)
            columns.append(found)
            if bad is not None:
                faults = faults or [None] * batch.num_rows
                for i in np.flatnonzero(bad).tolist():
                    value = said(batch.column(name)[i])[:80]
                    faults[i] = faults[i] or fault("unparsable", name, f"{value} is no {kind}")
        nothing = pa.nulls(batch.num_rows, pa.string())
        wrong = nothing if faults is None else pa.array(faults, pa.string())
        lines = pa.array(self.above + np.arange(row + 1, row + 1 + batch.num_rows))
        return pa.record_batch([*columns, lines, wrong, nothing], schema=self.schema)

    def _damaged(self, error: Exception, rows: int = 0) -> DataError:
        return DataError(
            f"{self.uri}: not a whole {type(self).__name__} file: {str(error).splitlines()[0]}",
            hint="write the file again" + ("; the rows before the damage are in the table" if rows else ""),
        )


def own_units(schema: pa.Schema) -> dict[str, str]:
    """Units in the fields' metadata; whole numbers that were nanoseconds say so."""
    found = {field.name: "ns" for field in schema if pa.types.is_timestamp(field.type) and field.type.unit == "ns"}
    for field in schema:
        own = field.metadata or {}
        if unit := own.get(b"unit") or own.get(b"units"):
            found[field.name] = unit.decode(errors="replace")
    return found


def retype(column: pa.Array[Any], kind: pa.DataType) -> tuple[pa.Array[Any], NDArray[np.bool_] | None]:
    """The column as `kind` with NaN and infinities missing, and (N,) where a value does not survive, if any.

    Example:
        >>> retype(pa.array([1, 300], pa.uint16()), pa.int32())[0].to_pylist()
        [1, 300]
        >>> found, bad = retype(pa.array([1.0, 1.5, float("nan")]), pa.int8())
        >>> found.to_pylist(), bad.tolist()
        ([1, None, None], [False, True, False])
        >>> found, bad = retype(pa.array([0.5, 123456789.0, 1e300]), pa.float32())
        >>> found.to_pylist(), bad.tolist()
        ([0.5, None, None], [False, True, True])
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        wrong = pc.invert(pc.is_finite(column))
        column = pc.if_else(wrong, pa.scalar(None, column.type), column) if pc.any(wrong).as_py() else column
    if pa.types.is_timestamp(column.type) and pa.types.is_integer(kind):
        return column.cast(pa.int64()), None
    if column.type == kind:
        return column, None
    try:
        return _kept(column, column.cast(kind))
    except pa.ArrowInvalid:
        pass
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(f"{column.type} cannot be read as {kind}", hint="ingest it into another table") from error
    singly = [_one(value, kind) for value in column]
    found, _ = _kept(column, pa.array(singly, kind))
    return found, np.asarray(pc.and_(column.is_valid(), found.is_null()))


def _kept(column: pa.Array[Any], found: pa.Array[Any]) -> tuple[pa.Array[Any], NDArray[np.bool_] | None]:
    """What a cast gave, without the values that it changed without a word, and (N,) where these were, if any."""
    before, kind = column.type, found.type
    if pa.types.is_floating(before) and pa.types.is_floating(kind) and kind.bit_width < before.bit_width:
        numbers, narrow = (part.to_numpy(zero_copy_only=False) for part in (column, found))
        bad = np.asarray(changed(numbers.astype(np.float64), narrow))
    elif pa.types.is_decimal(before) and pa.types.is_floating(kind):
        bad = np.array(pc.greater_equal(pc.abs(found), pa.scalar(EXACT)).fill_null(False))
        for row in np.flatnonzero(bad).tolist():  # few are as large
            bad[row] = Decimal(found[row].as_py()) != column[row].as_py()
    elif pa.types.is_floating(before) and pa.types.is_decimal(kind):
        bad = np.asarray(pc.not_equal(found.cast(pa.float64()), column.cast(pa.float64())).fill_null(False))
    elif pa.types.is_timestamp(before) and pa.types.is_date(kind):
        bad = np.asarray(pc.not_equal(found.cast(pa.timestamp("us")), column.cast(pa.timestamp("us"))).fill_null(False))
    else:
        return found, None
    return (pc.if_else(pa.array(bad), pa.scalar(None, kind), found), bad) if bad.any() else (found, None)


def _one(value: Any, kind: pa.DataType) -> Any:
    try:
        return value.cast(kind).as_py()
    except (ValueError, OverflowError):  # ArrowInvalid is a ValueError; times beyond the year 9999 are none of Python
        return None
