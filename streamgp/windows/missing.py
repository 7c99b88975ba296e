"""Missing values of windows: which windows have none, and what stands in for them."""

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


def filled(values: Floats) -> Floats:
    """(N, J, C) with each missing value as the last one before it along J, or else as the first one after it.

    Example:
        >>> filled(np.array([[[np.nan], [1.0], [np.nan], [2.0]]])).tolist()
        [[[1.0], [1.0], [1.0], [2.0]]]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isnan(values.sum()):
            return values
    there = ~np.isnan(values)
    at = np.maximum.accumulate(np.where(there, np.arange(values.shape[1])[:, None], -1), 1)
    return np.take_along_axis(values, np.where(at < 0, there.argmax(1)[:, None], at), 1)
