"""Recordings that stand in one file one after the other: header lines between rows, and clocks that start again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from streamgp.windows.calendar import Ints
from streamgp_data.ingestion.chunk import PreparedChunk
from streamgp_data.instants import ELAPSED
from streamgp_data.reading.cells import HEADER, LINE, said
from streamgp_data.table import TableMeta

LEAST = 3
"""Rows between two starts of a clock."""

_NUMBER = "number them in a column, and ingest into a new table with --series and its name"

NEAR = 0.01
"""Share of the time since the first start within which a clock starts again."""


class Pieces:
    """Where the chunks of a source seem to begin another recording. Memory is three numbers a series.

    Args:
        uri: of the source.
        meta: of the table; clocks start again that count from a start, or steps.

    Attributes:
        headers: lines of header lines between rows. starts: (line, time) of rows at which a clock starts again.
    """

    def __init__(self, uri: str, meta: TableMeta) -> None:
        self._uri, self._meta = uri, meta
        self._counts = meta.time is not None and (not meta.clock or meta.time_format in ELAPSED)
        self._known: dict[Any, tuple[int, int, int]] = {}  # series -> first time, newest row's time, rows since a start
        self.headers: list[int] = []
        self.starts: list[tuple[int, str]] = []

    def seen(self, parts: Iterable[PreparedChunk]) -> Iterator[PreparedChunk]:
        """The same parts, looked at."""
        for part in parts:
            self.headers += [part.rows.column(LINE)[row].as_py() for row in self._headers(part)]
            if self._counts and part.rows.num_rows:
                self._look(part)
            yield part

    def notes(self, in_doubt: bool) -> list[str]:
        """What to do about it.

        Args:
            in_doubt: whether rows of the source have the time of another one, or came late.
        """
        if self.starts and in_doubt:
            where, count = _lines([line for line, _ in self.starts]), len(self.starts) + 1
            return [
                f"{self._uri}, {where}: the clock {self._meta.time!r} starts again, at {self.starts[0][1]}: if these "
                f"are {count:,} recordings in one file, {_NUMBER}"
            ]
        if self.headers:
            return [
                f"{self._uri}, {_lines(self.headers)}: a header between rows, which is in the quarantine: if another "
                f"recording begins there, {_NUMBER}"
            ]
        return []

    @staticmethod
    def _headers(part: PreparedChunk) -> list[int]:
        return sorted(row for row, (reason, _, _) in part.faults.items() if reason == HEADER)

    def _look(self, part: PreparedChunk) -> None:
        time, series = self._meta.time or "", self._meta.series
        good = part.good
        times, places = part.table.column(time).cast(pa.int64()).to_numpy()[good], np.flatnonzero(good)
        rows = list[int]()
        if series is None:
            rows = self._starts(None, times, places) if len(times) else rows
        else:
            names = pl.Series("series", pl.from_arrow(part.table.column(series))).filter(pl.Series(good))
            frame = pl.DataFrame([names, pl.Series("time", times), pl.Series("row", places)])
            for (name,), own in frame.group_by("series", maintain_order=True):
                rows += self._starts(name, own["time"].to_numpy(), own["row"].to_numpy())
        cells, lines = part.rows.column(time), part.rows.column(LINE)
        self.starts += [(lines[row].as_py(), said(cells[row])) for row in sorted(rows)]

    def _starts(self, name: Any, times: Ints, rows: Ints) -> list[int]:
        """Of the rows of one series, at least one, those at which its clock starts again."""
        first, last, since = self._known.get(name, (int(times[0]), int(times[0]), 0))
        before = np.append(last, times[:-1])
        found, start = list[int](), -since
        for at in np.flatnonzero((times < before) & (times - first <= NEAR * (before - first))).tolist():
            if at - start >= LEAST:
                found.append(int(rows[at]))
                start = at
        self._known[name] = first, int(times[-1]), len(times) - start
        return found


def _lines(lines: list[int]) -> str:
    """The first of some lines, in words.

    Example:
        >>> _lines([7]), _lines([7, 9, 12, 15, 20])
        ('line 7', 'lines 7, 9, 12 and 2 more')
    """
    more = f" and {len(lines) - 3:,} more" if len(lines) > 3 else ""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:3]))}{more}"
