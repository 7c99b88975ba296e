"""An exact posterior that rows are added to: its Cholesky factor grows by a block of rows at a time.

With C = k(H, H) + σ²I = LLᵀ and u = L⁻¹y, b more rows h' add

    V = L⁻¹k(H, h'),  L' = chol(k(h', h') + σ²I − VᵀV),  u' = L'⁻¹(y' − Vᵀu)

O(N²b) instead of O(N³): block forward substitution. Row i of L knows how row i is forecast from any number of first
rows: Σ_{j ≤ m} L_ij u_j is its mean given the first m, Σ_{j > m} L_ij² its variance, noise included. On a stream row i
is forecast from rows i − H and older, as younger ones are not complete by then. With a gap of g = H − 1 rows

    z_ti = Σ_{j = i − g}^i L_ij u_tj / (Σ_{j = i − g}^i L_ij²)^½,   a_t = (Σ_i z_ti² + 4)/(N + 4)

are standardised errors of honest forecasts, and by how much column t's variances are off as a whole, from N rows and
four that say they are right. Forecasts have their variance times a_t. Where H = 1, z is u, and these are the
maximum-likelihood ones of the model C_t = a_t C (the prequential form of the evidence, Dawid 1984). Rows of several
series that take turns have a shorter gap than their own.

T columns have R factors: T where each has its own noise, 1 where they share it.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from streamgp.kernels import Kernel
from streamgp.linalg.cholesky import cholesky, log_determinant, whiten
from streamgp.solvers.exact.draw import ExactDraw

ENTRIES = 1 << 24
"""Entries of V that are made at a time: 128 MB."""
PRIOR_ROWS = 4.0


class GrowingPosterior:
    """f given N rows; never changed in place, so that an older one can be kept.

    Args:
        kernel: its hyper-parameters must not change as long as this is used.
        noise: (R,) σ².
        columns: T.
        gap: g; None: a_t is 1.

    Attributes:
        h, y: (N, W) inputs and (N, T) targets.
        lower: (R, N, N) L.
        white: (R, N, T/R) u.
        alpha: (N, T) C⁻¹y.
        blocks: how many rows came at a time.
        squares: (T,) Σ_i z_ti².
        scale: (T,) a.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), 1).requires_grad_(False)
        >>> prior = GrowingPosterior(kernel, torch.ones(1).double(), columns=1, gap=None)
        >>> at = torch.zeros(1, 1).double()
        >>> mean, variance = prior.append(at, 2 * at + 3).moments(at)
        >>> round(mean.item(), 12), round(variance.item(), 12)  # 3/(1 + 1), 1 − 1/(1 + 1)
        (1.5, 0.5)
    """

    def __init__(self, kernel: Kernel, noise: Tensor, columns: int, gap: int | None) -> None:
        self.kernel, self.noise, self.columns, self.gap = kernel, noise, columns, gap
        factors = len(noise)
        self.h, self.y = noise.new_zeros(0, kernel.dims), noise.new_zeros(0, columns)
        self.lower = noise.new_zeros(factors, 0, 0)
        self.white = noise.new_zeros(factors, 0, columns // factors)
        self.alpha = noise.new_zeros(0, columns)
        self.squares, self.scale = noise.new_zeros(columns), noise.new_ones(columns)
        self.blocks: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """N"""
        return len(self.h)

    @property
    def noises(self) -> Tensor:
        """(T,) a_t σ_t²."""
        return self.scale * self.noise

    @torch.no_grad()
    def append(self, h: Tensor, y: Tensor, half: Tensor | None = None) -> GrowingPosterior:
        """Given b more rows as well; O(N²(b + T) + b³) for each factor.

        Args:
            h: (b, W)
            y: (b, T), none missing.
            half: (R, N, b) of `half`, where it is known already.

        Raises:
            NotPositiveDefinite: the covariance of old and new rows is singular.
        """
        grown = GrowingPosterior(self.kernel, self.noise, self.columns, self.gap)
        before, factors = self.rows, len(self.noise)
        corner: Tensor = self.kernel(h, h)
        corner = corner + self.noise[:, None, None] * torch.eye(len(h), dtype=h.dtype, device=h.device)
        right = y.T.unflatten(0, (factors, -1)).mT  # (R, b, T/R)
        if before:
            half = self.half(h) if half is None else half
            corner, right = corner - half.mT @ half, right - half.mT @ self.white
        root = cholesky(corner, first=0.0).lower
        grown.lower = h.new_zeros(factors, before + len(h), before + len(h))
        grown.lower[:, before:, before:] = root
        if half is not None:
            grown.lower[:, :before, :before], grown.lower[:, before:, :before] = self.lower, half.mT
        grown.white = torch.cat((self.white, whiten(root, right)), 1)
        alpha = torch.linalg.solve_triangular(grown.lower.mT, grown.white, upper=True)  # (R, N, T/R)
        grown.alpha = alpha.mT.flatten(0, 1).T.contiguous()
        grown.h, grown.y = torch.cat((self.h, h)), torch.cat((self.y, y))
        grown.blocks = (*self.blocks, len(h))
        if self.gap is not None:
            grown.squares = self.squares + grown._errors(before, self.gap).square().sum(0)
            grown.scale = (grown.squares + PRIOR_ROWS) / (grown.rows + PRIOR_ROWS)
        return grown

    def newest(self, rows: int) -> GrowingPosterior:
        """Given the newest rows alone; O(rows³) for each factor."""
        start = max(self.rows - rows, 0)
        fresh = GrowingPosterior(self.kernel, self.noise, self.columns, self.gap)
        return fresh.append(self.h[start:].contiguous(), self.y[start:].contiguous())

    def half(self, h: Tensor) -> Tensor:
        """(N', W) -> (R, N, N'): V = L⁻¹k(H, h)."""
        cross = self.kernel(self.h, h)
        return whiten(self.lower, cross.expand(len(self.noise), *cross.shape))

    def mean(self, h: Tensor) -> Tensor:
        """(N', W) -> (N', T)"""
        out: Tensor = self.kernel(h, self.h) @ self.alpha
        return out

    @torch.no_grad()
    def moments(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """(N', W) -> (N', T) means, (N', T) latent variances; O(N²) a row for each factor, in bounded memory."""
        chunk = max(1, ENTRIES // max(1, len(self.noise) * self.rows))
        spread = torch.cat([self._variance(part, self.half(part)) for part in h.split(chunk)])  # (N', R)
        return self.mean(h), spread * self.scale

    @torch.no_grad()
    def look(self, h: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """`moments`, and V (R, N, N') where it is small enough to be kept."""
        if not self.rows or len(self.noise) * self.rows * len(h) > ENTRIES:
            return *self.moments(h), None
        half = self.half(h)
        return self.mean(h), self._variance(h, half) * self.scale, half

    @torch.no_grad()
    def covariance(self, h: Tensor) -> Tensor:
        """(N', W) -> (T, N', N'): a_t (k(h, h) − VᵀV)."""
        half = self.half(h)
        found: Tensor = self.kernel(h, h) - half.mT @ half  # (R, N', N')
        return found.repeat_interleave(self.columns // len(found), 0) * self.scale[:, None, None]

    def draw(self, paths: int, generator: Generator) -> ExactDraw:
        """Functions, whose spread is that of C; see `streamgp.solvers.exact.draw`."""
        return ExactDraw(self.kernel, self.mean, self.half, self.columns, paths, generator)

    def loss(self) -> float:
        """Negative log marginal likelihood a row and column, under C_t = a_t C."""
        fit = self.white.square().sum(1).flatten()
        each = fit / self.scale + self.rows * (self.scale.log() + math.log(2.0 * math.pi))  # (T,)
        return float(0.5 * (each + log_determinant(self.lower)).mean() / max(self.rows, 1))

    def _errors(self, start: int, gap: int) -> Tensor:
        """(N − start, T): z of the rows from `start` on; O(b(b + g)) a column."""
        first = max(start - gap, 0)
        row, column = torch.arange(start, self.rows)[:, None], torch.arange(first, self.rows)
        near = ((column <= row) & (column >= row - gap)).to(self.lower)
        band = self.lower[:, start:, first:] * near  # (R, b, b + g)
        z = band @ self.white[:, first:] / band.square().sum(2, keepdim=True).sqrt()  # (R, b, T/R)
        return z.mT.flatten(0, 1).T

    def _variance(self, h: Tensor, half: Tensor) -> Tensor:
        """(N', W), (R, N, N') -> (N', R)"""
        return (self.kernel.diagonal(h)[:, None] - half.square().sum(1).T).clamp(min=0.0)
