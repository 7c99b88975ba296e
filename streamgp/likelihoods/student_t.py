"""Student-t noise: outliers teach little, and are not surprising."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from streamgp.likelihoods._base import Likelihood
from streamgp.predictives.student_t import t_log_pdf
from streamgp.predictives.student_t_noise import StudentTNoise

FLOOR = 1e-4
NODES = 24


class Config(BaseModel):
    """Student-t noise: a scale and degrees of freedom a target column, both learned."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noise: float = Field(
        0.1, ge=1e-12, le=1e6, description="initial noise variance, as a fraction of the target's variance"
    )
    dof: float = Field(
        5.0, gt=2, le=1e6, description="initial degrees of freedom; they stay above 2, so that variances exist"
    )


ENTRIES = 1 << 16
"""Values of nodes that are made at a time."""


@cache
def _rule() -> tuple[list[float], list[float]]:
    """Gauss–Hermite nodes and weights for N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return list(nodes), list(weights / weights.sum())


class StudentTLikelihood(Likelihood):
    """y = f + s_t · t with ν_t degrees of freedom.

    `expected_log_prob` is by Gauss–Hermite quadrature in f, 24 nodes: it is an integral of a logarithm, smooth on the
    scale s, so that it holds to 1e-4 nats where f's standard deviation is s, to 0.01 at 3 s and to 0.2 at 10 s. The
    predictive density is not: there a quadrature in f fails where f is wide against s, and the scale mixture of
    `StudentTNoise` is used.

    Attributes:
        log_scale: (T,) log s.
        log_excess: (T,) log(ν − 2).

    Example:
        >>> likelihood = build(Config(noise=0.6, dof=5.0), columns=1)
        >>> zero = torch.zeros(1, 1, dtype=torch.float64)
        >>> round(likelihood.predictive(zero, zero + 1.0).variance.item(), 3)  # 1 + 0.6
        1.6
    """

    def __init__(self, config: Config, columns: int) -> None:
        super().__init__()
        self.columns, self.family, self.config = columns, StudentTNoise, config
        self.log_scale = nn.Parameter(torch.zeros(columns, dtype=torch.float64))
        self.log_excess = nn.Parameter(torch.full((columns,), config.dof - 2.0, dtype=torch.float64).log())
        self.start(torch.ones(columns, dtype=torch.float64))

    @property
    def scale(self) -> Tensor:
        """(T,) s, target units."""
        return self.log_scale.exp() + FLOOR

    @property
    def dof(self) -> Tensor:
        """(T,) ν > 2."""
        return 2.0 + self.log_excess.exp()

    def start(self, variance: Tensor) -> None:
        """The scale at which the noise's variance, s² ν/(ν − 2), is the fraction of (T,) variance."""
        with torch.no_grad():
            scale = (self.config.noise * variance * (self.dof - 2.0) / self.dof).sqrt()
            self.log_scale.copy_((scale - FLOOR).clamp(min=FLOOR).log())

    def expected_log_prob(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """(N, T) Σ_k w_k log t_ν((y − mean − √variance x_k)/s)/s; 0 where y is NaN."""
        seen = ~y.isnan()
        error = torch.where(seen, y, 0.0) - mean
        deviation = variance.sqrt()
        total = torch.zeros_like(error)
        nodes, weights = (error.new_tensor(part)[:, None, None] for part in _rule())
        some = max(ENTRIES // max(error.numel(), 1), 1)
        for node, weight in zip(nodes.split(some), weights.split(some), strict=True):
            total = total + (weight * t_log_pdf((error - node * deviation) / self.scale, self.dof)).sum(0)
        return torch.where(seen, total - torch.log(self.scale), 0.0)

    def predictive(self, mean: Tensor, variance: Tensor) -> StudentTNoise:
        """f + s t_ν, f ~ N(mean, variance)."""
        return StudentTNoise(mean, variance, self.scale, self.dof)


def build(config: Config, columns: int) -> StudentTLikelihood:
    """The likelihood of `columns` target columns."""
    return StudentTLikelihood(config, columns)
