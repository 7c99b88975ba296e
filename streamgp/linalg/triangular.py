"""Triangular roots L of LLᵀ = ZᵀZ, updated by rows of Z without ever forming ZᵀZ.

The root of [Z; z] is that of a QR factorisation of [Lᵀ; z], whose upper part is triangular already: Householder
reflections that use it cost 2 b M² for b rows (LAPACK's `tpqrt`; Golub & Van Loan 2013, section 6.5; Lawson & Hanson
1974, chapter 27). The condition number of L is that of Z, where that of ZᵀZ is its square: with a condition of 1e8 the
products have no digit left and the root has eight.

A root is unique up to the signs of its columns, and these signs are not made positive.
"""

from __future__ import annotations

import torch
from scipy.linalg import lapack
from torch import Tensor

_BLOCK = 32
"""Columns that LAPACK reflects at once."""


def absorb(lower: Tensor, rows: Tensor, *, in_place: bool = False) -> Tensor:
    """The root of LLᵀ + zᵀz.

    On the CPU O(b M²) by `tpqrt`, on other devices O((M + b) M²) by a whole QR factorisation.

    Args:
        lower: (M, M) L, lower triangular, float64, row-major.
        rows: (b, M) z.
        in_place: overwrite L; on the CPU that spares a copy.

    Returns:
        (M, M) lower triangular, row-major; zeros above.

    Example:
        >>> z = torch.tensor([[3.0, 1.0], [4.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
        >>> root = absorb(absorb(torch.zeros(2, 2, dtype=torch.float64), z[:2]), z[2:])
        >>> torch.allclose(root @ root.T, z.T @ z)
        True
    """
    if not len(rows):
        return lower if in_place else lower.clone()
    if lower.device.type != "cpu":
        found: Tensor = torch.linalg.qr(torch.cat((lower.T, rows)), mode="r").R.T.contiguous()
        return lower.copy_(found) if in_place else found
    return _reflected(lower, rows.T.contiguous().T, 0, in_place)


def shifted(lower: Tensor, shift: float, size: int) -> Tensor:
    """The root of LLᵀ + shift · diag(1, …, 1, 0, …, 0), with `size` ones: O(M³).

    Args:
        lower: (M, M) L, lower triangular, float64, row-major.
        shift: at least 0.
        size: of the leading block that it is added to, at most M.

    Example:
        >>> root = shifted(torch.diag(torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)), 16.0, 1)
        >>> (root @ root.T).diagonal().tolist()
        [25.0, 4.0, 1.0]
    """
    rows = torch.zeros(len(lower), size, dtype=lower.dtype, device=lower.device)
    rows.fill_diagonal_(shift**0.5)
    if lower.device.type != "cpu":
        return absorb(lower, rows.T)
    return _reflected(lower, rows.T, size, False)


def _reflected(lower: Tensor, rows: Tensor, triangular: int, in_place: bool) -> Tensor:
    """`tpqrt` of [Lᵀ; rows], whose last `triangular` rows are upper trapezoidal; both are column-major as LAPACK's."""
    upper, _, _, failed = lapack.dtpqrt(
        triangular, min(_BLOCK, len(lower)), lower.numpy().T, rows.numpy(), overwrite_a=in_place
    )
    assert not failed, f"argument {-failed} of tpqrt"
    found = torch.from_numpy(upper.T)
    if not in_place:
        return found
    return lower if found.data_ptr() == lower.data_ptr() else lower.copy_(found)
