"""Bands that stay calibrated: the running scale of standardised residuals, per step ahead.

With z = (y − mean)/std of the distribution as issued, the band's distance from the mean is multiplied by
√(mean z²), a mean over the recent past that forgets exponentially. z is always that of the raw distribution, so
that the calibration does not feed on itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from streamgp.base import Due, Json, Shape


class Bands:
    """Multipliers of the raw quantiles' distance from the mean; Stateful.

    A step's own mean is drawn towards that of all steps, and that towards 1, as if `prior` rows had said so.

    Args:
        shape: what the model is built for.
        levels: of the bands, in percent.
        window: rows of a series after which a residual counts 1/e.
    """

    def __init__(self, shape: Shape, levels: Sequence[float], window: int | None = None) -> None:
        self.shape, self.levels = shape, tuple(levels)
        self.window = window or max(shape.season, 10 * shape.horizon, 100)
        self.prior = shape.horizon
        self._sums = np.zeros((2, shape.outputs, shape.horizon))  # weights, and weighted z²

    def factors(self) -> Tensor:
        """(K, T) as they stand now."""
        weight, square = self._sums
        pool = (square.mean(1, keepdims=True) + self.prior) / (weight.mean(1, keepdims=True) + self.prior)
        scale = np.sqrt((square + self.prior * pool) / (weight + self.prior))  # (O, H)
        return torch.from_numpy(scale.reshape(1, -1)).expand(len(self.levels), -1).clone()

    def update(self, due: Due) -> None:
        """Learn from truths that have arrived."""
        if not len(due.y):
            return
        z = (due.y - due.predictive.mean[:, 0]).square() / due.predictive.variance[:, 0]
        where, columns = due.column.numpy(), self.shape.columns
        new = np.stack([np.bincount(where, part, columns) for part in (np.ones(len(where)), z.numpy())])
        rows = new[0] / len(np.unique(due.series.numpy()))  # (T,) rows of a series that passed
        kept = np.exp(-rows / self.window)
        self._sums = kept.reshape(self._sums.shape[1:]) * self._sums + new.reshape(self._sums.shape)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {"sums": torch.from_numpy(self._sums.copy())}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._sums = tensors["sums"].numpy().copy()
