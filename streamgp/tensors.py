"""The contracts of tensors: what windows, a distribution, its due truths and a model are. `streamgp.base` offers them.

They have a module of their own, because importing it imports torch, which nobody needs to fill or describe a table.
Shapes and units are those of `streamgp.base`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from streamgp.base import Json, Step

FLOAT = torch.float64  # of windows, ledgers and factorisations


class Inputs(NamedTuple):
    """What a model may look at, in raw units; float64.

    Attributes:
        past: (N, L, D) the channels at the last L rows, oldest first: the targets, the inputs, and, when the
            season is longer than one row, each target one season before that row. NaN where a channel has no value in
            the window.
        future: (N, H, F) the channels at the target rows: each target one season (or the fewest whole seasons
            that are already known) before, the known inputs, the calendar. Never NaN.
        context: (N, C) references of each step and blocks of the past, laid out as `Shape.context` says; NaN where
            something is not known. None where the shape has none.
    """

    past: Tensor
    future: Tensor
    context: Tensor | None = None

    def rows(self, index: Tensor | slice) -> Inputs:
        """The windows at `index`."""
        return Inputs(*(None if part is None else part[index] for part in self))  # type: ignore[arg-type]

    def to(self, device: torch.device) -> Inputs:
        """The windows on a device; no copy where they are there already."""
        return Inputs(*(None if part is None else part.to(device) for part in self))  # type: ignore[arg-type]

    @property
    def parts(self) -> list[Tensor]:
        """The tensors that there are."""
        return [part for part in self if part is not None]

    def flat(self) -> Tensor:
        """(..., N, L·D + H·F) the windows, oldest lag first, then what is known ahead."""
        parts = [part.flatten(-2) for part in (self.past, self.future) if part.shape[-2] * part.shape[-1]]
        return parts[0] if len(parts) == 1 else torch.cat([self.past.flatten(-2), self.future.flatten(-2)], -1)

    @classmethod
    def cat(cls, parts: Sequence[Inputs]) -> Inputs:
        """Windows of the same shape, one after another."""
        joined = (None if columns[0] is None else torch.cat(columns) for columns in zip(*parts, strict=True))
        return cls(*joined)  # type: ignore[arg-type]


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
    """Something whose whole state is tensors and JSON, and that continues from them bit for bit."""

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
        quantiles: (Q, R) of the calibrated distribution, as issued; none for outcomes of 0 and 1.
        features: (F, R) what the calibration learns from.
        x, target: the N windows whose last step is due now, oldest first, and their truths (N, T); NaN where one never
            arrived.
        issued: (P, N, T) the parameters of the forecasts that were issued for these windows.
        tail, alarm: (R,) probability of a truth as far out, NaN beyond one step ahead, and kind of alarm
            (`forecasting.alarms.Verdicts`); None where nobody asked.
        whole: (N,) codes of the series of the windows x; None where nobody asks for them.
        aged: (R,) whether the target was not known at the row of the forecast; None: it was.
    """

    series: Tensor
    position: Tensor
    cutoff: Tensor
    ds: Tensor
    column: Tensor
    y: Tensor
    predictive: Predictive
    quantiles: Tensor
    features: Tensor
    x: Inputs
    target: Tensor
    issued: Tensor
    tail: Tensor | None = None
    alarm: Tensor | None = None
    whole: Tensor | None = None
    aged: Tensor | None = None

    @property
    def parameters(self) -> Tensor:
        """(P, R) what the issued distributions are made of."""
        return self.predictive.parameters()[..., 0]


class Model(nn.Module, ABC):
    """A prequential model: predict, then update. Built from a frozen Config and a Shape.

    Laws (streamgp.testing.check_model asserts them for every registered model):
        1. `predict` is pure: no state changes, no random numbers; before the first update it is the prior.
        2. One window alone gives its row of the batch, to 1e-10 relative in float64.
        3. `state` then `restore` into a freshly built model: every later number is the same, bit for bit.
        4. Memory and time of `update` do not grow with the rows seen.
        5. NaN in y is "not observed": it teaches nothing.
        6. A window with values beyond 1e150 teaches nothing and is reported; the rest of its batch is learned.
        7. What fails numerically changes nothing and is reported: `Step.healthy` is False and `done` says why.
    """

    family: type[Predictive]
    """The one class of distribution that `predict` returns."""
    context: bool = True
    """Whether it looks at `Inputs.context`: where it does not, windows need none."""

    @property
    def above_linear(self) -> Model | None:
        """The part of it that learns what `linear` leaves, where one learns inside it; it needs no context."""
        return None

    @abstractmethod
    def predict(self, x: Inputs) -> Predictive:
        """The distribution of the T columns for N windows."""

    @abstractmethod
    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        """Learn N windows once, as they arrive. y: (N, T), NaN = not observed.

        `issued` is what this model forecast for these windows when it was asked, H or more rows ago. A mixture weighs
        its experts by these forecasts, which have seen no truth since; other models ignore them. None where windows
        and truths come together: what the model forecasts now was then issued now.
        """

    @abstractmethod
    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Learn a bounded set of windows in batch, a Step an epoch; the consumer may stop between epochs.
        The warm-up of a stream is `fit` on its first windows; `update` continues from there."""

    def epochs_for(self, rows: int) -> int:
        """Epochs that `fit` wants from scratch on this many windows."""
        return 1

    def warmup_epochs(self, rows: int) -> int:
        """Epochs that the warm-up of a stream wants on this many windows: fewer where what follows makes up for it."""
        return self.epochs_for(rows)

    def check_fit(self, rows: int) -> None:
        """See that `fit` takes this many windows.

        Raises:
            UsageError: it does not.
        """

    def warnings(self) -> list[str]:
        """What a user of the forecasts should know of the model as it is now, a sentence each."""
        return []

    def figures(self) -> dict[str, float]:
        """What of the model is worth a curve over the rows seen, by name; nothing by default."""
        return {}

    def shares(self) -> dict[str, Tensor]:
        """(H,) weights by step ahead, means over targets, of the experts that the model mixes; none by default."""
        return {}

    def hyperparameters(self) -> dict[str, Tensor]:
        """What it has estimated beside its weights, by name, in the units of the columns; nothing by default."""
        return {}

    def inner_models(self) -> dict[str, Model]:
        """The models that it is made of, by name; none by default."""
        return {}

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
        belongs to path p), as often as it is asked; it returns (P · S, T) raw observations, with fresh noise. Paths go
        on from these, or from what an `OutputError` says."""


@runtime_checkable
class Assesses(Protocol):
    """A model that learns how good its forecasts were as soon as a truth comes, before the last step of its window is
    due. After the first call `update` leaves this to `assess`."""

    assesses: bool
    """Whether it does, as it was built."""

    def assess(self, issued: Predictive, y: Tensor) -> None:
        """Learn from N truths, in their order, beside all that was forecast of each.

        Args:
            issued: (N, T) what was forecast of each truth, by target and step ahead.
            y: (N, T) the truth of the target of each column; NaN where nothing is learned.
        """


@runtime_checkable
class Decomposes(Protocol):
    """A model whose mean is a sum over what it looks at."""

    def parts(self, x: Inputs) -> dict[str, Tensor]:
        """Terms (N, T) by name, in target units, that add up to the mean of `predict(x)`; nothing changes."""


class OutputError:
    """Functions of a model whose noise is that of a measurement (Ljung 1999, section 4.2): a path continues from values
    without it. They are called as those of any model, and then return observations.

    Args:
        apart: windows -> values to go on from, and observations of these, (P · S, T) each.
    """

    def __init__(self, apart: Callable[[Inputs], tuple[Tensor, Tensor]]) -> None:
        self.apart = apart

    def __call__(self, x: Inputs) -> Tensor:
        return self.apart(x)[1]


class Fleet(Protocol):
    """Models of many series, each with its own; Stateful. N windows, and the code of the series of each."""

    def predict(self, x: Inputs, series: Tensor, batch: int = 1) -> Tensor:
        """(P, N, T) parameters of what each window's model forecasts; nothing changes. The windows of a model may be
        padded to a multiple of `batch`, so that it meets one fixed shape."""

    def update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor) -> list[Step]:
        """Each model learns its windows, as `Model.update` does; a step for each."""

    def fit(self, x: Inputs, y: Tensor, series: Tensor) -> Iterable[Step]:
        """Each model starts over from its windows, as `Model.fit` does; a step for each, or for each epoch of it."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]: ...

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None: ...


@runtime_checkable
class Timed(Protocol):
    """A fleet that learns something of all its series together. No forecast may rest on what came later in another
    series, and of rows that are read at a time some series are learned before others."""

    def begin(self) -> None:
        """The rows that follow are later than all that were learned."""

    def reach(self, together: int, newest: int) -> None:
        """Say of the windows that are learned next: the time that each of their series has reached, and the time of the
        last truth among them."""
