"""The calendar of a zone: wall-clock time, steps ahead in it, and the channels that a model may look at.

Times are int64 nanoseconds since the epoch (UTC). Only the zone rules of Python's `zoneinfo` are used, so that no
zone database of the operating system is needed (the `tzdata` package serves where there is none).
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from streamgp.windows.zones import offset_of

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
WEEK = 7 * DAY
YEAR = 365.2425 * DAY
_EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday; Monday is 0."""


def channels(every_ns: int | None) -> tuple[str, ...]:
    """Names of the calendar channels that can say something at this interval (None: unknown, all of them).

    The time of day below one day, the day of the week below one week, the time of year always.

    Example:
        >>> channels(DAY)
        ('calendar(week,sin)', 'calendar(week,cos)', 'calendar(weekend)', 'calendar(year,sin)', 'calendar(year,cos)')
    """
    names: tuple[str, ...] = ("calendar(year,sin)", "calendar(year,cos)")
    if every_ns is None or every_ns < WEEK:
        names = ("calendar(week,sin)", "calendar(week,cos)", "calendar(weekend)", *names)
    if every_ns is None or every_ns < DAY:
        names = ("calendar(day,sin)", "calendar(day,cos)", *names)
    return names


def values(ds: Ints, zone: str | None, every_ns: int | None) -> Floats:
    """The channels of `channels(every_ns)` at the times ds.

    sin and cos of 2π times the part of the local day (week, mean Gregorian year) that has passed, and 1 on a
    local Saturday or Sunday.

    Args:
        ds: (...) ns.
        zone: an IANA name, or an offset such as +10:00; None is UTC.
        every_ns: the interval of the rows.

    Returns:
        (..., C)

    Raises:
        UsageError: there is no such zone.

    Example:
        >>> noon = np.array([datetime(2024, 7, 6, 10, tzinfo=UTC).timestamp() * SECOND]).astype(np.int64)
        >>> values(noon, "Europe/Berlin", 3600 * SECOND)[0, [0, 1, 4]].round(6).tolist()  # 12:00 on a Saturday
        [0.0, -1.0, 1.0]
    """
    wall = ds + offset(ds, zone)
    day, week, year = (2 * np.pi * (wall % DAY) / DAY, 2 * np.pi * _into_week(wall) / WEEK, 2 * np.pi * wall / YEAR)
    weekend = (_into_week(wall) >= 5 * DAY).astype(np.float64)
    every: list[tuple[str, Floats]] = [("calendar(weekend)", weekend)]
    for name, phase in (("day", day), ("week", week), ("year", year)):
        every += [(f"calendar({name},sin)", np.sin(phase)), (f"calendar({name},cos)", np.cos(phase))]
    chosen = dict(every)
    return np.stack([chosen[name] for name in channels(every_ns)], -1)


def ahead(ds: Ints, steps: Ints, every_ns: int | Ints, zone: str | None) -> Ints:
    """The times `steps` intervals after ds, (N,) and (H,) -> (N, H); one interval for all, or one for each, (N,).

    Intervals of whole days keep the wall clock of the zone, so that a day is 23 or 25 hours where the clock is
    changed; shorter ones are elapsed time.

    Example:
        >>> eve = np.array([datetime(2024, 3, 30, 23, tzinfo=UTC).timestamp() * SECOND]).astype(np.int64)
        >>> int(ahead(eve, np.array([1]), DAY, "Europe/Berlin")[0, 0] - eve[0]) // (3600 * SECOND)  # midnight, CET
        23
    """
    every = np.broadcast_to(np.asarray(every_ns, np.int64), ds.shape)[:, None]
    nominal = ds[:, None] + steps * every
    if zone is None or (every % DAY).all():
        return nominal
    here = offset(ds, zone)[:, None]
    wall = nominal + here
    return np.where(every % DAY, nominal, wall - offset(wall - offset(nominal, zone), zone))


def offset(ds: Ints, zone: str | None) -> Ints:
    """What the zone's clock is ahead of UTC at ds, ns; (...) -> (...).

    Raises:
        UsageError: there is no such zone.
    """
    if zone is None or zone == "UTC" or not ds.size:
        return np.zeros_like(ds)
    fixed = _fixed(zone)
    if fixed is not None:
        return np.full_like(ds, fixed * 1000)
    first, last = (datetime.fromtimestamp(int(edge) // SECOND, UTC).year for edge in (ds.min(), ds.max()))
    starts, offsets = _rules(zone, first - 1, last + 1)
    return offsets[np.searchsorted(starts, ds, side="right") - 1]


def check(zone: str | None) -> None:
    """Raises UsageError where there is no such zone."""
    if zone is not None:
        _fixed(zone)


def _into_week(wall: Ints) -> Ints:
    """ns since local Monday, 00:00."""
    return (wall + _EPOCH_WEEKDAY * DAY) % WEEK


@cache
def _fixed(zone: str) -> int | None:
    """Microseconds ahead of UTC of "+10:00" and the like; None for a named zone."""
    return offset_of(zone)


@cache
def _rules(zone: str, first: int, last: int) -> tuple[Ints, Ints]:
    """The moments (ns) from which an offset (ns) holds, over the years first to last."""
    clock = ZoneInfo(zone)

    def at(second: int) -> int:
        shift = datetime.fromtimestamp(second, clock).utcoffset()
        return int(shift.total_seconds()) if shift is not None else 0

    begin, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (max(first, 1), min(last + 1, 9999)))
    moments, offsets = [begin], [at(begin)]
    for day in range(begin, end, 86_400):
        low, high = day, day + 86_400
        after = at(high)
        if after == offsets[-1]:
            continue
        while high - low > 1:  # the first second of the new offset
            middle = (low + high) // 2
            low, high = (middle, high) if at(middle) == offsets[-1] else (low, middle)
        moments.append(high)
        offsets.append(after)
    moments[0] = -(2**63) // SECOND + 1
    return np.array(moments) * SECOND, np.array(offsets) * SECOND
