"""Numbers that count by the calendar or the clock, and not one by one: 202412 is followed by 202501, 59 by 100."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_YEARS = 1900, 2100
_MOST = 0.9
"""Of numbers, at least, that must be of the calendar."""


class Like(NamedTuple):
    """What numbers seem to be.

    Attributes:
        what: in words. hint: what to do about it.
        before, after: two of them that follow each other, with a gap between them if they counted steps.
    """

    what: str
    hint: str
    before: int
    after: int


def calendar_in(numbers: pl.Series) -> Like | None:
    """What numbers are that count by the calendar or the clock: months (202401), weeks, days of a year, days without
    the century (240131), or times of a day. The proof is a jump where a year, a month or an hour ends: numbers that are
    one unit apart by the calendar, and not so as numbers. None where there is no such proof.

    Args:
        numbers: (N,) float64, whole or not.

    Example:
        >>> calendar_in(pl.Series([202411.0, 202412.0, 202501.0])).what
        'months'
        >>> calendar_in(pl.Series([202401.0, 202402.0, 202403.0])), calendar_in(pl.Series([1.0, 2.0, 4.0]))
        (None, None)
        >>> calendar_in(pl.Series([0.0, 30.0, 100.0, 130.0])).what
        'times of a day without a date'
    """
    if len(numbers) < _FEWEST:
        return None
    values = numbers.to_numpy()
    if (values != np.floor(values)).any() or (values < 0).any() or (values > 10**7).any():
        return None
    distinct = np.unique(values.astype(np.int64))
    for what, hint, count in _WAYS:
        counted, good = count(distinct)
        if good.mean() < _MOST:
            continue
        found, units = distinct[good], counted[good]
        apart = np.diff(units)
        if not len(apart) or apart.min() < 1:
            continue
        near = np.flatnonzero(apart == apart.min())
        raw = np.diff(found)[near]
        if len(raw) > 1 and raw.max() > raw.min():
            at = int(near[np.argmax(raw)])
            return Like(what, hint, int(found[at]), int(found[at + 1]))
    return None


_FEWEST = 3


def _months(values: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    year, month = values // 100, values % 100
    return year * 12 + month, (month >= 1) & (month <= 12) & _of(year)


def _weeks(values: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Counted as if each year had 52: where one has 53, two of its weeks are one."""
    year, week = values // 100, values % 100
    return year * 52 + np.minimum(week, 52), (week >= 1) & (week <= 52) & _of(year)


def _days_of_years(values: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    year, day = values // 1000, values % 1000
    good = (day >= 1) & (day <= 366) & _of(year)
    first = (np.where(good, year, 1970) - 1970).astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)
    return first + day, good


def _short_days(values: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    year, month, day = values // 10_000, values // 100 % 100, values % 100
    good = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1) & (year <= 99)
    months = ((year + 30) * 12 + np.where(good, month, 1) - 1).astype("datetime64[M]")
    last = (months + 1).astype("datetime64[D]").astype(np.int64)
    days = months.astype("datetime64[D]").astype(np.int64) + day - 1
    return days, good & (days < last)


def _minutes(values: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    hour, minute = values // 100, values % 100
    return hour * 60 + minute, (hour <= 24) & (minute < 60)


def _seconds(values: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    hour, minute, second = values // 10_000, values // 100 % 100, values % 100
    return hour * 3600 + minute * 60 + second, (hour <= 24) & (minute < 60) & (second < 60)


def _of(year: Ints) -> NDArray[np.bool_]:
    return np.asarray((year >= _YEARS[0]) & (year <= _YEARS[1]))


_CLOCK = "the date is elsewhere: --time Date,Time reads both, where it is in another column"
_WAYS: tuple[tuple[str, str, Callable[[Ints], tuple[Ints, NDArray[np.bool_]]]], ...] = (
    ("months", "say --time-format '%Y%m'", _months),
    ("weeks of years", "write the date on which each begins", _weeks),
    ("days of years", "say --time-format '%Y%j'", _days_of_years),
    ("days without the century", "say --time-format '%y%m%d'", _short_days),
    ("times of a day without a date", _CLOCK, _minutes),
    ("times of a day without a date", _CLOCK, _seconds),
)
