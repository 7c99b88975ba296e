"""Inducing functions φ_j(x) = k(x, z_j) on rows z_j, with prior precision S = K_ZZ (Evans & Nair 2020, appendix G).

The prior covariance is φ(x)ᵀS⁻¹φ(x'), the Nyström approximation of k, and with a function on every training row the
posterior mean is the exact one. The Nyström prior loses its variance far from the rows. Proposition 4 adds a function
at every test point, whose weight is taken to be independent of the others a posteriori; `augmentation` is what that
adds to the latent variance.
"""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.features._base import Features
from streamgp.kernels import Kernel


class Config(BaseModel):
    """Inducing functions: the kernel between an input and rows that were seen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    size: int = Field(2000, ge=1, le=1_000_000, description="basis functions at most, one on each row")
    width: int = Field(250, ge=1, description="basis functions in a block")


class Inducing(Features):
    """k(x, z_j), on up to `capacity` rows, which `place` chooses. Computed in float64, as S is factorised.

    Attributes:
        points: (capacity, W) float64, the rows z_j in units of the inputs; those from `count` on are not in use.
        count: () int64, rows in use.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> features = build(Config(size=4, width=2), squared_exponential.build(squared_exponential.Config(), 1))
        >>> features.place(torch.tensor([[0.0], [1.0], [2.0]])).blocks, features.span(1)
        (2, slice(2, 3, None))
        >>> features.block(torch.zeros(1, 1), 0).log().tolist(), features.precision(1, 0).log().tolist()
        ([[0.0, -0.5]], [[-2.0, -0.5]])
    """

    diagonal_precision = False

    def __init__(self, config: Config, kernel: Kernel) -> None:
        super().__init__(kernel, config.size, config.width)
        self.points: Tensor
        self.count: Tensor
        self.register_buffer("points", torch.zeros(config.size, kernel.dims, dtype=FLOAT))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @property
    def size(self) -> int:
        return int(self.count)

    @torch.no_grad()
    def place(self, x: Tensor) -> Inducing:
        """One function on each of these rows, in this order, as far as there is room. x: (N, W).

        Functions of a block are drawn together: give the rows in random order.
        """
        count = min(len(x), self.capacity)
        self.points[:count] = x[:count].to(FLOAT)
        self.points[count:] = 0.0
        self.count.fill_(count)
        return self

    def block(self, x: Tensor, block: int) -> Tensor:
        """(N, W) -> (N, |b|)"""
        covariances: Tensor = self.kernel(x.to(FLOAT), self.points[self.span(block)])
        return covariances.to(x.dtype)

    def precision(self, i: int, j: int) -> Tensor:
        """(|i|, |j|) float64: k(z_i, z_j)."""
        covariances: Tensor = self.kernel(self.points[self.span(i)], self.points[self.span(j)])
        return covariances


def augmentation(prior: Tensor, norm: Tensor, noise: Tensor) -> Tensor:
    """What a function at the test point adds to the latent variance: σ²k²/(kᵀk + σ²k) (Proposition 4).

    It is not negative (remark 1) and tends to the prior variance k(x, x) where kᵀk tends to 0 (remark 2). The
    variance of an observation is the paper's 𝕍[y] + σ²: the proposition is about the latent function.

    kᵀk is Σ_n k(x_n, x)² over the training rows. It is φᵀφ where there is a function on every row; with functions on m
    of n rows it is (n/m) φᵀφ, on average over which rows they are.

    Args:
        prior: (N,) k(x, x) > 0 at the test points.
        norm: (N,) kᵀk.
        noise: (T,) σ_t².

    Returns:
        (N, T)

    Example:
        >>> one = torch.ones(1)
        >>> augmentation(one, 0.0 * one, one).item(), augmentation(one, 3.0 * one, one).item()
        (1.0, 0.25)
    """
    scaled = noise * prior[:, None]
    return scaled * prior[:, None] / (norm[:, None] + scaled)


def build(config: Config, kernel: Kernel) -> Inducing:
    """Inducing functions of a kernel, none of them yet on a row."""
    return Inducing(config, kernel)
