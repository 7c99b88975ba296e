"""Excel workbooks: one sheet, whose first row names the columns; read as a whole."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from streamgp.errors import DataError, UsageError
from streamgp.streaming.reading.bytes import Position
from streamgp.streaming.reading.cells import NULLS, convert, with_bookkeeping
from streamgp.streaming.reading.columnar import ROWS, Columnar, spooled
from streamgp.streaming.recordings.recording import needs

SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_RATIO, _LEAST = 200, 1 << 30
"""What the parts of a workbook may be larger than the file, and the bytes that they may have in any case."""
_CELLS = 1 << 25
"""Cells that a sheet may have room for in any case, and one more for each byte that it has."""
_ROW, _COLUMN = re.compile(rb"""r=["'][A-Z]+(\d+)"""), re.compile(rb"""r=["']([A-Z]+)\d""")
_EPOCH = 25_569
"""Days from Excel's day 0 (30 December 1899) to 1970."""


class Config(BaseModel):
    """sheet: its name; None: the only one with rows. time, time_format: "excel" says that a column of numbers counts
    days since 30 December 1899, as Excel's dates do."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    sheet: str | None = None
    time: str | None = None
    time_format: str | None = None


def build(config: Config, uri: str) -> Excel:
    """The workbook at `uri`.

    Raises:
        DataError: there is no such file, or it is damaged.
        UsageError: several sheets have rows, there is no such sheet, or fastexcel is not installed.
    """
    return Excel(uri, config)


class Excel(Columnar):
    """A Source over one sheet. A column of text and numbers is numbers if at least half of its cells are, as in a CSV:
    the others cannot be read."""

    def __init__(self, uri: str, config: Config) -> None:
        self._config = config
        self.serial = config.time_format == "excel"
        self._numbers: list[str] = []
        super().__init__(uri)
        self._kinds |= dict.fromkeys(self._numbers, pa.float64())
        self.schema = with_bookkeeping(self._kinds)

    def begin(self, uri: str) -> tuple[pa.Schema, Position]:
        fastexcel = needs("fastexcel", "excel")
        path, end, temporary = spooled(uri)
        try:
            if zipfile.is_zipfile(path):
                _check_parts(path, uri)
            book = fastexcel.read_excel(path)
            names = [self._config.sheet] if self._config.sheet else list(book.sheet_names)
            there = [name for name in names if name in book.sheet_names]
            sheets = {name: _cells(book, name) for name in there}
        except (DataError, UsageError):
            raise
        except BaseException as error:  # a panic of Rust is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            what = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise DataError(f"{uri}: not a whole workbook: {what}", hint="save it again, or export it as CSV") from None
        finally:
            if temporary:
                os.unlink(path)
        filled = {name: sheet for name, (sheet, _) in sheets.items() if sheet.height}
        if self._config.sheet and not sheets:
            hint = f"it has: {', '.join(book.sheet_names)}"
            raise UsageError(f"--sheet {self._config.sheet!r}: {uri} has no such sheet", hint=hint)
        if len(filled) > 1:
            hint = f"--sheet {next(iter(filled))!r}"
            raise UsageError(f"{uri}: several sheets have rows: {', '.join(filled)}", hint=hint)
        name = next(iter(filled), None)
        if name is None:
            raise DataError(f"{uri}: no sheet has rows", hint="the first row names the columns")
        rows, self._numbers = sheets[name]
        self._rows = self._dated(rows).to_arrow(compat_level=pl.CompatLevel.oldest())
        return self._rows.schema, end

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        yield from self._rows.slice(start).combine_chunks().to_batches(ROWS)

    def _dated(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Timestamps in microseconds; the days of --time-format excel, to the millisecond that Excel keeps."""
        stamps = [name for name, kind in rows.schema.items() if isinstance(kind, pl.Datetime)]
        rows = rows.with_columns(pl.col(name).cast(pl.Datetime("us")) for name in stamps)
        name = self._config.time
        if not self.serial:
            return rows
        if name is None or name not in rows.columns or not rows.schema[name].is_numeric():
            hint = f"--time names it: {', '.join(rows.columns)}"
            raise UsageError(f"{self.uri}: --time-format excel belongs to a column of numbers", hint=hint)
        days = pl.col(name).cast(pl.Float64)
        millis = ((days - _EPOCH) * 86_400_000).round().cast(pl.Int64, strict=False)
        return rows.with_columns(millis.cast(pl.Datetime("ms")).cast(pl.Datetime("us")).alias(name))


def _cells(book: Any, name: str) -> tuple[pl.DataFrame, list[str]]:
    """A sheet, and its columns of numbers with text in some cells, here as text: their digits, and what is no number.

    A column in which all is digits, and some is text, stays text: these may be keys.
    """
    sheet = pl.DataFrame(book.load_sheet(name, schema_sample_rows=None))
    odd: dict[str, tuple[pl.Series, pl.Series]] = {}
    for cells in sheet.select(pl.col(pl.String)):
        found, wrong = convert(cells, pa.float64(), ".", NULLS)
        if 0 < int(wrong.sum()) <= found.count():
            odd[cells.name] = wrong, found.is_null()
    if odd:  # as text, numbers have 9 decimals only
        numbers = pl.DataFrame(book.load_sheet(name, schema_sample_rows=None, dtypes=dict.fromkeys(odd, "float")))
        sheet = sheet.with_columns(
            sheet[name].zip_with(wrong, numbers[name].set(missing, None).cast(pl.String))
            for name, (wrong, missing) in odd.items()
        )
    return sheet, list(odd)


def _check_cells(stream: IO[bytes], size: int, uri: str) -> None:
    """See that the rectangle around the cells of a sheet, for which the library takes memory, is not far larger.

    Raises:
        DataError: it is.
    """
    rest, rows, columns = b"", 1, 1
    while piece := stream.read(1 << 24):
        text = rest + piece
        rest = text[-32:]
        for row in set(_ROW.findall(text)):
            rows = max(rows, int(row) if len(row) < 8 else 1 << 60)
        for letters in set(_COLUMN.findall(text)):
            columns = max(columns, _number(letters) if len(letters) < 4 else 1 << 60)
        if rows > 1 << 20 or columns > 1 << 14 or rows * columns > _CELLS + size:
            raise DataError(f"{uri}: a cell is far from all others", hint="delete it, or export the sheet as CSV")


def _number(letters: bytes) -> int:
    """The number of a column.

    Example:
        >>> _number(b"A"), _number(b"Z"), _number(b"AA"), _number(b"XFD")
        (1, 26, 27, 16384)
    """
    return sum((letter - 64) * 26**at for at, letter in enumerate(reversed(letters)))


def _check_parts(path: str, uri: str) -> None:
    """See that the parts of a workbook are in proportion to it, and so is the room between its cells.

    Raises:
        DataError: they are not, or the file is damaged.
    """
    with zipfile.ZipFile(path) as file:
        size = sum(part.file_size for part in file.infolist())
        sheets = [part for part in file.infolist() if "/worksheets/" in part.filename]
        if size <= _RATIO * os.path.getsize(path) + _LEAST:
            for part in sheets:
                with file.open(part) as stream:
                    _check_cells(stream, part.file_size, uri)
    if size > _RATIO * os.path.getsize(path) + _LEAST:
        raise DataError(f"{uri}: it unpacks to {size:,} bytes, out of all proportion", hint="export it as CSV")
