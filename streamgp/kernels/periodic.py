"""The periodic kernel: functions that repeat themselves exactly."""

from __future__ import annotations

import math

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.kernels._base import Unit
from streamgp.kernels._stationary import Stationary, logs
from streamgp.kernels.squared_exponential import correlation


class Config(BaseModel):
    """Periodic: every dimension with its own period, and its own smoothness within the period."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    period: float = Field(1.0, ge=1e-6, le=1e6, description="initial period of every dimension, in units of the input")
    lengthscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial lengthscale of every dimension, on a circle of radius 1: no unit"
    )
    outputscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial prior variance, in squared units of the output"
    )


def on_circles(x: Tensor, period: Tensor, lengthscale: Tensor) -> Tensor:
    """Every column bent onto a circle of radius 1/ℓ_d, once round a period (MacKay 1998).

    ½‖u(x) − u(z)‖² = Σ_d 2 sin²(π(x_d − z_d)/p_d)/ℓ_d², so that the squared exponential of u is the periodic kernel.

    Args:
        x: (N, D)
        period: (D,) p.
        lengthscale: (D,) ℓ.

    Returns:
        (N, 2D): the cosines, then the sines.

    Example:
        >>> quarter = torch.tensor([[0.25]], dtype=torch.float64)
        >>> on_circles(quarter, torch.ones(1), torch.full((1,), 0.5)).round().tolist()
        [[0.0, 2.0]]
    """
    angle = 2.0 * math.pi * x / period
    return torch.cat((angle.cos() / lengthscale, angle.sin() / lengthscale), 1)


class Periodic(Stationary):
    """k(x, z) = ρ² Π_d exp(−2 sin²(π(x_d − z_d)/p_d)/ℓ_d²) (MacKay 1998; Rasmussen & Williams 2006, equation 4.31).

    ℓ is a distance on the circle and has no unit; near 0 the kernel is a squared exponential of lengthscale
    ℓ p/(2π). GPyTorch's lengthscale of this kernel is our ℓ².

    Attributes:
        log_lengthscale: (D,) log ℓ.
        log_period: (D,) log p.
        log_outputscale: () log ρ².

    Example:
        >>> kernel = build(Config(period=3.0), dims=1)
        >>> x = torch.tensor([[0.0], [1.5], [3.0]], dtype=torch.float64)
        >>> kernel(x[:1], x).log().round(decimals=12).tolist()
        [[0.0, -2.0, 0.0]]
    """

    spatial = False

    def __init__(self, config: Config, dims: int) -> None:
        super().__init__(dims, config.lengthscale, config.outputscale)
        self.log_period = logs(config.period, dims)

    @property
    def units(self) -> dict[str, Unit | None]:
        return {**super().units, "log_period": Unit(input=1)}

    @property
    def period(self) -> Tensor:
        """(D,) p."""
        return self.log_period.exp()

    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M), with one matrix product; costs about 1e-16 Σ_d ℓ_d⁻² of absolute precision."""
        period, lengthscale = self.period, self.lengthscale
        return correlation(on_circles(x, period, lengthscale), on_circles(z, period, lengthscale))


def build(config: Config, dims: int) -> Periodic:
    """The kernel for inputs of `dims` columns."""
    return Periodic(config, dims)
