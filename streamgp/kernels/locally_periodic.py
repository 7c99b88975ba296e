"""The locally periodic kernel: a periodic pattern whose shape drifts."""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.kernels._base import Unit
from streamgp.kernels._stationary import Stationary, logs
from streamgp.kernels.periodic import on_circles
from streamgp.kernels.squared_exponential import correlation


class Config(BaseModel):
    """Locally periodic: a squared exponential times a periodic kernel, each dimension with its own scales."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    period: float = Field(1.0, ge=1e-6, le=1e6, description="initial period of every dimension, in units of the input")
    lengthscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial lengthscale over which the pattern drifts, in units of the input"
    )
    pattern_lengthscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial lengthscale within the pattern, on a circle of radius 1: no unit"
    )
    tied: bool = Field(
        False, description="use lengthscale for the pattern as well, as the paper does, whatever its unit"
    )
    outputscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial prior variance, in squared units of the output"
    )


class LocallyPeriodic(Stationary):
    """k(x, z) = ρ² Π_d exp(−2 sin²(π(x_d − z_d)/p_d)/ℓ_d²) exp(−(x_d − z_d)²/(2 s_d²)) (Xu et al. 2019, equation (20)).

    A departure: the paper has one dimension and ℓ = s, though one is a number and the other has the input's unit; here
    they are apart unless `tied`. Its equation (21) is the `sum` kernel of a squared exponential and this one.

    Attributes:
        log_lengthscale: (D,) log s.
        log_period: (D,) log p.
        log_pattern_lengthscale: (D,) log ℓ; absent where tied.
        log_outputscale: () log ρ².

    Example:
        >>> kernel = build(Config(period=3.0, lengthscale=3.0), dims=1)
        >>> x = torch.tensor([[0.0], [3.0]], dtype=torch.float64)
        >>> round(kernel(x[:1], x[1:]).log().item(), 12)  # a period later, a lengthscale away
        -0.5
    """

    def __init__(self, config: Config, dims: int) -> None:
        super().__init__(dims, config.lengthscale, config.outputscale)
        self.log_period = logs(config.period, dims)
        self.tied = config.tied
        if not config.tied:
            self.log_pattern_lengthscale = logs(config.pattern_lengthscale, dims)

    @property
    def units(self) -> dict[str, Unit | None]:
        found = {**super().units, "log_period": Unit(input=1)}
        return {**found, "log_lengthscale": None} if self.tied else {**found, "log_pattern_lengthscale": Unit()}

    @property
    def period(self) -> Tensor:
        """(D,) p."""
        return self.log_period.exp()

    @property
    def pattern_lengthscale(self) -> Tensor:
        """(D,) ℓ."""
        return self.lengthscale if self.tied else self.log_pattern_lengthscale.exp()

    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M), with one matrix product: a squared exponential on the inputs and their circles."""
        return correlation(self._bent(x), self._bent(z))

    def _bent(self, x: Tensor) -> Tensor:
        """(N, D) -> (N, 3D)"""
        return torch.cat((x / self.lengthscale, on_circles(x, self.period, self.pattern_lengthscale)), 1)


def build(config: Config, dims: int) -> LocallyPeriodic:
    """The kernel for inputs of `dims` columns."""
    return LocallyPeriodic(config, dims)
