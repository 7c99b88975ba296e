"""Laplace noise: absolute errors count, so that outliers teach less than under Gaussian noise."""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from streamgp.likelihoods._base import Likelihood
from streamgp.predictives import normal_abs
from streamgp.predictives.laplace_noise import LaplaceNoise

FLOOR = 1e-4
KINK = 1e-8
"""Of b: a standard deviation of f below this is taken for it, as E|y − f| has no slope at 0."""


class Config(BaseModel):
    """Laplace noise, one scale a target column, learned."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noise: float = Field(
        0.1, ge=1e-12, le=1e6, description="initial noise variance, as a fraction of the target's variance"
    )


class Laplace(Likelihood):
    """y = f + Laplace(b_t): density e^(−|y − f|/b)/2b, variance 2b².

    Attributes:
        log_scale: (T,) log b.

    Example:
        >>> likelihood = build(Config(noise=0.5), columns=1)
        >>> zero = torch.zeros(1, 1, dtype=torch.float64)
        >>> round(likelihood.predictive(zero, zero + 1.0).variance.item(), 3)  # 1 + 0.5
        1.5
    """

    def __init__(self, config: Config, columns: int) -> None:
        super().__init__()
        self.columns, self.family, self.fraction = columns, LaplaceNoise, config.noise
        self.log_scale = nn.Parameter(torch.zeros(columns, dtype=torch.float64))
        self.start(torch.ones(columns, dtype=torch.float64))

    @property
    def scale(self) -> Tensor:
        """(T,) b, target units: the mean distance of an observation from the function."""
        return self.log_scale.exp() + FLOOR

    def start(self, variance: Tensor) -> None:
        """The b at which 2b² is the fraction of (T,) variance."""
        with torch.no_grad():
            self.log_scale.copy_(((0.5 * self.fraction * variance).sqrt() - FLOOR).clamp(min=FLOOR).log())

    def expected_log_prob(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """(N, T) −log 2b − E|y − f|/b; 0 where y is NaN. E|·| of a Gaussian is closed form (`normal_abs`)."""
        seen = ~y.isnan()
        error = torch.where(seen, y, 0.0) - mean
        floor = (KINK * self.scale.detach()).square()
        distance = normal_abs(error, torch.maximum(variance, floor).sqrt())
        return torch.where(seen, -torch.log(2.0 * self.scale) - distance / self.scale, 0.0)

    def predictive(self, mean: Tensor, variance: Tensor) -> LaplaceNoise:
        """f + Laplace(b), f ~ N(mean, variance)."""
        return LaplaceNoise(mean, variance, self.scale)


def build(config: Config, columns: int) -> Laplace:
    """The likelihood of `columns` target columns."""
    return Laplace(config, columns)
