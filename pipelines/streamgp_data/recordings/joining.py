"""Signals at their own rates, as columns at the times of one clock."""

from __future__ import annotations

import numpy as np

from streamgp_data.recordings.recording import Times, Values


def join(clock: Times, times: Times, values: Values, rule: str, reach: int | None = None) -> Values:
    """(M,) the values of a signal at the times of a clock; NaN where there is none.

    Args:
        clock: (M,) ns. times: (N,) ns, ascending. values: (N,). Of samples at one time the last counts.
        rule: "last", the newest sample that is not later: it uses no future; "nearest", the earlier of two as near;
            "interpolate", linear between both neighbours.
        reach: ns that every sample in use may be away; None: any.

    Example:
        >>> clock, times, values = np.array([0, 4, 6, 20]), np.array([2, 6, 10]), np.array([1.0, 3.0, 5.0])
        >>> join(clock, times, values, "last").tolist()
        [nan, 1.0, 3.0, 5.0]
        >>> join(clock, times, values, "last", reach=2).tolist()
        [nan, 1.0, 3.0, nan]
        >>> join(clock, times, values, "interpolate").tolist()
        [nan, 2.0, 3.0, nan]
    """
    found = np.full(len(clock), np.nan)
    if not len(times) or not len(clock):
        return found
    far = np.iinfo(np.int64).max
    limit = far if reach is None else reach
    before = np.searchsorted(times, clock, side="right") - 1
    left = np.where(before >= 0, clock - times[np.maximum(before, 0)], far)
    if rule == "last":
        good = (before >= 0) & (left <= limit)
        found[good] = values[before[good]]
        return found
    after = np.searchsorted(times, clock)
    right = np.where(after < len(times), times[np.minimum(after, len(times) - 1)] - clock, far)
    if rule == "nearest":
        index = np.where(left <= right, before, after)
        good = np.minimum(left, right) <= min(limit, far - 1)
        found[good] = values[index[good]]
        return found
    good = (left <= min(limit, far - 1)) & (right <= min(limit, far - 1))
    low, high = values[before[good]], values[after[good]]
    gap = (left + right)[good]
    with np.errstate(invalid="ignore", over="ignore"):
        between = low + (high - low) * (left[good] / np.maximum(gap, 1))
    found[good] = np.where(left[good] == 0, low, between)
    return found
