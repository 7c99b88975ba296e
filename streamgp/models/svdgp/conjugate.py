"""The posterior of an SVDGP in closed form: Gaussian likelihood, fixed kernel, a basis that grows.

With basis points Z, K = k(Z, Z) = CCᵀ and whitened features φ(x) = C⁻¹k(Z, x), the variational family of Cheng & Boots
2017 (eq. 8, α = β = Z) has its optimum where Bayesian linear regression f_t = φᵀw_t, w_t ~ N(0, I), has it
(`regression.additive`, with s = 1):

    A = I + G/σ²,  G = Σ φφᵀ,  w_t = A⁻¹ Σ φ y_t / σ²
    mean_t = φᵀw_t,  latent variance = k(x, x) − ‖φ‖² + φᵀA⁻¹φ

What stands here is the basis. A new basis point adds a row to C and leaves the old coordinates as they are: what was
learned before it came is kept as its projection on the old basis.

The coordinates are nested: the leading ones are those of the leading basis points. So the decoupled posterior, with
fewer functions in the covariance (M_β) than in the mean (M_α), reads its covariance off the leading block of the same
Cholesky factor.

With a linear part the kernel is k + σ²(1 + xᵀx'), whose features σ(x, 1) stand before those of the basis. Its prior
counts as one row: ridge regression on standardised columns, with what is not linear left to k.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.kernels.squared_exponential import correlation
from streamgp.linalg.cholesky import Factor, append, cholesky, solve, whiten, whiten_
from streamgp.linalg.levels import beside, each_column
from streamgp.linalg.saliency import salient
from streamgp.regression.additive import Regression
from streamgp.state import Value

JITTER = 1e-6
"""Relative jitter of K: whitening then amplifies rounding by 1e3 at most."""
NEAR = 1024
"""Rows whose features stay near the processor from the first product to the last."""
SETTLED = 1e-4
"""Part of the prior variance below which a row is as good as in the span of the basis."""


class Conjugate(Regression):
    """Statistics and posterior of T columns on at most M basis points, after E linear features.

    Args:
        width: W, columns of a row, standardised.
        columns: T.
        capacity: M on a stream; `begin` may be given more.
        linear: whether the kernel has its linear part.
        covariance: M_β, leading basis points that the covariance uses; None is all.
        apart: of `Regression`.

    Attributes:
        points: (m, W) basis points in use, divided by the lengthscales.
    """

    STATE = (*Regression.STATE, Value("jitter", float))

    def __init__(
        self,
        width: int,
        columns: int,
        capacity: int,
        linear: bool,
        covariance: int | None = None,
        apart: bool = False,
    ) -> None:
        self.explicit = width + 1 if linear else 0
        super().__init__(columns, self.explicit, capacity, apart)
        self.covariance = covariance
        self.jitter = JITTER
        self.points: Tensor
        self.lower: Tensor
        self.outputscale: Tensor
        self.inverse: Tensor
        for name, value in {
            "points": torch.zeros(0, width, dtype=FLOAT),
            "lower": torch.zeros(0, 0, dtype=FLOAT),  # C
            "outputscale": torch.ones((), dtype=FLOAT),  # ρ²
            "inverse": torch.ones(width, dtype=FLOAT),  # 1/lengthscales
        }.items():
            self.register_buffer(name, value)

    def begin(self, rows: Tensor, inverse: Tensor, outputscale: Tensor, noise: Tensor) -> None:
        """Forget everything, and start with `rows` (m, W) as basis, under new hyper-parameters.

        Args:
            rows: (m, W)
            inverse: (W,) what columns are multiplied by before the kernel.
            outputscale: () ρ².
            noise: σ² of the updates, as of `Regression`.
        """
        self.inverse, self.outputscale = inverse, outputscale
        points = self.points = rows * inverse
        factor = cholesky(outputscale * correlation(points, points), first=JITTER)
        self.lower, self.jitter = factor.lower, factor.jitter
        self.empty(self.explicit + len(points), noise)

    def holding(self) -> Callable[[], None]:
        """See `Regression.holding`."""
        held, jitter = super().holding(), self.jitter

        def put_back() -> None:
            held()
            self.jitter = jitter

        return put_back

    def features(self, x: Tensor) -> Tensor:
        """(N, W) -> φ (N, E + m)."""
        smooth = self._smooth(x * self.inverse)
        if not self.explicit:
            return smooth
        scale = self.slopes.sqrt()
        return torch.cat((scale * x, scale.expand(len(x), 1), smooth), 1)

    def spanned(self, x: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Of many rows, which are looked at `NEAR` at a time: (N, columns) φ and then zeros, and `unexplained`."""
        first, last, scale = self.explicit, self.explicit + len(self.points), self.slopes.sqrt()
        found, gap = x.new_empty(len(x), columns), x.new_empty(len(x))
        for some, phi, missed in zip(x.split(NEAR), found.split(NEAR), gap.split(NEAR), strict=True):
            if first:
                torch.mul(some, scale, out=phi[:, : first - 1])
                phi[:, first - 1] = scale
            phi[:, first:last] = smooth = self._smooth(some * self.inverse)
            phi[:, last:] = 0.0
            torch.sub(self.outputscale, smooth.square_().sum(1), out=missed)
        return found, gap.clamp_(min=0.0)

    def _smooth(self, x: Tensor) -> Tensor:
        """(N, m) C⁻¹k(Z, x) of rows divided by the lengthscales; they lie row by row, as the solver wants them."""
        near = x @ self.points.T  # as `correlation`
        near.sub_(0.5 * self.points.square().sum(1)).sub_(0.5 * x.square().sum(1, keepdim=True))
        return whiten_(self.lower, near.exp_().mul_(self.outputscale).T).T

    @property
    def slopes(self) -> Tensor:
        """() prior variance of the linear part's coefficients: σ², the largest of several."""
        return self.noise.max()

    def unexplained(self, phi: Tensor) -> Tensor:
        """(N, E + m) -> (N,): ρ² − ‖φ‖², the prior variance that the basis does not reach."""
        return (self.outputscale - phi[:, self.explicit :].square().sum(1)).clamp(min=0.0)

    def variance(self, phi: Tensor) -> Tensor:
        """(N, E + m) -> (N, 1), or (N, T) of columns with a noise each: the latent variance."""
        size = phi.shape[1]
        if self.covariance is not None:
            size = min(size, self.explicit + self.covariance)
        leading = phi[:, :size]
        missed = self.unexplained(leading)
        known = [whiten(root[:size, :size], leading.T).square().sum(0) for _, _, root in self.parts()]
        return beside(self.noise, [missed + part for part in known])

    def joint(self, x: Tensor) -> Tensor:
        """(N, W) -> (1, N, N), or (T, N, N) of columns with a noise each: covariance of the function at these rows,
        whose diagonals are `variance`."""
        phi = self.features(x)
        size = phi.shape[1] if self.covariance is None else min(phi.shape[1], self.explicit + self.covariance)
        leading, at = phi[:, :size], x * self.inverse
        smooth = leading[:, self.explicit :]
        missed = self.outputscale * correlation(at, at) - smooth @ smooth.T
        halves = [whiten(root[:size, :size], leading.T) for _, _, root in self.parts()]
        return each_column(self.noise, [missed + half.T @ half for half in halves])

    def unbias(self) -> None:
        """Count the parameters that rows were fitted with in σ_t²: Σ (y_t − φᵀw_t)²/(n − tr G A⁻¹/σ²).

        The trace is the effective degrees of freedom, E + m − tr A⁻¹. O(M³), until the next `solve`.
        """
        free = self.weight - self.determined()
        self.residual = self.residual * (self.weight / free.clamp(min=1.0)).clamp(min=1.0)

    def left_out(self, phi: Tensor, y: Tensor) -> Tensor:
        """(N, T) squared errors over their variances of rows of weight 1, as if they had not been learned, at once.

        With R = I − ΦA⁻¹Φᵀ/σ² the errors are R⁻¹(y − Φw), and σ²R⁻¹ is the covariance of function and noise.

        Args:
            phi: (N, E + m) of rows that were learned.
            y: (N, T), NaN = not observed.

        Raises:
            NotPositiveDefinite: R is not.
        """
        identity, left = torch.eye(len(phi), dtype=FLOAT, device=phi.device), torch.nan_to_num(y - self.mean(phi))
        missed, squares = self.unexplained(phi), torch.zeros_like(left)
        for noise, columns, factor in self.parts():
            half = whiten(factor, phi.T) / noise.sqrt()
            root = cholesky(identity - half.T @ half, first=0.0).lower
            latent = noise * (whiten(root, identity).square().sum(0) - 1.0) + missed
            errors = solve(root, left[:, columns])
            squares[:, columns] = errors.square() / (latent[:, None] + self.residual[columns])
        return torch.where(y.isnan(), y, squares)

    def grow(self, x: Tensor, phi: Tensor, rows: int) -> Tensor:
        """Make basis points of the rows that the basis explains least, at most `rows`; returns their new φ.

        Rows that the basis explains but for a part of `SETTLED` are left out, and where the rest depend on each other
        none is taken.
        """
        gap = self.unexplained(phi)
        chosen = torch.argsort(gap, descending=True, stable=True)[:rows]
        chosen = chosen[gap[chosen] > SETTLED * self.outputscale]
        if not len(chosen):
            return phi
        scaled = x * self.inverse
        points = scaled[chosen]
        cross = self.outputscale * correlation(self.points, points)
        corner = self.outputscale * correlation(points, points)
        try:
            factor = append(Factor(self.lower, self.jitter), cross, corner)
        except NotPositiveDefinite:
            return phi
        old, new = self.lower.shape[0], len(points)
        tail = factor.lower[old:]
        fresh = self.outputscale * correlation(points, scaled) - tail[:, :old] @ phi[:, self.explicit :].T
        self.points = torch.cat((self.points, points))
        self.lower, self.jitter = factor.lower, factor.jitter
        self.outer = torch.nn.functional.pad(self.outer, (0, new, 0, new))
        self.moment = torch.nn.functional.pad(self.moment, (0, 0, 0, new))
        self.coefficients = torch.nn.functional.pad(self.coefficients, (0, 0, 0, new))
        return torch.cat((phi, whiten(tail[:, old:], fresh).T), 1)

    def shrink(self, points: int) -> None:
        """Give up the `points` basis points that the means need least, and carry the statistics over.

        They are the least `salient`. The remaining basis sees the old one through P = C⁻¹k(Z, Z')C'⁻ᵀ: G' = PᵀGP,
        b' = Pᵀb.
        """
        e = self.explicit
        kept = salient(self.lower, self.coefficients[e:], len(self.points) - points)
        remaining = self.points[kept]
        factor = cholesky(self.outputscale * correlation(remaining, remaining), first=JITTER)
        cross = self.outputscale * correlation(self.points, remaining)
        carry = whiten(factor.lower, whiten(self.lower, cross).T).T  # (m, m')
        carry = torch.block_diag(torch.eye(e, dtype=FLOAT, device=carry.device), carry)
        self.points, self.lower, self.jitter = remaining, factor.lower, factor.jitter
        self.outer, self.moment = carry.T @ self._whole() @ carry, carry.T @ self.moment
        self.solve()

    def _whole(self) -> Tensor:
        """G, with what lies above the diagonal blocks."""
        return self.outer.tril() + self.outer.tril(-1).T

    def move(
        self, rows: Tensor, size: int, inverse: Tensor, outputscale: Tensor, noise: Tensor, generator: Generator
    ) -> tuple[int, int, float]:
        """New hyper-parameters and a new basis under which the posterior is carried through (`papers.svdgp.transfer`).

        With P of there the new sums are PᵀGP and Pᵀb: all rows, old and new, have the noise of now. The weights of the
        linear part, whose features have the factor σ, are carried as they are.

        Departure: the paper keeps D_a, and with it the old noise. D_a is a multiple of σ² here, so that the new one is
        known too; and where a stream drifts the noise grows with it, so that older rows would count more than new ones.

        Args:
            rows: (N, W) that may become basis points.
            size: basis points from now on, at most.
            inverse, outputscale, noise: of `begin`.
            generator: of the draw of new points.

        Returns:
            how many points stay, how many are new, and the nats that the bound loses by the move.
        """
        from streamgp.papers.svdgp.transfer import CANDIDATES, FRESH, Carried, fresh, sharing

        e, old, columns = self.explicit, self.points / self.inverse, self.moment.shape[1]
        unit = noise.max()  # what is carried is a multiple of it
        carried = Carried(self.lower, self._whole() / unit, self.moment / unit)
        straight, square, weight = (unit / self.slopes).sqrt(), self.square, self.weight
        stay = min(len(old), size - int(FRESH * size))
        kept = salient(self.lower, self.coefficients[e:], stay)
        some = rows[torch.randperm(len(rows), generator=generator)[: CANDIDATES * (size - stay)].to(rows.device)]
        self.begin(old[kept], inverse, outputscale, noise)
        gap = self.unexplained(self.features(some))
        new = some[fresh(gap, float(outputscale), size - stay, generator)]
        self.begin(torch.cat((old[kept], new)), inverse, outputscale, noise)
        points = old * inverse
        across = sharing(outputscale * correlation(points, self.points), kept, self.jitter)
        own = outputscale * correlation(points, points)
        own.diagonal().add_(self.jitter)
        seen = carried.seen(across, self.lower)
        smooth = carried._replace(precision=carried.precision[e:, e:])
        lost = 0.5 * columns * float(smooth.missed(own, seen))
        seen = torch.block_diag(straight * torch.eye(e, dtype=FLOAT, device=seen.device), seen)
        self.outer, self.moment = unit * (seen.T @ carried.precision @ seen), unit * (seen.T @ carried.pull)
        self.square, self.weight = square, weight
        self.solve()
        return stay, len(new), lost

    @property
    def used(self) -> int:
        return len(self.points)

    def shapes(self, used: int) -> dict[str, tuple[int, ...]]:
        width = self.points.shape[1]
        own = {"points": (used, width), "lower": (used, used), "outputscale": (), "inverse": (width,)}
        return super().shapes(self.explicit + used) | own
