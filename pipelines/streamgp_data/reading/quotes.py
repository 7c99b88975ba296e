"""Where the records of delimited text end, and which quotes open a cell.

A quote opens a quoted cell only at the start of a cell; elsewhere it is an ordinary character. A quoted cell may hold
newlines, so that a record has several lines. Such a record is accepted only if its quotes close where a cell ends, if
it has as many cells as the header, and if it is not too long. Otherwise the quote is a stray one: its line is a record
of its own, and the next line begins the next record. So one stray quote costs one line.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

RECORD_LIMIT = 1 << 20
"""Bytes of a record of several lines; beyond, its quote is taken for a stray one."""

EVIDENCE = 3
"""Whole rows after an open quote that say at the end of a file that it is a stray one."""


class Rest(Enum):
    """What comes after the data at hand.

    MORE: bytes that can be read at once. LATER: bytes that may come some day. NONE: nothing.
    """

    MORE = "more"
    LATER = "later"
    NONE = "none"


def record_ends(data: bytes, separator: bytes, width: int = 0, rest: Rest = Rest.MORE) -> Ints:
    """Offsets after the newline of every whole record.

    Args:
        data: begins with a record.
        width: cells of a record; one more, an empty one, is let pass. 0: any number.
        rest: decides about a quote that is open at the end; with NONE, the last record need not end in a newline where
            there are quotes in it.

    Example:
        >>> record_ends(b'a,"x\\ny"\\nb,2\\n', b",", 2).tolist()
        [8, 12]
        >>> record_ends(b'5" pipe,1\\nb,2\\n', b",").tolist()
        [10, 14]
        >>> record_ends(b'a,"1\\nb,"2\\nc,3\\n', b",", 2, Rest.NONE).tolist()
        [5, 10, 14]
    """
    text = np.frombuffer(data, np.uint8)
    newlines: Ints = np.flatnonzero(text == 10)
    quotes: Ints = np.flatnonzero(text == 34)
    if not len(quotes):
        return newlines + 1
    before = newlines if len(quotes) % 2 == 0 else newlines[: np.searchsorted(newlines, quotes[-1])]
    end = int(before[-1]) + 1 if len(before) else 0
    simple = _simple(text[:end], before, quotes[: np.searchsorted(quotes, end)], ord(separator), width)
    if simple is None:
        return _scan(data, 0, separator, width, rest, newlines, quotes)
    if len(before) == len(newlines):
        return simple
    return np.append(simple, _scan(data, end, separator, width, rest, newlines, quotes))


def _simple(text: NDArray[np.uint8], newlines: Ints, quotes: Ints, separator: int, width: int) -> Ints | None:
    """The ends where all quotes are regular and every record of several lines is to be believed, else None."""
    if len(quotes) % 2 or not _regular(text, quotes, separator):
        return None
    inside = np.searchsorted(quotes, newlines) % 2 == 1
    if not inside.any():
        return newlines + 1
    ends = newlines[~inside] + 1
    starts = np.append(0, ends[:-1])
    marks: Ints = np.flatnonzero(text == separator)
    marks = marks[np.searchsorted(quotes, marks) % 2 == 0]
    several = np.searchsorted(newlines, ends - 1) > np.searchsorted(newlines, starts)
    cells = np.searchsorted(marks, ends) - np.searchsorted(marks, starts) + 1
    odd = (ends - starts > RECORD_LIMIT) | ((cells != width) & (cells != width + 1) if width else False)
    return None if bool((several & odd).any()) else ends


def header_end(data: bytes, separator: bytes) -> int:
    """Offset after the header, blank lines before it included; 0 where it has not ended."""
    blank = len(data) - len(data.lstrip(b"\r\n"))
    ends = record_ends(data[blank:], separator)
    return blank + int(ends[0]) if len(ends) else 0


def quoted(data: bytes, at: Ints) -> NDArray[np.bool_]:
    """(len(at),) whether each offset lies inside quotes; for data whose quotes are regular."""
    quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == 34)
    return np.asarray(np.searchsorted(quotes, at) % 2 == 1)


def regular(data: bytes, separator: bytes) -> bool:
    """Whether every quote opens at the start of a cell and closes at its end."""
    text = np.frombuffer(data, np.uint8)
    quotes: Ints = np.flatnonzero(text == 34)
    return len(quotes) % 2 == 0 and _regular(text, quotes, ord(separator))


def _regular(text: NDArray[np.uint8], quotes: Ints, separator: int) -> bool:
    if not len(quotes):
        return True
    opening, closing = quotes[0::2], quotes[1::2]
    before = text[np.maximum(opening - 1, 0)]
    opens = (opening == 0) | (before == separator) | (before == 10) | (before == 34)
    behind = text[np.minimum(closing + 1, len(text) - 1)]
    closes = (closing == len(text) - 1) | (behind == separator) | (behind == 10) | (behind == 13) | (behind == 34)
    return bool(opens.all() and closes.all())


class Form(NamedTuple):
    """The first record of some data.

    Attributes:
        end: after it. cells: how many. open: whether a quote is not closed in this data.
        believed: whether the quotes that hold newlines close where a cell ends.
    """

    end: int
    cells: int
    open: bool = False
    believed: bool = True


@lru_cache
def _patterns(separator: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """A quoted cell with its closing quote, and the rest of a cell."""
    sign = re.escape(separator)
    return re.compile(b'"[^"]*+(?:""[^"]*+)*+"'), re.compile(b"[^" + sign + b"\n]*+")


def form(data: bytes, start: int, separator: bytes) -> Form:
    """The record that begins at `start`."""
    cell, plain = _patterns(separator)
    at, cells, believed = start, 0, True
    while True:
        cells += 1
        if data[at : at + 1] == b'"':
            closed = cell.match(data, at)
            if closed is None:
                return Form(len(data), cells, open=True)
            several = data.find(b"\n", at, closed.end()) >= 0
            at = closed.end()
            if several and data[at : at + 1] not in (separator, b"\n", b"\r", b""):
                believed = False
        rest = plain.match(data, at)
        at = rest.end() if rest else at
        if data[at : at + 1] != separator:
            return Form(min(at + 1, len(data)), cells, believed=believed)
        at += 1


def _scan(data: bytes, at: int, separator: bytes, width: int, rest: Rest, newlines: Ints, quotes: Ints) -> Ints:
    """Record by record where there are quotes, line by line elsewhere."""
    ends: list[Ints] = []
    size = len(data)
    while at < size:
        place = int(np.searchsorted(quotes, at))
        following = int(quotes[place]) if place < len(quotes) else size
        low, high = np.searchsorted(newlines, [at, following])
        if high > low:  # lines without quotes
            ends.append(newlines[low:high] + 1)
            at = int(newlines[high - 1]) + 1
        if following == size:
            break
        line = int(newlines[high]) + 1 if high < len(newlines) else size + 1
        found = form(data, at, separator)
        half = found.end == size and not data.endswith(b"\n")  # a quote that ends the data need not close a cell
        if (found.open or half) and rest is not Rest.NONE and found.end - at <= RECORD_LIMIT:
            stray = rest is Rest.LATER and _rows_behind(data, line, separator, width)
            if not stray:
                break
        several = found.open or found.end > line
        fits = not width or found.cells in (width, width + 1)
        if several and (found.open or not found.believed or not fits or found.end - at > RECORD_LIMIT):
            found = Form(line, 0)
        if found.end > size and rest is not Rest.NONE:
            break
        at = min(found.end, size)
        ends.append(np.array([at]))
    return np.concatenate(ends).astype(np.int64) if ends else np.zeros(0, np.int64)


def _rows_behind(data: bytes, start: int, separator: bytes, width: int) -> bool:
    """Whether the lines from `start` on, some of them at least, are rows by themselves."""
    lines = data[start : start + RECORD_LIMIT].split(b"\n")[:-1]
    if width < 2 or len(lines) < EVIDENCE:
        return False
    return all(b'"' not in line and line.count(separator) in (width - 1, width) for line in lines)
