"""The rational quadratic kernel: a mixture of squared exponentials of many lengthscales."""

from __future__ import annotations

from functools import reduce

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.kernels._base import Unit
from streamgp.kernels._distance import squared_distance
from streamgp.kernels._stationary import Stationary, logs


class Config(BaseModel):
    """Rational quadratic: smooth functions that vary on several scales at once."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    alpha: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial shape of the mixture of scales; large is nearly one scale; no unit"
    )
    separable: bool = Field(
        False, description="the product of one-dimensional kernels instead of the radial one; a grid asks for it"
    )
    lengthscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial lengthscale of every dimension, in units of the input"
    )
    outputscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial prior variance, in squared units of the output"
    )


class RationalQuadratic(Stationary):
    """k(x, z) = ρ² (1 + r²/(2α))^−α, r² = Σ_d (x_d − z_d)²/s_d² (Rasmussen & Williams 2006, equation 4.19).

    The separable one is ρ² Π_d (1 + (x_d − z_d)²/(2α s_d²))^−α with one α for all dimensions: another kernel where
    D > 1, and the one that has Toeplitz structure on a grid.

    Attributes:
        log_lengthscale: (D,) log s.
        log_outputscale: () log ρ².
        log_alpha: () log α.

    Example:
        >>> kernel = build(Config(alpha=0.5, lengthscale=2.0), dims=1)
        >>> x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
        >>> round(kernel(x[:1], x[1:]).item() ** -2, 12)  # 1 + 1
        2.0
    """

    def __init__(self, config: Config, dims: int) -> None:
        super().__init__(dims, config.lengthscale, config.outputscale)
        self.separable = config.separable or dims == 1
        self.log_alpha = logs(config.alpha)

    @property
    def units(self) -> dict[str, Unit | None]:
        return {**super().units, "log_alpha": Unit()}

    @property
    def alpha(self) -> Tensor:
        """() α."""
        return self.log_alpha.exp()

    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M); the radial one with one matrix product."""
        x, z = x / self.lengthscale, z / self.lengthscale
        if self.separable:
            squares = [(x[:, d, None] - z[:, d]).square() for d in range(self.dims)]
        else:
            squares = [squared_distance(x, z)]
        logarithms = [torch.log1p(square / (2.0 * self.alpha)) for square in squares]
        return torch.exp(-self.alpha * reduce(torch.add, logarithms))

    @torch.no_grad()
    def profile(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """u^−α and u^−α−1 with u = 1 + s/(2α); see `Stationary.profile`."""
        if self.separable and self.dims > 1:
            return super().profile(squares)
        logarithm = torch.log1p(squares / (2.0 * self.alpha))
        return torch.exp(-self.alpha * logarithm), torch.exp(-(self.alpha + 1.0) * logarithm)


def build(config: Config, dims: int) -> RationalQuadratic:
    """The kernel for inputs of `dims` columns."""
    return RationalQuadratic(config, dims)
