"""A finite mixture of Gaussians: sample-free averages over models, scales or paths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from streamgp.predictives._shared import broadcast, invert, levels, normal_abs, normal_pdf


@dataclass(frozen=True, eq=False)
class Mixture:
    """Σ_k weights_k N(means_k, variances_k), column by column.

    Attributes:
        weights: (K, N, T) positive, summing to 1 over K.
        means: (K, N, T) target units.
        variances: (K, N, T) squared target units, observation noise included.
        latent_variance: (N, T) squared target units, noise excluded.

    Example:
        >>> half, apart = torch.full((2, 1, 1), 0.5), torch.tensor([-3.0, 3.0]).reshape(2, 1, 1)
        >>> m = Mixture(half, apart, torch.ones(2, 1, 1), torch.zeros(1, 1))
        >>> m.mean.item(), m.variance.item(), abs(round(m.quantile(torch.tensor([0.5])).item(), 3))
        (0.0, 10.0, 0.0)
    """

    weights: Tensor
    means: Tensor
    variances: Tensor
    latent_variance: Tensor

    binary: ClassVar[bool] = False

    def __post_init__(self) -> None:
        broadcast(self, "weights", "means", "variances")
        object.__setattr__(self, "latent_variance", self.latent_variance.expand(self.means.shape[1:]))

    @property
    def mean(self) -> Tensor:
        """(N, T)"""
        return (self.weights * self.means).sum(0)

    @property
    def variance(self) -> Tensor:
        """(N, T) Σ_k w_k (variances_k + (means_k − mean)²)."""
        return (self.weights * (self.variances + (self.means - self.mean).square())).sum(0)

    def cdf(self, y: Tensor) -> Tensor:
        """Distribution function; y broadcasts against (N, T)."""
        total = torch.zeros_like(y)
        for w, m, v in zip(self.weights, self.means, self.variances, strict=True):  # K is small, the rest is large
            total = total + w * torch.special.ndtr((y - m) / v.sqrt())
        return total

    def pdf(self, y: Tensor) -> Tensor:
        """Density; y broadcasts against (N, T)."""
        total = torch.zeros_like(y)
        for w, m, v in zip(self.weights, self.means, self.variances, strict=True):
            total = total + w * normal_pdf((y - m) / v.sqrt()) / v.sqrt()
        return total

    def quantile(self, p: Tensor) -> Tensor:
        """(K,) -> (K, N, T), by bracketed Newton steps; the components' own quantiles are the bracket."""
        grid = levels(p, self.means[0]).expand(-1, *self.means.shape[1:])
        z = torch.special.ndtri(levels(p, self.means[0]))
        ends = self.means[0] + self.variances[0].sqrt() * z
        low, high = ends, ends
        for m, v in zip(self.means[1:], self.variances[1:], strict=True):
            ends = m + v.sqrt() * z
            low, high = torch.minimum(low, ends), torch.maximum(high, ends)
        return invert(self.cdf, self.pdf, grid, low, high, self.mean + self.variance.sqrt() * z)

    def sample(self, paths: int, generator: Generator) -> Tensor:
        """(paths, N, T): a component each, then a draw from it."""
        shape = (paths, *self.means.shape[1:])
        u = torch.rand(shape, generator=generator, dtype=self.means.dtype, device=self.means.device)
        which = torch.zeros(shape, dtype=torch.long, device=self.means.device)
        for edge in self.weights.cumsum(0)[:-1]:
            which = which + (u > edge).long()
        draws = torch.randn(shape, generator=generator, dtype=self.means.dtype, device=self.means.device)
        return self.means.gather(0, which) + self.variances.gather(0, which).sqrt() * draws

    def log_prob(self, y: Tensor) -> Tensor:
        """(N, T) marginal log densities; NaN where y is NaN."""
        logs = torch.log(self.weights) - 0.5 * (
            (y - self.means).square() / self.variances + torch.log(2.0 * math.pi * self.variances)
        )
        return torch.logsumexp(logs, 0)

    def crps(self, y: Tensor) -> Tensor:
        """(N, T) Σ_k w_k E|y − X_k| − ½ Σ_kl w_k w_l E|X_k − X_l| (Grimit et al. 2006, eq. 5); K² terms."""
        total = torch.zeros_like(y)
        for k in range(len(self.weights)):
            total = total + self.weights[k] * normal_abs(y - self.means[k], self.variances[k].sqrt())
            for j in range(k + 1):
                spread = normal_abs(self.means[k] - self.means[j], (self.variances[k] + self.variances[j]).sqrt())
                total = total - (0.5 if j == k else 1.0) * self.weights[k] * self.weights[j] * spread
        return total

    def affine(self, scale: Tensor, shift: Tensor) -> Mixture:
        """The distribution of scale · y + shift, scale > 0."""
        return Mixture(
            self.weights,
            self.means * scale + shift,
            self.variances * scale.square(),
            self.latent_variance * scale.square(),
        )

    def parameters(self) -> Tensor:
        """(3K + 1, N, T): weights, means, variances, latent variance."""
        return torch.cat((self.weights, self.means, self.variances, self.latent_variance[None]))

    @classmethod
    def from_parameters(cls, parameters: Tensor) -> Self:
        """The inverse of `parameters`."""
        weights, means, variances = parameters[:-1].chunk(3)
        return cls(weights, means, variances, parameters[-1])
