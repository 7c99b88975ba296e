"""Chevron matrices: lower triangular, with k dense leading columns and nothing but the diagonal in the others.

The Cholesky factor C of a posterior covariance Σ = CCᵀ with O(mk) numbers (Evans & Nair 2020, section 3; Challis &
Barber 2013). k = 0 is mean field, k = m any lower triangular matrix. Rows of C stand alone, so that products with
features go block by block, in the dtype of the features.

Shapes: m rows, k dense columns, N rows of features, |b| features in a block at the places `span`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class Chevron(NamedTuple):
    """C with C_{:,r} = dense_{:,r} for r < k and C_rr = diagonal_r for r ≥ k.

    Attributes:
        diagonal: (m,), whose first k numbers are not read: those of `dense` stand there.
        dense: (m, k), k ≤ m; what it holds above the diagonal is not read.

    Example:
        >>> c = Chevron(torch.tensor([9.0, 2.0, 3.0]), torch.tensor([[1.0], [4.0], [5.0]]))
        >>> c.matrix().tolist()
        [[1.0, 0.0, 0.0], [4.0, 2.0, 0.0], [5.0, 0.0, 3.0]]
        >>> phi = torch.tensor([[1.0, 1.0, 1.0]])
        >>> c.variance([(slice(0, 2), phi[:, :2]), (slice(2, 3), phi[:, 2:])]).tolist()  # 10² + 2² + 3²
        [113.0]
    """

    diagonal: Tensor
    dense: Tensor

    @property
    def columns(self) -> int:
        """k"""
        return self.dense.shape[1]

    def dense_rows(self, span: slice) -> Tensor:
        """(|b|, k): rows of the dense columns, with zeros above the diagonal."""
        rows = self.dense[span]
        return rows.tril(diagonal=span.start) if span.start < self.columns else rows

    def diagonal_rows(self, span: slice) -> Tensor:
        """(|b|,): C_rr for r ≥ k, and 0 for r < k, whose diagonal is in `dense_rows`."""
        own = self.diagonal[span]
        if span.start >= self.columns:
            return own
        return torch.where(torch.arange(span.start, span.stop, device=own.device) < self.columns, 0.0, own)

    def project(self, phi: Tensor, span: slice) -> Tensor:
        """(N, |b|) -> (N, k): Φ_b C_b,1:k; summed over the blocks it is ΦC in the dense columns."""
        return phi @ self.dense_rows(span).to(phi.dtype)

    def spread(self, phi: Tensor, span: slice) -> Tensor:
        """(N, |b|) -> (N,): Σ_{r ∈ b, r ≥ k} φ_r² c_rr², what the block's diagonal columns add to the variance."""
        return phi.square() @ self.diagonal_rows(span).square().to(phi.dtype)

    def variance(self, blocks: Iterable[tuple[slice, Tensor]]) -> Tensor:
        """‖Cᵀφ‖² = φᵀΣφ, the latent variance of every row; O(N m (k + 1)).

        Args:
            blocks: (span, (N, |b|) features) of every block, in any order; at least one.

        Returns:
            (N,)
        """
        dense, own = None, None
        for span, phi in blocks:
            ahead, beside = self.project(phi, span), self.spread(phi, span)
            dense, own = (ahead, beside) if dense is None or own is None else (dense + ahead, own + beside)
        if dense is None or own is None:
            raise ValueError("the variance of no blocks")
        return dense.square().sum(1) + own

    def transform(self, shared: Tensor, own: Tensor, span: slice) -> Tensor:
        """Rows of Cε: deviations of the weights of a block, where ε ~ N(0, I).

        Args:
            shared: (k, P) ε of the dense columns, the same for every block.
            own: (|b|, P) ε of the block; those of its places r < k are not read.

        Returns:
            (|b|, P)
        """
        return self.dense_rows(span) @ shared + self.diagonal_rows(span)[:, None] * own

    def log_determinant(self) -> Tensor:
        """(): log|Σ| = 2 Σ_r log|c_rr|; O(m)."""
        k = self.columns
        return 2.0 * (self.dense.diagonal().abs().log().sum() + self.diagonal[k:].abs().log().sum())

    def matrix(self) -> Tensor:
        """(m, m): C, dense."""
        everything = slice(0, len(self.diagonal))
        whole = torch.diag(self.diagonal_rows(everything))
        k = self.columns
        return torch.cat((self.dense_rows(everything), whole[:, k:]), 1)


def chevron(diagonal: Tensor, columns: int) -> Chevron:
    """The diagonal matrix as a chevron with k dense columns to be learned. diagonal: (m,).

    Example:
        >>> chevron(torch.tensor([1.0, 2.0, 3.0]), columns=2).matrix().diagonal().tolist()
        [1.0, 2.0, 3.0]
    """
    dense = diagonal.new_zeros(len(diagonal), columns)
    dense.diagonal().copy_(diagonal[:columns])
    return Chevron(diagonal, dense)
