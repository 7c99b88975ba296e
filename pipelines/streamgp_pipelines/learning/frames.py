"""Forecasts as tables in the long format: one name a column, everywhere the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from torch import Tensor

from streamgp.base import FLOAT, Predictive
from streamgp.forecasting.calibration import Calibration, sides
from streamgp_data.moments import Moments


@dataclass(frozen=True)
class Naming:
    """How the columns of a forecast are called and how its times are read.

    Attributes:
        model: prefix of every forecast column.
        calibration: which bands and quantiles it has; none where outcomes of 0 and 1 are forecast.
        moments: how times are written.
        alarms: whether scored forecasts have tail probabilities and alarms.
    """

    model: str
    calibration: Calibration
    moments: Moments
    alarms: bool = False

    @property
    def levels(self) -> tuple[float, ...]:
        """(K,) widths of the bands in percent."""
        return () if self.calibration.none else self.calibration.levels

    def columns(self) -> list[str]:
        """Names of the forecast columns, in their order.

        Example:
            >>> Naming("gp", Calibration((80.0,), quantiles=(0.5,)), Moments()).columns()
            ['gp', 'gp-lo-80', 'gp-hi-80', 'gp-q-0.5', 'gp-std', 'gp-std-latent', 'gp-raw-lo-80', 'gp-raw-hi-80']
            >>> Naming("gp", Calibration(none=True), Moments()).columns()  # the probability of 1
            ['gp', 'gp-std', 'gp-std-latent']
        """
        bands = [f"{side}-{percent(level)}" for level in self.levels for side in ("lo", "hi")]
        quantiles = [] if self.calibration.none else [f"-q-{p:g}" for p in self.calibration.quantiles]
        ends = ["", *(f"-{band}" for band in bands), *quantiles, "-std", "-std-latent"]
        ends += [f"-raw-{band}" for band in bands]
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


def forecast_columns(predictive: Predictive, quantiles: Tensor, naming: Naming) -> dict[str, Any]:
    """The forecast columns.

    Args:
        predictive: (R, 1) raw distributions.
        quantiles: (Q, R) of the calibrated ones, at `naming.calibration.probabilities`.
        naming: of the columns.
    """
    mean, *deviations, raw = raw_parts(predictive, naming)
    return assembled(mean, quantiles, raw, [deviation.numpy() for deviation in deviations], naming)


def raw_parts(predictive: Predictive, naming: Naming) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, standard deviation, that of the latent function (R,) and ends of the bands (2K, R) of raw distributions."""
    ends = [] if naming.calibration.none else [side for level in naming.levels for side in sides(level)]
    raw = predictive.quantile(torch.tensor(ends, dtype=FLOAT))[..., 0]
    std, latent = predictive.variance.sqrt()[:, 0], predictive.latent_variance.sqrt()[:, 0]
    return predictive.mean[:, 0], std, latent, raw


def assembled(
    mean: Tensor, quantiles: Tensor, raw: Iterable[Tensor], deviations: Sequence[Any], naming: Naming
) -> dict[str, Any]:
    """The forecast columns from a mean (R,), calibrated quantiles (Q, R), ends of the raw bands (2K, R) as of
    `band_ends`, and both standard deviations (R,)."""
    wanted = naming.calibration
    others = [] if wanted.none else [wanted.probabilities.index(round(p, 9)) for p in wanted.quantiles]
    values: list[Any] = [wanted.of(mean, quantiles), *band_ends(quantiles, wanted), *quantiles[others]]
    values = [value.numpy() for value in values]
    values += [*deviations, *(side.numpy() for side in raw)]
    return dict(zip(naming.columns(), values, strict=True))


def band_ends(quantiles: Tensor, calibration: Calibration) -> list[Tensor]:
    """(Q, R) quantiles -> (2K, R) the ends of the bands: lo, hi, lo, hi, ... level by level."""
    low, high = ([], []) if calibration.none else calibration.ends()
    return [quantiles[at] for pair in zip(low, high, strict=True) for at in pair]
