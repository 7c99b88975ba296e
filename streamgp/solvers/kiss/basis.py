"""A low-rank factor of a grid's covariance, and the contraction of a grid matrix with Toeplitz structure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from streamgp.errors import NotPositiveDefinite
from streamgp.kernels import Kernel, Stationary
from streamgp.linalg.interpolate import Grid, kronecker, toeplitz

_NOTHING = 1e-6
"""Part of what may be lost by which no pair is kept: with `lost` = 0.001 σ², the NLML changes by 5e-10 a row."""
NUMBERS = 1 << 21
"""Complex numbers that `fold` makes at a time, about: 32 MB."""

CELLS = 5.0
"""Grid cells that a lengthscale must span: a shorter one is not interpolated to 1e-3."""


def eigenbasis(terms: Sequence[Sequence[Tensor]], rank: int, lost: float) -> Tensor:
    """B (m, r) of K_UU = Σ_p T_p1 ⊗ … ⊗ T_pd ≈ BBᵀ, the r largest eigenpairs of the terms scaled by their roots.

    Every T is a small eigenproblem, O(Σ m_d³). The terms' bases stand side by side, [B_1 …], so that r counts
    the pairs of all terms together. What is cut off lowers the prior variance of a row w by at most ‖w‖² times the sum
    over terms of the largest eigenvalue cut, and by nothing else; r is raised beyond `rank` until that sum is at most
    `lost`. Where r would reach m with several terms, one dense eigenproblem O(m³) replaces them. Pairs
    below the rounding of the largest, or below 1e-6 of `lost`, are left out: they change nothing that can be seen.

    Args:
        terms: first columns, one (m_d,) a dimension and term, as `Kernel.grid_terms` gives them, without graph.
        rank: pairs to keep, unless more are needed.
        lost: prior variance that may be lost to the truncation, for ‖w‖ = 1.

    Raises:
        NotPositiveDefinite: a column is not finite.

    Example:
        >>> column = torch.exp(-torch.arange(5.0, dtype=torch.float64))
        >>> basis = eigenbasis([[column]], rank=5, lost=0.0)
        >>> torch.allclose(basis @ basis.T, toeplitz(column))
        True
    """
    if not all(bool(torch.isfinite(column).all()) for term in terms for column in term):
        raise NotPositiveDefinite(
            "the covariance of the grid holds NaN or infinity", hint="lower the step size of the hyper-parameters"
        )
    pairs = [[torch.linalg.eigh(toeplitz(column)) for column in term] for term in terms]
    values = torch.stack([_outer([pair.eigenvalues for pair in term]) for term in pairs])  # (P, m)
    kept = _kept(values, rank, lost)
    size = values.shape[1]
    if len(terms) > 1 and len(kept) >= size:
        dense = torch.stack([kronecker([toeplitz(column) for column in term]) for term in terms]).sum(0)
        eigenvalues, eigenvectors = torch.linalg.eigh(dense)
        own = _kept(eigenvalues[None], rank, lost)
        full: Tensor = eigenvectors[:, own] * eigenvalues[own].sqrt()
        return full
    parts = []
    for number, term in enumerate(pairs):
        own = kept[kept // size == number] % size
        basis = values[number, own].sqrt()[None]  # (1, r), grown by one dimension at a time
        stride = size
        for pair in term:  # torch.unravel_index would import sympy, 2 CPU-seconds
            stride //= len(pair.eigenvalues)
            at = own // stride % len(pair.eigenvalues)
            basis = (basis[:, None] * pair.eigenvectors[:, at]).flatten(0, 1)
        parts.append(basis)
    return torch.cat(parts, 1).contiguous()


def fold(factors: Tensor, weights: Tensor, shape: Sequence[int]) -> Tensor:
    """(m_1, …, m_d): R[o], the sum of (F diag(w) Fᵀ)[i, j] over points with |i_k − j_k| = o_k in every k.

    So that ⟨F diag(w) Fᵀ, T_1 ⊗ … ⊗ T_d⟩ = Σ_o R[o] Π_k t_k[o_k] for symmetric Toeplitz T_k with first columns t_k: all
    that a gradient in the hyper-parameters needs of an m × m matrix are m numbers. They are sums of autocorrelations of
    F's columns, by FFT over twice the grid, O(r m log m); the m × m matrix is never made.

    Args:
        factors: (m, r) F.
        weights: (r,) w.
        shape: m_1 … m_d.

    Example:
        >>> fold(torch.tensor([[1.0], [3.0]]), torch.tensor([2.0]), [2]).tolist()  # of [[2, 6], [6, 18]]
        [20.0, 12.0]
    """
    twice, dims = [2 * size for size in shape], tuple(range(1, len(shape) + 1))
    chunk = max(1, NUMBERS // math.prod(twice))
    power = torch.zeros((), dtype=factors.dtype, device=factors.device)
    for own, weight in zip(factors.T.split(chunk), weights.split(chunk), strict=True):
        spectrum = torch.fft.rfftn(own.reshape(-1, *shape), s=twice, dim=dims)
        power = power + torch.tensordot(weight, spectrum.real.square() + spectrum.imag.square(), 1)
    rest: Tensor = torch.fft.irfftn(power, s=twice)  # [o] and, for −o, [2 m − o]
    for dim, size in enumerate(shape):
        back = rest.narrow(dim, size + 1, size - 1).flip(dim)
        rest = rest.narrow(dim, 0, size).clone()
        rest.narrow(dim, 1, size - 1).add_(back)
    return rest


def contract(folded: Tensor, terms: Sequence[Sequence[Tensor]]) -> Tensor:
    """() Σ_p ⟨matrix, T_p1 ⊗ … ⊗ T_pd⟩ from `fold`'s answer; differentiable in the columns; O(P m).

    Example:
        >>> factor, column = torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 0.5])
        >>> folded = fold(factor, torch.ones(1), [2])
        >>> contract(folded, [[column]]).item(), (factor @ factor.T * toeplitz(column)).sum().item()
        (13.0, 13.0)
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


@torch.no_grad()
def widen(kernel: Kernel, grid: Grid) -> None:
    """Raise lengthscales below `CELLS` cells to that, in place; those that are not in units of the input stay.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(lengthscale=0.3), 1)
        >>> widen(kernel, Grid.cover(dims=1, size=15))  # a step of 0.2
        >>> round(kernel.lengthscale.item(), 6)
        1.0
    """
    for part in kernel.modules():
        if isinstance(part, Stationary) and part.spatial:
            least = part.log_lengthscale.new_tensor(grid.steps).mul(CELLS).log()
            part.log_lengthscale.copy_(torch.maximum(part.log_lengthscale, least))
