"""CSV and TSV: separator, quoting, decimal mark and encoding found or given; parsed in blocks of whole records.

A block in which every record is plain is parsed by polars straight into typed columns. Any other block (quotes,
blank lines, ragged rows, cells that are no numbers) goes the careful way: still in columns, but with the line of
every record and the fault of every cell.
"""

from __future__ import annotations

import codecs
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from streamgp.errors import DataError, UsageError
from streamgp_data.reading.bytes import open_bytes
from streamgp_data.reading.careful import header_rows, readable, split_cells, split_line, split_records
from streamgp_data.reading.cells import (
    HEADER,
    NULLS,
    cell_faults,
    convert,
    exact_kind,
    fault,
    finite,
    infinite,
    lossy,
    name_numbers,
    nothing,
    polars_type,
    to_arrow,
    units_in,
    unreadable,
)
from streamgp_data.reading.convention import GROUPINGS, PADDED, are_numbers, convention_of, in_ascii
from streamgp_data.reading.dialect import (
    SAMPLE,
    SEPARATORS,
    Dialect,
    encoding_of,
    first_lines,
    separator_of,
    usable_separator,
)
from streamgp_data.reading.doubts import few_numbers, points_of_thousands, text_of_numbers
from streamgp_data.reading.header import MOST, given_names, header_below, header_names, seems_in
from streamgp_data.reading.lines import TextLines
from streamgp_data.reading.quotes import Ints, header_end
from streamgp_data.reading.records import LONGEST, RecordBlock, Records, Stopped, blank, count, too_long
from streamgp_data.reading.signs import reject_other_formats

_BEHIND = "_behind"
_NOWHERE: Ints = np.zeros(0, np.int64)
SUFFIXES = (".csv", ".tsv", ".txt")
_SAMPLED = 1000
_WRONG = 20
"""More than one line in _WRONG cannot be decoded, and fewer with letters beyond ASCII can: the encoding is wrong."""


class Config(BaseModel):
    """How to read a CSV; None means: find out.

    Attributes:
        separator: between cells. decimal: "." or ",". encoding: a codec name.
        header_row: the line of the column names, from 1; None: the first that is not blank.
        columns: the names of the columns of a file that has none. no_header: it has none; they are column_1, ... then.
        thousands: between groups of three digits: one of , . ' _ or a space.
        null: what else than an empty cell, NA, N/A, NaN, null and None stands for a missing value.
        final: take a last line that has no newline.
        max_line: bytes of the longest line that is taken.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    header_row: int | None = Field(None, ge=1)
    columns: tuple[str, ...] = ()
    no_header: bool = False
    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    null: tuple[str, ...] = ()
    final: bool = False
    max_line: int = LONGEST


def build(config: Config, uri: str) -> Csv:
    """The file at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, it is empty, or its header cannot be used.
        UsageError: an option is not one for text.
    """
    return Csv(config, uri)


class Csv(TextLines):
    """A Source over one text file.

    Attributes:
        schema: the columns: text, float64 or bool, as the first megabyte suggests, and the bookkeeping columns.
        sample: the cells of the first rows, as text.
        waiting: whether there is a last line without newline; known after a read, and where the header is that line.
        doubts: columns that may be misunderstood, and what to do about it.
    """

    def __init__(self, config: Config, uri: str) -> None:
        self.uri = uri
        self._config, self._final = config, config.final
        self._nulls = (*NULLS, *config.null)
        self.waiting = False
        self.stopped: Stopped | None = None
        self._records: Records | None = None
        separator = usable_separator(config.separator)
        _fit(separator, config)
        stream, self.compressed = open_bytes(uri)
        head = Records(stream, uri, longest=config.max_line)  # raw bytes, whatever the encoding
        try:
            raw = head.first(SAMPLE, (config.header_row or 1) + 1)
            whole = head.ended and config.final
        finally:
            head.close()
        reject_other_formats(raw, uri, "csv")
        found = _look(raw, config, separator, uri, whole)
        self.dialect, self.names, self.header = found.dialect, found.names, found.below
        self._above = found.above
        self.waiting = found.waiting
        self.units = units_in(self.names)
        self.sample = pa.table({name: pa.array(found.cells[name].to_list(), pa.string()) for name in self.names})
        self._unit_behind: dict[str, str] = {}
        self._doubtful, self._open_marks = found.doubtful, found.open
        said = {name: self._said(found.cells[name]) for name in self.names}
        kinds = [self._kind(name, cells) for name, cells in said.items()]
        self.units |= self._unit_behind
        self.expect(pa.schema([pa.field(name, kind) for name, kind in zip(self.names, kinds, strict=True)]))
        self.doubts = self._doubts(said)
        if uri == "-":
            head.shape(self.dialect.separator, len(self.names), self._utf16())
            self._records = head

    @property
    def first_line(self) -> int:
        """The line after the header."""
        return self._above + 1

    def _open(self) -> Records:
        if self.uri == "-":
            assert self._records is not None
            return self._records
        stream, _ = open_bytes(self.uri)
        separator, width = self.dialect.separator, len(self.names)
        return Records(stream, self.uri, separator, width, self._config.max_line, self._utf16())

    def _utf16(self) -> str | None:
        return self.dialect.encoding if self.dialect.encoding.startswith("utf-16") else None

    def _parse(self, block: RecordBlock) -> pa.RecordBatch:
        encoding = "utf-8" if self.dialect.encoding.startswith("utf-16") else self.dialect.encoding
        data, line = block.data, block.line
        if line == 1 and not self._above:
            data = data.removeprefix(codecs.BOM_UTF8)
        if line <= self._above:
            pieces = data.split(b"\n", self._above - line + 1)
            data = pieces[-1] if len(pieces) > self._above - line + 1 else b""
            line = self._above + 1
        elif block.long:
            text = data.decode(encoding, "backslashreplace")
            return unreadable(self.schema, line, too_long(block, self._config.max_line), text)
        if not data or blank(data):
            return nothing(self.schema)
        lines = block.after.lines + 1 - line + (not data.endswith(b"\n"))
        bad = _NOWHERE
        if encoding != "utf-8":
            data, bad = self._decoded(data, encoding, line)
        rows = None if len(bad) else self._plain(data, line, lines)
        if rows is not None:
            return rows
        if encoding == "utf-8":
            data, bad = self._decoded(data, encoding, line)
        return self._careful(data, line, bad)

    def _plain(self, data: bytes, line: int, rows: int) -> pa.RecordBatch | None:
        """The fast way for `rows` lines, or None where the block needs the careful one."""
        dialect = self.dialect
        if b'"' in data or (dialect.decimal == "," and b"." in data):
            return None
        if dialect.thousands not in (None, dialect.separator) and str(dialect.thousands).encode() in data:
            return None
        if b"\r" in data and count(data, 13) != data.count(b"\r\n"):
            return None
        types = {name: polars_type(kind) for name, kind in self._kinds.items()} | dict.fromkeys(
            self._unit_behind, pl.String()
        )
        if name_numbers(self._nulls):
            types = dict.fromkeys(types, pl.String())
        if self._open_marks and b"." in data:
            types |= {name: pl.String() for name in self._open_marks if types[name] != pl.Int64()}
        if dialect.trailing:
            types[_BEHIND] = pl.String()
        try:
            frame = pl.read_csv(
                data,
                has_header=False,
                schema=types,
                separator=dialect.separator,
                quote_char=None,
                decimal_comma=dialect.decimal == ",",
            )
        except pl.exceptions.PolarsError:
            return None
        if frame.height != rows or (frame[:, -1].null_count() and self._uneven(data, rows)):
            return None
        if dialect.trailing and frame.drop_in_place(_BEHIND).null_count() != rows:
            return None
        columns = []
        for series, kind in zip(frame, self._kinds.values(), strict=True):
            found = series
            if series.dtype.is_float():
                missing = infinite(series)
                if lossy(series):
                    return None  # infinite is written so, or too large
                found = finite(series, missing)
            elif series.dtype == pl.String and not pa.types.is_string(kind):
                found, bad = self._converted(series.name, series, kind)
                if bad.any():
                    return None
            columns.append(to_arrow(found, kind))
        nothing = pa.nulls(rows, pa.string())
        return pa.record_batch([*columns, pa.array(np.arange(line, line + rows)), nothing, nothing], schema=self.schema)

    def _uneven(self, data: bytes, rows: int) -> bool:
        """Whether a line is short or blank: polars fills up the last cells, which are empty elsewhere only."""
        blank = data.startswith((b"\n", b"\r\n")) or b"\n\n" in data or b"\n\r\n" in data
        return blank or count(data, ord(self.dialect.separator)) != rows * (len(self.names) - 1 + self.dialect.trailing)

    def _careful(self, data: bytes, line: int, undecoded: Ints) -> pa.RecordBatch:
        """Any block. `undecoded`: its lines, from 0, that are not in the encoding."""
        dialect = self.dialect
        split = split_records(data, dialect.separator, len(self.names), dialect.trailing)
        newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        lines = np.searchsorted(newlines, split.starts)
        for row in np.searchsorted(lines, undecoded, side="right") - 1:
            split.faults[int(row)] = fault("unparsable", "", f"bytes that are not {dialect.encoding}")
        cells, faults = split_cells(data, split, self.names, dialect.separator)
        for row, said in header_rows(cells, self.names).items():
            faults[row] = fault(HEADER, "", said)
        columns: list[pa.Array[Any]] = []
        for name, kind in self._kinds.items():
            found, bad = self._converted(name, cells[name], kind)
            cell_faults(faults, name, cells[name], bad, kind)
            columns.append(to_arrow(found, kind))
        texts = [
            None if wrong is None else data[start:end].decode().rstrip("\r\n")
            for wrong, start, end in zip(faults, split.starts.tolist(), split.ends.tolist(), strict=True)
        ]
        extra = [pa.array(line + lines), pa.array(faults, pa.string()), pa.array(texts, pa.string())]
        return pa.record_batch([*columns, *extra], schema=self.schema)

    def _decoded(self, data: bytes, encoding: str, line: int) -> tuple[bytes, Ints]:
        """The text as UTF-8, and its lines (from 0) that are not in this encoding.

        Raises:
            DataError: bytes that are not of this encoding are too many: it is another.
        """
        text, bad, beyond = readable(data, encoding)
        many = len(bad) > beyond and len(bad) * _WRONG > data.count(b"\n")
        if many and (line <= 2 or len(bad) >= _WRONG):
            raise DataError(
                f"{self.uri}, line {line + int(bad[0])}: these bytes are not {self.dialect.encoding}",
                hint="name the file's encoding, for example --encoding cp1252",
            )
        return text, bad

    def _converted(self, name: str, cells: pl.Series, kind: pa.DataType) -> tuple[pl.Series, pl.Series]:
        """Cells as `kind`, and where that cannot be; numbers without the unit after them. What may be thousands, where
        the file does not say its decimal mark, is no number."""
        marks = self.dialect.decimal, self.dialect.thousands
        if name in self._open_marks and not pa.types.is_string(kind):
            doubtful = cells.str.contains(PADDED).fill_null(False)
            if doubtful.any():
                found, bad = self._numbers(name, cells.set(doubtful, None), kind, *marks)
                return found, bad | doubtful
        return self._numbers(name, cells, kind, *marks)

    def _said(self, cells: pl.Series) -> pl.Series:
        """The cells that stand for no missing value."""
        cells = cells.drop_nulls()
        return cells.filter(~cells.str.strip_chars().is_in(list(self._nulls)))

    def _kind(self, name: str, raw: pl.Series) -> pa.DataType:
        """Numbers if at least half of the cells that say something are (`are_numbers`), as they are or with a unit;
        true/false; else text. No cells: numbers."""
        if name in self._doubtful:
            return pa.string()
        said = in_ascii(raw)
        if (exact := exact_kind(said.to_list())) is not None:
            return exact
        _, wrong = convert(said, pa.float64(), self.dialect.decimal, self._nulls, self.dialect.thousands)
        if are_numbers(raw, wrong):
            return pa.float64()
        if self._say_a_unit(name, said, self.dialect.decimal, self.dialect.thousands):
            return pa.float64()
        truths = len(said) and said.str.strip_chars().str.to_lowercase().is_in(["true", "false"]).all()
        return pa.bool_() if truths else pa.string()

    def _doubts(self, cells: dict[str, pl.Series]) -> dict[str, str]:
        """Columns that may be misunderstood, and what to do about it."""
        found = {}
        for name, kind in self._kinds.items():
            said = cells[name]
            if pa.types.is_string(kind):
                why = text_of_numbers(said) or few_numbers(said, self.dialect, self._nulls)
            elif pa.types.is_floating(kind) and self._config.decimal is None and self._config.thousands is None:
                why = points_of_thousands(said, self.dialect)
            else:
                why = ""
            if why:
                found[name] = f"{self.uri}: column {name!r} {why}"
        return found


class _Found(NamedTuple):
    """What the first bytes say.

    Attributes:
        dialect: how cells are written. names: the columns. cells: of the first rows, as text.
        waiting: whether half a line comes after them.
        above: lines of the header and of what is above it.
        below: the line of the header if the one that was taken is none, as it seems; else None.
        doubtful: columns of numbers that may be thousands or decimals.
        open: columns of digits alone, of which later cells may be that.
    """

    dialect: Dialect
    names: list[str]
    cells: pl.DataFrame
    waiting: bool
    above: int
    below: int | None
    doubtful: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()


def _fit(separator: str | None, config: Config) -> None:
    """Whether the given signs differ from each other.

    Raises:
        UsageError: they cannot.
    """
    sign = config.thousands
    if config.header_row is not None and (config.columns or config.no_header):
        raise UsageError(
            "--header-row names a header, and --columns and --no-header say there is none", hint="leave out one"
        )
    if sign is not None and sign not in GROUPINGS:
        raise UsageError(f"--thousands {sign!r} is none of , . ' _ and space", hint="leave it out, or name one of them")
    if sign is not None and sign == config.decimal:
        hint = "say which sign is the --decimal one"
        raise UsageError(f"--thousands {sign!r} is the decimal sign too", hint=hint)


def _look(raw: bytes, config: Config, separator: str | None, uri: str, whole: bool) -> _Found:
    """The dialect, the column names, and the cells of the first rows, from the first bytes.

    Args:
        whole: whether the last line is taken without newline.

    Raises:
        DataError: nothing there, or no usable header.
    """
    encoding = encoding_of(raw, config.encoding, uri)
    text, waiting = _lines(raw, encoding, config.max_line, uri, whole)
    headed = not (config.columns or config.no_header)
    title, text = _cut(text, config.header_row, waiting, uri)
    below = None if config.header_row or not headed else _header_below(text, separator)
    separator = separator or separator_of(text)
    dialect = Dialect(separator, config.decimal or ".", encoding)
    data = text.encode()
    end = header_end(data, separator.encode()) or (len(data) if whole else 0)
    line = title + 1 + data.count(b"\n", 0, len(data) - len(data.lstrip(b"\r\n")))
    if not end:
        if text.strip():
            raise DataError(f"{uri}, line {line}: nothing closes a quote of the header", hint="correct the header")
        return _Found(dialect, [], pl.DataFrame(), waiting, title, below)
    cells_above = split_line(data[:end].lstrip(b"\r\n"), separator)
    if headed:
        above = title + data.count(b"\n", 0, end) + (data[end - 1 : end] != b"\n")
        body = first_lines(data[end:], _SAMPLED)
        names = header_names(_named(cells_above, body, separator), f"{uri}, line {line}", below)
    else:
        above, end = 0, 0
        body = first_lines(data, _SAMPLED)
        names = given_names(cells_above, config.columns, f"{uri}, line {line}")
    split = split_records(body, separator, len(names), True)
    plain = split_records(body, separator, len(names))
    trailing = 2 * int((plain.widths != split.widths).sum()) > len(split.widths)
    split = split if trailing else plain
    cells, faults = split_cells(body, split, names, separator)
    rows = cells.filter(pl.Series([wrong is None for wrong in faults], dtype=pl.Boolean))
    if faults and not rows.height:
        line = above + 1 + data.count(b"\n", end, end + int(split.starts[0]))
        raise DataError(
            f"{uri}, line {line}: {split.widths[0]} cells, but the header has {len(names)}",
            hint="make the header fit, or name the --separator or the line of the header: --header-row N"
            if below is None
            else seems_in(below),
        )
    columns = [in_ascii(series.drop_nulls(), minus_first=False).to_list() for series in rows]
    told = convention_of(columns, separator, config.decimal, config.thousands)
    dialect = Dialect(separator, told.decimal, encoding, told.thousands, trailing)
    unsure, digits = (frozenset(names[at] for at in places) for places in (told.doubtful, told.open))
    return _Found(dialect, names, rows.fill_null(""), waiting, above, below, unsure, digits)


def _lines(raw: bytes, encoding: str, longest: int, uri: str, whole: bool) -> tuple[str, bool]:
    """The first bytes as text, and whether a last line without newline waits, which is cut off.

    Args:
        longest: bytes of a line, at most.
        whole: whether the last line is taken without newline.

    Raises:
        DataError: nothing there, or no lines.
    """
    text = raw.decode(encoding, "backslashreplace").removeprefix("\ufeff")
    if not text.strip():
        raise DataError(f"{uri}: the file is empty", hint="a CSV begins with a line of column names")
    if "\n" not in text and "\r" in text.rstrip("\r"):
        raise DataError(f"{uri}: its lines end in a lone carriage return", hint="convert it: tr '\\r' '\\n' < FILE")
    waiting = not whole and not text.endswith("\n")
    if waiting:
        text = text[: text.rfind("\n") + 1]
    if len(raw) > SAMPLE and text.count("\n") < 2:
        where = text.count("\n") + 1
        raise DataError(
            f"{uri}, line {where}: it is longer than --max-line, {longest:,} bytes",
            hint="is this a text file? if so, give a larger --max-line",
        )
    return text, waiting


def _cut(text: str, row: int | None, waiting: bool, uri: str) -> tuple[int, str]:
    """The lines above the header, and the text from there on.

    Raises:
        DataError: there are fewer lines.
    """
    if row is None:
        return 0, text
    rest = text.split("\n", row - 1)
    if len(rest) < row or not rest[-1].strip():
        if waiting:
            return text.count("\n"), ""
        raise DataError(
            f"{uri}: --header-row {row}, and it has {text.count(chr(10))} lines", hint="count from 1, blank lines too"
        )
    return row - 1, rest[-1]


def _header_below(text: str, separator: str | None) -> int | None:
    """The line of the header, where it seems to be below a title; by the separator that makes most cells of it."""
    lines = [(line, cells) for line, cells in enumerate(text.split("\n", 2 * MOST)[: 2 * MOST], 1) if cells.strip()]
    best, most = None, 1
    for sign in [separator] if separator else SEPARATORS:
        rows = [split_line(cells.encode(), sign) or [cells] for _, cells in lines]
        place = header_below(rows)
        if place is not None and len(rows[place]) > most:
            best, most = lines[place][0], len(rows[place])
    return best


def _named(cells: list[str] | None, body: bytes, separator: str) -> list[str] | None:
    """The cells of a header; without the last one if it is empty, and so is all that stands below it."""
    if cells is None or len(cells) < 2 or cells[-1].strip():
        return cells
    fits = split_records(body, separator, len(cells) - 1, True).widths == len(cells) - 1
    return cells[:-1] if len(fits) and bool(fits.all()) else cells
