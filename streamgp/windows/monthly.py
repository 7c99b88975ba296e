"""Rows a month, a quarter or a year apart: no number of nanoseconds leads from one to the next, but the calendar does.

Rows that all stand on one day of the month, or on its last one where the month is shorter, at one time of the day, keep
to it: the 1st, the 15th, the end of the month. Times are int64 nanoseconds, as in `calendar`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamgp.windows.calendar import DAY, Bools, Ints, offset

SURE = 3
"""Rows that say so, at least: two may be that far apart by chance."""


class Months(NamedTuple):
    """Of each of N rows, (N,): the months from one row of its series to the next, 0 where they keep to no day of the
    month; and that day, from 0."""

    step: Ints
    day: Ints


def find(ds: Ints, there: Bools, zone: str | None) -> Months:
    """The months between the newest rows up to each row, of two middle ones the fewer.

    Args:
        ds: (N, P) times, oldest first.
        there: (N, P) whether there is such a row.
        zone: whose calendar it is; None is UTC.

    Example:
        >>> ds = np.array([["2023-06-30", "2023-09-30", "2023-12-31"]], "datetime64[ns]").astype(np.int64)
        >>> [find(at, at > 0, None).step.tolist() for at in (ds, ds + DAY, ds // 2)]
        [[3], [3], [0]]
    """
    month, day, rest, days = _parts(ds + offset(ds, zone))
    on = np.where(there, day, -1).max(1, keepdims=True)
    clock = np.where(there, rest, 0).max(1, keepdims=True)
    kept = (~there | ((day == np.minimum(on, days - 1)) & (rest == clock))).all(1) & (there.sum(1) >= SURE)
    step, both = np.diff(month), there[:, 1:] & there[:, :-1]
    kept &= (~both | (step > 0)).all(1) & both.any(1)
    order = np.sort(np.where(both, step, np.iinfo(np.int64).max))
    middle = np.take_along_axis(order, np.maximum(both.sum(1) - 1, 0)[:, None] // 2, 1)[:, 0]
    return Months(np.where(kept, middle, 0), on[:, 0])


def ahead(ds: Ints, steps: Ints, months: Months, zone: str | None) -> Ints:
    """The times `steps` (H,) rows after ds, (N, H), on the day that the rows keep to.

    Example:
        >>> ds = np.array(["2024-01-31"], "datetime64[ns]").astype(np.int64)
        >>> ahead(ds, np.array([1, 13]), Months(np.array([1]), np.array([30])), None).astype("datetime64[ns]").astype(
        ...     "datetime64[D]"
        ... )
        array([['2024-02-29', '2025-02-28']], dtype='datetime64[D]')
    """
    here = offset(ds, zone)
    month, _, rest, _ = _parts(ds + here)
    then = month[:, None] + steps * months.step[:, None]
    first, following = _first(then), _first(then + 1)
    wall = (first + np.minimum(months.day[:, None], following - first - 1)) * DAY + rest[:, None]
    return np.asarray(wall - offset(wall - here[:, None], zone))


def between(ds: Ints, when: Ints, zone: str | None) -> Ints:
    """(R,) how many months of the calendar lie from one time to another."""
    return _parts(when + offset(when, zone)).month - _parts(ds + offset(ds, zone)).month


class _Parts(NamedTuple):
    """Of a time on the wall: months since 1970, the day of the month from 0, ns since midnight, days of that month."""

    month: Ints
    day: Ints
    rest: Ints
    days: Ints


def _parts(wall: Ints) -> _Parts:
    day = wall // DAY
    month = day.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    first, following = _first(month), _first(month + 1)
    return _Parts(month, day - first, wall - day * DAY, following - first)


def _first(month: Ints) -> Ints:
    """Days from 1970 to the first of these months since then."""
    return np.asarray(month.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64))
