"""The seasons of a table, as far as its first rows show them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.errors import UsageError
from streamgp.windows import monthly, seasons
from streamgp.windows.calendar import DAY, WEEK, Floats, Ints
from streamgp.windows.rows import times
from streamgp_data.batches import together
from streamgp_data.intervals import nanoseconds, written
from streamgp_data.table import Table, TableMeta

MOST = 0.8
"""Share of the rows that follow each other at one interval, for it to be that of the table."""
ROWS = 20_000
"""Rows of the table that are looked at: seasons do not change with what comes later."""


class Spacing(NamedTuple):
    """How far apart rows are.

    Attributes:
        every: ns; None where they differ.
        months: that they are apart on one day of the month; 0 for others.
        counted: rows in a day and a week where nights or weekends have none; 0 for others.
    """

    every: int | None
    months: int = 0
    counted: tuple[int, int] = (0, 0)

    def seasons(self, rows: float = math.inf) -> tuple[int, ...]:
        """Rows in a day and a week, or in a year, of which `rows` rows hold three; see `seasons.of_clock`."""
        if any(self.counted):
            return seasons.held(self.counted, rows)
        return seasons.of_clock(self.every, rows) or seasons.of_months(self.months, rows)


def of_clock(opening: pa.RecordBatch | None, meta: TableMeta, target: str, alone: bool = False) -> tuple[int, ...]:
    """Rows in a day and a week of a table with a clock, or in a year of months or quarters, of which its first series
    holds three; see `proposed`."""
    return _of_clock(*_first_series(opening, meta, target), meta, alone)


def proposed(opening: pa.RecordBatch | None, meta: TableMeta, target: str, alone: bool = False) -> tuple[int, ...]:
    """Rows in each season of a target: those of the table's clock, or what the first rows of its first series show.

    Args:
        opening: the first rows of the table (`first_rows`).
        meta: of the table.
        target: its column.
        alone: whether the clock alone gives the day, however few rows there are: the others are still to come.
    """
    when, values = _first_series(opening, meta, target)
    return _of_clock(when, values, meta, alone) or seasons.propose(_even(when, values, meta.every_ns))


def confirmed(opening: pa.RecordBatch | None, meta: TableMeta, target: str) -> tuple[int, ...]:
    """Rows in each season of the table's clock, where the first rows of a target show a season too; as `proposed`."""
    when, values = _first_series(opening, meta, target)
    return _of_clock(when, values, meta) if seasons.propose(_even(when, values, meta.every_ns)) else ()


def in_rows(text: str, opening: pa.RecordBatch | None, meta: TableMeta) -> tuple[int, ...]:
    """Rows in each of the seasons that are written as lengths of time, or as rows, shortest first; opening, meta: as of
    `proposed`.

    Raises:
        UsageError: the rows are not at one interval, or a season is no whole number of them.

    Example:
        >>> in_rows("1d,7d,12", None, TableMeta("t", every_ns=3600 * 10**9))
        (12, 24, 168)
    """
    if meta.time is None or not meta.clock:
        raise UsageError(
            f"--season {text}: the rows of this table have no clock", hint="give the number of rows in a season"
        )
    when = times(_of_first_series(opening, meta), meta.time)
    every, found = meta.every_ns or _interval(when), set[int]()
    for part in text.split(","):
        length = nanoseconds(part)
        counted = 0 if length is None or meta.every_ns else _back(when, length)
        if counted:
            found.add(counted)
            continue
        if every is None:
            raise UsageError(
                f"--season {text}: the rows of this table are not at one interval",
                hint="give the number of rows in a season, or ingest the table with --every",
            )
        rows, rest = (int(part), 0) if length is None else divmod(length, every)
        if rest or not rows:
            near = max(rows, 2)
            raise UsageError(
                f"--season {part}: this is no whole number of rows, of which the table has one every {written(every)}",
                hint=f"{written(near * every)} are {near:,} rows: give that, or a number of rows",
            )
        found.add(rows)
    return tuple(sorted(found - {1}))


def spacing(opening: pa.RecordBatch | None, meta: TableMeta, target: str) -> tuple[int, Spacing]:
    """How many rows seasons are looked for in, and how far they are apart."""
    when, values = _first_series(opening, meta, target)
    return len(values), _spacing(when, meta)


def first_rows(table: Table, targets: Sequence[str]) -> pa.RecordBatch | None:
    """Time, series and targets of the first `ROWS` rows of a table; None where it has none."""
    columns = [name for name in (table.meta.time, table.meta.series, *targets) if name]
    parts, seen = list[pa.RecordBatch](), 0
    for chunk in table.read({}, columns, ROWS):
        parts.append(chunk.rows.slice(0, ROWS - seen))
        seen += parts[-1].num_rows
        if seen >= ROWS:
            break
    return together(parts) if seen else None


def _first_series(opening: pa.RecordBatch | None, meta: TableMeta, target: str) -> tuple[Ints, Floats]:
    """Times and values of a target, of the first series; none of a table without time, or without the target."""
    if opening is None or meta.time is None or target not in opening.schema.names:
        return np.zeros(0, np.int64), np.zeros(0)
    rows = _of_first_series(opening, meta)
    values = pc.cast(rows.column(target), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return times(rows, meta.time), values


def _of_first_series(opening: pa.RecordBatch | None, meta: TableMeta) -> pa.RecordBatch:
    """The rows of the first series, of those that are looked at."""
    if opening is None:
        return pa.RecordBatch.from_pylist([], pa.schema([(meta.time or "", pa.int64())]))
    rows = opening.slice(0, ROWS)
    if meta.series is None or not rows.num_rows:
        return rows
    first = rows.column(meta.series)[0]
    return rows.filter(pc.equal(rows.column(meta.series), first))


def _of_clock(when: Ints, values: Floats, meta: TableMeta, alone: bool = False) -> tuple[int, ...]:
    apart = _spacing(when, meta)
    return apart.seasons(len(values)) or (apart.seasons()[:1] if alone else ())


def _spacing(when: Ints, meta: TableMeta) -> Spacing:
    every = meta.every_ns or _interval(when)
    if meta.every_ns is None and meta.clock:
        by_interval = (0, 0) if every is None else (DAY // every, WEEK // every)
        day = _back(when, DAY) or by_interval[0]
        counted = day, _back(when, WEEK) or (by_interval[1] if day == by_interval[0] else 0)
        if counted != by_interval and seasons.held(counted):
            return Spacing(every, 0, counted)
    if every is not None or not len(when) or not meta.clock:
        return Spacing(every)
    return Spacing(None, int(monthly.find(when[None], np.ones((1, len(when)), bool), meta.zone).step[0]))


def _interval(when: Ints) -> int | None:
    """The interval that most rows have where none is declared, ns; None where there is no such."""
    between, counts = np.unique(np.diff(when), return_counts=True)
    return int(between[counts.argmax()]) if len(counts) and counts.max() >= MOST * counts.sum() else None


def _back(when: Ints, length: int) -> int:
    """How many rows back the clock was this much earlier, ns, where most rows that have one then agree; else 0.

    Shops have rows while they are open, markets on days of work: fewer than the interval says.
    """
    if not len(when) or (np.diff(when) <= 0).any():
        return 0
    at = np.searchsorted(when, when - length)
    back = (np.arange(len(when)) - at)[when[at] == when - length]
    rows, counts = np.unique(back, return_counts=True)
    known = counts.sum() >= len(when) / 2 and counts.max(initial=0) >= MOST * counts.sum()
    return int(rows[counts.argmax()]) if known else 0


def _even(when: Ints, values: Floats, every: int | None) -> Floats:
    """One value a step, NaN where a row is missing; the rows as they are where no interval is declared."""
    if every is None or not len(when):
        return values
    step = (when - when[0] + every // 2) // every
    kept = (step >= 0) & (step < 4 * len(values))
    even = np.full(int(step[kept].max()) + 1, np.nan)
    even[step[kept]] = values[kept]
    return even
