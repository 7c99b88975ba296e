"""Products of many small matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

LARGEST, THIN = 2**18, 9 * 2**10
"""Multiplications of one of the products, and of one with a vector, up to which NumPy's BLAS wakes no other cores."""
BLOCK = 128
"""Rows of symmetric products that are computed at a time, up to the diagonal."""
INVERTED = 32
"""Columns up to which factors are inverted for `energy`: products cost half of so small solves."""


def product(a: Tensor, b: Tensor) -> Tensor:
    """(K, M, D) @ (K, D, N) -> (K, M, N).

    On the CPU by NumPy, whose OpenBLAS takes half of the time of torch's MKL for matrices of 25 columns on a processor
    of AMD's, and a fifth for vectors. Nothing is differentiated. The numbers of a
    model do not depend on how many others there are, so that a fleet in parts has those of one in one piece.

    Example:
        >>> product(torch.ones(2, 3, 4), torch.ones(2, 4, 1))[1, :, 0].tolist()
        [4.0, 4.0, 4.0]
    """
    most = THIN if 1 in (a.shape[-2], b.shape[-1]) else LARGEST
    if a.is_cuda or a.shape[-2] * a.shape[-1] * b.shape[-1] > most:
        return a @ b
    return torch.from_numpy(np.matmul(a.numpy(), b.numpy()))


def energy(factor: Tensor, u: Tensor) -> Tensor:
    """(K, W, W) lower Cholesky factors L of A, and u (K, N, W) -> (K, N, 1) uᵀA⁻¹u.

    Example:
        >>> [round(value, 6) for value in energy(2.0 * torch.eye(2)[None], torch.ones(1, 3, 2)).flatten().tolist()]
        [0.5, 0.5, 0.5]
    """
    if factor.shape[-1] <= INVERTED:
        identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device).expand_as(factor)
        half = product(u, torch.linalg.solve_triangular(factor, identity, upper=False).mT)
        size: Tensor = torch.linalg.vector_norm(half, dim=-1, keepdim=True)
        return size.square()
    solved: Tensor = torch.linalg.solve_triangular(factor, u.mT, upper=False)  # (K, W, N)
    return solved.square().sum(-2)[..., None]


def add_gram(outer: Tensor, left: Tensor, right: Tensor) -> None:
    """Add LᵀR, which is symmetric, to matrices (K, P, P) in place, below the diagonal at least.

    Rows are computed in blocks, up to the diagonal: for half of the products where P is large.

    Args:
        outer: (K, P, P)
        left, right: (K, N, P) L and R.

    Example:
        >>> outer = torch.zeros(1, 2, 2)
        >>> add_gram(outer, torch.ones(1, 3, 2), torch.ones(1, 3, 2))
        >>> outer[0].tril().tolist()
        [[3.0, 0.0], [3.0, 3.0]]
    """
    for start in range(0, outer.shape[1], BLOCK):
        stop = min(start + BLOCK, outer.shape[1])
        outer[:, start:stop, :stop].baddbmm_(left[:, :, start:stop].mT, right[:, :, :stop])


def decayed(old: Tensor, kept: Sequence[float], new: Tensor, some: Sequence[int]) -> Tensor:
    """(K', ...) old · kept + new of some of K models: one after the other, so that each has the bits that it would have
    alone.

    Args:
        old, new: (K, ...).
        kept: (K',) of each of those.
        some: (K',) which.

    Example:
        >>> decayed(torch.ones(3, 2), [0.5], torch.ones(3, 2), [1]).tolist()
        [[1.5, 1.5]]
    """
    found = new.new_empty(len(some), *new.shape[1:])
    for to, k, share in zip(found, some, kept, strict=True):
        torch.add(new[k], old[k], alpha=share, out=to)
    return found


def halved(outer: Tensor) -> Tensor:
    """(K, P, P) -> (K, P(P + 1)/2) the lower triangles, row by row."""
    rows, columns = torch.tril_indices(*outer.shape[1:], device=outer.device)
    return outer[:, rows, columns]


def whole(half: Tensor, size: int) -> Tensor:
    """The inverse of `halved`, for P = size."""
    rows, columns = torch.tril_indices(size, size, device=half.device)
    found = half.new_zeros(len(half), size, size)
    found[:, rows, columns] = half
    found[:, columns, rows] = half
    return found
