"""The Matérn kernels with smoothness ½, 3⁄2 and 5⁄2: functions that are rougher than SE-ARD's."""

from __future__ import annotations

import math
from functools import reduce

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator
from torch import Tensor

from streamgp.kernels._base import Frequencies
from streamgp.kernels._distance import distance
from streamgp.kernels._stationary import Stationary


class Config(BaseModel):
    """Matérn: functions with ν − ½ derivatives, every dimension with its own lengthscale."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    nu: float = Field(1.5, description="smoothness: 0.5, 1.5 or 2.5; a function has nu − 0.5 derivatives")
    separable: bool = Field(
        False, description="the product of one-dimensional kernels instead of the radial one; a grid asks for it"
    )
    lengthscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial lengthscale of every dimension, in units of the input"
    )
    outputscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial prior variance, in squared units of the output"
    )

    @field_validator("nu")
    @classmethod
    def _has_a_closed_form(cls, nu: float) -> float:
        if nu not in (0.5, 1.5, 2.5):
            raise ValueError("nu is 0.5, 1.5 or 2.5")
        return nu


class Matern(Stationary):
    """k(x, z) = ρ² g(√(2ν) r) (Rasmussen & Williams 2006, equations 4.16 and 4.17), with

        g(t) = e^−t (ν = ½),  (1 + t) e^−t (ν = 3⁄2),  (1 + t + t²/3) e^−t (ν = 5⁄2)

    The radial kernel has r² = Σ_d (x_d − z_d)²/s_d². It is no product over dimensions, so that it has no Toeplitz
    structure on a grid; the separable one, ρ² Π_d g(√(2ν) |x_d − z_d|/s_d), has, and is another kernel where D > 1.

    Radial distances come from differences up to 8 columns and for ν = ½, and are then exact. Otherwise they come from
    a matrix product, which costs 1e-16 ‖x/s‖² of a correlation: k is flat at 0 there.

    Attributes:
        log_lengthscale: (D,) log s.
        log_outputscale: () log ρ².

    Example:
        >>> kernel = build(Config(nu=0.5, lengthscale=2.0), dims=1)
        >>> kernel(torch.zeros(1, 1).double(), torch.full((1, 1), 2.0).double()).log().item()
        -1.0
    """

    def __init__(self, config: Config, dims: int) -> None:
        super().__init__(dims, config.lengthscale, config.outputscale)
        self.nu = config.nu
        self.separable = config.separable or dims == 1

    @property
    def fixed(self) -> dict[str, float]:
        return {"nu": self.nu}

    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M)"""
        rate = math.sqrt(2.0 * self.nu) / self.lengthscale
        x, z = x * rate, z * rate
        if not self.separable:
            t = distance(x, z, exact=self.nu == 0.5)
            return torch.exp(-t) if self.nu == 0.5 else self._polynomial(t) * torch.exp(-t)
        lags = [(x[:, d, None] - z[:, d]).abs() for d in range(self.dims)]
        decay = torch.exp(-reduce(torch.add, lags))
        if self.nu == 0.5:
            return decay
        for t in lags:
            decay = decay * self._polynomial(t)
        return decay

    @torch.no_grad()
    def profile(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """With t = √(2ν s): e^−t and e^−t/t, (1 + t) e^−t and 3 e^−t, or g(t) and 5⁄3 (1 + t) e^−t; see
        `Stationary.profile`."""
        if self.separable and self.dims > 1:
            return super().profile(squares)
        t = torch.sqrt(2.0 * self.nu * squares)
        decay = torch.exp(-t)
        if self.nu == 0.5:
            return decay, decay / t.clamp(min=1e-6)
        slope = 3.0 * decay if self.nu == 1.5 else (5.0 / 3.0) * (1.0 + t) * decay
        return self._polynomial(t) * decay, slope

    @property
    def normals(self) -> int:
        degrees = round(2.0 * self.nu)
        return self.dims * (1 + degrees) if self.separable else self.dims + degrees

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        """ω = √(2ν/χ²) ε/s, Student-t with 2ν degrees of freedom; see `Kernel.frequencies`.

        The radial kernel's is the multivariate one, with one χ² for all dimensions; the separable kernel's dimensions
        are independent and have a χ² each. χ² is a sum of 2ν squared normals, which 2ν = 1, 3, 5 allows.
        """
        degrees = round(2.0 * self.nu)
        gaussian, rest = normals[:, : self.dims], normals[:, self.dims :]
        chi_squared = rest.unflatten(1, (-1, degrees)).square().sum(2)  # (P, 1), or (P, D) where separable
        return Frequencies(
            (degrees / chi_squared).sqrt() * gaussian / self.lengthscale, self.outputscale.expand(len(place))
        )

    def _polynomial(self, t: Tensor) -> Tensor:
        """g(t) e^t for ν = 3⁄2 and 5⁄2."""
        return 1.0 + t if self.nu == 1.5 else 1.0 + t + t.square() / 3.0


def build(config: Config, dims: int) -> Matern:
    """The kernel for inputs of `dims` columns."""
    return Matern(config, dims)
