"""Posteriors that are finite and absurd: of one model, or of K at once."""

from __future__ import annotations

import torch
from torch import Tensor

BLOWN = 100.0
"""Spreads of the target, or times the largest recent value: a posterior that is farther off on rows that it has just
learned has failed numerically."""
SOME = 4
"""About how many rows are checked."""
NOT_FINITE = "the loss or the posterior is not finite"
"""The reason given when an update is undone."""


def some_of(rows: int) -> slice:
    """Which of this many rows `blown` looks at."""
    return slice(None, None, -(-rows // SOME))


def blown(mean: Tensor, y: Tensor, before: Tensor | None = None) -> Tensor:
    """() or (K,) how far the means of a model, or of K, lie beyond `BLOWN`, relative to that: above 1 a posterior is
    not to be trusted.

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
    """The message about a model that is this far beyond `BLOWN`."""
    return f"forecasts would be {off * BLOWN:.2g} spreads of the target off"
