"""The linear kernel: Bayesian linear regression as a Gaussian process."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.kernels._base import Kernel, Unit
from streamgp.kernels._stationary import logs


class Config(BaseModel):
    """Linear: straight lines, every dimension with its own variance of slopes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    variance: float = Field(
        1.0,
        ge=1e-6,
        le=1e6,
        description="initial prior variance of every slope, in squared units of output per unit of input",
    )
    bias: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial prior variance of the value at 0, in squared units of the output"
    )


class Linear(Kernel):
    """k(x, z) = b + Σ_d v_d x_d z_d (Rasmussen & Williams 2006, section 4.2.2).

    It is the covariance of f(x) = β₀ + βᵀx with β₀ ~ N(0, b) and β_d ~ N(0, v_d). It is not stationary, so that it has
    no Toeplitz structure on a grid.

    Attributes:
        log_variance: (D,) log v.
        log_bias: () log b.

    Example:
        >>> import torch
        >>> kernel = build(Config(variance=2.0, bias=3.0), dims=1)
        >>> x = torch.tensor([[1.0], [5.0]], dtype=torch.float64)
        >>> kernel(x[:1], x).round(decimals=12).tolist()
        [[5.0, 13.0]]
    """

    def __init__(self, config: Config, dims: int) -> None:
        super().__init__()
        self.dims = dims
        self.log_variance = logs(config.variance, dims)
        self.log_bias = logs(config.bias)

    @property
    def units(self) -> dict[str, Unit | None]:
        return {"log_variance": Unit(input=-2, output=1), "log_bias": Unit(output=1)}

    @property
    def variance(self) -> Tensor:
        """(D,) v."""
        return self.log_variance.exp()

    @property
    def bias(self) -> Tensor:
        """() b."""
        return self.log_bias.exp()

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M)"""
        scale = (0.5 * self.log_variance).exp()  # on both sides, so that k(x, x) is symmetric to the last bit
        return self.bias + (x * scale) @ (z * scale).T

    def diagonal(self, x: Tensor) -> Tensor:
        """(N, D) -> (N,)"""
        return self.bias + x.square() @ self.variance


def build(config: Config, dims: int) -> Linear:
    """The kernel for inputs of `dims` columns."""
    return Linear(config, dims)
