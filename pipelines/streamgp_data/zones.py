"""The zone of a table, as Python's datetime and as polars want it: an IANA name or an offset such as +10:00."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from streamgp.windows.zones import offset_of

_HOUR = 3_600_000_000  # microseconds


def clock_of(zone: str | None) -> tzinfo:
    """What a time without an offset is to be read in; a naive clock (None) counts as UTC everywhere.

    Raises:
        UsageError: there is no such zone.

    Example:
        >>> from datetime import datetime
        >>> datetime(2024, 7, 1, tzinfo=clock_of("+05:30")).isoformat()
        '2024-07-01T00:00:00+05:30'
    """
    if zone is None:
        return UTC
    offset = offset_of(zone)
    return ZoneInfo(zone) if offset is None else timezone(timedelta(microseconds=offset))


def shown_in(zone: str | None) -> str | None:
    """The IANA name of the zone that times are shown in; None for a naive clock.

    An offset of whole hours has a name; instants of other offsets are shown in UTC, which moves none of them.

    Example:
        >>> shown_in("+10:00"), shown_in("Europe/Berlin"), shown_in("+05:30")
        ('Etc/GMT-10', 'Europe/Berlin', 'UTC')
    """
    offset = None if zone is None else offset_of(zone)
    if offset is None:
        return zone
    hours, rest = divmod(offset, _HOUR)
    if rest or not hours or not -12 <= hours <= 14:
        return "UTC"
    return f"Etc/GMT{-hours:+d}"
