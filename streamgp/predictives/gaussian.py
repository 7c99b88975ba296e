"""The Gaussian: what a GP with a Gaussian likelihood predicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from streamgp.predictives._shared import broadcast, levels, normal_abs

NORMAL = math.sqrt(math.pi / 2)
"""Standard deviation of a normal error over its mean size."""


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean, latent_variance + noise), column by column.

    Attributes:
        mean: (N, T) target units.
        latent_variance: (N, T) squared target units; what is not known of the function.
        noise: (N, T) squared target units; variance of one observation around the function.

    Example:
        >>> g = Gaussian(torch.zeros(1, 1), torch.full((1, 1), 3.0), torch.ones(1, 1))
        >>> g.variance.item(), round(g.quantile(torch.tensor([0.975])).item(), 3)
        (4.0, 3.92)
        >>> g.affine(torch.tensor(10.0), torch.tensor(5.0)).mean.item()
        5.0
    """

    mean: Tensor
    latent_variance: Tensor
    noise: Tensor

    binary: ClassVar[bool] = False

    def __post_init__(self) -> None:
        broadcast(self, "mean", "latent_variance", "noise")

    @property
    def variance(self) -> Tensor:
        """(N, T) of an observation, squared target units."""
        return self.latent_variance + self.noise

    def quantile(self, p: Tensor) -> Tensor:
        """(K,) -> (K, N, T): mean + sd Φ⁻¹(p)."""
        z: Tensor = torch.special.ndtri(levels(p, self.mean))
        return self.mean + self.variance.sqrt() * z

    def sample(self, paths: int, generator: Generator) -> Tensor:
        """(paths, N, T) independent draws of observations."""
        draws = torch.randn(
            (paths, *self.mean.shape), generator=generator, dtype=self.mean.dtype, device=self.mean.device
        )
        return self.mean + self.variance.sqrt() * draws

    def log_prob(self, y: Tensor) -> Tensor:
        """(N, T) −½ [(y − mean)²/variance + log(2π variance)]; NaN where y is NaN."""
        return -0.5 * ((y - self.mean).square() / self.variance + torch.log(2.0 * math.pi * self.variance))

    def crps(self, y: Tensor) -> Tensor:
        """(N, T) sd [z(2Φ(z) − 1) + 2φ(z) − 1/√π], z = (y − mean)/sd (Gneiting & Raftery 2007, eq. 21)."""
        sd = self.variance.sqrt()
        return normal_abs(y - self.mean, sd) - sd / math.sqrt(math.pi)

    def affine(self, scale: Tensor, shift: Tensor) -> Gaussian:
        """The distribution of scale · y + shift, scale > 0."""
        return Gaussian(self.mean * scale + shift, self.latent_variance * scale.square(), self.noise * scale.square())

    def parameters(self) -> Tensor:
        """(3, N, T): mean, latent variance, noise."""
        return torch.stack((self.mean, self.latent_variance, self.noise))

    @classmethod
    def from_parameters(cls, parameters: Tensor) -> Self:
        """The inverse of `parameters`."""
        mean, latent, noise = parameters.unbind(0)
        return cls(mean, latent, noise)
