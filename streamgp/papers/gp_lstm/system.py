"""The linear system of `kiss_cg`: K̃ + σ²I with K̃ = D^½ W K_UU Wᵀ D^½, by products alone.

D holds the rows' weights. Under N(y; f, σ²)^w the noise of a row is σ²/w, and with A = K̃ + σ²I and ỹ = D^½y

    (K + σ²D⁻¹)⁻¹ = D^½ A⁻¹ D^½,    log|K + σ²D⁻¹| − Σ log(σ²/w) = log|A| − N log σ²

so that a weight may fall to nothing and no number grows.

Shapes: N rows, m grid points, T columns, p probes, r rank of the preconditioner.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.errors import NumericalError
from streamgp.linalg.interpolate import Stencil
from streamgp.linalg.krylov import LowRank, Product, conjugate_gradients, pivoted_cholesky
from streamgp.papers.gp_lstm.lanczos import power, rademacher, stochastic_log_determinant
from streamgp.papers.gp_lstm.toeplitz import Circulant, KroneckerSum

BLOCK = 64
"""Right-hand sides solved for at a time: a bound on memory of about 8 · 64 · N numbers."""
_NEGLIGIBLE = 1e-8
"""Remaining variance of a row, in units of σ², at which the preconditioner is complete."""


class CgSettings(NamedTuple):
    """Of the iterations; see `streamgp.solvers.kiss_cg.Config`. rank: 0 for the circulant preconditioner."""

    tolerance: float
    iterations: int
    rank: int
    probes: int
    steps: int
    seed: int


def grid_variance(rows: Stencil, covariance: KroneckerSum) -> Tensor:
    """wᵀ K_UU w of every row of W: (N,); differentiable in the latents and in the hyper-parameters.

    A row's weights are an outer product over the dimensions, and four neighbours are at most three steps apart: what
    is needed of a Toeplitz factor is its first four entries. O(N 4^d).

    Example:
        >>> from streamgp.linalg.interpolate import Grid, stencil
        >>> rows = stencil(Grid.cover(1, 9), torch.tensor([[0.5], [0.25]]).double())
        >>> grid_variance(rows, KroneckerSum([[torch.eye(9)[0].double()]]))  # Σ w²
        tensor([1.0000, 0.6406], dtype=torch.float64)
    """
    dims = len(covariance.sizes)
    folded = rows.weight.unflatten(1, (4,) * dims)
    lags = []  # a dimension: (N, 4), Σ w_a w_b over the pairs 0, 1, 2, 3 steps apart
    for dim in range(dims):
        others = [1 + other for other in range(dims) if other != dim]
        w = folded.sum(others) if others else folded  # (N, 4): the weights of each dimension sum to 1
        pairs = [w.square().sum(1)] + [2 * (w[:, lag:] * w[:, :-lag]).sum(1) for lag in (1, 2, 3)]
        lags.append(torch.stack(pairs, 1))
    total = torch.zeros_like(rows.weight[:, 0])
    for term in covariance.terms:
        product = torch.ones_like(total)
        for lag, column in zip(lags, term, strict=True):
            product = product * (lag @ column[:4])
        total = total + product
    return total


class Sparse:
    """W D^½ of rows, to multiply from both sides; without graph.

    Attributes:
        stencil: the rows of W.
        scale: (N,) D^½.
    """

    def __init__(self, stencil: Stencil, scale: Tensor, points: int) -> None:
        self.stencil, self.scale, self._points = stencil, scale, points
        rows, entries = stencil.index.shape
        flat = stencil.index.flatten()
        order = flat.argsort(stable=True)
        starts = torch.cat((flat.new_zeros(1), torch.bincount(flat, minlength=points).cumsum(0)))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*Sparse CSR tensor support is in beta")
            self._rows = torch.sparse_csr_tensor(
                torch.arange(0, rows * entries + 1, entries, device=flat.device),
                flat,
                stencil.weight.flatten(),
                (rows, points),
                check_invariants=True,
            )
            self._columns = torch.sparse_csr_tensor(
                starts, order // entries, stencil.weight.flatten()[order], (points, rows), check_invariants=True
            )

    def __reduce__(self) -> tuple[type[Sparse], tuple[Stencil, Tensor, int]]:
        """Copied and pickled by what it is made of: PyTorch copies no sparse tensor."""
        return Sparse, (self.stencil, self.scale, self._points)

    def gather(self, grid: Tensor) -> Tensor:
        """(m, k) -> (N, k): D^½ W grid."""
        out: Tensor = self.scale[:, None] * (self._rows @ grid)
        return out

    def spread(self, v: Tensor) -> Tensor:
        """(N, k) -> (m, k): Wᵀ D^½ v."""
        out: Tensor = self._columns @ (self.scale[:, None] * v)
        return out


class Stochastic(NamedTuple):
    """Quantities of A_t = K̃ + σ_t²I that rest on the probes.

    With ε a probe, u = A⁻¹P^½ε and v = P^−½ε:  tr(A⁻¹M) = tr(P⁻¹M) + E (u − v)ᵀ M v, for v has covariance P⁻¹ and
    E u vᵀ = A⁻¹. The first part is exact, the second vanishes as P approaches A (a control variate).

    Attributes:
        log_determinant: (T, p) log|A_t|, one estimate a probe.
        inverse_trace: (T, p) tr A_t⁻¹, likewise.
        change: (T, N, p) u − v.
        start: (T, N, p) v.
    """

    log_determinant: Tensor
    inverse_trace: Tensor
    change: Tensor
    start: Tensor


class KissSystem:
    """A_t α_t = ỹ_t for T columns, each with its own σ_t², and what else is asked of A_t. Frozen.

    Attributes:
        sparse: W D^½.
        covariance: K_UU, without graph.
        noise: (T,) σ_t².
        y: (N, T) ỹ.
    """

    def __init__(
        self, sparse: Sparse, covariance: KroneckerSum, noise: Tensor, y: Tensor, settings: CgSettings
    ) -> None:
        self.sparse, self.covariance, self.noise, self.y = sparse, covariance, noise, y
        self.settings = settings

    def product(self, v: Tensor) -> Tensor:
        """(N, k) -> (N, k): K̃ v, O(N 4^d k) and a product with K_UU."""
        return self.sparse.gather(self.covariance.multiply(self.sparse.spread(v)))

    @cached_property
    def low_rank(self) -> LowRank:
        """P_t = LLᵀ + (σ_t² + δ)I with the pivoted Cholesky factor L of K̃, which all columns share; `shift` is (T,).

        δ is what LLᵀ lacks of K̃'s mean diagonal. Without it P⁻¹ would be far too large where L does not reach, and
        the control variate noisier than what it controls.
        """
        stencil, scale = self.sparse.stencil, self.sparse.scale

        def column(row: int) -> Tensor:
            at = self.y.new_zeros(self.covariance.count, 1)
            at[stencil.index[row], 0] = scale[row] * stencil.weight[row]
            return self.sparse.gather(self.covariance.multiply(at))[:, 0]

        diagonal = scale.square() * grid_variance(stencil, self.covariance)
        limit = _NEGLIGIBLE * float(self.noise.min())
        if not self.settings.rank:
            nothing = diagonal.new_zeros(len(diagonal), 0)
            return LowRank(nothing, nothing[0], self.noise + diagonal.mean())
        factor = pivoted_cholesky(column, diagonal, self.settings.rank, tolerance=limit)
        lacking = (diagonal - factor.square().sum(1)).clamp(min=0.0).mean()
        return LowRank.of(factor, self.noise + lacking)

    @cached_property
    def circulant(self) -> tuple[Circulant, float]:
        """C next to K_UU, and c: no eigenvalue of W̃ᵀW̃ is beyond it, as none is beyond the largest sum of a row's
        absolute values."""
        rows, points = self.sparse.stencil.index, self.covariance.count
        entries = (self.sparse.scale[:, None] * self.sparse.stencil.weight).abs()  # (N, 4^d)
        sums = entries.new_zeros(points).index_add_(0, rows.flatten(), (entries.sum(1)[:, None] * entries).flatten())
        return Circulant(self.covariance.terms), float(sums.max())

    def preconditioner(self, column: Tensor) -> Product:
        """P_t⁻¹ for right-hand sides (N, k) of the t that `column` (k,) names.

        Circulant: (σ²I + W̃CW̃ᵀ)⁻¹ = [I − W̃ C(σ²I + W̃ᵀW̃C)⁻¹ W̃ᵀ]/σ² with cI in the place of W̃ᵀW̃, which it is for
        rows that lie evenly over the grid. As c is no less than W̃ᵀW̃, what is left is positive definite.
        """
        if self.settings.rank:
            return self.low_rank._replace(shift=self.low_rank.shift[column]).solve
        noise, (circulant, most) = self.noise[column], self.circulant

        def solve(v: Tensor) -> Tensor:
            inner = circulant.apply(lambda values: values / (noise + most * values), self.sparse.spread(v))
            return (v - self.sparse.gather(inner)) / noise

        return solve

    def solve(self, right: Tensor, column: Tensor) -> Tensor:
        """A_t⁻¹ of right-hand sides (N, k), each with the t that `column` (k,) names, to the relative tolerance.

        Raises:
            NumericalError: the most iterations did not suffice.
        """
        parts = [
            self._solve(some, which) for some, which in zip(right.split(BLOCK, 1), column.split(BLOCK), strict=True)
        ]
        return torch.cat(parts, 1)

    @cached_property
    def alpha(self) -> Tensor:
        """(N, T) A_t⁻¹ỹ_t."""
        return self.solve(self.y, torch.arange(len(self.noise)))

    @cached_property
    def stochastic(self) -> Stochastic:
        """What rests on the probes; the same probes for all columns, and for every system of the same rows."""
        probes = self.settings.probes
        generator = torch.Generator().manual_seed(self.settings.seed)
        epsilon = rademacher(len(self.y), probes, generator).to(self.y)
        each = [self.low_rank._replace(shift=shift) for shift in self.low_rank.shift]  # a column's own P
        start = torch.stack([power(p, epsilon, -0.5) for p in each])  # (T, N, p)
        right = torch.cat([power(p, epsilon, 0.5) for p in each], 1)  # (N, T·p)
        which = torch.arange(len(each)).repeat_interleave(probes)
        change = self.solve(right, which).unflatten(1, (len(each), probes)).movedim(1, 0) - start
        log_determinant = torch.stack(
            [self._log_determinant(p, noise, epsilon) for p, noise in zip(each, self.noise, strict=True)]
        )
        trace = torch.stack([(1 / (p.values + p.shift)).sum() + (len(self.y) - len(p.values)) / p.shift for p in each])
        return Stochastic(log_determinant, trace[:, None] + (change * start).sum(1), change, start)

    def _solve(self, right: Tensor, column: Tensor) -> Tensor:
        noise = self.noise[column]
        found = conjugate_gradients(
            lambda v: self.product(v) + noise * v,
            right,
            precondition=self.preconditioner(column),
            tolerance=self.settings.tolerance,
            iterations=self.settings.iterations,
        )
        if not found.converged:
            raise NumericalError(
                f"conjugate gradients left a residual of {float(found.residual.max()):.1e} of the right-hand side "
                f"after {self.settings.iterations} iterations; asked was {self.settings.tolerance:.1e}",
                hint="raise solver.iterations, rank, tolerance or floor (the least noise)",
            )
        return found.value

    def _log_determinant(self, p: LowRank, noise: Tensor, epsilon: Tensor) -> Tensor:
        """(p,) log|K̃ + σ²I| by the probes."""
        return stochastic_log_determinant(
            lambda v: self.product(v) + noise * v, epsilon, self.settings.steps, preconditioner=p
        )
