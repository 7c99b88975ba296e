"""A Gaussian function value under Student-t noise: what a GP with a Student-t likelihood predicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from streamgp.predictives._shared import broadcast, normal_abs
from streamgp.predictives.mixture import Mixture
from streamgp.predictives.student_t import StudentT

NODES = 40
TAIL = 28.0


def precisions(dof: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes g and weights of E h(g) for g ~ Gamma(dof/2, rate dof/2), the scale mixture of Student's t.

    The trapezoidal rule in u = log g, whose density is proportional to exp(½ν (u − eᵘ)), between the points where that
    is e⁻²⁸ of its peak; it converges geometrically. Departure from generalised Gauss–Laguerre, which is exact for
    polynomials in g but has no node below about 1/NODES: its mixture has Gaussian tails beyond some five scales, where
    the density of an outlier is wanted.

    Args:
        dof: (...) degrees of freedom ν.

    Returns:
        g and weights, both (NODES, ...), weights summing to one.

    Example:
        >>> g, w = precisions(torch.tensor(5.0).double())
        >>> round((w * g).sum().item(), 5), round((w / g).sum().item(), 5)  # E g = 1, E 1/g = ν/(ν − 2)
        (1.0, 1.66667)
    """
    drop = 2.0 * TAIL / dof
    low, high = -(1.0 + drop), torch.sqrt(2.0 * drop)  # both outside; Newton on a concave function stays there
    for _ in range(20):
        low = low - (low - torch.expm1(low) + drop) / -torch.expm1(low)
        high = high - (high - torch.expm1(high) + drop) / -torch.expm1(high)
    steps = torch.linspace(0.0, 1.0, NODES, dtype=dof.dtype, device=dof.device).reshape(-1, *([1] * dof.ndim))
    u = low + (high - low) * steps
    logs = 0.5 * dof * (u - torch.exp(u))
    return torch.exp(u), torch.softmax(logs, 0)


@dataclass(frozen=True, eq=False)
class StudentTNoise:
    """y = f + scale · t_dof with f ~ N(mean, latent_variance), column by column.

    Its density is a Gaussian scale mixture: Σ_k w_k N(y; mean, latent_variance + scale²/g_k) on the nodes of
    `precisions`.

    Attributes:
        mean: (N, T) target units.
        latent_variance: (N, T) squared target units.
        scale: (N, T) target units, of the noise.
        dof: (N, T) degrees of freedom of the noise, > 2.

    Example:
        >>> p = StudentTNoise(*(torch.full((1, 1), value, dtype=torch.float64) for value in (0.0, 1.0, 1.0, 4.0)))
        >>> p.variance.item(), round(p.quantile(torch.tensor([0.975])).item(), 4)
        (3.0, 3.3609)
    """

    mean: Tensor
    latent_variance: Tensor
    scale: Tensor
    dof: Tensor

    binary: ClassVar[bool] = False

    def __post_init__(self) -> None:
        broadcast(self, "mean", "latent_variance", "scale", "dof")

    def mixture(self) -> Mixture:
        """The same distribution as a finite mixture of Gaussians."""
        g, weights = precisions(self.dof)
        return Mixture(weights, self.mean[None], self.latent_variance + self.scale.square() / g, self.latent_variance)

    @property
    def variance(self) -> Tensor:
        """(N, T) latent_variance + scale² dof/(dof − 2)."""
        noise = self.scale.square() * self.dof / (self.dof - 2.0)
        return self.latent_variance + torch.where(self.dof > 2.0, noise, math.inf)

    def quantile(self, p: Tensor) -> Tensor:
        """(K,) -> (K, N, T); levels that mirror each other are solved once."""
        tails, place = torch.unique(torch.minimum(p, 1.0 - p).to(self.mean).round(decimals=15), return_inverse=True)
        below = self.mixture().quantile(tails)[place] - self.mean
        side = torch.sign(0.5 - p).to(self.mean).reshape(-1, *([1] * self.mean.ndim))
        return self.mean + side * below

    def sample(self, paths: int, generator: Generator) -> Tensor:
        """(paths, N, T): a function value each, then its noise."""
        shape = (paths, *self.mean.shape)
        latent = torch.randn(shape, generator=generator, dtype=self.mean.dtype, device=self.mean.device)
        zero = torch.zeros_like(self.mean)
        noise = StudentT(zero, self.scale, self.dof, zero).sample(paths, generator)
        return self.mean + self.latent_variance.sqrt() * latent + noise

    def log_prob(self, y: Tensor) -> Tensor:
        """(N, T) marginal log densities; NaN where y is NaN."""
        return self.mixture().log_prob(y)

    def crps(self, y: Tensor) -> Tensor:
        """(N, T), of the mixture; NaN where y is NaN. All components share a mean: E|X_k − X_l| = √(2(v_k + v_l)/π)."""
        m = self.mixture()
        total = torch.zeros_like(y - self.mean)
        for k, (weight, variance) in enumerate(zip(m.weights, m.variances, strict=True)):
            total = total + weight * normal_abs(y - self.mean, variance.sqrt())
            others = (m.weights[:k] * (variance + m.variances[:k]).sqrt()).sum(0)
            total = total - weight * (others + weight * (0.5 * variance).sqrt()) * math.sqrt(2.0 / math.pi)
        return total

    def affine(self, scale: Tensor, shift: Tensor) -> StudentTNoise:
        """The distribution of scale · y + shift, scale > 0."""
        return StudentTNoise(
            self.mean * scale + shift, self.latent_variance * scale.square(), self.scale * scale, self.dof
        )

    def parameters(self) -> Tensor:
        """(4, N, T): mean, latent variance, scale, dof."""
        return torch.stack((self.mean, self.latent_variance, self.scale, self.dof))

    @classmethod
    def from_parameters(cls, parameters: Tensor) -> Self:
        """The inverse of `parameters`."""
        mean, latent, scale, dof = parameters.unbind(0)
        return cls(mean, latent, scale, dof)
