"""Whether the scores say that a model has gone stale: the standardised squared error, short run against long run."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from streamgp.base import FLOAT, Json

EARLY = 0.25
"""Weight of the rows before, in units of `short`, under which nothing is said."""


class Staleness:
    """Two exponential means of z² = (y − mean)²/variance of rows scored before they were learned; Stateful.

    The model is stale when the mean over the last `short` rows exceeds `threshold` times that over the rows before: the
    long run less the short run, whose weights exp(−a/long) − exp(−a/short) at age a leave new rows out, so that a jump
    does not hide itself. Nothing is said before these weights amount to a quarter of `short`.

    Args:
        threshold: ratio from which on the model counts as stale.
        short: rows after which an error counts 1/e in the short run.
        long: the same in the long run.

    Example:
        >>> staleness = Staleness(threshold=2.0, short=50, long=1000)
        >>> for _ in range(20):
        ...     staleness.add(torch.ones(50, 1))
        >>> calm = staleness.stale
        >>> staleness.add(torch.full((100, 1), 9.0))
        >>> calm, staleness.stale
        (False, True)
    """

    def __init__(self, threshold: float, short: float = 256.0, long: float = 4096.0) -> None:
        self.threshold = threshold
        self.memory = (short, long)
        self.sums = torch.zeros(2, 2, dtype=FLOAT)  # (short and long, weight and weighted z²)

    @property
    def stale(self) -> bool:
        """Whether the short run is out of proportion."""
        (near, recent), (far, all_of_it) = self.sums.tolist()
        before, usual = far - near, all_of_it - recent
        return bool(before > EARLY * self.memory[0] and recent / near > self.threshold * usual / before)

    def add(self, squares: Tensor) -> None:
        """z² of N rows, (N, T); NaN left out."""
        seen = torch.isfinite(squares)
        if not bool(seen.any()):
            return
        rows = len(squares)
        fresh = rows * torch.where(seen, squares, 0.0).sum() / seen.sum()
        for place, memory in enumerate(self.memory):
            kept = math.exp(-rows / memory)
            self.sums[place] *= kept
            self.sums[place, 0] += rows
            self.sums[place, 1] += fresh.cpu()

    def calm(self) -> None:
        """The model was renewed: the short run starts as the long one."""
        far, usual = self.sums[1].tolist()
        if far:
            self.sums[0, 1] = self.sums[0, 0] * usual / far

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {"sums": self.sums}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.sums = tensors["sums"].clone()
