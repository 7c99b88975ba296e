"""A likelihood as a weighted least-squares problem: working targets and weights, and the scale of its noise.

−log p(y | f) ≤ ½ c (f − t)² + const with equality at the present f: minimising the right-hand side never raises the
left (majorisation). With c and t as weights and targets of the rows every visit to a block is such a step.

| likelihood | t | c | information | σ² of the system |
|---|---|---|---|---|
| Gaussian | y | 1 | 1 | its own, tempered |
| logistic, all functions at once | f + (y − p)/c, p = σ(f) | p(1 − p): Newton's step, no bound | p(1 − p) | 1 |
| logistic, by blocks | f + 4(y − p) | ¼ (Böhning & Lindsay 1988) | p(1 − p) | 1 |
| Laplace | y | 1/(b max(|y − f|, ε b)) (Lange & Sinsheimer 1993) | 1/b² | 1 |

Newton's c converges quadratically and bounds nothing, so that whoever takes the step has to see that the objective
falls. ¼ needs no such care, and its factors last; where p is near 0 or 1 it takes hundreds of sweeps. Covariances are
made of the Fisher information of a row on f, since a majoriser's curvature need not be near it: at the mode p(1
− p) gives Laplace's approximation, where ¼ gives a third of its standard deviation; the mean of the Laplace's c is
(log(1/ε) + 0.4)/b².
Shapes: R rows, T columns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Predictive
from streamgp.likelihoods.laplace import Laplace
from streamgp.likelihoods.logistic import Logistic
from streamgp.online.variance import OUTLIER
from streamgp.predictives.bernoulli import Bernoulli
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.laplace_noise import LaplaceNoise

RECENT = 2000.0
"""Rows after which the error of a forecast counts 1/e in the noise."""
ENOUGH = 200.0
"""Errors of forecasts that are needed before they count at all."""
TINY = 1e-9
"""Least noise, in units of the standardised target's variance."""
CLOSE = 1e-3
"""ε: a residual below this part of b counts as this much."""
FLAT = 1e-5
"""Least curvature of an outcome in a Newton step: beyond a logit of 11.5 rows have almost no information."""
ROUNDS = 20
"""Of leaving out outliers: each takes away all but 25 times their share of what is too much."""


class Sites(nn.Module, ABC):
    """The noise of T columns, and what a visit to a block works with.

    Attributes:
        moving: whether targets or weights depend on f.
        lasting: whether weights do not, so that factors of other visits stay good.
        newton: whether t and c are those of Newton's step.
        varies: whether the information depends on f.
        family: of what `predictive` returns.
    """

    moving: bool = False
    lasting: bool = True
    newton: bool = False
    varies: bool = False
    family: type[Predictive]

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.noise: Tensor
        self.excess: Tensor
        self.errors: Tensor
        self.offset: Tensor
        self.register_buffer("noise", torch.ones(columns, dtype=FLOAT))  # σ_t² or b_t of the rows learned
        self.register_buffer("excess", torch.zeros(columns, dtype=FLOAT))  # Σ of what forecasts missed
        self.register_buffer("errors", torch.zeros(columns, dtype=FLOAT))  # how many of them, after forgetting
        self.register_buffer("offset", torch.zeros(columns, dtype=FLOAT))  # the function where nothing is known

    def begin(self, noise: Tensor, y: Tensor) -> Tensor:
        """Start with a σ² by evidence, in squared standardised units; returns σ² of the system. y: (N, T)."""
        return torch.ones_like(noise)

    def refresh_noise(self, error: Tensor, weight: Tensor, least: float) -> None:
        """Noise from the residuals of the rows learned. error: (R, T) y − f, weight: (R, T), least: of the noise."""

    def update_noise(self, error: Tensor, latent: Tensor, left: float) -> None:
        """Noise from the errors of forecasts. error: (N, T), NaN = not observed; latent: (N, 1) or (N, T) variance;
        left: the part of earlier errors that is not forgotten."""

    def level(self) -> Tensor:
        """(T,) the noise that predictions have."""
        return self.noise

    def rescale(self, factor: Tensor) -> None:
        """Targets are standardised otherwise: a unit is now `factor` units, (T,)."""

    @abstractmethod
    def working(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """t and c at f; (R, T) both, NaN in t where y is."""

    @abstractmethod
    def information(self, f: Tensor) -> Tensor:
        """Fisher information of a row on f, E[(∂ log p(y | f)/∂f)²], in units of c; (T,), or (R, T) if f matters."""

    @abstractmethod
    def misfit(self, y: Tensor, f: Tensor, weight: Tensor) -> Tensor:
        """(T,) Σ −w log p(y | f)."""

    @abstractmethod
    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        """The distribution of y; mean: (N, T), without the offset; variance: (N, T)."""


def within(value: Tensor, weight: Tensor, most: float) -> Tensor:
    """(T,) the weighted mean of (R, T) values, where none counts as more than `most` times that mean.

    One glitch among thousands of rows would otherwise widen every band.

    Example:
        >>> value = torch.ones(1000, 1)
        >>> value[7] = 1e12
        >>> round(within(value, torch.ones(1000, 1), 25.0).item(), 3)
        1.025
    """
    total = weight.sum(0).clamp(min=1e-300)
    mean = (weight * value).sum(0) / total
    for _ in range(ROUNDS):
        if not bool((value > most * mean).any()):
            break
        lower = (weight * torch.minimum(value, most * mean)).sum(0) / total
        if bool((lower > 0.999 * mean).all()):
            break
        mean = lower
    return mean


def beyond(b: Tensor, spread: Tensor) -> Tensor:
    """E|e + g| − b for e ~ Laplace(b) and g ~ N(0, spread²): √(2/π) spread + b (erfcx(spread/√2b) − 1) ≥ 0.

    Example:
        >>> one = torch.ones(1)
        >>> round(beyond(one, one).item(), 3), round(beyond(one, 0.0 * one).item(), 3)
        (0.321, 0.0)
    """
    near: Tensor = torch.special.erfcx(spread / (math.sqrt(2.0) * b))
    return math.sqrt(2.0 / math.pi) * spread + b * (near - 1.0)


class GaussianSites(Sites):
    """σ_t² of each column: the mean square of what is left, or of what forecasts missed beyond their own variance."""

    family = Gaussian

    def __init__(self, columns: int, temper: float, apart: bool = False) -> None:
        super().__init__(columns)
        self.temper = temper
        self.system: Tensor
        shape = (columns,) if apart else ()
        self.register_buffer("system", torch.ones(shape, dtype=FLOAT))  # σ² that means are learned with

    def begin(self, noise: Tensor, y: Tensor) -> Tensor:
        self.noise.copy_(noise.expand_as(self.noise))
        return self.system.copy_(noise * self.temper)

    def working(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        return y, torch.ones_like(f)

    def information(self, f: Tensor) -> Tensor:
        return torch.ones_like(self.noise)

    def refresh_noise(self, error: Tensor, weight: Tensor, least: float) -> None:
        found = within(error.square(), weight, OUTLIER)
        if least and self.system.dim():  # that of each column, which is known to a factor of 2
            found, least = torch.maximum(found, 0.5 * self.system / self.temper), 0.0
        self.noise.copy_(found.clamp(min=max(least, TINY)))

    def update_noise(self, error: Tensor, latent: Tensor, left: float) -> None:
        seen = torch.isfinite(error)
        square = torch.where(seen, error, 0.0).square()
        most = OUTLIER * (self.level() + latent)
        surplus = torch.minimum(square, most) - latent * seen
        self.excess.mul_(left).add_(surplus.sum(0))
        self.errors.mul_(left).add_(seen.sum(0))

    def rescale(self, factor: Tensor) -> None:
        self.excess.mul_(factor.square())

    def level(self) -> Tensor:
        """(T,) σ_t²."""
        shown = (self.excess / self.errors.clamp(min=1.0)).clamp(min=TINY)
        return torch.where(self.errors >= ENOUGH, torch.maximum(self.noise, shown), self.noise)

    def misfit(self, y: Tensor, f: Tensor, weight: Tensor) -> Tensor:
        square = torch.nan_to_num(y - f).square() / self.system + torch.log(2.0 * torch.pi * self.system)
        return 0.5 * (weight * square).sum(0)

    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        return Gaussian(mean, variance, self.level())


class LaplaceSites(Sites):
    """b_t of each column: the mean distance of what is left, or of what forecasts missed beyond their own variance."""

    moving = True
    lasting = False
    family = LaplaceNoise

    def __init__(self, likelihood: Laplace) -> None:
        super().__init__(likelihood.columns)
        self.likelihood = likelihood

    def begin(self, noise: Tensor, y: Tensor) -> Tensor:
        self.noise.copy_((0.5 * noise).sqrt().expand_as(self.noise))
        return super().begin(noise, y)

    def working(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        b = self.level()
        far = torch.nan_to_num(y - f).abs()
        return y, 1.0 / (b * torch.maximum(far, CLOSE * b))

    def information(self, f: Tensor) -> Tensor:
        return self.level().square().reciprocal()

    def refresh_noise(self, error: Tensor, weight: Tensor, least: float) -> None:
        floor = (0.5 * max(least, TINY)) ** 0.5
        self.noise.copy_(within(error.abs(), weight, OUTLIER**0.5).clamp(min=floor))

    def update_noise(self, error: Tensor, latent: Tensor, left: float) -> None:
        seen = torch.isfinite(error)
        spread, b = latent.sqrt(), self.level()
        far = torch.minimum(torch.where(seen, error, 0.0).abs(), OUTLIER**0.5 * (2.0**0.5 * b + spread))
        before = self.excess * left
        self.errors.mul_(left).add_(seen.sum(0))
        for _ in range(ROUNDS):
            self.excess.copy_(before + ((far - beyond(b, spread)) * seen).sum(0))
            b = torch.maximum(self.noise, self.excess / self.errors.clamp(min=1.0))

    def rescale(self, factor: Tensor) -> None:
        self.excess.mul_(factor)

    def level(self) -> Tensor:
        """(T,) b_t."""
        shown = self.excess / self.errors.clamp(min=1.0)
        return torch.where(self.errors >= ENOUGH, torch.maximum(self.noise, shown), self.noise)

    def misfit(self, y: Tensor, f: Tensor, weight: Tensor) -> Tensor:
        b = self.level()
        far = torch.nan_to_num(y - f).abs() / b + torch.log(2.0 * b)
        return (weight * far).sum(0)

    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        return LaplaceNoise(mean, variance, self.level())


class LogisticSites(Sites):
    """Outcomes of 0 and 1; the offset is the log-odds of all of them.

    Args:
        newton: see `Sites`; the bound ¼ without.
    """

    moving = True
    varies = True
    family = Bernoulli

    def __init__(self, likelihood: Logistic, newton: bool) -> None:
        super().__init__(likelihood.columns)
        self.likelihood, self.newton, self.lasting = likelihood, newton, not newton

    def begin(self, noise: Tensor, y: Tensor) -> Tensor:
        self.offset.copy_(self.likelihood.origin(y))
        return super().begin(noise, y)

    def working(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.sigmoid(f + self.offset)
        curvature = (p * (1.0 - p)).clamp(min=FLAT) if self.newton else torch.full_like(f, 0.25)
        return f + (y - p) / curvature, curvature

    def information(self, f: Tensor) -> Tensor:
        p = torch.sigmoid(f + self.offset)
        return p * (1.0 - p)

    def misfit(self, y: Tensor, f: Tensor, weight: Tensor) -> Tensor:
        side = torch.where(y > 0.5, -1.0, 1.0)
        return (weight * nn.functional.softplus(side * (f + self.offset))).sum(0)

    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        return Bernoulli(mean + self.offset, variance)
