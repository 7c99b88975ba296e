"""A posterior on very many features, one block of them at a time (Evans & Nair 2020).

f_t = φ(x)ᵀw_t, w_t ~ N(0, I). Block 0, the head, holds the linear part √σ²(x, 1) and the first block of features; every
further block is one of theirs. Of R rows with weights ν only the residual r = y − Φμ is kept beside them. A visit to
block b is a step of block Gauss–Seidel on (ΦᵀNΦ + σ²I)μ = ΦᵀNy, N = diag(ν), the limit n̄ = n of the paper's eq. 3:

    g = Φ_bᵀNr − σ²μ_b,  δ = (G_b + σ²I)⁻¹g,  μ_b ← μ_b + αδ,  r ← r − αΦ_bδ,  G_b ≈ Φ_bᵀNΦ_b

in O(R m̃ (W + T)), and R m̃² more where G_b is taken anew, whatever m is. α = δᵀg/(‖Φ_bδ‖²_N + σ²‖δ‖²), column by column,
is the best step length: 1 where G_b is exact, and with any other G_b every step still goes down.

G_0 is a sum over all rows of the stream, which forgetting scales, so that it is never old. q(w_t) = N(μ_t, Σ) has the
blocks Σ_b = σ²(G_b + σ²I)⁻¹, and at these, n = Σν,

    −ELBO = ½ Σ_t [rᵀNr/σ² + ‖μ‖²]/T + ½ Σ_b log|I + G_b/σ²| + ½ n log 2πσ²        (a column's)

The variance of a prediction is that of the head alone, its features stretched by √(m/m̃) to stand for the whole kernel.
Summed over all blocks the variance would grow with their number towards the prior, since none knows what the others
have learned.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.features._base import Features
from streamgp.linalg.cholesky import cholesky, whiten

WORK = torch.float32
"""Features and residuals while learning. Predictions, coefficients and factorisations are float64."""
STRIP = 128
"""Gram matrices are summed in rows of this height, up to the diagonal."""
KEPT = 1 << 27
"""Entries of factors that sweeps keep from one to the next: 512 MB. Beyond, they are made anew."""


def gram(phi: Tensor, weight: Tensor) -> Tensor:
    """ΦᵀNΦ, (k, k) float64; 0 above the diagonal strips. phi: (R, k), weight: (R,) ν."""
    half = phi * weight.sqrt()[:, None]
    out = torch.zeros(phi.shape[1], phi.shape[1], dtype=FLOAT, device=phi.device)
    for start in range(0, phi.shape[1], STRIP):
        stop = min(start + STRIP, phi.shape[1])
        out[start:stop, :stop] = half[:, start:stop].T @ half[:, :stop]
    return out


class Blocks(nn.Module):
    """Means of T columns on m features, and what one covariance for all of them needs.

    Args:
        features: with S = I, as `streamgp.features.fourier` has.
        columns: T.
        linear: whether the head has a linear part, whose prior counts as one row: ridge regression.

    Attributes:
        count: B.
        noise: () σ² of the updates.
    """

    def __init__(self, features: Features, columns: int, linear: bool) -> None:
        super().__init__()
        self.features = features.requires_grad_(False)
        self.explicit = features.kernel.dims + 1 if linear else 0
        self.count = features.blocks
        head = self.explicit + features.span(0).stop
        self.coefficients: Tensor
        self.head: Tensor
        self.determinants: Tensor
        self.noise: Tensor
        self.root: Tensor
        self.stretched: Tensor
        self.register_buffer("coefficients", torch.zeros(self.explicit + features.size, columns, dtype=FLOAT))  # μ
        self.register_buffer("head", torch.zeros(head, head, dtype=FLOAT))  # G_0, nothing above the diagonal strips
        self.register_buffer("determinants", torch.zeros(self.count, dtype=FLOAT))  # log|I + G_b/σ²| at the last visit
        self.register_buffer("noise", torch.ones((), dtype=FLOAT))
        self.register_buffer("root", torch.eye(head, dtype=FLOAT), persistent=False)  # chol(G_0 + σ²I)
        self.register_buffer("stretched", torch.eye(head, dtype=FLOAT), persistent=False)  # chol(I + DG_0D/σ²)

    def begin(self, noise: Tensor) -> None:
        """Forget everything, under a new σ² (and whatever the features' hyper-parameters now are)."""
        self.noise.copy_(noise)
        for buffer in (self.coefficients, self.head, self.determinants):
            buffer.zero_()
        self.refresh()

    def refresh(self) -> None:
        """The factors of the head, which follow from G_0."""
        self.root = self._factor(0, self.head)
        stretch = self._stretch()
        precision = self.head * stretch[:, None] * stretch / self.noise
        precision.diagonal().add_(1.0)
        self.stretched = cholesky(precision, first=0.0).lower

    def _stretch(self) -> Tensor:
        """(E + m̃,) D: 1 for the linear part, √(m/m̃) for the features of the head."""
        smooth = len(self.head) - self.explicit
        stretch = torch.full_like(self.head[0], math.sqrt(self.features.size / smooth))
        stretch[: self.explicit] = 1.0
        return stretch

    def _factor(self, b: int, g: Tensor) -> Tensor:
        """chol(G_b + σ²I), and note its determinant."""
        precision = g.clone()
        precision.diagonal().add_(self.noise)
        lower = cholesky(precision, first=0.0).lower
        self.determinants[b] = 2.0 * lower.diagonal().log().sum() - len(g) * self.noise.log()
        return lower

    def span(self, b: int) -> slice:
        """The places of block b in μ."""
        own = self.features.span(b)
        return slice(self.explicit + own.start if b else 0, self.explicit + own.stop)

    def phi(self, z: Tensor, b: int) -> Tensor:
        """(N, W) -> (N, |b|), in the dtype of z."""
        smooth = self.features.block(z, b)
        if b or not self.explicit:
            return smooth
        scale = self.noise.sqrt().to(z.dtype)
        return torch.cat((scale * z, scale.expand(len(z), 1), smooth), 1)

    def mean(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, T), in O(N m (W + T))."""
        total = z.new_zeros(len(z), self.coefficients.shape[1])
        if not bool(self.coefficients.any()):  # nothing learned yet: every rebuild passes here
            return total
        for b in range(self.count):
            total.addmm_(self.phi(z, b), self.coefficients[self.span(b)].to(z.dtype))
        return total

    def variance(self, z: Tensor) -> Tensor:
        """(N, W) -> (N,): the latent variance, the same for all columns."""
        phi = self.phi(z, 0) * self._stretch()
        return whiten(self.stretched, phi.T).square().sum(0)

    def absorb(self, z: Tensor, weight: Tensor, kept: float) -> None:
        """Add rows to G_0 after scaling it by `kept`, the part of the old sum that is not forgotten.

        Args:
            z: (N, W) of `WORK`.
            weight: (N,) of `WORK`.
        """
        self.head.mul_(kept).add_(gram(self.phi(z, 0), weight))
        self.refresh()

    def visit(self, b: int, z: Tensor, residual: Tensor, weight: Tensor, factor: Tensor | None = None) -> Tensor:
        """One step on block b; the residual is corrected in place.

        Args:
            z, residual, weight: (R, W), (R, T), (R,) of `WORK`.
            factor: chol(G_b + σ²I); None takes G_b anew from these rows.

        Returns:
            the factor.
        """
        phi, span = self.phi(z, b), self.span(b)
        if factor is None:
            g = gram(phi, weight)
            if b:
                factor = self._factor(b, g)
            else:
                self.head.copy_(g)
                self.refresh()
                factor = self.root
        slope = (phi.T @ (weight[:, None] * residual)).to(FLOAT) - self.noise * self.coefficients[span]
        step = torch.cholesky_solve(slope, factor.to(FLOAT))
        change = phi @ step.to(WORK)
        curvature = (weight @ change.square()).to(FLOAT) + self.noise * step.square().sum(0)
        length = (step * slope).sum(0) / curvature.clamp(min=1e-300)
        self.coefficients[span] += length * step
        residual.sub_(change * length.to(WORK))
        return factor

    def sweep(self, times: int, z: Tensor, residual: Tensor, weight: Tensor) -> None:
        """Visit every block in order, `times` times, with factors of these rows; the residual is corrected in place."""
        keep = self.features.size * self.features.width <= KEPT
        factors: dict[int, Tensor] = {}
        for _ in range(times):
            for b in range(self.count):
                factor = self.visit(b, z, residual, weight, factors.get(b))
                if keep:
                    factors[b] = factor.to(WORK)

    def loss(self, misfit: Tensor, rows: Tensor) -> float:
        """−ELBO a row and column. misfit: (T,) rᵀNr of each; rows: () n."""
        fit = (misfit / self.noise + self.coefficients.square().sum(0)).mean()
        return float(0.5 * ((fit + self.determinants.sum()) / rows + torch.log(2.0 * torch.pi * self.noise)))
