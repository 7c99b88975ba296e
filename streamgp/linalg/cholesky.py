"""Cholesky factors with a jitter that grows, and that can be extended by new rows.

The policy, for every positive definite matrix of this package: add 1e-8 of the mean diagonal, multiply by ten while the
factorisation fails, stop after 1e-4 with `NotPositiveDefinite`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.errors import NotPositiveDefinite

FIRST = 1e-8
LAST = 1e-4


class Factor(NamedTuple):
    """A lower triangular factor of matrix + jitter · I.

    Attributes:
        lower: (..., M, M)
        jitter: what was added to the diagonal, in the units of the matrix; the largest of a batch.
    """

    lower: Tensor
    jitter: float


def cholesky(matrix: Tensor, *, first: float = FIRST) -> Factor:
    """Factorise a positive definite matrix, with as little jitter as is needed.

    Args:
        matrix: (..., M, M), symmetric, float64; only the lower triangle is read.
        first: the first jitter, relative to the mean diagonal; 0.0 for matrices that are positive definite by
            construction, such as I + AᵀA, which are then factorised as they are if they can be.

    Raises:
        NotPositiveDefinite: the factorisation failed at a jitter of 1e-4, or the matrix is not finite.

    Example:
        >>> gram = torch.ones(2, 2, dtype=torch.float64)  # the same point twice
        >>> factor = cholesky(gram)
        >>> factor.jitter, torch.allclose(factor.lower @ factor.lower.T, gram, atol=1e-7)
        (1e-08, True)
    """
    size = matrix.shape[-1]
    if size == 0:
        return Factor(matrix, 0.0)
    scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1).detach()
    if not bool(torch.isfinite(scale).all()):
        raise NotPositiveDefinite(
            f"a {size} x {size} matrix to be factorised holds NaN or infinity",
            hint="look for infinite or huge values in the inputs, or lower the step size",
        )
    relative = first
    while True:
        shifted = matrix
        if relative:
            eye = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
            shifted = matrix + (relative * scale)[..., None, None] * eye
        upper, failed = torch.linalg.cholesky_ex(shifted.mT, upper=True)  # LAPACK's is column-major, and so
        if not bool(failed.any()) and bool(torch.isfinite(upper.diagonal(dim1=-2, dim2=-1)).all()):
            # its transpose row-major, as a checkpoint gives it back: BLAS may round otherwise for another layout
            return Factor(upper.mT.contiguous(), float((relative * scale).max()))
        if relative > 0.5 * LAST:
            raise NotPositiveDefinite(
                f"a {size} x {size} matrix is not positive definite, even with a jitter of {LAST:g} of its diagonal",
                hint="use fewer or more distinct basis points, shorter lengthscales, or more noise",
            )
        relative = FIRST if relative == 0.0 else 10.0 * relative


def append(factor: Factor, cross: Tensor, corner: Tensor) -> Factor:
    """The factor of [[A, C], [Cᵀ, D]] from the factor of A: the old rows stay bit for bit as they are.

    With A + jI = LLᵀ and W = L⁻¹C the new rows are [Wᵀ, chol(D + jI − WᵀW)]; O(M² k + k³) for k new rows. The new
    corner is factorised by the same policy, starting from the jitter of the old rows.

    Args:
        factor: of A, (M, M).
        cross: (M, k), C.
        corner: (k, k), D.

    Raises:
        NotPositiveDefinite: the new rows depend on the old ones beyond a jitter of 1e-4.

    Example:
        >>> a = torch.tensor([[4.0, 2.0], [2.0, 3.0]], dtype=torch.float64)
        >>> grown = append(cholesky(a[:1, :1]), a[:1, 1:], a[1:, 1:])
        >>> torch.allclose(grown.lower, cholesky(a).lower, atol=1e-7)
        True
    """
    if factor.lower.shape[-1] == 0:
        return cholesky(corner)
    half = whiten(factor.lower, cross)
    mean = float(corner.diagonal().mean())
    eye = torch.eye(corner.shape[0], dtype=corner.dtype, device=corner.device)
    relative = max(FIRST, factor.jitter / mean)
    while True:
        lower, failed = torch.linalg.cholesky_ex(corner + relative * mean * eye - half.T @ half)
        if not bool(failed.any()):
            break
        if relative > 0.5 * LAST:
            raise NotPositiveDefinite(
                f"{corner.shape[0]} new rows depend on the {factor.lower.shape[0]} rows of a Cholesky factor",
                hint="append fewer or more distinct basis points",
            )
        relative *= 10.0
    zero = torch.zeros(factor.lower.shape[0], corner.shape[0], dtype=corner.dtype, device=corner.device)
    grown = torch.cat((torch.cat((factor.lower, zero), 1), torch.cat((half.T, lower), 1)), 0)
    return Factor(grown, max(factor.jitter, relative * mean))


def whiten(lower: Tensor, right: Tensor) -> Tensor:
    """(..., M, M), (..., M, k) -> (..., M, k): L⁻¹ right."""
    out: Tensor = torch.linalg.solve_triangular(lower, right, upper=False)
    return out


def whiten_(lower: Tensor, right: Tensor) -> Tensor:
    """`whiten` in the memory of `right` (M, k), of which the columns lie one after another."""
    out: Tensor = torch.linalg.solve_triangular(lower, right, upper=False, out=right)
    return out


def solve(lower: Tensor, right: Tensor) -> Tensor:
    """(..., M, M), (..., M, k) -> (..., M, k): (LLᵀ)⁻¹ right."""
    out: Tensor = torch.linalg.solve_triangular(lower.mT, whiten(lower, right), upper=True)
    return out


def inverse_root(lower: Tensor) -> Tensor:
    """(M, M) the upper triangular R = L⁻ᵀ, of which (LLᵀ)⁻¹ = RRᵀ.

    Example:
        >>> inverse_root(torch.tensor([[2.0, 0.0], [1.0, 0.5]]))
        tensor([[ 0.5000, -1.0000],
                [ 0.0000,  2.0000]])
    """
    eye = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
    return whiten(lower, eye).T.contiguous()


def log_determinant(lower: Tensor) -> Tensor:
    """(..., M, M) -> (...): log |LLᵀ|."""
    return lower.diagonal(dim1=-2, dim2=-1).square().log().sum(-1)
