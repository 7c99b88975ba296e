"""Which targets have fallen silent: no value of them comes any more, while the stream goes on.

The clock of a stream is the newest time of any of its rows, never that of the machine. Where there are several series,
a row that is farther ahead than twice the longest move of the clock so far is only held: if the next row that is after
the clock is as far, the clock follows; otherwise the clock of the first was wrong.

With T the time of a target's last value, its age is clock − T; a gap is the age at which the next value comes. The
target is silent once

    age > θ,  θ = M · max(2, 2/(αn)),

M the second longest of its last n gaps, n ≤ 4/α. α is the nominal rate of alarms. If gaps are exchangeable, the next is
longer than M with probability 2/(n + 1), at most α once n ≥ 2/α. Before, the factor is that of a Pareto tail with
exponent 1, for which P(gap > M·f) = 2/((n + 1)·f) ≤ α; tails of most streams are lighter. The second longest gap, so
that one outage does not hide the next; at least twice, so that one lost row is no silence. M is of the current and the
previous block of ⌈2/α⌉ gaps, so that old outages are forgotten.

A silence is reported once, at the first row at which θ is exceeded: a row of another series, one without a value, or
that of the next value. Values that come together after an outage, while the clock stands, are one gap. A value that was
older than θ already when it came begins no silence: it belongs to the one before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor

from streamgp.base import Json
from streamgp.forecasting.streams import Bools, Ints, extended
from streamgp.state import Arrays, Declared, Value

NEVER, BEFORE = np.iinfo(np.int64).max, np.iinfo(np.int64).min
"""Times after and before all others."""
LOST = 2.0
"""θ is at least this many times the second longest gap."""
LONGEST = 2.0**62
"""Most of θ."""
FAR = 2
"""The clock follows a single row by at most this many times its longest move."""
PIECE = 1024
"""Rows that are looked at together for the next that is far ahead."""
HELD, MOVE, SERIES, WRONG = range(4)
"""Places of what the clock is moved by: a time that is far ahead, the longest move, the number of series so far, and
rows whose clock was wrong."""
CURRENT, PREVIOUS = 0, 1
"""Places of the two blocks."""


class Silent(NamedTuple):
    """K silences that have begun, in the order of the rows at which they were noticed.

    Attributes:
        series: (K,) codes. target: (K,) which target.
        since: (K,) time of its last value.
        ds: (K,) the clock when it was noticed.
        ticks: (K,) intervals from the one to the other: those of the rows, or else the target's mean gap.
    """

    series: Ints
    target: Ints
    since: Ints
    ds: Ints
    ticks: Ints


class Silences(Declared):
    """The targets of all series that have fallen silent; Stateful. The cost of a batch is that of its rows, and a
    comparison for each target of each series.

    Args:
        targets: O.
        rate: α.
        every: the interval of rows, in units of their times; None where it is not known.
        horizon: rows without any target may be of inputs that are known this many rows ahead: they move the clock to
            their time less as many intervals, or, where there is none, to that of the row this many rows before.

    Example:
        >>> silences, none = Silences(1, rate=0.01, every=1), np.zeros(0)
        >>> time, known = np.arange(400), np.ones((400, 1), bool)
        >>> known[300:] = False
        >>> found = silences.see(0 * time, time, known)
        >>> found.since.tolist(), found.ds.tolist(), found.ticks.tolist()
        ([299], [302], [3])
    """

    STATE = (
        Arrays("last", "seen", "due", "first", "values", "gaps", "counts", "before", later=("before",)),
        Arrays("pace", grows=False, later=("pace",)),
        Value("clock", int),
        Value("raised", int, key="silent"),
    )

    def __init__(self, targets: int, rate: float, every: int | None = None, horizon: int = 0) -> None:
        self.targets, self.rate, self.every, self.horizon = targets, rate, every, horizon
        self._block = math.ceil(2 / rate)
        self._last, self._seen, self._due, self._first, self._values, self._gaps, self._counts, self._before = (
            self._fresh(0)
        )
        self._pace = np.array([BEFORE, 0, 0, 0], np.int64)
        self.clock = BEFORE
        self.raised = 0
        """Silences so far."""

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        clock = rest["clock"]
        if not (isinstance(clock, int) and BEFORE <= clock <= NEVER):
            raise ValueError(f"clock is {clock!r}, not a time")

    def _fresh(self, series: int) -> tuple[Ints, ...]:
        """last, seen, due: (S, O) time of the last value, the clock when it came, and after which time it is silent;
        first, values: (S, O) time of the first value, and how many there were; gaps: (S, O, 2, 2) longest and second
        longest of both blocks; counts: (S, O, 2) gaps in each; before: (S, H) times of the last rows, oldest first,
        where there is no interval."""
        shape = series, self.targets
        none, nil = np.full(shape, BEFORE), np.zeros(shape, np.int64)
        blocks = np.zeros((*shape, 2, 2), np.int64), np.zeros((*shape, 2), np.int64)
        before = np.full((series, self.horizon if self.every is None else 0), BEFORE)
        return none, none.copy(), np.full(shape, NEVER), none.copy(), nil, *blocks, before

    def reserve(self, series: int) -> None:
        """Room for this number of series; it doubles."""
        if (more := series - len(self._last)) > 0:
            names = ("_last", "_seen", "_due", "_first", "_values", "_gaps", "_counts", "_before")
            for name, fresh in zip(names, self._fresh(more), strict=True):
                setattr(self, name, extended(getattr(self, name), fresh))

    def see(self, series: Ints, ds: Ints, known: Bools) -> Silent:
        """Read rows in the order in which they came.

        Args:
            series: (B,) codes.
            ds: (B,) times.
            known: (B, O) whether the row has a value of each target.
        """
        if not len(ds):
            return Silent(*np.zeros((5, 0), np.int64))
        self.reserve(int(series.max()) + 1)
        clock = self._followed(self._moves(series, ds, known), series)
        rows, target = np.nonzero(known)
        unit = series[rows] * self.targets + target
        order = np.argsort(unit, kind="stable")
        rows, unit = rows[order], unit[order]
        last = self._last.reshape(-1)
        newer = ds[rows] > _before(_running(ds[rows], unit, last[unit]), unit, last[unit])
        rows, unit = rows[newer], unit[newer]
        found = [self._open(clock, rows, unit), self._begun(clock, rows, unit, ds[rows])]
        row, silent, since, gap = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((silent, row))
        row, silent, since, gap = row[order], silent[order], since[order], gap[order]
        self.raised += len(row)
        ticks = np.maximum(np.rint((clock[row] - since) / gap), 1).astype(np.int64)
        return Silent(silent // self.targets, silent % self.targets, since, clock[row], ticks)

    @property
    def wrong(self) -> int:
        """Rows so far whose times were far after those of all others."""
        return int(self._pace[WRONG])

    def _moves(self, series: Ints, ds: Ints, known: Bools) -> Ints:
        """(B,) the time that each row moves the clock to."""
        if not self.horizon:
            return ds
        ahead = self._rows_before(series, ds) if self.every is None else ds - self.horizon * self.every
        return np.where(known.any(1), ds, np.minimum(ds, ahead))

    def _rows_before(self, series: Ints, ds: Ints) -> Ints:
        """(B,) the time of the row H rows before each in its series; BEFORE where there is none."""
        order, steps = np.argsort(series, kind="stable"), self.horizon
        code, when = series[order], ds[order]
        own, start, count = np.unique(code, return_index=True, return_counts=True)
        held = self._before[own]
        place = np.arange(len(code)) - np.repeat(start, count)
        at = np.minimum(place, steps - 1)
        found = np.empty_like(ds)
        early = held[np.repeat(np.arange(len(own)), count), at]
        found[order] = np.where(place < steps, early, when[np.maximum(np.arange(len(code)) - steps, 0)])
        last = count[:, None] + np.arange(steps)  # of the rows held and the new ones, one after another
        new = when[np.maximum(start[:, None] + last - steps, 0)]
        self._before[own] = np.where(last < steps, np.take_along_axis(held, np.minimum(last, steps - 1), 1), new)
        return found

    def _followed(self, moves: Ints, series: Ints) -> Ints:
        """(B,) the clock after each row, which moves it to (B,), but not far ahead of all others."""
        clock, at = np.empty_like(moves), 0
        alone = np.maximum.accumulate(np.maximum(series + 1, self._pace[SERIES])) == 1
        self._pace[SERIES] = max(self._pace[SERIES], int(series.max()) + 1)
        while at < len(moves):
            top = np.maximum.accumulate(np.maximum(moves[at : at + PIECE], self.clock))
            before = np.append(self.clock, top[:-1])
            move = np.where(before > BEFORE, top - before, 0)
            longest = np.maximum.accumulate(np.append(self._pace[MOVE], move))
            far = (move > FAR * longest[:-1]) & ~alone[at : at + PIECE]
            near = int(far.argmax()) if far.any() else len(far)
            clock[at : at + near] = top[:near]
            if near:
                if move[:near].any() and self._pace[HELD] > self.clock:
                    self._pace[HELD] = BEFORE
                    self._pace[WRONG] += 1
                self.clock, self._pace[MOVE] = int(top[near - 1]), longest[near]
            at += near
            if near < len(far):
                self._hold(int(moves[at]))
                clock[at] = self.clock
                at += 1
        return clock

    def _hold(self, time: int) -> None:
        """A row is far ahead: the clock follows as far as the one before it was, too."""
        held, longest = int(self._pace[HELD]), int(self._pace[MOVE])
        if held <= self.clock:
            self._pace[HELD] = time
            return
        low, high = min(held, time), max(held, time)
        longest, self.clock = max(longest, low - self.clock), low
        if high - low <= FAR * longest:
            longest, self.clock = max(longest, high - low), high
        self._pace[HELD], self._pace[MOVE] = high, longest

    def _open(self, clock: Ints, rows: Ints, unit: Ints) -> tuple[Ints, Ints, Ints, np.ndarray]:
        """Silences after the last values of the rows before: the row, the unit, since when, and its usual gap."""
        due, until = self._due.reshape(-1), np.full(self._due.size, len(clock) - 1)
        first = _first(unit)
        until[unit[first]] = rows[first]
        silent = np.flatnonzero(due < clock[-1])
        row = np.searchsorted(clock, due[silent], "right")
        silent, row = silent[row <= until[silent]], row[row <= until[silent]]
        due[silent] = NEVER
        since = self._last.reshape(-1)[silent]
        return row, silent, since, self._usual(since, silent, self._values.reshape(-1)[silent])

    def _begun(self, clock: Ints, rows: Ints, unit: Ints, ds: Ints) -> tuple[Ints, Ints, Ints, np.ndarray]:
        """Take in values (R,), sorted by unit; the silences after them, as `_open`."""
        now, last, seen = clock[rows], self._last.reshape(-1)[unit], self._seen.reshape(-1)[unit]
        before, moved = _before(ds, unit, last), now > _before(now, unit, seen)
        counted = (before > BEFORE) & moved & (now > before)
        age = np.where(counted, now - np.where(counted, before, now), 0)
        gaps, counts = self._taken(age, counted, unit)
        allowed = self._allowed(gaps, counts.sum(1))
        due = np.where(ds > NEVER - allowed, NEVER, ds + allowed)
        due[(allowed == 0) | (now > due)] = NEVER
        end = np.append(unit[1:] != unit[:-1], True)[: len(unit)]
        until = np.where(end, len(clock) - 1, np.append(rows[1:], 0)[: len(rows)])
        row = np.searchsorted(clock, due, "right")
        silent = row <= until
        place = np.arange(len(unit)) - np.maximum.accumulate(np.where(_first(unit), np.arange(len(unit)), 0))
        values = self._values.reshape(-1)[unit] + place + 1
        start, own = self._first.reshape(-1), _first(unit)
        start[unit[own]] = np.where(start[unit[own]] > BEFORE, start[unit[own]], ds[own])
        found = row[silent], unit[silent], ds[silent], self._usual(ds[silent], unit[silent], values[silent])
        due[silent] = NEVER
        news = zip(("_last", "_seen", "_due", "_values"), (ds, now, due, values), strict=True)
        for name, new in (*news, ("_gaps", gaps), ("_counts", counts)):
            held = getattr(self, name)
            held.reshape(-1, *held.shape[2:])[unit[end]] = new[end]
        return found

    def _taken(self, age: Ints, counted: Bools, unit: Ints) -> tuple[Ints, Ints]:
        """(R, 2, 2) longest and second longest gap of the current and the previous block after each value, and (R, 2)
        how many gaps."""
        gaps, counts = self._gaps.reshape(-1, 2, 2)[unit], self._counts.reshape(-1, 2)[unit]
        total, own = counted.cumsum(), _first(unit)
        more = total - np.maximum.accumulate(np.where(own, total - counted, 0)) if len(unit) else total
        block = np.maximum((counts[:, CURRENT] + more - 1) // self._block, 0)
        part = np.stack([unit, block])
        seed = np.where(block[:, None] == 0, gaps[:, CURRENT], 0)
        longest = _running(age, part, seed[:, 0])
        second = _running(np.minimum(age, _before(longest, part, seed[:, 0])), part, seed[:, 1])
        begin = np.maximum.accumulate(np.where(_first(part), np.arange(len(unit)), 0))
        now, same = np.stack([longest, second], 1), (block > 0) & ~own[begin]
        previous = np.where((block == 0)[:, None], gaps[:, PREVIOUS], gaps[:, CURRENT])
        previous = np.where(same[:, None], now[begin - 1], previous)
        many = np.where(block == 0, counts[:, PREVIOUS], self._block)
        return np.stack([now, previous], 1), np.stack([counts[:, CURRENT] + more - block * self._block, many], 1)

    def _allowed(self, gaps: Ints, count: Ints) -> Ints:
        """(R,) θ; 0 where it is not known."""
        longest, second = gaps[..., 0], gaps[..., 1]
        last = np.maximum(longest.min(1), second.max(1))  # second longest of both blocks
        factor = np.maximum(LOST, 2 / (self.rate * np.maximum(count, 1)))
        return np.where((count >= 2) & (last > 0), np.minimum(last * factor, LONGEST).astype(np.int64), 0)

    def _usual(self, since: Ints, unit: Ints, values: Ints) -> np.ndarray:
        """(K,) intervals of rows, or the mean gaps of units that had this many values."""
        if self.every is not None:
            return np.full(len(unit), float(self.every))
        return (since - self._first.reshape(-1)[unit]) / np.maximum(values - 1, 1)


def _first(part: Ints) -> Bools:
    """(R,) where parts begin, sorted by them; part: (R,) or (K, R)."""
    new = np.atleast_2d(part)
    found = (new[:, 1:] != new[:, :-1]).any(0)
    return np.append(True, found)[: new.shape[1]]


def _before(values: Ints, part: Ints, seed: Ints) -> Ints:
    """(R,) the value before each of its part; `seed` (R,) at its first."""
    return np.where(_first(part), seed, np.append(0, values)[: len(values)])


def _running(values: Ints, part: Ints, seed: Ints) -> Ints:
    """(R,) the largest so far of each part and its `seed` (R,): a parallel prefix.

    Example:
        >>> _running(np.array([1, 3, 2, 5]), np.array([0, 0, 0, 1]), np.array([2, 2, 2, 0])).tolist()
        [2, 3, 3, 5]
    """
    first, index = _first(part), np.arange(len(values))
    found = np.where(first, np.maximum(values, seed), values)
    place = index - np.maximum.accumulate(np.where(first, index, 0)) if len(index) else index
    by = 1
    while by <= int(place.max(initial=0)):
        found[by:] = np.where(place[by:] >= by, np.maximum(found[by:], found[:-by]), found[by:])
        by *= 2
    return found
