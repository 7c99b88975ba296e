"""The posterior of `models._recursive` from all rows at once, by Householder reflections in extended precision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

LONG = np.longdouble


class Batch(NamedTuple):
    """Rounded to float64: mean (n, T) and leverage (n,) at the asked rows, residual (T,), log determinant of F."""

    mean: np.ndarray
    leverage: np.ndarray
    residual: np.ndarray
    log_determinant: float


def upper(rows: np.ndarray) -> np.ndarray:
    """R of rows = QR."""
    r = rows.astype(LONG)
    for k in range(min(r.shape)):
        v = r[k:, k].copy()
        v[0] += np.copysign(np.sqrt(v @ v), v[0])
        size = v @ v
        if size > 0:
            r[k:, k:] -= np.outer(2 * v / size, v @ r[k:, k:])
    return np.triu(r[: r.shape[1]])


def backwards(r: np.ndarray, right: np.ndarray) -> np.ndarray:
    """R⁻¹ right."""
    out = right.astype(LONG)
    for k in range(len(r) - 1, -1, -1):
        out[k] = (out[k] - r[k, k + 1 :] @ out[k + 1 :]) / r[k, k]
    return out


def batch(
    phi: torch.Tensor, y: torch.Tensor, kappa: float, at: torch.Tensor, weight: np.ndarray | None = None
) -> Batch:
    """phi (N, d), y (N, T), weight (N,) of the rows, at (n, d)."""
    d = phi.shape[1]
    rows = np.concatenate((phi.numpy(), y.numpy()), 1).astype(LONG)
    if weight is not None:
        rows *= np.sqrt(weight.astype(LONG))[:, None]
    prior = np.zeros((d, rows.shape[1]), dtype=LONG)
    np.fill_diagonal(prior, np.sqrt(LONG(kappa)))
    r = upper(np.concatenate((prior, rows)))
    weights = backwards(r[:d, :d], r[:d, d:])
    inverse = backwards(r[:d, :d], np.eye(d))
    asked = at.numpy().astype(LONG)
    leverage = ((asked @ inverse) ** 2).sum(1)
    log_determinant = 2 * np.log(np.abs(np.diag(r[:d, :d]))).sum()
    residual = (r[d:, d:] ** 2).sum(0)
    return Batch(
        (asked @ weights).astype(float), leverage.astype(float), residual.astype(float), float(log_determinant)
    )
