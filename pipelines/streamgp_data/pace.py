"""How far apart the rows of a table are: intervals between consecutive rows of a series, counted in one pass."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgp_data.moments import Moments
from streamgp_data.numbers import spoken
from streamgp_data.table import TableMeta
from streamgp_data.zones import clock_of

_CAP = 1 << 16
"""Distinct intervals that are counted; beyond them the commonest so far are kept."""

_GAP = 1.5
"""Intervals from which on a row counts as missing."""

_REGULAR = 0.9
"""Share of the intervals that are alike where rows keep a clock."""

_FEW = 1000
"""Intervals of a series whose first place is remembered, of all series."""

_DAY, _HOUR = 86_400_000_000, 3_600_000_000
"""Microseconds."""

_RARE = 64
"""Most occurrences of an interval in rows that are added at once of which the places are remembered."""

_APART = 20 * _DAY
"""Time between changes of a clock, of which there are two a year, and around Ramadan two more."""

_HOLE = 24
"""Usual intervals that are a hole where intervals are not all alike."""


class Pace:
    """First and last time, and how often each interval between consecutive rows of a series occurs.

    Attributes:
        span: first and last time.
        backwards: intervals below zero.
        series: code of each series, by its name.

    Example:
        >>> pace = Pace()
        >>> pace.add(np.array([0, 0, 10, 60, 20, 120]), pa.array(["a", "b", "a", "b", "a", "b"]))
        >>> pace.median(), pace.gaps(None), pace.gaps(10)
        (10, 0, 2)
    """

    def __init__(self) -> None:
        self.span: tuple[int, int] | None = None
        self.backwards = 0
        self.series: dict[Any, int] = {}
        self._newest: dict[int, int] = {}
        self._counts: Counter[tuple[int, int]] = Counter()  # of (series, interval)
        self._first: dict[tuple[int, int], int] = {}  # (series, interval) -> time of the row after its first one
        self._rare: dict[tuple[int, int], list[int]] = {}  # (series, interval) -> times of the rows after rare ones
        self._remembered = 0

    def add(self, times: NDArray[np.int64], series: pa.Array[Any] | None) -> None:
        """Count the next rows, in the order of the table.

        Args:
            times: (N,) as the table stores them.
            series: (N,) names, None where there is one series.
        """
        if not len(times):  # a commit of versions alone
            return
        first, last = int(times.min()), int(times.max())
        self.span = (first, last) if self.span is None else (min(first, self.span[0]), max(last, self.span[1]))
        codes = np.zeros(len(times), np.int64)
        if series is not None:
            encoded = series.dictionary_encode()
            local = [self.series.setdefault(name, len(self.series)) for name in encoded.dictionary.to_pylist()]
            codes = np.array(local, np.int64)[encoded.indices.to_numpy()]
            order = np.argsort(codes, kind="stable")
            times, codes = times[order], codes[order]
        starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        ends = np.append(starts[1:], len(codes)) - 1
        before = np.roll(times, 1)
        known = np.ones(len(times), bool)
        for start in starts.tolist():
            past = self._newest.get(int(codes[start]))
            known[start], before[start] = past is not None, past or 0
        self._newest.update(zip(codes[ends].tolist(), times[ends].tolist(), strict=True))
        steps, codes, times = (times - before)[known], codes[known], times[known]
        self.backwards += int((steps < 0).sum())
        counted = _counted(codes[steps >= 0], steps[steps >= 0])
        self._counts.update(counted)
        for code, step in [pair for pair in counted if pair not in self._first][: _FEW - len(self._first)]:
            self._first[code, step] = int(times[((codes == code) & (steps == step)).argmax()])
        self._remember(counted, codes, steps, times)
        if len(self._counts) > _CAP:
            self._counts = Counter(dict(self._counts.most_common(_CAP // 2)))

    def _remember(
        self, counted: dict[tuple[int, int], int], codes: NDArray[np.int64], steps: NDArray[np.int64], times: Any
    ) -> None:
        """Remember where rare intervals longer than an hour are: one may be off because a clock was changed."""
        rare = {pair for pair, count in counted.items() if count <= _RARE and pair[1] > _HOUR}
        if not rare or self._remembered >= _CAP:
            return
        places = np.flatnonzero(np.isin(steps, np.array([step for _, step in rare])))[: _CAP - self._remembered]
        pairs = zip(codes[places].tolist(), steps[places].tolist(), strict=True)
        for pair, time in zip(pairs, times[places].tolist(), strict=True):
            if pair in rare:
                self._rare.setdefault(pair, []).append(time)
                self._remembered += 1

    def off_grid(
        self, every: int | None, tolerance: int = 0, meta: TableMeta | None = None
    ) -> tuple[int, int, int] | None:
        """The interval of a clock, how many intervals between rows are no whole number of it, and the time of the row
        after the first of these, as far as that is known (else 0). None where there is none, or rows keep no clock.

        Args:
            every: the interval that is declared; None: of each series that of nine in ten, where there is one.
            tolerance: by which an interval may be off.
            meta: of the table: intervals over a change of its clock may be off by that change.

        Example:
            >>> pace = Pace()
            >>> pace.add(np.array([*range(0, 200, 10), 193, *range(200, 300, 10)]), None)
            >>> pace.off_grid(None), pace.off_grid(10, 3), pace.off_grid(7)[:2]
            ((10, 2, 193), None, (7, 29))
        """
        clock, off, places = 0, 0, list[int]()
        for code, counts in self._by_series().items():
            usual = _median(counts) if every is None else every
            if not usual or (every is None and counts[usual] < _REGULAR * counts.total()):
                continue
            allowed = _allowed(usual, tolerance)
            found = {step: counts[step] for step in counts if _off(step, usual) > allowed}
            changes = [] if meta is None else self._changes(code, [*found], usual, tolerance, meta)
            for step, _ in changes:
                found[step] -= 1
            found = {step: count for step, count in found.items() if count}
            clock = clock or (usual if found else 0)
            off += sum(found.values())
            changed = set(changes)
            for step in found:
                rare = [time for time in self._rare.get((code, step), ()) if (step, time) not in changed]
                places += rare[:1] or [self._first[code, step]] * ((code, step) in self._first)
        return (clock, off, min(places, default=0)) if off else None

    def _changes(
        self, code: int, steps: list[int], usual: int, tolerance: int, meta: TableMeta
    ) -> list[tuple[int, int]]:
        """Which intervals of a series, that are off, lie over a change of the clock: interval and time of the row after
        it. The zone of the table says where its clock is changed. Offsets of rows are not kept: such an interval is
        one that is off by an hour, or half of one, and far from the next that is off."""
        found = [(step, time) for step in steps for time in self._rare.get((code, step), ())]
        if meta.zone is None or not found:
            return []
        if meta.zone != "UTC":
            zone = clock_of(meta.zone)
            return [
                (step, time) for step, time in found if _off(step + _moved(time - step, time, zone), usual) <= tolerance
            ]
        if meta.local is not False or not _has_offsets(meta.time_format):
            return []
        times = np.array(sorted(time for _, time in found))
        near = {int(time) for pair in pairwise(times.tolist()) if pair[1] - pair[0] < _APART for time in pair}
        sizes = (_HOUR, _HOUR // 2)
        return [
            (step, time)
            for step, time in found
            if time not in near and any(abs(_off(step, usual) - size) <= tolerance < size < usual for size in sizes)
        ]

    def median(self) -> int | None:
        """The median interval of all series."""
        return _median(self._intervals())

    def longest(self) -> int:
        """The longest interval; 0 where there is none."""
        return max((interval for _, interval in self._counts), default=0)

    def gaps(self, declared: float | None) -> int:
        """Intervals longer than 1.5 times the declared one or, where none is, the median of their series."""
        found = 0
        for counts in self._by_series().values():
            usual = _median(counts) if declared is None else declared
            found += 0 if usual is None else sum(n for interval, n in counts.items() if interval > _GAP * usual)
        return found

    def regular(self, share: float = 0.9) -> bool:
        """Whether this share of the intervals lies within half of the median of their series."""
        near = 0
        for counts in self._by_series().values():
            usual = _median(counts) or 0
            near += sum(n for interval, n in counts.items() if abs(interval - usual) <= usual / 2)
        return near > 0 and near >= share * sum(self._counts.values())

    def missing(self) -> tuple[int, int, int] | None:
        """The interval of a regular clock with holes, their number, and the rows that are missing in them. None where
        there is no hole, rows are out of order, or intervals are not multiples of one that nine in ten of them are.

        Example:
            >>> pace = Pace()
            >>> pace.add(np.array([*range(0, 200, 10), *range(230, 300, 10)]), None)
            >>> pace.missing()
            (10, 1, 3)
        """
        counts = Counter({interval: count for interval, count in self._intervals().items() if interval > 0})
        usual = _median(counts)
        if self.backwards or usual is None or counts[usual] < 0.9 * counts.total():
            return None
        if any(interval % usual for interval in counts):
            return None
        holes = counts.total() - counts[usual]
        lost = sum((interval // usual - 1) * count for interval, count in counts.items())
        return (usual, holes, lost) if holes else None

    def notes(self, meta: TableMeta) -> list[str]:
        """What to know of the interval that a table declares, or does not, beside those of its rows; and of rows
        between the ticks of that clock.

        Example:
            >>> pace = Pace()
            >>> pace.add(np.array([*range(0, 200, 10), *range(230, 300, 10)]) * 1_000_000, None)
            >>> pace.notes(TableMeta("t"))[0].partition(":")[0]
            'rows are 10s apart, but for 1 hole where 3 rows are missing'
            >>> pace.notes(TableMeta("t", every_ns=10**10)), pace.notes(TableMeta("t", every_ns=10**9))[0][:49]
            ([], 'rows are 10s apart, and the table says --every 1s')
            >>> pace.notes(TableMeta("t", clock=False))[0].partition(":")[0]
            'rows are 10,000,000 steps apart, and at the steps between there is none'
        """
        return [*self._usual(meta), *self._off(meta)]

    def _off(self, meta: TableMeta) -> list[str]:
        if not meta.clock:
            return []
        every = None if meta.every_ns is None else meta.every_ns // 1000
        found = self.off_grid(every, (meta.tolerance_ns or 0) // 1000, meta)
        if found is None:
            return []
        own, count = spoken(found[0] * 1e-6), f"{found[1]:,} interval{'s are' if found[1] > 1 else ' is'}"
        where = f", first before the row of {Moments.of(meta).say(1000 * found[2])}" if found[2] else ""
        said, what = f"rows are {own} apart", "windows count rows, and such a row is a step of its own"
        if every is not None:
            said = f"the table says --every {own}"
            what = "such a row takes the nearest step, and is left out where that has a row"
        return [
            f"{said}, but {count} no whole number of that{where}: {what}; where a clock jitters, streamgp ingest with "
            f"--every {own} and --tolerance, also of this table"
        ]

    def _usual(self, meta: TableMeta) -> list[str]:
        usual = self.median()
        if meta.time is not None and not meta.clock and usual is not None and usual > 1:
            return [
                f"rows are {usual:,} steps apart, and at the steps between there is none: if {meta.time!r} counts "
                "time, ingest into a new table with --time-format elapsed-ms or another unit; else number the rows one "
                "by one"
            ]
        if not meta.clock or not usual:
            return []
        if meta.every_ns is not None:
            if 1000 * usual < _GAP * meta.every_ns:
                return []
            own, said = spoken(usual * 1e-6), spoken(meta.every_ns * 1e-9)
            return [
                f"rows are {own} apart, and the table says --every {said}: at most steps there is no row; if {own} is "
                f"right, ingest into a new table with --every {own}"
            ]
        if (found := self.missing()) is not None:
            own, holes, lost = spoken(found[0] * 1e-6), f"{found[1]:,} hole{'s'[: found[1] > 1]}", found[2]
            missing = f"{lost:,} row{'s are' if lost > 1 else ' is'} missing"
            return [
                f"rows are {own} apart, but for {holes} where {missing}: windows count rows, and cross them; "
                f"streamgp ingest with --every {own} makes them gaps, also of this table"
            ]
        longest = self.longest()
        if not self.regular() or longest < _HOLE * usual:
            return []
        own = spoken(usual * 1e-6)
        return [
            f"rows are {own} apart, and once {spoken(longest * 1e-6)}: windows count rows, and cross this hole; "
            f"streamgp ingest with --every {own} makes it a gap, also of this table"
        ]

    def snapped(self, meta: TableMeta) -> int | None:
        """Intervals that the tolerance rounds; the clock counts microseconds."""
        if meta.every_ns is None or meta.tolerance_ns is None:
            return None
        total = 0
        for value, count in self._intervals().items():
            off = abs(1000 * value - max((1000 * value + meta.every_ns // 2) // meta.every_ns, 1) * meta.every_ns)
            total += count * (value > 0 and 0 < off <= meta.tolerance_ns)
        return total

    def _intervals(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for (_, interval), count in self._counts.items():
            found[interval] += count
        return found

    def _by_series(self) -> dict[int, Counter[int]]:
        found: dict[int, Counter[int]] = {}
        for (code, interval), count in self._counts.items():
            found.setdefault(code, Counter())[interval] += count
        return found


def _allowed(every: int, tolerance: int) -> int:
    """By how much an interval may be off; days of a local clock by the hour that it is changed by."""
    return max(tolerance, _HOUR if every % _DAY == 0 else 0)


def _off(step: int, usual: int) -> int:
    """By how much an interval is off the nearest multiple."""
    return min(step % usual, -step % usual)


def _moved(start: int, end: int, zone: tzinfo) -> int:
    """By how much a clock was set forward between two instants, all in microseconds."""
    try:
        first, last = (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time) for time in (start, end))
        before, after = (instant.astimezone(zone).utcoffset() or timedelta() for instant in (first, last))
    except OverflowError:  # around the years 1 and 9999
        return 0
    return (after - before) // timedelta(microseconds=1)


def _has_offsets(form: str | None) -> bool:
    """Whether times were written with an offset each."""
    return form == "iso-offset" or (form is not None and "%z" in form)


def _counted(codes: NDArray[np.int64], steps: NDArray[np.int64]) -> dict[tuple[int, int], int]:
    """How often each pair of a code and an interval, (N,) both, is there."""
    each = pa.array(steps).dictionary_encode()
    values: NDArray[np.int64] = each.dictionary.to_numpy()
    pairs = pa.array(codes * len(values) + each.indices.to_numpy()).value_counts()
    found, counts = pairs.field(0).to_numpy(), pairs.field(1).to_pylist()
    named = zip((found // max(len(values), 1)).tolist(), values[found % max(len(values), 1)].tolist(), strict=True)
    return dict(sorted(zip(named, counts, strict=True)))


def _median(counts: Counter[int]) -> int | None:
    """The median of counted values, of two middle ones the lower; None where there is none."""
    half = sum(counts.values()) / 2
    for value in sorted(counts):
        half -= counts[value]
        if half <= 0:
            return value
    return None
