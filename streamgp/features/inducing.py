"""Inducing functions: φ_j(x) = k(x, z_j) on rows z_j, with precision S = K_ZZ, or independent weights.

With S_ij = k(z_i, z_j) the prior covariance is φ(x)ᵀS⁻¹φ(x'), the Nyström approximation of k, and with a function on
every training row the posterior mean is the exact one (Evans & Nair 2020, appendix G). With independent weights it is
the relevance vector machine, S = diag(s) (Tipping 2001).

The Nyström prior loses its variance far from the rows. Proposition 4 adds a function at every test point, whose weight
is taken to be independent of the others a posteriori; `augmentation` is what that adds to the latent variance.
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

    size: int = Field(4000, ge=1, description="basis functions at most, one on each row")
    width: int = Field(1000, ge=1, description="basis functions in a block")
    independent: bool = Field(
        False,
        description="weights with independent priors, as in the relevance vector machine, instead of the kernel's",
    )


class Inducing(Features):
    """k(x, z_j), on up to `capacity` rows, which `add` appends and `put` replaces.

    Values of φ are computed in the dtype of x, K_ZZ in float64, because it is factorised. In float32 a squared
    exponential's have an error of about 1e-7 ‖x/s‖².

    Attributes:
        points: (capacity, W) float64, the rows z_j in units of the inputs; those from `count` on are not in use.
        count: () int64, rows in use.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> features = build(Config(size=4, width=2), squared_exponential.build(squared_exponential.Config(), 1))
        >>> features.add(torch.tensor([[0.0], [1.0], [2.0]])), features.blocks, features.span(1)
        (slice(0, 3, None), 2, slice(2, 3, None))
        >>> features.block(torch.zeros(1, 1), 0).log().tolist(), features.precision(1, 0).log().tolist()
        ([[0.0, -0.5]], [[-2.0, -0.5]])
    """

    def __init__(self, config: Config, kernel: Kernel) -> None:
        super().__init__(kernel, config.size, config.width)
        self.diagonal_precision = config.independent
        self.points: Tensor
        self.count: Tensor
        self.register_buffer("points", torch.zeros(config.size, kernel.dims, dtype=FLOAT))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @property
    def size(self) -> int:
        return int(self.count)

    @torch.no_grad()
    def add(self, x: Tensor) -> slice:
        """Append rows while there is room; returns their places. x: (N, W)."""
        start = self.size
        stop = min(start + len(x), self.capacity)
        self.points[start:stop] = x[: stop - start].to(FLOAT)
        self.count.fill_(stop)
        return slice(start, stop)

    @torch.no_grad()
    def put(self, places: Tensor | slice, x: Tensor) -> None:
        """Write rows x over the functions at `places` that are in use. What was learned of their weights is void.

        Raises:
            IndexError: a place is not in use.
        """
        index = torch.arange(self.size, device=self.points.device)[places]
        self.points[index] = x.to(FLOAT)

    def block(self, x: Tensor, block: int) -> Tensor:
        """(N, W) -> (N, |b|)"""
        return self._covariance(x, self.points[self.span(block)].to(x.dtype))

    def precision(self, i: int, j: int) -> Tensor:
        """(|i|, |j|) float64: k(z_i, z_j), or that of weights with precision 1 where they are independent."""
        if self.diagonal_precision:
            return super().precision(i, j)
        covariances: Tensor = self.kernel(self.points[self.span(i)], self.points[self.span(j)])
        return covariances

    def prior_variance(self, x: Tensor) -> Tensor:
        """(N, W) -> (N,): k(x, x); where weights are independent with precision 1, Σ_j φ_j(x)², which is O(N W m)."""
        if not self.diagonal_precision:
            return super().prior_variance(x)
        return squared_norm(self, x)

    def _covariance(self, x: Tensor, z: Tensor) -> Tensor:
        """k(x, z) computed in the dtype of x, which hyper-parameters in float64 would otherwise raise."""
        values = {name: value.to(x.dtype) for name, value in self.kernel.named_parameters()}
        covariances: Tensor = torch.func.functional_call(self.kernel, values, (x, z))
        return covariances


def squared_norm(features: Features, x: Tensor) -> Tensor:
    """φ(x)ᵀφ(x) by blocks, so that no more than one of them is in memory. x: (N, W). Returns (N,).

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> features = build(Config(), squared_exponential.build(squared_exponential.Config(), 1))
        >>> features.add(torch.zeros(3, 1)), squared_norm(features, torch.zeros(1, 1)).tolist()
        (slice(0, 3, None), [3.0])
    """
    total = x.new_zeros(len(x))
    for block in range(features.blocks):
        total = total + features.block(x, block).square().sum(1)
    return total


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
