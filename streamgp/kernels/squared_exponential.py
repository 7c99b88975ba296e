"""The squared exponential kernel with a lengthscale per dimension (SE-ARD)."""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.kernels._base import Frequencies
from streamgp.kernels._stationary import Stationary


class Config(BaseModel):
    """SE-ARD: smooth functions, every dimension with its own lengthscale."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    lengthscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial lengthscale of every dimension, in units of the input"
    )
    outputscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial prior variance, in squared units of the output"
    )


def correlation(x: Tensor, z: Tensor) -> Tensor:
    """exp(−½‖x − z‖²) of inputs that are already divided by their lengthscales, with one matrix product.

    −½‖x − z‖² = xᵀz − ½‖x‖² − ½‖z‖². The cancellation costs about 1e-16 ‖x‖² of absolute precision, so that a
    correlation may exceed 1 by that much.

    Args:
        x: (N, D)
        z: (M, D)

    Returns:
        (N, M)

    Example:
        >>> x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
        >>> correlation(x, x[:1]).log().tolist()
        [[0.0], [-2.0]]
    """
    near = x @ z.T
    near.sub_(0.5 * x.square().sum(1, keepdim=True)).sub_(0.5 * z.square().sum(1))  # in place: the matrix is large
    return near.exp_()


class SquaredExponential(Stationary):
    """k(x, z) = ρ² Π_d exp(−(x_d − z_d)²/(2 s_d²)) (Cheng & Boots 2017, appendix C.1).

    Attributes:
        log_lengthscale: (D,) log s.
        log_outputscale: () log ρ².

    Example:
        >>> kernel = build(Config(lengthscale=2.0, outputscale=3.0), dims=1)
        >>> kernel(torch.zeros(1, 1).double(), torch.full((1, 1), 2.0).double()).log().item()  # log 3 − ½
        0.5986122886681098
    """

    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M), with one matrix product."""
        return correlation(x / self.lengthscale, z / self.lengthscale)

    @torch.no_grad()
    def profile(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """e^−s/2, which is −2 c' as well; see `Stationary.profile`."""
        correlation = torch.exp(-0.5 * squares)
        return correlation, correlation

    @property
    def normals(self) -> int:
        return self.dims

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        """ω = ε/s, Gaussian; see `Kernel.frequencies`."""
        return Frequencies(normals / self.lengthscale, self.outputscale.expand(len(place)))


def build(config: Config, dims: int) -> SquaredExponential:
    """The kernel for inputs of `dims` columns."""
    return SquaredExponential(dims, config.lengthscale, config.outputscale)
