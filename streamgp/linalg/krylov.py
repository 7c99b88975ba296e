"""Linear algebra with a matrix that is known by its products: conjugate gradients with a low-rank preconditioner.

A is symmetric positive definite, N × N; `product` maps (N, k) to A times it. Columns are worked on side by side, and a
product may treat each column by a matrix of its own (another σ² a column, say); a preconditioner likewise.
The preconditioner of K + σ²I is made of a few columns of K: pivoted Cholesky and Woodbury's identity (Gardner et al.
2018, section 4.1), kept by the eigenvectors of its low-rank part. Everything here runs without a graph. Where a run
does not end well it says so in what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

Product: TypeAlias = Callable[[Tensor], Tensor]
"""(N, k) -> (N, k)"""


class CgSolution(NamedTuple):
    """What conjugate gradients found.

    Attributes:
        value: (N, k)
        iterations: (k,) until the column was within the tolerance, or the most allowed.
        residual: (k,) ‖b − Ax‖/‖b‖ by the recurrence; 0 for a right-hand side of 0.
        converged: whether every column is within the tolerance.
    """

    value: Tensor
    iterations: Tensor
    residual: Tensor
    converged: bool


@torch.no_grad()
def conjugate_gradients(
    product: Product,
    right: Tensor,
    *,
    precondition: Product | None = None,
    tolerance: float = 1e-8,
    iterations: int = 1000,
) -> CgSolution:
    """Solve A X = B by preconditioned conjugate gradients (Golub & Van Loan 2013, algorithm 11.5.1), columns apart.

    A column stops by itself; its later steps have length 0. In exact arithmetic at most N steps are needed.

    Args:
        product: A.
        right: (N, k), B.
        precondition: P⁻¹ for a P near A; none is the identity.
        tolerance: on the residual, relative to the norm of the right-hand side.
        iterations: the most steps; where they do not suffice, `converged` is False.

    Example:
        >>> a, b = torch.tensor([[4.0, 1.0], [1.0, 3.0]]).double(), torch.tensor([[1.0], [2.0]]).double()
        >>> found = conjugate_gradients(lambda v: a @ v, b)
        >>> found.value.T.round(decimals=6).tolist(), found.iterations.tolist(), found.converged
        ([[0.090909, 0.636364]], [2], True)
    """
    solve = precondition or torch.clone
    x, residual = torch.zeros_like(right), right.clone()
    norm = right.norm(dim=0)  # (k,)
    scale = torch.where(norm > 0, norm, 1.0)
    count = torch.zeros(right.shape[1], dtype=torch.int64)
    z = solve(residual)
    direction, rho = z.clone(), (residual * z).sum(0)
    relative = residual.norm(dim=0) / scale
    for _ in range(iterations):
        active = relative > tolerance
        if not bool(active.any()):
            break
        moved = product(direction)
        curvature = (direction * moved).sum(0)
        length = torch.where(active & (curvature > 0), rho / curvature, 0.0)
        x += length * direction
        residual -= length * moved
        z = solve(residual)
        fresh = (residual * z).sum(0)
        direction = z + torch.where(active & (rho > 0), fresh / rho, 0.0) * direction
        rho = torch.where(active, fresh, rho)
        relative = residual.norm(dim=0) / scale
        count += active.cpu()
    return CgSolution(x, count, relative, bool((relative <= tolerance).all()))


class LowRank(NamedTuple):
    """P = U diag(λ) Uᵀ + σ²I with orthonormal U, solved at O(N r) a column.

    Attributes:
        vectors: (N, r), U.
        values: (r,), λ ≥ 0.
        shift: (), or (k,) one a column that it will be applied to: σ² > 0.

    Example:
        >>> p = LowRank.of(torch.tensor([[2.0], [0.0]]).double(), torch.tensor(1.0).double())
        >>> p.solve(torch.ones(2, 1).double()).T  # P = diag(5, 1)
        tensor([[0.2000, 1.0000]], dtype=torch.float64)
    """

    vectors: Tensor
    values: Tensor
    shift: Tensor

    @classmethod
    def of(cls, factor: Tensor, shift: Tensor) -> LowRank:
        """P = LLᵀ + σ²I from L (N, r)."""
        q, r = torch.linalg.qr(factor)
        left, singular, _ = torch.linalg.svd(r)
        return cls(q @ left, singular.square(), shift)

    def solve(self, v: Tensor) -> Tensor:
        """(N, k) -> (N, k): P⁻¹v = v/σ² + U [(λ + σ²)⁻¹ − σ⁻²] Uᵀv, which is Woodbury's identity."""
        rest = 1.0 / self.shift.reshape(1, -1)  # (1, k or 1)
        scale = 1.0 / (self.values[:, None] + self.shift.reshape(1, -1)) - rest  # (r, k or 1)
        return rest * v + self.vectors @ (scale * (self.vectors.T @ v))


@torch.no_grad()
def pivoted_cholesky(column: Callable[[int], Tensor], diagonal: Tensor, rank: int, *, tolerance: float = 0.0) -> Tensor:
    """L (N, r), r ≤ rank, with LLᵀ near a positive semi-definite K, from r of its columns.

    Pivoted Cholesky (Harbrecht, Peters & Schneider 2012, algorithm 1): each step takes the row whose remaining
    variance is the largest. K − LLᵀ stays positive semi-definite, and its trace falls exponentially where the
    eigenvalues fall fast enough; that makes LLᵀ + σ²I a good preconditioner of K + σ²I (Gardner et al. 2018, section
    4.1).

    Args:
        column: row number -> (N,), a column of K.
        diagonal: (N,), of K.
        rank: the most columns.
        tolerance: stop when no remaining variance exceeds it, in the units of K.

    Example:
        >>> k = torch.tensor([[4.0, 2.0], [2.0, 1.0]]).double()  # rank 1
        >>> pivoted_cholesky(lambda i: k[i], k.diagonal(), 2).T
        tensor([[2., 1.]], dtype=torch.float64)
    """
    rank = min(rank, len(diagonal))
    rest, limit = diagonal.clone(), max(tolerance, 1e-14 * float(diagonal.max())) if len(diagonal) else 0.0
    factor = diagonal.new_zeros(len(diagonal), rank)
    for step in range(rank):
        pivot = int(rest.argmax())
        left = float(rest[pivot])
        if left <= limit:
            return factor[:, :step].contiguous()
        known = factor[:, :step]
        fresh = (column(pivot) - known @ known[pivot]) / left**0.5
        factor[:, step] = fresh
        rest = (rest - fresh.square()).clamp(min=0.0)
        rest[pivot] = 0.0
    return factor
