"""Events that are over: values unlike those of all other weeks, for less than a day, which say nothing of what comes.

A burst pipe, a blackout, a holiday or a run of bad readings stands in the references of later rows, a day, a week and
two weeks on. With D rows in the short season and W in the long one (where there is one season, W = D), at row i,

    δ = the quantile 1 − `TAIL` of min(|y_t − y_{t−W}|, |y_t − y_{t−2W}|) over `SAMPLE` rows t of the last W (or
        7 D) up to i; t − D for t − 2W where that is not known,

and values *differ* by more than `FAR` · δ. The value of a row s is an event that is over, where

- it differs from all that are known of s − W, s − 2W and s + W, two at least; or of s − W, s ± D, where s − 2W is not;
- it does not come back: the last row before i of its phase in D does not differ from it, and from its week before;
- the newest values differ from their last week, or the one before, by no more.

A level that stays, a new habit and a weekly event are none of this, and more than a day of them makes δ large. Nothing
is kept: the answer is a function of the rows that a window looks back on.
"""

from __future__ import annotations

import numpy as np

from streamgp.windows.calendar import Floats, Ints

SAMPLE = 40
"""Rows that δ is taken of."""
TAIL = 0.125
"""Share of them that may be of events: 21 hours of a week."""
FAR = 6.0
"""Of δ. With 4, hot afternoons of a summer's load are events, and its error is half a percent larger."""
NEWEST = 3
"""Newest values that must be as usual."""


def offsets(rows: int) -> Ints:
    """(SAMPLE,) rows behind a row that δ is taken of, over so many rows."""
    return np.asarray(-(np.arange(SAMPLE) * rows // SAMPLE))


def width(now: Floats, before: Floats, earlier: Floats) -> Floats:
    """(N, O) by how much values differ: `FAR` · δ; infinite where less than half of the sample is known, or δ is 0.

    Args:
        now: (N, SAMPLE, O) values, NaN where they are missing.
        before: W rows before these.
        earlier: 2W rows before these.

    Example:
        >>> now = np.append(np.arange(35.0), np.full(5, 900.0))
        >>> width(now[None, :, None], np.zeros((1, 40, 1)), np.zeros((1, 40, 1))).tolist()
        [[204.0]]
    """
    away = np.sort(np.fmin(np.abs(now - before), np.abs(now - earlier)), 1)  # NaN last
    known = (~np.isnan(away)).sum(1)
    place = (known - 1 - np.ceil(TAIL * known).astype(np.int64)).clip(min=0)
    found = np.take_along_axis(away, place[:, None], 1)[:, 0]
    none = (2 * known < now.shape[1]) | ~(found > 0)
    return np.where(none, np.inf, FAR * found)
