"""Student's t: what Bayesian linear regression with an unknown noise variance predicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Generator, Tensor

from streamgp.predictives._shared import broadcast


def t_log_pdf(z: Tensor, dof: Tensor) -> Tensor:
    """log density of the standard t with `dof` degrees of freedom; stable for dof up to 10¹²."""
    large = dof > 1e6  # the difference of two log-gammas loses its digits there; its series does not
    half = 0.5 * torch.where(large, 1.0, dof)
    ratio = torch.lgamma(half + 0.5) - torch.lgamma(half)
    series = 0.5 * torch.log(0.5 * dof) - 0.25 / dof
    return (
        torch.where(large, series, ratio)
        - 0.5 * torch.log(math.pi * dof)
        - 0.5 * (dof + 1.0) * torch.log1p(z.square() / dof)
    )


def t_cdf(z: Tensor, dof: Tensor) -> Tensor:
    """Distribution function of the standard t, by SciPy, on the CPU and without a gradient."""
    from scipy.special import stdtr  # a Gaussian run does not wait for it

    return torch.from_numpy(np.asarray(stdtr(*_arrays(dof, z)))).to(z)


def t_quantile(p: Tensor, dof: Tensor) -> Tensor:
    """(K,), (...) -> (K, ...): inverse of `t_cdf`, solved once for every distinct dof."""
    from scipy.special import stdtrit

    unique, place = torch.unique(dof, return_inverse=True)
    grid = p.to(dof)[:, None].expand(-1, unique.numel())
    tail = torch.minimum(grid, 1.0 - grid)  # SciPy's lower tail is good to 1e-8, its upper one to 1e-6
    root = torch.from_numpy(np.asarray(stdtrit(*_arrays(unique, tail)))).to(dof)
    step = (t_cdf(root, unique.expand_as(root)) - tail) / t_log_pdf(root, unique).exp()
    root = torch.where(tail > 0, root - step, -math.inf)  # Newton: 1e-15
    root = torch.where(grid == 0.5, torch.zeros_like(root), root)
    return (root * torch.sign(0.5 - grid))[:, place]


def _arrays(*tensors: Tensor) -> tuple[np.ndarray[Any, np.dtype[np.float64]], ...]:
    return tuple(tensor.detach().cpu().double().numpy() for tensor in tensors)


@dataclass(frozen=True, eq=False)
class StudentT:
    """location + scale · t_dof, column by column.

    Attributes:
        location: (N, T) target units.
        scale: (N, T) target units.
        dof: (N, T) degrees of freedom, > 0. The mean exists above 1, the variance above 2.
        latent_variance: (N, T) squared target units; the part of `variance` that is not observation noise.

    Example:
        >>> t = StudentT(*(torch.full((1, 1), value, dtype=torch.float64) for value in (0.0, 1.0, 4.0, 0.5)))
        >>> t.variance.item(), round(t.quantile(torch.tensor([0.975])).item(), 4)
        (2.0, 2.7764)
    """

    location: Tensor
    scale: Tensor
    dof: Tensor
    latent_variance: Tensor

    binary: ClassVar[bool] = False

    def __post_init__(self) -> None:
        broadcast(self, "location", "scale", "dof", "latent_variance")

    @property
    def mean(self) -> Tensor:
        """(N, T); NaN where dof <= 1."""
        return torch.where(self.dof > 1.0, self.location, math.nan)

    @property
    def variance(self) -> Tensor:
        """(N, T) scale² dof/(dof − 2); infinite where dof <= 2."""
        finite = self.scale.square() * self.dof / (self.dof - 2.0)
        return torch.where(self.dof > 2.0, finite, math.inf)

    def quantile(self, p: Tensor) -> Tensor:
        """(K,) -> (K, N, T)"""
        return self.location + self.scale * t_quantile(p, self.dof)

    def sample(self, paths: int, generator: Generator) -> Tensor:
        """(paths, N, T), by Bailey's polar formula √(ν (U^(−2/ν) − 1)) cos 2πV (Math. Comp. 62, 1994)."""
        u, v = torch.rand(
            (2, paths, *self.location.shape),
            generator=generator,
            dtype=self.location.dtype,
            device=self.location.device,
        )
        radius = torch.sqrt(self.dof * torch.expm1(-2.0 / self.dof * torch.log1p(-u)))
        return self.location + self.scale * radius * torch.cos(2.0 * math.pi * v)

    def log_prob(self, y: Tensor) -> Tensor:
        """(N, T) marginal log densities; NaN where y is NaN."""
        return t_log_pdf((y - self.location) / self.scale, self.dof) - torch.log(self.scale)

    def crps(self, y: Tensor) -> Tensor:
        """(N, T); infinite where dof <= 1 (Jordan, Krüger & Lerch 2019, appendix A).

        scale [z(2F − 1) + 2f (ν + z²)/(ν − 1) − (2√ν/(ν − 1)) B(½, ν − ½)/B(½, ν/2)²] with z = (y − location)/scale.
        """
        nu = self.dof.clamp(min=1.0 + 1e-9)
        z = (y - self.location) / self.scale
        # B(½, ν−½)/B(½, ν/2)² by the density at 0, f(0) = 1/(√ν B(½, ν/2)), and B(½, ν−½) = 1/(√(2ν−1) f_{2ν−1}(0))
        zero = torch.zeros_like(nu)
        log_ratio = (
            2.0 * t_log_pdf(zero, nu)
            + torch.log(nu)
            - t_log_pdf(zero, 2.0 * nu - 1.0)
            - 0.5 * torch.log(2.0 * nu - 1.0)
        )
        spread = 2.0 * torch.sqrt(nu) / (nu - 1.0) * torch.exp(log_ratio)
        body = z * (2.0 * t_cdf(z, nu) - 1.0) + 2.0 * t_log_pdf(z, nu).exp() * (nu + z.square()) / (nu - 1.0)
        return torch.where((self.dof > 1.0) | y.isnan(), self.scale * (body - spread), math.inf)

    def affine(self, scale: Tensor, shift: Tensor) -> StudentT:
        """The distribution of scale · y + shift, scale > 0."""
        return StudentT(
            self.location * scale + shift, self.scale * scale, self.dof, self.latent_variance * scale.square()
        )

    def parameters(self) -> Tensor:
        """(4, N, T): location, scale, dof, latent variance."""
        return torch.stack((self.location, self.scale, self.dof, self.latent_variance))

    @classmethod
    def from_parameters(cls, parameters: Tensor) -> Self:
        """The inverse of `parameters`."""
        location, scale, dof, latent = parameters.unbind(0)
        return cls(location, scale, dof, latent)
