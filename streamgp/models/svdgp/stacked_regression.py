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

ALIGNED = 4
"""Sizes of matrices that are factorised together are multiples of it: LAPACK may round by where one begins."""


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
    weighted = phi * weight[..., None]
    held["outer"].mul_(wide(kept, held["outer"])).baddbmm_(weighted.mT, phi)
    held["moment"].mul_(wide(kept, held["moment"])).baddbmm_(weighted.mT, y)
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
        square, moment = square - (mean * moment).sum(1), moment - held["outer"] @ mean
    misfit = (square - (held["coefficients"] * moment).sum(1)).mean(1) / noise
    rows = held["weight"].clamp(min=1.0)
    return 0.5 * ((misfit + determinant) / rows + torch.log(2.0 * torch.pi * noise))


def root(outer: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """(K, P, P) chol(I + S/σ²), and (K,) 0 where there is one; the same bits whatever the others are."""
    size = outer.shape[1]
    more = -size % ALIGNED
    precision = torch.nn.functional.pad(outer / noise, (0, more, 0, more))
    precision.diagonal(dim1=1, dim2=2).add_(1.0)
    upper, failed = torch.linalg.cholesky_ex(precision.mT, upper=True)  # LAPACK's is column-major
    return upper.mT[:, :size, :size].contiguous(), failed
