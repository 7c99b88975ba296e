"""A Gaussian function value under Laplace noise: what a GP with a Laplace likelihood predicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from streamgp.predictives._shared import broadcast, invert, levels, normal_abs

NARROW = 1e-12
"""Of the two scales neither is taken to be less than this part of the other: less would change nothing."""


@dataclass(frozen=True, eq=False)
class LaplaceNoise:
    """y = f + Laplace(scale) with f ~ N(mean, latent_variance), column by column: the normal-Laplace distribution.

    Everything is closed form (Reed 2006, "The normal-Laplace distribution and its relatives", eq. 3-4) in

        A±(y) = E e^(−|X|/b) on one side of 0 = e^(s²/2b² ∓ d/b) Φ(±d/s − s/b),   d = y − mean,

    X ~ N(d, s²), s² = latent_variance, b = scale. They are computed as ½ e^(−d²/2s²) erfcx(·) where the exponent of the
    first form would overflow.

    Attributes:
        mean: (N, T) target units.
        latent_variance: (N, T) squared target units.
        scale: (N, T) b, target units: the mean absolute noise; its variance is 2b².

    Example:
        >>> p = LaplaceNoise(*(torch.full((1, 1), value, dtype=torch.float64) for value in (0.0, 1.0, 1.0)))
        >>> p.variance.item(), round(p.quantile(torch.tensor([0.975])).item(), 4)
        (3.0, 3.4951)
    """

    mean: Tensor
    latent_variance: Tensor
    scale: Tensor

    binary: ClassVar[bool] = False

    def __post_init__(self) -> None:
        broadcast(self, "mean", "latent_variance", "scale")

    @property
    def variance(self) -> Tensor:
        """(N, T) latent_variance + 2 scale²."""
        return self.latent_variance + 2.0 * self.scale.square()

    def _widths(self) -> tuple[Tensor, Tensor]:
        """s and b, neither of them 0."""
        s, b = self.latent_variance.sqrt(), self.scale
        return torch.maximum(s, NARROW * b).clamp(min=1e-150), torch.maximum(b, NARROW * s).clamp(min=1e-150)

    def _log_sides(self, d: Tensor) -> tuple[Tensor, Tensor]:
        """log A+ and log A− at a distance d of the mean."""
        s, b = self._widths()
        found = []
        for z, side in ((d / s, d), (-d / s, -d)):
            u = s / b - z
            near = torch.log(0.5 * torch.special.erfcx(u.clamp(min=0.0) / math.sqrt(2.0))) - 0.5 * z.square()
            far = (0.5 * s.square() / b - side) / b + torch.special.log_ndtr(-u)
            found.append(torch.where(u >= 0.0, near, far))
        return found[0], found[1]

    def log_prob(self, y: Tensor) -> Tensor:
        """(N, T) log (A+ + A−)/2b; NaN where y is NaN."""
        _, b = self._widths()
        found: Tensor = torch.logaddexp(*self._log_sides(y - self.mean)) - torch.log(2.0 * b)
        return found

    def _tail(self, distance: Tensor) -> Tensor:
        """P(y < mean − distance), distance >= 0: Φ(−distance/s) + ½(A− − A+), exact relative to itself."""
        s, _ = self._widths()
        log_far, log_near = self._log_sides(-distance)
        # not torch's ndtr, which is 1 − Φ rounded in this tail
        below: Tensor = 0.5 * torch.special.erfc(distance / s / math.sqrt(2.0))
        return below + 0.5 * (torch.exp(log_near) - torch.exp(log_far))

    def cdf(self, y: Tensor) -> Tensor:
        """(N, T) distribution function."""
        d = y - self.mean
        tail = self._tail(d.abs())
        return torch.where(d > 0.0, 1.0 - tail, tail)

    def quantile(self, p: Tensor) -> Tensor:
        """(K,) -> (K, N, T), by bracketed Newton steps; levels that mirror each other are solved once."""
        tails, place = torch.unique(torch.minimum(p, 1.0 - p).to(self.mean).round(decimals=15), return_inverse=True)
        _, b = self._widths()
        share = levels(tails, self.mean).expand(-1, *self.mean.shape)
        # f or its noise lies beyond its own quantile of p/2 wherever their sum lies beyond the sum of these
        edge = self.latent_variance.sqrt() * -torch.special.ndtri(0.5 * share) - b * torch.log(share)
        start = self.variance.sqrt() * -torch.special.ndtri(share)
        distance = -invert(
            lambda x: self._tail(-x),
            lambda x: self.log_prob(self.mean + x).exp(),
            share,
            -edge,
            torch.zeros_like(edge),
            -start,
        )
        distance = torch.where(share == 0.5, torch.zeros_like(distance), distance)[place]
        side = torch.sign(p - 0.5).to(self.mean).reshape(-1, *([1] * self.mean.ndim))
        return self.mean + side * distance

    def sample(self, paths: int, generator: Generator) -> Tensor:
        """(paths, N, T): a function value each, and the difference of two exponentials for its noise."""
        shape, like = (paths, *self.mean.shape), self.mean
        latent = torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
        u = torch.rand((2, *shape), generator=generator, dtype=like.dtype, device=like.device)
        one, other = (-torch.log1p(-u)).unbind(0)
        return self.mean + self.latent_variance.sqrt() * latent + self.scale * (one - other)

    def crps(self, y: Tensor) -> Tensor:
        """(N, T) E|Y − y| − ½ E|Y − Y'|; NaN where y is NaN.

        E|Y − y| = E|X| + 2b² p(y), because E|x + Laplace(b)| = |x| + b e^(−|x|/b). For two copies the same step, with
        E|x + L − L'| = |x| + (3b + |x|) e^(−|x|/b)/2, gives
        ½ E|Y − Y'| = 3s/(2√π) + (3b/4 − s²/2b) erfcx(s/b).
        """
        s, b = self._widths()
        far = normal_abs(y - self.mean, s) + 2.0 * b.square() * self.log_prob(y).exp()
        spread: Tensor = 1.5 * s / math.sqrt(math.pi) + (0.75 * b - 0.5 * s.square() / b) * torch.special.erfcx(s / b)
        return far - spread

    def affine(self, scale: Tensor, shift: Tensor) -> LaplaceNoise:
        """The distribution of scale · y + shift, scale > 0."""
        return LaplaceNoise(self.mean * scale + shift, self.latent_variance * scale.square(), self.scale * scale)

    def parameters(self) -> Tensor:
        """(3, N, T): mean, latent variance, scale."""
        return torch.stack((self.mean, self.latent_variance, self.scale))

    @classmethod
    def from_parameters(cls, parameters: Tensor) -> Self:
        """The inverse of `parameters`."""
        mean, latent, scale = parameters.unbind(0)
        return cls(mean, latent, scale)
