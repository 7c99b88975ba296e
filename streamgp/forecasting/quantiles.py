"""Scores of a distribution that is known by its quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats: TypeAlias = NDArray[np.float64]


def crps(probabilities: Sequence[float], quantiles: Tensor, y: Tensor, loss: Tensor | None = None) -> Tensor:
    """(R,) CRPS of a distribution known by its quantiles: 2 ∫ pinball_p dp by the trapezoidal rule, 0 at 0 and 1.

    Args:
        probabilities: (Q,) increasing.
        quantiles: (Q, R).
        y: (R,) truths.
        loss: (Q, R) pinball losses, where they are known.

    Example:
        >>> p = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
        >>> round(crps(p.tolist(), torch.special.ndtri(p)[:, None], torch.zeros(1, dtype=torch.float64)).item(), 3)
        0.234
    """
    p = torch.tensor(probabilities, dtype=y.dtype)
    around = torch.cat([p.new_zeros(1), p, p.new_ones(1)])
    weight = (around[2:] - around[:-2]) / 2
    return 2 * weight @ (pinball(p, quantiles, y) if loss is None else loss)


def pinball(p: Tensor, quantiles: Tensor, y: Tensor) -> Tensor:
    """(Q, R) max(p (y − q), (p − 1)(y − q)). p: (Q,); quantiles: (Q, R); y: (R,)."""
    error = y - quantiles
    above = p[:, None] * error
    return torch.maximum(above, error.mul_(p[:, None] - 1), out=above)


def below(probabilities: Floats, quantiles: Floats, y: Floats) -> Floats:
    """(Q, R) how much of a truth lies below each quantile: 0 or 1, or a share where the quantile is the truth itself.

    Args:
        quantiles: (Q, R).
        y: (R,).

    Example:
        >>> below(np.array([0.1, 0.5, 0.9]), np.array([[1.0], [2.0], [3.0]]), np.array([2.5]))[:, 0].tolist()
        [0.0, 0.0, 1.0]
    """
    found: Floats = (y <= quantiles).astype(np.float64)
    equal = quantiles == y
    if equal.any():
        row, k = np.nonzero(equal.T)
        ends = np.concatenate([[0.0], probabilities, [1.0]])
        low, high = ends[(quantiles < y).sum(0)], ends[(quantiles <= y).sum(0) + 1]
        found[k, row] = (probabilities[k] - low[row]) / (high - low)[row]
    return found


def hits_at(under: Floats, place: NDArray[np.int64], places: int) -> Floats:
    """(places, Q) sums of what `below` has found (Q, R) over the truths at each place.

    Args:
        under: (Q, R).
        place: (R,) 0 to places − 1.
        places: how many there are.

    Example:
        >>> hits_at(np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), np.array([0, 1, 1]), 2).tolist()
        [[0.0, 0.0], [1.0, 2.0]]
    """
    size = len(under) + 1
    first = (under < 1).sum(0)  # of the quantiles, which increase, the first that a truth is not above
    if (under != (np.arange(len(under))[:, None] >= first)).any():  # a truth that is a quantile counts as a share
        return np.stack([np.bincount(place, row, places) for row in under], -1)
    counts = np.bincount(place * size + first, minlength=places * size).reshape(places, size)
    return counts.cumsum(1)[:, :-1].astype(np.float64)
