"""Values that say nothing of the measured quantity: sentinels such as -999, dead sensors, and spikes.

They are found in the rows of a series so far, and are missing from there on; nothing looks ahead, and how a stream is
cut into micro-batches changes nothing.

A *sentinel* is a value of `CODES`, and farther from all other values of its column, in its series, than these are from
each other, once the column has moved `MOVES` times. Other values, such as the 0 of a machine that is off, are
sentinels only if they are declared.

A *dead sensor* repeats one value v exactly, for n rows, with

    n ≥ LASTS days (shortest seasons), n > OFTEN · the longest run of a value before it, and N·pⁿ < CHANCE,

where p is the share of the N pairs of rows before the run, with a value other than 0, whose values are equal. v is not
0, and not the least or the largest value so far: rain, nights, parked cars and valves that are shut may stand there for
as long as they like. Nor is anything dead where values usually repeat (p > USUAL: set points, counts, flags), or
without a season, when nothing says how long standing still is long. It lives again with the first other value.

A *spike* is a value farther than `SPIKE` ranges from all others before it, once the column has moved `SEEN` times,
that stands alone: where the next one is as far on the same side, a new level has come, and neither is a spike. A spike
happened, and stays a truth; but it says nothing of what comes next, and is missing among the values before.

Memory is a few numbers a series and column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from streamgp.base import Json
from streamgp.windows.calendar import Bools, Floats, Ints

_NINES = [10.0**k - 10.0**-d for k in range(2, 11) for d in (0, 1, 2) if k + d > 2]
_WORDS = [2.0**15 - 1, 2.0**16 - 1, 2.0**31 - 1, 2.0**32 - 1]
_FILLS = [1e20, 1e30, 9.969209968386869e36, 3.4028234663852886e38]
CODES = np.unique(
    [*_NINES, *(-v for v in _NINES), -99.0, *(-v - 1 for v in _WORDS), *_WORDS, *_FILLS, *(-v for v in _FILLS)]
    + [sign * digit * (10.0**k - 1) / 9 for sign in (-1, 1) for digit in (7, 8) for k in (3, 4, 5)]
)
"""Values that instruments and formats write for a missing one: nines (999, -9999, 999.99), -777, -888, -99, the largest
and the smallest integers of 16 and 32 bits, the fill values of netCDF and float32's largest number."""
AWAY = 1.0
"""Ranges of all other values that a sentinel is away from the nearest of them."""
MOVES = 24
"""Changes of a value after which its range is believed."""
SPIKE = 10.0
"""Ranges of all values before that a spike is away from the nearest of them."""
SEEN = 240
"""Changes of a value after which its range is wide enough to tell a spike by."""
AGAIN = 2
"""Times that a sentinel comes before it is reported."""
LEAST, LASTS = 24, 1.25
"""Least rows, and least shortest seasons, of one value before a sensor is taken for dead."""
OFTEN, CHANCE, USUAL, SEASONS = 3, 1e-6, 0.5, 3
"""See the module; and seasons of pairs of rows before anything is dead."""
_PARTS = ("low", "high", "last", "run", "longest", "moves", "pairs", "equal", "dead", "spike")


class Stuck(NamedTuple):
    """A sensor that was found dead. row: index in the batch; code: series; column; value: that it repeats."""

    row: int
    code: int
    column: int
    value: float


class Level(NamedTuple):
    """A level that came: in this row of the batch a second value is as far as the spike before it, which was none."""

    row: int
    code: int
    column: int


class Found(NamedTuple):
    """What was found in rows.

    Attributes:
        values: (B, C) with what is missing as NaN, spikes too.
        truths: (B, C) the same, with spikes; None where there are none.
        stuck: sensors that were found dead, by row.
        levels: that came, by row.
    """

    values: Floats
    truths: Floats | None = None
    stuck: Sequence[Stuck] = ()
    levels: Sequence[Level] = ()


class _Spike(NamedTuple):
    """A spike in this row of rows that stand series by series; ranges: how far it is from all values before."""

    row: int
    column: int
    ranges: float


class _News(NamedTuple):
    """A sentence about what was found in this row of a batch; it is said once for its key."""

    row: int
    key: str
    sentence: str


class _Dead(NamedTuple):
    """A sensor found dead in this row of runs, after `rows` rows of one value; longest: of a value before it."""

    row: int
    rows: int
    longest: int


class Faults:
    """Finds sentinels, dead sensors and spikes, row by row.

    Args:
        columns: names, C.
        season: rows of the shortest season; 1 or less: none, and no sensor is dead.
        declared: values that are missing wherever they stand.
        finds: whether others are found.
        spikes: whether spikes are, too.

    Attributes:
        said: what was found and has not been told, a sentence each.

    Example:
        >>> faults = Faults(("y",), season=1, declared=(), finds=True)
        >>> y = np.sin(np.arange(100.0))[:, None]
        >>> y[[50, 70]] = -999.0
        >>> found = faults.take(np.zeros(100, np.int64), y)
        >>> np.flatnonzero(np.isnan(found.values[:, 0])).tolist()
        [50, 70]
        >>> len(faults.said)
        1
    """

    def __init__(
        self, columns: tuple[str, ...], season: int, declared: tuple[float, ...], finds: bool, spikes: bool = False
    ) -> None:
        self.columns, self.declared, self.finds = columns, np.array(declared, dtype=np.float64), finds
        self.spikes = spikes
        self.least = max(LEAST, math.ceil(LASTS * season)) if season > 1 else 0
        self.season = season
        self.said: list[str] = []
        self._count: dict[str, int] = {}  # times that a sentinel of a column was found
        self._told: set[str] = set()
        self._held = np.zeros((len(_PARTS), 0, len(columns)))

    def take(self, code: Ints, values: Floats, names: Sequence[str] = ()) -> Found:
        """The next rows (B, C) of these series (B,), in their order; names: of the series, where they have some."""
        if len(self.declared):
            values = np.where(np.isin(values, self.declared), np.nan, values)
        if not self.finds or not values.size:
            return Found(values)
        self._reserve(int(code.max()) + 1)
        order = np.argsort(code, kind="stable")
        own = code[order]
        coded = _coded(values)
        plain = (np.where(coded, np.nan, values) if coded.any() else values)[order]
        spikes, seconds = self._spikes(plain, own) if self.spikes else ([], [])
        levels = sorted(Level(int(order[row]), int(own[row]), column) for row, column in seconds)
        news = [self._spike_news(order, plain, spike, _of(names, own[spike.row])) for spike in spikes]
        for spike in spikes:
            plain[spike.row, spike.column] = np.nan
        runs = _Runs(plain, own, self._held)
        found, stuck = values, list[Stuck]()
        if coded.any():
            found, more = self._without_sentinels(values, coded[order], plain, own, order, runs)
            news += more
        if self.least and (ended := self._dead(runs)):
            found = found.copy() if found is values else found
            for rows, column, dead in ended:
                found[order[rows], column] = np.nan
                if dead is not None:
                    where, value = int(order[dead.row]), float(plain[dead.row, column])
                    stuck.append(Stuck(where, int(code[where]), column, value))
                    news.append(self._dead_news(where, column, value, dead, _of(names, code[where])))
        runs.store(self._held)
        for _, key, sentence in sorted(news):
            if key not in self._told:
                self._told.add(key)
                self.said.append(sentence)
        if not spikes:
            return Found(found, None, sorted(stuck), levels)
        truths, found = found, found.copy()
        for spike in spikes:
            found[order[spike.row], spike.column] = np.nan
        return Found(found, truths, sorted(stuck), levels)

    def _spikes(self, plain: Floats, own: Ints) -> tuple[list[_Spike], list[tuple[int, int]]]:
        """Spikes among rows (B, C) that stand series by series, `own` (B,), and rows and columns where a level came;
        nothing is looked at row by row where no value is far from those before these rows."""
        begins = np.flatnonzero(np.append(True, own[1:] != own[:-1]))
        ends, series = np.append(begins[1:], len(own)), own[begins]
        low, high, moves, last = (self._held[_PARTS.index(part)][series] for part in ("low", "high", "moves", "spike"))
        least, most = np.fmin.reduceat(plain, begins, 0), np.fmax.reduceat(plain, begins, 0)  # (S, C)
        with np.errstate(invalid="ignore"):
            reach = SPIKE * (high - low)
            far = (most - high > reach) | (low - least > reach)
        found, levels = list[_Spike](), list[tuple[int, int]]()
        for at, column in zip(*np.nonzero((far | (moves < SEEN) | (last != 0)) & np.isfinite(least)), strict=True):
            rows = slice(begins[at], ends[at])
            spikes, seconds = self._spikes_of(plain[rows, column], int(series[at]), int(column), int(begins[at]))
            found += spikes
            levels += [(row, int(column)) for row in seconds]
        return sorted(found), levels

    def _spikes_of(self, values: Floats, series: int, column: int, begin: int) -> tuple[list[_Spike], list[int]]:
        """Spikes of one column of a series, whose next values (n,) stand from row `begin` on, and rows where a level
        came."""
        held = dict(zip(_PARTS, self._held[:, series, column].tolist(), strict=True))
        known = np.flatnonzero(~np.isnan(values))
        value, found, levels, start, side = values[known], list[_Spike](), list[int](), 0, held["spike"]
        low, high, last, moves = held["low"], held["high"], held["last"], held["moves"]
        while start < len(value):
            rest = value[start:]
            lows = np.fmin.accumulate(np.append(low, rest))[:-1]
            highs = np.fmax.accumulate(np.append(high, rest))[:-1]
            moved = moves + np.cumsum(np.append(0, rest != np.append(last, rest[:-1])))[:-1]
            reach = np.where((moved >= SEEN) & (highs > lows), SPIKE * (highs - lows), np.inf)
            above, below = rest - highs > reach, lows - rest > reach
            far = np.flatnonzero(above | below)
            if not len(far):
                side = 0.0
                break
            at = int(far[0])
            before, side = side if at == 0 else 0.0, 1.0 if above[at] else -1.0
            low, high, moves = float(lows[at]), float(highs[at]), float(moved[at])
            last = float(rest[at - 1]) if at else last
            if before == side:  # the second in a row: a level
                levels.append(begin + int(known[start + at]))
                low, high, moves, last, side = min(low, rest[at]), max(high, rest[at]), moves + 1, float(rest[at]), 0.0
            else:
                ranges = float(max(rest[at] - high, low - rest[at]) / (high - low))
                found.append(_Spike(begin + int(known[start + at]), column, ranges))
            start += at + 1
        self._held[_PARTS.index("spike"), series, column] = side
        return found, levels

    def _without_sentinels(
        self, values: Floats, coded: Bools, plain: Floats, own: Ints, order: Ints, runs: _Runs
    ) -> tuple[Floats, list[_News]]:
        """The values without those of `CODES` that are far from all others before them, and what is new of them; all
        but values by series."""
        found, news = values.copy(), list[_News]()
        changed = runs.changed(plain.shape)
        for column in np.flatnonzero(coded.any(0)).tolist():
            for series in np.unique(own[coded[:, column]]).tolist():
                start, stop = np.searchsorted(own, [series, series + 1])
                low, high, _, _, _, moves = self._held[:6, series, column]
                before = plain[start:stop, column]
                low = np.fmin.accumulate(np.append(low, before))[:-1]
                high = np.fmax.accumulate(np.append(high, before))[:-1]
                moved = moves + np.append(0, np.cumsum(changed[start:stop, column]))[:-1]
                value = values[order[start:stop], column]
                with np.errstate(invalid="ignore"):
                    away = np.maximum(low - value, value - high) > AWAY * (high - low)
                gone = np.flatnonzero(coded[start:stop, column] & away & (moved >= MOVES))
                found[order[start + gone], column] = np.nan
            rows = np.flatnonzero(np.isnan(found[:, column]) & ~np.isnan(values[:, column]))
            news += self._sentinel_news(rows, column, values[rows, column])
        return found, news

    def _sentinel_news(self, rows: Ints, column: int, values: Floats) -> list[_News]:
        """Count sentinels of a column, by row; one that has come again is news."""
        news = list[_News]()
        for value in np.unique(values).tolist():
            key, own = f"{self.columns[column]} {value:.10g}", rows[values == value]
            before = self._count.get(key, 0)
            self._count[key] = before + len(own)
            if before < AGAIN <= before + len(own):
                sentence = (
                    f"{self.columns[column]} is {value:.10g} again and again, far from all its other values: it counts "
                    "as missing there; --sentinel none takes it as a value"
                )
                news.append(_News(int(own[AGAIN - before - 1]), key, sentence))
        return news

    def _dead(self, runs: _Runs) -> list[tuple[Ints, int, _Dead | None]]:
        """Rows (in the order of `runs`) in which a sensor is dead, its column, and how it was found."""
        found = list[tuple[Ints, int, _Dead | None]]()
        long = (runs.length >= self.least) & (runs.value != 0)
        for group in np.unique(np.append(runs.group[long], runs.group[runs.was_dead])).tolist():
            start, stop = np.searchsorted(runs.group, [group, group + 1])
            series, column = runs.of(group)
            state = dict(zip(_PARTS, self._held[:, series, column], strict=True))
            value, length, breaks = runs.value[start:stop], runs.length[start:stop], runs.breaks[start:stop]
            low = np.fmin.accumulate(np.append(state["low"], value))
            high = np.fmax.accumulate(np.append(state["high"], value))
            counted = runs.counted[start:stop]
            pairs = state["pairs"] + np.append(0, np.cumsum(counted))
            equal = state["equal"] + np.append(0, np.cumsum(counted & ~breaks))
            longest, dead = state["longest"], bool(state["dead"])
            if breaks[0] and counted[0] and not dead:  # a run ended with the rows before these
                longest = max(longest, state["run"])
            begins = np.union1d(np.flatnonzero(breaks), [0])
            for at, begin in enumerate(begins.tolist()):
                end = int(begins[at + 1]) if at + 1 < len(begins) else stop - start
                carried = not breaks[begin]  # it began before these rows
                if not carried:
                    dead = False
                v, before = value[begin], state["run"] if carried else 0.0
                if not dead:
                    own = max(before - 1, 0.0)  # pairs within the run, in rows before
                    told = self._needed(pairs[begin] + (not carried) - own, equal[begin] - own, longest)
                    inside = low[begin] < v < high[begin]
                    far = np.flatnonzero(length[begin:end] >= told) if inside and v != 0 else np.zeros(0, np.int64)
                    if len(far):
                        dead = True
                        first = begin + int(far[0])
                        how = _Dead(int(runs.row[start + first]), int(length[first]), int(longest))
                        found.append((runs.row[start + first : start + end], column, how))
                else:
                    found.append((runs.row[start + begin : start + end], column, None))
                if not dead and v != 0 and end < stop - start:
                    longest = max(longest, length[end - 1])
            runs.settle(group, longest, dead)
        return found

    def _needed(self, pairs: float, equal: float, longest: float) -> float:
        """Rows that a run must last to be that of a dead sensor."""
        share = (equal + 1) / (pairs + 2)
        if share > USUAL or pairs < SEASONS * self.season:
            return np.inf
        return max(float(self.least), OFTEN * longest + 1, math.log(CHANCE / pairs) / math.log(share))

    def _spike_news(self, order: Ints, plain: Floats, spike: _Spike, of: str) -> _News:
        key, value = self.columns[spike.column], float(plain[spike.row, spike.column])
        sentence = (
            f"{key}{of} is {value:.6g}, {spike.ranges:,.0f} times as far from all its values before as these are from "
            "each other: a row alone like that is scored, and counts as missing among the values that forecasts look "
            "back on; --sentinel none takes it as a value"
        )
        return _News(int(order[spike.row]), f"{key} spike", sentence)

    def _dead_news(self, row: int, column: int, value: float, dead: _Dead, of: str) -> _News:
        key = self.columns[column]
        sentence = (
            f"{key}{of} has been exactly {value:.6g} for {dead.rows:,} rows, and never kept a value for more than "
            f"{dead.longest:,} before: its sensor counts as dead, and its values as missing, until another one comes; "
            "--sentinel none takes them as values"
        )
        return _News(row, key, sentence)

    def _reserve(self, series: int) -> None:
        more = series - self._held.shape[1]
        if more > 0:
            new = np.zeros((len(_PARTS), max(more, self._held.shape[1]), len(self.columns)))
            new[:3] = np.array([np.inf, -np.inf, np.nan])[:, None, None]
            self._held = np.concatenate([self._held, new], 1)

    def state(self, series: int) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """Of the first `series` series."""
        self._reserve(series)
        about: dict[str, Json] = {"said": [*self.said], "count": {**self._count}, "told": [*sorted(self._told)]}
        return {"held": torch.from_numpy(self._held[:, :series].copy())}, about

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: the tensors do not fit.
        """
        held = tensors["held"].numpy().copy()
        if held.ndim != 3 or (len(held), held.shape[2]) != (len(_PARTS), len(self.columns)):
            raise ValueError(f"faults of {held.shape}, where there are {len(self.columns)} columns")
        about: Any = rest
        self._held, self.said = held, list(about["said"])
        self._count, self._told = dict(about["count"]), set(about["told"])


def _of(names: Sequence[str], code: int) -> str:
    """The series, as it follows the name of a column in a note."""
    return f" of {names[code]}" if names else ""


class _Runs:
    """Runs of equal values in rows (B, C) that stand series by series; a missing one neither ends nor lengthens one.

    K known values, by group (a column of a series) and then by row.

    Attributes:
        row, group, value: (K,) of each.
        length: (K,) rows of its run so far.
        breaks: (K,) whether it begins a run.
        counted: (K,) whether the value before it is known and not 0.
    """

    def __init__(self, plain: Floats, own: Ints, held: Floats) -> None:
        rows, columns = plain.shape
        self._series = held.shape[1]
        flat = plain.T.reshape(-1)
        known = np.flatnonzero(~np.isnan(flat))
        column, self.row = np.divmod(known, rows)
        self.value = flat[known]
        self.group = column * self._series + own[self.row]
        self.columns = columns
        _, _, last, run, _, _, _, _, dead, _ = (part.T.reshape(-1)[self.group] for part in held)
        self.head = np.append(True, self.group[1:] != self.group[:-1])[: len(known)]
        before = np.where(self.head, last, np.append(np.nan, self.value)[: len(known)])
        self.breaks = self.value != before
        place = np.arange(len(known))
        begin = np.maximum.accumulate(np.where(self.breaks | self.head, place, 0))
        self.length = place - begin + 1 + np.where(self.breaks[begin], 0, run[begin])
        self.counted = (before != 0) & ~np.isnan(before)
        self.was_dead = self.head & (dead > 0)
        ended = np.where(self.head, run, np.append(0.0, self.length)[: len(known)])
        fair = self.breaks & self.counted & ~self.was_dead
        self._ended = self.group[fair], ended[fair]
        self._settled: dict[int, tuple[float, bool]] = {}

    def of(self, group: int) -> tuple[int, int]:
        """Series and column of a group."""
        column, series = divmod(group, self._series)
        return series, column

    def changed(self, shape: tuple[int, ...]) -> Bools:
        """(B, C) where a value differs from the one before it."""
        found = np.zeros(shape, bool)
        found[self.row, self.group // self._series] = self.breaks
        return found

    def settle(self, group: int, longest: float, dead: bool) -> None:
        """The longest run of a group that was none of a dead sensor, and whether it is dead now."""
        self._settled[group] = longest, dead

    def store(self, held: Floats) -> None:
        """Bring the state of all groups up to these rows."""
        if not len(self.group):
            return
        first = np.flatnonzero(self.head)
        last = np.append(first[1:], len(self.group)) - 1
        series, column = self.group[first] % self._series, self.group[first] // self._series
        parts = dict(zip(_PARTS, held, strict=True))
        at = series, column
        parts["low"][at] = np.fmin(parts["low"][at], np.minimum.reduceat(self.value, first))
        parts["high"][at] = np.fmax(parts["high"][at], np.maximum.reduceat(self.value, first))
        parts["last"][at], parts["run"][at] = self.value[last], self.length[last]
        for name, flags in (
            ("moves", self.breaks),
            ("pairs", self.counted),
            ("equal", self.counted & ~self.breaks),
        ):
            parts[name][at] += np.add.reduceat(flags.astype(np.float64), first)
        group, length = self._ended
        np.maximum.at(parts["longest"], (group % self._series, group // self._series), length)
        for one, (longest, dead) in self._settled.items():
            place = self.of(one)
            parts["longest"][place], parts["dead"][place] = longest, float(dead)


def _coded(values: Floats) -> Bools:
    """Which values are of `CODES`."""
    at = np.searchsorted(CODES, values).clip(0, len(CODES) - 1)
    return cast(Bools, CODES[at] == values)
