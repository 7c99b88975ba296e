"""How much wider forecasts become when the target was last known some rows ago.

A forecast h steps ahead, from a target that was last known a rows ago, is one of h + a steps. With E(ℓ) the size of
errors ℓ steps ahead, its spread is multiplied by

    m(h, a) = max(1, E(min(h + a, H)) / E(h)) · min(max((h + a)/H, 1)^γ, R) · (1 + OLD · a/(a + H))

up to the horizon H by the profile of the steps, as it was learned; beyond, γ is the slope of log E at H, and R the size
of errors of the last known season (without a season: of any value of the target as a forecast of another) over that at
H, which no outage makes larger. The last factor is of what stands in for the lags, which is in error too.

Such forecasts are scored, but neither the model nor the calibration learns from them: their errors are those of an
outage, not the usual ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Due, Shape
from streamgp.forecasting.streams import Bools, Floats, Ints
from streamgp.state import Arrays, Declared

MEMORY = 4000.0
"""Rows after which errors count half."""
SLOPES = (0.5, 1.0)
"""Bounds of γ: errors grow at least with the root of the steps, and at most in proportion to them."""
OLD = 0.3
"""Most that the last factor adds. Chosen on PJM's load, as was the lower bound of γ; docs/results/real-streams.md has
others."""
WALK = 0.5
"""γ where there is one step: that of a random walk."""
BEGUN = 20.0
"""Forecasts whose errors must be known before R is estimated; until then only LARGEST bounds the growth."""
LARGEST = 10.0
"""Most of R: without it a target that hardly ever moves would have unbounded bands once it does."""


class Sizes(NamedTuple):
    """Mean absolute errors of each of S series (or of all) and O targets, (S, O) each, and their weight.

    Attributes:
        weight: rows that they are of.
        season: |y − y a season before|; without a season |y − its mean|.
        level: mean of y.
        far: of the forecasts H steps ahead.
        judged: forecasts that `far` is of.
    """

    weight: Floats
    season: Floats
    level: Floats
    far: Floats
    judged: Floats


class Outages(Declared):
    """What outages do to forecasts; Stateful.

    Args:
        shape: what the model is built for.
        apart: whether each series is a stream of its own.

    Example:
        >>> shape = Shape(targets=("y",), horizon=4, lags=1, past=("y",), future=())
        >>> outages = Outages(shape)
        >>> age, none = torch.tensor([[0], [2]]), torch.zeros(2, dtype=torch.int64)
        >>> profile = np.log(np.array([[[1.0, 2.0, 3.0, 4.0]]])).repeat(2, 0)
        >>> [round(m, 2) for m in outages.wider(none, age, profile)[1].tolist()]  # of steps 3, 4, 5 and 6 over 1 to 4
        [3.3, 2.2, 1.83, 1.65]
    """

    STATE = (Arrays(*Sizes._fields),)

    def __init__(self, shape: Shape, apart: bool = False) -> None:
        self.shape, self.apart = shape, apart
        self._sums = Sizes(*(np.zeros((1 - apart, shape.outputs)) for _ in Sizes._fields))

    @property
    def _sums(self) -> Sizes:
        return Sizes(*(getattr(self, f"_{name}") for name in Sizes._fields))

    @_sums.setter
    def _sums(self, sums: Sizes) -> None:
        for name, part in sums._asdict().items():
            setattr(self, f"_{name}", part)

    def wider(self, series: Tensor, age: Tensor, profile: Floats) -> Tensor:
        """(N, T) factors of spreads.

        Args:
            series: (N,) codes.
            age: (N, O) steps since each target was last known.
            profile: (N, O, H) log size of the errors of each step, up to a constant a forecast.
        """
        horizon = self.shape.horizon
        found = np.ones((len(age), self.shape.outputs, horizon))
        old = np.flatnonzero((age > 0).any(1).numpy())
        if not len(old):
            return torch.from_numpy(found.reshape(len(age), -1))
        own, ages = profile[old], age[old].numpy()[:, :, None]
        lead = np.arange(1, horizon + 1) + ages  # (n, O, H)
        at = np.take_along_axis(own, np.minimum(lead, horizon) - 1, 2)
        half = max(horizon // 2, 1)
        slope = (own[..., -1] - own[..., half - 1]) / np.log(horizon / half) if horizon > 1 else WALK + 0 * own[..., 0]
        growth = (np.maximum(lead, horizon) / horizon) ** np.clip(slope, *SLOPES)[..., None]
        most = self._most(self._places(series[old].numpy()))[..., None]
        instead = 1.0 + OLD * ages / (ages + horizon)
        found[old] = np.maximum(np.exp(at - own), 1.0) * np.minimum(growth, most) * instead
        return torch.from_numpy(found.reshape(len(age), -1))

    def follow(self, series: Tensor, y: Tensor, seasonal: Tensor) -> None:
        """Learn what the last season is worth as a forecast, from truths (R, O) and those a season before."""
        if not len(y):
            return
        place, now, before = self._places(series.numpy()), y.numpy(), seasonal.numpy()
        if self.shape.seasonal:
            known, away = ~np.isnan(now - before), np.abs(now - before)
            self._add(place, known, weight=known, season=np.where(known, away, 0.0))
            return
        known = ~np.isnan(now)
        self._add(place, known, weight=known, level=np.where(known, now, 0.0))
        sums = self._sums
        level = np.divide(sums.level, sums.weight, out=np.zeros_like(sums.level), where=sums.weight > 0)[place]
        apart = np.sqrt(2.0) * np.abs(now - level)  # two draws of a normal distribution lie so much farther apart
        self._add(place, known, season=np.where(known, apart, 0.0))

    def learn(self, due: Due) -> None:
        """Learn the size of errors at the horizon, from truths that have arrived."""
        horizon, outputs = self.shape.horizon, self.shape.outputs
        last = np.flatnonzero(due.column.numpy() % horizon == horizon - 1)
        if not len(last):
            return
        error = np.abs((due.y - due.predictive.mean[:, 0]).numpy()[last])
        known = np.arange(outputs) == due.column.numpy()[last, None] // horizon
        self._add(self._places(due.series.numpy()[last]), known, judged=known, far=np.where(known, error[:, None], 0.0))

    def _most(self, place: Ints) -> Floats:
        """(n, O) R."""
        sums = self._sums
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = (sums.season / sums.weight) / (sums.far / sums.judged)
        known = (sums.weight >= BEGUN) & (sums.judged >= BEGUN) & np.isfinite(ratio)
        return np.asarray(np.where(known, np.clip(ratio, 1.0, LARGEST), LARGEST)[place])

    def _add(self, place: Ints, known: Bools, **parts: NDArray[Any]) -> None:
        """Add rows (R, O) to the sums, which forget."""
        rows = np.bincount(place, known.any(1), len(self._sums.weight))[:, None]
        kept = 0.5 ** (rows / (MEMORY if self.apart else MEMORY * max(len(np.unique(place)), 1)))
        for name, values in parts.items():
            own = getattr(self._sums, name)
            own *= kept
            np.add.at(own, place, values)

    def _places(self, series: Ints) -> Ints:
        """Where the sums of rows of these series stand; there is room for all of them."""
        if not self.apart:
            return np.zeros(len(series), np.int64)
        more = int(series.max(initial=-1)) + 1 - len(self._sums.weight)
        if more > 0:
            room = np.zeros((max(more, len(self._sums.weight)), self.shape.outputs))
            self._sums = Sizes(*(np.concatenate([part, room]) for part in self._sums))
        return series
