"""Rows in the order of their times, behind a watermark, though they arrive out of order.

The watermark is the newest time so far less the lateness L. A row goes out when the watermark has passed its time,
rows that go out together in the order of time and series: so a stream that is shuffled by no more than L comes out as
the sorted one. A row that arrives behind the watermark goes out at once; windows then take it if it is still behind no
row of its series.

What goes out, and in which order, is a function of the rows alone, not of how they were cut. An offset says where
the oldest row that is held back stands; a reading that goes on from there reads the rows behind it again. A read costs
O(N log N) in the rows of a chunk and those held back, which are those of the last L.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.base import Chunk, Offset
from streamgp.streaming.batches import together
from streamgp.streaming.calendar import Ints
from streamgp.streaming.delta import SEQ

NEWEST, UNTIL = "newest", "until"
"""Keys of an offset: the newest time before its row, and the row behind the last one that had arrived."""
NEVER = int(np.iinfo(np.int64).min)


class _Held:
    """Rows that wait, with what is known of each: (N,) time and newest time of the rows before it."""

    def __init__(self, rows: pa.RecordBatch, time: Ints, before: Ints) -> None:
        self.rows, self.time, self.before = rows, time, before

    def take(self, where: Ints) -> _Held:
        return _Held(self.rows.take(pa.array(where, pa.int64())), self.time[where], self.before[where])

    @property
    def seq(self) -> Ints:
        return self.rows.column(SEQ).to_numpy()


def in_order(
    chunks: Iterable[Chunk],
    after: Offset,
    time: str,
    series: str | None,
    lateness: int,
    hold: Callable[[pa.RecordBatch | None], None] | None = None,
) -> Iterator[Chunk]:
    """Rows in the order of their times, and offsets to go on from.

    Args:
        chunks: rows in the order in which they arrived, with `_seq`, from the `_seq` of `after` on.
        after: {}, or the offset of a chunk that this function yielded.
        time: column of times.
        series: column of series; None where there is one.
        lateness: L, in the unit of the time column's integers.
        hold: called at the end with the rows that the watermark has not passed, in order; where it is None they are
            the last chunk.

    Example:
        >>> def arrived(*times):
        ...     rows = pa.record_batch({"_seq": range(len(times)), "t": times})
        ...     return [Chunk(rows, {"_seq": len(times)})]
        >>> [chunk.rows["t"].to_pylist() for chunk in in_order(arrived(1, 3, 2, 6, 5, 7), {}, "t", None, 2)]
        [[1, 2, 3], [5, 6, 7]]
    """
    newest, until = int(after.get(NEWEST, NEVER)), int(after.get(UNTIL, 0))
    waiting: _Held | None = None
    end: Offset = after
    for rows, behind in chunks:
        end = behind
        if not rows.num_rows:
            continue
        found = _arrive(waiting, rows, time, newest)
        reach = np.maximum(found.before, found.time)[-rows.num_rows :]  # (N,) the newest time after each arrival
        newest = int(reach[-1])
        first = np.append(np.zeros(len(found.time) - len(reach), np.int64), np.arange(len(reach)))
        leaves = np.maximum(np.searchsorted(reach, _sum(found.time, lateness), "right"), first)  # (W,) at which arrival
        seq = rows.column(SEQ).to_numpy()
        go = np.flatnonzero(leaves < len(reach))
        go = go[seq[leaves[go]] >= until]  # the others went out before
        go = go[_order(found.take(go), series, leaves[go])]
        stay = np.flatnonzero(leaves == len(reach))
        waiting = found.take(stay) if len(stay) else None
        if len(go):
            yield Chunk(found.take(go).rows, _offset(behind, waiting, newest))
    last = None
    if waiting is not None:
        last = waiting.take(_order(waiting, series, np.zeros(len(waiting.time), np.int64))).rows
    if hold is not None:
        hold(last)
    elif last is not None:
        yield Chunk(last, {**end, NEWEST: newest, UNTIL: int(end[SEQ])})


def _arrive(waiting: _Held | None, rows: pa.RecordBatch, time: str, newest: int) -> _Held:
    """The rows that wait, and those that have come."""
    when = rows.column(time).cast(pa.int64()).to_numpy()
    before = np.maximum.accumulate(np.append(newest, when[:-1]))
    if waiting is None:
        return _Held(rows, when, before)
    both = together([waiting.rows, rows])
    return _Held(both, np.append(waiting.time, when), np.append(waiting.before, before))


def _sum(time: Ints, lateness: int) -> Ints:
    """time + lateness, at most the largest integer."""
    return np.minimum(time, np.iinfo(np.int64).max - lateness) + lateness


def _order(held: _Held, series: str | None, leaves: Ints) -> Ints:
    """The order in which rows go out: by the arrival that lets them go, then time, series and arrival."""
    names = np.zeros(len(leaves), np.int64)
    if series is not None and len(names):
        names = pc.rank(held.rows.column(series), tiebreaker="dense").to_numpy()
    return np.lexsort((held.seq, names, held.time, leaves))


def _offset(behind: Offset, waiting: _Held | None, newest: int) -> Offset:
    """Where to read on: at the oldest row that waits, or behind the last that came."""
    until = int(behind[SEQ])
    if waiting is None:
        return {**behind, NEWEST: newest, UNTIL: until}
    oldest = int(np.argmin(waiting.seq))
    return {**behind, SEQ: int(waiting.seq[oldest]), NEWEST: int(waiting.before[oldest]), UNTIL: until}
