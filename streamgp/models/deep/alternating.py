"""Semi-stochastic training of a deep kernel k_θ(φ_W(x), φ_W(x')): full steps on θ and σ², mini-batches on W.

    repeat                                                  (Al-Shedivat et al. 2017, algorithms 1 and 2)
        H = φ_W(X) for all rows, without graph
        a few full steps on θ and σ², on NLML at fixed H
        what mini-batches need of the kernel, once          row gradients, pair gradients, or the posterior
        τ mini-batches: Adam on W with that stale kernel    τ = 1 is algorithm 1, τ > 1 algorithm 2

The mini-batches' loss is one of `objectives.evidence`; our default is the majoriser (`objectives.majoriser`), which
bounds NLML from above wherever W goes, where the paper's own estimates hold for small steps only.

Departures: θ steps at a refresh, not at every mini-batch with a stale K (for τ = 1 that is the same); an epoch begins
with a refresh, so that τ is at most the mini-batches of an epoch, and only Adam's moments lie between epochs.
All losses are per row, NLML/N: rates and clipping do not depend on N.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Generator, Tensor, nn

from streamgp.encoders import Dropout, Encoder
from streamgp.objectives import majoriser
from streamgp.objectives.evidence import CHUNK, estimate, joint, with_pairs
from streamgp.solvers import Conditional, Data, Solver
from streamgp.state import Declared, Nested, Value
from streamgp.training.descent import Descent, DescentConfig, batches_of, minibatches
from streamgp.training.shared_gradients import Sharing, here

RATES = {"majoriser": 1e-2, "algorithm1": 2e-3, "algorithm2": 2e-4, "submatrix": 5e-5, "full": 2e-3}
"""The encoder's step sizes: where a kernel is stale, its gradients hold for small steps only."""
STALE = 30
"""Mini-batches that row gradients of a stale kernel serve by default. On 17,952 hours of a load, an epoch of 280, the
error is half of what a refresh an epoch leaves; on 6,000 hours 10 in place of 30 gain 1 % in 1.6 times the time."""


class AlternatingConfig(DescentConfig):
    """How a deep kernel is trained."""

    scheme: Literal["majoriser", "algorithm1", "algorithm2", "submatrix", "full"] = Field(
        "majoriser",
        description="what the encoder steps on: majoriser (mini-batches of a bound on the NLML), algorithm1 (row "
        "gradients of a kernel refreshed at every mini-batch), algorithm2 (of one refreshed every delay mini-batches), "
        "submatrix (stale pair gradients inside a mini-batch; exact solver only), full (joint steps on encoder and "
        "kernel with all rows)",
    )
    delay: int | None = Field(
        None,
        ge=1,
        description="mini-batches between two refreshes of the kernel; none: those of an epoch, for algorithm2 30 at "
        "most; not for full, and 1 for algorithm1",
    )
    encoder_rate: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field(
        "auto",
        description="Adam's step size for the encoder, before the schedule; auto: as suits the scheme, less after "
        "long pretraining",
    )
    kernel_rate: float = Field(
        3e-2, ge=0, le=1, description="Adam's step size for log hyper-parameters, before the schedule"
    )
    kernel_steps: int = Field(4, ge=0, description="steps on hyper-parameters and noise a refresh; not for full")
    full_steps: int = Field(4, ge=1, description="joint steps an epoch; for full only")

    @model_validator(mode="after")
    def _pairs_need_rows(self) -> AlternatingConfig:
        if self.scheme == "submatrix" and self.batch < 3:
            raise ValueError("batch must be at least 3 for scheme=submatrix: it looks at pairs within a mini-batch")
        if self.scheme == "algorithm1" and self.delay not in (None, 1):
            raise ValueError("scheme=algorithm1 has no delay: that is algorithm2")
        return self

    @property
    def tau(self) -> int | None:
        """τ, mini-batches between two refreshes; None: those of an epoch."""
        return 1 if self.scheme == "algorithm1" else self.delay

    def between(self, whole: int) -> int:
        """Mini-batches between two refreshes. whole: those of an epoch.

        Example:
            >>> AlternatingConfig(scheme="algorithm2").between(94), AlternatingConfig().between(94)
            (30, 94)
        """
        return self.tau or (min(whole, STALE) if self.scheme == "algorithm2" else whole)

    @property
    def estimate(self) -> Literal["rows", "submatrix"]:
        """What of `objectives.evidence` the mini-batches step on."""
        return "submatrix" if self.scheme == "submatrix" else "rows"

    @property
    def initial(self) -> float:
        """The encoder's first step size: theorem 2 divides it by τ, where that is given."""
        stale = self.schedule == "theorem" and self.scheme != "full"
        chosen = RATES[self.scheme] if self.encoder_rate == "auto" else self.encoder_rate
        return chosen / (self.tau or 1) if stale else chosen


class Refreshed(NamedTuple):
    """The kernel at latents of the present weights.

    Attributes:
        data: all rows, in what the solver keeps of them.
        posterior: given them.
        loss: NLML per row, in nats, summed over columns.
    """

    data: Data
    posterior: Conditional
    loss: float


class Bound:
    """What mini-batches of the majoriser minimise, a sum over their rows; see `shared_gradients.Loss`.

    Args:
        posterior: at the latents of the last refresh.
    """

    def __init__(self, posterior: Conditional) -> None:
        self.posterior = posterior

    def __call__(self, net: nn.Module, rows: Sequence[Tensor], count: int, generator: Generator) -> Tensor:
        """() of rows z (N, width), y (N, T)."""
        z, y = rows
        return majoriser.rows(self.posterior, net(z, Dropout(generator)), y).sum() / count


@torch.no_grad()
def learn_at_once(encoder: Encoder, data: Data, z: Tensor, y: Tensor) -> None:
    """Rows into the data of a solver. z: (N, width), y: (N, T)."""
    data.add(torch.cat([encoder(some) for some in z.split(CHUNK)]), y)


class Alternating(Declared):
    """Trains an encoder and a solver in place. Stateful: continues bit for bit from `state` between epochs.

    The encoder's and the solver's parameters, and the generator, belong to their owner and are not in the state. Memory
    beyond z: latents (N, d), what the solver keeps, one mini-batch or 4096 rows with graph; submatrix: (N, N).

    Args:
        encoder: φ_W; without parameters only θ and σ² are trained, kernel_steps an epoch. Within [−1, 1]^d where
            solver.bounded.
        solver: k_θ and σ².
        config: see there.
        epochs: that a cosine schedule spans; 0: it does not fall.

    Attributes:
        sharing: how the gradient of a mini-batch of the majoriser is computed.
        learn: how the solver's data learn all rows.
        epochs: done so far; the schedules' clock.
        healthy: whether every step of the last epoch had a finite gradient; the others were left out.

    Raises:
        UsageError: scheme=submatrix with a solver that has no `pair_gradient`.
    """

    STATE = (Value("epochs", int), Value("healthy", bool), Nested("weights", "hyperparameters"))

    def __init__(self, encoder: Encoder, solver: Solver, config: AlternatingConfig, epochs: int = 0) -> None:
        if config.scheme == "submatrix":
            with_pairs(solver)
        self.encoder, self.solver, self.config = encoder, solver, config
        self.weights = Descent(encoder, config.initial, config, epochs)
        self.hyperparameters = Descent(solver, config.kernel_rate, config, epochs)
        self.sharing: Sharing = here
        self.learn: Callable[[Encoder, Data, Tensor, Tensor], None] = learn_at_once
        self.epochs = 0
        self.healthy = True

    @property
    def span(self) -> int:
        """Epochs that a cosine spans."""
        return self.weights.span

    @span.setter
    def span(self, epochs: int) -> None:
        self.weights.span = self.hyperparameters.span = epochs

    def epoch(self, z: Tensor, y: Tensor, generator: Generator) -> float:
        """One pass over all rows, or `full_steps` joint steps.

        Args:
            z: (N, width) standardised windows.
            y: (N, T) standardised targets less their mean function, finite.
            generator: of the mini-batches and of dropout; nothing else is random.

        Returns:
            NLML per row in nats, summed over columns, at the latents of the last refresh and before the last step on θ
            there; NaN without rows. With scheme=full and dropout it is that of the network with units dropped.

        Raises:
            NotPositiveDefinite: the solver's covariance could not be factorised.
        """
        count = self.config.full_steps if self.config.scheme == "full" else batches_of(len(y), self.config.batch)
        loss = self.steps(z, y, count, generator)
        self.epochs += 1
        return loss

    def steps(self, z: Tensor, y: Tensor, count: int, generator: Generator) -> float:
        """`count` mini-batches (joint steps for full), with the refreshes of θ that go with them; not an epoch.

        Mini-batches run through one permutation of the rows after another. With a count of 0 only θ has its steps
        (full: nothing has). Arguments, value and errors are those of `epoch`.
        """
        if not len(y):
            return float("nan")
        before = self.weights.skipped + self.hyperparameters.skipped
        if self.config.scheme == "full":
            loss = self._full(z, y, count, generator)
        else:
            loss = self._alternate(z, y, count if self.weights.parameters else 0, generator)
        self.healthy = before == self.weights.skipped + self.hyperparameters.skipped
        return loss

    def refresh(self, z: Tensor, y: Tensor) -> Refreshed:
        """The kernel at the present weights and hyper-parameters, to predict with; changes nothing.

        Args:
            z: (N, width)
            y: (N, T), finite.

        Raises:
            NotPositiveDefinite: the solver's covariance could not be factorised.
        """
        data = self._learned(z, y)
        with torch.no_grad():
            loss = float(self.solver.nlml(data)) / max(len(y), 1)
        return Refreshed(data, self.solver.condition(data), loss)

    def _alternate(self, z: Tensor, y: Tensor, count: int, generator: Generator) -> float:
        """A refresh before every τ mini-batches."""
        assert self.config.scheme != "full"
        n, whole = len(y), batches_of(len(y), self.config.batch)
        if not count:
            return self._kernel_steps(self._learned(z, y), n, self.epochs)
        drawn = minibatches(n, self.config.batch, count, generator)
        for place, rows in enumerate(drawn):
            t = self.epochs + min(place / whole, 1.0)
            some, due = rows.to(z.device), place % self.config.between(whole) == 0
            if self.config.scheme == "majoriser":
                if due:
                    data = self._learned(z, y)
                    loss = self._kernel_steps(data, n, t)
                    bound = Bound(self.solver.condition(data))
                _, *gradients = self.sharing(self.encoder, bound, (z, y), some, len(some), generator)
                self.weights.descend(gradients, t)
                continue
            if due:
                h = self._latents(z)
                data = self._data(h, y)
                loss = self._kernel_steps(data, n, t)
                loss_of = estimate(
                    "submatrix" if self.config.scheme == "submatrix" else "rows", self.solver, data, h, y
                )
            self.weights.step(loss_of(self.encoder(z[some], Dropout(generator)), some), t)
        return loss

    def _full(self, z: Tensor, y: Tensor, count: int, generator: Generator) -> float:
        """Joint gradients in W and θ, W's by the chain rule through the row gradients, a chunk of rows at a time."""
        loss = float("nan")
        for place in range(count):
            t = self.epochs + place / count
            drawn = generator.get_state()
            h = self._latents(z, Dropout(generator))
            nlml, rows = joint(self.solver, self._data(h, y), h, y, wanted=bool(self.weights.parameters))
            loss = float(nlml.detach()) / len(y)
            gradients: list[Tensor | None] = []
            if rows is not None:
                generator.set_state(drawn)  # the same masks again, now with graph
                gradients = self._through_encoder(z, rows / len(y), Dropout(generator))
            self.hyperparameters.step(nlml / len(y), t)
            self.solver.project()
            self.weights.descend(gradients, t)
        return loss

    def _through_encoder(self, z: Tensor, gradients: Tensor, dropout: Dropout) -> list[Tensor | None]:
        """Σ_i ⟨g_i, ∂φ(x_i)/∂W⟩ for every parameter."""
        weights = list(self.weights.parameters.values())
        sums: list[Tensor | None] = [None] * len(weights)
        for some, gradient in zip(z.split(CHUNK), gradients.split(CHUNK), strict=True):
            parts = torch.autograd.grad(self.encoder(some, dropout), weights, gradient, allow_unused=True)
            sums = [
                part if done is None or part is None else done + part for done, part in zip(sums, parts, strict=True)
            ]
        return sums

    def _kernel_steps(self, data: Data, n: int, t: float) -> float:
        """Steps on θ and σ² at fixed latents; NLML per row before the last of them."""
        if not self.config.kernel_steps:
            with torch.no_grad():
                return float(self.solver.nlml(data)) / n
        for _ in range(self.config.kernel_steps):
            loss = self.solver.nlml(data) / n
            self.hyperparameters.step(loss, t)
            self.solver.project()
        return float(loss.detach())

    def _learned(self, z: Tensor, y: Tensor) -> Data:
        data = self.solver.data()
        self.learn(self.encoder, data, z, y)
        return data

    def _data(self, h: Tensor, y: Tensor) -> Data:
        data = self.solver.data()
        data.add(h, y)
        return data

    @torch.no_grad()
    def _latents(self, z: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(N, width) -> (N, d), a chunk at a time."""
        return torch.cat([self.encoder(some, dropout) for some in z.split(CHUNK)])
