"""Whether the scores say that a model has gone stale: the standardised squared error of late, which should be 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.state import Declared, Tensors

MEMORY, EARLY = 256.0, 50.0
"""Rows after which an error counts 1/e; rows under which nothing is said."""


class Staleness(Declared):
    """An exponential mean of z² = (y − mean)²/variance of rows scored before they were learned; Stateful.

    Args:
        threshold: mean from which on the model counts as stale.

    Attributes:
        sums: (2,) rows after forgetting, and their weighted z².

    Example:
        >>> staleness = Staleness(threshold=2.0)
        >>> staleness.add(torch.ones(500, 1))
        >>> calm = staleness.stale
        >>> staleness.add(torch.full((100, 1), 9.0))
        >>> calm, staleness.stale
        (False, True)
    """

    STATE = (Tensors("sums"),)

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.sums = torch.zeros(2, dtype=FLOAT)

    @property
    def stale(self) -> bool:
        """Whether the mean is out of proportion."""
        rows, squares = self.sums.tolist()
        return bool(rows >= EARLY and squares > self.threshold * rows)

    def add(self, squares: Tensor) -> None:
        """z² of N rows, (N, T); NaN left out."""
        mean = squares.nanmean().cpu()
        if bool(mean.isfinite()):
            rows = float(len(squares))
            self.sums.mul_(math.exp(-rows / MEMORY)).add_(torch.stack([torch.ones_like(mean), mean]) * rows)

    def calm(self) -> None:
        """The model was trained: what was before says nothing of it."""
        self.sums.zero_()
