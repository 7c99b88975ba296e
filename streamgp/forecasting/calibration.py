"""Which quantiles of a calibrated distribution are issued, which point forecast, and within which bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

DECILES = tuple(round(0.1 * k, 1) for k in range(1, 10))
"""Probabilities whose quantiles are always issued: what pinball loss and CRPS are computed from."""

TAILS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.95, 0.975, 0.99, 0.995, 0.999)
"""Those that are issued too where targets are transformed: what the mean is computed from."""


@dataclass(frozen=True)
class Calibration:
    """Options of the calibrated distribution.

    Attributes:
        levels: (K,) widths of the bands in percent.
        quantiles: other probabilities that are asked for.
        point: the forecast of one value: the mean of the model, or the median of the calibrated distribution.
        lower, upper: bounds of the targets; None: no bound.
        finds: whether a lower bound of 0 is found where none is given (`bounds`).
        none: of outcomes of 0 and 1, which have no bands: nothing is issued.
        transformed: whether the model learns transformed targets. The mean is then that of the calibrated distribution.

    Example:
        >>> Calibration((80.0,), (0.05,)).probabilities
        (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """

    levels: tuple[float, ...] = (80.0, 90.0, 95.0)
    quantiles: tuple[float, ...] = ()
    point: Literal["mean", "median"] = "mean"
    lower: float | None = None
    upper: float | None = None
    none: bool = False
    transformed: bool = False
    finds: bool = True

    @property
    def probabilities(self) -> tuple[float, ...]:
        """(Q,) of the quantiles that are issued, increasing: both ends of the bands, the deciles and the others."""
        if self.none:
            return ()
        ends = [end for level in self.levels for end in sides(level)]
        tails = TAILS if self.transformed else ()
        return tuple(sorted({*ends, *DECILES, *tails, *(round(p, 9) for p in self.quantiles)}))

    def ends(self) -> tuple[list[int], list[int]]:
        """Where the lower and the upper ends of the K bands are among the probabilities."""
        low, high = ([self.probabilities.index(sides(level)[at]) for level in self.levels] for at in (0, 1))
        return low, high

    def of(self, mean: Tensor, quantiles: Tensor, point: Literal["mean", "median"] | None = None) -> Tensor:
        """(R,) the point forecasts. mean: (R,); quantiles: (Q, R) as issued; point: which one, default: that issued.

        The mean is inside the bounds: those given, and the one that was found, where the lowest quantile is exactly 0.
        """
        if self.none:
            return mean
        if (point or self.point) == "median":
            return quantiles[self.probabilities.index(0.5)]
        if self.finds and self.lower is None:
            mean = torch.where(quantiles[0] == 0, mean.clamp(min=0.0), mean)
        return self.inside(mean)

    def inside(self, values: Tensor) -> Tensor:
        """The values, within the bounds."""
        return values if self.lower is None and self.upper is None else values.clamp(self.lower, self.upper)


def sides(level: float) -> tuple[float, float]:
    """The probabilities of both ends of a band.

    Example:
        >>> sides(95.0)
        (0.025, 0.975)
    """
    return round(0.5 - level / 200, 9), round(0.5 + level / 200, 9)
