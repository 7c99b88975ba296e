"""Whether one model's losses are less than another's, or whether that was chance.

Losses of forecasts of the same hours are alike, so that n forecasts say much less than n independent ones. Two answers:

- a block bootstrap (Künsch 1989): whole blocks of origins, a day or more, are drawn with replacement, and the
  ratio of mean losses is computed of each draw;
- the test of Diebold & Mariano (1995, equation 2) of the mean loss of each origin, with the long-run variance of
  Newey & West (1987) and the small-sample factor of Harvey, Leybourne & Newbold (1997, equation 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DRAWS = 2000
LEAST = 10
"""Blocks below which nothing is said of chance."""
MOST = 1000
"""Blocks, at most: of a longer stream they are longer."""


@dataclass(frozen=True)
class Difference:
    """One model's mean loss beside that of another.

    Attributes:
        ratio: mean loss of the first over that of the other; None where that is 0.
        low, high: 95 % interval of the ratio by the bootstrap; None where there are too few blocks.
        p: of the test that both are the same; None where there are too few origins, or where all losses are equal.
    """

    ratio: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None


def difference(first: Floats, other: Floats, count: Floats, block: int, horizon: int) -> Difference:
    """Compare losses of the same forecasts.

    Args:
        first, other: (n,) sums of the losses of each origin, in the order of time.
        count: (n,) forecasts of each origin, at least 1.
        block: origins in a block, or more.
        horizon: steps ahead.

    Example:
        >>> loss = np.random.default_rng(0).exponential(size=2000)
        >>> found = difference(0.9 * loss, loss, np.ones(2000), 48, 1)
        >>> round(found.ratio, 3), round(found.low, 3), found.p < 0.01
        (0.9, 0.9, True)
    """
    if not other.sum() > 0:
        return Difference(None)
    ratio = float(first.sum() / other.sum())
    p = diebold_mariano((first - other) / count, horizon)
    starts = np.arange(0, len(count), max(block, -(-len(count) // MOST)))
    if len(starts) < LEAST:
        return Difference(ratio, p=p)
    tops, bottoms = np.stack([np.add.reduceat(sums, starts) for sums in (first, other)]) @ _draws(len(starts)).T
    low, high = np.quantile(tops[bottoms > 0] / bottoms[bottoms > 0], [0.025, 0.975])
    return Difference(ratio, float(low), float(high), p)


@lru_cache(maxsize=1)
def _draws(blocks: int) -> Floats:
    """(DRAWS, blocks) how often each block is drawn."""
    drawn = np.random.default_rng(0).integers(blocks, size=(DRAWS, blocks)) + blocks * np.arange(DRAWS)[:, None]
    return np.bincount(drawn.reshape(-1), minlength=DRAWS * blocks).reshape(DRAWS, blocks).astype(np.float64)


def diebold_mariano(change: Floats, horizon: int) -> float | None:
    """The p-value, two sides, of the test that the mean of a series of differences is 0.

    The long-run variance has Bartlett weights up to lag max(horizon − 1, 4 (n/100)^(2/9)): autocovariances beyond
    h − 1 are 0 for optimal forecasts only.

    Args:
        change: (n,) differences, one an origin, in the order of time.
        horizon: steps ahead.

    Returns:
        None where n is below 2 · horizon + 10, or where nothing varies.

    Example:
        >>> diebold_mariano(np.zeros(100), 1) is None
        True
    """
    n = len(change)
    if n < 2 * horizon + LEAST:
        return None
    lags = max(horizon - 1, int(4 * (n / 100) ** (2 / 9)))
    centred = change - change.mean()
    whole = np.array([centred[: n - lag] @ centred[lag:] for lag in range(lags + 1)]) / n  # autocovariances
    weight = 1 - np.arange(lags + 1) / (lags + 1)
    variance = whole[0] + 2 * float(weight[1:] @ whole[1:])
    if not variance > 1e-24 * max(float(change @ change) / n, 1e-300):
        return None
    from scipy.special import stdtr  # here: who imports this compares seldom

    small = (n + 1 - 2 * horizon + horizon * (horizon - 1) / n) / n
    t = float(change.mean()) / np.sqrt(variance / n) * np.sqrt(small)
    return float(2 * stdtr(n - 1, -abs(t)))
