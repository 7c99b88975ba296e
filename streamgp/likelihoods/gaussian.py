"""Gaussian noise."""

from __future__ import annotations

import math

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from streamgp.likelihoods._base import Likelihood
from streamgp.predictives.gaussian import Gaussian as GaussianPredictive

FLOOR = 1e-8


class Config(BaseModel):
    """Gaussian noise, one variance a target column, learned."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noise: float = Field(
        0.1, ge=1e-12, le=1e6, description="initial noise variance, as a fraction of the target's variance"
    )


class GaussianLikelihood(Likelihood):
    """y = f + N(0, σ_t²).

    The noise starts well below the target's variance: started at it, the signal's outputscale collapses first.

    Attributes:
        log_noise: (T,) log σ².

    Example:
        >>> likelihood = build(Config(), columns=1)
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> likelihood.start(torch.ones(1))
        >>> round(likelihood.predictive(one, one).variance.item(), 6)
        1.1
    """

    def __init__(self, config: Config, columns: int) -> None:
        super().__init__()
        self.columns, self.family, self.fraction = columns, GaussianPredictive, config.noise
        self.log_noise = nn.Parameter(torch.full((columns,), config.noise, dtype=torch.float64).log())

    @property
    def noise(self) -> Tensor:
        """(T,) σ², squared target units."""
        return self.log_noise.exp() + FLOOR

    @property
    def scale(self) -> Tensor:
        """(T,) σ, target units."""
        return self.noise.sqrt()

    def start(self, variance: Tensor) -> None:
        """σ² = fraction · variance. variance: (T,)."""
        with torch.no_grad():
            self.log_noise.copy_((self.fraction * variance).clamp(min=FLOOR).log())

    def expected_log_prob(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """(N, T) −½ log 2πσ² − ((y − mean)² + variance)/(2σ²) (Cheng & Boots 2017, eq. 10); 0 where y is NaN."""
        seen = ~y.isnan()
        error = (torch.where(seen, y, 0.0) - mean).square() + variance
        value = -0.5 * (torch.log(2.0 * math.pi * self.noise) + error / self.noise)
        return torch.where(seen, value, 0.0)

    def predictive(self, mean: Tensor, variance: Tensor) -> GaussianPredictive:
        """N(mean, variance + σ²)."""
        return GaussianPredictive(mean, variance, self.noise)


def build(config: Config, columns: int) -> GaussianLikelihood:
    """The likelihood of `columns` target columns."""
    return GaussianLikelihood(config, columns)
