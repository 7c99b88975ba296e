"""Events that are over: values unlike those of all other weeks, for less than a day, which say nothing of what comes.

A burst pipe, a blackout or a run of bad readings stands in the references of later rows, a day, a week and
two weeks on. With D rows in the short season and W in the long one (where there is one season, W = D), at row i,

    δ = the quantile 1 − `TAIL` of min(|y_t − y_{t−W}|, |y_t − y_{t−2W}|) over `SAMPLE` rows t of the last W (or
        7 D) up to i; t − D for t − 2W where that is not known,

and values *differ* by more than `FAR` · δ. The value of a row s is an event that is over, where

- it differs from all that are known of s − W, s − 2W and s + W, two at least; where neither s − 2W nor s + W is known,
  from s − W and all that are known of s − D and s + D, one at least;
- it does not come back. It comes back if s − D, s + D or the last row of its phase in D (for rows of the last day the
  one before) is like it, and differs from one or two weeks before: so does a new habit, or a level that stays;
- the newest values differ from one or from two weeks before by no more. In an outage the last known value and the one
  before it stand for them: where both differ from both weeks, there may be a new level, and no event is looked for.

A level that stays, a new habit and a weekly event are none of this, and more than a day of them makes δ large. Nothing
is kept: the answer is a function of the rows that a window looks back on. None is looked for with gaps="reset", and
where windows have no context.
"""

from __future__ import annotations

import numpy as np

from streamgp.windows.calendar import Bools, Floats, Ints

SAMPLE = 40
"""Rows of the sample that gives δ."""
TAIL = 0.125
"""Share of them that may be of events: 21 hours of a week."""
FAR = 6.0
"""How many δ are far. With 4, hot afternoons of a summer's load are events, and its error is half a per cent larger."""
NEWEST = 3
"""Newest values that must be as usual."""
WEEKS = 4
"""The first of `neighbours`, whole weeks away; their median takes the place of an event."""
_WEEK_BACK = 0
_ROUND_WEEKS, _TWO_BACK_OR_AHEAD = slice(0, 3), slice(1, 3)
_DAYS, _DAYS_A_WEEK_BEFORE = slice(4, 6), slice(6, 8)
_LAST, _LAST_WEEKS_BEFORE = slice(8, 9), slice(9, 11)
"""Columns of `neighbours`."""


def offsets(rows: int) -> Ints:
    """(SAMPLE,) offsets of the rows that δ is taken of, evenly over this number of rows up to the present one."""
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


def neighbours(s: Ints, week: int, day: int) -> Ints:
    """(P, 11) offsets of the rows that say whether a value is an event that is over.

    Args:
        s: (P,) offsets of the values, at most 0.
        week: W.
        day: D.

    Returns:
        s − W, s − 2W, s + W, s − 3W; s − D, s + D, both one week before; the last row of its phase, one and two weeks
        before that.
    """
    last = np.where(s > -day, s - day, -(-s % day))
    weeks = [s - week, s - 2 * week, s + week, s - 3 * week]
    return np.stack([*weeks, s - day, s + day, s - day - week, s + day - week, last, last - week, last - 2 * week], 1)


def is_over(y: Floats, around: Floats, differ: Floats) -> Bools:
    """(P,) whether values are events that are over.

    Args:
        y: (P,) the values.
        around: (P, 11) those at `neighbours`, NaN where they are missing or yet to come.
        differ: (P,) by how much values differ.

    Example:
        >>> usual = [10.0, 11.0, np.nan, 9.0, 12.0, 10.0, 11.0, 10.0, 10.0, 11.0, 10.0]
        >>> habit = [10.0, 11.0, np.nan, 9.0, 90.0, 90.0, 11.0, 10.0, 90.0, 90.0, 10.0]
        >>> is_over(np.full(2, 90.0), np.array([usual, habit]), np.full(2, 20.0)).tolist()
        [True, False]
    """
    with np.errstate(invalid="ignore"):
        unlike = ~(np.abs(around - y[:, None]) <= differ[:, None])  # missing ones are
        known = ~np.isnan(around)
        moved = np.abs(around[:, _DAYS] - around[:, _DAYS_A_WEEK_BEFORE])
        days = moved > differ[:, None]  # is the day before or after one, too?
        since = (np.abs(around[:, _LAST] - around[:, _LAST_WEEKS_BEFORE]) > differ[:, None]).any(1)
    comes_back = (~unlike[:, _DAYS] & days).any(1) | (~unlike[:, _LAST].any(1) & since)
    alone = unlike[:, _DAYS].all(1) & known[:, _DAYS].any(1) & known[:, _WEEK_BACK]
    enough = np.where(known[:, _TWO_BACK_OR_AHEAD].any(1), known[:, _ROUND_WEEKS].sum(1) > 1, alone)
    return np.asarray(unlike[:, _ROUND_WEEKS].all(1) & enough & ~comes_back)
