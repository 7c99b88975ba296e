"""Forecasts beside their truths: what scores are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from streamgp.base import Predictive
from streamgp.forecasting.calibration import DECILES, sides
from streamgp.forecasting.quantiles import crps, pinball


@dataclass(frozen=True)
class Scored:
    """R forecasts.

    Attributes:
        y: (R,) truths.
        error: (R,) truth less point forecast.
        probabilities, quantiles: (Q,) and (Q, R) of the calibrated distribution; none for outcomes.
        levels: K, of the bands, in percent.
        issued: the model's own distribution; None where it is not known.
        mean: (R,) the point forecasts of `--point mean`; None where they are not known.
    """

    y: Tensor
    error: Tensor
    probabilities: Sequence[float]
    quantiles: Tensor
    levels: Sequence[float]
    issued: Predictive | None = None
    mean: Tensor | None = None

    @property
    def raw(self) -> Predictive:
        """The model's own distribution."""
        assert self.issued is not None, "a score of the raw distribution needs one"
        return self.issued

    @property
    def mean_error(self) -> Tensor:
        """(R,) distances of the truths to the mean."""
        assert self.mean is not None, "the error of the mean needs it"
        return (self.y - self.mean).abs()

    @property
    def median_error(self) -> Tensor:
        """(R,) distances of the truths to the median of the calibrated distribution."""
        return 2 * self._lost[self._row(0.5)]

    def _row(self, probability: float) -> int:
        return list(self.probabilities).index(probability)

    @cached_property
    def low(self) -> Tensor:
        """(K, R) lower ends of the bands."""
        return self.quantiles[[self._row(sides(level)[0]) for level in self.levels]]

    @cached_property
    def high(self) -> Tensor:
        """(K, R) upper ends of the bands."""
        return self.quantiles[[self._row(sides(level)[1]) for level in self.levels]]

    @cached_property
    def _lost(self) -> Tensor:
        """(Q, R) pinball losses."""
        return pinball(torch.tensor(self.probabilities, dtype=self.y.dtype), self.quantiles, self.y)

    @property
    def crps(self) -> Tensor:
        """(R,) of the calibrated distribution."""
        return crps(self.probabilities, self.quantiles, self.y, self._lost)

    @property
    def pinball(self) -> Tensor:
        """(R,) mean of the deciles' losses."""
        return self._lost[[self._row(p) for p in DECILES]].mean(0)

    @cached_property
    def _percent(self) -> Tensor:
        return torch.tensor(self.levels, dtype=self.y.dtype)[:, None] / 100

    @cached_property
    def _raw(self) -> Tensor:
        """(9 + 2K, R) deciles of the model's own distribution, lower and upper ends of its bands."""
        half = self._percent[:, 0] / 2
        deciles = torch.tensor(DECILES, dtype=self.y.dtype)
        return self.raw.quantile(torch.cat([deciles, 0.5 - half, 0.5 + half]))[..., 0]

    @property
    def raw_pinball(self) -> Tensor:
        """(R,) mean of the deciles' losses, of the model's own distribution."""
        return pinball(torch.tensor(DECILES, dtype=self.y.dtype), self._raw[: len(DECILES)], self.y).mean(0)

    @property
    def raw_low(self) -> Tensor:
        """(K, R)"""
        return self._raw[len(DECILES) :].chunk(2)[0]

    @property
    def raw_high(self) -> Tensor:
        """(K, R)"""
        return self._raw[len(DECILES) :].chunk(2)[1]

    def inside(self, low: Tensor, high: Tensor) -> Tensor:
        """(K, R) 1 where the truth lies in the band."""
        return ((self.y >= low) & (self.y <= high)).to(self.y.dtype)

    def interval_score(self, low: Tensor, high: Tensor) -> Tensor:
        """(K, R) width, and 2/α times the distance of a truth outside."""
        outside = (low - self.y).clamp(min=0) + (self.y - high).clamp(min=0)
        return high - low + 2 / (1 - self._percent) * outside
