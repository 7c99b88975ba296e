"""Missing values of windows: which windows have none, and what stands in for them.

What stands in for a missing target: the last known one at its phase of the season, and what the known rows around it
depart from theirs. Departures between two known rows are those that an Ornstein-Uhlenbeck process would have on
average (Uhlenbeck & Ornstein 1930, conditioned on both ends), which keeps half of a departure for `half` rows:

    d_t = [sinh(θ(k − t)) d_j + sinh(θ(t − j)) d_k] / sinh(θ(k − j)),   j < t < k,   θ = ln 2 / half
    d_t = e^{−θ(t − j)} d_j   after the last known row j,   d_t = e^{−θ(k − t)} d_k   before the first one k

Without a season θ = 0: a straight line between known rows, the nearest of them outside; so too where the last known
targets stand on another level than the season before (`windows.Windows`).
"""

from __future__ import annotations

import numpy as np

from streamgp.windows.calendar import Bools, Floats


def finite(values: Floats) -> Bools:
    """(N, J, C) -> (N,) whether all are finite: a sum says so of most, at a third of the cost.

    Example:
        >>> finite(np.array([[[1.0, 2.0]], [[np.nan, 0.0]], [[1e308, 1e308]]])).tolist()
        [True, False, True]
    """
    flat = values.reshape(len(values), values.shape[1] * values.shape[2])
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.isfinite(flat.sum(1))
    if not found.all():
        found[~found] = np.isfinite(flat[~found]).all(1)
    return np.asarray(found)


def complete(values: Floats) -> bool:
    """Whether nothing is missing.

    Example:
        >>> complete(np.array([1.0, np.inf])), complete(np.array([np.nan, 1.0]))
        (True, False)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return not np.isnan(values.sum()) or not np.isnan(values).any()


def filled(values: Floats) -> Floats:
    """(N, J, C) with each missing value as the last one before it along J, or else as the first one after it.

    Example:
        >>> filled(np.array([[[np.nan], [1.0], [np.nan], [2.0]]])).tolist()
        [[[1.0], [1.0], [1.0], [2.0]]]
    """
    if complete(values):
        return values
    there = ~np.isnan(values)
    at = np.maximum.accumulate(np.where(there, np.arange(values.shape[1])[:, None], -1), 1)
    return np.take_along_axis(values, np.where(at < 0, there.argmax(1)[:, None], at), 1)


def bridged(values: Floats, half: float = np.inf) -> Floats:
    """(N, J, C) departures, each missing one as the known ones around it make it likely; 0 where none is known.

    Args:
        values: NaN where they are missing.
        half: rows after which half of a departure is left; see the module.

    Example:
        >>> bridged(np.array([[[1.0], [np.nan], [3.0], [np.nan]]])).tolist()
        [[[1.0], [2.0], [3.0], [3.0]]]
        >>> bridged(np.array([[[np.nan], [8.0], [np.nan], [np.nan]]]), half=1.0).tolist()
        [[[4.0], [8.0], [4.0], [2.0]]]
    """
    if complete(values):
        return values
    rows, there = np.arange(values.shape[1])[:, None], ~np.isnan(values)
    before = np.maximum.accumulate(np.where(there, rows, -1), 1)
    after = np.minimum.accumulate(np.where(there, rows, len(rows))[:, ::-1], 1)[:, ::-1]
    first, last = before < 0, after == len(rows)
    left, right = (np.take_along_axis(values, at.clip(0, len(rows) - 1), 1) for at in (before, after))
    since, until = (rows - before).astype(float), (after - rows).astype(float)
    rate = np.log(2.0) / half
    with np.errstate(invalid="ignore", divide="ignore"):
        if rate * len(rows) < 1e-6:
            share = until / (since + until)
            weights = share, 1.0 - share
        else:  # sinh(a)/sinh(b) without overflow
            whole = -np.expm1(-2 * rate * (since + until))
            weights = tuple(
                np.exp(-rate * own) * -np.expm1(-2 * rate * other) / whole
                for own, other in ((since, until), (until, since))
            )
        found = weights[0] * left + weights[1] * right
        found = np.where(last, np.exp(-rate * since) * left, found)
        found = np.where(first, np.exp(-rate * until) * right, found)
    found[there] = values[there]
    return np.where(first & last, 0.0, found)
