"""The spectral mixture kernel: Gaussians in the frequency domain, which approximate any stationary kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT
from streamgp.kernels._base import Frequencies, Kernel, Unit
from streamgp.kernels._stationary import logs, toeplitz_columns
from streamgp.kernels.squared_exponential import correlation


class Config(BaseModel):
    """Spectral mixture: a sum of quasi-periodic components, each with its own weight, frequencies and bandwidths."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    components: int = Field(4, ge=1, description="Gaussians in the frequency domain")
    frequency: float = Field(
        1.0,
        ge=1e-6,
        le=1e6,
        description="initial means are drawn from 0 to this frequency, in cycles per unit of the input",
    )
    lengthscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial lengthscale of every component's envelope, in units of the input"
    )
    outputscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="initial prior variance, shared equally, in squared units of the output"
    )
    seed: int = Field(0, ge=0, description="seed of the initial means")


class SpectralMixture(Kernel):
    """k(τ) = Σ_q w_q Π_d exp(−2π² τ_d² v_qd) cos(2π τ_d μ_qd), τ = x − z (Wilson & Adams 2013).

    A component's envelope is a squared exponential of lengthscale 1/(2π√v). Initially the weights are equal and the
    means uniform on (0, frequency]; all variances start at the one that `lengthscale` says.
    GPyTorch multiplies over dimensions after it has summed over components: another kernel where D > 1 and Q > 1.

    Attributes:
        log_weight: (Q,) log w.
        log_mean: (Q, D) log μ; cycles per unit of the input.
        log_variance: (Q, D) log v; squared cycles per squared unit of the input.

    Example:
        >>> kernel = build(Config(components=3, outputscale=6.0), dims=2)
        >>> kernel.diagonal(torch.zeros(1, 2)).round(decimals=12).tolist(), list(kernel.log_mean.shape)
        ([6.0], [3, 2])
    """

    def __init__(self, config: Config, dims: int) -> None:
        super().__init__()
        self.dims = dims
        count = config.components
        drawn = torch.rand(count, dims, dtype=FLOAT, generator=Generator().manual_seed(config.seed))
        self.log_weight = logs(config.outputscale / count, count)
        self.log_mean = nn.Parameter((config.frequency * (1.0 - drawn)).log())  # never log 0
        self.log_variance = logs((2.0 * math.pi * config.lengthscale) ** -2, count, dims)

    @property
    def units(self) -> dict[str, Unit | None]:
        return {"log_weight": Unit(output=1), "log_mean": Unit(input=-1), "log_variance": Unit(input=-2)}

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M); D + 1 matrix products a component."""
        terms = [weight * self._component(q, x, z) for q, weight in enumerate(self.log_weight.exp().unbind())]
        return reduce(torch.add, terms)

    def diagonal(self, x: Tensor) -> Tensor:
        """(N, D) -> (N,): Σ_q w_q everywhere."""
        return self.log_weight.exp().sum().expand(x.shape[0])

    def grid_terms(self, axes: Sequence[Tensor]) -> list[list[Tensor]]:
        """One term a component; see `Kernel.grid_terms`."""
        weights = self.log_weight.exp().unbind()
        return [toeplitz_columns(partial(self._component, q), axes, weight) for q, weight in enumerate(weights)]

    @property
    def normals(self) -> int:
        return 2 * self.dims

    @property
    def strata(self) -> int:
        return len(self.log_weight)

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        """ω_d = 2π(±μ_qd + √v_qd ε_d) with weight Q w_q, component q = place mod Q; see `Kernel.frequencies`.

        The signs, one for every dimension, make Π_d cos(2π τ_d μ_qd) of a cosine of sums.
        """
        q = place % self.strata
        gaussian, signs = normals[:, : self.dims], normals[:, self.dims :].sign()
        rate = signs * self.log_mean[q].exp() + (0.5 * self.log_variance[q]).exp() * gaussian
        return Frequencies(2.0 * math.pi * rate, self.strata * self.log_weight[q].exp())

    def _component(self, q: int, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M): component q without its weight."""
        inverse = 2.0 * math.pi * (0.5 * self.log_variance[q]).exp()  # (D,) of the envelope's lengthscales
        rate = 2.0 * math.pi * self.log_mean[q].exp()  # (D,)
        product = correlation(x * inverse, z * inverse)
        ahead, behind = _directions(x * rate), _directions(z * rate)  # (D, N, 2), (D, M, 2)
        for left, right in zip(ahead, behind, strict=True):
            product = product * (left @ right.T)
        return product


def _directions(angle: Tensor) -> Tensor:
    """(N, D) -> (D, N, 2): unit vectors, because cos(a − b) = cos a cos b + sin a sin b is a product of matrices."""
    return torch.stack((angle.T.cos(), angle.T.sin()), 2)


def build(config: Config, dims: int) -> SpectralMixture:
    """The kernel for inputs of `dims` columns."""
    return SpectralMixture(config, dims)
