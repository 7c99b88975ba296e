"""CSV and TSV: separator, quoting, decimal mark and encoding found or given; parsed in blocks of whole records.

A block in which every record is plain is parsed by polars straight into typed columns. Any other block (quotes,
blank lines, ragged rows, cells that are no numbers) goes the careful way: still in columns, but with the line of
every record and the fault of every cell.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from streamgp.base import Chunk, Offset
from streamgp.errors import DataError, UsageError
from streamgp.streaming.sources import _cells
from streamgp.streaming.sources._bytes import Position, open_bytes
from streamgp.streaming.sources._careful import split_cells, split_records
from streamgp.streaming.sources._cells import NULLS
from streamgp.streaming.sources._dialect import SAMPLE, Dialect, decimal_of, encoding_of, separator_of
from streamgp.streaming.sources._records import Block, Records, Stopped, count, record_ends

SUFFIXES = (".csv", ".tsv", ".txt")
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")


class Config(BaseModel):
    """How to read a CSV; None means: find out.

    Attributes:
        separator: between cells. decimal: "." or ",". encoding: a codec name.
        null: what else than an empty cell, NA, N/A, NaN, null and None stands for a missing value.
        final: take a last line that has no newline yet.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    null: tuple[str, ...] = ()
    final: bool = False


def build(config: Config, uri: str) -> Csv:
    """The file at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, it is empty, or its header cannot be used.
    """
    return Csv(config, uri)


class Csv:
    """A Source over one text file.

    Attributes:
        schema: the columns: text, float64 or bool, as the first megabyte suggests, and the bookkeeping columns.
        sample: the cells of the first rows, as text.
        waiting: after a read: a digest of the last line that has no newline yet, or None.
    """

    def __init__(self, config: Config, uri: str) -> None:
        self.uri = uri
        self._config = config
        self._nulls = (*NULLS, *config.null)
        self.waiting: int | None = None
        self.stopped: Stopped | None = None
        self._records: Records | None = None
        stream, self.compressed = open_bytes(uri)
        head = Records(stream, uri, quote=True, separator=",")  # raw bytes, whatever the encoding
        try:
            raw = head.first(SAMPLE)
        finally:
            head.close()
        self.dialect, self.names, cells = _look(raw, config, uri, self.compressed)
        self.units = _cells.units_in(self.names)
        self.sample = pa.table({name: [row[i] for row in cells] for i, name in enumerate(self.names)})
        kinds = [_kind([row[i] for row in cells], self.dialect.decimal, self._nulls) for i in range(len(self.names))]
        self.expect(pa.schema([pa.field(name, kind) for name, kind in zip(self.names, kinds, strict=True)]))
        if uri == "-":
            self._records = head

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; names must be the file's own."""
        self._kinds = {name: schema.field(name).type for name in self.names}
        self.schema = _cells.with_bookkeeping(self._kinds)

    def read(self, after: Offset) -> Iterator[Chunk]:
        """Typed rows behind `after`, faulty ones among them with their fault.

        Raises:
            DataError: what was consumed before has changed, or the stream is damaged.
        """
        records = self._open()
        try:
            records.skip(Position.of(after), self.stopped)
            for block in records.blocks(self._config.final or self.compressed or self.uri == "-"):
                yield Chunk(self._parse(block), block.after.offset())
            self.waiting, self.stopped = records.tail, records.stopped
        finally:
            records.close()

    def _open(self) -> Records:
        if self.uri == "-":
            assert self._records is not None
            return self._records
        stream, _ = open_bytes(self.uri)
        utf16 = self.dialect.encoding if self.dialect.encoding.startswith("utf-16") else None
        return Records(stream, self.uri, quote=True, separator=self.dialect.separator, utf16=utf16)

    def _parse(self, block: Block) -> pa.RecordBatch:
        data, line = self._text(block), block.line
        if line == 1:
            cut = _header_end(data, self.dialect.separator)
            line += data[:cut].count(b"\n")
            data = data[cut:]
        lines = block.after.lines + 1 - line + (not data.endswith(b"\n"))
        rows = self._plain(data, line, lines) if data else None
        return self._careful(data, line) if rows is None else rows

    def _text(self, block: Block) -> bytes:
        encoding = self.dialect.encoding
        if encoding == "utf-8" or encoding.startswith("utf-16"):
            return block.data
        try:
            return block.data.decode(encoding).encode()
        except UnicodeDecodeError as error:
            where = block.line + block.data.count(b"\n", 0, error.start)
            raise self._undecodable(where) from None

    def _plain(self, data: bytes, line: int, rows: int) -> pa.RecordBatch | None:
        """The fast way for `rows` lines, or None where the block needs the careful one."""
        if b'"' in data or (self.dialect.decimal == "," and b"." in data):
            return None
        types = {name: _cells.polars_type(kind) for name, kind in self._kinds.items()}
        try:
            frame = pl.read_csv(
                data,
                has_header=False,
                schema=types,
                separator=self.dialect.separator,
                quote_char=None,
                decimal_comma=self.dialect.decimal == ",",
            )
        except pl.exceptions.PolarsError:
            return None
        if frame.height != rows or (frame[self.names[-1]].null_count() and self._uneven(data, rows)):
            return None
        columns = []
        for series, kind in zip(frame, self._kinds.values(), strict=True):
            found = series
            if series.dtype.is_float():
                found = _cells.finite(series, _cells.infinite(series))
            elif series.dtype == pl.String and not pa.types.is_string(kind):
                found, bad = _cells.convert(series, kind, self.dialect.decimal, self._nulls)
                if bad.any():
                    return None
            columns.append(_cells.to_arrow(found, kind))
        nothing = pa.nulls(rows, pa.string())
        return pa.record_batch([*columns, pa.array(np.arange(line, line + rows)), nothing, nothing], schema=self.schema)

    def _uneven(self, data: bytes, rows: int) -> bool:
        """Whether a line is short or blank: polars fills up the last cells, which are empty elsewhere only."""
        blank = data.startswith((b"\n", b"\r\n")) or b"\n\n" in data or b"\n\r\n" in data
        return blank or count(data, ord(self.dialect.separator)) != rows * (len(self.names) - 1)

    def _careful(self, data: bytes, line: int) -> pa.RecordBatch:
        split = split_records(data, self.dialect.separator)
        lines = line + np.searchsorted(np.flatnonzero(np.frombuffer(data, np.uint8) == 10), split.starts)
        try:
            cells, faults = split_cells(data, split, self.names, self.dialect.separator)
        except UnicodeDecodeError as error:
            where = line + data.count(b"\n", 0, error.start)
            raise self._undecodable(where) from None
        columns: list[pa.Array[Any]] = []
        for name, kind in self._kinds.items():
            found, bad = _cells.convert(cells[name], kind, self.dialect.decimal, self._nulls)
            _cells.cell_faults(faults, name, cells[name], bad, kind)
            columns.append(_cells.to_arrow(found, kind))
        texts = [
            None if fault is None else data[start:end].decode("utf-8", "replace").rstrip("\r\n")
            for fault, start, end in zip(faults, split.starts.tolist(), split.ends.tolist(), strict=True)
        ]
        told = [pa.array(lines), pa.array(faults, pa.string()), pa.array(texts, pa.string())]
        return pa.record_batch([*columns, *told], schema=self.schema)

    def _undecodable(self, line: int) -> DataError:
        return DataError(
            f"{self.uri}, line {line}: these bytes are not {self.dialect.encoding}",
            hint="name the file's encoding, for example --encoding cp1252",
        )


def _look(raw: bytes, config: Config, uri: str, whole: bool) -> tuple[Dialect, list[str], list[list[str]]]:
    """The dialect, the column names, and the cells of the first rows, from the first bytes.

    Raises:
        DataError: nothing there, or no usable header.
    """
    encoding = encoding_of(raw, config.encoding, uri)
    text = raw.decode(encoding, "replace").removeprefix("\ufeff")
    if not text.strip():
        raise DataError(f"{uri}: the file is empty", hint="a CSV begins with a line of column names")
    if "\n" not in text and "\r" in text:
        raise DataError(f"{uri}: its lines end in a lone carriage return", hint="convert it: tr '\\r' '\\n' < FILE")
    lines = text.splitlines(keepends=True)
    if len(lines) > 1 and len(raw) >= SAMPLE:
        lines = lines[:-1]
    text = "".join(lines[:1001])
    separator = config.separator or separator_of(text)
    if len(separator.encode()) != 1:
        raise UsageError(f"--separator {separator!r} is not one ASCII character", hint="use , ; | or \\t")
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator) if row]
    names = _header(rows[0], uri)
    cells = [row for row in rows[1:] if len(row) == len(names)]
    if len(rows) > 1 and not cells:
        raise DataError(
            f"{uri}, line 2: {len(rows[1])} cells, but the header has {len(names)}",
            hint="make the header fit, or name the --separator",
        )
    return Dialect(separator, config.decimal or decimal_of(cells, separator), encoding), names, cells


def _header(cells: list[str], uri: str) -> list[str]:
    names = [cell.strip() or f"column_{i}" for i, cell in enumerate(cells, 1)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{uri}, line 1: two columns are called {', '.join(twice)}", hint="rename one of them")
    if all(_NUMBER.fullmatch(name) for name in names):
        raise DataError(f"{uri}, line 1: these are numbers, not column names", hint="give the file a header line")
    return names


def _kind(cells: list[str], decimal: str, nulls: tuple[str, ...]) -> pa.DataType:
    """Numbers if at least half of the cells that say something are; true/false; else text. No cells: numbers."""
    said = pl.Series([cell for cell in cells if cell.strip() not in nulls], dtype=pl.String)
    _, wrong = _cells.convert(said, pa.float64(), decimal, nulls)
    if 2 * int(wrong.sum()) <= len(said):
        return pa.float64()
    return pa.bool_() if said.str.strip_chars().str.to_lowercase().is_in(["true", "false"]).all() else pa.string()


def _header_end(data: bytes, separator: str) -> int:
    """Offset behind the header, blank lines before it included."""
    blank = len(data) - len(data.lstrip(b"\r\n"))
    ends = record_ends(data[blank:], separator.encode())
    return blank + int(ends[0]) if len(ends) else len(data)
