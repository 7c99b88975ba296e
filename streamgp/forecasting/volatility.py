"""How large errors are of late: the volatility of each series, and the profile of the steps ahead."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Shape

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

HALF_LIVES = np.array([0.25, 1.0, 3.0])
"""Cycles after which an absolute error counts half, in the fast, the daily and the slow volatility."""
JUMP = 0.15
"""Log excess of the daily over the slow volatility that is taken for noise; twice as much is believed in full."""
START = 12
"""Rows that the raw standard deviation of a series' first forecast counts as, in its volatility."""
SPIKE = 5.0
"""An absolute error counts as at most so many times the present one: one spike does not widen bands for long."""
LASTING = 4
"""Rows whose errors arrive together, from which on their median counts as present for the next: what is large and lasts
is no spike."""
PROFILE_CYCLES = 0.7 * 28
"""Half-life in cycles of the profile of the steps."""
TINY = 1e-300


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


class Volatility:
    """What `bands.Bands` knows of the size of errors: v and a of its docstring.

    Args:
        shape: what the model is built for.
        cycle: rows of a cycle.
    """

    def __init__(self, shape: Shape, cycle: float) -> None:
        self.shape, self.cycle = shape, cycle
        outputs = shape.outputs
        self._decay = 0.5 ** (1 / (HALF_LIVES * cycle))  # (3,) a row
        self._errors = np.zeros((0, outputs, 3, 2))  # (S, O, 3, 2) weighted sums of |error| and of the profile
        self._raw = np.zeros((0, outputs))  # (S, O) mean |error| that the first forecast of the series promised
        self._latest = np.zeros((0, outputs))  # (S, O) median |error| of the rows that came last
        self._steps = np.zeros((2, outputs, shape.horizon))  # weights, and weighted |error| over the volatility

    def _follow(self, errors: Errors, profile: Floats) -> Floats | None:
        """Take in errors; (A, O, 3, 2) the volatility sums behind each of the A rows, None without rows.

        A parallel prefix sum of the affine maps x → m·x + b, so that no loop goes over the rows.
        """
        outputs, horizon, rows = self.shape.outputs, self.shape.horizon, len(errors.series)
        if not rows:
            return None
        series, row, column = errors.series.numpy(), errors.row.numpy(), errors.column.numpy()
        output, promised = column // horizon, np.exp(profile).reshape(-1)[column]
        present = np.exp(self._volatility(self._errors, self._raw).max(-1))  # (S, O)
        size, place = np.abs(errors.error.numpy()), row * outputs + output
        limit = SPIKE * np.maximum(np.maximum(present, self._latest), self._raw)
        self._latest = self._median(size, promised, place, series)  # a question must not see the rows after its own
        size = np.minimum(size, limit[series[row], output] * promised)
        parts = [np.bincount(place, part, rows * outputs) for part in (size, promised)]
        new: Floats = np.stack(parts, -1).reshape(rows, outputs, 1, 2) / horizon
        order = np.argsort(series, kind="stable")
        new, held = new[order], series[order]
        known = new[..., 1:] > 0  # (A, O, 1, 1)
        rate = self._decay[:, None]
        m = np.where(known, rate, 1.0) + np.zeros((rows, outputs, 3, 2))
        b = np.where(known, (1 - rate) * new, 0.0)
        first = np.append(True, held[1:] != held[:-1])
        b[first] += m[first] * self._errors[held[first]]
        m[first] = 0.0
        by = 1
        while by < rows:
            b[by:] += m[by:] * b[:-by].copy()
            m[by:] *= m[:-by].copy()
            by *= 2
        self._errors[held[np.append(first[1:], True)]] = b[np.append(first[1:], True)]
        found = np.empty_like(b)
        found[order] = b
        return found

    def _median(self, size: Floats, promised: Floats, place: Ints, series: Ints) -> Floats:
        """(S, O) the median over rows of their mean |error|, in units of the profile; as before where rows are few.

        Args:
            size, promised: (P,) |errors| and what the profile promises of them.
            place: (P,) row · O + output of each.
            series: (A,) of the rows.
        """
        outputs = self.shape.outputs
        total, weight = (np.bincount(place, part, len(series) * outputs) for part in (size, promised))
        known = np.flatnonzero(weight > 0)
        owner, mean = series[known // outputs] * outputs + known % outputs, total[known] / weight[known]
        order = np.lexsort((mean, owner))
        counts = np.bincount(owner, minlength=len(self._raw) * outputs)
        middle = np.cumsum(counts) - counts + (counts - 1) // 2
        found = self._latest.flatten()
        enough = counts >= LASTING
        found[enough] = mean[order][middle[enough]]
        return found.reshape(-1, outputs)

    def _volatility(self, sums: Floats, raw: Floats) -> Floats:
        """(..., O, 3, 2) sums, (..., O) promised -> (..., O, 3) log volatility, at least a thousandth of `raw`."""
        known = sums[..., 0] / np.maximum(sums[..., 1], TINY)
        return np.asarray(np.log(np.maximum(known, 1e-3 * raw[..., None] + TINY)))

    def _meet(self, series: Ints, deviation: Floats, profile: Floats) -> None:
        """A series that is new starts with the standard deviations of its first forecast."""
        if not len(series):
            return
        codes, first = np.unique(series, return_index=True)
        new = self._errors[codes, :, 0, 1].max(1) == 0
        codes, first = codes[new], first[new]
        promised = 0.8 * np.exp(np.log(deviation[first] + TINY) - profile).mean(-1)  # (n, O): E|x| of a normal x
        weight = 1 - self._decay**START
        self._raw[codes] = promised
        self._errors[codes] = np.stack([promised[..., None] * weight, np.ones_like(promised)[..., None] * weight], -1)

    def _profile(self, deviation: Floats) -> Floats:
        """(O, H) log of the mean |error| of each step over that of all; at first that of the first forecast."""
        weight, total = self._steps
        if len(deviation) and not weight.max():
            first = np.maximum(deviation[0], TINY)
            weight[:] = self.cycle / 2
            total[:] = weight * first / first.mean(1, keepdims=True)
        ratio = np.where(weight > 0, total / np.maximum(weight, TINY), 1.0)
        return np.asarray(np.log(np.maximum(ratio / np.maximum(ratio.mean(1, keepdims=True), TINY), 1e-6)))

    def _shape_of_steps(self, size: Floats, base: Floats, column: Ints, passed: float, series: int) -> None:
        """Update the profile; what all steps share is the volatility's, and is divided out."""
        profile = np.exp(self._profile(np.zeros((0, 1, 1)))).reshape(-1)[column]
        with np.errstate(over="ignore"):
            ratio = np.minimum(size / np.maximum(np.exp(base) / profile, TINY), SPIKE)
        ratio = ratio / max(float(ratio.sum() / profile.sum()), 1e-9)
        new = np.stack([np.bincount(column, part, self.shape.columns) for part in (np.ones_like(ratio), ratio)])
        self._steps = 0.5 ** (passed / PROFILE_CYCLES) * self._steps + new.reshape(self._steps.shape) / series

    def _reserve(self, *codes: Ints) -> None:
        """Room for every series named."""
        grown = max(int(part.max()) + 1 if len(part) else 0 for part in codes) - len(self._raw)
        if grown > 0:
            outputs = self.shape.outputs
            self._errors = np.concatenate([self._errors, np.zeros((grown, outputs, 3, 2))])
            self._raw, self._latest = (
                np.concatenate([part, np.zeros((grown, outputs))]) for part in (self._raw, self._latest)
            )
