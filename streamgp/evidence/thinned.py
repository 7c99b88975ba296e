"""Hyper-parameters of a grouped radial kernel, by the evidence of thinned rows.

k(x, x') = ρ² c(Σ_g d_g/ℓ_g²), with d_g the mean squared difference of the columns in group g of a standardised window:
one lengthscale for all lags (or steps ahead) of a channel. c is a kernel's `profile`, by default e^−s/2.

Minimised is ½ tr(YᵀA⁻¹Y)/T + ½ log|A| + ½ Σ_g (log ℓ_g − 1)²: the evidence of one average column, with a lengthscale
prior. Rows that overlap in time would let it explain each row by its neighbours and the noise collapse: thin them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import cholesky

Profile: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""`Stationary.profile` of a radial kernel: s -> c(s), −2 c'(s)."""

LENGTHSCALE = 1.0
"""Mean of the prior of log ℓ_g; its standard deviation is 1."""
START_NOISE = -2.3
"""Where log σ² starts, for targets of unit variance; from σ² = 1 the function's own variance would collapse."""
JITTER = 1e-6


class Hyper(NamedTuple):
    """Logarithms of the hyper-parameters.

    Attributes:
        lengthscale: (G,) log ℓ.
        outputscale: () log ρ², in units of the standardised target's variance.
        noise: () log σ².
    """

    lengthscale: Tensor
    outputscale: Tensor
    noise: Tensor

    def pack(self) -> Tensor:
        """(G + 2,)"""
        return torch.cat((self.lengthscale, torch.stack((self.outputscale, self.noise))))

    @classmethod
    def unpack(cls, packed: Tensor) -> Hyper:
        """The inverse of `pack`."""
        return cls(packed[:-2], packed[-2], packed[-1])

    @classmethod
    def start(cls, groups: int) -> Hyper:
        """Where an estimation starts."""
        scalars = torch.tensor([0.0, START_NOISE], dtype=FLOAT)
        return cls.unpack(torch.cat((torch.full((groups,), LENGTHSCALE, dtype=FLOAT), scalars)))


def distances(x: Tensor, groups: Tensor) -> Tensor:
    """(n, D) standardised rows -> (G, n, n) d_g. groups: (D,) the group of each column, 0 … G−1."""
    found = []
    for group in range(int(groups.max()) + 1):
        part = x[:, groups == group]
        product = part @ part.T
        size = product.diagonal()
        found.append((size[:, None] + size - 2.0 * product).clamp(min=0.0) / part.shape[1])
    return torch.stack(found)


def smooth(squares: Tensor) -> tuple[Tensor, Tensor]:
    """The profile of the squared exponential kernel."""
    correlation = torch.exp(-0.5 * squares)
    return correlation, correlation


def objective(packed: Tensor, distance: Tensor, y: Tensor, profile: Profile = smooth) -> tuple[Tensor, Tensor]:
    """The penalised negative log evidence and its gradient, in closed form.

    ∂/∂A = ½ (A⁻¹ − A⁻¹YYᵀA⁻¹/T) =: Q, and ∂/∂θ = ⟨Q, ∂K/∂θ⟩.

    Args:
        packed: (G + 2,) of `Hyper.pack`.
        distance: (G, n, n) of `distances`.
        y: (n, T) standardised.
        profile: c and −2 c'.

    Returns:
        (), (G + 2,)
    """
    hyper = Hyper.unpack(packed)
    columns = y.shape[1]
    inverse = torch.exp(-2.0 * hyper.lengthscale)
    correlation, fall = profile(torch.tensordot(inverse, distance, 1))
    scale, noise = torch.exp(hyper.outputscale), torch.exp(hyper.noise)
    covariance = scale * correlation
    covariance.diagonal().add_(noise + JITTER)
    lower = cholesky(covariance, first=0.0).lower
    alpha = torch.cholesky_solve(y, lower)
    off = hyper.lengthscale - LENGTHSCALE
    value = 0.5 * (y * alpha).sum() / columns + lower.diagonal().log().sum() + 0.5 * off.square().sum()
    q = 0.5 * (torch.cholesky_inverse(lower) - alpha @ alpha.T / columns)
    slope = inverse * torch.tensordot(distance, scale * (q * fall), 2) + off
    scalars = torch.stack((scale * (q * correlation).sum(), noise * q.trace()))
    return value, torch.cat((slope, scalars))


class Estimate(NamedTuple):
    """Hyper-parameters, and the penalised negative log evidence there."""

    hyper: Hyper
    value: float


def estimate(
    x: Tensor, y: Tensor, groups: Tensor, start: Hyper, steps: int, rate: float = 0.1, profile: Profile = smooth
) -> Hyper:
    """`steps` steps of Adam from `start`.

    Args:
        x: (n, D) standardised rows.
        y: (n, T) standardised targets, none missing.
        groups: (D,) the group of each column.
        start: from where.
        steps: of Adam.
        rate: step size, in units of the logarithms.
        profile: of the kernel.

    Raises:
        NotPositiveDefinite: the rows are not finite.
    """
    return best(x, y, groups, [(start, steps)], rate, profile).hyper


def best(
    x: Tensor,
    y: Tensor,
    groups: Tensor,
    starts: Sequence[tuple[Hyper, int]],
    rate: float = 0.1,
    profile: Profile = smooth,
) -> Estimate:
    """The best of several searches by Adam; arguments as of `estimate`, with the steps of each start."""
    distance = distances(x, groups)
    found = [_search(start, steps, distance, y, rate, profile) for start, steps in starts]
    return min(found, key=lambda one: one.value)


def _search(start: Hyper, steps: int, distance: Tensor, y: Tensor, rate: float, profile: Profile) -> Estimate:
    packed = start.pack().to(y.device).clone()
    first, second = torch.zeros_like(packed), torch.zeros_like(packed)
    least, lowest = packed.clone(), torch.full((), torch.inf, dtype=FLOAT, device=y.device)
    for step in range(1, steps + 1):
        value, gradient = objective(packed, distance, y, profile)
        if bool(value < lowest):
            least, lowest = packed.clone(), value
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient.square()
        packed = packed - rate * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        packed = packed.clamp(-12.0, 8.0)
    return Estimate(Hyper.unpack(least), float(lowest))
