"""LightGBM, direct: a model for each step ahead and each target, on lags, their statistics, seasonal references, known
inputs and the calendar of the step (`columns`).

A longer horizon than `models` steps is cut into as many groups, which grow with the distance; then the step is a
column, and every window gives one pair of a group, drawn at random. On the load of GEFCom2012 (first 9,000 hours, six
steps ahead) a model of its own had 81,500 MAE where one for steps 5 to 8 had 88,400.

Thresholds are drawn at random (`extra`) and leaves are grown slowly: chosen on the first 9,000 hours of GEFCom2012's
load and of AEP, and two months of Victoria. Other streams played no part.

What a model forecasts is a departure from a base: nothing, the last value, the value one season before (the shortest or
the longest), or the mean of the last season. The base is that of least absolute error of a small model on the last
fifth of what it learns; it is looked at again when the windows have doubled, and at every `look`-th fit, and changes
where another one is clearly better.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from streamgp.base import Inputs, Shape
from streamgp.windows.calendar import Floats, Ints
from streamgp_pipelines.comparing.peers.columns import PairRows
from streamgp_pipelines.comparing.peers.direct import LEAST, Direct
from streamgp_pipelines.comparing.peers.peer import PeerOptions

HELD = 5
"""The part of the pairs that a base is chosen by: the last of these many."""
TRIAL, TRIALS = {"learning_rate": 0.2, "num_leaves": 15}, 40
"""Of the small model that tries a base, and its trees."""
BETTER = 0.95
"""The part of the error of the present base that another one has at most, to take its place."""


class Config(PeerOptions):
    """LightGBM's options, and when it is fitted."""

    refit: int | None = Field(
        None,
        ge=1,
        description="windows between two fits, at most; default: four of the longest season, 500 to 2,000. While the "
        "stream is young, a fifth of the windows so far",
    )
    look: int = Field(8, ge=1, description="fits between two choices of the base, at most")
    models: int = Field(24, ge=1, description="models of a target, at most; of a longer horizon, steps share them")
    pairs: int = Field(20_000, ge=100, description="newest windows that a model learns")
    errors: int = Field(1000, ge=10, description="newest errors of a series and a step that the quantiles are of")
    base: str | None = Field(
        None,
        pattern="^(level|last|season|long|mean)$",
        description="what a forecast is a departure from: level (nothing), last, season, long, mean; default: chosen",
    )
    trees: int = Field(300, ge=1, description="LightGBM's n_estimators")
    rate: float = Field(0.03, gt=0, description="LightGBM's learning_rate")
    leaves: int = Field(31, ge=2, description="LightGBM's num_leaves")
    leaf: int = Field(20, ge=1, description="LightGBM's min_child_samples")
    bins: int = Field(63, ge=2, description="LightGBM's max_bin")
    share: float = Field(0.5, gt=0, le=1, description="LightGBM's colsample_bytree")
    extra: bool = Field(True, description="LightGBM's extra_trees: thresholds at random, which suits little data")
    objective: str = Field(
        "regression", pattern="^(regression|regression_l1|huber)$", description="LightGBM's objective"
    )

    def build(self, name: str, shape: Shape, probabilities: tuple[float, ...], seed: int) -> Trees:
        return Trees(self, shape, probabilities, seed)


class _Pairs(NamedTuple):
    """Pairs of a group: seen (R, F), bases (R, B, O) and truth (R, O), all less the last value; last (R, O)."""

    seen: Floats
    last: Floats
    bases: Floats
    truth: Floats


class Trees(Direct):
    """LightGBM on a stream.

    Args:
        config: its options.
        shape: of the windows.
        probabilities: (Q,) of the quantiles that are issued.
        seed: of the pairs that are drawn, and of LightGBM.
    """

    def __init__(self, config: Config, shape: Shape, probabilities: tuple[float, ...], seed: int) -> None:
        refit = config.refit or min(max(4 * shape.season, 500), 2000)
        super().__init__(shape, probabilities, refit, config.errors)
        self.config, self.seed = config, seed
        self.groups = groups(shape.horizon, config.models)
        names = self.columns.bases
        self._bases = [names.index(config.base)] if config.base in names else [*range(len(names))]
        self.forget()

    def forget(self) -> None:
        self._draw = np.random.default_rng(self.seed)
        self._kept: list[list[_Pairs]] = [[] for _ in self.groups]
        self._models: dict[tuple[int, int], Any] = {}
        self._chosen: dict[tuple[int, int], int] = {}  # base of a group and target
        self._fits = self._count = self._chosen_at = 0  # fits since a choice, windows so far, and at the last choice

    def keep(self, x: Inputs, y: Tensor) -> None:
        """Draw the pairs that are learned of these windows."""
        count = len(y)
        if not count:
            return
        self._count += count
        truth = y.numpy().reshape(count, self.shape.outputs, self.shape.horizon)
        window = np.arange(count)
        for kept, steps in zip(self._kept, self.groups, strict=True):
            step = self._draw.choice(steps, count)
            rows = self.columns.rows(x, window, step)
            departure = truth[window, :, step] - rows.last
            kept.append(_Pairs(rows.values.astype(np.float32), rows.last, rows.bases, departure))
            total = sum(len(part.last) for part in kept)
            while total - len(kept[0].last) >= self.config.pairs:
                total -= len(kept.pop(0).last)

    def estimate(self) -> None:
        choose = not self._fits % self.config.look or self._count >= 2 * self._chosen_at
        if choose:
            self._fits, self._chosen_at = 0, self._count
        self._fits += 1
        for kept in self._kept:
            kept[:] = [_Pairs(*(np.concatenate(part) for part in zip(*kept, strict=True)))]
        for group, (whole,) in enumerate(self._kept):
            for target in range(self.shape.outputs):
                known = np.isfinite(whole.truth[:, target])
                if not known.any():
                    continue
                pairs, key = _Pairs(*(part[known] for part in whole)), (group, target)
                if choose or key not in self._chosen:
                    self._chosen[key] = self._choose(pairs, target, self._chosen.get(key))
                base = self._chosen[key]
                self._models[key] = self._grown(pairs, target, base, self.config.trees), base

    def base(self, group: int, target: int) -> str:
        """What the model of a group of steps forecasts departures from."""
        return self.columns.bases[int(self._models[group, target][1])]

    def mean(self, x: Inputs) -> Floats:
        count, outputs = len(x.future), self.shape.outputs
        found = np.zeros((count, outputs, self.shape.horizon))
        for group, steps in enumerate(self.groups):
            window, step = np.repeat(np.arange(count), len(steps)), np.tile(steps, count)
            rows = self.columns.rows(x, window, step)
            for target in range(outputs):
                ahead = rows.last[:, target]
                if (group, target) in self._models:
                    model, base = self._models[group, target]
                    table, from_last = self._table(rows.values.astype(np.float32), rows, target, base)
                    ahead = ahead + from_last + model.predict(table, num_threads=1)
                found[window, target, step] = ahead
        return found.reshape(count, self.shape.columns)

    def _choose(self, pairs: _Pairs, target: int, present: int | None) -> int:
        """The base of least error on the newest pairs; the present one, at first the last value, unless another is
        clearly better."""
        count, names = len(pairs.last), self.columns.bases
        if len(self._bases) == 1:
            return self._bases[0]
        if present is None:
            present = names.index("last") if "last" in names else 0
        if count < LEAST:
            return present
        cut = count - count // HELD
        early, late = (_Pairs(*(part[rows] for part in pairs)) for rows in (slice(0, cut), slice(cut, None)))
        errors = dict[int, float]()
        for base in self._bases:
            model = self._grown(early, target, base, TRIALS, **TRIAL)
            table, from_last = self._table(late.seen, late, target, base)
            made = model.predict(table, num_threads=1) + from_last
            errors[base] = float(np.abs(made - late.truth[:, target]).mean())
        best = min(errors, key=errors.__getitem__)
        return best if errors[best] < BETTER * errors[present] else present

    def _grown(self, pairs: _Pairs, target: int, base: int, trees: int, **other: float) -> Any:
        """A model of these pairs."""
        lightgbm = importlib.import_module("lightgbm")
        config = self.config
        own: dict[str, Any] = {"learning_rate": config.rate, "num_leaves": config.leaves, "max_bin": config.bins}
        own |= {"min_data_in_leaf": config.leaf, "feature_fraction": config.share, "objective": config.objective}
        own["extra_trees"] = config.extra
        given = {**PARAMETERS, **own, **other, "seed": self.seed, "num_threads": torch.get_num_threads()}
        table, from_last = self._table(pairs.seen, pairs, target, base)
        data = lightgbm.Dataset(table, pairs.truth[:, target] - from_last, params=given)
        return lightgbm.train(given, data, num_boost_round=trees)

    def _table(self, seen: Floats, rows: PairRows | _Pairs, target: int, base: int) -> tuple[Floats, Floats]:
        """(R, F + 1) what a model of a target sees, its values less the base, and the last value; (R,) the base."""
        from_last = rows.bases[:, base, target]
        moved = seen.copy()
        moved[:, self.columns.own == target] -= from_last[:, None].astype(np.float32)
        return np.column_stack([moved, rows.last[:, target].astype(np.float32)]), from_last


def groups(horizon: int, models: int) -> list[Ints]:
    """Steps ahead (from 0) that share a model: each has its own, or the farther ones share where there are more.

    Example:
        >>> [part.tolist() for part in groups(10, 6)]
        [[0], [1], [2], [3, 4], [5, 6], [7, 8, 9]]
    """
    growth = 0.0
    while True:
        found, begin = list[Ints](), 0
        while begin < horizon:
            end = min(begin + max(round(growth * (begin + 1)), 1), horizon)
            found.append(np.arange(begin, end))
            begin = end
        if len(found) <= models:
            return found
        growth += 0.02


PARAMETERS: dict[str, Any] = {
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
"""The same for every stream."""
