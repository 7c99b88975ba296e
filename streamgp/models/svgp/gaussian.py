"""q of an SVGP under Gaussian noise: the best one, by sums over rows, with every column's own noise.

For given features φ the best q(v_t) has S_t⁻¹ = I + G/σ_t² and S_t⁻¹m_t = c_t/σ_t² with G = Σ wφφᵀ and c = Σ wφyᵀ
(Titsias 2009), and the bound that it reaches is

    F_t = −½ [n log 2πσ_t² + log |I + G/σ_t²| + (q_t − c_tᵀ(G + σ_t²I)⁻¹c_t + s)/σ_t²]

with q_t = Σ wy_t², n = Σ w and s = Σ w (k(x, x) − ‖φ‖²). All are sums over rows: learning a batch of a stream is exact,
and forgetting scales them. One eigendecomposition G = UΛUᵀ, O(M³), serves all columns: with their own σ_t² they differ
in the M factors 1/(λ + σ_t²) alone, so that T covariances cost no more than one, and F_t as a function of σ_t² costs
O(M), so that every column's noise is where its bound is largest.

That noise includes what the inducing inputs cannot express, which the latent variance includes too. So
predictions have the mean squared residual less the mean latent variance of the rows learned, r_t² − (s + tr S_tG)/n,
and at least a tenth of r_t².

In training, where θ and Z move, all columns share one σ², and S.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.models.svgp.head import BatchTerms, Part, Parts, VariationalHead
from streamgp.objectives.sparse import Belief
from streamgp.predictives.gaussian import Gaussian
from streamgp.regression.additive import filled
from streamgp.training.natural_gradient import Natural, weighted_gram

LEAST, MOST = 1e-6, 4.0
"""Of σ², in units of the standardised target's variance."""
GRID, ROUNDS = 24, 30
"""Places that the noise is looked for at first, and sections of the best interval."""
LEFT = 0.1
"""Of the mean squared residual, that is noise at least."""
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class Spectrum:
    """F_t as a function of σ_t², for T columns at once.

    Args:
        values: (M,) λ.
        moment: (M, T) Uᵀc.
        square: (T,) q.
        weight: () n.
        slack: () s.
    """

    def __init__(self, values: Tensor, moment: Tensor, square: Tensor, weight: Tensor, slack: Tensor) -> None:
        self.values, self.squares = values[:, None], moment.square()
        self.square, self.weight, self.slack = square, weight, slack

    def bound(self, noise: Tensor) -> Tensor:
        """(T,) σ² -> (T,) F."""
        fit = self.square - (self.squares / (self.values + noise)).sum(0) + self.slack
        spread = torch.log1p(self.values / noise).sum(0)
        return -0.5 * (self.weight * torch.log(2.0 * math.pi * noise) + spread + fit / noise)

    def best(self) -> Tensor:
        """(T,) the σ² with the largest F: a grid, then golden sections, of log σ²."""
        grid = torch.linspace(math.log(LEAST), math.log(MOST), GRID, dtype=FLOAT, device=self.square.device)
        values = torch.stack([self.bound(place.exp().expand_as(self.square)) for place in grid])
        top = values.argmax(0)
        low, high = grid[(top - 1).clamp(min=0)], grid[(top + 1).clamp(max=GRID - 1)]
        for _ in range(ROUNDS):
            reach = GOLDEN * (high - low)
            left, right = high - reach, low + reach
            better = self.bound(left.exp()) > self.bound(right.exp())
            low, high = torch.where(better, low, left), torch.where(better, right, high)
        return (0.5 * (low + high)).exp()


class GaussianHead(VariationalHead):
    """See the module.

    Args:
        points: M.
        columns: T.

    Attributes:
        log_noise: () log σ² of training.
        noise: (T,) σ_t².
        served: (T,) the noise of predictions.
        square, mass, slack: q, n and s.
        vectors: (M, M) U.
        shrink: (M, T) 1/(1 + λ/σ_t²) − 1.
        coefficients: (M, T) m.

    Example:
        >>> head = GaussianHead(points=1, columns=1)
        >>> one = torch.ones(50, 1, dtype=FLOAT)
        >>> y = torch.where(torch.arange(50)[:, None] % 2 == 0, 1.5, 0.5).double()
        >>> head.absorb(Part(one, one[:, 0], y, one[:, 0]), kept=1.0)
        >>> round(head.coefficients.item(), 2), round(head.noise.item(), 2)
        (0.99, 0.26)
    """

    family = Gaussian

    def __init__(self, points: int, columns: int) -> None:
        super().__init__()
        self.natural = Natural(points, columns, shared=True)
        self.log_noise = nn.Parameter(torch.zeros((), dtype=FLOAT))
        self.noise: Tensor
        self.served: Tensor
        self.square: Tensor
        self.mass: Tensor
        self.slack: Tensor
        self.vectors: Tensor
        self.values: Tensor
        self.shrink: Tensor
        self.coefficients: Tensor
        for name, value in {
            "noise": torch.ones(columns, dtype=FLOAT),
            "served": torch.ones(columns, dtype=FLOAT),
            "square": torch.zeros(columns, dtype=FLOAT),
            "mass": torch.zeros((), dtype=FLOAT),
            "slack": torch.zeros((), dtype=FLOAT),
            "vectors": torch.eye(points, dtype=FLOAT),
            "values": torch.zeros(points, dtype=FLOAT),
            "shrink": torch.zeros(points, columns, dtype=FLOAT),
            "coefficients": torch.zeros(points, columns, dtype=FLOAT),
        }.items():
            self.register_buffer(name, value)

    @property
    def weight(self) -> Tensor:
        return self.mass

    def start(self, y: Tensor, noise: Tensor) -> None:
        with torch.no_grad():
            self.log_noise.copy_(noise.log())
            self.noise.copy_(noise.expand_as(self.noise))
            self.served.copy_(self.noise)

    def clear(self) -> None:
        self.zero()
        for buffer in (self.values, self.shrink, self.coefficients):
            buffer.zero_()

    def belief(self) -> Belief:
        """q of one σ² for all columns."""
        return self.natural.belief((-self.log_noise.detach()).exp())

    def terms(self, part: Part, belief: Belief) -> BatchTerms:
        noise, columns = self.log_noise.detach().exp(), part.y.shape[1]
        mean, variance = belief.moments(part.phi, part.prior)
        y, weight = filled(part.y, part.weight, torch.isfinite(part.y), lambda: mean)
        error = y - mean
        slope = weight[:, None] * error / noise
        curve = -0.5 * columns * weight / noise
        outer = weighted_gram(part.phi, weight)[None]
        misfit = (weight * (error.square().sum(1) + columns * variance[:, 0])).sum() / noise
        count = columns * weight.sum()
        value = -0.5 * (count * torch.log(2.0 * math.pi * noise) + misfit)
        moment = part.phi.T @ (weight[:, None] * y).to(part.phi.dtype)
        return BatchTerms(
            value,
            slope,
            curve[:, None],
            outer * (-0.5 * columns / noise),
            outer,
            moment,
            {"log_noise": 0.5 * (misfit - count)},
        )

    def sums(self) -> tuple[Tensor, ...]:
        """See `streamgp.online.summing.Additive`."""
        return tuple(part.clone() for part in self._sums())

    def put(self, sums: tuple[Tensor, ...]) -> None:
        for own, part in zip(self._sums(), sums, strict=True):
            own.copy_(part)

    def zero(self) -> None:
        for part in self._sums():
            part.zero_()

    def _sums(self) -> tuple[Tensor, ...]:
        return self.natural.precision, self.natural.moment, self.square, self.mass, self.slack

    def learn(self, parts: Parts, sweeps: int) -> None:
        """One sweep is exact."""
        self.zero()
        for part in parts():
            self.add(part)
        self.settle()

    def settle(self) -> None:
        """q of the sums, and the noise that columns share in training."""
        self.solve()
        if len(self.noise) == 1:
            with torch.no_grad():
                self.log_noise.copy_(self.noise[0].log())
            return
        common = Spectrum(
            self.values,
            (self.vectors.T @ self.natural.moment).square().mean(1, keepdim=True).sqrt(),
            self.square.mean()[None],
            self.mass,
            self.slack,
        )
        with torch.no_grad():
            self.log_noise.copy_(common.best()[0].log())

    def absorb(self, part: Part, kept: float) -> None:
        self.add(part, kept)
        self.solve()

    @torch.no_grad()
    def add(self, part: Part, kept: float = 1.0) -> None:
        """Rows into the sums, after scaling these by `kept`."""
        seen = torch.isfinite(part.y)
        y, weight = filled(part.y, part.weight, seen, lambda: part.phi @ self.coefficients)
        self.natural.step(
            weighted_gram(part.phi, weight)[None], part.phi.T @ (weight[:, None] * y), rate=1.0, kept=kept
        )
        self.square.mul_(kept).add_((weight[:, None] * y.square()).sum(0))
        self.mass.mul_(kept).add_(weight.sum())
        rest = (part.prior - part.phi.square().sum(1)).clamp(min=0.0)
        self.slack.mul_(kept).add_((weight * rest).sum())

    @torch.no_grad()
    def solve(self) -> None:
        """q and the noise of every column from the sums; O(m³) where rows say something of the leading m functions.

        Raises:
            NotPositiveDefinite: the sums are not finite.
        """
        if not bool(torch.isfinite(self.natural.precision.sum() + self.square.sum() + self.slack)):
            raise NotPositiveDefinite(
                "the sums over the rows learned are not finite", hint="look for infinite or huge values in the rows"
            )
        m = self.natural.used
        values, vectors = torch.linalg.eigh(self.natural.precision[0, :m, :m])
        self.values.zero_()[:m] = values.clamp(min=0.0)
        torch.nn.init.eye_(self.vectors)[:m, :m] = vectors
        moment = self.vectors.T @ self.natural.moment
        spectrum = Spectrum(self.values, moment, self.square, self.mass, self.slack)
        self.noise.copy_(spectrum.best())
        total = self.values[:, None] + self.noise
        self.shrink.copy_(self.noise / total - 1.0)
        self.coefficients.copy_(self.vectors @ (moment / total))
        self.served.copy_(self._left(moment / total, moment))

    def _left(self, mean: Tensor, moment: Tensor) -> Tensor:
        """(T,) the noise of residuals. mean, moment: (M, T) Uᵀm, Uᵀc."""
        mass, values = self.mass.clamp(min=1e-12), self.values[:, None]
        residual = (self.square - (mean * (2.0 * moment - values * mean)).sum(0)) / mass
        latent = (self.slack + (values * (1.0 + self.shrink)).sum(0)) / mass
        return torch.maximum(residual - latent, LEFT * residual).clamp(min=LEAST)

    def moments(self, phi: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        variance = prior[:, None] + (phi @ self.vectors).square() @ self.shrink
        return phi @ self.coefficients, variance.clamp(min=1e-12)

    def predictive(self, mean: Tensor, variance: Tensor) -> Gaussian:
        return Gaussian(mean, variance, self.served)

    def loss(self) -> float:
        moment = self.vectors.T @ self.natural.moment
        spectrum = Spectrum(self.values, moment, self.square, self.mass, self.slack)
        return float(-spectrum.bound(self.noise).mean() / self.mass.clamp(min=1e-12))
