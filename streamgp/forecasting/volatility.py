"""How large recent errors are: the volatility of each series, and the profile of the steps ahead."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from streamgp.base import Shape
from streamgp.forecasting.streams import Bools, Floats, Ints, StreamIndex, blocks, firsts, longer

HALF_LIVES = np.array([0.25, 1.0, 3.0])
"""Cycles after which an absolute error counts half, in the fast, the daily and the slow volatility."""
AT_ONCE, SHARE = 3, 0.7
"""Rows whose median error, times this share, is the volatility at once; of one step ahead two rows more. Nothing limits
it. The error of a row is the median |error| of its steps: in a new regime all are about as large, and fewer times that
covers them. One spike does not move it: of a row after it only the step is wrong whose forecast began at the spike, and
of one step ahead that is the row after it alone."""
FOLLOWED, LATEST = 3.0, 8
"""The error of a row is at most `FOLLOWED` times the median of its shortest steps, one in `LATEST` of them and no fewer
than three. Their forecasts began last: where a model follows a jump they are right, and most others began before it. In
the weighted means errors no larger than the present volatility count in full; after H limited rows all do."""
JUMPS = np.array([0.7, 0.3, 0.15])
"""(3,) Log excess of the volatility at once, the fast and the daily over the slow one that is taken for noise; twice it
counts in full."""
START = 2
"""Rows that the raw standard deviation of a series' first forecast counts as, in its volatility: that of a mix whose
experts begin far apart is several times its error, and the slow volatility of months would remember it for years."""
SPIKE = 5.0
"""An absolute error counts as at most this many times the present one: one spike does not widen bands for long."""
LASTING = 4
"""Rows whose errors arrive together, from which on their median counts as present for the next: what is large and lasts
is no spike."""
PROFILE_CYCLES = 0.7 * 28
"""Half-life in cycles of the profile of the steps."""
TINY = 1e-300
MOST_HALVINGS = 500
"""Powers of 2 that a weight may grow by in a sum: float64 has 1023."""


OF_ERRORS, OF_PROFILE = range(2)
"""Places in the last axis of sums: of |errors|, and of what the profile promised of them."""
FAST = 0
"""Place of the fast volatility in the axis of HALF_LIVES."""


class Errors(NamedTuple):
    """Errors that became known now, truth − mean. A rows in the order in which they became current, P errors.

    Attributes:
        series: (A,) codes of the rows.
        row: (P,) of the A rows.
        column: (P,) output column.
        error: (P,) target units.
    """

    series: Tensor
    row: Tensor
    column: Tensor
    error: Tensor


class KnownErrors(NamedTuple):
    """The errors that N forecasts know of, of O outputs.

    Attributes:
        sums: (N, O, 3, 2) behind the fast, the daily and the slow volatility.
        newest: (N, O, J) median |error| of the last rows that had one, over the profile; 0 where there were none.
    """

    sums: Floats
    newest: Floats

    def rows(self, rows: Ints) -> KnownErrors:
        """Of these forecasts, (R,)."""
        return KnownErrors(self.sums[rows], self.newest[rows])


class LogVolatility(NamedTuple):
    """Logarithms of the size of errors that N forecasts know of, of O outputs.

    Attributes:
        at_once: (N, O) of the last rows.
        fast, daily, slow: (N, O) weighted means, see HALF_LIVES.
    """

    at_once: Floats
    fast: Floats
    daily: Floats
    slow: Floats


class Volatility:
    """What `bands.Bands` knows of the size of errors: v and a of its docstring.

    Args:
        shape: what the model is built for.
        cycle: rows of a cycle.
        apart: whether each series is a stream of its own, with a profile of its own.
        start: rows that the raw standard deviation of a series' first forecast counts as.
    """

    def __init__(self, shape: Shape, cycle: float, apart: bool = False, start: float = START) -> None:
        self.shape, self.cycle, self.apart, self._start = shape, cycle, apart, start
        outputs = shape.outputs
        self._decay = 0.5 ** (1 / (HALF_LIVES * cycle))  # (3,) a row
        self._errors = np.zeros((0, outputs, 3, 2))  # (S, O, 3, 2) weighted sums, OF_ERRORS and OF_PROFILE
        newest = AT_ONCE if shape.horizon > 1 else AT_ONCE + 2
        self._newest = np.zeros((0, outputs, newest))  # (S, O, J) of `KnownErrors`
        self._raw = np.zeros((0, outputs))  # (S, O) mean |error| that the first forecast of the series promised
        self._latest = np.zeros((0, outputs))  # (S, O) median |error| of the rows that came last
        self._limited = np.zeros((0, outputs))  # (S, O) rows limited by their shortest steps, since the last usual one
        self._steps = np.zeros((1 - apart, 2, outputs, shape.horizon))  # weights, weighted |error| over the volatility

    def _streams(self, series: Ints) -> StreamIndex:
        """The streams of rows of these series, (R,)."""
        if self.apart:
            return StreamIndex.of(series)
        return StreamIndex(np.zeros(1, np.int64), np.zeros(len(series), np.int64))

    def _follow(self, errors: Errors, profile: Floats, at: Ints) -> KnownErrors | None:
        """Take in errors; what forecasts at each of the A rows know of them, None without rows.

        profile: (K, O, H) of the streams; at: (A,) which of them each row belongs to.
        """
        outputs, horizon, rows = self.shape.outputs, self.shape.horizon, len(errors.series)
        if not rows:
            return None
        series, row, column = errors.series.numpy(), errors.row.numpy(), errors.column.numpy()
        output, promised = column // horizon, np.exp(profile).reshape(len(profile), -1)[at[row], column]
        held, local = StreamIndex.of(series)
        present = np.exp(self._volatility(self._errors[held], self._raw[held]).max(-1))  # (B, O) of B series
        size, place = np.abs(errors.error.numpy()), row * outputs + output
        limit = SPIKE * np.maximum(np.maximum(present, self._latest[held]), self._raw[held])
        # a question must not see the rows after its own
        self._latest[held] = self._median(size, promised, place, local, self._latest[held])
        of_row = np.full((rows * outputs, horizon), np.nan)
        of_row[place, column % horizon] = size / promised
        middle, followed = _middle(of_row), FOLLOWED * _middle(of_row[:, : max(3, horizon // LATEST)])  # (A·O,)
        usual = present[local].reshape(-1)
        followed = self._followed(middle, np.where(np.isnan(followed), np.inf, followed), usual, local, held)
        size = np.minimum(size, np.maximum(followed, usual)[place] * promised)
        size = np.minimum(size, limit[local[row], output] * promised)
        middle = np.minimum(middle, followed)
        parts = [*(np.bincount(place, part, rows * outputs) / horizon for part in (size, promised)), middle]
        new: Floats = np.stack(parts, -1).reshape(rows, outputs, 3)
        found = KnownErrors(np.empty((rows, outputs, 3, 2)), np.empty((rows, *self._newest.shape[1:])))
        for block in blocks(local, len(held)):
            own, laid = held[block.own], block.laid(new, 0.0)
            of_sums, middle = laid[..., :-1], laid[..., -1]
            sums = self._decayed(of_sums, self._errors[own])
            newest = _newest(middle, of_sums[..., OF_PROFILE] > 0, self._newest[own])
            block.put(found.sums, sums)
            block.put(found.newest, newest)
            self._errors[own], self._newest[own] = sums[:, -1], newest[:, -1]
        return found

    def _followed(self, middle: Floats, followed: Floats, usual: Floats, series: Ints, held: Ints) -> Floats:
        """(A·O,) what the errors of a row are limited to: no longer by its shortest steps, once those of H rows were.

        By then all forecasts began after the jump; where most steps are still wrong, the model does not follow it. Rows
        with usual errors end the count.

        Args:
            middle: (A·O,) the median |error| of each row, NaN where none is known.
            followed: (A·O,) what its shortest steps allow.
            usual: (A·O,) the volatility before these rows.
            series: (A,) of the rows, of B.
            held: (B,) codes of the series.
        """
        limited = middle > np.maximum(followed, usual)
        if not limited.any() and not self._limited[held].any():
            return followed
        outputs = self.shape.outputs
        flags = np.stack([limited, middle <= usual], -1).reshape(-1, outputs, 2).astype(np.float64)
        found = np.zeros((len(flags), outputs))
        for block in blocks(series, len(held)):
            own = held[block.own]
            counted, ends = np.moveaxis(block.laid(flags, 0.0), -1, 0)  # (B, N, O) each
            count = counted.cumsum(1) + self._limited[own][:, None]
            rows = count - np.maximum.accumulate(np.where(ends > 0, count, 0.0), 1)
            block.put(found, rows)
            self._limited[own] = rows[:, -1]
        return np.where(found.reshape(-1) > self.shape.horizon, np.inf, followed)

    def _decayed(self, new: Floats, before: Floats) -> Floats:
        """(B, N, O, 3, 2) the sums after each of N rows, y ← λy + (1 − λ)x where x is known.

        new: (B, N, O, 2) errors and profiles, 0 where not known; before: (B, O, 3, 2).

        As no term is negative, the sum of λ⁻ʲx, times λʲ, has all digits of it, while λ⁻ʲ does not overflow.
        """
        known = (new[..., OF_PROFILE] > 0).cumsum(1)  # (B, N, O)
        found, most = np.empty((*known.shape, 3, 2)), max(int(MOST_HALVINGS / -np.log2(self._decay[FAST])), 1)
        for start in range(0, known.shape[1], most):
            rows = slice(start, start + most)
            count = known[:, rows] - (known[:, start - 1 : start] if start else 0)
            power = self._decay ** np.arange(min(most, known.shape[1]) + 1)[:, None]  # (J, 3)
            part = ((1 - self._decay) / power)[count][..., None] * new[:, rows, :, None]
            part[:, 0] += before
            found[:, rows] = power[count][..., None] * part.cumsum(1)
            before = found[:, rows][:, -1]
        return found

    def _median(self, size: Floats, promised: Floats, place: Ints, series: Ints, before: Floats) -> Floats:
        """(B, O) the median over rows of their mean |error|, in units of the profile; as before where rows are few.

        Args:
            size, promised: (P,) |errors| and what the profile promises of them.
            place: (P,) row · O + output of each.
            series: (A,) of the rows, of B.
            before: (B, O) the medians before.
        """
        outputs = self.shape.outputs
        total, weight = (np.bincount(place, part, len(series) * outputs) for part in (size, promised))
        mean = np.divide(total, weight, out=np.full(len(total), np.nan), where=weight > 0).reshape(-1, outputs)
        found = before.copy()
        for block in blocks(series, len(before)):
            laid = block.laid(mean, np.nan)
            known, middle = (~np.isnan(laid)).sum(1), _middle(laid)  # (B, O) each
            found[block.own] = np.where(known >= LASTING, middle, found[block.own])
        return found

    def _volatility(self, sums: Floats, raw: Floats) -> Floats:
        """(..., O, 3, 2) sums, (..., O) promised -> (..., O, 3) log volatility, at least a thousandth of `raw`."""
        known = sums[..., OF_ERRORS] / np.maximum(sums[..., OF_PROFILE], TINY)
        return np.asarray(np.log(np.maximum(known, 1e-3 * raw[..., None] + TINY)))

    def _seen(self, series: Ints) -> KnownErrors:
        """What is known of the errors of these series (N,)."""
        return KnownErrors(self._errors[series], self._newest[series])

    def _logs(self, seen: KnownErrors, raw: Floats) -> LogVolatility:
        """raw: (N, O) promised."""
        at_once = np.log(SHARE * np.sort(seen.newest, -1)[..., seen.newest.shape[-1] // 2] + TINY)
        return LogVolatility(at_once, *np.moveaxis(self._volatility(seen.sums, raw), -1, 0))

    def _meet(self, series: Ints, deviation: Floats, profile: Floats) -> None:
        """A new series starts with the standard deviations of its first forecast; all (N, ...)."""
        if not len(series):
            return
        codes, first = firsts(series)
        new = self._errors[codes, :, FAST, OF_PROFILE].max(1) == 0
        codes, first = codes[new], first[new]
        promised = 0.8 * np.exp(np.log(deviation[first] + TINY) - profile[first]).mean(-1)  # (n, O): E|x| of a normal x
        weight = 1 - self._decay**self._start
        self._raw[codes] = promised
        self._errors[codes] = np.stack([promised[..., None] * weight, np.ones_like(promised)[..., None] * weight], -1)

    def _begin_profile(self, streams: StreamIndex, deviation: Floats) -> None:
        """A new stream starts with the profile of its first forecast, among those of (N, O, H)."""
        k, first = firsts(streams.at)
        of_profile, _ = np.moveaxis(self._steps[streams.own[k]], 1, 0)
        new = ~of_profile.any((1, 2))
        start = np.maximum(deviation[first[new]], TINY)
        weight = np.full_like(start, self.cycle / 2)
        self._steps[streams.own[k[new]]] = np.stack([weight, weight * start / start.mean(2, keepdims=True)], 1)

    def _profile(self, own: Ints) -> Floats:
        """(K, O, H) of these streams, log of the mean |error| of each step over that of all."""
        weight, total = np.moveaxis(self._steps[own], 1, 0)
        ratio = np.where(weight > 0, total / np.maximum(weight, TINY), 1.0)
        return np.asarray(np.log(np.maximum(ratio / np.maximum(ratio.mean(2, keepdims=True), TINY), 1e-6)))

    def _shape_of_steps(
        self, size: Floats, base: Floats, column: Ints, streams: StreamIndex, passed: Floats, series: Ints
    ) -> None:
        """Update the profiles; what all steps share is the volatility's, and is divided out.

        passed, series: (K,) cycles, and how many series each stream has.
        """
        count, columns = len(streams.own), self.shape.columns
        profile = np.exp(self._profile(streams.own)).reshape(count, -1)[streams.at, column]
        with np.errstate(over="ignore"):
            ratio = np.minimum(size / np.maximum(np.exp(base) / profile, TINY), SPIKE)
        sums = (np.bincount(streams.at, part, count) for part in (ratio, profile))
        ratio = ratio / np.maximum(np.divide(*sums), 1e-9)[streams.at]
        place = streams.at * columns + column
        new = np.stack([np.bincount(place, part, count * columns) for part in (np.ones_like(ratio), ratio)])
        new = np.moveaxis(new.reshape(2, count, -1), 1, 0).reshape(self._steps[streams.own].shape)
        kept = 0.5 ** (passed / PROFILE_CYCLES)
        self._steps[streams.own] = (
            kept[:, None, None, None] * self._steps[streams.own] + new / series[:, None, None, None]
        )

    def reserve(self, series: int) -> None:
        """Room for this many series."""
        self._reserve(np.array([series - 1]))

    def _reserve(self, *codes: Ints) -> None:
        """Room for every series named."""
        grown = max(int(part.max()) + 1 if len(part) else 0 for part in codes) - len(self._raw)
        if grown > 0:
            for name in ("errors", "newest", "raw", "latest", "limited", *(("steps",) if self.apart else ())):
                setattr(self, f"_{name}", longer(getattr(self, f"_{name}"), grown))


def _middle(values: Floats) -> Floats:
    """(R, H, ...) -> (R, ...) the median of what is not NaN, the lower one of two; NaN where nothing is."""
    known = (~np.isnan(values)).sum(1, keepdims=True)
    middle = (np.maximum(known, 1) - 1) // 2
    return np.asarray(np.take_along_axis(np.sort(values, 1), middle, 1)[:, 0])  # NaN last


def _newest(error: Floats, known: Bools, before: Floats) -> Floats:
    """(B, N, O, J) the errors of the last rows that had one, at each of N rows, oldest first.

    Args:
        error: (B, N, O) of rows.
        known: (B, N, O) whether there is one.
        before: (B, O, J) those before the first row.
    """
    count, kept = known.cumsum(1), before.shape[2]  # (B, N, O)
    room = np.zeros((before.shape[0], kept + error.shape[1] + 1, before.shape[1]))
    room[:, :kept] = before.swapaxes(1, 2)
    np.put_along_axis(room, np.where(known, kept - 1 + count, room.shape[1] - 1), error, 1)
    return np.stack([np.take_along_axis(room, count + back, 1) for back in range(kept)], -1)
