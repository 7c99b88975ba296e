"""The careful way through a block of delimited text: where each record is, how many cells, and the cells as text."""

from __future__ import annotations

import csv
from typing import NamedTuple

import numpy as np
import polars as pl

from streamgp.streaming.sources._cells import fault
from streamgp.streaming.sources._records import Ints, quoted, record_ends, regular


class Split(NamedTuple):
    """(R,) where each record that is not blank starts and ends, and its number of cells; cells when already split."""

    starts: Ints
    ends: Ints
    widths: Ints
    rows: list[list[str]] | None


def split_records(data: bytes, separator: str) -> Split:
    """The records of a block; blank lines are none.

    Example:
        >>> split = split_records(b'1,2\\n\\n3\\n"a,b",4', ",")
        >>> split.starts.tolist(), split.widths.tolist()
        ([0, 5, 7], [2, 1, 2])
    """
    mark = separator.encode()
    ends = record_ends(data, mark)
    if len(data) and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))
    starts = np.append(np.zeros(1, np.int64), ends[:-1])[: len(ends)]
    text = np.frombuffer(data, np.uint8)
    lengths = ends - starts
    blank = (lengths == 1) & (text[starts] == 10) | (lengths == 2) & (text[starts] == 13)
    starts, ends = starts[~blank], ends[~blank]
    if b'"' in data and not regular(data, mark):
        pieces = zip(starts.tolist(), ends.tolist(), strict=True)
        rows = [_cells_of(data[start:end].decode(), separator) for start, end in pieces]
        return Split(starts, ends, np.array([len(row) for row in rows], np.int64), rows)
    marks: Ints = np.flatnonzero(text == ord(mark))
    if b'"' in data:
        marks = marks[~quoted(data, marks)]
    return Split(starts, ends, np.searchsorted(marks, ends) - np.searchsorted(marks, starts) + 1, None)


def split_cells(data: bytes, split: Split, names: list[str], separator: str) -> tuple[pl.DataFrame, list[str | None]]:
    """The cells of every record as text, null where the record is ragged, and the faults of the ragged ones.

    Raises:
        UnicodeDecodeError: the block is not UTF-8.
    """
    data.decode()
    width = len(names)
    whole = split.widths == width
    faults: list[str | None] = [None] * len(whole)
    for row in np.flatnonzero(~whole).tolist():
        faults[row] = fault("ragged", "", f"{split.widths[row]} cells where the header has {width}")
    frame = _parse(data, split, whole, names, separator)
    if whole.all():
        return frame, faults
    places = np.cumsum(whole) - 1
    gather = pl.Series(
        [int(place) if good else None for place, good in zip(places, whole, strict=True)], dtype=pl.UInt32
    )
    return frame.select(pl.all().gather(gather)), faults


def _parse(data: bytes, split: Split, whole: np.ndarray, names: list[str], separator: str) -> pl.DataFrame:
    """The whole records' cells; by polars, or one by one where it does not see the same records."""
    schema = dict.fromkeys(names, pl.String())
    if not whole.any():
        return pl.DataFrame(schema=schema)
    pieces = list(zip(split.starts[whole].tolist(), split.ends[whole].tolist(), strict=True))
    if split.rows is None:
        try:
            text = b"".join(data[start:end] for start, end in pieces)
            frame = pl.read_csv(text, has_header=False, schema=schema, separator=separator)
            if frame.height == len(pieces):
                return frame
        except pl.exceptions.PolarsError:
            pass
    rows = [_cells_of(data[start:end].decode(), separator) for start, end in pieces]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _cells_of(record: str, separator: str) -> list[str]:
    """One record's cells; a quote that nothing closes is taken as it stands."""
    text = record.rstrip("\r\n")
    try:
        return next(csv.reader([text], delimiter=separator), [])
    except csv.Error:
        return [text]
