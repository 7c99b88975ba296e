"""Bands that stay calibrated: a running scale of the standardised residuals, and quantile tracking, per step ahead.

The band of level p at step h is mean + f · (quantile − mean) with f = s_h · exp(θ_hp):

    s_h    √ of the mean of z², z = (y − mean)/std of the raw distribution, over a recent past that is forgotten
           exponentially. z never contains f: a scale that saw its own output would feed on itself.
    θ_hp   θ += rate · (missed − (1 − p)) for every truth, missed = whether y lies outside the band as it was issued
           (the P term of conformal PID control, Angelopoulos, Candès & Tibshirani 2023, here on the logarithm of the
           factor). In the long run the share of misses is 1 − p whatever the distribution of z.

The scale follows changes of spread quickly, but takes the shape of the distribution for granted; the tracker knows
nothing of the shape, but is slow, above all in taking back a width that a young model's errors have earned. So the
past that the scale remembers is at first a quarter of the rows seen, and the rate grows over the first four windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Due, Json, Shape

_CAP = 8.0
"""A residual counts as at most so many times the present scale, so that one spike does not widen bands for weeks."""
_TINY = 1e-300


class Bands:
    """Multipliers of the raw quantiles' distance from the mean; Stateful. One calibration for all series.

    Args:
        shape: what the model is built for.
        levels: of the bands, in percent, between 0 and 100; none where forecasts have no bands, and then nothing is
            learned.
        window: rows of a series after which a residual counts 1/e in the scale, once four times as many were
            seen. The default is the longest of one season, seven horizons and 200 rows.
        rate: step of θ for one truth, likewise; the default is 1/window.

    Example:
        >>> from streamgp.base import Inputs
        >>> from streamgp.predictives.gaussian import Gaussian
        >>> shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
        >>> bands = Bands(shape, [80.0, 95.0])
        >>> bands.factors().tolist()
        [[1.0], [1.0]]
        >>> rows = 2000  # truths three times as far from the mean as the distribution says
        >>> y = 3 * torch.randn(rows, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> one, nil = torch.ones(rows, 1, dtype=torch.float64), torch.zeros(rows, dtype=torch.int64)
        >>> issued, none = Gaussian(0 * one, 0 * one, one), Inputs(one[:0], one[:0])
        >>> for part in y.split(100):
        ...     few = slice(0, 100)
        ...     seen = Gaussian.from_parameters(issued.parameters()[:, few])
        ...     factors = bands.factors().expand(2, 100)
        ...     bands.update(Due(*[nil[few]] * 5, part, seen, factors, none, one[:0], one[None, :0]))
        >>> bands.factors().round().tolist()
        [[3.0], [3.0]]
    """

    def __init__(
        self, shape: Shape, levels: Sequence[float], window: float | None = None, rate: float | None = None
    ) -> None:
        self.shape = shape
        self.levels = np.array(levels, dtype=np.float64) / 100
        self.window = window or max(shape.season, 7 * shape.horizon, 200)
        self.rate = 1.0 / self.window if rate is None else rate
        self._prior = max(shape.horizon, 20)  # rows that stand behind "a step is as the others, and those as 1"
        self._sums = np.zeros((2, shape.outputs, shape.horizon))  # weights, and weighted z²
        self._theta = np.zeros((len(self.levels), shape.columns))  # (K, T)
        self._age = 0.0  # rows of a series seen
        self._normal = torch.special.ndtri(torch.from_numpy(0.5 + self.levels / 2)).numpy()[:, None]  # (K, 1)

    def factors(self) -> Tensor:
        """(K, T) as they stand now. Of two levels the higher never has the narrower band."""
        grown = self._scale() * np.exp(self._theta) * self._normal  # (K, T) distance in standard deviations
        order = np.argsort(self.levels, kind="stable")
        grown[order] = np.maximum.accumulate(grown[order], 0)
        return torch.from_numpy(grown / self._normal)

    def update(self, due: Due) -> None:
        """Learn from truths that have arrived."""
        if not len(due.y) or not len(self.levels):
            return
        where, columns = due.column.numpy(), self.shape.columns
        mean = due.predictive.mean
        error = due.y[:, None] - mean
        spread = due.predictive.variance.sqrt().clamp(min=_TINY)
        present = self._scale()[where]
        z = np.minimum((error.abs() / spread)[:, 0].numpy(), _CAP * present)
        series = len(np.unique(due.series.numpy()))
        count = np.bincount(where, minlength=columns)
        passed = count / series  # rows of a series
        self._age += float(passed.mean())
        window = min(self.window, max(self._age / 4, self.shape.horizon))
        kept = np.exp(-passed / window)
        new = np.stack([count, np.bincount(where, z * z, columns)])
        self._sums = (kept * self._sums.reshape(2, -1) + new).reshape(self._sums.shape)
        missed, rate = self._missed(error, mean, due), self.rate * min(1.0, self._age / (4 * self.window))
        for level, theta in enumerate(self._theta):
            excess = np.bincount(where, missed[level] - (1 - self.levels[level]), columns)
            theta += rate * excess / series

    def _scale(self) -> NDArray[np.float64]:
        """(T,) √ of the mean z² of each step, drawn towards that of all steps, and that towards 1."""
        (weight, square), prior = self._sums, self._prior
        pool = (square.mean(1, keepdims=True) + prior) / (weight.mean(1, keepdims=True) + prior)
        return np.asarray(np.sqrt((square + prior * pool) / (weight + prior))).reshape(-1)

    def _missed(self, error: Tensor, mean: Tensor, due: Due) -> NDArray[np.bool_]:
        """(K, R) whether the truth lies outside the band as issued."""
        half = torch.from_numpy(self.levels / 2)
        low, high = (due.predictive.quantile(0.5 + side * half) - mean for side in (-1, 1))  # (K, R, 1)
        factors = due.factors[..., None]
        return np.asarray(((error < factors * low) | (error > factors * high))[..., 0].numpy())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors = {"sums": torch.from_numpy(self._sums.copy()), "theta": torch.from_numpy(self._theta.copy())}
        return tensors, {"age": self._age}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._sums, self._theta = tensors["sums"].numpy().copy(), tensors["theta"].numpy().copy()
        self._age = float(cast(float, rest["age"]))
