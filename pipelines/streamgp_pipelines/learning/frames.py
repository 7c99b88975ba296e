"""Forecasts as tables in the long format: one name a column, everywhere the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from torch import Tensor

from streamgp.base import FLOAT, Predictive
from streamgp_pipelines.moments import Moments


@dataclass(frozen=True)
class Naming:
    """How the columns of a forecast are called and how its times are read.

    Attributes:
        model: prefix of every forecast column.
        levels: (K,) widths of the bands in percent; none where outcomes of 0 and 1 are forecast.
        moments: how times are written.
    """

    model: str
    levels: tuple[float, ...]
    moments: Moments

    def columns(self) -> list[str]:
        """Names of the forecast columns, in their order.

        Example:
            >>> Naming("gp", (80.0,), Moments()).columns()
            ['gp', 'gp-lo-80', 'gp-hi-80', 'gp-std', 'gp-std-latent', 'gp-raw-lo-80', 'gp-raw-hi-80']
            >>> Naming("gp", (), Moments()).columns()  # the probability of 1, and what is not known of outcome and it
            ['gp', 'gp-std', 'gp-std-latent']
        """
        bands = [f"{side}-{percent(level)}" for level in self.levels for side in ("lo", "hi")]
        ends = ["", *(f"-{band}" for band in bands), "-std", "-std-latent", *(f"-raw-{band}" for band in bands)]
        return [self.model + end for end in ends]

    def times(self, values: Tensor) -> pl.Series:
        """(R,) int64 -> times as the table's source wrote them."""
        return self.moments.write(values)


def percent(level: float) -> str:
    """A level without a needless fraction.

    Example:
        >>> percent(95.0), percent(99.5)
        ('95', '99.5')
    """
    return f"{level:g}"


def band(predictive: Predictive, levels: tuple[float, ...], factors: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Calibrated and raw bounds, each (K, N, T): lo, hi, raw lo, raw hi.

    A calibrated bound is mean + factor · (quantile − mean): the raw quantile moved along its own distance.

    Args:
        predictive: N windows, T columns.
        levels: (K,) percent.
        factors: (K, N, T), or anything that broadcasts to it.
    """
    half = torch.tensor(levels, dtype=FLOAT) / 200
    raw_lo, raw_hi = predictive.quantile(0.5 - half), predictive.quantile(0.5 + half)
    mean = predictive.mean
    return mean + factors * (raw_lo - mean), mean + factors * (raw_hi - mean), raw_lo, raw_hi


def forecast_columns(predictive: Predictive, factors: Tensor, naming: Naming) -> dict[str, Any]:
    """The forecast columns of (R, 1) distributions; factors: (K, R, 1)."""
    lo, hi, raw_lo, raw_hi = band(predictive, naming.levels, factors)
    values = [predictive.mean, *_pairs(lo, hi), predictive.variance.sqrt(), predictive.latent_variance.sqrt()]
    values += _pairs(raw_lo, raw_hi)
    return {name: value.flatten().numpy() for name, value in zip(naming.columns(), values, strict=True)}


def _pairs(low: Tensor, high: Tensor) -> list[Tensor]:
    """(K, R, 1) twice -> lo, hi, lo, hi, ... level by level."""
    return [side for pair in zip(low, high, strict=True) for side in pair]
