"""A low-rank factor of a grid's covariance, and the contraction of a grid matrix with Toeplitz structure."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from streamgp.errors import NotPositiveDefinite
from streamgp.linalg import toeplitz
from streamgp.linalg.interpolate import kronecker

_NOTHING = 1e-7
"""Part of what may be lost by which no pair is kept: with `lost` = 0.01 σ², the NLML changes by 5e-10 a row at most."""


def eigenbasis(terms: Sequence[Sequence[Tensor]], rank: int, lost: float) -> Tensor:
    """B (m, r) of K_UU = Σ_p T_p1 ⊗ … ⊗ T_pd ≈ BBᵀ, the r largest eigenpairs of the terms scaled by their roots.

    Every T is a small eigenproblem, O(Σ m_d³). The terms' bases stand side by side, [B_1 …], so that r counts
    the pairs of all terms together. What is cut off lowers the prior variance of a row w by at most ‖w‖² times the sum
    over terms of the largest eigenvalue cut, and by nothing else; r is raised beyond `rank` until that sum is at most
    `lost`. Where r would reach m with several terms, one dense eigenproblem O(m³) replaces them. Pairs
    below the rounding of the largest, or below 1e-7 of `lost`, are left out: they change nothing that can be seen.

    Args:
        terms: first columns, one (m_d,) a dimension and term, as `Kernel.grid_terms` gives them, without graph.
        rank: pairs to keep, unless more are needed.
        lost: prior variance that may be lost to the truncation, for ‖w‖ = 1.

    Raises:
        NotPositiveDefinite: a column is not finite.

    Example:
        >>> column = torch.exp(-torch.arange(5.0, dtype=torch.float64))
        >>> basis = eigenbasis([[column]], rank=5, lost=0.0)
        >>> torch.allclose(basis @ basis.T, toeplitz.matrix(column))
        True
    """
    if not all(bool(torch.isfinite(column).all()) for term in terms for column in term):
        raise NotPositiveDefinite(
            "the covariance of the grid holds NaN or infinity", hint="lower the step size of the hyper-parameters"
        )
    pairs = [[torch.linalg.eigh(toeplitz.matrix(column)) for column in term] for term in terms]
    values = torch.stack([_outer([pair.eigenvalues for pair in term]) for term in pairs])  # (P, m)
    kept = _kept(values, rank, lost)
    size = values.shape[1]
    if len(terms) > 1 and len(kept) >= size:
        dense = torch.stack([kronecker([toeplitz.matrix(column) for column in term]) for term in terms]).sum(0)
        eigenvalues, eigenvectors = torch.linalg.eigh(dense)
        own = _kept(eigenvalues[None], rank, lost)
        full: Tensor = eigenvectors[:, own] * eigenvalues[own].sqrt()
        return full
    shape = [len(column) for column in terms[0]]
    parts = []
    for number, term in enumerate(pairs):
        own = kept[kept // size == number] % size
        basis = values[number, own].sqrt()[None]  # (1, r), grown by one dimension at a time
        for at, pair in zip(torch.unravel_index(own, shape), term, strict=True):
            basis = (basis[:, None] * pair.eigenvectors[:, at]).flatten(0, 1)
        parts.append(basis)
    return torch.cat(parts, 1).contiguous()


def fold(matrix: Tensor, shape: Sequence[int]) -> Tensor:
    """(m, m) -> (m_1, …, m_d): R[o], the sum of matrix[i, j] over points with |i_k − j_k| = o_k in every k.

    So that ⟨matrix, T_1 ⊗ … ⊗ T_d⟩ = Σ_o R[o] Π_k t_k[o_k] for symmetric Toeplitz T_k with first columns t_k: all that
    a gradient in the hyper-parameters needs of an m × m matrix are m numbers. One dimension at a time, O(m²).

    Example:
        >>> fold(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), [2]).tolist()
        [5.0, 5.0]
    """
    rest = matrix[None]  # (offsets done, points left, points left)
    for size in shape:
        outer, inner = rest.shape[0], rest.shape[1] // size
        moved = rest.reshape(outer, size, inner, size, inner).permute(1, 3, 0, 2, 4).reshape(size * size, -1)
        at = torch.arange(size, device=matrix.device)
        out = torch.zeros(size, moved.shape[1], dtype=matrix.dtype, device=matrix.device)
        out.index_add_(0, (at[:, None] - at).abs().flatten(), moved)
        rest = out.reshape(size, outer, inner, inner).transpose(0, 1).reshape(outer * size, inner, inner)
    return rest.reshape(*shape)


def contract(folded: Tensor, terms: Sequence[Sequence[Tensor]]) -> Tensor:
    """() Σ_p ⟨matrix, T_p1 ⊗ … ⊗ T_pd⟩ from `fold`'s answer; differentiable in the columns; O(P m).

    Example:
        >>> matrix, column = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, 0.5])
        >>> contract(fold(matrix, [2]), [[column]]).item(), (matrix * toeplitz.matrix(column)).sum().item()
        (7.5, 7.5)
    """
    return torch.stack([(folded.flatten() * _outer(term)).sum() for term in terms]).sum()


def _outer(columns: Sequence[Tensor]) -> Tensor:
    """(m_1,) … (m_d,) -> (m,): all products, the last dimension fastest."""
    return kronecker([column[:, None] for column in columns])[:, 0]


def _kept(values: Tensor, rank: int, lost: float) -> Tensor:
    """(P, m) eigenvalues -> (r,) flat indices of those to keep, the largest first."""
    flat = values.flatten()
    order = torch.argsort(flat, descending=True, stable=True)
    ordered = flat[order]
    useful = int((ordered > max(torch.finfo(flat.dtype).eps * float(ordered[0]), _NOTHING * lost)).sum())
    count = len(values)
    # with equal shares no term loses more than lost / P
    needed = int((ordered > lost / count).sum())
    return order[: min(useful, max(rank, needed))]
