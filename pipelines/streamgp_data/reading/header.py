"""Where the header seems to be, in a text file or a workbook that begins with a title."""

from __future__ import annotations

import re
from collections.abc import Sequence

from streamgp.errors import DataError
from streamgp_data.reading.cells import check_names

MOST = 50
"""Rows above a header at most."""
_AHEAD = 2
"""Rows below a header of which one has values: the first, or the one after a row of units."""
_VALUE = re.compile(r"\s*[+-]?[.,]?\d")
_FORM = re.compile(r"\W*[dmyhst]+([.:/ -]+[dmyhst]+)+\W*", re.IGNORECASE)
"""How a date or a time is written, such as dd.mm.yyyy: among the units of a row below the header."""
_DATUM = re.compile(
    r"\s*([+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([T ].*)?|\d{1,2}:\d{2}.*)\s*"
)
_WHOLE_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b")
_WORD = re.compile(r"\s*[^\W\d_]")


def header_below(rows: Sequence[Sequence[object]]) -> int | None:
    """The place, from 0, of the row that seems to be the header, where the first row is none; else None.

    A header has several cells, all of them filled, and words in most; a row with values is below it. Where the first
    row may be one too, but has none below it, a header has more cells.

    Example:
        >>> header_below([["Report", ""], ["Site", "North"], ["time", "kW"], ["2024-01-01", "1,5"]])
        2
        >>> header_below([["Report", ""], ["day", "power"], ["dd.mm.yyyy", "kW"], ["31.12.2024", "1,5"]])
        1
        >>> header_below([["Meter:", "DE12"], ["Unit:", "kW"], ["from", "to", "value"], ["1.1.2024", "2.1.2024", "1"]])
        2
        >>> header_below([["time", "kW"], ["2024-01-01", "1,5"]]) is None
        True
    """
    rows = rows[: MOST + 1 + _AHEAD]
    least = len(rows[0]) + 1 if rows and _names(rows[0]) else 0
    if not rows or any(_is_value(cell) for row in rows[1 : 1 + _AHEAD] if len(row) < least for cell in row):
        return None
    for ahead in range(1, _AHEAD + 1):
        for place in range(1, min(len(rows) - ahead, MOST + 1)):
            below = rows[place + ahead]
            fits = least <= len(rows[place]) <= len(below)
            if fits and _names(rows[place]) and any(map(_is_value, below)):
                units = any(map(_FORM.fullmatch, map(str, rows[place]))) and len(rows[place - 1]) == len(rows[place])
                return place - 1 if units and _names(rows[place - 1]) else place
    return None


NO_HEADER = "name the columns of a file without a header line: --columns ds,y (or --no-header: column_1, column_2, ...)"
"""What to do about a first line that looks like data."""


def looks_like_data(names: Sequence[str]) -> bool:
    """Whether one of the names of columns is a number or begins as a date or a time.

    Example:
        >>> looks_like_data(["2024-01-01", "north", "1.5"]), looks_like_data(["ds", "power [kW]", "2nd floor"])
        (True, False)
    """
    return any(_DATUM.fullmatch(name) for name in names)


def seems_in(row: int) -> str:
    """What to do about a header that seems to be in this row, from 1.

    Example:
        >>> seems_in(3)
        'the header seems to be in row 3: --header-row 3'
    """
    return f"the header seems to be in row {row}: --header-row {row}"


def given_names(cells: list[str] | None, given: tuple[str, ...], where: str) -> list[str]:
    """The names of the columns of a file without a header: those given, else column_1, column_2, ...

    Raises:
        DataError: its first line has not as many cells, or a name cannot be one of a column.
    """
    cells = cells or []
    if len(cells) > 1 and len(cells) == len(given) + 1 and not cells[-1].strip():
        cells = cells[:-1]  # a trailing separator
    names = list(given) or [f"column_{at}" for at in range(1, len(cells) + 1)]
    if len(names) != len(cells):
        raise DataError(
            f"{where}: {len(cells)} cells, and --columns names {len(names)}",
            hint="name every column, from left to right, or the --separator",
        )
    check_names(names, "--columns")
    return names


def header_names(cells: list[str] | None, where: str, below: int | None) -> list[str]:
    """The names of the columns.

    Raises:
        DataError: the line cannot name columns; where another one seems to, it is named.
    """
    hint = NO_HEADER if below is None else seems_in(below)
    if cells is None:
        raise DataError(f"{where}: this is no line of column names", hint=hint)
    names = [cell.strip() or f"column_{i}" for i, cell in enumerate(cells, 1)]
    if all(_WHOLE_NUMBER.fullmatch(name) for name in names):
        raise DataError(f"{where}: these are numbers, not column names", hint=hint)
    if all(_WHOLE_NUMBER.fullmatch(name) or _DATE.match(name) for name in names):
        raise DataError(f"{where}: these are times and numbers, not column names", hint=hint)
    try:
        check_names(names, where)
    except DataError as error:
        raise DataError(error.message, hint=error.hint if below is None else hint) from None
    return names


def _names(row: Sequence[object]) -> bool:
    """Whether a row may name columns."""
    words = sum(isinstance(cell, str) and _WORD.match(cell) is not None for cell in row)
    filled = all(isinstance(cell, str) and cell.strip() and not _is_value(cell) for cell in row)
    return len(row) > 1 and filled and 2 * words >= len(row)


def _is_value(cell: object) -> bool:
    """Whether a cell is a number or a date."""
    return (cell is not None and not isinstance(cell, str)) or (isinstance(cell, str) and bool(_VALUE.match(cell)))
