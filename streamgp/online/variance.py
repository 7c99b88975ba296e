"""The variance of forecasts: that of a random walk before anything is learned, and a factor by the errors of the
stream."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.online.scaling import still

OUTLIER = 25.0
"""Squared standardised error that one row counts for at most in a variance: sensor glitches would dominate it."""


def follow(factor: Tensor, squares: Tensor, memory: float, least: float, most: float = math.inf) -> None:
    """Move a factor on the variance by the errors of new rows, f ← f (κ + (1 − κ) mean z²), κ = exp(−rows/memory).

    Args:
        factor: (T,), changed in place.
        squares: (N, T) z² = (y − mean)²/variance of rows that are not learned yet, the factor in the variance; NaN =
            not observed. Each counts for at most `OUTLIER`.
        memory: rows after which an error counts 1/e.
        least: of the factor.
        most: of the factor.

    Example:
        >>> factor = torch.ones(1, dtype=FLOAT)
        >>> follow(factor, torch.full((100, 1), 4.0, dtype=FLOAT), memory=100.0, least=0.1)
        >>> round(factor.item(), 3)  # 1/e + 4 (1 − 1/e)
        2.896
    """
    seen = torch.isfinite(squares)
    rows = seen.sum(0)
    kept = torch.exp(-rows.to(FLOAT) / memory)
    mean = torch.where(seen, squares, 0.0).clamp(max=OUTLIER).sum(0) / rows.clamp(min=1)
    factor.mul_(kept + (1 - kept) * mean).clamp_(least, most)


def random_walk_variance(x: Inputs, shape: Shape) -> Tensor:
    """What the variances would be if the targets were random walks: h times the mean squared change of the lags.

    A window without two neighbouring values says nothing: the variance is 1 then, in squared target units. Where the
    values are all the same, it is that of `online.scaling.still`.

    Returns:
        (N, T)
    """
    steps = torch.arange(1, shape.horizon + 1, dtype=FLOAT, device=x.future.device)
    change = x.past[..., : shape.outputs].diff(dim=1).square()  # (N, L − 1, O)
    known = torch.isfinite(change)
    count = known.sum(1)
    mean = torch.where(known, change, 0.0).sum(1) / count.clamp(min=1)
    if not bool((mean > 0).all()):
        size = torch.nanmean(x.past[..., : shape.outputs].abs(), 1).nan_to_num(0.0)
        level = torch.where(count > 0, still(size).square(), 1.0)
        mean = torch.where(mean > 0, mean, level)  # (N, O)
    return (mean[..., None] * steps).flatten(1)
