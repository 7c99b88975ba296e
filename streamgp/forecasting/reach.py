"""How far quantiles of a series may lie beyond all values that it has had: no farther than values have come of late.

Calibrated bands are the errors of the past, in units that follow the volatility. Far ahead and after a surprise they
were several times as wide as all that a series had ever shown: a wind farm between 0 and 128 MW had a 95 % band from
−140 to 244. Of each series and output the largest value is kept, and how much that rose within two horizons, a horizon
being H of its values, as rows without one do not count:

    no quantile > largest + rise + BEYOND · (largest − smallest),      the same below,

with `rise` the largest of these, each counting less as the series has more values: r · k₀/k, k₀ horizons after the
first it was seen, k there are now. A random walk sets new records all the time and is not held; what stays within a
range is. There is no limit before `FEWEST` values and three horizons, nor on a side where the point itself is beyond
it. What a micro-batch adds counts once it is over, but that the values of a question's window, the L newest, are within
reach at once.
"""

from __future__ import annotations

import numpy as np

from streamgp.forecasting.streams import Bools, Floats, Ints, StreamIndex, blocks, longer
from streamgp.state import Arrays, Declared

BEYOND = 0.1
"""Share of the range of all values that quantiles may lie beyond it at least."""
FEWEST, HORIZONS = 200, 3
"""Values, and horizons, that a series must have had; rises of the first two horizons do not count."""
SIDES = np.array([1.0, -1.0])
_STATE = ("highest", "start", "before", "risen")


class Reach(Declared):
    """The range of the values of each series, and how it grew; Stateful. Below, values are those of −y.

    Args:
        outputs: O.
        horizon: H.

    Example:
        >>> reach, y = Reach(1, 24), np.sin(np.arange(600) / 4)[:, None]
        >>> reach.reserve(1)
        >>> reach.follow(np.zeros(600, np.int64), y)
        >>> reach.limits(np.zeros(1, np.int64), None).round(1).tolist()
        [[[-1.2, 1.2]]]
    """

    STATE = (Arrays("rows", *_STATE),)

    def __init__(self, outputs: int, horizon: int) -> None:
        self.horizon = horizon
        self._rows = np.zeros((0, outputs), np.int64)  # (S, O) with a value so far
        self._highest = np.zeros((0, outputs, 2))  # (S, O, 2) of y, and of −y
        self._start = np.zeros((0, outputs, 2))  # the same before the horizon began that the last row is in
        self._before = np.zeros((0, outputs, 2))  # and before the one before that
        self._risen = np.zeros((0, outputs, 2))  # max r · k₀

    def __len__(self) -> int:
        return len(self._rows)

    def reserve(self, series: int) -> None:
        """Room for more series."""
        self._rows = longer(self._rows, series)
        for name in _STATE:
            part = getattr(self, f"_{name}")
            empty = np.full((series, *part.shape[1:]), 0.0 if name == "risen" else -np.inf)
            setattr(self, f"_{name}", np.concatenate([part, empty]))

    def follow(self, series: Ints, y: Floats) -> None:
        """The next values (R, O) of these series (R,), in their order; NaN is none."""
        outputs = self._rows.shape[1]
        unit = (series[:, None] * outputs + np.arange(outputs))[there := np.isfinite(y)]
        held, local = StreamIndex.of(unit)
        for block in blocks(local, len(held)):
            self._take(held[block.own], block.laid(y[there], np.nan), block.there)

    def limits(self, series: Ints, past: Floats | None) -> Floats:
        """(N, O, 2) the lowest and the highest that a quantile may be; infinite where there is no limit.

        Args:
            series: (N,)
            past: (N, L, O) the newest values, which may not have been followed; None: they have been.
        """
        highest, rows = self._highest[series], self._rows[series][..., None]
        if past is not None and past.shape[1]:
            highest = np.maximum(highest, np.fmax.reduce(past[..., None] * SIDES, 1, initial=-np.inf))
        with np.errstate(over="ignore", invalid="ignore"):
            rise = self._risen[series] / np.maximum((rows - 1) // self.horizon, 1)
            found = highest + np.fmax(rise, highest - self._before[series]) + BEYOND * highest.sum(-1, keepdims=True)
        known = (rows >= FEWEST) & (rows > HORIZONS * self.horizon) & np.isfinite(found)
        return np.asarray((np.where(known, found, np.inf) * SIDES)[..., ::-1])

    def _take(self, own: Ints, y: Floats, there: Bools) -> None:
        """Values (B, N) of units (B,), the outputs of series, where they are there (B, N): first of all rows."""
        count, horizon = there.sum(1), self.horizon
        of_units = [getattr(self, f"_{name}").reshape(-1, 2) for name in _STATE]
        rows, (highest, start, before, risen) = self._rows.reshape(-1)[own], (part[own] for part in of_units)
        values = np.where(there[..., None], y[..., None] * SIDES, -np.inf)
        run = np.maximum.accumulate(np.concatenate([highest[:, None], values], 1), 1)  # (B, 1 + N, 2)
        of_last = (rows - 1) // horizon  # the horizon that the last row before these is in

        def before_horizon(k: Ints) -> Floats:
            """(B, M, 2) what was highest before horizon k (B, M) began, of those from the one before these on."""
            at = np.clip(k * horizon - rows[:, None], 0, y.shape[1])
            gone = (k - of_last[:, None])[..., None]
            found = np.take_along_axis(run, at[..., None], 1)
            return np.where(gone < 0, before[:, None], np.where(gone == 0, start[:, None], found))

        k = (rows[:, None] + np.arange(y.shape[1])) // horizon  # (B, N)
        with np.errstate(over="ignore", invalid="ignore"):
            rise = (run[:, 1:] - before_horizon(k - 1)) * k[..., None]
        rise = np.where((there & (k >= HORIZONS - 1))[..., None] & np.isfinite(rise), rise, 0.0)
        last = ((rows + count - 1) // horizon)[:, None]
        ended = np.concatenate([before_horizon(last - back) for back in (0, 1)], 1)
        new = run[np.arange(len(own)), count], ended[:, 0], ended[:, 1], np.maximum(risen, rise.max(1))
        self._rows.reshape(-1)[own] = rows + count
        for part, found in zip(of_units, new, strict=True):
            part[own] = found
