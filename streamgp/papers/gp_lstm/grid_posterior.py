"""The posterior of `kiss_cg`: everything that a prediction needs lies on the grid.

    m(h) = wᵀ [K_UU W̃ᵀα],    v(h) = wᵀK_UU w − wᵀ [K_UU W̃ᵀ A⁻¹ W̃ K_UU] w

The first bracket is a vector (Wilson, Dann & Nickisch 2015, section 5.1); the second is taken to rank r from a Lanczos
run, A⁻¹ ≈ Q (QᵀAQ)⁻¹ Qᵀ (Pleiss et al. 2018, "Constant-time predictive distributions", section 4), so that a row costs
O(4^d (T + r)) whatever N. Q comes from K̃ alone and serves all noises: A_t is K̃ shifted. The approximation never takes
away too much: v is at least the model's own variance. It is exact where r reaches the rank of K̃, which is low for a
smooth kernel. For a rough one (a Matérn kernel with ν = ½ in 2-D, say) no low rank will do, and v is far too large.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from streamgp.linalg.interpolate import Grid, Stencil, interpolate, stencil
from streamgp.papers.gp_lstm.lanczos import lanczos, rademacher
from streamgp.papers.gp_lstm.system import BLOCK, KissSystem, grid_variance
from streamgp.papers.gp_lstm.toeplitz import KroneckerSum
from streamgp.solvers import Conditional, Draw

_LOST = 1e-6
"""Variance of a row that the cache may miss, on average over the rows, in units of the least σ²."""


class GridPosterior(Conditional):
    """f given the rows of a system; see the module.

    Attributes:
        noise: (T,) σ_t².
    """

    def __init__(
        self, grid: Grid, covariance: KroneckerSum, noise: Tensor, system: KissSystem | None, rank: int
    ) -> None:
        """Without a system it is the prior. `rank` is r, at most."""
        self.noise, self._grid, self.covariance, self.system = noise, grid, covariance, system
        self._mean = noise.new_zeros(grid.count, len(noise))  # (m, T) K_UU W̃ᵀ α
        self._explained = noise.new_zeros(grid.count, 1)  # (m, r) K_UU W̃ᵀ Q V
        self._ritz = noise.new_zeros(1)  # (r,) eigenvalues of QᵀK̃Q = VΛVᵀ
        if system is not None:
            self._mean = covariance.multiply(system.sparse.spread(system.alpha))
            start = rademacher(len(system.y), 1, torch.Generator().manual_seed(system.settings.seed)).to(noise)
            total = float(system.sparse.scale.square() @ grid_variance(system.sparse.stencil, covariance))  # tr K̃
            limit = _LOST * float(noise.min()) * len(system.y)
            # K̃ is positive semi-definite, so that what its trace lacks in QᵀK̃Q is the variance outside of Q
            found = lanczos(
                system.product, start, rank, enough=lambda so_far: total - float(so_far.diagonal.sum()) <= limit
            )
            values, vectors = torch.linalg.eigh(found.matrices()[0])
            self._explained = covariance.multiply(system.sparse.spread(found.basis[0].T @ vectors)).contiguous()
            self._ritz = values.clamp(min=0.0)

    @property
    def basis(self) -> int:
        """m"""
        return len(self._mean)

    def mean(self, h: Tensor) -> Tensor:
        return interpolate(stencil(self._grid, h), self._mean)

    def variance(self, h: Tensor) -> Tensor:
        rows = stencil(self._grid, h)
        explained = interpolate(rows, self._explained).square() @ (1 / (self._ritz[:, None] + self.noise))  # (N, T)
        out: Tensor = (grid_variance(rows, self.covariance)[:, None] - explained).clamp(min=0.0)
        return out

    def divergence(self) -> Tensor:
        """KL₀ for the model K = W K_UU Wᵀ. αᵀK₀α is exact to the tolerance; the trace and the log-determinant rest on
        the fixed probes, and so carry their Monte Carlo error, which is nothing where the preconditioner is complete.
        """
        if self.system is None:
            return torch.zeros_like(self.noise)
        system, stochastic = self.system, self.system.stochastic
        rows = len(system.y)
        quadratic = (system.alpha * system.product(system.alpha)).sum(0)
        trace = rows - self.noise * stochastic.inverse_trace.mean(1)  # tr A⁻¹K̃ = N − σ² tr A⁻¹
        return 0.5 * (quadratic - trace + stochastic.log_determinant.mean(1) - rows * self.noise.log())

    def draw(self, paths: int, generator: Generator) -> Draw:
        """Draw by Matheron's rule on the grid (Wilson et al. 2020, eq. 9), exact for K = W K_UU Wᵀ:

        f_U − K_UU W̃ᵀ A⁻¹ (W̃ f_U + ε − ỹ) with f_U from the prior and ε ~ N(0, σ²). Costs P·T solves.
        """
        columns = len(self.noise)
        values = self.covariance.sample(paths * columns, generator).to(self.noise)  # (m, P·T)
        if self.system is not None:
            which = torch.arange(columns).repeat(paths)
            parts = zip(values.split(BLOCK, 1), which.split(BLOCK), strict=True)
            values = torch.cat([self._conditioned(self.system, *part, generator) for part in parts], 1)
        table = values.unflatten(1, (paths, columns)).movedim(1, 0).flatten(0, 1)  # (P·m, T)

        def functions(h: Tensor) -> Tensor:
            rows = stencil(self._grid, h.flatten(0, 1))
            path = torch.arange(paths, device=h.device).repeat_interleave(h.shape[1])
            own = Stencil(rows.index + self._grid.count * path[:, None], rows.weight)
            out: Tensor = interpolate(own, table).unflatten(0, h.shape[:2])
            return out

        return functions

    def _conditioned(self, system: KissSystem, prior: Tensor, column: Tensor, generator: Generator) -> Tensor:
        """(m, k) draws from the prior -> (m, k) draws from the posteriors of the columns t named in (k,)."""
        epsilon = torch.randn(len(system.y), len(column), generator=generator, dtype=prior.dtype).to(prior)
        gap = system.sparse.gather(prior) + self.noise.sqrt()[column] * epsilon - system.y[:, column]
        return prior - self.covariance.multiply(system.sparse.spread(system.solve(gap, column)))
