"""The posterior of an SVDGP in closed form: Gaussian likelihood, fixed kernel, a basis that grows.

With basis points Z, K = k(Z, Z) = CCᵀ and whitened features φ(x) = C⁻¹k(Z, x), the variational family of Cheng & Boots
2017 (eq. 8, α = β = Z) has its optimum where Bayesian linear regression f_t = φᵀw_t, w_t ~ N(0, I) has it:

    A = I + S/σ²,  S = Σ φφᵀ,  w_t = A⁻¹ Σ φ y_t / σ²
    mean_t = φᵀw_t,  latent variance = k(x, x) − ‖φ‖² + φᵀA⁻¹φ

S and Σφyᵀ are sums, so that learning a batch is exact, one Cholesky of A serves all T columns, forgetting scales the
sums and leaves the prior alone, and a new basis point adds a row to C and leaves the old coordinates as they are: what
was learned before it came is kept as its projection on the old basis.

The coordinates are nested: the leading ones are those of the leading basis points. So the decoupled posterior, with
fewer functions in the covariance (M_β) than in the mean (M_α), reads its covariance off the leading block of the same
Cholesky factor.

With a linear part the kernel is k + σ²(1 + xᵀx'), whose features σ(x, 1) stand before those of the basis. Its prior
counts as one row: ridge regression on standardised columns, with what is not linear left to k.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Json
from streamgp.errors import NotPositiveDefinite
from streamgp.kernels.squared_exponential import correlation
from streamgp.linalg.cholesky import Factor, append, cholesky, solve, whiten
from streamgp.linalg.saliency import salient

JITTER = 1e-6
"""Relative jitter of K: whitening then amplifies rounding by 1e3 at most."""
SETTLED = 1e-4
"""Part of the prior variance below which a row is as good as in the span of the basis."""
BLOCK = 128
"""S is summed in block rows of this height, up to the diagonal."""


class Conjugate(nn.Module):
    """Statistics and posterior of T columns on at most M basis points.

    Args:
        width: W, columns of a row, standardised.
        columns: T.
        capacity: M on a stream; `begin` may be given more.
        linear: whether the kernel has its linear part.
        covariance: M_β, leading basis points that the covariance uses; None is all.

    Attributes:
        points: (m, W) basis points in use, divided by the lengthscales.
        weight: () Σ of the weights of the rows learned, after forgetting.
    """

    def __init__(self, width: int, columns: int, capacity: int, linear: bool, covariance: int | None = None) -> None:
        super().__init__()
        self.capacity = capacity
        self.explicit = width + 1 if linear else 0
        self.covariance = covariance
        self.jitter = JITTER
        e = self.explicit
        self.points: Tensor
        self.lower: Tensor
        self.outer: Tensor
        self.moment: Tensor
        self.square: Tensor
        self.weight: Tensor
        self.outputscale: Tensor
        self.inverse: Tensor
        self.noise: Tensor
        self.root: Tensor
        self.coefficients: Tensor
        self.residual: Tensor
        for name, value in {
            "points": torch.zeros(0, width, dtype=FLOAT),
            "lower": torch.zeros(0, 0, dtype=FLOAT),  # C
            "outer": torch.zeros(e, e, dtype=FLOAT),  # S; nothing is kept above the diagonal blocks
            "moment": torch.zeros(e, columns, dtype=FLOAT),  # Σ φ yᵀ
            "square": torch.zeros(columns, dtype=FLOAT),  # Σ y²
            "weight": torch.zeros((), dtype=FLOAT),
            "outputscale": torch.ones((), dtype=FLOAT),  # ρ²
            "inverse": torch.ones(width, dtype=FLOAT),  # 1/lengthscales
            "noise": torch.ones((), dtype=FLOAT),  # σ² of the updates, tempered
            "root": torch.eye(e, dtype=FLOAT),  # chol A
            "coefficients": torch.zeros(e, columns, dtype=FLOAT),  # w
            "residual": torch.ones(columns, dtype=FLOAT),  # σ_t² of the predictions
        }.items():
            self.register_buffer(name, value)

    def begin(self, rows: Tensor, inverse: Tensor, outputscale: Tensor, noise: Tensor) -> None:
        """Forget everything, and start with `rows` (m, W) as basis, under new hyper-parameters.

        Args:
            rows: (m, W)
            inverse: (W,) what columns are multiplied by before the kernel.
            outputscale: () ρ².
            noise: () σ² of the updates.
        """
        self.inverse, self.outputscale, self.noise = inverse, outputscale, noise
        points = self.points = rows * inverse
        factor = cholesky(outputscale * correlation(points, points), first=JITTER)
        self.lower, self.jitter = factor.lower, factor.jitter
        size, columns = self.explicit + len(points), self.moment.shape[1]
        self.outer = points.new_zeros(size, size)
        self.moment = points.new_zeros(size, columns)
        self.square, self.weight = points.new_zeros(columns), points.new_zeros(())
        self.root = torch.eye(size, dtype=FLOAT, device=points.device)
        self.coefficients = points.new_zeros(size, columns)
        self.residual = noise.expand(columns).clone()

    def holding(self) -> Callable[[], None]:
        """Hold on to all tensors as they are: no method changes one in place. Calling the result puts them back."""
        held, jitter = list(self.named_buffers()), self.jitter

        def put_back() -> None:
            for name, value in held:
                setattr(self, name, value)
            self.jitter = jitter

        return put_back

    def sums(self) -> tuple[Tensor, ...]:
        """See `streamgp.online.summing.Additive`."""
        return self.outer, self.moment, self.square, self.weight

    def put(self, sums: tuple[Tensor, ...]) -> None:
        self.outer, self.moment, self.square, self.weight = sums

    def zero(self) -> None:
        self.put(tuple(torch.zeros_like(part) for part in self.sums()))

    def features(self, x: Tensor) -> Tensor:
        """(N, W) -> φ (N, E + m)."""
        smooth = whiten(self.lower, correlation(self.points, x * self.inverse).mul_(self.outputscale)).T
        if not self.explicit:
            return smooth
        scale = self.noise.sqrt()
        return torch.cat((scale * x, scale.expand(len(x), 1), smooth), 1)

    def unexplained(self, phi: Tensor) -> Tensor:
        """(N, E + m) -> (N,): ρ² − ‖φ‖², the prior variance that the basis does not reach."""
        return (self.outputscale - phi[:, self.explicit :].square().sum(1)).clamp(min=0.0)

    def mean(self, phi: Tensor) -> Tensor:
        """(N, E + m) -> (N, T)"""
        return phi @ self.coefficients

    def variance(self, phi: Tensor) -> Tensor:
        """(N, E + m) -> (N,): the latent variance, the same for all columns."""
        size = phi.shape[1]
        if self.covariance is not None:
            size = min(size, self.explicit + self.covariance)
        leading = phi[:, :size]
        known = whiten(self.root[:size, :size], leading.T).square().sum(0)
        return self.unexplained(leading) + known

    def absorb(self, phi: Tensor, y: Tensor, weight: Tensor, kept: float = 1.0) -> None:
        """Add rows to the statistics, after scaling these by `kept`. `solve` makes them count.

        A missing target of a row that has others is replaced by its present prediction: this leaves the column's mean
        as it is. The row then weighs as much as its observed share, in the covariance that all columns have in common.

        Args:
            phi: (N, E + m)
            y: (N, T), NaN = not observed.
            weight: (N,) how many rows each stands for.
            kept: part of the old sums that is kept.
        """
        seen = torch.isfinite(y)
        if not bool(seen.all()):
            y = torch.where(seen, y, self.mean(phi))
            weight = weight * seen.to(FLOAT).mean(1)
        weighted = phi * weight[:, None]
        self.outer = self.outer * kept  # a copy: `holding` keeps the old one
        for start in range(0, phi.shape[1], BLOCK):
            stop = min(start + BLOCK, phi.shape[1])
            self.outer[start:stop, :stop].addmm_(weighted[:, start:stop].T, phi[:, :stop])
        self.moment = torch.addmm(self.moment, weighted.T, y, beta=kept)
        self.square = self.square * kept + (weight[:, None] * y.square()).sum(0)
        self.weight = self.weight * kept + weight.sum()

    def solve(self) -> None:
        """The posterior of the statistics, and each column's noise.

        σ_t² = Σ (y_t − φᵀw_t)²/n = (Σ y_t² − wᵀb − σ²‖w‖²)/n with b = Σ φ y_t, as wᵀSw = wᵀb − σ²‖w‖².
        """
        self._factorise()
        self.coefficients = solve(self.root, self.moment / self.noise).contiguous()
        fitted = (self.coefficients * (self.moment + self.noise * self.coefficients)).sum(0)
        rest = (self.square - fitted) / self.weight.clamp(min=1.0)
        self.residual = rest.clamp(min=1e-9)

    def unbias(self) -> None:
        """Count the parameters that rows were fitted with in σ_t²: Σ (y_t − φᵀw_t)²/(n − tr S A⁻¹/σ²).

        tr S A⁻¹/σ² = E + m − tr A⁻¹ are the effective degrees of freedom. O(M³), until the next `solve`.
        """
        inverse = whiten(self.root, torch.eye(len(self.root), dtype=FLOAT, device=self.root.device))
        free = self.weight - len(self.root) + inverse.square().sum()
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
        half = whiten(self.root, phi.T) / self.noise.sqrt()
        identity = torch.eye(len(phi), dtype=FLOAT, device=phi.device)
        root = cholesky(identity - half.T @ half, first=0.0).lower
        errors = solve(root, torch.nan_to_num(y - self.mean(phi)))
        latent = self.noise * (whiten(root, identity).square().sum(0) - 1.0) + self.unexplained(phi)
        return torch.where(y.isnan(), y, errors.square() / (latent[:, None] + self.residual))

    def _factorise(self) -> None:
        precision = self.outer / self.noise
        precision.diagonal().add_(1.0)
        self.root = cholesky(precision, first=0.0).lower

    def loss(self) -> float:
        """Negative log evidence a row and column, standardised units, at the noise of the updates:
        ½ [(Σy² − wᵀb)/σ² + log|A| + n log 2πσ²]/n, averaged over columns.
        """
        rows = self.weight.clamp(min=1.0)
        misfit = (self.square - (self.coefficients * self.moment).sum(0)).mean() / self.noise
        determinant = 2.0 * self.root.diagonal().log().sum()
        return float(0.5 * ((misfit + determinant) / rows + torch.log(2.0 * torch.pi * self.noise)))

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

        They are the least `salient`. The remaining basis sees the old one through P = C⁻¹k(Z, Z')C'⁻ᵀ: S' = PᵀSP,
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
        """S, with what lies above the diagonal blocks."""
        return self.outer.tril() + self.outer.tril(-1).T

    def move(
        self, rows: Tensor, size: int, inverse: Tensor, outputscale: Tensor, noise: Tensor, generator: Generator
    ) -> tuple[int, int, float]:
        """New hyper-parameters and a new basis under which the posterior is carried through (`papers.svdgp.transfer`).

        With P of there the new sums are PᵀSP and Pᵀb: all rows, old and new, have the noise of now. The weights of the
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
        carried = Carried(self.lower, self._whole() / noise, self.moment / noise)
        straight, square, weight = (noise / self.noise).sqrt(), self.square, self.weight
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
        self.outer, self.moment = noise * (seen.T @ carried.precision @ seen), noise * (seen.T @ carried.pull)
        self.square, self.weight = square, weight
        self.solve()
        return stay, len(new), lost

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """Everything at its largest shape, and how many basis points are in use; `root` follows from the rest."""
        capacity, used = max(self.capacity, len(self.points)), self.explicit + len(self.points)
        size = self.explicit + capacity
        shapes = {
            "points": (capacity, self.points.shape[1]),
            "lower": (capacity, capacity),
            "outer": (size, size),
            "moment": (size, self.moment.shape[1]),
            "coefficients": (size, self.moment.shape[1]),
        }
        tensors = {}
        for name, value in self.named_buffers():
            if name in shapes:
                padded = value.new_zeros(shapes[name])
                padded[tuple(slice(n) for n in value.shape)] = value
                tensors[name] = padded
            elif name != "root":
                tensors[name] = value
        return tensors, {"points": used - self.explicit, "jitter": self.jitter}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        points, width = int(str(rest["points"])), self.points.shape[1]
        size, columns = self.explicit + points, self.moment.shape[1]
        shapes = {"points": (points, width), "lower": (points, points), "outer": (size, size)}
        shapes |= {"moment": (size, columns), "coefficients": (size, columns)}
        for name, value in list(self.named_buffers()):
            if name == "root":
                continue
            wanted = shapes.get(name, tuple(value.shape))
            found = tensors[name][tuple(slice(n) for n in wanted)] if name in shapes else tensors[name]
            if tuple(found.shape) != wanted:
                raise ValueError(f"{name} is {tuple(found.shape)}, not {wanted}")
            setattr(self, name, found.clone().to(value.device))
        self.jitter = float(str(rest["jitter"]))
        self._factorise()
