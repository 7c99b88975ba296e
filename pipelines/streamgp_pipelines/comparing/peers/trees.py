"""LightGBM, direct: one model of all steps ahead, for each target, on lags, seasons and known inputs.

A row of its table is a window and one step ahead: the lags, the known inputs and the calendar of that step, its
references (`streamgp.context`) and the step. It learns the departure from the value one season before (from the last
one, without a season), and sees values of the target as departures from that too: trees do not extrapolate. Its
quantiles are the forecast plus quantiles of its own last errors, a series and a step at a time (split conformal
prediction, Lei et al. 2018); before it has made any, those of the last third of the warm-up, held out.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from streamgp.base import Inputs, Predictive, Shape, Step
from streamgp.streaming.calendar import Floats
from streamgp.streaming.windows import Asks
from streamgp_pipelines.comparing.peers.peer import Issued, Options, Peer

LEAST = 30
"""Windows below which none is held out."""


class Config(Options):
    """LightGBM's options, and when it is fitted."""

    refit: int | None = Field(
        None,
        ge=1,
        description="windows between two fits, at most; default: two of the longest season, at least 1,000. While the "
        "stream is young, a quarter of the windows so far",
    )
    steps: int = Field(12, ge=1, description="steps ahead of a window that are learned, drawn at random")
    pairs: int = Field(100_000, ge=1, description="newest pairs of window and step that are learned")
    errors: int = Field(1000, ge=10, description="newest errors of a series and a step that the quantiles are of")
    trees: int = Field(200, ge=1, description="LightGBM's n_estimators")
    rate: float = Field(0.06, gt=0, description="LightGBM's learning_rate")
    leaves: int = Field(31, ge=2, description="LightGBM's num_leaves")

    def build(self, name: str, shape: Shape, probabilities: tuple[float, ...], seed: int) -> Trees:
        return Trees(self, shape, probabilities, seed)


class Trees(Peer):
    """LightGBM on a stream.

    Args:
        config: its options.
        shape: of the windows.
        probabilities: (Q,) of the quantiles that are issued.
        seed: of the pairs that are drawn, and of LightGBM.
    """

    def __init__(self, config: Config, shape: Shape, probabilities: tuple[float, ...], seed: int) -> None:
        super().__init__()
        self.config, self.shape, self.probabilities, self.seed = config, shape, np.array(probabilities), seed
        self.refit = config.refit or max(2 * shape.season, 1000)
        self._draw = np.random.default_rng(seed)
        self._kept: list[tuple[Floats, Floats]] = []  # rows (R, F) and departures (R, O), oldest first
        self._seen = self._fitted = 0  # windows, and those of the last fit
        self._models: list[Any] = []
        self._errors: dict[int, Floats] = {}  # series -> (T, errors), NaN where there is none, oldest first
        self._first = np.full((shape.columns, config.errors), np.nan)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """The warm-up: hold its last third out for the first errors, then learn all."""
        count = len(y)
        if count >= LEAST:
            self._keep(x.rows(slice(0, 2 * count // 3)), y[: 2 * count // 3])
            self._train()
            late = x.rows(slice(2 * count // 3, count))
            error = (y[2 * count // 3 :].numpy() - self._mean(late)).T[:, -self.config.errors :]
            self._first[:, -error.shape[1] :] = error
            self._kept, self._seen = [], 0
        self._keep(x, y)
        self._train()
        yield Step(float("nan"), self.config.trees, True, "fit")

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        self._keep(x, y)
        if self._seen - self._fitted < min(self.refit, max(self._fitted // 4, LEAST)):
            return Step(float("nan"), self.config.trees, True, "")
        self._train()
        return Step(float("nan"), self.config.trees, True, "fit")

    def issue(self, asks: Asks) -> Issued:
        mean = self._mean(asks.x)
        quantiles = np.empty((len(self.probabilities), *mean.shape))
        deviation = np.empty_like(mean)
        series = asks.series.numpy()
        for code in np.unique(series):
            errors = self._errors.get(int(code), self._first)
            held = np.where(np.isnan(errors).all(1, keepdims=True), 0.0, errors)
            mine = series == code
            quantiles[:, mine] = mean[mine] + np.nanquantile(held, self.probabilities, axis=1)[:, None]
            deviation[mine] = np.sqrt(np.nanmean(held**2, 1)).clip(1e-12)
        return Issued(asks, *(torch.from_numpy(part) for part in (mean, deviation, quantiles)))

    def wrong_by(self, series: Tensor, column: Tensor, error: Tensor) -> None:
        for code in series.unique().tolist():
            held = self._errors.setdefault(code, self._first.copy())
            for at in column[series == code].unique().tolist():
                new = error[(series == code) & (column == at)].numpy()[-self.config.errors :]
                held[at] = np.concatenate([held[at, len(new) :], new])

    def _mean(self, x: Inputs) -> Floats:
        """(N, T)"""
        count, horizon = len(x.future), self.shape.horizon
        found = np.empty((count, self.shape.outputs, horizon))
        if count:
            window, step = np.divmod(np.arange(count * horizon), horizon)
            rows, base = self.table(x, window, step)
            for at, model in enumerate(self._models):
                found[:, at] = (model.predict(rows[at], num_threads=1) + base[:, at]).reshape(count, horizon)
        return found.reshape(count, self.shape.columns)

    def _keep(self, x: Inputs, y: Tensor) -> None:
        """Draw the pairs that are learned of these windows."""
        count, horizon = len(y), self.shape.horizon
        if not count:
            return
        self._seen += count
        order = self._draw.random((count, horizon)).argsort(1)[:, : self.config.steps]
        window, step = np.repeat(np.arange(count), order.shape[1]), np.sort(order, 1).reshape(-1)
        rows, base = self.table(x, window, step)
        truth = y.numpy().reshape(count, self.shape.outputs, horizon)[window, :, step]
        self._kept.append((rows.astype(np.float32), truth - base))
        total = sum(len(part[1]) for part in self._kept)
        while total - len(self._kept[0][1]) >= self.config.pairs:
            total -= len(self._kept.pop(0)[1])

    def _train(self) -> None:
        self._fitted = self._seen
        lightgbm = importlib.import_module("lightgbm")
        rows = np.concatenate([part for part, _ in self._kept], 1)
        departure = np.concatenate([part for _, part in self._kept])
        own = {"learning_rate": self.config.rate, "num_leaves": self.config.leaves, "seed": self.seed}
        given = {**PARAMETERS, **own, "num_threads": torch.get_num_threads()}
        self._models = []
        for at in range(self.shape.outputs):
            known = np.isfinite(departure[:, at])
            data = lightgbm.Dataset(rows[at][known], departure[known, at])
            self._models.append(lightgbm.train(given, data, num_boost_round=self.config.trees))

    def table(self, x: Inputs, window: Any, step: Any) -> tuple[Floats, Floats]:
        """What is seen of these windows and steps (from 0), (O, R, F), and what targets are departures from, (R, O).

        The columns are: lags of each channel (oldest first), known inputs and calendar at the step (after the season's
        references), the context's numbers of the window, then those of the step, and the step.
        """
        shape = self.shape
        outputs = shape.outputs
        past, future = x.past.numpy(), x.future.numpy()[window, step]
        if shape.seasonal:
            base = future[:, :outputs]
        elif shape.lags:
            base = past[window, -1, :outputs]
        else:
            base = np.zeros((len(window), outputs))
        channels = past.shape[2] - (outputs if shape.seasonal else 0)
        parts = [past[window][:, :, :channels].transpose(0, 2, 1).reshape(len(window), -1), future]
        own = [at for at in range(channels) for _ in range(shape.lags)] if shape.lags else []
        own += [*range(outputs)] * shape.seasonal + [-1] * (future.shape[1] - outputs * shape.seasonal)
        if not shape.lags:
            parts = parts[1:]
        if x.context is not None and shape.context is not None:
            numbers, each = x.context.numpy(), shape.context
            first = len(each.window)
            parts += [numbers[window, :first]]
            parts += [numbers[:, first:].reshape(len(numbers), shape.horizon, each.per_step)[window, step]]
            own += [entry.channel for entry in each.window]
            own += [entry.channel for entry in replace(each, horizon=1).steps] + [-1] * each.PHASES
        rows = np.concatenate([*parts, step[:, None] + 1.0], 1)
        channel = np.array([*own, -1])
        seen = np.stack([rows - np.where(channel == at, base[:, at, None], 0.0) for at in range(outputs)])
        return seen, base


PARAMETERS: dict[str, Any] = {
    "objective": "regression",
    "min_data_in_leaf": 20,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
"""The same for every stream."""
