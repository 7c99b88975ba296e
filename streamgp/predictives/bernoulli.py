"""An outcome of 0 or 1 whose logit is a Gaussian function value: what a GP with a logistic likelihood predicts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from streamgp.predictives._logistic_normal import log_probabilities, spread
from streamgp.predictives._shared import broadcast, levels


@dataclass(frozen=True, eq=False)
class Bernoulli:
    """P(y = 1) = E σ(f) with f ~ N(logit_mean, logit_variance), column by column.

    Attributes:
        logit_mean: (N, T) mean of f.
        logit_variance: (N, T) variance of f.

    Example:
        >>> b = Bernoulli(torch.full((1, 1), 2.0).double(), torch.full((1, 1), 4.0).double())
        >>> round(b.mean.item(), 6), round(b.variance.item(), 6)
        (0.7752, 0.174265)
        >>> b.quantile(torch.tensor([0.1, 0.5])).flatten().tolist()
        [0.0, 1.0]
    """

    logit_mean: Tensor
    logit_variance: Tensor

    binary: ClassVar[bool] = True

    def __post_init__(self) -> None:
        broadcast(self, "logit_mean", "logit_variance")

    @cached_property
    def logs(self) -> tuple[Tensor, Tensor]:
        """log P(y = 1) and log P(y = 0), both (N, T)."""
        return log_probabilities(self.logit_mean, self.logit_variance)

    @property
    def mean(self) -> Tensor:
        """(N, T) P(y = 1)."""
        return self.logs[0].exp()

    @property
    def variance(self) -> Tensor:
        """(N, T) p(1 − p), of the outcome."""
        one, zero = self.logs
        return torch.exp(one + zero)

    @cached_property
    def latent_variance(self) -> Tensor:
        """(N, T) Var σ(f): how far the probability itself is unknown; never more than `variance`."""
        return torch.minimum(spread(self.logit_mean, self.logit_variance), self.variance)

    def quantile(self, p: Tensor) -> Tensor:
        """(K,) -> (K, N, T) of the outcome: the least of 0 and 1 whose distribution function reaches p."""
        return (levels(p, self.logit_mean) > self.logs[1].exp()).to(self.logit_mean)

    def sample(self, paths: int, generator: Generator) -> Tensor:
        """(paths, N, T) independent draws of 0 and 1."""
        like = self.logit_mean
        u = torch.rand((paths, *like.shape), generator=generator, dtype=like.dtype, device=like.device)
        return (u < self.mean).to(like)

    def log_prob(self, y: Tensor) -> Tensor:
        """(N, T) log P(y); −∞ where y is neither 0 nor 1, NaN where it is NaN."""
        one, zero = self.logs
        found = torch.where(y == 1.0, one, torch.where(y == 0.0, zero, -torch.inf))
        return torch.where(y.isnan(), torch.nan, found)

    def crps(self, y: Tensor) -> Tensor:
        """(N, T) ∫ (F(x) − 1{y ≤ x})² dx = (p − y)² at y of 0 and 1: the Brier score."""
        return (self.mean - y).square()

    def affine(self, scale: Tensor, shift: Tensor) -> Bernoulli:
        """There is none: an outcome has no units, and its distribution in others would be no Bernoulli.

        Raises:
            TypeError: always. A model whose likelihood has `units` false learns its targets as they are.
        """
        raise TypeError("an outcome of 0 or 1 has no other units")

    def parameters(self) -> Tensor:
        """(2, N, T): mean and variance of f."""
        return torch.stack((self.logit_mean, self.logit_variance))

    @classmethod
    def from_parameters(cls, parameters: Tensor) -> Self:
        """The inverse of `parameters`."""
        mean, variance = parameters.unbind(0)
        return cls(mean, variance)
