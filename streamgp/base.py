"""The contracts: what a source, a window, a distribution, a model and a tracker are, and nothing else.

Units: those of the user's columns. A model standardises inside, so that a checkpoint predicts alone.

Shapes: N windows, L lags, D past channels, H steps ahead, F future channels, O target columns,
T = O · H output columns. Column o·H + (h − 1) of a (N, T) tensor is target o, h steps ahead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import pyarrow as pa
import torch
from torch import Generator, Tensor, nn

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

Offset: TypeAlias = Mapping[str, int | str]
"""Partition -> next unread position; opaque to everyone but the source that made it."""


class Chunk(NamedTuple):
    """Rows, and where to resume after them."""

    rows: pa.RecordBatch
    after: Offset


class Source(Protocol):
    """Rows that can be read again from any offset that it gave out: reading on from the `after` of any chunk yields
    exactly the rows behind that chunk, in the same order."""

    @property
    def schema(self) -> pa.Schema: ...

    def read(self, after: Offset) -> Iterator[Chunk]:
        """Chunks from `after` on; `{}` is the beginning."""


class Inputs(NamedTuple):
    """What a model may look at, in raw units; float64.

    Attributes:
        past: (N, L, D) the channels at the last L rows, oldest first: the targets, the inputs, and, when the
            season is longer than one row, each target one season before that row. NaN where a gap was masked.
        future: (N, H, F) the channels at the target rows: each target one season (or the fewest whole seasons
            that are already known) before, the known inputs, the calendar. Never NaN.
    """

    past: Tensor
    future: Tensor

    def rows(self, index: Tensor | slice) -> Inputs:
        """The windows at `index`."""
        return Inputs(self.past[index], self.future[index])

    def to(self, device: torch.device) -> Inputs:
        """The windows on a device; no copy where they are there already."""
        return Inputs(self.past.to(device), self.future.to(device))


@dataclass(frozen=True)
class Shape:
    """What a model is built for: the names, and so the widths, of every channel.

    Attributes:
        targets, horizon: the O target columns; H, steps ahead.
        lags: L, rows looked back on; 0 is regression on `future` alone.
        past: names of the D past channels: targets, inputs, then `season(target)` when season > 1.
        future: names of the F future channels: `season(target)` when season > 1, known inputs, `calendar(...)`.
        season: rows in one season; 1 means no season.

    Example:
        >>> shape = Shape(targets=("y",), horizon=2, lags=3, past=("y", "season(y)"), future=("season(y)",), season=7)
        >>> shape.columns, shape.width, shape.seasonal
        (2, 8, True)
    """

    targets: tuple[str, ...]
    horizon: int
    lags: int
    past: tuple[str, ...]
    future: tuple[str, ...]
    season: int = 1

    @property
    def outputs(self) -> int:
        """O, the number of targets; they are the first O channels of `past`."""
        return len(self.targets)

    @property
    def columns(self) -> int:
        """T = O · H."""
        return self.outputs * self.horizon

    @property
    def width(self) -> int:
        """L·D + H·F, the length of a flattened window."""
        return self.lags * len(self.past) + self.horizon * len(self.future)

    @property
    def seasonal(self) -> bool:
        """Whether the season channels exist: the last O of `past`, the first O of `future`."""
        return self.season > 1 and self.lags > 0


class Predictive(Protocol):
    """The distribution of the targets: T independent columns a window, in the targets' units."""

    binary: ClassVar[bool]  # outcomes are 0 and 1: the mean is the probability of 1, and there are no bands

    @property
    def mean(self) -> Tensor:
        """(N, T)"""

    @property
    def variance(self) -> Tensor:
        """(N, T) observation noise included."""

    @property
    def latent_variance(self) -> Tensor:
        """(N, T) noise excluded: what the model does not know of the function."""

    def quantile(self, p: Tensor) -> Tensor:
        """(K,) probabilities -> (K, N, T)"""

    def sample(self, paths: int, generator: Generator) -> Tensor:
        """(paths, N, T)"""

    def log_prob(self, y: Tensor) -> Tensor:
        """(N, T) -> (N, T), marginal log densities; NaN where y is NaN."""

    def crps(self, y: Tensor) -> Tensor:
        """(N, T) -> (N, T), continuous ranked probability score, in the targets' units; NaN where y is NaN."""

    def affine(self, scale: Tensor, shift: Tensor) -> Predictive:
        """The distribution of scale · y + shift; both broadcast against (N, T), scale > 0; TypeError where binary."""

    def parameters(self) -> Tensor:
        """(P, N, T) float64: everything the distribution is made of, so that a ledger can keep it."""

    @classmethod
    def from_parameters(cls, parameters: Tensor) -> Self:
        """The inverse of `parameters`."""


@runtime_checkable
class Stateful(Protocol):
    """Something whose whole state is tensors and JSON, and that goes on from them bit for bit."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]: ...

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None: ...


class Due(NamedTuple):
    """Forecasts whose truth has arrived, one row a (window, target, step ahead), and the windows now complete.

    Rows whose truth is missing (NaN) are not among them. Every tensor lives on the CPU.

    Attributes:
        series: (R,) codes of the series.
        position: (R,) place in the stream, counted from 0, of the row at which the forecast was issued.
        cutoff, ds: (R,) times of that row and of the truth, ns since the epoch (without a clock: numbers of rows).
        column, y: (R,) output column, 0 to T − 1, and the truth.
        predictive: what was issued, as a distribution of R windows with one column: (R, 1).
        factors: (K, R) the calibration that was issued with it, one row a level.
        x, target: the N windows whose last step is due now, oldest first, and their truths (N, T); NaN where one never
            arrived.
    """

    series: Tensor
    position: Tensor
    cutoff: Tensor
    ds: Tensor
    column: Tensor
    y: Tensor
    predictive: Predictive
    factors: Tensor
    x: Inputs
    target: Tensor

    @property
    def parameters(self) -> Tensor:
        """(P, R) what the issued distributions are made of."""
        return self.predictive.parameters()[..., 0]


class Step(NamedTuple):
    """What one update or one epoch did.

    Attributes:
        loss: the objective a row (negative log evidence or negative ELBO), or NaN where there is none.
        basis: basis functions in use.
        healthy, done: what happened ("update", "rebuild: ...", "epoch"), and whether its numbers are to be trusted.
    """

    loss: float
    basis: int
    healthy: bool
    done: str


class Model(nn.Module, ABC):
    """A learner that is asked before it is told. Built from a frozen Config and a Shape.

    Laws (streamgp.testing.check_model asserts them for every registered model):
        1. `predict` is pure: no state changes, no random numbers; before the first update it is the prior.
        2. One window alone gives its row of the batch, to 1e-10 relative in float64.
        3. `state` then `restore` into a freshly built model: every later number is the same, bit for bit.
        4. Memory and time of `update` do not grow with the rows seen.
        5. NaN in y is "not observed": it teaches nothing.
    """

    family: type[Predictive]
    """The one class of distribution that `predict` returns."""

    @abstractmethod
    def predict(self, x: Inputs) -> Predictive:
        """The distribution of the T columns for N windows."""

    @abstractmethod
    def update(self, x: Inputs, y: Tensor) -> Step:
        """Learn N windows once, as they arrive. y: (N, T), NaN = not observed."""

    @abstractmethod
    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Learn a bounded set of windows in batch, a Step an epoch; the consumer may stop between epochs.
        The warm-up of a stream is `fit` on its first windows; `update` continues from there."""

    def epochs_for(self, rows: int) -> int:
        """Epochs that `fit` wants from scratch on this many windows."""
        return 1

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """Everything the next prediction and the next update depend on, random state included."""

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        """The inverse of `state`, on a model built from the same Config and Shape."""


@runtime_checkable
class Simulates(Protocol):
    """A model that can be run on its own output: it draws whole functions, because what is not known of the function is
    the same at every step of a path. Independent marginal draws would understate how far paths spread."""

    def functions(self, paths: int, generator: Generator) -> Callable[[Inputs], Tensor]:
        """Draw P functions from the posterior. The callable takes P · S windows, path by path (window p·S + s
        belongs to path p), as often as it is asked; it returns (P · S, T) raw observations, with fresh noise."""


class Progress(NamedTuple):
    """How far a stage has come; pipelines hand one to a callable, and the command line draws it.

    Attributes:
        stage: what is being done: "ingest", "warm-up", "train", "artifacts".
        done, total: units done (rows; epochs of a warm-up and of batch training), and in all; None without an end.
        note: the newest figures in a few words: "rmse 0.21, coverage(95) 0.951".
    """

    stage: str
    done: int
    total: int | None = None
    note: str = ""


class Tracker(Protocol):
    """Where a run writes what it did. `step` is rows seen."""

    @property
    def run_id(self) -> str: ...

    def params(self, values: Mapping[str, Json]) -> None: ...

    def tags(self, values: Mapping[str, str]) -> None: ...

    def dataset(self, name: str, uri: str, version: int, schema: pa.Schema) -> None: ...

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Buffered; non-finite values are left out."""

    def flush(self) -> None: ...

    def artifact(self, path: Path, folder: str = "") -> None: ...

    def model(self, checkpoint: Path) -> None:
        """Log the checkpoint as a model that forecasts alone."""

    def finish(self, status: str) -> None:
        """FINISHED, FAILED or KILLED."""


FLOAT = torch.float64  # of windows, ledgers and factorisations
