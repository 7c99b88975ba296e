"""The posterior of `window.Linear` from its sums: for one model, or for many at once by a leading axis.

Every function takes (..., W + 1, W + 1) Gram matrices and what goes with them, and treats the leading axes as separate
models: batched factorisations, in which no model sees another.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.online.scaling import still

A0 = 2.0
"""Shape of the noise prior: it counts for four rows, the fewest for which the prior variance is finite."""
INTERCEPT = 1e-3
"""Rows that the prior of the intercept counts for."""
RIDGES = torch.logspace(-8, 4, 25, dtype=FLOAT)
"""Values of κ that are tried, rows."""


class Solution(NamedTuple):
    """A posterior.

    Attributes:
        factor: (..., W + 1, W + 1) lower Cholesky factor of A.
        weights: (..., W + 1, T) M.
        noise: (..., T) b.
        failed: (...) whether A has no factor, so that the rest means nothing.
    """

    factor: Tensor
    weights: Tensor
    noise: Tensor
    failed: Tensor


def spreads(gram: Tensor, rows: Tensor) -> Tensor:
    """(..., W + 1) variances of the features; 1 where one never varied. rows: (...)."""
    square = gram.diagonal(dim1=-2, dim2=-1) / rows[..., None]
    moment = square - (gram[..., 0, :] / rows[..., None]).square()
    return torch.where(moment > 1e-14 * square, moment, 1.0)


def ridge(scaled: Tensor, cross: Tensor, square: Tensor, rows: Tensor) -> Tensor:
    """(...) κ of the least mean log GCV, the intercept taken out.

    Args:
        scaled: (..., W + 1, W + 1) Gram matrices in features of unit spread, finite.
        cross: (..., W + 1, T) in the same features.
        square: (..., T).
        rows: (...).

    Raises:
        torch.linalg.LinAlgError: the eigenvalues of one were not found.
    """
    own = cross[..., 1:, :] - scaled[..., 1:, :1] * cross[..., :1, :]
    values, vectors = torch.linalg.eigh(scaled[..., 1:, 1:] - scaled[..., 1:, :1] * scaled[..., :1, 1:])
    values = torch.maximum(values, 1e-13 * values[..., -1:])[..., None, :]  # (..., 1, W)
    energy = (vectors.mT @ own).square()  # (..., W, T)
    ridges = RIDGES.to(values)
    left = 1.0 / (values + ridges[:, None])  # (..., R, W)
    total = (square - cross[..., 0, :].square())[..., None, :]  # (..., 1, T)
    unexplained = (total - (left * (2.0 - values * left)) @ energy) / total  # (..., R, T) shares of the variance
    spare = (1.0 - (1.0 + (values * left).sum(-1)) / rows[..., None]).clamp(min=1e-9)  # (..., R)
    score = unexplained.clamp(min=1e-12).log().nan_to_num(0.0, posinf=0.0).mean(-1) - 2.0 * spare.log()
    return ridges[score.argmin(-1)]


def ridges(*sums: Tensor) -> Tensor:
    """(K,) of `ridge`; NaN where the eigenvalues of a model were not found."""
    try:
        return ridge(*sums)
    except RuntimeError:  # torch.linalg.LinAlgError
        if len(sums[0]) == 1:
            return sums[-1] * torch.nan
        return torch.cat([ridges(*(part[at : at + 1] for part in sums)) for at in range(len(sums[0]))])


def solution(
    scaled: Tensor, unit: Tensor, cross: Tensor, square: Tensor, rows: Tensor, size: Tensor, kappa: Tensor
) -> Solution:
    """The posterior under a ridge.

    Args:
        scaled: (..., W + 1, W + 1) Gram matrices in features divided by `unit`; changed in place.
        unit: (..., W + 1).
        cross, square, rows: (..., W + 1, T), (..., T) and (...) sums.
        size: (..., T) of the truths of the first batch.
        kappa: (...) κ.
    """
    diagonal = scaled.diagonal(dim1=-2, dim2=-1)
    diagonal[..., 0] += INTERCEPT / rows
    diagonal[..., 1:] += kappa[..., None]
    found, failed = torch.linalg.cholesky_ex(scaled)
    factor = found / unit[..., None]
    weights = torch.cholesky_solve(cross, factor)
    residual = (square - (cross * weights).sum(-2)).clamp(min=0.0)
    mean = cross[..., 0, :] / rows[..., None]
    variance = square / rows[..., None] - mean.square()
    prior = torch.where(variance > 0, variance, still(size).square())
    return Solution(factor, weights, (A0 - 1) * prior + residual / 2, failed != 0)
