"""What every model on an encoder infers: the encoder, its head, and the variance.

It is trained in epochs (`streamgp.training.fit`), from the weights at hand, on the rows that the memory keeps: when
the stream has twice the rows of the last training, or when the squared errors say that the model has gone stale, after
which the next such training waits for twice as many rows. A training ends where the validation rows gain nothing, and
keeps the weights at hand where no epoch was better; the next one then waits for four times the rows in place of two,
for eight, and so on, until one gains something. One of a stale model that gains nothing puts nothing off: rows
are counted from the training before it. Between trainings the weights stand still.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Shape
from streamgp.encoders import Layout
from streamgp.evidence.initial import Initial
from streamgp.models.deep.config import DeepConfig
from streamgp.models.deep.simulation import unroll
from streamgp.models.deep.staleness import Staleness
from streamgp.online.posterior import Arrival, Look, Posterior, Rows, Units
from streamgp.online.variance import OUTLIER, follow
from streamgp.state import Declared, Nested, Parts, Value, holding
from streamgp.training.fit import Fit, Optimiser, Standing, Trainable, training

CHUNK = 4096
"""Rows whose activations are held at once."""
LEAST, FOLLOW = 1e-6, 2000.0
"""Smallest factor on the variance that a stream without errors can lead to; rows after which an error counts 1/e."""
STEPS, FEWEST, MOST = 100, 1, 10
"""Mini-batches that a training on a stream wants, and epochs at least and at most."""
PATIENCE = 64
"""Rows to the first training of a stale model after one because rows have doubled."""
GAIN = 0.005
"""NLPD a value, in nats, that a training on a stream lowers on the validation rows where it was worth it."""
HOPE = 2
"""Epochs without a better score after which a training on a stream ends."""
COUNTS = ("seen", "trained_at", "tried_at", "wait", "growth")


class DeepPosterior(Declared, Posterior, Trainable):
    """See the module. A subclass is the head on the encoder.

    Args:
        config: of the model.
        shape: of the windows.
        layout: of the windows that it sees.

    Attributes:
        factor: (T,) on the variance, by validation rows and by the stream's errors.
        count: () rows learned, at most those that are kept.
        fed_back: (T,) share of the noise that a simulated path feeds back.
        fit: the fit that is going on, if one is.
        initial: hyper-parameters of a file, until the first fit has taken them.
        onto: where simulations are planned, what `simulation.unroll` runs on.
    """

    STATE = (
        Nested(of="_parts", under="parts", made={"fit": "_fit"}),
        Value("last", float, none=math.nan),
        *(Value(name, int) for name in COUNTS),
    )

    factor: Tensor
    count: Tensor
    fed_back: Tensor
    layout: Layout
    onto: Callable[[Tensor, Tensor], Tensor] | None = None

    def __init__(self, config: DeepConfig, shape: Shape, layout: Layout) -> None:
        super().__init__()
        self.config, self.shape, self.layout = config, shape, layout
        self.staleness = Staleness(config.online.stale)
        self.register_buffer("factor", torch.ones(shape.columns, dtype=FLOAT))
        self.register_buffer("count", torch.zeros((), dtype=FLOAT))
        self.register_buffer("fed_back", torch.ones(shape.columns, dtype=FLOAT))
        self.fit: Fit | None = None
        self.initial: Initial | None = None
        self.seen = 0  # rows
        self.trained_at = 0  # rows seen at the last training, but for those of a stale model that gained nothing
        self.tried_at = 0  # rows seen at the last training
        self.wait = PATIENCE  # rows from there until the model may be stale
        self.growth = 2  # times `trained_at` at which the next one is due
        self.last = 0.0  # loss

    @abstractmethod
    def parts(self) -> Parts:
        """The head on the encoder, as far as it is not `trained`."""

    @abstractmethod
    def optimiser(self) -> Optimiser:
        """Of a fit, without a past."""

    @abstractmethod
    def start(self, z: Tensor, r: Tensor, units: Units, generator: Generator) -> None:
        """What a fit begins with."""

    @abstractmethod
    def moments(self, z: Tensor) -> Standing:
        """`standing` of few rows."""

    @property
    def weight(self) -> Tensor:
        return self.count

    @property
    def healthy(self) -> bool:
        values = [p.sum() for module in self.trained.values() for p in module.parameters()]
        return bool(torch.stack([*values, self.factor.sum()]).isfinite().all())

    @torch.no_grad()
    def standing(self, z: Tensor) -> Standing:
        """A chunk of rows at a time."""
        parts = [self.moments(part) for part in z.split(CHUNK)]
        mean, latent = (torch.cat([part[place] for part in parts]) for place in (0, 1))
        return Standing(mean, latent, parts[0].noise)

    def look(self, z: Tensor) -> Look:
        own = self.standing(z)
        return Look(z, None, own.mean, own.latent * self.factor, own.noise * self.factor)

    def scored(self, look: Look, y: Tensor) -> None:
        """The stream's errors go into the factor on the variance, and say whether the model is stale."""
        self.seen += len(y)
        variance = (look.latent + look.noise).expand_as(y)
        squares = ((y - look.mean).square() / variance).clamp(max=OUTLIER)
        self.last = 0.5 * torch.nanmean(squares + torch.log(2 * torch.pi * variance)).item()
        self.staleness.add(squares)
        follow(self.factor, squares, FOLLOW, LEAST)

    @property
    def overdue(self) -> bool:
        grown = self.seen >= self.growth * self.trained_at
        return grown or (self.staleness.stale and self.seen - self.tried_at >= self.wait)

    def absorb(self, look: Look, arrival: Arrival) -> str:
        self.fit = None
        self.count.add_(len(arrival.y)).clamp_(max=len(arrival.shares()))
        self.learn(look, torch.where(arrival.y.isnan(), look.mean, arrival.y), arrival)
        return ""

    def learn(self, look: Look, r: Tensor, arrival: Arrival) -> None:
        """New rows of a stream, without a step on the encoder; r: (N, T), finite."""

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        """A training in few epochs; to its end where it ends on simulations, which validation rows say nothing of."""
        stale, before = self.staleness.stale, self.trained_at
        whole = self.config.unrolled(self.shape)
        grown = self.seen >= self.growth * before
        self.wait = PATIENCE if grown else 2 * self.wait
        epochs = self.stream_epochs(len(rows.y))
        for done in range(epochs):
            self.epoch(rows, units, not done, generator, epochs - done, goes_on=before > 0 and not whole)
            assert self.fit is not None
            fit: Fit = self.fit
            if fit.early.since >= HOPE and not whole:
                break
        if before and not whole:
            if fit.gain >= GAIN:
                self.growth = 2
            elif grown:
                self.growth *= 2
            else:
                self.trained_at = before
        self.last, self.fit = fit.loss, None
        self.staleness.calm()
        return ("stale, " if stale else "") + f"{done + 1} epochs of {len(rows.y)} rows"

    def warmup_epochs(self, rows: int) -> int:
        """A net that learns what a regression leaves begins with the epochs of a stream."""
        return self.stream_epochs(rows) if self.config.on_regression(self.shape) else self.epochs_for(rows)

    def stream_epochs(self, rows: int) -> int:
        """Epochs at most of a training on a stream, with `rows` rows."""
        most = MOST if self.config.epochs == "auto" else self.config.epochs
        return min(max(STEPS * self.config.training.batch // rows, FEWEST), most)

    def epoch(
        self, rows: Rows, units: Units, first: bool, generator: Generator, left: int, goes_on: bool = False
    ) -> bool:
        """Rows with a missing value are left out; where all are, the mean stands for it.

        goes_on: whether the weights at hand were trained, so that an epoch has to be better than they are.
        """
        whole, (z, y) = torch.isfinite(rows.y).all(1), (rows.z, rows.y)
        if not bool(whole.all()):
            z, y = (z[whole], y[whole]) if bool(whole.any()) else (z, y.nan_to_num())
        held = self.config.held_out(len(y)).to(y.device)
        if first:
            self.count.fill_(len(rows.y))
            self.factor.fill_(1.0)
            self.fit = self._fit()
            if goes_on:
                self.fit.begin(z, y, held, self.factor)
            self.start(z[~held], y[~held], units, generator)
            self.seen = self.trained_at = self.tried_at = max(self.seen, len(rows.y))
        if self.fit is None or self.fit.finished:
            return False
        self.fit.epoch(z, y, held, self.factor, generator, left)
        if (self.fit.finished or left == 1) and self.onto is not None:
            unroll(self, self.onto, self.layout, (z, y, held), generator)
        return not self.fit.finished

    @abstractmethod
    def drawn(self, paths: int, generator: Generator) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """As `draw`, which returns the second: values of the functions, and observations of these."""

    def draw(self, paths: int, generator: Generator) -> Callable[[Tensor], Tensor]:
        both = self.drawn(paths, generator)
        return lambda z: both(z)[1]

    @abstractmethod
    def moving(self) -> nn.Module:
        """What steps on simulation error move."""

    @abstractmethod
    def function(self, z: Tensor, r: Tensor, generator: Generator) -> Callable[[Tensor], Tensor]:
        """(N, W) -> (N, T) what the posterior of these rows forecasts, differentiable in what is moving."""

    @abstractmethod
    def fit_again(self, z: Tensor, r: Tensor, held: Tensor, generator: Generator) -> None:
        """The posterior, to one step ahead, with the encoder as it is; held: (N,) rows that scale the variance."""

    def descend(self, optimiser: Optimiser, z: Tensor, r: Tensor, generator: Generator) -> float:
        with training(self.trained["encoder"]):
            return optimiser.epoch(z, r, generator)

    def failed(self) -> None:
        if self.fit is not None:
            self.fit.failed()

    def loss(self) -> float:
        """In a fit as it says; on a stream the NLPD a value of the newest rows, before they were learned, each squared
        error at most 25 times its variance."""
        return self.last if self.fit is None else self.fit.loss

    def snapshot(self) -> Callable[[], None]:
        served, back = self.served(), holding(self._parts() if self.fit is None else {**self._parts(), "fit": self.fit})
        held = {name: getattr(self, name) for name in ("fit", "initial", *COUNTS, "last")}

        def put_back() -> None:
            served()
            back()
            for name, value in held.items():
                setattr(self, name, value)

        return put_back

    def put(self) -> None:
        """Tensors were put back: what is computed from them has to be again."""

    def restored(self) -> None:
        self.put()

    def _fit(self) -> Fit:
        return Fit(self.config, self, self.optimiser())

    def _parts(self) -> Parts:
        simulated = () if self.onto is None else ("fed_back",)
        own = {name: getattr(self, name) for name in ("factor", "count", "staleness", *simulated)}
        return {**own, **self.trained, **self.parts()}
