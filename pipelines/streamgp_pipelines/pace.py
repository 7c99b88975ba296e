"""How far apart the rows of a table are: intervals between consecutive rows of a series, counted in one pass."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgp_data.table import TableMeta

_CAP = 1 << 16
"""Distinct intervals that are counted; beyond them the commonest so far are kept."""

_GAP = 1.5
"""Intervals from which on a row counts as missing."""


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

    def add(self, times: NDArray[np.int64], series: pa.Array[Any] | None) -> None:
        """Count the next rows, in the order of the table.

        Args:
            times: (N,) as the table stores them.
            series: (N,) names, None where there is one series.
        """
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
        steps, codes = (times - before)[known], codes[known]
        self.backwards += int((steps < 0).sum())
        pairs = np.stack([codes, steps])[:, steps >= 0]
        (codes, steps), counts = np.unique(pairs, axis=1, return_counts=True)
        self._counts.update(dict(zip(zip(codes.tolist(), steps.tolist(), strict=True), counts.tolist(), strict=True)))
        if len(self._counts) > _CAP:
            self._counts = Counter(dict(self._counts.most_common(_CAP // 2)))

    def median(self) -> int | None:
        """The median interval of all series."""
        return _median(self._intervals())

    def longest(self) -> int:
        """The longest interval; 0 where there is none."""
        return max((interval for _, interval in self._counts), default=0)

    def gaps(self, declared: float | None) -> int:
        """Intervals longer than 1.5 times the declared one or, where none is, the median of their series."""
        found = 0
        for counts in self._by_series():
            usual = _median(counts) if declared is None else declared
            found += 0 if usual is None else sum(n for interval, n in counts.items() if interval > _GAP * usual)
        return found

    def regular(self, share: float = 0.9) -> bool:
        """Whether so many of the intervals lie within half of the median of their series."""
        near = 0
        for counts in self._by_series():
            usual = _median(counts) or 0
            near += sum(n for interval, n in counts.items() if abs(interval - usual) <= usual / 2)
        return near > 0 and near >= share * sum(self._counts.values())

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

    def _by_series(self) -> list[Counter[int]]:
        found: dict[int, Counter[int]] = {}
        for (code, interval), count in self._counts.items():
            found.setdefault(code, Counter())[interval] += count
        return list(found.values())


def _median(counts: Counter[int]) -> int | None:
    """The median of counted values, of two middle ones the lower; None where there is none."""
    half = sum(counts.values()) / 2
    for value in sorted(counts):
        half -= counts[value]
        if half <= 0:
            return value
    return None
