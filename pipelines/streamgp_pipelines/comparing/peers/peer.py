"""What a peer is, and the run of one: the windows, the origins and the ledger of every other model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from streamgp.base import FLOAT, Due, Inputs, Json, Model, Predictive, Progress, Shape, Step, Tracker
from streamgp.errors import StateError
from streamgp.forecasting.bands import Bands
from streamgp.forecasting.bounds import Bounds
from streamgp.forecasting.issued import feature_count
from streamgp.predictives.gaussian import Gaussian
from streamgp.windows.windows import Answers, Asks
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.checkpointing import held
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.pairs import select
from streamgp_pipelines.learning.predictions import Predictions, frame
from streamgp_pipelines.learning.recipe import Recipe
from streamgp_pipelines.learning.session import Session, open_session
from streamgp_pipelines.stages import finishing
from streamgp_pipelines.titles import title
from streamgp_pipelines.training.online import OnlineRun
from streamgp_pipelines.training.summary import overall_metrics, summary


class PeerOptions(BaseModel, ABC):
    """What can be set of a peer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def on(self, shape: Shape, rows: int) -> Self:
        """These options, for a table of `rows` rows."""
        return self

    @abstractmethod
    def build(self, name: str, shape: Shape, probabilities: tuple[float, ...], seed: int) -> Peer:
        """The peer, before any data; it issues quantiles of these probabilities."""


class PeerForecasts(NamedTuple):
    """Forecasts of some of the questions. mean, deviation: (N, T); quantiles: (Q, N, T); learned units."""

    asks: Asks
    mean: Tensor
    deviation: Tensor
    quantiles: Tensor


class Peer(Model):
    """A forecaster of another library. It is a Model, so that a Learner can run it; it keeps no state."""

    family = Gaussian
    calendar = False
    """Whether its windows have the calendar of the steps ahead, where the rows have a clock."""

    def follow(self, answers: Answers) -> None:
        """See truths as they arrive, before the questions that are asked at their rows."""

    def wrong_by(self, series: Tensor, column: Tensor, error: Tensor) -> None:
        """See the errors of forecasts whose truth has arrived, (R,) each; those of the warm-up are not among them."""

    @abstractmethod
    def issue(self, asks: Asks) -> PeerForecasts:
        """Forecast at these origins, or at some of them."""

    def predict(self, x: Inputs) -> Predictive:
        """Nothing is known yet: what stands in the ledger during the warm-up, and is not scored."""
        raise StateError("a peer forecasts by issue alone")

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        return Step(float("nan"), 0, True, "")

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        yield self.update(x, y)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        raise StateError("a peer keeps no state", hint="it is run again from the first row")

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        raise StateError("a peer keeps no state", hint="it is run again from the first row")


class PeerLearner(Learner):
    """A peer on its stream: as any model, but that it issues quantiles of its own, and at the origins that it likes."""

    model: Peer

    def begin(self) -> None:
        super().begin()
        self.bands = Bands(self.windows.shape, replace(self.calibration, none=True))  # which learn nothing
        self._bounds = Bounds(self.windows.shape.outputs)

    def _pair(self, asks: Asks, answers: Answers) -> Due:
        self.model.follow(answers)
        if self.warmup.done_at is None:
            nothing = torch.zeros(len(asks.origin), self.windows.shape.columns, dtype=FLOAT)
            quantiles = nothing.expand(len(self.calibration.probabilities), *nothing.shape)
            self._now = PeerForecasts(asks, nothing, nothing + 1.0, quantiles)
        else:
            with self.clock.measure("predict"):
                self._now = self.model.issue(asks)
        due = super()._pair(self._now.asks, answers)
        fair = select(due, ~self._warm(due.series, due.position)) if self.warmup.done_at is not None else None
        if fair is not None and len(fair.y):
            truth = self.windows.spec.learned(fair.y, fair.column)
            self.model.wrong_by(fair.series, fair.column, truth - fair.predictive.mean[:, 0])
        return due

    def _predict(self, asks: Asks) -> Predictive:
        return Gaussian(self._now.mean, torch.zeros_like(self._now.mean), self._now.deviation.square())

    def blurred(self, asks: Asks, issued: Predictive, predict: Callable[[Asks], Predictive]) -> Asks:
        """A peer says itself how wide its forecasts are."""
        return asks

    def _calibrate(self, asks: Asks, issued: Predictive, answers: Answers) -> None:
        mean, quantiles = self._now.mean, self._now.quantiles
        if len(quantiles) and not self.calibration.transformed:
            quantiles = self._inside(mean, quantiles)
        self.ledger.calibrate(quantiles, torch.zeros(feature_count(self.calibration), *mean.shape, dtype=FLOAT))

    def _inside(self, mean: Tensor, quantiles: Tensor) -> Tensor:
        """(Q, N, T) the quantiles within the bounds that are given or were found, as those of `Bands` are."""
        given = self.calibration
        if given.lower is not None or not given.finds:
            return given.inside(quantiles)
        outputs = np.arange(mean.shape[1]) // self.windows.shape.horizon
        lower = torch.from_numpy(self._bounds.lower(outputs))
        quantiles = given.inside(quantiles.maximum(lower))
        quantiles[0] = torch.where(mean < lower, lower, quantiles[0])  # which says that the mean is at it
        return quantiles

    def _note(self, answers: Answers) -> None:
        """Find the lower bound that streamgp's models find, and say."""
        outputs = np.tile(np.arange(answers.y.shape[1]), len(answers.y))
        self._bounds.follow(outputs, answers.y.numpy().reshape(-1))


@dataclass
class _Run(Session):
    """A session that keeps no checkpoint."""

    def save(self, tail: pa.RecordBatch | None = None, rows: int | None = None) -> None:
        self.saved_rows, self.saved_tail = self.learner.rows, 0 if tail is None else tail.num_rows


def run_peer(
    name: str,
    options: PeerOptions,
    config: TrainConfig,
    tracker: Callable[[Path, str], Tracker],
    progress: Callable[[Progress], None],
) -> dict[str, Any]:
    """Run a peer over the table and write its scored forecasts.

    Args:
        name: of the peer: the prefix of its columns.
        options: of it.
        config: of a run of any model without options, with `predictions`.
        tracker: makes the run's tracker.
        progress: called with how far the run is.

    Returns:
        the summary, as that of `train`.

    Raises:
        StreamgpError: as `train`.
    """
    assert config.predictions is not None
    with held(config.checkpoint):
        opened = open_session(config)
        spec, calibration = opened.learner.windows.spec, opened.learner.calibration
        options = options.on(spec.shape, min(config.max_rows or opened.table.rows, opened.table.rows))
        peer = options.build(name, spec.shape, calibration.probabilities, config.seed)
        time = opened.table.meta.time
        if peer.calendar and spec.lags and time and pa.types.is_timestamp(opened.table.schema.field(time).type):
            spec = replace(spec, calendar=True)
            peer = options.build(name, spec.shape, calibration.probabilities, config.seed)
        shape = spec.shape
        made = Recipe.of(name, options.model_dump(), spec, opened.learner.schedule, calibration, config.seed)
        learner = PeerLearner(made, peer)
        named = {"learner": learner, "naming": replace(opened.naming, model=name)}
        named["config"] = opened.config.model_copy(update={"model": name})
        session = _Run(**{part.name: getattr(opened, part.name) for part in fields(opened) if part.init} | named)
        tracked = tracker(config.checkpoint, title(name, shape.targets, shape.horizon))
        with finishing(tracked):
            tracked.params({"model": name, **{f"set.{key}": value for key, value in options.model_dump().items()}})
            predictions = Predictions(config.checkpoint, session.naming, shape)
            predictions.resume(0)
            online = OnlineRun(session, tracked, (predictions,), progress)
            online.run()
            ahead, last = learner.preview(online.tail)
            predictions.assemble(
                config.predictions, [frame(due, ahead.windows.names, session.naming, shape) for due in last]
            )
            found = summary(session, ahead, tracked.run_id)
            tracked.metrics(overall_metrics(found), ahead.rows)
            tracked.flush()
    return found
