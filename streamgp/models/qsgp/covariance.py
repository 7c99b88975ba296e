"""What a prediction's latent variance is computed from: families of covariances of the weights.

| name | Σ | numbers kept | a prediction |
|---|---|---|---|
| exact | A⁻¹ | m²/2 | O(m (W + m)) |
| none | 0: a point estimate | 0 | 0 |
| head | of the first block, standing for all | m̃²/2 | O(m̃ (W + m̃)) |
| diagonal | 1/A_rr (Evans & Nair 2020, proposition 1) | m | O(m W) |
| block | A_bb⁻¹ | m m̃ | O(m (W + m̃)) |
| chevron | k dense columns and a diagonal, of the rows at the last rebuild or epoch | m (k + 1) | O(m (W + k)) |

A = ΦᵀWΦ/σ² + S. Diagonals and blocks follow every visit to a block from its factor LLᵀ = σ²A_bb. Where blocks are many
their variance grows towards the prior's, since none knows what the others have learned. Inducing functions are
augmented at the test point (proposition 4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.features.inducing import augmentation
from streamgp.linalg.chevron import Chevron
from streamgp.models.qsgp.features import Basis
from streamgp.models.qsgp.head import Head
from streamgp.optim.block_covariance import BlockCovariance, chevron_covariance, chevron_variance
from streamgp.optim.block_rows import Rows
from streamgp.optim.block_solver import BlockSolver


class Covariance(nn.Module, ABC):
    """Σ of the weights, one for all columns.

    Args:
        solver: whose weights they are.
        head: of its basis.

    Attributes:
        follows: whether `follow` looks at factors.
    """

    follows: bool = False

    def __init__(self, solver: BlockSolver, basis: Basis, head: Head) -> None:
        super().__init__()
        self._shared = (solver, basis, head)  # no submodules: their state is with the engine

    def begin(self) -> None:
        """Nothing is known of the weights but their prior."""

    def follow(self, block: int, factor: Tensor) -> None:
        """A block was visited with this factor, chol(σ²A_bb)."""

    def refresh(self, rows: Rows) -> None:
        """A sweep over these rows is over."""

    @abstractmethod
    def variance(self, z: Tensor, rows: Tensor) -> Tensor:
        """(N, W) -> (N,) latent. rows: () how many were learned, times their information on f in units of 1/σ²."""


class NoCovariance(Covariance):
    """Σ = 0, except before anything is learned."""

    def variance(self, z: Tensor, rows: Tensor) -> Tensor:
        _, basis, _ = self._shared
        return basis.prior_variance(z) if not bool(rows > 0) else z.new_zeros(len(z))


class HeadCovariance(Covariance):
    """From sums over rows: that of all blocks, or of the first, see `head`."""

    def variance(self, z: Tensor, rows: Tensor) -> Tensor:
        return self._shared[2].variance(z)


class _Whole(Covariance):
    """A family over all features."""

    def variance(self, z: Tensor, rows: Tensor) -> Tensor:
        solver, basis, _ = self._shared
        if not bool(rows > 0):
            return basis.prior_variance(z)
        known = self._known(basis, z)
        if basis.diagonal_precision:
            return known
        norm = z.new_zeros(len(z))
        for b in range(basis.inner.blocks):
            norm += basis.inner.block(z, b).square().sum(1)
        norm *= rows / basis.inner.size
        return known + augmentation(basis.inner.prior_variance(z), norm, solver.variance[None])[:, 0]

    @abstractmethod
    def _known(self, basis: Basis, z: Tensor) -> Tensor:
        """(N,) φᵀΣφ."""


class BlocksCovariance(_Whole):
    """Σ_b = (L_bL_bᵀ)⁻¹, in the precision of the solver's features."""

    follows = True

    def __init__(self, solver: BlockSolver, basis: Basis, head: Head) -> None:
        super().__init__(solver, basis, head)
        width = min(basis.width, basis.capacity)
        count = max(-(-(basis.capacity - basis.extra) // basis.inner.width), 1)
        self.factors: Tensor
        self.register_buffer("factors", torch.eye(width, dtype=solver.dtype).repeat(count, 1, 1))

    def begin(self) -> None:
        self.factors.copy_(torch.eye(self.factors.shape[1], dtype=self.factors.dtype))

    def follow(self, block: int, factor: Tensor) -> None:
        size = len(factor)
        own = self.factors[block]
        own.copy_(torch.eye(len(own), dtype=own.dtype))
        own[:size, :size] = factor.tril() / self._shared[0].variance.sqrt().to(factor.dtype)

    def _known(self, basis: Basis, z: Tensor) -> Tensor:
        return BlockCovariance(self.factors).variance(basis, z)


class DiagonalCovariance(_Whole):
    """Σ_rr = 1/A_rr, from A_rr = Σ_j L_rj²/σ²."""

    follows = True

    def __init__(self, solver: BlockSolver, basis: Basis, head: Head) -> None:
        super().__init__(solver, basis, head)
        self.deviation: Tensor
        self.register_buffer("deviation", torch.ones(basis.capacity, dtype=FLOAT))

    def begin(self) -> None:
        self.deviation.fill_(1.0)

    def follow(self, block: int, factor: Tensor) -> None:
        solver, basis, _ = self._shared
        precision = factor.tril().to(FLOAT).square().sum(1)
        self.deviation[basis.span(block)] = (solver.variance / precision).sqrt()

    def _known(self, basis: Basis, z: Tensor) -> Tensor:
        own = self.deviation[: basis.size]
        return chevron_variance(Chevron(own, own.new_zeros(len(own), 0)), basis, z)


class ChevronCovariance(_Whole):
    """k dense columns in closed form, made again of all features after every sweep: O(R m² + m³)."""

    def __init__(self, solver: BlockSolver, basis: Basis, head: Head, columns: int) -> None:
        super().__init__(solver, basis, head)
        self.columns = columns
        self.deviation: Tensor
        self.dense: Tensor
        self.register_buffer("deviation", torch.ones(basis.capacity, dtype=FLOAT))
        self.register_buffer("dense", torch.zeros(basis.capacity, columns, dtype=FLOAT))

    def refresh(self, rows: Rows) -> None:
        solver, basis, _ = self._shared
        found = chevron_covariance(solver, rows, min(self.columns, basis.size))
        self.deviation[: basis.size] = found.diagonal
        self.dense.zero_()
        self.dense[: basis.size, : found.columns] = found.dense

    def _known(self, basis: Basis, z: Tensor) -> Tensor:
        size = basis.size
        return chevron_variance(Chevron(self.deviation[:size], self.dense[:size, : min(self.columns, size)]), basis, z)
