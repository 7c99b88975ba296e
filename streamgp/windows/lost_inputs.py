"""Inputs that are missing: what stands in for them, and how far it may be off.

An input that is lost after row l is, until it is there again, the value of a base and a part of how far it departed
from it at last:

    v_t = b_t + (x_l − b_l) e^{−θ(t − l)},   θ = ln 2 / half

The base b is what was nearest recently, by the mean |x − b| over a sample of the kept rows: the same phase one season
before (of each season), or the mean of the short season's phase over several of them. Where it is lost for longer than
a season, b repeats. Without a season b is the last value. An input of few values (a flag) takes those of its season
alone.

Its standard deviation is √(π/2) d for errors with mean size d: of a base one season old, as a random walk of seasons,
at most that of two independent draws; less while the departure says something:

    s_t = √(π/2) min(d √n, c) √(1 − e^{−2θ(t − l)}),   n = ⌈(t − l)/season⌉,   c = √2 mean |x − mean x|

An input that was missing in most of the kept rows is usually missing: errors know of it, and s = 0; so too where the
base was nearly always right.

What was filled in stands in the windows' memory as if it had been read: windows, contexts and later seasons see it.
Nothing is kept for streams that have lost no input.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from streamgp.predictives.gaussian import NORMAL
from streamgp.windows.calendar import Bools, Floats, Ints
from streamgp.windows.timeline import NEVER, Ring, Timeline

SAMPLE = 96
"""Kept rows that bases are compared on."""
MEAN = 5
"""Short seasons in the mean of a phase, at most."""
FEW = 3
"""Values that an input has at most to be a flag."""
SURE = 0.9
"""Share of the sample where a base was exactly right, from which on it is trusted."""
FEWEST = 3
"""Rows of the sample that a base must have been compared on."""
USUAL = 0.5
"""Share of the kept rows with a value, below which a missing value is usual."""
LARGEST = 1e150
"""Absolute values beyond it stand in for nothing: sums of their squares may overflow float64."""
UNKNOWN = -1.0
"""Stands for the age of an input that was missing when nothing was known of it."""


class Doubt(NamedTuple):
    """Of inputs: the standard deviation of what was filled in, 0 where a value was read, and rows since the last
    value."""

    deviation: Floats
    age: Floats


class _Outage(NamedTuple):
    """One input of one series, since it was lost.

    Attributes:
        until: step of the last row where it was missing.
        last: step of the last value.
        departure: of that value from its base.
        base: which.
        size: d, mean |x − b|.
        most: c.
        counts: whether what is filled in is in doubt: 1 or 0.
    """

    until: float
    last: float
    departure: float
    base: float
    size: float
    most: float
    counts: float


class LostInputs:
    """Fills in what inputs lack, row by row; Stateful.

    Args:
        columns: K inputs.
        seasons: rows in each, shortest first; (): no season.
        back: rows that are kept.
        front: rows that are looked ahead.
        half: rows after which half of a departure is left.

    Attributes:
        any: whether an input was ever missing.

    Example:
        >>> lost = LostInputs(columns=1, seasons=(2,), back=8, front=0, half=0.1)
        >>> ring, one = Ring(9, 1), np.zeros(8, np.int64)
        >>> ring.reserve(1)
        >>> x = np.array([1.0, 5.0, 1.0, 5.0, 1.0, 5.0, np.nan, np.nan])[:, None]
        >>> lost.fill(ring, one, np.arange(8), x, np.full(1, -1))[:, 0].tolist()
        [1.0, 5.0, 1.0, 5.0, 1.0, 5.0, 1.0, 5.0]
    """

    def __init__(self, columns: int, seasons: tuple[int, ...], back: int, front: int, half: float) -> None:
        self.columns, self.back, self.front = columns, back, front
        self.fades = np.log(2.0) / half if seasons else np.inf
        self.bases = _bases(seasons, back)
        reach = max(back - max(base[-1] for base in self.bases), 1)
        self.sample = np.unique(np.linspace(1, reach, SAMPLE).round().astype(np.int64))
        self._forget()

    def _forget(self) -> None:
        """No input was ever missing."""
        self.any = False
        self._ring = Ring(1, 2 * self.columns)  # deviation and age of what was filled in; NaN: it was read
        self._open = np.zeros((0, self.columns, len(_Outage._fields)))
        self._new: tuple[Ints, Ints, Floats] | None = None

    def fill(self, ring: Ring, code: Ints, step: Ints, inputs: Floats, newest: Ints) -> Floats:
        """(B, K) inputs of new rows, with what stands in for those that are missing; NaN where nothing was known
        before.

        Args:
            ring: the rows before; the inputs are its last channels.
            code: (B,) series, sorted.
            step: (B,) steps, sorted.
            inputs: (B, K), NaN = missing.
            newest: (S,) last step of each series before these rows.
        """
        missing = np.isnan(inputs)
        if not self.any and not missing.any():
            return inputs
        if not self.any:
            self.any, self._ring = True, Ring(ring.capacity, 2 * self.columns)
        series = int(code.max(initial=-1)) + 1
        self._ring.reserve(series)
        if series > len(self._open):
            more = np.full((max(series, 2 * len(self._open)) - len(self._open), *self._open.shape[1:]), float(NEVER))
            self._open = np.concatenate([self._open, more])
        filled, doubt = inputs.copy(), np.full((len(code), 2 * self.columns), np.nan)
        begins = np.searchsorted(code, code)
        for row, column in np.argwhere(missing).tolist():
            begin = int(begins[row])
            before = int(step[row - 1]) if row > begin else int(newest[code[row]])
            kept = _Kept(ring, self._ring, filled, doubt, code, step, slice(begin, row), column)
            now, held = int(step[row]), self._open[code[row], column]
            if before >= 0 and held[0] == before:
                outage: _Outage | None = _Outage(*held.tolist())
            else:
                outage = None if kept.unknown(before) else self._begun(kept, now)
            if outage is None:
                doubt[row, column + self.columns] = UNKNOWN
                continue
            filled[row, column], doubt[row, column], doubt[row, column + self.columns] = self._value(outage, kept, now)
            self._open[code[row], column] = outage._replace(until=now)
        self._new = code, step, doubt
        return filled

    def in_rows(self, ring: Ring, code: Ints, step: Ints, values: Floats, newest: Ints) -> Floats:
        """(B, C) rows whose last K channels are the inputs, which `fill` fills in."""
        inputs = values[:, ring.channels - self.columns :]
        filled = self.fill(ring, code, step, inputs, newest)
        return values if filled is inputs else np.concatenate([values[:, : -self.columns], filled], 1)

    def _begun(self, kept: _Kept, now: int) -> _Outage | None:
        """What the kept rows say of an input that is missing from step `now` on; None where it has no value in them."""
        x, there, read = kept.look(now - np.arange(1, self.back + 1))  # newest first
        known = np.where(read, x, np.nan)
        if not np.isfinite(x).any():
            return None
        at = int(read.argmax()) if read.any() else self.back - 1
        own = known[self.sample - 1]
        flag = len(np.unique(own[np.isfinite(own)])) <= FEW
        centre = np.nanmean(x)
        most = float(np.sqrt(2.0) * np.nanmean(np.abs(x - centre)))
        best, size = 0, np.inf
        longer = np.append(x, np.full(max(base[-1] for base in self.bases), np.nan))
        for which, base in enumerate(self.bases):
            error = np.abs(own - _mean(np.stack([longer[self.sample - 1 + off] for off in base])))
            error = error[np.isfinite(error)]
            if len(error) < FEWEST:
                continue
            mean = 0.0 if (error == 0.0).mean() >= SURE else float(error.mean())
            if mean < size:
                best, size = which, mean
        base_of_last = _mean(x[[at + off for off in self.bases[best] if at + off < len(x)]])
        away = float(x[at] - base_of_last)
        departure = away if read.any() and not flag and np.isfinite(away) and np.isfinite(self.fades) else 0.0
        counts = float(read.sum() >= USUAL * max(there.sum(), 1))
        return _Outage(now, now - 1 - at, departure, best, min(size, most), most, counts)

    def _value(self, outage: _Outage, kept: _Kept, now: int) -> tuple[float, float, float]:
        """What stands in at step `now`, its standard deviation, and rows since the last value."""
        base, age = self.bases[int(outage.base)], now - outage.last
        left = np.exp(-self.fades * age) if outage.departure else 0.0
        if age <= base[0]:
            found = float(_mean(kept.look(now - np.array(base))[0]))
        else:  # the base repeats
            found = float(kept.look(np.array([now - base[0]]))[0][0])
            found -= outage.departure * np.exp(-self.fades * (age - base[0])) if outage.departure else 0.0
        if not np.isfinite(found):
            x, _, _ = kept.look(now - np.arange(1, self.back + 1))
            found = float(x[np.isfinite(x).argmax()])
        seasons = -(-age // base[0]) if len(base) == 1 else 1.0
        said = 1.0 - left**2 if outage.departure else 1.0
        deviation = NORMAL * min(outage.size * np.sqrt(seasons), outage.most) * np.sqrt(said)
        return found + outage.departure * left, deviation * outage.counts, age

    def taken(self) -> None:
        """The rows that were filled in last become older than the next ones."""
        if self._new is not None:
            code, step, doubt = self._new
            self._ring.write(code, step, step, doubt)
            self._new = None

    def was_read(self, code: int, step: int, column: int) -> None:
        """What counted as missing in a row that is kept was a value, and stands there now."""
        slot = int(self._ring.find(np.array([code]), np.array([step]))[0])
        if slot >= 0:
            doubt = self._ring.values.reshape(-1, self._ring.channels)[slot]
            doubt[[column, column + self.columns]] = np.nan

    def doubt(self, code: Ints, step: Ints, place: Ints, off: Ints, known: slice) -> Doubt | None:
        """Of some of the inputs, (N, J, k), at the steps `step` + `off` of these series; None where all were read.

        place: of the rows on the timeline of the rows that were filled in last (`Timeline.place`), or -1.
        """
        if not self.any or not len(code):
            return None
        none = np.zeros(0, np.int64)
        new = (none, none, np.zeros((0, 2 * self.columns))) if self._new is None else self._new
        self._ring.reserve(int(code.max(initial=-1)) + 1)
        timeline = Timeline(self._ring, new[0], new[1], new[1], new[2], self.back, self.front)
        found = timeline.look(code, step, place, off, slice(None))
        if np.isnan(found).all():
            return None
        parts = found[..., : self.columns][..., known], found[..., self.columns :][..., known]
        return Doubt(*(np.nan_to_num(part) for part in parts))

    def state(self, series: int) -> dict[str, Tensor]:
        """Tensors of the first `series` series; none where no input was ever missing."""
        if not self.any:
            return {}
        self._ring.reserve(series)
        count = min(series, len(self._open))
        arrays = {"step": self._ring.step[:series], "doubt": self._ring.values[:series], "open": self._open[:count]}
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    def restore(self, tensors: dict[str, Tensor], capacity: int) -> None:
        """The inverse of `state`; rows that are kept.

        Raises:
            ValueError: the tensors do not fit.
        """
        if not tensors:
            self._forget()
            return
        step, doubt, held = (tensors[name].numpy().copy() for name in ("step", "doubt", "open"))
        if step.shape[1:] != (capacity,) or doubt.shape != (*step.shape, 2 * self.columns):
            raise ValueError(
                f"lost inputs of {doubt.shape} numbers, where (any, {capacity}, {2 * self.columns}) are wanted"
            )
        if held.shape[1:] != (self.columns, len(_Outage._fields)):
            raise ValueError(f"lost inputs of {held.shape[1:]}, where {self.columns} columns are wanted")
        self._forget()
        self.any, self._ring, self._open = True, Ring(capacity, 2 * self.columns), held
        self._ring.reserve(len(step))
        self._ring.step[:], self._ring.values[:] = step, doubt

    def put(self, code: Ints, other: LostInputs) -> None:
        """Know of the rows of these series what `other` knows of its first ones, to ask about them: no row follows."""
        if not other.any:
            return
        if not self.any:
            self.any, self._ring = True, Ring(other._ring.capacity, 2 * self.columns)
        self._ring.reserve(int(code.max(initial=-1)) + 1)
        other._ring.reserve(len(code))
        self._ring.step[code], self._ring.values[code] = other._ring.step[: len(code)], other._ring.values[: len(code)]


class _Kept:
    """The rows before one, of one series and input: those of the ring, and the new ones."""

    def __init__(
        self,
        ring: Ring,
        doubts: Ring,
        filled: Floats,
        doubt: Floats,
        code: Ints,
        step: Ints,
        new: slice,
        column: int,
    ) -> None:
        self.code = code[new.start : new.start + 1]
        self.channel = ring.channels - filled.shape[1] + column
        self.column, self.ring, self.doubts = column, ring, doubts
        self.steps, self.values, self.doubt = step[new], filled[new, column], doubt[new, column]
        self.age, self.columns = doubt[new, column + filled.shape[1]], filled.shape[1]

    def unknown(self, before: int) -> bool:
        """Whether nothing was known of the input at the row before, at this step: then nothing is known of it now."""
        if len(self.steps):
            return bool(self.age[-1] == UNKNOWN)
        slot = self.doubts.find(self.code, np.array([before]))
        age = self.doubts.values.reshape(-1, self.doubts.channels)[slot, self.column + self.columns]
        return bool(slot[0] >= 0 and age[0] == UNKNOWN)

    def look(self, step: Ints) -> tuple[Floats, Bools, Bools]:
        """(J,) values at these steps, NaN where there is none; whether there is a row; whether a value was read."""
        slot = self.ring.find(self.code, step)
        found = np.where(slot >= 0, self.ring.values.reshape(-1, self.ring.channels)[slot, self.channel], np.nan)
        own = self.doubts.find(self.code, step)
        made = np.where(own >= 0, self.doubts.values.reshape(-1, self.doubts.channels)[own, self.column], np.nan)
        there = slot >= 0
        if len(self.steps):
            at = np.minimum(np.searchsorted(self.steps, step), len(self.steps) - 1)
            hit = self.steps[at] == step
            found, made = np.where(hit, self.values[at], found), np.where(hit, self.doubt[at], made)
            there |= hit
        found[~(np.abs(found) <= LARGEST)] = np.nan
        return found, there, np.isfinite(found) & np.isnan(made)


def _bases(seasons: tuple[int, ...], back: int) -> list[tuple[int, ...]]:
    """Rows before, of each base: a season, and several short ones."""
    if not seasons:
        return [(1,)]
    short = seasons[0]
    times = min(MEAN, (back - 1) // short)
    found = [(season,) for season in seasons if season <= back]
    return found + [tuple(short * part for part in range(1, times + 1))] * (times > 1)


def _mean(values: Floats) -> Floats:
    """The mean over the first axis of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(0) / np.where(known.any(0), known.sum(0), np.nan))
