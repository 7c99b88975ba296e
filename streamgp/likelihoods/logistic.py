"""Outcomes of 0 and 1: the function is the logit of the probability of 1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from streamgp.errors import DataError
from streamgp.likelihoods._base import Likelihood
from streamgp.predictives import expected_softplus
from streamgp.predictives.bernoulli import Bernoulli


class Config(BaseModel):
    """Outcomes of 0 and 1, by the logistic function of a latent one; nothing to set, and nothing learned."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Logistic(Likelihood):
    """P(y = 1 | f) = σ(f) = 1/(1 + e⁻ᶠ).

    Example:
        >>> likelihood = build(Config(), columns=1)
        >>> zero = torch.zeros(1, 1, dtype=torch.float64)
        >>> round(likelihood.predictive(zero + 1.0, zero).mean.item(), 3)
        0.731
        >>> round(likelihood.origin(torch.tensor([[1.0], [1.0], [0.0], [1.0]])).item(), 3)  # log 3.5/1.5
        0.847
    """

    units = False

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns, self.family = columns, Bernoulli
        self._scale: Tensor
        self.register_buffer("_scale", torch.full((columns,), 2.0, dtype=torch.float64), persistent=False)

    @property
    def scale(self) -> Tensor:
        """(T,) 2, in logits: an outcome says as much of f as an observation of f with at least this noise.

        −log p(y | f) is curved by σ(f)(1 − σ(f)) <= ¼ = 1/2², as it is for Gaussian noise of that standard deviation.
        """
        return self._scale

    def start(self, variance: Tensor) -> None:
        """Nothing to set: the noise of an outcome is given by its probability."""

    def origin(self, y: Tensor) -> Tensor:
        """(T,) the logit of the share of ones, (ones + ½)/(outcomes + 1). y: (N, T), NaN = not observed."""
        seen = ~y.isnan()
        ones, count = torch.where(seen, y, 0.0).sum(0), seen.sum(0)
        return torch.log((ones + 0.5) / (count - ones + 0.5))

    def check(self, y: Tensor, names: Sequence[str]) -> None:
        """See that every value is 0, 1 or missing.

        Raises:
            DataError: one is not; the message names its target.
        """
        wrong = ~((y == 0.0) | (y == 1.0) | y.isnan())
        if not bool(wrong.any()):
            return
        row, column = (int(index) for index in wrong.nonzero()[0])
        name = names[column * len(names) // y.shape[1]]
        raise DataError(
            f"target {name!r} has the value {y[row, column].item():g}: likelihood=logistic is of outcomes 0 and 1",
            hint="make it a 0/1 or true/false column, or leave out --set likelihood=logistic",
        )

    def expected_log_prob(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """(N, T) E log σ(±f), + at y = 1 and − at 0; 0 where y is NaN.

        −E log(1 + e^(∓f)) by `expected_softplus`, to 1e-9 for every mean and variance; differentiable once.
        """
        seen = ~y.isnan()
        side = torch.where(y > 0.5, -1.0, 1.0).to(mean)
        return torch.where(seen, -expected_softplus(side * mean, variance), 0.0)

    def predictive(self, mean: Tensor, variance: Tensor) -> Bernoulli:
        """P(y = 1) = E σ(f), f ~ N(mean, variance)."""
        return Bernoulli(mean, variance)


def build(config: Config, columns: int) -> Logistic:
    """The likelihood of `columns` target columns."""
    return Logistic(columns)
