"""The contracts: what a source, a window, a distribution, a model and a tracker are, and nothing else.

Units: those of the user's columns. A model standardises inside, so that a checkpoint predicts alone.

Shapes: N windows, L lags, D past channels, H steps ahead, F future channels, O target columns,
T = O · H output columns. Column o·H + (h − 1) of a (N, T) tensor is target o, h steps ahead.

What speaks of tensors is defined in `streamgp.tensors` and imported from here when it is first used: what reads or
fills a table does not pay for importing torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from streamgp.context import Context

if TYPE_CHECKING:
    from streamgp.tensors import (
        FLOAT,
        Assesses,
        Decomposes,
        Due,
        Fleet,
        Inputs,
        Model,
        OutputError,
        Predictive,
        Simulates,
        Stateful,
        Timed,
    )

__all__ = [
    "FLOAT",
    "Assesses",
    "Chunk",
    "Decomposes",
    "Due",
    "Fleet",
    "Inputs",
    "Json",
    "Model",
    "ModelCard",
    "Offset",
    "OutputError",
    "Predictive",
    "Progress",
    "Shape",
    "Simulates",
    "Source",
    "Stateful",
    "Step",
    "Timed",
    "Tracker",
]

_OF_TENSORS = frozenset(
    {
        "FLOAT",
        "Assesses",
        "Decomposes",
        "Due",
        "Fleet",
        "Inputs",
        "Model",
        "OutputError",
        "Predictive",
        "Simulates",
        "Stateful",
        "Timed",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _OF_TENSORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module("streamgp.tensors"), name)
    return found


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

Offset: TypeAlias = Mapping[str, int | str]
"""Partition -> next unread position; opaque to everyone but the source that made it."""


class Chunk(NamedTuple):
    """Rows, and where to resume after them."""

    rows: pa.RecordBatch
    after: Offset


class Source(Protocol):
    """Rows that can be read again from any offset that it gave out: reading on from the `after` of any chunk yields
    exactly the rows after that chunk, in the same order."""

    @property
    def schema(self) -> pa.Schema: ...

    def read(self, after: Offset) -> Iterator[Chunk]:
        """Chunks from `after` on; `{}` is the beginning."""


@dataclass(frozen=True)
class Shape:
    """What a model is built for: the names, and so the widths, of every channel.

    Attributes:
        targets, horizon: the O target columns; H, steps ahead.
        lags: L, rows looked back on; 0 is regression on `future` alone.
        past: names of the D past channels: targets, inputs, then `season(target)` when season > 1.
        future: names of the F future channels: `season(target)` when season > 1, known inputs, `calendar(...)`.
        season: rows in one season, the longest; 1 means no season.
        context: the layout of `Inputs.context`, where there are seasons.
        panel: whether there are several series.
        simulated: steps that a model of one step is going to be run on its own output; 0: none are planned.

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
    context: Context | None = None
    panel: bool = False
    simulated: int = 0

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
    def numbers(self) -> int:
        """Numbers of a window, its context among them."""
        return self.width + (self.context.width if self.context else 0)

    @property
    def seasonal(self) -> bool:
        """Whether the season channels exist: the last O of `past`, the first O of `future`."""
        return self.season > 1 and self.lags > 0


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


class Progress(NamedTuple):
    """How far a stage has come; pipelines hand one to a callable, and the command line draws it.

    Attributes:
        stage: what is being done: "ingest", "warm-up", "train", "artifacts".
        done, total: units done (rows; epochs of a warm-up and of batch training), and in all; None without an end.
        note: the newest figures in a few words: "rmse 0.21, coverage(95) 0.951".
        unit: what is counted.
    """

    stage: str
    done: int
    total: int | None = None
    note: str = ""
    unit: str = "rows"


class ModelCard(NamedTuple):
    """What a finished model is for and how it scored: what those who choose between models look at.

    Attributes:
        model: its name, as in `--model`.
        table, table_id: where the table is, and what identifies it wherever it is.
        targets: columns that it forecasts.
        horizon, season: steps.
        protocol: "prequential" (every row of the stream, before it was learned), or "held out" (rows never learned).
        metric: "calibrated_crps" (target units) or "log_loss" (of outcomes); lower is better.
        score: its value; None where nothing was scored.
        scored: forecasts that it is the mean of.
        rows: rows seen.
        state: digest of the state, which two equal models share.
    """

    model: str
    table: str
    table_id: str
    targets: tuple[str, ...]
    horizon: int
    season: int
    protocol: str
    metric: str
    score: float | None
    scored: int
    rows: int
    state: str


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

    def once(self, state: str, work: Callable[[], None]) -> None:
        """Do `work`, which logs artifacts, unless it was done at this state of the run, and all of them arrived."""

    def model(self, checkpoint: Path, card: Callable[[], ModelCard]) -> dict[str, Json]:
        """Log the checkpoint as a model that forecasts alone. `card` reads the whole checkpoint: call it where it is
        needed, once.

        Returns:
            what the model is called where it was registered: name, version, champion (whether it is the best one so
            far, or None where that is not known) and note; {} where nothing was registered.
        """

    def finish(self, status: str) -> None:
        """FINISHED, FAILED or KILLED."""
