"""Where the header seems to be, in a text file or a workbook that begins with a title."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST = 50
"""Rows above a header at most."""
_AHEAD = 2
"""Rows below a header of which one has values: the first, or the one behind a row of units."""
_VALUE = re.compile(r"\s*[+-]?[.,]?\d")
_FORM = re.compile(r"\W*[dmyhst]+([.:/ -]+[dmyhst]+)+\W*", re.IGNORECASE)
"""How a date or a time is written, such as dd.mm.yyyy: among the units of a row below the header."""
_DATUM = re.compile(
    r"\s*([+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([T ].*)?|\d{1,2}:\d{2}.*)\s*"
)
_WORD = re.compile(r"\s*[^\W\d_]")


def header_below(rows: Sequence[Sequence[object]]) -> int | None:
    """The place, from 0, of the row that seems to be the header, where the first row is none; else None.

    A header has several cells, all of them filled, and words in most; a row with values is below it.

    Example:
        >>> header_below([["Report", ""], ["Site", "North"], ["time", "kW"], ["2024-01-01", "1,5"]])
        2
        >>> header_below([["Report", ""], ["day", "power"], ["dd.mm.yyyy", "kW"], ["31.12.2024", "1,5"]])
        1
        >>> header_below([["time", "kW"], ["2024-01-01", "1,5"]]) is None
        True
    """
    rows = rows[: MOST + 1 + _AHEAD]
    if not rows or _names(rows[0]):
        return None
    for ahead in range(1, _AHEAD + 1):
        for place in range(1, min(len(rows) - ahead, MOST + 1)):
            below = rows[place + ahead]
            if _names(rows[place]) and len(below) >= len(rows[place]) and any(map(_is_value, below)):
                units = any(map(_FORM.fullmatch, map(str, rows[place]))) and len(rows[place - 1]) == len(rows[place])
                return place - 1 if units and _names(rows[place - 1]) else place
    return None


NO_HEADER = "if the file has no header, name its columns: --columns ds,y (or --no-header: column_1, column_2, ...)"
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


def _names(row: Sequence[object]) -> bool:
    """Whether a row may name columns."""
    words = sum(isinstance(cell, str) and _WORD.match(cell) is not None for cell in row)
    filled = all(isinstance(cell, str) and cell.strip() and not _is_value(cell) for cell in row)
    return len(row) > 1 and filled and 2 * words >= len(row)


def _is_value(cell: object) -> bool:
    """Whether a cell is a number or a date."""
    return (cell is not None and not isinstance(cell, str)) or (isinstance(cell, str) and bool(_VALUE.match(cell)))
