"""Intervals of time as users write them: 30m, 1.5h, 10ms."""

from __future__ import annotations

import re

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "m": 60 * 10**9}
_UNITS |= {"h": 3600 * 10**9, "d": 86_400 * 10**9, "w": 7 * 86_400 * 10**9}
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*")


def nanoseconds(text: str) -> int | None:
    """An interval in nanoseconds; None if it is none, or not longer than nothing.

    Example:
        >>> nanoseconds("30m"), nanoseconds("1.5h") == nanoseconds("90min"), nanoseconds("soon")
        (1800000000000, True, None)
    """
    found = _WRITTEN.fullmatch(text)
    if not found or found[2] not in _UNITS:
        return None
    return round(float(found[1]) * _UNITS[found[2]]) or None


def written(interval: int) -> str:
    """An interval of at least 1 ns, as `nanoseconds` reads it, in the largest unit that divides it.

    Example:
        >>> written(5_400 * 10**9), written(86_400 * 10**9)
        ('90min', '1d')
    """
    unit = next(unit for unit in ("w", "d", "h", "min", "s", "ms", "us", "ns") if not interval % _UNITS[unit])
    return f"{interval // _UNITS[unit]}{unit}"
