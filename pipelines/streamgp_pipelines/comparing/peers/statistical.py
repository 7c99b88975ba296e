"""AutoETS, AutoARIMA and MSTL of statsforecast, with their own intervals.

At every `every`-th step of a series each target is forecast from its newest `history` steps. The form and the
parameters of AutoETS and AutoARIMA are estimated again every `refit` steps; between, the newest values go through the
model as it is (their `forward`). MSTL is decomposed at each of its origins. So all three forecast at the same origins,
and what is scored there is that of every other model too.

Bands are conformal: the forecast plus quantiles of its own last errors at the step, once there are `LEAST` of them, and
until then those of the library, whose bands of MSTL leave the errors of its seasons out.
"""

from __future__ import annotations

import importlib
import math
import warnings
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from streamgp.base import FLOAT, Shape
from streamgp.windows.calendar import Floats, Ints
from streamgp.windows.windows import Answers, Asks
from streamgp_pipelines.comparing.peers.peer import Peer, PeerForecasts, PeerOptions

SEASON_OF_ETS = 24
"""The longest season that ETS can have."""
ORIGINS = 200
"""In a table, at least, where it has as many rows: what is scored there is all that is compared."""
LEAST, MOST = 20, 200
"""Errors of a series and a step before bands are made of them, and the newest that are."""


class Config(PeerOptions):
    """When a model of statsforecast forecasts and is fitted, in steps of a series."""

    every: int | None = Field(
        None,
        ge=1,
        description="steps between two origins; default: one more than the shortest season, or 25, and fewer in a "
        "table that would have less than 200 of them",
    )
    refit: int | None = Field(
        None, ge=1, description="steps between two estimations; default: two of the longest season, at least 500"
    )
    history: int | None = Field(
        None, ge=10, description="newest steps that are seen; default: four of the longest season, 500 to 2,000"
    )

    trend: Literal["autoets", "autoarima"] = Field(
        "autoarima", description="what MSTL forecasts the trend and the rest with; other models have none"
    )
    bands: Literal["conformal", "native"] = Field(
        "conformal", description="conformal: of its own last errors, at first native; native: those of the library"
    )

    def on(self, shape: Shape, rows: int) -> Self:
        season = _seasons(shape)[0] if _seasons(shape) else 24
        every = max(min(season + 1, rows // ORIGINS), 1)
        every = next(step for step in range(every, 0, -1) if math.gcd(step, season) == 1)  # at every hour of the day
        return self if self.every else self.model_copy(update={"every": every})

    def build(self, name: str, shape: Shape, probabilities: tuple[float, ...], seed: int) -> Statistical:
        return Statistical(self, name, shape, probabilities)


def _seasons(shape: Shape) -> tuple[int, ...]:
    """Shortest first."""
    return shape.context.seasons if shape.context else (shape.season,) if shape.season > 1 else ()


class Statistical(Peer):
    """A model of statsforecast on a stream.

    Args:
        config: its options.
        name: autoets, autoarima or mstl.
        shape: of the windows.
        probabilities: (Q,) of the quantiles that are issued.
    """

    def __init__(self, config: Config, name: str, shape: Shape, probabilities: tuple[float, ...]) -> None:
        super().__init__()
        self.name, self.shape, self.probabilities = name, shape, probabilities
        self.seasons = list(_seasons(shape))
        self.every = config.every or (self.seasons[0] + 1 if self.seasons else 25)
        self.refit = config.refit or max(2 * shape.season, 500)
        self.history = config.history or min(max(4 * shape.season, 500), 2000)
        self._values: dict[int, Floats] = {}  # series -> (n, O) newest values, NaN where there is none
        self._known: dict[int, Ints] = {}  # series -> (n,) in which place of the stream each of them came
        self._step: dict[int, int] = {}  # series -> step of the newest
        self._came: dict[int, int] = {}  # position of a row of this micro-batch -> its place
        self._seen = 0
        self._fitted: dict[tuple[int, int], tuple[int, Any]] = {}  # (series, target) -> (step, model)
        self._failed = 0
        self._trend, self._conformal = config.trend, config.bands == "conformal"
        self._errors: dict[tuple[int, int], list[float]] = {}  # (series, column of the outputs) -> newest last

    def wrong_by(self, series: Tensor, column: Tensor, error: Tensor) -> None:
        for code, at, wrong in zip(series.tolist(), column.tolist(), error.tolist(), strict=True):
            if self._conformal and np.isfinite(wrong):
                held = self._errors.setdefault((code, at), [])
                held.append(wrong)
                del held[:-MOST]

    def follow(self, answers: Answers) -> None:
        came = self._seen + np.arange(len(answers.series))
        self._seen += len(came)
        self._came = dict(zip(answers.position.tolist(), came.tolist(), strict=True))
        for code in answers.series.unique().tolist():
            mine = (answers.series == code).numpy()
            step, y = answers.step[mine].numpy(), answers.y[mine].numpy()
            held = self._values.get(code, np.empty((0, y.shape[1])))[-self.history :]
            came_held = self._known.get(code, np.empty(0, np.int64))[-self.history :]
            newest = self._step.get(code, int(step.min()) - 1)
            first, last = newest - len(held) + 1, max(newest, int(step.max()))
            values = np.full((last - first + 1, y.shape[1]), np.nan)
            known = np.zeros(len(values), np.int64)
            values[: len(held)], known[: len(held)] = held, came_held
            kept = step >= first  # a row that came late has its place, where that is still kept
            values[step[kept] - first], known[step[kept] - first] = y[kept], came[mine][kept]
            self._values[code], self._known[code], self._step[code] = values, known, last

    def issue(self, asks: Asks) -> PeerForecasts:
        found: list[tuple[int, Floats]] = []
        for at in np.flatnonzero(asks.origin.numpy() % self.every == 0).tolist():
            came = self._came[int(asks.position[at])]
            quantiles = self._ask(int(asks.series[at]), int(asks.origin[at]), came)
            if quantiles is not None:
                found.append((at, quantiles))
        kept = torch.tensor([at for at, _ in found], dtype=torch.int64)
        shape = (len(self.probabilities) + 2, 0, self.shape.columns)
        whole = torch.from_numpy(np.stack([part for _, part in found], 1)) if found else torch.zeros(shape, dtype=FLOAT)
        mean, deviation, *_ = whole
        return PeerForecasts(asks.rows(kept), mean, deviation, whole[2:])

    def warnings(self) -> list[str]:
        found = []
        if self.name == "autoets" and self.seasons and self.seasons[0] > SEASON_OF_ETS:
            found.append(f"it has no season: those of ETS have at most {SEASON_OF_ETS} steps")
        if self._failed:
            found.append(f"statsforecast failed at {self._failed} origins, which are left out")
        return found

    def _ask(self, code: int, origin: int, came: int) -> Floats | None:
        """(2 + Q, T) mean, standard deviation and quantiles at an origin, of the values that had come when its row
        did; None where the library fails."""
        behind = self._step[code] - origin
        known = self._known[code][:, None] <= came
        values = np.where(known, self._values[code], np.nan)
        past = values[: len(values) - behind][-self.history :]
        found = [self._forecast(code, target, origin, self._filled(past[:, target])) for target in range(past.shape[1])]
        parts = [part for part in found if part is not None and np.isfinite(part).all()]
        if len(parts) < len(found):
            self._failed += 1
            return None
        return self._with_bands(code, np.concatenate(parts, 1))

    def _with_bands(self, code: int, found: Floats) -> Floats:
        """The same with bands of its own errors, in the columns that have had enough of them."""
        for at in range(found.shape[1]):
            errors = self._errors.get((code, at), [])
            if len(errors) >= LEAST:
                count = len(errors)
                # the order statistics of n + 1: the share of the (k)-th of n errors is k / (n + 1)
                levels = np.clip((np.array(self.probabilities) * (count + 1) - 1) / (count - 1), 0.0, 1.0)
                found[1, at] = np.sqrt(np.mean(np.square(errors)))
                found[2:, at] = found[0, at] + np.quantile(errors, levels)
        return found

    def _forecast(self, code: int, target: int, origin: int, y: Floats) -> Floats | None:
        """(2 + Q, H)"""
        horizon = self.shape.horizon
        spread = sorted({round(100 * abs(1 - 2 * p), 6) for p in (*self.probabilities, 0.1)} - {0.0})
        since, model = self._fitted.get((code, target), (origin - self.refit, None))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Numba, and of a series that is too short for a form
            try:
                if self.name == "mstl":
                    made = self._new().forecast(y, horizon, level=spread)
                elif origin - since >= self.refit:
                    model = self._new().fit(y)
                    self._fitted[code, target] = origin, model
                    made = model.predict(horizon, level=spread)
                else:
                    made = model.forward(y, horizon, level=spread)
            except (ValueError, ArithmeticError, IndexError, np.linalg.LinAlgError):
                return None
        mean = np.asarray(made["mean"], np.float64)
        quantiles = [mean if p == 0.5 else made[f"{'lo' if p < 0.5 else 'hi'}-{_level(p)}"] for p in self.probabilities]
        deviation = (np.asarray(made["hi-80.0"]) - np.asarray(made["lo-80.0"])) / (2 * 1.2815515655446004)
        return np.stack([mean, np.maximum(deviation, 1e-12), *(np.asarray(one, np.float64) for one in quantiles)])

    def _new(self) -> Any:
        models = importlib.import_module("statsforecast.models")
        short = self.seasons[0] if self.seasons else 1
        if self.name == "autoets":
            return models.AutoETS(season_length=short if short <= SEASON_OF_ETS else 1)
        if self.name == "autoarima":
            return models.AutoARIMA(season_length=short, approximation=short > 1)
        if not self.seasons:
            return models.AutoETS()
        trend = models.AutoARIMA() if self._trend == "autoarima" else models.AutoETS(model="ZZN")
        return models.MSTL(season_length=self.seasons, trend_forecaster=trend)

    def _filled(self, y: Floats) -> Floats:
        """Missing values are those of one season before, or the last."""
        y = y[int(np.argmax(~np.isnan(y))) :].copy()
        for at in np.flatnonzero(np.isnan(y)):
            back = at - self.shape.season if at >= self.shape.season else at - 1
            y[at] = y[back]
        return y


def _level(p: float) -> float:
    """The level in percent of the band that ends at a probability, as statsforecast names it."""
    return round(100 * abs(1 - 2 * p), 6)
