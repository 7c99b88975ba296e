"""Caps on upper quantiles of targets that are often 0, by errors in units of the raw deviation.

Calibrated quantiles follow the volatility. Where truths are rare and large (rain, orders, lights) it jumps with each
of them and says nothing of the next: upper quantiles were up to five times the true ones. Of outputs that are 0 or more
and often 0 (`bounds`), errors over the raw standard deviation are counted, by phase and group of steps, shrunk to all
and to a logistic distribution. A quantile p above ½ is then at most

    point + raw standard deviation · Q(1 − (1 − p)/LESS)

with Q of these counts, unless the pinball loss of the highest quantile, a discounted sum, is more by the share ALLOWED.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamgp.forecasting.error_shape import BINS, EDGES, LOGISTIC, SHAPE_CYCLES, located
from streamgp.forecasting.streams import longer
from streamgp.state import Arrays, Declared

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

LESS = 2.0
"""A cap is exceeded this many times less often than the quantile that it caps."""
ALLOWED = 0.02
"""Share of the loss that caps may cost: less is chance, and one quantile far too high is worse."""
TO_ALL, TO_PRIOR = 100.0, 50.0
"""Rows that a cell must have seen to count half beside all, and all beside a logistic distribution."""
_STATE = ("counts", "lost")


class Caps(Declared):
    """Counts of errors over raw standard deviations of each unit, and what caps have saved; Stateful.

    Args:
        units: U.
        phases: blocks of a cycle.
        groups: of steps.
        horizon: H.
    """

    STATE = (Arrays(*_STATE),)

    def __init__(self, units: int, phases: int, groups: int, horizon: int) -> None:
        self.horizon = horizon
        self._counts = np.zeros((units, phases, groups, BINS))
        self._lost = np.zeros((units, 2))  # of the highest quantile, without and with caps

    def reserve(self, units: int) -> None:
        """Room for this many more units."""
        for name in _STATE:
            setattr(self, f"_{name}", longer(getattr(self, f"_{name}"), units))

    def earned(self, units: Ints) -> Bools:
        """(V,) whether caps have cost next to nothing."""
        without, capped = self._lost[units].T
        return np.asarray(capped <= (1 + ALLOWED) * without)

    def table(self, units: Ints, p: Floats) -> Floats:
        """(V, phases, groups, Q) caps of quantiles p (Q,) above ½, in raw standard deviations from the point."""
        counts = self._counts[units]
        whole = counts.sum((1, 2), keepdims=True)
        whole = (whole + TO_PRIOR * LOGISTIC) / (whole.sum(-1, keepdims=True) + TO_PRIOR)
        cells = (counts + TO_ALL * whole) / (counts.sum(-1, keepdims=True) + TO_ALL)
        wanted = np.broadcast_to(1 - (1 - p) / LESS, (cells[..., 0].size, len(p)))
        return located(cells.reshape(-1, BINS), wanted).reshape(*cells.shape[:3], -1)

    def learn(self, units: Ints, at: tuple[Ints, Ints, Ints], scaled: Floats, lost: Floats, passed: Floats) -> None:
        """Learn from the truths of units (V,).

        Args:
            units: that learn.
            at: (R,) which of these, block of the cycle, group of steps.
            scaled: (R,) errors in raw standard deviations.
            lost: (R, 2) pinball losses of the highest quantile, without and with caps; NaN: not known.
            passed: (V,) cycles.
        """
        kept = 0.5 ** (passed / SHAPE_CYCLES)
        counts = self._counts[units] * kept[:, None, None, None]
        bins = np.clip(np.searchsorted(EDGES, scaled) - 1, 0, BINS - 1)
        cell = np.ravel_multi_index((*at, bins), counts.shape)
        self._counts[units] = counts + np.bincount(cell, minlength=counts.size).reshape(counts.shape) / self.horizon
        new = np.nan_to_num(lost)
        both = [np.bincount(at[0], new[:, part], len(units)) for part in range(2)]
        self._lost[units] = self._lost[units] * kept[:, None] + np.stack(both, 1)
