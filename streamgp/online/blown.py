"""Posteriors that are finite and absurd: of one model, or of K at once."""

from __future__ import annotations

import torch
from torch import Tensor

BLOWN = 100.0
"""Spreads of the target, or times the largest value of late: what no posterior makes of rows that it has just learned,
unless its arithmetic has blown up."""
SOME = 4
"""Rows, about, that this is looked at in."""
NOT_FINITE = "the loss or the posterior is not finite"
"""Why something is undone."""


def some_of(rows: int) -> slice:
    """Of this number of rows those that `blown` is asked about."""
    return slice(None, None, -(-rows // SOME))


def blown(mean: Tensor, y: Tensor, before: Tensor | None = None) -> Tensor:
    """() or (K,) how far the means of a model, or of K, lie beyond `BLOWN`, relative to that: above 1 no posterior is
    to be believed.

    Args:
        mean: (..., R, T) at some rows that were just learned.
        y: (..., N, T) standardised truths of all of them, NaN = not observed.
        before: (..., N, T) means before; where these were as far off, learning is how a model comes back.
    """
    limit = BLOWN * y.nan_to_num().abs().amax(-2).clamp(min=1.0)
    if before is not None:
        limit = torch.maximum(limit, before.abs().amax(-2))
    return (mean.abs().amax(-2) / limit).amax(-1)


def absurd(off: float) -> str:
    """What is said of a model that is so far beyond `BLOWN`."""
    return f"forecasts would be {off * BLOWN:.2g} spreads of the target off"
