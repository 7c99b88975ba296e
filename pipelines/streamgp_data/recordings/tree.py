"""Numeric arrays with names, as HDF5 and MATLAB have them, to signals: which array is whose time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from streamgp.errors import DataError, UsageError
from streamgp_data.recordings.recording import BLOCK, WIDEST, Lost, SignalBlock, Times, Values, Wanted, tidy

_TIME = re.compile(r"(?:^|_)(?:t|time|times|timestamp|timestamps|stamp|ts|clock)(?:_(?:ns|us|ms|s))?$", re.IGNORECASE)
_SCALES = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "seconds": 10**9, "sec": 10**9, "second": 10**9}
_SCALES |= {"milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1, "µs": 10**3}
_SCALES |= {"minutes": 60 * 10**9, "hours": 3600 * 10**9, "days": 86_400 * 10**9}
_YEARS = 315_532_800, 4_102_444_800  # seconds: 1980 to 2100
_DATA = ("data", "value", "values", "signals")


SECONDS = -1


class Leaf(NamedTuple):
    """One array. path: its names from the root. array: has shape, dtype and [start:stop]. unit: "" where none."""

    path: tuple[str, ...]
    array: Any
    unit: str = ""

    @property
    def length(self) -> int:
        return max(self.array.shape, default=0)

    @property
    def vector(self) -> bool:
        """Whether it is one row or one column."""
        return int(np.prod(self.array.shape)) == self.length

    @property
    def name(self) -> str:
        return tidy("/".join(self.path))


class Tree:
    """A Recording over the numeric arrays of a file.

    A vector called t, time, timestamp or the like is the time of the arrays of its length beside it, else of those
    below it, else of those beside its parent (dSPACE: X.Data of Y.*.Data). `--time NAME` says which it is for the
    arrays of its length that have none nearer. An array with several is left out, unless nothing else is wanted.

    Args:
        leaves: the arrays. left_out: what is none -> why. close: ends the reading of the file.
        time: of --time. form: of --time-format. look: whether what cannot be read is left out, and is no error.
        interval: nanoseconds between samples, whose number is their time (--time row --every); SECONDS: a second,
            where no vector is a time.
    """

    def __init__(
        self,
        leaves: list[Leaf],
        left_out: dict[str, str],
        close: Callable[[], None],
        time: str | None = None,
        form: str | None = None,
        look: bool = False,
        interval: int | None = None,
    ) -> None:
        self._close = close
        self.units: dict[str, str] = {}
        self.left_out = left_out
        self.place = ""
        self._leaves, self._form, self._look = leaves, form, look
        self._given = None
        if time is not None:
            self._given = next((leaf for leaf in leaves if leaf.name == time and leaf.vector), None)
            if self._given is None:
                names = ", ".join(leaf.name for leaf in leaves if leaf.vector)
                raise UsageError(f"--time {time!r}: there is no such vector", hint=f"there are: {names[:500]}")
        self._times = [leaf for leaf in leaves if leaf.vector and leaf.length > 1 and self._is_time(leaf)]
        self._interval = interval
        if interval == SECONDS:
            self._interval = None if self._times else 10**9

    def blocks(self, wanted: Wanted) -> Iterator[SignalBlock | Lost]:
        """The arrays of one time together, in slices.

        Raises:
            UsageError: of every wanted array, several vectors could be the time.
        """
        together: dict[int, list[tuple[Leaf, int, list[str]]]] = {}
        unsure: UsageError | None = None
        for leaf in self._leaves:
            if any(leaf is one for one in (*self._times, self._given)) or leaf.length < 2:
                continue
            self.place = leaf.name
            times = self._times_of(leaf) if self._interval is None else []
            time = times[0] if times else None
            if time is None and self._interval is None:
                without = f"{leaf.length:,} values without a time"
                self.left_out[leaf.name] = f"{without}: --time NAME names the vector of it, or --time row --every 10ms"
            elif isinstance(split := self._split(leaf, leaf.length if time is None else time.length), str):
                self.left_out[leaf.name] = split
            elif not any(wanted(name) for name in split[1]):
                continue
            elif time is None:
                together.setdefault(-leaf.length, []).append((leaf, *split))
            elif len(times) > 1:
                names, name = ", ".join(one.name for one in times), split[1][0] if len(split[1]) == 1 else leaf.name
                self.left_out[name] = f"{names} could each be its time: --time {time.name}"
                unsure = unsure or UsageError(f"{names} could each be the time of {name}", hint=f"--time {time.name}")
            else:
                at = next(at for at, one in enumerate(self._leaves) if one is time)
                together.setdefault(at, []).append((leaf, *split))
        if unsure is not None and not together and not self._look:
            raise unsure
        for at, parts in together.items():
            if at < 0:  # their number is their time
                yield from self._sliced(None, (self._interval or 0, 0), parts, wanted)
                continue
            try:
                counts = self._scale(self._leaves[at])
            except DataError as error:
                if not self._look:
                    raise
                self.left_out |= {leaf.name: f"{error.message}: {error.hint}" for leaf, _, _ in parts}
            else:
                yield from self._sliced(self._leaves[at], counts, parts, wanted)
        self._close()

    def _is_time(self, leaf: Leaf) -> bool:
        name = leaf.path[-1]
        if _TIME.search(name):
            return True
        return len(leaf.path) > 1 and leaf.path[-2].lower() == "x" and name.lower() in _DATA

    def _times_of(self, leaf: Leaf) -> list[Leaf]:
        """What could be its time: the nearest there is, several that are equally near, or none."""
        given = [one for one in (self._given,) if one is not None and one.length in leaf.array.shape]
        fits = [one for one in self._times if one.length in leaf.array.shape]
        for up in range(1, len(leaf.path) + 1):
            here = leaf.path[:-up]
            if any(one.path[:-1] == here or (one.path[: len(here)] == here and up > 1) for one in given):
                return given
            found = [one for one in fits if one.path[:-1] == here]
            found = found or [one for one in fits if one.path[: len(here)] == here and up > 1]
            if len(found) > 1:
                found = [one for one in found if one.path[-1].lower() in ("t", "time")] or found
            if found:
                return list({one.name: one for one in reversed(found)}.values())[::-1]
        return given

    def _split(self, leaf: Leaf, length: int) -> tuple[int, list[str]] | str:
        """The axis of time, and the names of the columns; or why there are none."""
        shape = leaf.array.shape
        path = leaf.path[:-1] if len(leaf.path) > 1 and leaf.path[-1].lower() in _DATA else leaf.path
        name = tidy("/".join(path))
        axis = shape.index(length)
        width = int(np.prod(shape)) // length
        if len(shape) > 2 and width > 1:
            return f"an array of {len(shape)} dimensions"
        if width > WIDEST:
            return f"{width} columns, more than {WIDEST}"
        names = [name] if width == 1 else [f"{name}.{at}" for at in range(width)]
        self.units |= {one: leaf.unit for one in names if leaf.unit}
        return axis, names

    def _sliced(
        self, time: Leaf | None, counts: tuple[int, int], parts: list[tuple[Leaf, int, list[str]]], wanted: Wanted
    ) -> Iterator[SignalBlock]:
        scale, zero = counts
        step = max(1024, (16 * BLOCK) // sum(len(names) for _, _, names in parts))
        length = parts[0][0].length if time is None else time.length
        for start in range(0, length, step):
            if time is None:
                times = np.arange(start, min(start + step, length), dtype=np.int64) * scale
            else:
                times = _nanoseconds(_slice(time, time.array.shape.index(time.length), start, step)[:, 0], scale, zero)
            found: dict[str, Values] = {}
            for leaf, axis, names in parts:
                self.place = f"{leaf.name}, value {start + 1}"
                values = _slice(leaf, axis, start, step).astype(np.float64)
                found |= {name: values[:, at] for at, name in enumerate(names) if wanted(name)}
            yield SignalBlock(times, found)

    def _scale(self, time: Leaf) -> tuple[int, int]:
        """Nanoseconds of one unit of a time, and of its zero since 1970.

        Raises:
            DataError: whole numbers of no known unit.
        """
        if self._form is not None:
            found = re.fullmatch(r"(?:epoch|elapsed)-(s|ms|us|ns)", self._form)
            if found is None:
                raise UsageError(f"--time-format {self._form}: times are numbers here", hint="such as elapsed-ms")
            return _SCALES[found[1]], 0
        unit, _, since = time.unit.lower().partition(" since ")
        if unit.strip() in _SCALES:
            return _SCALES[unit.strip()], _since(since) if since else 0
        suffix = re.search(r"_(ns|us|ms|s)$", time.path[-1].lower())
        if suffix is not None:
            return _SCALES[suffix[1]], 0
        first = float(np.asarray(time.array[0:1]).reshape(-1)[0])
        for name in ("s", "ms", "us", "ns"):
            if _YEARS[0] <= first * _SCALES[name] / 10**9 <= _YEARS[1]:
                return _SCALES[name], 0
        if np.issubdtype(time.array.dtype, np.floating):
            return 10**9, 0
        raise DataError(
            f"{time.name}: whole numbers that count from a start, in an unknown unit",
            hint="say it: --time-format elapsed-ms, elapsed-us, elapsed-ns or elapsed-s",
        )


def _slice(leaf: Leaf, axis: int, start: int, step: int) -> Any:
    """(N, W) the values from `start` on along the axis of time."""
    values = np.asarray(leaf.array[(slice(None),) * axis + (slice(start, start + step),)])
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def _since(text: str) -> int:
    """The zero of a CF convention's unit ("seconds since 1970-01-01 00:00:00"), in nanoseconds since 1970."""
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix(" utc").replace(" +", "+"))
    except ValueError:
        raise DataError(f"times since {text!r}", hint="say their unit with --time-format") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return round(moment.timestamp() * 10**6) * 1000


def _nanoseconds(clock: Any, scale: int, zero: int) -> Times:
    """Numbers as nanoseconds; those that are none as the least int64, which no sample may have.

    Example:
        >>> _nanoseconds(np.array([0.5, np.nan]), 10**9, 0).tolist()
        [500000000, -9223372036854775808]
        >>> _nanoseconds(np.array([1700000000.123456]), 10**9, 0).tolist()
        [1700000000123456000]
    """
    least = np.iinfo(np.int64).min
    with np.errstate(all="ignore"):
        near = clock.astype(np.float64) * scale + zero
        good = np.abs(near) < 2.0**62  # NaN is not
        if np.issubdtype(clock.dtype, np.integer):
            found = clock.astype(np.int64) * scale + zero
        else:
            whole = np.where(good, np.floor(clock.astype(np.float64)), 0.0)
            part = np.where(good, clock.astype(np.float64) - whole, 0.0)
            digits = 9 if np.abs(whole).max(initial=0) < 2**22 else 6  # what a float64 of that size can tell apart
            fraction = np.round(part * scale) if scale < 10**9 else np.round(part * 10**digits) * 10 ** (9 - digits)
            found = whole.astype(np.int64) * scale + fraction.astype(np.int64) + zero
    return np.where(good, found, least)
