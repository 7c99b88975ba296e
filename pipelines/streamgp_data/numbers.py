"""Numbers as text, in tables, messages and progress lines alike."""

from __future__ import annotations

import math
from collections.abc import Sequence


def number(value: float) -> str:
    """Four significant digits, all digits before the point, and a comma for thousands.

    Example:
        >>> number(32703.4), number(-1234567.8), number(0.123456), number(12.0), number(999.96), number(0.0)
        ('32,703', '-1,234,568', '0.1235', '12', '1,000', '0')
        >>> number(3.2e-7), number(6.02e23), number(float("nan"))
        ('3.2e-07', '6.02e+23', '-')
    """
    if not math.isfinite(value):
        return "-"
    rounded = abs(float(f"{value:.4g}"))
    return f"{value:,.0f}" if 1000 <= rounded < 1e15 else f"{value:.4g}"


def lasting(seconds: float) -> str:
    """A length of time as a clock shows it.

    Example:
        >>> lasting(7.6), lasting(83), lasting(3725), lasting(90_000)
        ('0:07', '1:23', '1:02:05', '25:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def spoken(seconds: float) -> str:
    """A length of time in the largest unit that it is a whole number of, as --every takes it.

    Example:
        >>> spoken(1800.0), spoken(5400.0), spoken(86400.0), spoken(0.0112)
        ('30m', '90m', '1d', '11.2ms')
    """
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    whole = next((name for name, size in units.items() if seconds >= size and not seconds % size), None)
    if whole is not None:
        return f"{seconds / units[whole]:g}{whole}"
    return f"{seconds:g}s" if seconds >= 1 else f"{1000 * seconds:g}ms"


def several(given: Sequence[float] | float | None) -> Sequence[float] | None:
    """A number alone as the only one.

    Example:
        >>> several(95), several((80, 95)), several(None)
        ((95,), (80, 95), None)
    """
    return (given,) if isinstance(given, int | float) else given
