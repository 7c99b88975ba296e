"""The rows that windows can still look at, found by (series, step) without sorting or searching.

A ring a series holds what was read before; a small table over the rows of the present micro-batch holds what has
just been read. Memory is series · capacity; a look-up costs the same however many rows were read.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from streamgp.windows import monthly
from streamgp.windows.calendar import DAY, Bools, Floats, Ints
from streamgp.windows.monthly import Months

NEVER = np.int64(-(2**62))
"""A step before all others."""
BEFORE = np.int64(-(2**63) + 10**15)
"""A time before all that a table holds, of which the first is of 1677; a zone's offset can be taken from it."""

DENSE = 40
"""Places of the ring for each new row up to which they are all copied beside the new rows: see `Timeline.line`. On the
line one comparison says that a batch has no event (`events`), which otherwise each of its rows would be asked."""

PACE = 24
"""Newest intervals of a series whose median counts as its interval, where none is declared."""

SHORTEST_MONTH = 27 * DAY
"""Rows at least so far apart may keep to a day of the month."""


class Ring:
    """The last `capacity` steps of every series; slot = step mod capacity, valid iff it holds that step.

    Args:
        capacity: steps kept.
        channels: C values a row.
    """

    def __init__(self, capacity: int, channels: int) -> None:
        self.capacity, self.channels, self.series = capacity, channels, 0
        self.step = np.empty((0, capacity), np.int64)
        self.ds = np.empty((0, capacity), np.int64)
        self.values = np.empty((0, capacity, channels))

    def reserve(self, series: int) -> None:
        """Make room for `series` series; the room doubles, so that a new series costs nothing on the whole."""
        self.series = max(self.series, series)
        if series <= len(self.step):
            return
        more = max(series, 2 * len(self.step)) - len(self.step)
        self.step = np.concatenate([self.step, np.full((more, self.capacity), NEVER)])
        self.ds = np.concatenate([self.ds, np.zeros((more, self.capacity), np.int64)])
        self.values = np.concatenate([self.values, np.full((more, self.capacity, self.channels), np.nan)])

    def write(self, code: Ints, step: Ints, ds: Ints, values: Floats) -> None:
        """Put rows in, increasing in step within a series; where two fall on one slot the later stays."""
        slot = step % self.capacity
        self.step[code, slot] = step
        self.ds[code, slot] = ds
        self.values[code, slot] = values

    def find(self, code: Ints, step: Ints) -> Ints:
        """Flat slots of (code, step), broadcast; -1 where the row is not there."""
        flat = code * self.capacity + step % self.capacity
        return np.where(self.step.reshape(-1)[flat] == step, flat, -1)


class Timeline:
    """The ring and, before it in time of writing, the rows of one micro-batch.

    Look-ups go from a row of the batch (or a waiting row of the ring) to a row some steps off. The batch's rows are
    laid on a line where steps of a series lie side by side, jumps longer than `reach` cut to it, and series so far
    apart that what stands around one cannot be taken for another's: a table over this line gives the row of the batch
    at a step, or -1.

    Args:
        ring: what was read before.
        code: (B,) series of the new rows, which are sorted by (series, step), no two alike.
        step: (B,) their steps.
        ds: (B,) their times.
        values: (B, C) their channels.
        back: the farthest that look-ups go back, steps.
        front: the farthest that they go ahead, steps.
    """

    def __init__(self, ring: Ring, code: Ints, step: Ints, ds: Ints, values: Floats, back: int, front: int) -> None:
        self.ring, self.code, self.step, self.ds, self.values = ring, code, step, ds, values
        self.back, self.front = back, front
        reach = back + front + 1
        self.place = np.empty(len(code), np.int64)  # (B,) of each row on the line
        if len(code):
            jump = np.where(np.diff(code) != 0, reach + front, np.minimum(np.diff(step), reach))
            self.place[0] = reach
            np.cumsum(jump, out=self.place[1:])
            self.place[1:] += reach
        self.table = np.full((int(self.place[-1]) + front + 1) if len(code) else 1, -1, np.int64)
        if len(code):
            self.table[self.place] = np.arange(len(code))

    @cached_property
    def line(self) -> Floats | None:
        """(P, C) the values at all places, NaN where there is no row: those of the ring, and the new ones over them.

        None where there are few new rows for what stands in the ring: then it is searched for what is wanted of it.
        """
        first = np.flatnonzero(np.diff(self.code, prepend=-1))
        off = np.arange(-self.back - self.front, self.front + 1)
        if not len(first) or len(first) * len(off) > DENSE * len(self.code):
            return None
        found = np.full((len(self.table), self.ring.channels), np.nan)
        slot = self.ring.find(self.code[first, None], self.step[first, None] + off)
        row, at = np.nonzero(slot >= 0)
        found[self.place[first[row]] + off[at]] = self.ring.values.reshape(-1, self.ring.channels)[slot[row, at]]
        found[self.place] = self.values
        return found

    def places(self, code: Ints, step: Ints) -> Ints:
        """Where rows of the ring stand on the line: before the first new row of their series, or -1 (nowhere near)."""
        if not len(self.code):
            return np.full(len(code), -1, np.int64)
        first = np.searchsorted(self.code, code)
        first[first == len(self.code)] = 0
        near = (self.code[first] == code) & (self.step[first] - step <= self.front)
        return np.where(near, self.place[first] - (self.step[first] - step), -1)

    def behind(self, code: Ints, place: Ints, steps: int) -> Ints:
        """The first new row of the series `steps` or more after the rows at `place`, (N,); -1 where there is none."""
        if not len(self.code):
            return np.full(len(code), -1, np.int64)
        first = np.searchsorted(self.code, code)
        at = np.where(place >= 0, np.searchsorted(self.place, place + steps), first)
        inside = np.minimum(at, len(self.code) - 1)
        return np.where((at < len(self.code)) & (self.code[inside] == code), inside, -1)

    def _new(self, place: Ints, off: Ints) -> Ints:
        """(N,), (J,) -> (N, J) rows of the batch; -1 where it is not there."""
        at = place[:, None] + off
        at[place < 0] = 0  # before the first row on the line
        return np.asarray(self.table[at])

    def look(self, code: Ints, step: Ints, place: Ints, off: Ints, channels: slice) -> Floats:
        """Values of `channels` at the steps `step` + `off`, (N, J, c); NaN where there is no row, or farther back than
        `back`, where the line holds those of other series."""
        far = off < -self.back
        if far.any():
            out = self.look(code, step, place, np.maximum(off, -self.back), channels).copy()
            out[:, far] = np.nan
            return out
        if self.line is not None and len(place) and place.min() >= 0:
            line = self.line[:, channels]
            if len(off) and off[-1] - off[0] == len(off) - 1 and (np.diff(off) == 1).all():
                return np.asarray(sliding_window_view(line, len(off), 0).swapaxes(1, 2)[place + off[0]])
            return np.asarray(line[place[:, None] + off])
        new = self._new(place, off)
        here, there = self.values[:, channels], self.ring.values.reshape(-1, self.ring.channels)[:, channels]
        hit = new >= 0
        if 2 * np.count_nonzero(hit) < new.size:  # most stand in the ring
            old = self.ring.find(code[:, None], step[:, None] + off)
            out = there[old]
            out[old < 0] = np.nan
            out[hit] = here[new[hit]]
            return np.asarray(out)
        out = here[new]
        row, at = np.nonzero(~hit)
        old = self.ring.find(code[row], step[row] + off[at])
        found = there[old]
        found[old < 0] = np.nan
        out[row, at] = found
        return np.asarray(out)

    def when(self, code: Ints, step: Ints, place: Ints, off: Ints) -> tuple[Ints, Bools]:
        """Times at the steps `step` + `off`, (N, J), and whether there is a row."""
        new, old = self._new(place, off), self.ring.find(code[:, None], step[:, None] + off)
        ds = np.where(new >= 0, self.ds[new] if len(self.ds) else 0, self.ring.ds.reshape(-1)[old])
        return ds, (new >= 0) | (old >= 0)

    def interval(self, code: Ints, step: Ints, place: Ints, zone: str | None) -> tuple[Ints, Months]:
        """(N,) the median of the last PACE intervals up to each row, of two middle ones the shorter; 0 for a first row.
        And the months of those that keep to the calendar of the zone.

        It looks at nothing but rows that are kept anyway, so that chunks and restarts do not change it.
        """
        ds, there = self.when(code, step, place, np.arange(-PACE, 1))
        both = there[:, 1:] & there[:, :-1]
        count = both.sum(1)
        intervals = np.sort(np.where(both, np.diff(ds), np.iinfo(np.int64).max))
        middle = np.take_along_axis(intervals, np.maximum(count - 1, 0)[:, None] // 2, 1)[:, 0]
        every = np.where(count > 0, middle, 0)
        months = Months(np.zeros_like(every), np.zeros_like(every))
        long = np.flatnonzero(every >= SHORTEST_MONTH)
        if len(long):
            found = monthly.find(ds[long], there[long], zone)
            months.step[long], months.day[long] = found
        return every, months
