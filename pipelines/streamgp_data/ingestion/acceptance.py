"""Sources that are refused before anything is written: most of their rows, or of their times, cannot be read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgp_data.ingestion.chunk import PreparedChunk
from streamgp_data.reading.cells import LINE, said
from streamgp_data.swapped import likelier
from streamgp_data.table import TableMeta
from streamgp_data.times import Clock, suggestion

NO_FAULTS = ("duplicate", "superseded")
"""Reasons of rows that the table has already."""
GOING = "if that is how it is, say --keep-going"
_UNREADABLE = ("unparsable", "out of range")
_CELLS = 1000
"""Times of a source that a format is sought for."""


class Acceptance:
    """Counts the rows of a source that the table has none of yet, and says whether to refuse it.

    A table without rows takes no source of which more than half of the rows would go to its quarantine; a table with
    rows takes none of which more than half of the times cannot be read. Other rows may have their place there. None
    takes a source whose times seem to be written with day and month in each other's places (`swapped`).

    Args:
        uri: of the source.
        meta: of the table.
        clock: how times are read; None without.
        fresh: whether the table has no rows.
        begun: whether the rows are the first of a source, which has more.
    """

    def __init__(self, uri: str, meta: TableMeta, clock: Clock | None, fresh: bool, begun: bool = False) -> None:
        self._uri, self._time, self._clock, self._fresh = uri, meta.time, clock, fresh
        self._of = "of the first" if begun else "of"
        self._read, self._timeless, self._reasons = 0, 0, Counter[str]()
        self._first: tuple[int, str] | None = None
        self._cells: list[pa.Array[Any]] = []
        self._examples: dict[str, str] = {}

    def add(self, part: PreparedChunk, repeated: Counter[str]) -> None:
        """Rows that were read.

        Args:
            part: with the faults of its rows.
            repeated: reason -> count of others that have the series and time of another row.
        """
        self._read += part.rows.num_rows
        self._reasons.update(reason for reason, _, _ in part.faults.values())
        self._reasons.update(repeated)
        lines = part.rows.column(LINE)
        for row in sorted(part.faults)[:_CELLS]:
            reason, column, detail = part.faults[row]
            if reason not in self._examples:
                what = ", ".join((f"line {lines[row].as_py():,}", *([f"column {column!r}"] if column else ())))
                self._examples[reason] = f"{what}: {detail}" if detail else what
        if self._time is None:
            return
        bad = sorted(
            row for row, (why, column, _) in part.faults.items() if column == self._time and why in _UNREADABLE
        )
        self._timeless += len(bad)
        cells = part.rows.column(self._time)
        if bad and self._first is None:
            self._first = int(lines[bad[0]].as_py()), said(cells[bad[0]])[:80]
            self._cells = [cells.take(_some(np.arange(len(cells)))), cells.take(_some(np.array(bad)))]

    def verdict(self) -> tuple[str, str] | None:
        """What is wrong with the source, and what to do; None where it can be taken."""
        if self._first is not None and 2 * self._timeless > self._read:
            line, cell = self._first
            form = "" if self._clock is None else f" as {self._clock.format or self._clock.kind}"
            return (
                f"{self._uri}, line {line:,}, column {self._time!r}: the time {cell!r} cannot be read{form}, and so "
                f"{self._timeless:,} {self._of} {self._read:,} rows have no time; nothing of this source was written",
                f"{suggestion(pa.concat_arrays(self._cells))}; {GOING}",
            )
        given = None if self._clock is None else self._clock.format
        if self._first is not None and (other := likelier(pa.concat_arrays(self._cells), given)) is not None:
            line, cell = self._first
            return (
                f"{self._uri}, line {line:,}, column {self._time!r}: the time {cell!r} cannot be read as {given}, and "
                f"{self._timeless:,} {self._of} {self._read:,} rows have no time; by {other} all that were tried have "
                "one; nothing of this source was written",
                f"the day and the month seem to have changed places: --time-format '{other}'; {GOING}",
            )
        reasons = Counter({reason: count for reason, count in self._reasons.items() if reason not in NO_FAULTS})
        if not self._fresh or 2 * reasons.total() <= self._read:
            return None
        most, count = reasons.most_common(1)[0]
        such = f" ({self._examples[most]})" if most in self._examples else ""
        return (
            f"{self._uri}: {reasons.total():,} {self._of} {self._read:,} rows would go to the quarantine, {count:,} as "
            f"{most!r}{such}; nothing of this source was written",
            f"mend the source, or how it is read; {GOING}",
        )


def _some(rows: NDArray[np.int64]) -> pa.Array[Any]:
    """At most `_CELLS` of these rows, from all of them: the first alone may be of one day."""
    return pa.array(rows[:: -(-len(rows) // _CELLS)], pa.int64())
