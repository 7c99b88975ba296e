"""The sheets of a workbook, read in a process of their own."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import sys
import zipfile
from subprocess import TimeoutExpired
from typing import IO, Any, NamedTuple
from xml.parsers import expat

import polars as pl
import pyarrow as pa

from streamgp.errors import DataError
from streamgp_data.reading.cells import NULLS, convert
from streamgp_data.reading.convention import minus_last
from streamgp_data.reading.process import end_in, limit_memory, started, time_limit

_RATIO, _LEAST = 200, 1 << 30
"""What the parts of a workbook may be larger than the file, and the bytes that they may have in any case."""
_CELLS = 1 << 25
"""Cells that a sheet may have room for in any case, and one more for each byte that it has."""
_COLUMNS, _COLUMNS_97 = 1 << 14, 1 << 8
"""Columns of a sheet, and of one of Excel 97 to 2003."""
_ROW, _COLUMN = re.compile(rb"""r=["'][A-Z]*(\d+)"""), re.compile(rb"""r=["']([A-Z]+)\d""")
UNNAMED = re.compile(r"__UNNAMED__\d+")
"""What the library calls a column whose cell of the header is no text and no number."""
_HINT = "save it again, or export it as CSV"


class Sheet(NamedTuple):
    """A sheet.

    Attributes:
        cells: below the header. numbers: names of columns of numbers that are text here because of some cells.
        header: the row of the header, from 1, empty rows counted.
    """

    cells: pl.DataFrame
    numbers: list[str]
    header: int


def read_sheets(path: str, uri: str, sheet: str | None, header: int | None) -> tuple[list[str], dict[str, Sheet]]:
    """The names of all sheets; and the one that is asked for, or each.

    Args:
        path: of the file.
        uri: for messages.
        sheet: its name, or None for each.
        header: the row of the header, from 1; None: the first that is not empty.

    Raises:
        DataError: it is damaged, or would take far more memory than it is worth.
    """
    with started(__name__, path, uri, str(header or 0), *([] if sheet is None else [sheet])) as process:
        try:
            said, _ = process.communicate(timeout=time_limit(path))
        except TimeoutExpired:
            process.kill()
            raise DataError(f"{uri}: the library that reads it came to no end", hint=_HINT) from None
    head, _, content = said.partition(b"\n")
    if process.returncode or not head:
        raise DataError(f"{uri}: not a whole workbook: the library that reads it died", hint=_HINT)
    about = json.loads(head)
    if "refused" in about:
        message, hint = about["refused"]
        raise DataError(message, hint=hint)
    found, at = {}, 0
    for name, size, numbers, row in about["sheets"]:
        found[name] = Sheet(pl.read_ipc(io.BytesIO(content[at : at + size])), numbers, row)
        at += size
    return about["names"], found


def main(path: str, uri: str, header: str, sheet: str | None = None) -> None:
    """Write to standard output a line of JSON, and after it the cells of each sheet."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    limit_memory(path)
    end_in(1.5 * time_limit(path))  # who waits gives up before
    parts = []
    try:
        names, found = sheets_of(path, uri, sheet, int(header) or None)
        parts = [one.cells.write_ipc(None).getvalue() for one in found.values()]
        sheets = zip(found.items(), parts, strict=True)
        about = {"names": names, "sheets": [[name, len(part), *one[1:]] for (name, one), part in sheets]}
    except DataError as error:
        about = {"refused": [error.message, error.hint]}
    except MemoryError:
        about = {
            "refused": [
                f"{uri}: its cells take too much memory",
                "delete a cell far from all others, or export it as CSV",
            ]
        }
    except ImportError as error:
        about = {"refused": [f"{uri}: {error}", "pip install --force-reinstall 'streamgp[excel]'"]}
    end_in(0)
    out.write(b"\n".join([json.dumps(about).encode(), b"".join(parts)]))
    out.flush()


def sheets_of(path: str, uri: str, sheet: str | None, header: int | None) -> tuple[list[str], dict[str, Sheet]]:
    """What `read_sheets` gives, read in this process."""
    fastexcel = importlib.import_module("fastexcel")
    try:
        zipped = zipfile.is_zipfile(path)
        if zipped:
            _check_parts(path, uri)
        book, most = fastexcel.read_excel(path), _COLUMNS if zipped else _COLUMNS_97
        names = list(book.sheet_names)
        return names, {name: _read(book, name, header, most) for name in names if sheet in (None, name)}
    except DataError:
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        what = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(f"{uri}: not a whole workbook: {what}", hint=_HINT) from None


def _read(book: Any, name: str, header: int | None, most: int) -> Sheet:
    """A sheet of at most `most` columns. Of numbers with text in some cells: their digits, and what is no number.

    A column in which all is digits, and some is text, stays text: these may be keys.
    """
    loaded = book.load_sheet(name, header_row=(header or 1) - 1, schema_sample_rows=None)
    if loaded.width > most:
        raise ValueError(f"a cell in column {loaded.width:,} of {most:,} that a sheet can have")
    row = header if header is not None and header > 1 else _first_row(book, name, loaded)
    if _behind_the_end(loaded):
        return Sheet(pl.DataFrame(), [], row)
    sheet = pl.DataFrame(loaded)
    odd: dict[str, tuple[pl.Series, pl.Series]] = {}
    for cells in sheet.select(pl.col(pl.String)):
        if cells.null_count() == sheet.height:  # of the room between far cells there may be thousands
            continue
        found, wrong = convert(cells, pa.float64(), ".", NULLS)
        text = minus_last(cells)  # which the workbook has as no number
        found, wrong = found.set(text, None), wrong | text
        if 0 < int(wrong.sum()) <= found.count():
            odd[cells.name] = wrong, found.is_null()
    if odd:  # as text, numbers have 9 decimals only
        kinds = dict.fromkeys(odd, "float")
        numbers = pl.DataFrame(book.load_sheet(name, header_row=row - 1, schema_sample_rows=None, dtypes=kinds))
        sheet = sheet.with_columns(
            sheet[name].zip_with(wrong, numbers[name].set(missing, None).cast(pl.String))
            for name, (wrong, missing) in odd.items()
        )
    titles = _times_in_header(book, name, row, sheet.columns)
    return Sheet(sheet.rename(titles), [titles.get(one, one) for one in odd], row)


def _times_in_header(book: Any, name: str, row: int, columns: list[str]) -> dict[str, str]:
    """Columns that the library gives no name -> theirs, where cells of the header are times or dates, as 00:15."""
    if not any(map(UNNAMED.fullmatch, columns)):
        return {}
    head = pl.DataFrame(book.load_sheet(name, header_row=None, skip_rows=row - 1, n_rows=1, dtypes="string"))
    cells = head.row(0) if head.height and head.width == len(columns) else ()
    found = {}
    for column, cell in zip(columns, cells, strict=False):
        if UNNAMED.fullmatch(column) and cell:
            clock = re.sub(r"^1900-01-01 00:00:00$", "24:00:00", re.sub(r"^1899-12-3[01] ", "", cell))
            found[column] = re.sub(r" 00:00:00$|(?<=^\d\d:\d\d):00$", "", clock)
    return {column: title for column, title in found.items() if [*found.values(), *columns].count(title) == 1}


def _first_row(book: Any, name: str, loaded: Any) -> int:
    """The first row that is not empty, from 1: the library leaves out those above, unless the second one is asked for.

    Args:
        book: the workbook.
        name: of the sheet.
        loaded: the sheet from its first row on.
    """
    second = book.load_sheet(name, header_row=1, schema_sample_rows=1)
    below = -1 if _behind_the_end(second) else int(second.total_height)
    return 1 if _behind_the_end(loaded) else below - int(loaded.total_height) + 2


def _behind_the_end(sheet: Any) -> bool:
    """Whether the header was looked for below the last row: of its height one was taken away."""
    return bool(sheet.total_height > 1 << 62)


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


def _check_tags(stream: IO[bytes], uri: str) -> None:
    """See that the tags of an OpenDocument are closed: the library looks for the end of a table for ever.

    Raises:
        DataError: they are not.
    """
    try:
        expat.ParserCreate().ParseFile(stream)
    except expat.ExpatError as error:
        raise DataError(f"{uri}: not a whole workbook: content.xml, {error}", hint=_HINT) from None


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
            if "content.xml" in file.namelist():
                with file.open("content.xml") as stream:
                    _check_tags(stream, uri)
    if size > _RATIO * os.path.getsize(path) + _LEAST:
        raise DataError(f"{uri}: it unpacks to {size:,} bytes, out of all proportion", hint="export it as CSV")


if __name__ == "__main__":
    main(*sys.argv[1:])
