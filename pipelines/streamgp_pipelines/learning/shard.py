"""A fleet in shards: the series of each bucket are a fleet of their own, which lives here or in another process.

Methods are called by name and bucket (`Shard.run`), so that they can be called in another process; arguments and
results are Arrow, NumPy arrays and plain values. Nothing that a bucket does depends on where it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp import registry
from streamgp.base import Due, Json, Step
from streamgp.forecasting.bands import Questions
from streamgp.windows.windows import Asks, Windows
from streamgp_data import checkpoint
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.pairs import joined
from streamgp_pipelines.learning.recipe import Recipe

Arrays: TypeAlias = dict[str, NDArray[Any]]

PAIRS = ("series", "position", "cutoff", "ds", "column", "y")
OF_ALARMS = ("tail", "alarm")


class Tally(NamedTuple):
    """Progress of a bucket: the states of scores and counts, rows read, late, late but used and snapped, rows of
    warm-up, forecasts to come, whether a model of it is fitted, and of alarms the rows judged and how many raised each
    kind."""

    scores: tuple[Arrays, dict[str, Json]]
    counts: dict[str, Json]
    rows: int
    late: int
    late_used: int
    snapped: int
    warmed: int
    to_come: int
    fitted: bool
    judged: int
    raised: list[int]


class Answer(NamedTuple):
    """What a bucket did with rows.

    Attributes:
        step: of its models; None where none learned.
        pairs: the forecasts whose truth has come, those that count: the fields of `Due` in `PAIRS`, parameters and
            quantiles. {} where there are none.
        tally: how far it is.
        predict, updates: seconds of the predictions, and of each update.
    """

    step: Step | None
    pairs: Arrays
    tally: Tally
    predict: float
    updates: list[float]


Since: TypeAlias = Callable[[Collection[int]], Iterable[tuple[str, dict[int, Any]]]]
"""The calls of `Shard.run` that bring buckets that were lost to where they were."""


class Workers(Protocol):
    """Where buckets live.

    Attributes:
        lost: how often a worker was lost, and another put in its place.
    """

    lost: int

    def run(self, name: str, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """Call a method of `Shard` for some buckets; its answers, in the order of the buckets."""

    def close(self) -> None:
        """Let go of processes."""


class Shard:
    """The fleets of some buckets."""

    lost = 0

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.device = recipe, torch.device("cpu")
        registry.trust(f"{recipe.model} {dict(recipe.options)}")  # the user named them where the run was started
        self.model = recipe.build(self.device)
        self.held: dict[int, Learner] = {}

    def run(self, name: str, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """Call a method with a bucket's fleet and its argument; its answers by bucket, in their order."""
        method = getattr(self, name)
        return {bucket: method(self.fleet(bucket), arguments[bucket]) for bucket in sorted(arguments)}

    def close(self) -> None:
        """Nothing is open."""

    def fleet(self, bucket: int) -> Learner:
        """The fleet of a bucket, made when it first has rows."""
        if bucket not in self.held:
            self.held[bucket] = Learner(self.recipe, self.model, self.device)
        return self.held[bucket]

    def take(self, fleet: Learner, rows: pa.RecordBatch) -> Answer:
        """Let rows wait, and learn the micro-batches that they fill."""
        clock = fleet.clock
        predict, updates = clock.predict, clock.updates
        step, due = fleet.advance(rows)
        new = torch.arange(updates, clock.updates) % len(clock.durations)
        return Answer(step, pairs(due), tally(fleet), clock.predict - predict, clock.durations[new].tolist())

    def tally(self, fleet: Learner, _: None) -> Tally:
        """How far it is."""
        return tally(fleet)

    def preview(self, fleet: Learner, rows: pa.RecordBatch | None) -> Answer:
        """What a copy says that has taken these rows, and those that wait; see `Learner.preview`."""
        ahead, dues = fleet.preview(rows)
        return Answer(None, pairs(joined(dues)), tally(ahead), 0.0, [])

    def branch(self, fleet: Learner, rows: pa.RecordBatch | None) -> None:
        """Learn these rows and all that wait, to forecast from there."""
        fleet.branch(rows)

    def watch(self, fleet: Learner, rows: pa.RecordBatch) -> None:
        """Read rows after the last one learned; see `Learner.watch`."""
        fleet.watch(rows)

    def windows(self, fleet: Learner, _: None) -> Windows:
        """Its windows."""
        return fleet.windows

    def fitted(self, fleet: Learner, series: Tensor) -> Tensor:
        """(N,) whether the models of these series have been fitted."""
        return fleet.fitted(series)

    def predict(self, fleet: Learner, asks: Asks) -> Tensor:
        """(P, N, T) parameters of the raw predictives."""
        return fleet.predict(asks)

    def quantiles(self, fleet: Learner, asked: tuple[Questions, tuple[float, ...]]) -> Tensor:
        """(Q, N, T) of the calibrated distributions."""
        return fleet.bands.quantiles(*asked)

    def wider(self, fleet: Learner, asked: tuple[Tensor, Tensor]) -> Tensor:
        """(N, T) what spreads are multiplied by, of series (N,) whose targets have ages (N, O)."""
        return fleet.bands.wider(*asked)

    def dump(self, fleet: Learner, _: None) -> bytes:
        """Its state."""
        return checkpoint.pack(fleet.parts())

    def load(self, fleet: Learner, data: bytes) -> Tally:
        """Go back to a state."""
        checkpoint.unpack(data).restore(fleet.parts(), fresh=fleet.windows.rows == 0)
        return tally(fleet)


def tally(fleet: Learner) -> Tally:
    """How far a fleet is."""
    tensors, rest = fleet.scores.state()
    windows, done = fleet.windows, fleet.warmup.done_at is not None
    numbers = windows.rows, windows.late, windows.late_used, windows.snapped, fleet.warmed, fleet.to_come()
    scores = {name: part.numpy() for name, part in tensors.items()}, rest
    judged, raised = (0, []) if fleet.alarms is None else (fleet.alarms.rows, fleet.alarms.raised.tolist())
    return Tally(scores, fleet.counts.state()[1], *numbers, done, judged, raised)


def pairs(due: Due) -> Arrays:
    """The pairs without what only the calibration looks at."""
    if not len(due.y):
        return {}
    names = PAIRS if due.alarm is None else (*PAIRS, *OF_ALARMS)
    found = {name: getattr(due, name).numpy() for name in names}
    return found | {"parameters": due.parameters.numpy(), "quantiles": due.quantiles.numpy()}


def here(recipe: Recipe, since: Since) -> Shard:
    """All buckets in this process; none is lost."""
    return Shard(recipe)
