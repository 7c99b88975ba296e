"""Bayesian linear regressions of K series on P features each, batched: `Conjugate` with a leading axis.

A state holds outer (K, P, P) S = Σ φφᵀ, moment (K, P, T) b = Σ φyᵀ, square (K, T) Σ y², weight (K,), root (K, P, P)
chol A, coefficients (K, P, T) w and residual (K, T) σ_t². Priors are w ~ N(m, I), m = 0 unless it is given:

    A = I + S/σ²,  w = A⁻¹(b/σ² + m),  Σ(y − φᵀw)² = Σy² − wᵀb − σ²wᵀ(w − m)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.online.stacked import wide
from streamgp.online.stacked_units import State


class Observed(NamedTuple):
    """Rows of K series. phi: (K, N, P); y: (K, N, T) standardised, NaN = not observed; weight: (K, N)."""

    phi: Tensor
    y: Tensor
    weight: Tensor


def absorb(held: State, rows: Observed, kept: Tensor, noise: Tensor, mean: Tensor | None) -> Tensor:
    """Add rows to the sums and solve them, in place; (K,) which failed. See `Conjugate.absorb`.

    Args:
        held: the state.
        rows: that are learned.
        kept: (K,) part of the old sums that is kept.
        noise: () σ².
        mean: (K, P, T) m.
    """
    phi, y, weight = rows
    seen = torch.isfinite(y)
    if not bool(seen.all()):
        weight = weight * seen.to(FLOAT).mean(2)
        y = torch.where(seen, y, phi @ held["coefficients"])
    weighted = phi if bool((weight == 1.0).all()) else phi * weight[..., None]
    if not bool((kept == 1.0).all()):
        held["outer"].mul_(wide(kept, held["outer"]))
        held["moment"].mul_(wide(kept, held["moment"]))
    held["outer"].baddbmm_(weighted.mT, phi)
    held["moment"].add_((y.mT @ weighted).mT)
    held["square"] = held["square"] * kept[:, None] + (weight[..., None] * y.square()).sum(1)
    held["weight"] = held["weight"] * kept + weight.sum(1)
    factor, info = root(held["outer"], noise)
    right = held["moment"] / noise if mean is None else held["moment"] / noise + mean
    half = torch.linalg.solve_triangular(factor, right, upper=False)
    found = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    fitted = (found * (held["moment"] + noise * (found if mean is None else found - mean))).sum(1)
    residual = (held["square"] - fitted) / held["weight"].clamp(min=1.0)[:, None]
    held["root"], held["coefficients"], held["residual"] = factor, found, residual.clamp(min=1e-9)
    healthy = torch.isfinite(found).flatten(1).all(1) & torch.isfinite(residual).all(1)
    return (info != 0) | ~healthy


def loss(held: State, noise: Tensor, mean: Tensor | None) -> Tensor:
    """(K,) see `Conjugate.loss`; the misfit is Σy² − mᵀb − wᵀ(b − Sm). Arguments as of `absorb`."""
    determinant = 2.0 * held["root"].diagonal(dim1=1, dim2=2).log().sum(1)
    square, moment = held["square"], held["moment"]
    if mean is not None:
        square, moment = (
            square - (mean * moment).sum(1),
            moment - noise * (held["root"] @ (held["root"].mT @ mean) - mean),
        )
    misfit = (square - (held["coefficients"] * moment).sum(1)).mean(1) / noise
    rows = held["weight"].clamp(min=1.0)
    return 0.5 * ((misfit + determinant) / rows + torch.log(2.0 * torch.pi * noise))


def root(outer: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """(K, P, P) chol(I + S/σ²), and (K,) 0 where there is one; of S the lower triangle is read.

    With P of `stacked_features.aligned` the same bits whatever the others are: LAPACK may round by where one begins.
    """
    precision = outer / noise
    precision.diagonal(dim1=1, dim2=2).add_(1.0)
    upper, failed = torch.linalg.cholesky_ex(precision.mT, upper=True)  # LAPACK's is column-major
    return upper.mT.contiguous(), failed


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
