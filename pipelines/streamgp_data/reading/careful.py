"""The careful way through a block of delimited text: where each record is, how many cells, and the cells as text."""

from __future__ import annotations

import csv
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from streamgp_data.reading.cells import fault
from streamgp_data.reading.quotes import Ints, Rest, form, quoted, record_ends, regular

csv.field_size_limit(1 << 30)  # of the process, and 128 KB otherwise; the length of a line is limited before


class SplitRecords(NamedTuple):
    """The R records of a block that are not blank.

    Attributes:
        starts, ends: (R,) where each is, its newline included. cuts: (R,) where its cells end, before a trailing
            separator.
        widths: (R,) its cells, without an empty one after the last column.
        rows: the cells where they are split already. faults: what is wrong with single records.
    """

    starts: Ints
    ends: Ints
    cuts: Ints
    widths: Ints
    rows: list[list[str]] | None
    faults: dict[int, str]


def split_records(data: bytes, separator: str, width: int, trailing: bool = False) -> SplitRecords:
    """The records of a block; blank lines are none.

    Args:
        data: UTF-8. width: cells of the header.
        trailing: whether rows may end in a separator with nothing after it.

    Example:
        >>> split = split_records(b'1,2\\n\\n3\\n"a,b",4', ",", 2)
        >>> split.starts.tolist(), split.widths.tolist()
        ([0, 5, 7], [2, 1, 2])
        >>> split_records(b"1,2,\\n1,2,3\\n", ",", 2, trailing=True).widths.tolist()
        [2, 3]
    """
    mark = separator.encode()
    ends = record_ends(data, mark, width, Rest.NONE)
    if len(data) and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))
    starts = np.append(np.zeros(1, np.int64), ends[:-1])[: len(ends)]
    text = np.frombuffer(data, np.uint8)
    blank = _blank(text, starts, ends)
    starts, ends = starts[~blank], ends[~blank]
    even = b'"' not in data or (regular(data, mark) and not quoted(data, ends - 1).any())  # no stray quote
    faults = _lone_returns(text, data, starts, ends, even)
    if not even:
        rows = [
            split_line(data[start:end], separator) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        for at, row in enumerate(rows):
            if row is None:
                faults.setdefault(at, fault("ragged", "", "nothing closes a quote of this line"))
            elif trailing and len(row) == width + 1 and not row[-1].strip():
                row.pop()
        cells = [row or [] for row in rows]
        return SplitRecords(starts, ends, ends, np.array([len(row) for row in cells], np.int64), cells, faults)
    marks: Ints = np.flatnonzero(text == ord(mark))
    if b'"' in data:
        marks = marks[~quoted(data, marks)]
    behind = np.searchsorted(marks, ends)
    widths = behind - np.searchsorted(marks, starts) + 1
    if trailing and len(marks):
        last = marks[np.maximum(behind - 1, 0)]
        nothing = np.array(
            [widths[i] == width + 1 and not data[last[i] + 1 : ends[i]].strip() for i in range(len(ends))]
        )
        widths = widths - nothing
        return SplitRecords(starts, ends, np.where(nothing, last, ends), widths, None, faults)
    return SplitRecords(starts, ends, ends, widths, None, faults)


def split_cells(
    data: bytes, split: SplitRecords, names: list[str], separator: str
) -> tuple[pl.DataFrame, list[str | None]]:
    """The cells of every record as text, null where the record is ragged, and the faults of the ragged ones."""
    width = len(names)
    whole = split.widths == width
    faults: list[str | None] = [None] * len(whole)
    for row, wrong in split.faults.items():
        whole[row] = False
        faults[row] = wrong
    for row in np.flatnonzero(~whole).tolist():
        faults[row] = faults[row] or fault("ragged", "", f"{split.widths[row]} cells where the header has {width}")
    frame = _parse(data, split, whole, names, separator)
    if whole.all():
        return frame, faults
    places = np.cumsum(whole) - 1
    gather = pl.Series(
        [int(place) if good else None for place, good in zip(places, whole, strict=True)], dtype=pl.UInt32
    )
    return frame.select(pl.all().gather(gather)), faults


def header_rows(cells: pl.DataFrame, names: list[str]) -> dict[int, str]:
    """Row -> what it says, of those of which more than half of the cells, and at least two, name columns.

    Example:
        >>> cells = pl.DataFrame({"ds": ["1", "ds", "ds"], "y": ["2", "y", None], "z": ["3", "p", "4"]})
        >>> header_rows(cells, ["ds", "y", "z"])
        {1: 'another header: ds, y, p; the columns are read as ds, y, z'}
    """
    known = pl.col(cells.columns).str.strip_chars().is_in(names).fill_null(False)
    named = cells.select(pl.sum_horizontal(known).alias("named"))
    found = {}
    for row in named["named"].gt(max(1, len(names) // 2)).arg_true().to_list():
        own = [str(cell or "").strip() for cell in cells.row(row)]
        same = own == [name.strip() for name in names]
        other = f"another header: {', '.join(own)[:200]}; the columns are read as {', '.join(names)[:200]}"
        found[row] = "the header again" if same else other
    return found


def readable(data: bytes, encoding: str) -> tuple[bytes, Ints, int]:
    """The text as UTF-8; which of its lines (from 0) are not in this encoding; how many others are more than ASCII.

    What cannot be read stands in the text as \\\\xff.

    Example:
        >>> readable("ä\\nö\\n".encode() + b"a\\xff\\n", "utf-8")[1:]
        (array([2]), 2)
    """
    try:
        text = data.decode(encoding)
        return data if encoding == "utf-8" else text.encode(), _NONE, 0
    except UnicodeDecodeError:
        pass
    lines, bad, beyond = data.split(b"\n"), [], 0
    for at, line in enumerate(lines):
        try:
            lines[at] = line.decode(encoding).encode()
            beyond += not line.isascii()
        except UnicodeDecodeError:
            bad.append(at)
            lines[at] = line.decode(encoding, "backslashreplace").encode()
    return b"\n".join(lines), np.array(bad, np.int64), beyond


_NONE: Ints = np.zeros(0, np.int64)


def _blank(text: NDArray[np.uint8], starts: Ints, ends: Ints) -> NDArray[np.bool_]:
    """(R,) whether a record is an empty line."""
    lengths = ends - starts
    first, second = text[starts], text[np.minimum(starts + 1, max(len(text) - 1, 0))]
    lines = (lengths == 1) & ((first == 10) | (first == 13)) | (lengths == 2) & (first == 13) & (second == 10)
    return np.asarray(lines)


def _lone_returns(text: NDArray[np.uint8], data: bytes, starts: Ints, ends: Ints, even: bool) -> dict[int, str]:
    """The records with a carriage return that neither ends the line nor is quoted."""
    at: Ints = np.flatnonzero(text == 13)
    following = text[np.minimum(at + 1, max(len(text) - 1, 0))]
    at = at[(following != 10) & (following != 13)]
    if even and len(at):
        at = at[~quoted(data, at)]
    if not len(at) or not len(starts):
        return {}
    place = np.searchsorted(ends, at, side="right")
    place, at = place[place < len(starts)], at[place < len(starts)]
    within = (at >= starts[place]) & (at + 1 < ends[place])
    return {int(row): fault("ragged", "", "a lone carriage return in the line") for row in place[within]}


def _parse(data: bytes, split: SplitRecords, whole: NDArray[Any], names: list[str], separator: str) -> pl.DataFrame:
    """The whole records' cells; by polars, or one by one where it does not see the same records."""
    schema = dict.fromkeys(names, pl.String())
    if not whole.any():
        return pl.DataFrame(schema=schema)
    if split.rows is not None:
        rows: list[list[str] | None] = [split.rows[at] for at in np.flatnonzero(whole).tolist()]
        return pl.DataFrame(rows, schema=schema, orient="row")
    pieces = list(zip(split.starts[whole].tolist(), split.cuts[whole].tolist(), strict=True))
    try:
        text = b"".join(_line(data[start:end]) for start, end in pieces)
        frame = pl.read_csv(text, has_header=False, schema=schema, separator=separator)
        if frame.height == len(pieces):
            return frame
    except pl.exceptions.PolarsError:
        pass
    rows = [split_line(data[start:end], separator) for start, end in pieces]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _line(record: bytes) -> bytes:
    return record if record.endswith(b"\n") else record + b"\n"


def split_line(record: bytes, separator: str) -> list[str] | None:
    """One record's cells; None where nothing closes a quote."""
    if b'"' in record and form(record, 0, separator.encode()).open:
        return None
    try:
        return next(csv.reader([record.decode().rstrip("\r\n")], delimiter=separator), [])
    except csv.Error:  # a lone carriage return
        return None
