"""A point forecast read off the window, with the variance of its own past errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Model, Predictive, Shape, Step
from streamgp.model_config import NUMBER, ModelConfig
from streamgp.online.inputs import reporting, usable
from streamgp.online.reference import Reference
from streamgp.online.variance import random_walk_variance
from streamgp.predictives.gaussian import Gaussian
from streamgp.state import Declared, Tensors

PRIOR_ROWS = 1.0
"""How many rows the random-walk prior of the variance counts for."""


class NaiveConfig(ModelConfig):
    """Options of a naive forecast."""

    baseline: ClassVar[bool] = True

    memory: float | None = Field(
        None, gt=0, description="rows after which a squared error counts 1/e in the variance; none never forgets"
    )

    def bytes_of(self, shape: Shape) -> int:
        return 2 * shape.columns * NUMBER


class Naive(Declared, Model):
    """N(r(x), v): r a reference of `online.reference`, v (T,) the running mean squared error of each column.

    v = (Σ λ^age e² + v₀) / (Σ λ^age + 1), with v₀ the random-walk variance of the window at hand: the prior counts
    for one row. A deviation of r has no part that more data could remove: latent_variance is 0.

    Args:
        reference: r.
        memory: rows after which an error counts 1/e; None never forgets.
    """

    family = Gaussian
    STATE = (Tensors("sums"),)

    def __init__(self, reference: Reference, memory: float | None) -> None:
        super().__init__()
        self.reference, self.shape, self.memory = reference, reference.shape, memory
        self.register_buffer("sums", torch.zeros(2, self.shape.columns, dtype=FLOAT))  # weight, weighted e²
        self.sums: Tensor

    def predict(self, x: Inputs) -> Gaussian:
        """N(r(x), v)."""
        mean = self.reference(x)
        weight, square = self.sums
        noise = (square + PRIOR_ROWS * random_walk_variance(x, self.shape)) / (weight + PRIOR_ROWS)
        return Gaussian(mean, torch.zeros_like(mean), noise)

    def hyperparameters(self) -> dict[str, Tensor]:
        """noise (T,), the root mean squared error of each column so far."""
        weight, square = self.sums
        return {"noise": (square / weight).sqrt()} if bool((weight > 0).all()) else {}

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        """Add the squared errors of N windows; within them none is forgotten."""
        x, y, left_out = usable(x, y)
        if not len(y):
            return reporting(Step(float("nan"), 0, True, "nothing observed"), left_out)
        error = y - self.reference(x)
        known = torch.isfinite(error)
        loss = -torch.nanmean(self.predict(x).log_prob(y)).item()
        kept = 1.0 if self.memory is None else torch.exp(-known.sum(0) / self.memory)
        new = torch.stack([known.sum(0).to(FLOAT), torch.where(known, error, 0.0).square().sum(0)])
        self.sums = kept * self.sums + new
        return reporting(Step(loss, 0, bool(torch.isfinite(self.sums).all()), "update"), left_out)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Start over from these windows; one epoch is exact, so that there is never a second."""
        self.sums = torch.zeros_like(self.sums)
        if epochs > 0:
            step = self.update(x, y)
            yield step._replace(done=step.done.replace("update", "epoch"))
