"""q of an SVGP under any other likelihood: every row is replaced by a Gaussian site, which depends on q.

The sites of the columns differ, so that each has its own S_t: T covariances, O(T (b M² + M³)) a step.

On a stream new rows are learned once, with the posterior so far as the prior (streaming variational Bayes, Broderick et
al. 2013): the natural parameters of the old rows are fixed, and those of the new rows are brought to their fixed point
by some damped natural-gradient steps. Then they are added to the old ones, and forgetting scales all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from streamgp.base import FLOAT, Predictive
from streamgp.likelihoods import Likelihood
from streamgp.models.svgp.head import BatchTerms, Part, Parts, VariationalHead
from streamgp.objectives.sparse import Belief
from streamgp.training.natural_gradient import Natural, Site, sites, weighted_gram

ROUNDS, SETTLED = 4, 1e-3
"""Natural-gradient steps on the new rows of a stream at most; the last is one that moves b by less than this part."""
DAMPING = 0.7
"""Size of all but the first: a full step may overshoot where the curvature of log p moves with q."""
SHORTER, LONGER = 0.3, 2.0
"""Factors on it after a step that lowered the ELBO, and after one that did not."""
LOOKED = 4096
"""Rows at most that the noise's scale is set by."""


class SitesHead(VariationalHead):
    """See the module.

    Args:
        points: M.
        likelihood: of T columns.

    Attributes:
        offset: (T,) of the function, where targets have no units.
        coefficients: (M, T) m.
        excess: (T, M, M) S − I, made of `natural` whenever it changes.

    Example:
        >>> from streamgp.likelihoods import logistic
        >>> head = SitesHead(points=1, likelihood=logistic.build(logistic.Config(), 1))
        >>> one = torch.ones(400, 1, dtype=FLOAT)
        >>> y = (torch.arange(400)[:, None] % 4 > 0).double()
        >>> head.absorb(Part(2.0 * one, 4.0 * one[:, 0], y, one[:, 0]), kept=1.0)
        >>> mean, _ = head.moments(2.0 * one[:1], 4.0 * one[:1, 0])
        >>> bool((mean.sigmoid() - 0.75).abs() < 0.01)
        True
    """

    def __init__(self, points: int, likelihood: Likelihood) -> None:
        super().__init__()
        columns = likelihood.columns
        self.likelihood, self.family = likelihood, likelihood.family
        self.natural = Natural(points, columns, shared=False)
        self.offset: Tensor
        self.mass: Tensor
        self.recent: Tensor
        self.coefficients: Tensor
        self.excess: Tensor
        self.register_buffer("offset", torch.zeros(columns, dtype=FLOAT))
        self.register_buffer("mass", torch.zeros((), dtype=FLOAT))
        self.register_buffer("recent", torch.zeros((), dtype=FLOAT))  # Σ E log p a row of what was learned last
        self.register_buffer("coefficients", torch.zeros(points, columns, dtype=FLOAT))
        self.register_buffer("excess", torch.zeros(columns, points, points, dtype=FLOAT), persistent=False)

    @property
    def weight(self) -> Tensor:
        return self.mass

    def start(self, y: Tensor, noise: Tensor) -> None:
        if not self.likelihood.units:
            self.offset.copy_(self.likelihood.origin(y))
        self.likelihood.start(torch.ones_like(self.offset))

    def clear(self) -> None:
        for buffer in self.buffers():
            if buffer is not self.offset:
                buffer.zero_()

    def belief(self) -> Belief:
        return self.natural.belief()

    def terms(self, part: Part, belief: Belief) -> BatchTerms:
        site = self._sites(part, belief)
        outer, moment = _sums(part.phi, site)
        bent = -0.5 * outer
        if bool((site.curve > 0).any()):
            bent = torch.stack([weighted_gram(part.phi, column) for column in site.curve.T])
        own = {f"likelihood.{name}": slope for name, slope in site.own.items()}
        return BatchTerms(site.value, site.slope, site.curve, bent, outer, moment, own)

    def learn(self, parts: Parts, sweeps: int, held: Sequence[Site] = ()) -> None:
        """A natural-gradient step on all rows a sweep; the first is whole where nothing was known. One after which the
        ELBO is lower is taken back, and tried again at part of its size; the last sweep only looks. held: of `hold`,
        before the functions changed: q begins at what these sites are now, where that is better."""
        known, best, rate, last = bool(self.mass > 0), -math.inf, DAMPING, sweeps + bool(held)
        kept = target = self._natural()
        for sweep in range(last + 1):
            belief, found = self.natural.belief(), [torch.zeros_like(part) for part in kept]
            value, mass = torch.zeros_like(self.mass), torch.zeros_like(self.mass)
            for part in parts():
                site = self._sites(part, belief)
                for total, more in zip(found, _sums(part.phi, site), strict=True):
                    total += more
                value, mass = value + site.value, mass + part.weight.sum()
            if (bound := float(value - belief.divergence())) >= best:
                kept, target, best, rate = self._natural(), found, bound, min(LONGER * rate, DAMPING)
                self.mass.copy_(mass)
                self.recent.copy_(value / mass.clamp(min=1e-12))
            else:
                rate *= SHORTER
            if held and not sweep:
                again = [_sums(part.phi, site) for part, site in zip(parts(), held, strict=True)]
                self._set(*(torch.stack(column).sum(0) for column in zip(*again, strict=True)))
                continue
            step = 0.0 if sweep == last else rate if sweep or known else 1.0
            self._set(*(torch.lerp(old, new, step) for old, new in zip(kept, target, strict=True)))
        self.solve()

    @torch.no_grad()
    def hold(self, parts: Parts) -> list[Site]:
        """What the rows say at the q of now, a part each."""
        belief = self.natural.belief()
        return [self._sites(part, belief) for part in parts()]

    @torch.no_grad()
    def fit_noise(self, parts: Parts) -> None:
        """Set the noise's scale by some of the rows, at the q of now."""
        belief, rows = self.natural.belief(), list[tuple[Tensor, ...]]()
        for part in parts():
            mean, variance = belief.moments(part.phi, part.prior)
            rows.append((part.y, mean + self.offset, variance, part.weight))
        y, mean, variance, weight = (torch.cat(column) for column in zip(*rows, strict=True))
        some = torch.linspace(0, len(y) - 1, min(LOOKED, len(y)), device=y.device).round().long()
        self.likelihood.fit(y[some], mean[some], variance[some], weight[some])

    def absorb(self, part: Part, kept: float) -> None:
        with torch.no_grad():
            old = (kept * self.natural.precision, kept * self.natural.moment)
            new = (torch.zeros_like(old[0]), torch.zeros_like(old[1]))
            for step in range(ROUNDS):
                self._set(old[0] + new[0], old[1] + new[1])
                site = self._sites(part, self.natural.belief())
                rate = 1.0 if not step else DAMPING
                outer, moment = _sums(part.phi, site)
                moved = rate * (moment - new[1]).abs().max()
                new = (torch.lerp(new[0], outer, rate), torch.lerp(new[1], moment, rate))
                if moved <= SETTLED * new[1].abs().max():
                    break
            self._set(old[0] + new[0], old[1] + new[1])
            self.mass.mul_(kept).add_(part.weight.sum())
            self.recent.copy_(site.value / part.weight.sum().clamp(min=1e-12))
            self.solve()

    def _natural(self) -> list[Tensor]:
        return [self.natural.precision.clone(), self.natural.moment.clone()]

    def _set(self, precision: Tensor, moment: Tensor) -> None:
        self.natural.precision.copy_(precision)
        self.natural.moment.copy_(moment)

    def _sites(self, part: Part, belief: Belief) -> Site:
        mean, variance = belief.moments(part.phi, part.prior)
        site = sites(self.likelihood, part.y, mean + self.offset, variance, part.weight)
        return site._replace(pull=site.slope + site.precision * mean)  # of the function without its offset

    @torch.no_grad()
    def solve(self) -> None:
        """q from the natural parameters; O(T M³)."""
        belief = self.natural.belief()
        self.coefficients.copy_(belief.mean)
        self.excess.copy_(belief.excess)

    def moments(self, phi: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        reduced = torch.stack([((phi @ excess) * phi).sum(1) for excess in self.excess], 1)
        return phi @ self.coefficients + self.offset, (prior[:, None] + reduced).clamp(min=1e-12)

    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        with torch.no_grad():
            return self.likelihood.predictive(mean, variance)

    def loss(self) -> float:
        total = self.mass.clamp(min=1e-12)
        columns = self.coefficients.shape[1]
        return float((self.natural.belief().divergence() / total - self.recent) / columns)


def _sums(phi: Tensor, site: Site) -> tuple[Tensor, Tensor]:
    """(T, M, M) Σ w λ φφᵀ, (M, T) Σ w (g + λf̂) φ."""
    outer = torch.stack([weighted_gram(phi, column) for column in site.precision.T])
    return outer, phi.T @ site.pull.to(phi.dtype)
