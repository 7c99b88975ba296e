"""Training of a finite-dimensional GP in epochs: what forecasts use after each are the best features found so far.

Best is the least NLPD on validation rows, with the regression of the others, or without validation rows the least
exact NLML, which the regression of all rows gives for nothing.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from streamgp.base import Json
from streamgp.models.finite_rkhs.config import Config
from streamgp.models.finite_rkhs.learner import FiniteLearner
from streamgp.online.state import holding
from streamgp.online.training import load, weights
from streamgp.optim.early_stopping import EarlyStopping
from streamgp.optim.finite_descent import FiniteDescent

ENDLESS = 10**9
"""Epochs that stand for as many as a budget of time allows: a schedule over so many would never leave its beginning."""


class FiniteFit:
    """A fit that is going on. Stateful; learner and factor belong to its owner.

    Args:
        config: of the model.
        learner: whose features and head are trained, from what they are.

    Attributes:
        trained: epochs so far.
        iterate: where training stands, between epochs; the learner holds the best so far.
        early: what is best so far.
        loss: of the last epoch: exact NLML a row of those that are trained on.
    """

    def __init__(self, config: Config, learner: FiniteLearner) -> None:
        self.config, self.learner = config, learner
        self.descent = FiniteDescent(learner.features, learner.head, config.training)
        self.early = EarlyStopping(config.patience)
        self.iterate: dict[str, Tensor] = {}
        self.trained, self.loss = 0, float("nan")

    @property
    def finished(self) -> bool:
        """Whether patience is at its end."""
        return self.early.finished

    def epoch(self, z: Tensor, r: Tensor, held: Tensor, factor: Tensor, generator: Generator, left: int) -> None:
        """One epoch from where training stands; then the best is served again.

        Args:
            z, r: (N, W), (N, T) standardised rows and targets.
            held: (N,) which rows are for validation.
            factor: (T,) on the variance; set by the validation rows.
            generator: of the mini-batches.
            left: epochs that the schedule falls over, this one included.

        Raises:
            NumericalError: a factorisation failed, or something is not finite.
        """
        learner = self.learner
        self.descent.span = self.trained + left if left < ENDLESS else 0
        load(learner.trained, self.iterate)
        put_back = holding({"regression": learner.regression, "factor": factor})
        learner.epoch(self.descent, z[~held], r[~held], generator)
        better = self._judge(z, r, held, factor)
        self.trained += 1
        self.iterate = weights(learner.trained)
        if not better:
            if self.early.best:
                put_back()
            self.early.rewind(learner.trained)

    def failed(self) -> None:
        """An epoch failed and was put back: it counts, and the next one starts from the best."""
        self.trained += 1
        self.early.since += 1
        self.iterate = weights(self.learner.trained)

    def _judge(self, z: Tensor, r: Tensor, held: Tensor, factor: Tensor) -> bool:
        """Whether this is the best so far; the regression is that of these features."""
        learner = self.learner
        learner.serve(z[~held], r[~held])
        learner.check()
        self.loss = score = learner.nlml()
        spread = torch.ones_like(factor)
        if bool(held.any()):
            mean, latent, noise = learner.standing(z[held])
            variance = latent + noise
            squares = (r[held] - mean).square() / variance
            spread = squares.mean(0).clamp(min=1.0) ** self.config.rescale
            score = 0.5 * (squares / spread + torch.log(2 * torch.pi * variance * spread)).mean().item()
        if not self.early.add(score, learner.trained):
            return False
        factor.copy_(spread)
        if bool(held.any()):
            learner.learn(z[held], r[held], together=True)
            learner.check()
        return True

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors = {f"iterate.{key}": value for key, value in self.iterate.items()}
        rest: dict[str, Json] = {"trained": self.trained, "loss": self.loss if self.trained else None}
        for name, part in (("descent", self.descent), ("early", self.early)):
            inner, rest[name] = part.state()
            tensors |= {f"{name}.{key}": value for key, value in inner.items()}
        return tensors, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        def of(name: str) -> dict[str, Tensor]:
            return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}.")}

        self.iterate = {key: value.clone() for key, value in of("iterate").items()}
        self.trained = int(str(rest["trained"]))
        self.loss = float("nan") if rest["loss"] is None else float(str(rest["loss"]))
        for name, part in (("descent", self.descent), ("early", self.early)):
            inner = rest[name]
            assert isinstance(inner, dict)
            part.restore(of(name), inner)
