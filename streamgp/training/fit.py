"""A fit in epochs: what forecasts use after each is the best that was found so far.

Best is the least NLPD on validation rows, with what the other rows teach; where there are none, what the learner says.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Generator, Tensor, nn

from streamgp.base import Json
from streamgp.state import Copies, Declared, Nested, Value
from streamgp.training.early_stopping import EarlyStopping, EarlyStoppingOptions, load, weights

ENDLESS = 10**9
"""Epochs that stand for as many as a budget of time allows: a schedule over all would never leave its beginning."""


class Standing(NamedTuple):
    """Of N rows, standardised: mean (N, T), latent variance (N, T), noise (T,)."""

    mean: Tensor
    latent: Tensor
    noise: Tensor


class Optimiser(Protocol):
    """What takes the steps of an epoch. Stateful.

    Attributes:
        span: epochs that a falling schedule spans; 0: it does not fall.
        healthy: whether every step of the last epoch had a finite gradient; the others were left out.
    """

    span: int
    healthy: bool

    def epoch(self, z: Tensor, y: Tensor, generator: Generator) -> float: ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]: ...

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None: ...


class Trainable(ABC):
    """What a fit trains. z: (N, W) standardised windows, r: (N, T) what is learned of them."""

    @property
    @abstractmethod
    def trained(self) -> Mapping[str, nn.Module]:
        """The modules that training moves."""

    @abstractmethod
    def descend(self, optimiser: Optimiser, z: Tensor, r: Tensor, generator: Generator) -> float:
        """One epoch; returns its loss a row.

        Raises:
            NumericalError: a factorisation failed.
        """

    @abstractmethod
    def serve(self, z: Tensor, r: Tensor) -> None:
        """Make what forecasts from these rows, with the modules as they are."""

    @abstractmethod
    def complete(self, z: Tensor, r: Tensor) -> None:
        """These rows join those that are served."""

    @abstractmethod
    def served(self) -> Callable[[], None]:
        """Hold on to what is served; calling the result puts it back."""

    @abstractmethod
    def standing(self, z: Tensor) -> Standing:
        """What is forecast of some rows, before the factor on the variance."""

    def score(self) -> float | None:
        """What selects the best epoch where no rows are held out, small is good; None: the last one is the best.

        Raises:
            NumericalError: what is served is not finite.
        """
        return None


class Fit(Declared):
    """A fit that is going on. Stateful; the learner belongs to its owner.

    Args:
        options: of early stopping.
        learner: what is trained, from what it is.
        optimiser: without a past.

    Attributes:
        trained: epochs so far.
        iterate: where training stands, between epochs; the learner holds the best so far.
        early: what is best so far.
        loss: of the last epoch: the learner's score, or the loss of training where it has none.
    """

    STATE = (
        Copies("iterate", prefix="iterate."),
        Value("trained", int),
        Value("loss", float, none=math.nan),
        Nested("optimiser", "early"),
    )
    NOT_STATE: ClassVar[Mapping[str, str]] = {
        "learner": "it belongs to its owner",
        "_begun": "asked for by who began the fit, before anything is saved",
        "_apart": "of the last epoch's rows, made again",
    }

    def __init__(self, options: EarlyStoppingOptions, learner: Trainable, optimiser: Optimiser) -> None:
        self.options, self.learner, self.optimiser = options, learner, optimiser
        self.early = EarlyStopping(options.patience)
        self.iterate: dict[str, Tensor] = {}
        self.trained, self.loss = 0, math.nan
        self._begun = math.inf  # score at the beginning
        self._apart: tuple[Tensor, Tensor, Tensor, Tensor] | None = None  # z, r and the parts that train

    @property
    def gain(self) -> float:
        """How much better than at the beginning the best epoch is; infinite where nothing was scored there."""
        return self._begun - self.early.score if math.isfinite(self._begun) else math.inf

    @property
    def finished(self) -> bool:
        """Whether patience is at its end."""
        return self.early.finished

    def begin(self, z: Tensor, r: Tensor, held: Tensor, factor: Tensor) -> None:
        """What the modules are counts as the best so far; arguments and errors as of `epoch`."""
        self._judge(z, r, held, factor)
        self._begun = self.early.score

    def epoch(self, z: Tensor, r: Tensor, held: Tensor, factor: Tensor, generator: Generator, left: int) -> None:
        """One epoch from where training stands; then the best is served again.

        Args:
            z, r: (N, W), (N, T) standardised rows and what is learned of them.
            held: (N,) which rows are for validation.
            factor: (T,) on the variance; set by the validation rows.
            generator: of the mini-batches.
            left: epochs that the schedule falls over, this one included.

        Raises:
            NumericalError: a factorisation failed, or something is not finite.
        """
        learner = self.learner
        self.optimiser.span = self.trained + left if left < ENDLESS else 0
        load(learner.trained, self.iterate)
        put_back = learner.served()
        self.loss = learner.descend(self.optimiser, *self._trained_on(z, r, held), generator)
        better = self._judge(z, r, held, factor)
        self.trained += 1
        self.iterate = weights(learner.trained)
        if not better:
            put_back() if self.early.best else learner.serve(z, r)
            self.early.rewind(learner.trained)

    def failed(self) -> None:
        """An epoch failed and was put back: it counts, and the next one starts from the best."""
        self.trained += 1
        self.early.since += 1
        self.iterate = weights(self.learner.trained)

    def _judge(self, z: Tensor, r: Tensor, held: Tensor, factor: Tensor) -> bool:
        """Whether this is the best so far; then all rows are served."""
        learner, some = self.learner, bool(held.any())
        learner.serve(*self._trained_on(z, r, held))
        score = learner.score()
        if score is None and not some:
            return True
        self.loss = self.loss if score is None else score
        spread = torch.ones_like(factor)
        if some:
            mean, latent, noise = learner.standing(z[held])
            variance = latent + noise
            squares = (r[held] - mean).square() / variance
            spread = squares.mean(0).clamp(min=1.0) ** self.options.rescale
            score = 0.5 * (squares / spread + torch.log(2 * torch.pi * variance * spread)).mean().item()
        assert score is not None
        if not self.early.add(score, learner.trained):
            return False
        factor.copy_(spread)
        if some:
            learner.complete(z[held], r[held])
        return True

    def _trained_on(self, z: Tensor, r: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that are not held, the same tensors from one epoch to the next: other processes may have them."""
        if self._apart is None or self._apart[0] is not z or self._apart[1] is not r:
            self._apart = (z, r, z[~held], r[~held]) if bool(held.any()) else (z, r, z, r)
        return self._apart[2:]


@contextmanager
def training(module: nn.Module) -> Iterator[None]:
    """Inside, the module is in training mode: its arithmetic may be cheaper."""
    module.train()
    try:
        yield
    finally:
        module.eval()
