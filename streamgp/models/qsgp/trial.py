"""Laplace's approximation to the posterior of outcomes in the space of rows, to choose the height of a logit by.

Rasmussen & Williams (2006), algorithms 3.1 and 3.2, with rows that stand for several and an offset. A trial of every
height in the space of features would take O(n m²) for each Newton step; few rows take O(n³).

Shapes: n rows, N test rows, T columns.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.linalg.cholesky import cholesky, whiten

STEPS, HALVINGS = 50, 20
"""Of Newton's method, and of a step that goes up."""
ENOUGH = 1e-4
"""Logits; a step that changes less is the last."""


class Mode(NamedTuple):
    """Attributes:
    slope: (T, n) ∂ log p(y | f)/∂f, so that f = K slope.
    factor: (T, n, n) chol(I + W^½KW^½).
    root: (T, n) W^½.
    """

    slope: Tensor
    factor: Tensor
    root: Tensor


def mode(k: Tensor, y: Tensor, weight: Tensor, offset: Tensor) -> Mode:
    """Where Σ −w log p(y | f) + ½ fᵀK⁻¹f is least.

    Args:
        k: (n, n), float64.
        y: (n, T) 0 and 1, NaN = not observed.
        weight: (n,) how many rows each stands for.
        offset: (T,) added to f.

    Raises:
        NotPositiveDefinite: K is not finite.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = mode(one, one, one[0], 0.0 * one[0])
        >>> round(found.slope.item(), 4)  # a = 1 − σ(a)
        0.4011
    """
    side = torch.where(y > 0.5, 1.0, -1.0).mT.to(k)
    weight = (weight[:, None] * torch.isfinite(y)).mT
    truth, shift = torch.where(y > 0.5, 1.0, 0.0).mT.to(k), offset[:, None]

    def value(a: Tensor, f: Tensor) -> Tensor:
        return (weight * torch.nn.functional.softplus(-side * (f + shift))).sum(1) + 0.5 * (a * f).sum(1)

    a = torch.zeros_like(truth)
    f = a @ k
    eye = torch.eye(len(k), dtype=k.dtype, device=k.device)
    for _ in range(STEPS):
        p = torch.sigmoid(f + shift)
        root = (weight * p * (1.0 - p)).sqrt()
        factor = cholesky(eye + root[:, :, None] * k * root[:, None, :], first=0.0).lower
        b = root.square() * f + weight * (truth - p)
        solved = torch.cholesky_solve((root * (b @ k))[:, :, None], factor)[:, :, 0]
        step, before = b - root * solved - a, value(a, f)
        way = step @ k
        length = torch.ones_like(before)[:, None]
        for _ in range(HALVINGS):
            worse = ~(value(a + length * step, f + length * way) <= before + 1e-12 * before.abs())
            if not bool(worse.any()):
                break
            length[worse] *= 0.5
        a, f = a + length * step, f + length * way
        if float((length * way).abs().max()) < ENOUGH:
            break
    p = torch.sigmoid(f + shift)
    root = (weight * p * (1.0 - p)).sqrt()
    factor = cholesky(eye + root[:, :, None] * k * root[:, None, :], first=0.0).lower
    return Mode(weight * (truth - p), factor, root)


def forecast(found: Mode, cross: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Mean, without the offset, and variance of f at test rows, (N, T) both.

    Args:
        cross: (N, n) k(x, rows).
        prior: (N,) k(x, x).
    """
    known = whiten(found.factor, found.root[:, :, None] * cross.mT).square().sum(1)
    return (found.slope @ cross.mT).mT, (prior - known).clamp(min=0.0).mT
