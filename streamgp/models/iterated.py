"""Iterated forecasts: a regression of one step, run on its own output to all steps ahead.

    v̂[t+h] = f(v̂[t+h−1], …, v̂[t+h−L+1], k[t+h−1], …, k[t+h−L+1], k[t+h]),     h = 1, …, H

v holds the targets and the inputs of which only the past is known, k the inputs known ahead: a vector autoregression
with exogenous inputs (Lütkepohl 2005, section 10.6). f is learned from the newest row of each window and the L − 1
before it. Two such regressions of the change of v are rolled, one with `hinges` of the newest values and one without
(`linear`), and mixed by the errors of what each had issued (`mixing.Mixer`); before any error is known the one without
is taken. A step stays within the range seen before and in the window, and as much again at either side. With a season
the targets are departures from it.

Beside `linear`, which has coefficients for each step ahead, this is the iterated forecast beside the direct one
(Marcellino, Stock & Watson 2006): better where one step is learned well, worse where its errors add up. No noise is
propagated: where f bends, a step of the mean is not the mean of steps.

Cost: of two regressions of one step, and 2 H products of (N, (L − 1) D + hinges) matrices for the forecasts of N
windows; nothing is done row by row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from streamgp.base import Inputs, Model, Predictive, Shape, Step
from streamgp.errors import UsageError
from streamgp.mixing.mixer import Mixer, forgetting
from streamgp.model_config import ModelConfig
from streamgp.models import linear
from streamgp.models.linear import Linear
from streamgp.models.linear.hinges import KNOTS
from streamgp.online.glitches import plausible
from streamgp.online.inputs import reporting, usable_rows
from streamgp.online.variance import random_walk_variance
from streamgp.predictives.mixed import Mixed
from streamgp.state import Declared, Nested

CHUNK = 256
"""Windows that are forecast before they are learned, in `fit`."""


class Config(ModelConfig):
    """Options of the iterated regression."""

    baseline: ClassVar[bool] = True

    memory: float | None = Field(None, gt=0, description="rows after which a row counts 1/e; none never forgets")

    def functions(self, shape: Shape) -> int:
        """Columns of a window, and hinges."""
        return shape.width + 1 + KNOTS * len(shape.past)

    def idle(self, shape: Shape, others: Collection[str]) -> bool:
        """Beside `linear` it is never better with a season, and its equal one step ahead."""
        return "linear" in others and (shape.seasonal or shape.horizon == 1 or shape.lags < 2)


class Iterated(Declared, Model):
    """See the module.

    Args:
        config: its options.
        shape: of the windows; at least two lags.
    """

    family = Mixed

    STATE = (Nested("plain", "hinged", "mixer"),)

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        names = shape.past[: -shape.outputs] if shape.seasonal else shape.past
        known = [name for name in shape.future if name in names]
        own = [name for name in names if name not in known]
        self.order = [names.index(name) for name in (*own, *known)]
        self.ahead = [shape.future.index(name) for name in known]
        self.own, self.lags = len(own), shape.lags - 1
        one = Shape(targets=tuple(own), horizon=1, lags=self.lags, past=(*own, *known), future=tuple(known))
        options = linear.Config(memory=config.memory)
        self.plain, self.hinged = Linear(options, one), Linear(options, replace(one, simulated=shape.horizon))
        self.mixer = self._mixer()

    def _mixer(self) -> Mixer:
        return Mixer(2, self.shape, forgetting(self.shape), torch.tensor([1.0, 0.0]))

    def predict(self, x: Inputs) -> Mixed:
        """The mix of both, with the variance of its own past errors."""
        rows = self._rows(x)
        means = torch.stack([self._rolled(one, rows, x.future) for one in (self.plain, self.hinged)])
        return Mixed(*self.mixer.issue(means, random_walk_variance(x, self.shape)), means)

    def inner_models(self) -> dict[str, Model]:
        return {"plain": self.plain, "hinged": self.hinged}

    def _rolled(self, one: Linear, rows: Tensor, future: Tensor) -> Tensor:
        """(N, T) forecasts of a regression. rows: (N, L, D) of `_rows`."""
        outputs, horizon, first = self.shape.outputs, self.shape.horizon, self.lags + 1
        low, high = self._limits(rows[..., : self.own])
        rows = torch.cat([rows, rows.new_zeros(len(rows), horizon, rows.shape[2])], 1)
        rows[:, first:, self.own :] = future[..., self.ahead]
        for step in range(first, first + horizon):
            v = one.mean(Inputs(rows[:, step - self.lags : step], rows[:, step : step + 1, self.own :]))
            rows[:, step, : self.own] = v.clamp(low, high)
        found = rows[:, first:, :outputs]
        if self.shape.seasonal:
            found = found + future[..., :outputs]
        return found.transpose(1, 2).flatten(1)

    def _limits(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """(N, L, O') windows -> the least and the largest value of a step ahead, (N, O') each."""
        assert self.hinged.hinges is not None
        low, high = self.hinged.hinges.ends[:, : self.own]
        low, high = v.nan_to_num(torch.inf).amin(1).minimum(low), v.nan_to_num(-torch.inf).amax(1).maximum(high)
        return 2.0 * low - high, 2.0 * high - low

    def _rows(self, x: Inputs) -> Tensor:
        """(N, L, D) the past as f sees it."""
        rows = x.past[..., self.order]
        if self.shape.seasonal:
            rows[..., : self.shape.outputs] -= x.past[..., -self.shape.outputs :]
        return rows

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        """Learn N windows: the mix from what was issued, then both regressions."""
        y, taken, (left_out,) = usable_rows(x, y)
        x, y = x.rows(taken), y[taken]
        if not len(y):
            return reporting(Step(float("nan"), 0, True, "nothing observed"), left_out)
        given = self.predict(x) if issued is None else Mixed.from_parameters(issued.parameters()[:, taken])
        self.mixer.learn(given.experts, y)
        rows = self._rows(x)
        one = Inputs(rows[:, :-1], rows[:, -1:, self.own :])
        steps = [model.update(one, rows[:, -1, : self.own]) for model in (self.plain, self.hinged)]
        step = next((step for step in steps if not step.healthy), steps[-1])
        return reporting(step._replace(loss=-torch.nanmean(given.log_prob(y)).item()), left_out)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Start over from these windows, in their order; one pass is exact, so that there is never a second."""
        for buffer in self.buffers():
            buffer.zero_()
        self.mixer = self._mixer().to(y.device)
        if epochs < 1:
            return
        x, y, left_out = plausible(x, y)
        total, healthy, done = 0.0, True, "epoch"
        for start in range(0, len(y), CHUNK):
            rows = slice(start, start + CHUNK)
            step = self.update(x.rows(rows), y[rows])
            total += 0.0 if step.loss != step.loss else step.loss * len(y[rows])
            if not step.healthy:
                healthy, done = False, step.done
        yield reporting(Step(total / max(len(y), 1), self.hinged.weights.shape[0], healthy, done), left_out)


def build(config: Config, shape: Shape) -> Iterated:
    """The model, before any data.

    Raises:
        UsageError: there are fewer than two lags.

    Example:
        >>> from streamgp.base import FLOAT
        >>> model = build(Config(), Shape(targets=("y",), horizon=3, lags=2, past=("y",), future=()))
        >>> y = 0.5 ** torch.arange(60, dtype=FLOAT)
        >>> windows = y.unfold(0, 5, 1)
        >>> x = Inputs(windows[:, :2, None], windows.new_zeros(56, 3, 0))
        >>> _ = model.update(x, windows[:, 2:])
        >>> [round(value, 3) for value in model.predict(x.rows(slice(0, 1))).mean[0].tolist()]
        [0.25, 0.125, 0.063]
    """
    if shape.lags < 2:
        raise UsageError("iterated regresses a row on the row before it", hint="use --lags 2 or more")
    return Iterated(config, shape)
