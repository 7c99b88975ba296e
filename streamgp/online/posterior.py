"""What a model family implements: inference on standardised rows. It knows nothing of streams.

Shapes: N rows, W columns of a standardised window, T target columns, G groups of columns that share a lengthscale. A
posterior that is of `many` models has K of them, and all that is said of N rows has a leading axis K: (K, N, W),
(K, N, T); a row without a truth is one that a model does not have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from pydantic import BaseModel
from torch import Generator, Tensor, nn

from streamgp.base import Inputs, Predictive
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial
from streamgp.evidence.search import Search
from streamgp.kernels import Kernel, Tied
from streamgp.online.summing import Summing, in_blocks
from streamgp.predictives.gaussian import Gaussian
from streamgp.state import holding
from streamgp.training.shared_gradients import Sharing, here


class Look(NamedTuple):
    """Windows as the posterior sees them: computed once, used to forecast, to winsorise and to learn.

    Attributes:
        z: (N, W) standardised windows.
        features: whatever else was computed of them.
        mean: (N, T) of the function.
        latent: (N, T) or (N, 1) variance of the function.
        noise: (T,) or (N, T) variance of an observation around the function.
    """

    z: Tensor
    features: Any
    mean: Tensor
    latent: Tensor
    noise: Tensor


class Rows(NamedTuple):
    """Rows to learn from the beginning, in the order of their arrival.

    Attributes:
        z: (N, W) standardised windows.
        y: (N, T) standardised targets (outcomes as they are), NaN = not observed.
        weight: (N,) how many rows of the forgetting stream each stands for.
        filled: (N, T) y, with what is missing as the model predicts it; NaN where nothing predicts yet. A value that is
            as predicted leaves the mean as it is.
        places: (N,) where the memory keeps them; (0,) for the rows of a batch fit.
        x: the windows as they came, for a posterior that keeps some of them: `Units.standardise` makes z of them.
    """

    z: Tensor
    y: Tensor
    weight: Tensor
    filled: Tensor
    places: Tensor
    x: Inputs


class Units(NamedTuple):
    """What one standardised unit is, in the units of the columns.

    Attributes:
        inputs: (G,) of each group of window columns.
        outputs: (T,) of what is learned of the targets.
        before: (T,) `outputs` of the scaling before this one.
        inverse: function (G,) log ℓ -> (W,) 1/ℓ of each column, see `KernelInputs.inverse`.
        groups: (W,) the group of each column.
        standardise: windows as they came -> (N, W).
    """

    inputs: Tensor
    outputs: Tensor
    before: Tensor
    inverse: Callable[[Tensor], Tensor]
    groups: Tensor
    standardise: Callable[[Inputs], Tensor]


class Arrival(NamedTuple):
    """New rows of the stream, and where the memory keeps some of them.

    Attributes:
        y: (N, T) standardised targets, winsorised, NaN = not observed.
        kept: part of the weight of everything older that is not forgotten, if N rows have come.
        rows: (B,) those of the N rows that the memory keeps.
        places: (B,) where.
        shares: function () -> (C,) how many rows of the forgetting stream each place of the memory now stands for, 0
            where it is empty.
        memory: function () -> all rows that the memory keeps, these among them: for a posterior that was fitted to
            other rows before.
        older: function (R,) -> at most R of the rows that the memory kept before, at random; their weights add up to
            those of all.
    """

    y: Tensor
    kept: float
    rows: Tensor
    places: Tensor
    shares: Callable[[], Tensor]
    memory: Callable[[], Rows]
    older: Callable[[int], Rows]


class LearnedFunction(NamedTuple):
    """The function that a posterior has learned, in standardised units.

    Attributes:
        kernel: prior covariance of the function, at standardised windows or at their image by `encode`. Where there are
            `slopes`, a linear function is added to it.
        noise: (T,) variance of an observation around the function with which rows are learned; that of forecasts is in
            `Look`.
        points: (M, W) inducing points, as the kernel sees them; None where the family has none.
        encode: (N, W) standardised windows -> (N, d) what the kernel sees; None: the windows.
        slopes: () prior variance of the slope of each column of the standardised windows, and of the value at 0.
        functions: the kernel whose values are summed, of height 1, where the covariance is that of a sum of functions.
    """

    kernel: Kernel
    noise: Tensor
    points: Tensor | None = None
    encode: Callable[[Tensor], Tensor] | None = None
    slopes: Tensor | None = None
    functions: Kernel | None = None


def tied(config: BaseModel, groups: Tensor, lengthscale: Tensor, outputscale: Tensor) -> Tied:
    """A radial kernel with these logarithms of hyper-parameters.

    Args:
        config: of the kernel.
        groups: (W,) the group of each column.
        lengthscale: (G,)
        outputscale: ()
    """
    present, groups = groups.cpu().unique(return_inverse=True)  # a channel that is hidden has a group, and no column
    kernel = Tied(config, groups).to(lengthscale.device).requires_grad_(False)
    values = dict(kernel.named_parameters())
    values["log_lengthscale"].copy_(lengthscale[present.to(lengthscale.device)])
    values["log_outputscale"].copy_(outputscale)
    return kernel


class Posterior(nn.Module, ABC):
    """Inference of one family. Its state is `state`/`restore` where it defines them, else its parameters and buffers.

    Attributes:
        family: what `predictive` returns.
        units: whether targets are amounts, which are standardised; else they are learned as they are (outcomes).
        robust: whether the likelihood itself bounds the influence of an outlier; then targets are not winsorised.
        summing: how a batch fit sums over its rows.
        sharing: how a batch fit computes the gradient of a mini-batch.
        carries: whether a rebuild carries the posterior through (`transfer`), once the memory has lost rows.
        many: whether it is of K models at once.
    """

    many: ClassVar[bool] = False
    family: type[Predictive] = Gaussian
    units: bool = True
    robust: bool = False
    summing: Summing = staticmethod(in_blocks)
    sharing: Sharing = staticmethod(here)
    carries: bool = False

    @property
    def sums_rows(self) -> bool:
        """Whether a batch fit learns all rows as sums over them, by `summing`: a sample then suffices for all else."""
        return False

    @property
    def shares_rows(self) -> bool:
        """Whether a batch fit is faster where workers do `summing` and `sharing`, as docs/results/operations.md has it
        measured, from 20,000 or 100,000 rows on."""
        return False

    @property
    @abstractmethod
    def size(self) -> int:
        """Basis functions in use."""

    @property
    @abstractmethod
    def weight(self) -> Tensor:
        """() or (T,) rows learned, after forgetting."""

    @property
    @abstractmethod
    def healthy(self) -> bool:
        """Whether all numbers that a prediction is made of are finite."""

    @property
    def signal(self) -> float | None:
        """Ratio of the function's prior variance to the noise variance, ρ²/σ²; None where it is not known."""
        return None

    def learned(self, groups: Tensor) -> LearnedFunction | None:
        """What was learned of the function; None where it has no covariance in closed form. groups: (W,) the group of
        each column."""
        return None

    @abstractmethod
    def look(self, z: Tensor) -> Look:
        """Standardised windows (N, W); before anything is learned, the prior."""

    def covariance(self, z: Tensor) -> Tensor | None:
        """(T, N, N) or (1, N, N): covariance of the function at these windows (N, W) together, whose diagonal is the
        latent variance; None where the family has none in closed form."""
        return None

    def glance(self, z: Tensor) -> Look:
        """As `look`, for windows that are only learned: the latent variance may be too small where computing it is
        costly."""
        return self.look(z)

    def measured(self, look: Look, rows: Tensor) -> Look:
        """A glance, with the exact latent variance of the rows where this mask (N,) is true."""
        return look

    def predictive(self, look: Look) -> Predictive:
        """The distribution of standardised observations."""
        return Gaussian(look.mean, look.latent.expand_as(look.mean), look.noise.expand_as(look.mean))

    @abstractmethod
    def absorb(self, look: Look, arrival: Arrival) -> str:
        """Learn new rows under the hyper-parameters of now; returns what else happened, or "".

        Raises:
            NumericalError: a factorisation failed; the shell puts back what was.
        """

    @abstractmethod
    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        """Forget everything; estimate hyper-parameters, choose a basis and learn these rows; returns what happened.

        Raises:
            NumericalError: a factorisation failed; the shell puts back what was.
        """

    def transfer(self, rows: Rows, units: Units, generator: Generator) -> str:
        """Estimate hyper-parameters and choose a basis by these rows, and carry through what was learned: they are not
        learned again. Scaling and reference stay. Returns what happened; by default a rebuild.

        Raises:
            NumericalError: a factorisation failed; the shell puts back what was.
        """
        return self.rebuild(rows, units, generator)

    def rescales(self, rows: int) -> bool:
        """Whether a rebuild on this many rows estimates scaling and reference again; not one that continues from what
        was learned in the units of now."""
        return True

    def interval(self, rebuild: int, seen: int) -> float:
        """Rows from one rebuild to the next, after `seen` rows; (K,) each of K models. rebuild: the option."""
        return rebuild

    @property
    def overdue(self) -> bool:
        """Whether recent forecasts say that a rebuild should not wait for its turn."""
        return False

    @abstractmethod
    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        """One epoch of a batch fit; returns whether another one would change anything.

        Args:
            rows: the same rows at every epoch of a fit, and the same object until the fit is interrupted.
            units: as of `rebuild`.
            first: whether the fit begins: forget what was learned.
            left: epochs that may still come, this one included.
        """

    def failed(self) -> None:
        """Note that an epoch failed and was undone, so that the next one does not repeat it."""

    def begin_afresh(self) -> None:
        """Let the fit that comes start from no hyper-parameters of rows that were learned before."""

    def checked(self, rows: int) -> bool:
        """Whether `held_out` checks a fit of `rows` rows; not one that holds some out itself, takes long, or
        estimates nothing, and none whose likelihood has heavy tails, as a few far errors would say all."""
        return True

    def epochs_for(self, rows: int) -> int:
        """Epochs that a fit from scratch wants on this many rows."""
        return 1

    def warmup_epochs(self, rows: int) -> int:
        """Epochs that the warm-up of a stream wants."""
        return self.epochs_for(rows)

    @abstractmethod
    def loss(self) -> float:
        """The objective a row and column, in standardised units; 0 where there is none.

        After learning, a value that is not finite counts as a numerical failure: what was learned is undone.
        """

    def judged(self) -> list[tuple[float, bool]]:
        """Loss and health of each model."""
        return [(self.loss(), self.healthy)]

    def means(self, look: Look, rows: slice) -> Tensor:
        """(..., R, T) of the function now, at some of the rows of a look that may be older."""
        return self.glance(look.z[..., rows, :]).mean

    def check(self, y: Tensor, names: Sequence[str]) -> None:
        """Check that the targets (N, T) of these names are valid for the likelihood.

        Raises:
            DataError: one is not.
        """

    def check_batch(self, rows: int) -> None:
        """Check that this many rows can be fitted.

        Raises:
            UsageError: they cannot.
        """

    def start_from(self, initial: Initial) -> None:
        """Take hyper-parameters that were found before as the start, before anything is learned.

        Raises:
            UsageError: they do not fit.
        """
        raise UsageError("this model starts from no hyper-parameters", hint="leave out --init")

    def snapshot(self) -> Callable[[], None]:
        """Keep what learning changes; calling the result puts it back. The shell then calls `attach`."""
        return holding({"posterior": self})

    def attach(self, z: Tensor, places: Tensor) -> None:
        """Take the windows that the memory keeps, after a state was restored: they are in the memory's state.

        Args:
            z: (R, W) standardised.
            places: (R,) where the memory keeps them.
        """

    def waits(self, rows: int) -> bool:
        """Whether this many new rows would only wait to be learned with later ones, so that no forecast changes yet."""
        return False

    def scored(self, look: Look, y: Tensor) -> None:
        """Note how rows that are not learned yet were forecast. y: (N, T) standardised, as observed."""


class Regressor(Protocol):
    """A Bayesian linear regression on features.

    Attributes:
        weight: () rows learned, after forgetting.
        coefficients: (M, T) their posterior mean.
    """

    weight: Tensor
    coefficients: Tensor

    def loss(self) -> float: ...


class RegressionPosterior(Posterior):
    """A regression on features of the windows, under hyper-parameters that a search estimates.

    Attributes:
        regression: of the rows learned.
        search: of the hyper-parameters.
    """

    regression: Regressor
    search: Search

    def begin_afresh(self) -> None:
        self.search.forget()

    @property
    def weight(self) -> Tensor:
        return self.regression.weight

    @property
    def healthy(self) -> bool:
        return bool(torch.isfinite(self.regression.coefficients).all())

    @property
    def signal(self) -> float | None:
        return self.search.signal if self.search.found else None

    def loss(self) -> float:
        return self.regression.loss()


class DrawsFunctions(ABC):
    """A posterior that whole functions can be drawn from."""

    @abstractmethod
    def draw(self, paths: int, generator: Generator) -> Callable[[Tensor], Tensor]:
        """P functions of the posterior. The callable takes P · S standardised windows, path by path, as often as it is
        asked, and returns (P · S, T) standardised observations, with fresh noise."""


def no_rows(like: Tensor) -> Tensor:
    """An empty index on the device of a tensor."""
    return torch.empty(0, dtype=torch.int64, device=like.device)
