"""The γ-exponential kernel: rough functions, of any roughness between a random walk's and SE-ARD's smoothness."""

from __future__ import annotations

import math
from functools import reduce

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.kernels._base import Frequencies
from streamgp.kernels._distance import distance
from streamgp.kernels._stationary import Stationary


class Config(BaseModel):
    """γ-exponential: rough functions, whose increments over a short lag r have variance proportional to r^γ."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gamma: float = Field(
        1.5,
        ge=0.5,
        le=2,
        description="power of the distance: 1 is matern with nu=0.5, 2 squared_exponential, less is rougher; no unit",
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


class GammaExponential(Stationary):
    """k(x, z) = ρ² exp(−r^γ), r² = Σ_d (x_d − z_d)²/s_d², 0 < γ ≤ 2 (Rasmussen & Williams 2006, equation 4.18).

    Functions with γ < 2 are continuous, and nowhere differentiable: those of a Matérn kernel with ν = γ/2 look alike
    close by. A squared exponential of lengthscale s is this kernel with γ = 2 and lengthscale √2 s. The separable one,
    ρ² exp(−Σ_d |x_d − z_d|^γ/s_d^γ), has Toeplitz structure on a grid, and is another kernel where D > 1 and γ < 2.

    Attributes:
        log_lengthscale: (D,) log s.
        log_outputscale: () log ρ².

    Example:
        >>> kernel = build(Config(gamma=0.5, lengthscale=2.0), dims=1)
        >>> kernel(torch.zeros(1, 1).double(), torch.full((1, 1), 8.0).double()).log().item()
        -2.0
    """

    def __init__(self, config: Config, dims: int) -> None:
        super().__init__(dims, config.lengthscale, config.outputscale)
        self.gamma = config.gamma
        self.separable = config.separable or dims == 1

    @property
    def fixed(self) -> dict[str, float]:
        return {"gamma": self.gamma}

    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M); distances from differences, since r^γ makes much of the rounding of a product."""
        x, z = x / self.lengthscale, z / self.lengthscale
        if self.separable:
            lags = [(x[:, d, None] - z[:, d]).abs() for d in range(self.dims)]
        else:
            lags = [distance(x, z, exact=True)]
        return torch.exp(-reduce(torch.add, map(self._power, lags)))

    @torch.no_grad()
    def profile(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """e^−t and γ s^(γ/2 − 1) e^−t with t = s^(γ/2); see `Stationary.profile`."""
        if self.separable and self.dims > 1:
            return super().profile(squares)
        decay = torch.exp(-(squares ** (0.5 * self.gamma)))
        return decay, self.gamma * squares.clamp(min=1e-12) ** (0.5 * self.gamma - 1.0) * decay

    @property
    def normals(self) -> int:
        return self.dims + 3 * (self.dims if self.separable else 1)

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        """ω = √(2S) ε/s with S positive stable, E e^−Sq = e^−q^a, a = γ/2; see `Kernel.frequencies`.

        S = sin(aU)/(sin U)^(1/a) · (sin((1 − a)U)/E)^((1 − a)/a), U uniform in (0, π), E exponential (Kanter 1975).
        U comes from a normal, E is half the sum of two squared ones. The radial kernel has one S for all
        dimensions, the separable one an S for each.
        """
        gaussian, rest = normals[:, : self.dims], normals[:, self.dims :].unflatten(1, (-1, 3))
        angle = math.pi * torch.special.ndtr(rest[..., 0])
        wait = 0.5 * rest[..., 1:].square().sum(2)  # (P, 1), or (P, D) where separable
        a = 0.5 * self.gamma
        late = (torch.sin((1.0 - a) * angle) / wait) ** ((1.0 - a) / a)
        stable = torch.sin(a * angle) / torch.sin(angle) ** (1.0 / a) * late
        return Frequencies((2.0 * stable).sqrt() * gaussian / self.lengthscale, self.outputscale.expand(len(place)))

    def _power(self, t: Tensor) -> Tensor:
        """t^γ, with gradient 0 where t = 0."""
        zero = t == 0.0
        # twice, because the gradient of the branch not taken is 0 · ∞ otherwise
        return torch.where(zero, 0.0, torch.where(zero, 1.0, t) ** self.gamma)


def build(config: Config, dims: int) -> GammaExponential:
    """The kernel for inputs of `dims` columns."""
    return GammaExponential(config, dims)
