"""Training of a finite-dimensional GP in epochs: what is served after each are the best features found so far.

Best is the least NLPD on validation rows, with the regression of the others, or without validation rows the least
exact NLML, which the regression of all rows gives for nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Generator, Tensor

from streamgp.base import Inputs, Step
from streamgp.errors import NumericalError
from streamgp.models.finite_rkhs.config import Config
from streamgp.models.finite_rkhs.learner import FiniteLearner
from streamgp.online.inputs import KernelInputs
from streamgp.online.reservoir import Reservoir
from streamgp.online.state import fingerprint, holding
from streamgp.online.training import load, weights
from streamgp.optim.early_stopping import EarlyStopping

ENDLESS = 10**9
"""Epochs that stand for as many as a budget of time allows: a schedule over so many would never leave its beginning."""


class FiniteFit(ABC):
    """The part of `FiniteRkhs` that trains in epochs. Attributes are those of its owner.

    Attributes:
        trained: epochs of the fit that is going on.
        fitted: fingerprint of the batch that was fitted last, where there was nothing to train.
        iterate: where training stands, between epochs; the modules hold the best so far.
        early: what is best so far.
    """

    config: Config
    learner: FiniteLearner
    reservoir: Reservoir
    generator: Generator
    factor: Tensor
    inputs: KernelInputs
    rebuilt: int
    trained: int
    fitted: str
    iterate: dict[str, Tensor]
    early: EarlyStopping

    @property
    @abstractmethod
    def seen(self) -> int: ...

    @abstractmethod
    def _units(self, x: Inputs, y: Tensor, weight: Tensor) -> None: ...

    @abstractmethod
    def _hyperparameters(self, z: Tensor, r: Tensor, most: int) -> None: ...

    @abstractmethod
    def _targets(self, x: Inputs, y: Tensor) -> Tensor: ...

    @abstractmethod
    def _step(self, done: str, failed: str = "") -> Step: ...

    def epochs_for(self, rows: int) -> int:
        """See `streamgp.base.Model`."""
        return self.config.epochs_for(rows) if self.learner.learns(rows) else 1

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Train; goes on where an earlier call stopped, and after `update` begins anew from the features at hand.

        Where features have nothing to train there is one epoch: units, hyper-parameters and the exact regression.
        An epoch that fails numerically is undone and told; the first raises.
        """
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if epochs < 1 or not len(y):
            return
        learns, batch = self.learner.learns(len(y)), fingerprint(x, y)
        if not learns and batch == self.fitted:  # asked again, there is nothing left to do
            yield self._step("epoch")
            return
        if not self.trained:
            self.reservoir.offer(x, y, self.generator)
        held = self.config.held_out(len(y)).to(y.device) & torch.isfinite(y).all(1)
        if not learns:
            held.zero_()
        if not self.trained:
            self._begin(x.rows(~held), y[~held])
        z, r = self.inputs(x), self._targets(x, y)
        self.rebuilt = self.seen
        if not learns:
            self.learner.serve(z, r)
            self.learner.check()
            self.fitted = batch
            yield self._step("epoch")
            return
        self.learner.span(self.trained + epochs if epochs < ENDLESS else 0)
        for _ in range(epochs):
            if self.early.finished:
                return
            yield self._epoch(z, r, held)

    def _begin(self, x: Inputs, y: Tensor) -> None:
        """Units and hyper-parameters of these rows, and training without a past."""
        self._units(x, y, y.new_ones(len(y)))
        self._hyperparameters(self.inputs(x), self._targets(x, y), self.config.evidence_rows)
        self.early = EarlyStopping(self.config.patience)
        self.factor.fill_(1.0)
        self.learner.begin(self.config.training, 0)

    def _epoch(self, z: Tensor, r: Tensor, held: Tensor) -> Step:
        """One epoch from where training stands; then the best is served again."""
        learner, modules = self.learner, self.learner.trained
        load(modules, self.iterate)
        put_back = holding({"regression": learner.regression, "factor": self.factor})
        try:
            learner.epoch(z[~held], r[~held], self.generator)
            loss, better = self._judge(z, r, held, put_back)
        except NumericalError as error:
            if not self.trained:
                raise
            put_back()
            self.trained += 1  # it counts: the schedule goes by the epochs tried
            self.early.since += 1
            self.early.rewind(modules)
            self.iterate = weights(modules)
            return self._step("epoch", error.message)
        self.trained += 1
        self.iterate = weights(modules)
        if not better:
            self.early.rewind(modules)
        return self._step("epoch")._replace(loss=loss)

    def _judge(self, z: Tensor, r: Tensor, held: Tensor, put_back: Callable[[], None]) -> tuple[float, bool]:
        """The exact NLML a row of the rows that are trained on, and whether this is the best so far; it is served."""
        learner = self.learner
        learner.serve(z[~held], r[~held])
        learner.check()
        loss = score = learner.nlml()
        spread = torch.ones_like(self.factor)
        if bool(held.any()):
            mean, latent, noise = learner.standing(z[held])
            variance = latent + noise
            squares = (r[held] - mean).square() / variance
            spread = squares.mean(0).clamp(min=1.0) ** self.config.rescale
            score = 0.5 * (squares / spread + torch.log(2 * torch.pi * variance * spread)).mean().item()
        if not self.early.add(score, learner.trained):
            if self.early.best:
                put_back()
            return loss, False
        self.factor.copy_(spread)
        if bool(held.any()):
            learner.learn(z[held], r[held], together=True)
            learner.check()
        return loss, True

    def _restart(self) -> None:
        """No training is going on: what only another epoch would need is let go."""
        self.trained, self.iterate, self.fitted = 0, {}, ""
        self.early = EarlyStopping(self.config.patience)
