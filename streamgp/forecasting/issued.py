"""What is kept of a calibrated forecast until its truths come: its quantiles, and by name what `bands` learns from."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.error_shape import View
from streamgp.forecasting.streams import whole

Floats: TypeAlias = NDArray[np.float64]

JUDGED = 7
"""Quantiles, with and without masses, that are compared."""


class Issued(NamedTuple):
    """What is kept of forecasts until their truths come.

    Attributes:
        quantiles: (Q, N, T) of the calibrated distribution, increasing.
        features: (F, N, T) the columns of `AtIssue`; where there are masses those of `MassesAtIssue` follow.
    """

    quantiles: Tensor
    features: Tensor


class ScaleFeatures(NamedTuple):
    """What φ is computed from. Arrays of one shape, that of the forecasts; logarithms are relative to b.

    Attributes:
        fast, daily: log v₀ and log v₁.
        deviation: log of the raw standard deviation.
        reference: log distance of the point to a naive forecast; 0 where there is none.
        spread: log of the spread of the experts of a mix; 0 where the model is no mix.
        low, high: how near the bounds of the target are, at most 1; 0 where there are none.
        phase: place in the cycle, 0 to period − 1.
    """

    fast: Floats
    daily: Floats
    deviation: Floats
    reference: Floats
    spread: Floats
    low: Floats
    high: Floats
    phase: Floats


class AtIssue(NamedTuple):
    """What was known when forecasts were issued. Arrays of one shape, that of the forecasts; NaN is not known.

    Attributes:
        log_scale, beside, centre: the `View` of the shape of all truths; beside is a whole number.
        base: b.
        fast, daily, deviation, reference, spread, low, high, phase: of `ScaleFeatures`.
        last, run, slope: of `masses.AtOrigin`.
        uncapped, capped: the highest quantile, without and with caps; NaN where there are none.
    """

    log_scale: Floats
    base: Floats
    fast: Floats
    daily: Floats
    deviation: Floats
    reference: Floats
    spread: Floats
    low: Floats
    high: Floats
    beside: Floats
    centre: Floats
    last: Floats
    run: Floats
    slope: Floats
    phase: Floats
    uncapped: Floats
    capped: Floats

    @classmethod
    def of(cls, features: Floats) -> AtIssue:
        """From (F, ...) of `Issued`."""
        return cls(*features[: len(cls._fields)])

    @property
    def scale(self) -> ScaleFeatures:
        """Of the same forecasts."""
        return ScaleFeatures(*(getattr(self, name) for name in ScaleFeatures._fields))

    @property
    def view(self) -> View:
        """Of the shape of all truths."""
        return View(self.log_scale, whole(self.beside), self.centre)


class MassesAtIssue(NamedTuple):
    """The same of masses, where a stream has them; NaN for an output without.

    Attributes:
        state: of y₀, a whole number.
        log_scale, beside, centre: the `View` of the shape of the truths outside of masses.
        without, mixed: (JUDGED, ...) quantiles without and with masses.
    """

    state: Floats
    log_scale: Floats
    beside: Floats
    centre: Floats
    without: Floats
    mixed: Floats

    @classmethod
    def of(cls, features: Floats) -> MassesAtIssue | None:
        """From (F, ...) of `Issued`; None of forecasts from before there were masses."""
        own = features[len(AtIssue._fields) :]
        if not len(own):
            return None
        alone = len(cls._fields) - 2
        return cls(*own[:alone], *own[alone:].reshape(2, JUDGED, *own.shape[1:]))

    def columns(self) -> list[Floats]:
        """Those of `Issued.features`, in their order."""
        return [*self[:-2], *self.without, *self.mixed]

    def view(self, of_all: View) -> View:
        """What the shape outside of the masses had made of forecasts; of those from before it was, that of all."""
        before = np.isnan(self.log_scale)
        own = self.log_scale, self.beside, self.centre
        log_scale, beside, centre = (np.where(before, all_, one) for all_, one in zip(of_all, own, strict=True))
        return View(log_scale, whole(beside), centre)


LOG_SCALE, PHASE = (AtIssue._fields.index(name) for name in ("log_scale", "phase"))
"""Columns of `Issued.features` that are read alone."""


def feature_count(calibration: Calibration) -> int:
    """F, numbers beside its quantiles that are kept of a forecast."""
    return len(AtIssue._fields) if calibration.probabilities else 0
