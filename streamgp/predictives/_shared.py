"""What the distributions share: broadcasting, the standard normal, and a safe root finder for quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

ROOT_2PI = math.sqrt(2.0 * math.pi)


def broadcast(owner: object, *names: str) -> None:
    """Expand the named fields of a frozen dataclass to their common shape, in place.

    Raises:
        RuntimeError: the shapes do not broadcast.
    """
    fields: list[Tensor] = [getattr(owner, name) for name in names]
    shape = np.broadcast_shapes(*(tuple(field.shape) for field in fields))
    for name, field in zip(names, fields, strict=True):
        object.__setattr__(owner, name, field.expand(shape))


def levels(p: Tensor, like: Tensor) -> Tensor:
    """(K,) probabilities as (K, 1, ..., 1), to stand before the axes of `like`."""
    return p.to(like).reshape(-1, *([1] * like.ndim))


def normal_pdf(z: Tensor) -> Tensor:
    """Density of N(0, 1)."""
    return torch.exp(-0.5 * z.square()) / ROOT_2PI


def normal_abs(mean: Tensor, sd: Tensor) -> Tensor:
    """E|X| of X ~ N(mean, sd²): mean (2Φ(mean/sd) − 1) + 2 sd φ(mean/sd). Every CRPS of Gaussians is made of it."""
    z = mean / sd
    return mean * torch.erf(z / math.sqrt(2.0)) + 2.0 * sd * normal_pdf(z)


def invert(
    cdf: Callable[[Tensor], Tensor],
    pdf: Callable[[Tensor], Tensor],
    p: Tensor,
    low: Tensor,
    high: Tensor,
    start: Tensor | None = None,
    iterations: int = 60,
    tolerance: float = 1e-13,
) -> Tensor:
    """Solve cdf(x) = p for every element, by Newton's method kept inside a shrinking bracket.

    Args:
        cdf: increasing, elementwise.
        pdf: its derivative.
        p: probabilities, of the shape of x.
        low: where cdf <= p.
        high: where cdf >= p.
        start: first guess; the middle of the bracket where None.
        iterations: the most that are taken; a bisection step replaces a Newton step that leaves the bracket.
        tolerance: the relative step at which the search ends.

    Returns:
        x, of the shape of p.

    Example:
        >>> p, edge = torch.tensor([0.975], dtype=torch.float64), torch.tensor([9.0], dtype=torch.float64)
        >>> round(invert(torch.special.ndtr, normal_pdf, p, -edge, edge).item(), 6)
        1.959964
    """
    low, high = low.clone(), high.clone()
    x = 0.5 * (low + high) if start is None else torch.minimum(torch.maximum(start, low), high)
    for _ in range(iterations):
        excess = cdf(x) - p
        low = torch.where(excess <= 0, x, low)
        high = torch.where(excess >= 0, x, high)
        step = x - excess / pdf(x)
        inside = (step >= low) & (step <= high)  # false for NaN as well
        new = torch.where(inside, step, 0.5 * (low + high))
        done = bool(((new - x).abs() <= tolerance * (1.0 + x.abs())).logical_or(~x.isfinite()).all())
        x = new
        if done:
            break
    return x
