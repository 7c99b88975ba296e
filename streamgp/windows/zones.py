"""Local clocks: from the time that the wall showed to the instant that it was."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.errors import UsageError

Bools = NDArray[np.bool_]

_DAY = 86_400_000_000  # microseconds


def offset_of(zone: str) -> int | None:
    """Microseconds east of Greenwich of "+10:00", "UTC-3" and the like; None for a named zone.

    Raises:
        UsageError: neither an offset nor a known zone.
    """
    found = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", zone)
    if found:
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        if int(found[3] or 0) >= 60 or minutes > 14 * 60:
            raise UsageError(f"time zone {zone!r}: no clock is that far from UTC", hint="offsets end at +14:00")
        return (minutes if found[1] == "+" else -minutes) * 60_000_000
    try:
        ZoneInfo(zone)
    except (OSError, ValueError, KeyError):
        near = get_close_matches(zone, sorted(available_timezones()), n=1)
        hint = f"did you mean {near[0]}?" if near else "use a name like Europe/Berlin, or an offset like +10:00"
        raise UsageError(f"time zone {zone!r} is unknown", hint=hint) from None
    return None


def canonical(zone: str) -> str:
    """A zone as it is kept: a name as it is, an offset as Arrow writes it.

    Raises:
        UsageError: neither an offset nor a known zone.

    Example:
        >>> canonical("UTC-3"), canonical("+0530"), canonical("Europe/Berlin")
        ('-03:00', '+05:30', 'Europe/Berlin')
    """
    east = offset_of(zone)
    if east is None:
        return zone
    hours, minutes = divmod(abs(east) // 60_000_000, 60)
    return f"{'-' if east < 0 else '+'}{hours:02d}:{minutes:02d}"


class LocalClock:
    """The clock of one zone as one source shows it, front to back.

    A local time that occurs twice is the earlier instant, unless its series already had that time or a later one of the
    repeated hour in the same source: then it is the later instant. A local time that the clock skipped goes to the
    quarantine.

    For every series it remembers the day and the latest local time of the repeated hour that it was last in.
    """

    def __init__(self, zone: str) -> None:
        self._zone = zone
        self._fixed = offset_of(zone)
        self._peaks: dict[Any, tuple[int, int]] = {}

    @property
    def changes(self) -> bool:
        """Whether this clock is ever set back or forward."""
        return self._fixed is None

    def to_utc(self, local: pa.Array[Any], series: pa.Array[Any] | None) -> tuple[pa.Array[Any], Bools]:
        """Naive local times (N,) as instants, null where the clock skipped them; and where it did (N,)."""
        if self._fixed is not None:
            instants = pc.subtract(local.cast(pa.int64()), self._fixed)
            return instants.cast(pa.timestamp("us", "UTC")), np.zeros(len(local), bool)
        naive = pl.Series(pl.from_arrow(local.cast(pa.timestamp("us"))))
        early = naive.dt.replace_time_zone(self._zone, ambiguous="earliest", non_existent="null")
        late = naive.dt.replace_time_zone(self._zone, ambiguous="latest", non_existent="null")
        twice = (early != late).fill_null(False).arg_true()
        micros = early.dt.epoch("us")
        if len(twice):
            later = pl.Series(self._later(naive.dt.epoch("us"), twice, series))
            at = twice.filter(later)
            micros = micros.scatter(at, late.dt.epoch("us").gather(at))
        skipped = (naive.is_not_null() & early.is_null()).to_numpy()
        return micros.to_arrow().cast(pa.timestamp("us", "UTC")), skipped

    def begins(self, days: pl.Series) -> pl.Series:
        """Naive midnights (N,) as the instants at which these days begin, μs: at 01:00 where midnight was skipped."""
        if self._fixed is not None:
            return days.dt.epoch("us") - self._fixed

        def instants(local: pl.Series) -> pl.Series:
            return local.dt.replace_time_zone(self._zone, ambiguous="earliest", non_existent="null").dt.epoch("us")

        first = instants(days)
        return first.fill_null(instants(days.dt.offset_by("1h"))) if first.null_count() else first

    def shown(self, begin: int, end: int, step: int) -> tuple[int, ...]:
        """Numbers, from 1 at 00:00, that this clock shows of the periods of `step` μs from one instant to another."""
        instants = pl.int_range(begin, end, step, eager=True).cast(pl.Datetime("us", "UTC"))
        local = instants.dt.convert_time_zone(self._zone).dt.replace_time_zone(None)
        return tuple((local.dt.epoch("us") % _DAY // step + 1).to_list())

    def _later(self, local: pl.Series, rows: pl.Series, series: pa.Array[Any] | None) -> list[bool]:
        """For the few rows inside a repeated hour, in order: whether each is in its second run."""
        answers = []
        for row in rows.to_list():
            name = None if series is None else series[row].as_py()
            time = int(local[row])
            day, peak = self._peaks.get(name, (-1, -1))
            second = day == time // _DAY and time <= peak
            self._peaks[name] = (time // _DAY, max(time, peak) if day == time // _DAY else time)
            answers.append(second)
        return answers
