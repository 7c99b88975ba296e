"""Covariances of weights from the blocks of the system that gives their mean.

q(w_t) = N(μ_t, Σ), one Σ for all columns. With A = ΦᵀWΦ/σ² + S, 1/σ² = mean_t 1/σ_t², the part of −2 ELBO a column that
depends on Σ is tr(AΣ) − log|Σ|. In each family it has its optimum in closed form, whatever μ is:

| Σ | optimum | numbers kept | a prediction |
|---|---|---|---|
| diagonal (`diagonal_covariance`) | 1/A_rr (Evans & Nair 2020, proposition 1) | m | O(m W) |
| block-diagonal (`block_covariance`, ours) | A_bb⁻¹ | m m̃ | O(m (W + m̃)) |
| chevron (`chevron_covariance`) | c_r = A_rr⁻¹e₁/√(e₁ᵀA_rr⁻¹e₁), k columns | m (k + 1) | O(m (W + k)) |

tr(A Σ) for a block-diagonal Σ = ⊕ Σ_b is Σ_b tr(A_bb Σ_b), and tr(A_bb Σ_b) − log|Σ_b| is least at A_bb⁻¹.

A block does not know what the others have learned: at a given m̃ the variance of f grows with m towards the prior's.
No variance here has the noise of an observation, and none needs the data once it is made.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.features import Features
from streamgp.linalg.chevron import Chevron
from streamgp.linalg.cholesky import log_determinant, whiten
from streamgp.objectives.quadruple import dense_optimum, diagonal_optimum
from streamgp.optim.block_rows import Rows
from streamgp.optim.block_solver import BlockSolver


class BlockCovariance(NamedTuple):
    """Σ = ⊕_b (L_bL_bᵀ)⁻¹.

    Attributes:
        factors: (B, m̃, m̃) L_b, lower triangular; the last block's is filled up with the identity.
    """

    factors: Tensor

    @torch.no_grad()
    def variance(self, features: Features, x: Tensor) -> Tensor:
        """(N, W) -> (N,): φᵀΣφ, in the dtype of x; O(N m (W + m̃))."""
        total = x.new_zeros(len(x))
        for b in range(features.blocks):
            phi = features.block(x, b)
            size = phi.shape[1]
            total += whiten(self.factors[b, :size, :size].to(phi.dtype), phi.mT).square().sum(0)
        return total

    def log_determinant(self) -> Tensor:
        """() log|Σ|"""
        return -log_determinant(self.factors.to(FLOAT)).sum()


@torch.no_grad()
def chevron_variance(covariance: Chevron, features: Features, x: Tensor) -> Tensor:
    """(N, W) -> (N,): φᵀΣφ with Σ = CCᵀ, a diagonal one included, in the dtype of x; O(N m (W + k))."""
    return covariance.variance((span, features.block(x, b)) for b, span in enumerate(features.spans()))


@torch.no_grad()
def diagonal_covariance(solver: BlockSolver, rows: Rows) -> Chevron:
    """The best diagonal Σ, as a chevron without dense columns: c_rr = (Σ_ℓ w_ℓφ_ℓr²/σ² + s_rr)^−½ (proposition 1).

    O(R m W), or O(R m) where features are cached.

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), dims=1)
        >>> solver = BlockSolver(fourier.build(fourier.Config(size=4, width=2), kernel), columns=1).begin(0.5)
        >>> at_zero = torch.zeros(3, 1, dtype=torch.float64)  # squares ½ and 0
        >>> c = diagonal_covariance(solver, solver.rows(at_zero, at_zero))
        >>> [round(v, 6) for v in c.diagonal.square().tolist()]  # 1/(3·½/½ + 1) and 1
        [0.25, 1.0, 0.25, 1.0]
    """
    squares, precisions = [], []
    weight = rows.shared(solver.noise)
    for b in range(solver.features.blocks):
        phi = solver.features_of(rows, b)
        squares.append((weight.to(phi.dtype) @ phi.square()).to(FLOAT))
        precisions.append(solver.prior.diagonal(b))
    entries = diagonal_optimum(torch.cat(squares), torch.cat(precisions), 1.0 / solver.variance)
    return Chevron(entries, entries.new_zeros(len(entries), 0))


@torch.no_grad()
def block_covariance(solver: BlockSolver, rows: Rows) -> BlockCovariance:
    """The best block-diagonal Σ, (Φ_bᵀWΦ_b/σ² + S_bb)⁻¹ in every block, in the dtype of the solver's features.

    Gram matrices are made of as many rows as the solver's are (`BlockConfig.gram_rows`); its factors are taken where it
    has kept some of these weights and this σ²: O(m m̃), else O(m m̃²), or O(R m m̃) with all rows. With p rows instead of
    all, each standing for R/p, the variance is larger, about p/(p − m̃) times where the data decide about all weights.

    Raises:
        NotPositiveDefinite: features or weights are not finite.
    """
    features, root = solver.features, solver.variance.sqrt()
    eye = torch.eye(features.width, dtype=solver.dtype, device=solver.mu.device)
    out = eye.expand(features.blocks, -1, -1).clone()
    for b in range(features.blocks):
        factor = solver.factor(b, rows, current=True)
        out[b, : len(factor), : len(factor)] = factor / root.to(factor.dtype)
    return BlockCovariance(out)


@torch.no_grad()
def chevron_covariance(solver: BlockSolver, rows: Rows, columns: int) -> Chevron:
    """The best chevron with k dense columns; k = m is the exact posterior.

    For small m: the whole A is made and factorised, O(R m² + m³) and m² numbers.

    Args:
        columns: k ≤ m.

    Raises:
        NotPositiveDefinite: A is not.
    """
    features = solver.features
    weight = rows.shared(solver.noise).sqrt()[:, None]
    matrix = torch.zeros(features.size, features.size, dtype=FLOAT, device=solver.mu.device)
    for i, here in enumerate(features.spans()):
        left = features.block(rows.x, i).to(FLOAT) * weight
        for j, there in enumerate(features.spans()):
            if j > i:
                break
            right = left if i == j else features.block(rows.x, j).to(FLOAT) * weight
            matrix[here, there] = left.mT @ right / solver.variance + solver.prior.block(i, j)
            if j < i:
                matrix[there, here] = matrix[here, there].mT
    entries = diagonal_optimum(matrix.diagonal(), torch.zeros_like(matrix.diagonal()), 1.0)
    return Chevron(entries, dense_optimum(matrix, columns))


@torch.no_grad()
def negative_elbo(solver: BlockSolver, rows: Rows, covariance: Chevron | BlockCovariance) -> float:
    """−ELBO a row and column for the best Σ of its family: there tr(AΣ) = m, which −m in the prior's part cancels.

    ½ [mean_t(rᵀWr/σ_t² + μᵀSμ + n_t log 2πσ_t²) − log|Σ| − log|S|]/n, n = mean_t n_t. For a Σ of some of the rows it is
    an estimate. O(m), and where S is dense O(m³).
    """
    total = rows.total()
    fit = solver.energy(rows) / solver.noise + total * (2.0 * torch.pi * solver.noise).log()
    own = fit.mean() - covariance.log_determinant() - solver.prior.log_determinant()
    return float(0.5 * own / total.mean())
