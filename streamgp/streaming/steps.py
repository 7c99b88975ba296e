"""Steps of rows whose clock jitters: whole intervals from row to row, so that neither jitter nor drift adds up.

Counted from the first row, a clock that is off by half an interval lets two rows share a step, or leaves one out. Here
a row is k = max(1, round(dt / every)) steps behind the row before it, dt being the time between them. It is *snapped*
where 0 < |dt − k · every| ≤ tolerance. What lies further off is a gap of round(dt / every) steps, and no row at all
where that is none: it is late.
"""

from __future__ import annotations

import numpy as np

from streamgp.streaming.calendar import Bools, Ints
from streamgp.streaming.timeline import NEVER


def least(every: int, tolerance: int) -> int:
    """The least time behind a row at which the next one is one step on, in units of `every`.

    Example:
        >>> least(10, 5), least(10, 2), least(10, 8)
        (5, 5, 2)
    """
    return max(min(every - every // 2, every - tolerance), 1)


def kept(code: Ints, ds: Ints, previous: Ints, apart: int) -> Bools:
    """(B,) which rows follow the row kept before them in their series by `apart` or more; the first of a series does.

    Args:
        code: (B,) series, sorted. ds: (B,) times, in the order of the stream within a series.
        previous: (S,) time of the last row of each series, NEVER where there was none.

    Example:
        >>> kept(np.zeros(5, int), np.array([0, 9, 13, 12, 30]), np.array([NEVER]), 5).tolist()
        [True, True, False, False, True]
    """
    new = np.append(True, code[1:] != code[:-1]) if len(code) else np.zeros(0, bool)
    before = np.where(new, previous[code], np.roll(ds, 1))
    good: Bools = (before == NEVER) | (ds >= before + apart)
    if good.all():
        return good
    # the first row of a series that is far enough, then the first that is far enough from that one, and so on: every
    # row points at its successor, and the chains are followed by doubling
    places = np.unique(ds)
    wide = len(places) + 1
    series = np.cumsum(new) - 1
    highest = np.maximum.accumulate(np.searchsorted(places, ds) + series * wide)  # sorted: rises within and over series
    start, end = np.flatnonzero(new), np.append(np.flatnonzero(new)[1:], len(code))

    def first_from(time: Ints, group: Ints) -> Ints:
        """The first row of each group at `time` or later; B where there is none."""
        at = np.searchsorted(highest, np.searchsorted(places, time) + group * wide)
        return np.where(at < end[group], at, len(code))

    groups = np.arange(len(start))
    known = previous[code[start]]
    heads = np.where(known == NEVER, start, first_from(known + apart, groups))
    following = np.append(first_from(ds + apart, series), len(code))
    chosen = np.zeros(len(code) + 1, bool)
    chosen[heads] = True
    hops = 1
    while hops < len(code):
        chosen[following[chosen]] = True
        following = following[following]
        hops *= 2
    return chosen[:-1]


def advance(code: Ints, ds: Ints, previous: Ints, every: int, tolerance: int) -> tuple[Ints, int]:
    """(K,) steps of the rows that were kept behind the last step of their series, and how many of them were snapped.

    The first row of a series is one step behind "no step".

    Example:
        >>> rows = np.array([0, 9, 21, 28, 60])
        >>> advance(np.zeros(5, int), rows, np.array([NEVER]), 10, 3)
        (array([1, 2, 3, 4, 7]), 4)
    """
    if not len(code):
        return np.zeros(0, np.int64), 0
    new = np.append(True, code[1:] != code[:-1])
    before = np.where(new, previous[code], np.roll(ds, 1))
    dt = np.where(before == NEVER, every, ds - before)
    k = np.maximum((dt + every // 2) // every, 1)
    off = abs(dt - k * every)
    total = np.cumsum(k)
    start = np.flatnonzero(new)
    steps = total - (total - k)[start][np.cumsum(new) - 1]
    return steps, int(((off > 0) & (off <= tolerance)).sum())
