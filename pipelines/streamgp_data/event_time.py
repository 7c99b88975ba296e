"""Rows in the order of their times, up to a watermark, though they arrive out of order.

The watermark is the newest time so far less the lateness L. A row that is not behind it when it arrives goes out when
the watermark has passed its time, rows that go out together in the order of time and series: so a stream that is
shuffled by no more than L comes out as the sorted one.

A row that arrives behind the watermark is of a series that is slow, or was away, or whose clock is behind those of
the others. It goes by the rows of its own series that wait: it goes out once one of them is more than L newer, or
before one that goes out and is not older. While such a row waits, the next rows of its series go by their own too. So
each such series comes out sorted; neither do the others wait for it, nor is it late for them. It is quiet when the
newest time of all has moved on by more than QUIET · L since its newest row came: its rows go out, and the next go with
all again.

What goes out, and in which order, is a function of the rows alone, not of how they were cut. An offset says which rows
wait, and where the oldest of them stands; a reading that continues there reads the rows after it again. A read
costs O(N log N) in the rows of a chunk and those that wait: those of the last L, of a slow series of QUIET · L.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.base import Chunk, Offset
from streamgp.windows.calendar import Bools, Ints
from streamgp_data.batches import together
from streamgp_data.delta import SEQ
from streamgp_data.versions import REVISES, Versions

NEWEST, UNTIL, WAITING, OWN = "newest", "until", "waiting", "own"
"""Keys of an offset: the newest time before its row, the row after the last one that had arrived, which of those
between wait, and which of these go by their own series: `_seq` as ranges, such as 5-9,12."""
NEVER = int(np.iinfo(np.int64).min)
LAST = int(np.iinfo(np.int64).max)
QUIET = 10
"""Times the lateness: a series without newer rows for longer is quiet."""


class HeldBack:
    """The rows that the watermark has not passed.

    Args:
        time: column of times, int64 or an Arrow type that becomes one.
        series: column of series; None where there is one.
        lateness: L, in the unit of the time column's integers.
        newest: time of all rows that arrived before.
        versions: of rows, where the table keeps any.

    Example:
        >>> waiting = HeldBack("t", None, 2)
        >>> rows = pa.record_batch({"_seq": range(6), "t": [1, 3, 2, 6, 5, 7]})
        >>> waiting.push(rows)["t"].to_pylist(), waiting.ordered()["t"].to_pylist()
        ([1, 2, 3], [5, 6, 7])
    """

    def __init__(
        self, time: str, series: str | None, lateness: int, newest: int = NEVER, versions: Versions | None = None
    ) -> None:
        self._time, self._series, self.versions = time, series, versions
        self.lateness, self.newest = lateness, newest
        self.rows: pa.RecordBatch | None = None
        """They that wait, in the order in which they arrived."""
        self.before: Ints = np.empty(0, np.int64)
        """(W,) the newest time of all before each arrived."""
        self.own: Bools = np.empty(0, bool)
        """(W,) which go by the rows of their own series."""

    @property
    def seq(self) -> Ints:
        """(W,) `_seq` of the rows that wait."""
        return np.empty(0, np.int64) if self.rows is None else self.rows.column(SEQ).to_numpy()

    def load(self, rows: pa.RecordBatch, wait: Ints, own: Ints) -> None:
        """Rows that arrived in an earlier reading; `_seq` of those that wait, and of those that go by their own."""
        rows, time = self._firsts(rows), self._times(self._firsts(rows))
        before = np.maximum.accumulate(np.append(self.newest, time))
        self.newest = int(before[-1])
        seq = rows.column(SEQ).to_numpy()
        self._keep(rows, before[:-1], np.isin(seq, own), np.flatnonzero(np.isin(seq, wait)))

    def push(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Rows that arrive; returns those that go out, in their order."""
        rows = self._firsts(rows)
        if not rows.num_rows:
            return None
        old = 0 if self.rows is None else self.rows.num_rows
        both = rows if self.rows is None else together([self.rows, rows])
        time = self._times(both)
        before = np.append(self.before, np.maximum.accumulate(np.append(self.newest, time[old:-1])))
        reach = np.maximum(before, time)[old:]  # (N,) the newest time after each arrival
        self.newest = int(reach[-1])
        first = np.append(np.zeros(old, np.int64), np.arange(len(reach)))
        leaves = np.maximum(np.searchsorted(reach, _sum(time, self.lateness), "right"), first)  # (W,) at which arrival
        own = np.append(self.own, (_sum(time, self.lateness) < before)[old:])
        if own.any():
            self._by_their_own(both, time, before, own, reach, leaves, old)
        go = np.flatnonzero(leaves < len(reach))
        go = go[self._order(both, time, leaves, go)]
        self.rows, self.before, self.own = None, np.empty(0, np.int64), np.empty(0, bool)
        self._keep(both, before, own, np.flatnonzero(leaves == len(reach)))
        if not len(go):
            return None
        out = both.take(pa.array(go, pa.int64()))
        if self.versions is None:
            return out
        return self.versions.resolve(out, rows.column(SEQ).to_numpy()[leaves[go]])

    def ordered(self) -> pa.RecordBatch | None:
        """The rows that wait, in the order of their times."""
        if self.rows is None:
            return None
        time = self._times(self.rows)
        order = self._order(self.rows, time, np.zeros(len(time), np.int64), np.arange(len(time)))
        out = self.rows.take(pa.array(order, pa.int64()))
        if self.versions is None:
            return out
        return self.versions.resolve(out, np.full(out.num_rows, LAST))

    def _firsts(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows without those that are versions of others."""
        return rows.filter(rows.column(REVISES).is_null()) if REVISES in rows.schema.names else rows

    def _keep(self, rows: pa.RecordBatch, before: Ints, own: Bools, which: Ints) -> None:
        if not len(which):
            return
        kept = rows.take(pa.array(which, pa.int64()))
        self.rows = kept if self.rows is None else together([self.rows, kept])
        self.before, self.own = np.append(self.before, before[which]), np.append(self.own, own[which])

    def _times(self, rows: pa.RecordBatch) -> Ints:
        return rows.column(self._time).cast(pa.int64()).to_numpy()

    def _order(self, rows: pa.RecordBatch, time: Ints, leaves: Ints, which: Ints) -> Ints:
        """By the arrival that lets them go, then time, series and arrival."""
        names = np.zeros(len(which), np.int64)
        if self._series is not None and len(which):
            names = pc.rank(rows.column(self._series).take(pa.array(which, pa.int64())), tiebreaker="dense").to_numpy()
        return np.lexsort((which, names, time[which], leaves[which]))

    def _by_their_own(
        self, rows: pa.RecordBatch, time: Ints, before: Ints, own: Bools, reach: Ints, leaves: Ints, old: int
    ) -> None:
        """When rows go out of series that have rows behind the watermark; writes `leaves`, and `own` of their next."""
        if self._series is None:
            code = np.zeros(len(time), np.int64)
        else:
            code = rows.column(self._series).dictionary_encode().indices.to_numpy(zero_copy_only=False)
        of = np.flatnonzero(np.isin(code, np.unique(code[own])))
        of = of[np.argsort(code[of], kind="stable")]
        passed: list[int] = reach.tolist()
        for part in np.split(of, np.flatnonzero(np.diff(code[of])) + 1):
            table = zip(*(array.tolist() for array in (part, time[part], before[part], own[part])), strict=True)
            _one_series(table, passed, leaves, own, old, self.lateness)


def _one_series(
    rows: Iterable[tuple[int, int, int, bool]],
    passed: list[int],
    leaves: Ints,
    own: Bools,
    old: int,
    lateness: int,
) -> None:
    """`HeldBack._by_their_own` of one series: place, time, newest before and whether behind, as the rows arrived."""
    held: list[tuple[int, int]] = []  # time and place of rows that wait and go by their own
    others: list[tuple[int, int]] = []  # when another row that waits goes, and its time
    newest: tuple[int, int] | None = None  # of the rows that wait: its time, and the newest of all when it came

    def go(until: int, at: int) -> None:
        while held and held[0][0] <= until:
            leaves[heappop(held)[1]] = at

    def pass_to(at: int) -> None:
        """What goes before this arrival."""
        nonlocal newest
        while others and others[0][0] < at:
            when, until = heappop(others)
            go(until, when)
        if newest is not None and not others:
            quiet = bisect_right(passed, min(newest[1] + QUIET * lateness, LAST)) if held else 0
            if quiet < at:
                go(LAST, quiet)
                newest = None

    for place, when, before, behind in rows:
        at = place - old
        if at >= 0:
            pass_to(at)
        if not behind and not (at >= 0 and held):
            heappush(others, (int(leaves[place]), when))
        elif at >= 0 and newest is not None and when + lateness < newest[0]:
            leaves[place] = at
        else:
            leaves[place], own[place] = len(passed), True
            heappush(held, (when, place))
        if newest is None or when > newest[0]:
            newest = when, max(when, before)
            if at >= 0:
                go(when - lateness - 1, at)
    pass_to(len(passed))


def in_order(
    chunks: Iterable[Chunk],
    after: Offset,
    time: str,
    series: str | None,
    lateness: int,
    hold: Callable[[pa.RecordBatch | None], None] | None = None,
    versions: Versions | None = None,
) -> Iterator[Chunk]:
    """Rows in the order of their times, and offsets to go on from.

    Args:
        chunks: rows in the order in which they arrived, with `_seq`, from the `_seq` of `after` on.
        after: {}, or the offset of a chunk that this function yielded.
        time: column of times.
        series: column of series; None where there is one.
        lateness: L, in the unit of the time column's integers.
        hold: called at the end with the rows that wait, in order; where it is None they are the last chunk.
        versions: of rows, where the table keeps any.

    Example:
        >>> def arrived(*times):
        ...     rows = pa.record_batch({"_seq": range(len(times)), "t": times})
        ...     return [Chunk(rows, {"_seq": len(times)})]
        >>> [chunk.rows["t"].to_pylist() for chunk in in_order(arrived(1, 3, 2, 6, 5, 7), {}, "t", None, 2)]
        [[1, 2, 3], [5, 6, 7]]
    """
    until = int(after.get(UNTIL, 0))
    wait, own = (_listed(str(after.get(key, ""))) for key in (WAITING, OWN))
    waiting = HeldBack(time, series, lateness, int(after.get(NEWEST, NEVER)), versions)
    end: Offset = after
    for rows, behind in chunks:
        end = behind
        seq = rows.column(SEQ).to_numpy()
        known = int(np.searchsorted(seq, until))
        if known:
            waiting.load(rows.slice(0, known), wait, own)
        if known == rows.num_rows:
            continue
        out = waiting.push(rows.slice(known))
        if out is not None:
            yield Chunk(out, _offset(behind, waiting))
    last = waiting.ordered()
    if hold is not None:
        hold(last)
    elif last is not None:
        done = {key: value for key, value in end.items() if key not in (WAITING, OWN)}
        yield Chunk(last, {**done, NEWEST: waiting.newest, UNTIL: int(end[SEQ])})


def _sum(time: Ints, lateness: int) -> Ints:
    """time + lateness, at most the largest integer."""
    return np.minimum(time, LAST - lateness) + lateness


def _offset(behind: Offset, waiting: HeldBack) -> Offset:
    """Where to read on: at the oldest row that waits, or after the last that came."""
    until, seq = int(behind[SEQ]), waiting.seq
    if not len(seq):
        return {**behind, NEWEST: waiting.newest, UNTIL: until}
    about: dict[str, int | str] = {NEWEST: int(waiting.before[0]), UNTIL: until, WAITING: _ranges(seq)}
    if waiting.own.any():
        about[OWN] = _ranges(seq[waiting.own])
    return {**behind, SEQ: int(seq[0]), **about}


def _ranges(seq: Ints) -> str:
    """Growing numbers as ranges.

    Example:
        >>> _ranges(np.array([3, 4, 5, 9]))
        '3-5,9'
    """
    ends = np.flatnonzero(np.diff(seq) > 1)
    first, last = seq[np.append(0, ends + 1)], seq[np.append(ends, len(seq) - 1)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(first.tolist(), last.tolist(), strict=True))


def _listed(ranges: str) -> Ints:
    """The numbers of ranges."""
    ends = [part.split("-") for part in ranges.split(",") if part]
    return np.array([n for part in ends for n in range(int(part[0]), int(part[-1]) + 1)], np.int64)
