"""Steps of rows whose clock jitters: the nearest tick of a clock that follows them.

Counted from the first row, a clock that is off by half an interval lets two rows share a step, or leaves one out. Two
kinds of jitter must not: each *time* may be off (then rows are near the ticks of a steady clock), or each *interval*
may be (then errors add up, and a row is near one interval after the row before it). So a row is the next step if it
is near either place:

- one interval after the row before it, within half an interval, or
- the next tick of the clock, within two thirds of an interval.

Both bounds are the tolerance where that is wider. What comes later is a gap, of the whole number of intervals that is
nearest to the mean of both distances; what comes earlier is late. The clock moves on by whole intervals, and by a
quarter of what a row is off: so it follows drift.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamgp.windows.calendar import Bools, Ints
from streamgp.windows.timeline import BEFORE

FOLLOW = 4
"""The clock takes over one part in this many of what a row is off."""


class Steps(NamedTuple):
    """kept: (B,) rows that are not late; steps: (K,) steps of these after the last step of their series; clock: (B,)
    the tick at each row or, at a late one, at the row before; snapped: rows that were off a whole number of intervals
    after the row before them, by no more than the tolerance."""

    kept: Bools
    steps: Ints
    clock: Ints
    snapped: int


def follow(code: Ints, ds: Ints, previous: Ints, clock: Ints, every: int, tolerance: int) -> Steps:
    """Count the steps of rows.

    A loop over rows, about a microsecond each: where a row stands moves the clock that the next one is compared with.

    Args:
        code: (B,) series, sorted. ds: (B,) times, in the order of the stream within a series.
        previous: (S,) time of the last row of each series, BEFORE where there was none: the first row is one step
            after "no step".
        clock: (S,) the tick at the last row of each series.
        every: the interval. tolerance: less than it.

    Example:
        >>> zero = np.zeros(6, int)
        >>> found = follow(zero, np.array([0, 9, 12, 21, 28, 60]), np.array([BEFORE]), np.array([0]), 10, 3)
        >>> found.kept.tolist(), found.steps.tolist(), found.snapped
        ([True, True, False, True, True, True], [1, 2, 3, 4, 7], 4)
    """
    kept, ticks = np.zeros(len(code), bool), np.zeros(len(code), np.int64)
    counts: list[int] = []
    near, fair = max(every // 2, tolerance), max(2 * every // 3, tolerance)
    snapped = count = last = tick = 0
    present, empty = -1, int(BEFORE)
    for row, (series, now) in enumerate(zip(code.tolist(), ds.tolist(), strict=True)):
        if series != present:
            present, count, last, tick = series, 0, int(previous[series]), int(clock[series])
        dt, off = now - last, now - tick
        if last == empty:
            k, tick = 1, now - every
        elif dt <= 0:
            k = 0
        elif abs(dt - every) <= near or abs(off - every) <= fair:
            k = 1
        else:
            k = (dt + off + every) // (2 * every)
        if k > 0:
            tick += k * every
            tick += (now - tick) // FOLLOW
            snapped += last != empty and 0 < _off(dt, every) <= tolerance
            last, count = now, count + k
            kept[row] = True
            counts.append(count)
        ticks[row] = tick
    return Steps(kept, np.array(counts, np.int64), ticks, snapped)


def _off(dt: int, every: int) -> int:
    """How far an interval is from a whole number of `every`, at least one."""
    return abs(dt - max((dt + every // 2) // every, 1) * every)
