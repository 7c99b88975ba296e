"""Reading the time column: ISO 8601, given formats, epochs, steps; naive clocks and zones.

A table keeps instants as microseconds since 1970 (UTC where the time carries an offset or `--timezone` is given,
else the naive local clock as it is), steps as int64.

The rule for a local clock with daylight saving time, where a zone is given for times without offset:

- A local time that occurs twice (the clock was set back) is the earlier instant, unless the same series already
  had that local time, or a later one of the same repeated hour, earlier in the same source: then it is the later
  instant. So a file that runs through the repeated hour twice keeps both, in the order of its rows.
- A local time that does not exist (the clock was set forward) is never moved: the row goes to the quarantine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.errors import DataError, UsageError
from streamgp.streaming.instants import (
    ELAPSED,
    EPOCHS,
    FORMATS,
    epoch_years,
    number_times,
    serial_times,
    serial_years,
    starts_over,
    text_times,
    timestamps,
    whole_numbers,
)
from streamgp.streaming.zones import LocalClock, offset_of

Bools = NDArray[np.bool_]

ISO_BASIC = "%Y%m%dT%H%M%S"

MOST = 0.9
"""Of numbers, which are read as an epoch; the rest are taken for faults, such as 0 of a clock that is not set."""

Kind: TypeAlias = Literal[
    "iso",
    "iso-offset",
    "format",
    "epoch-s",
    "epoch-ms",
    "epoch-us",
    "epoch-ns",
    "elapsed-s",
    "elapsed-ms",
    "elapsed-us",
    "elapsed-ns",
    "excel",
    "timestamp",
    "step",
]

_TIME_NAMES = ("time", "timestamp", "date", "datetime", "ts", "ds", "epoch")
_YEAR_2000 = 946_684_800 / 315_532_800
"""The first instant of 2000 by that of 1980, both counted from 1970."""

_EPOCH_KINDS: tuple[Kind, ...] = ("epoch-s", "epoch-ms", "epoch-us", "epoch-ns")
_ELAPSED_KINDS: tuple[Kind, ...] = ("elapsed-s", "elapsed-ms", "elapsed-us", "elapsed-ns")


@dataclass(frozen=True)
class Clock:
    """How the time column is read.

    Attributes:
        kind: what the cells are; format: the strptime format where kind is "format".
        zone: the zone of a local clock, of the output otherwise; None keeps a naive clock.
        localise: whether cells are local times of `zone`.
    """

    kind: Kind
    format: str | None = None
    zone: str | None = None
    localise: bool = False

    @property
    def type(self) -> pa.DataType:
        """The column's type in the table."""
        if self.kind == "step":
            return pa.int64()
        return pa.timestamp("us", "UTC" if self.zone else None)


def decide(sample: pa.ChunkedArray[Any] | pa.Array[Any], given: str | None, zone: str | None, where: str) -> Clock:
    """How to read a time column, from its first cells. `given`: iso, epoch-s ..., elapsed-s ..., step, excel, or a
    strptime format. What is given as an epoch, and lies in its first year, is elapsed time.

    Raises:
        DataError: most of the cells cannot be read as times; the hint names a format that fits.
        UsageError: the format or the zone is unknown.

    Example:
        >>> decide(pa.array(["2024-03-31 01:00", "2024-03-31 03:00"]), None, "Europe/Berlin", "a.csv").localise
        True
        >>> decide(pa.array([1577836800, 1577836860]), None, None, "a.csv").kind
        'epoch-s'
    """
    if zone is not None:
        offset_of(zone)
    whole = sample.combine_chunks() if isinstance(sample, pa.ChunkedArray) else sample
    if pa.types.is_timestamp(whole.type) or pa.types.is_date(whole.type):
        own = getattr(whole.type, "tz", None)
        if own is not None:
            offset_of(own)
        return Clock("timestamp", zone=zone or own, localise=zone is not None and own is None)
    for clock in _candidates(whole, given, zone):
        read = TimeReader(clock).read(whole)
        if int(read.bad.sum()) < len(whole) - read.values.null_count + int(read.skipped.sum()) or not read.bad.any():
            return clock
    first = next(str(cell) for cell in whole.drop_null().to_pylist())
    raise DataError(
        f"{where}: the time {first!r} cannot be read{f' as {given}' if given else ''}", hint=_suggest(whole)
    )


def readable(sample: pa.ChunkedArray[Any], given: str | None, zone: str | None, kind: pa.DataType) -> Bools:
    """(N,) the cells that are times of a table whose times are of this type, in the way that most of them are.

    Args:
        sample, given, zone: as of `decide`.
        kind: of the table's times.

    Example:
        >>> cells = pa.chunked_array([["soon", "2024-01-01T00:00Z", "2024-01-01", None]])
        >>> readable(cells, None, None, pa.timestamp("us", "UTC")).tolist()
        [False, True, False, False]
    """
    whole, found = sample.combine_chunks(), np.zeros(len(sample), bool)
    if pa.types.is_timestamp(whole.type) or pa.types.is_date(whole.type):
        return found
    for clock in _candidates(whole, given, zone):
        if clock.type == kind:
            good = TimeReader(clock).read(whole).values.is_valid().to_numpy(zero_copy_only=False)
            found = good if good.sum() > found.sum() else found
    return found


def is_time(sample: pa.ChunkedArray[Any]) -> bool:
    """Whether a column is a time by itself: a timestamp, or text of which most cells are ISO 8601."""
    if pa.types.is_timestamp(sample.type) or pa.types.is_date(sample.type):
        return True
    if not pa.types.is_string(sample.type) or sample.null_count == len(sample):
        return False
    cells = sample.combine_chunks()
    kinds: tuple[Kind, Kind] = ("iso", "iso-offset")
    reads = [TimeReader(Clock(kind, zone="UTC" if kind == "iso-offset" else None)).read(cells) for kind in kinds]
    return any(len(cells) - read.values.null_count > int(read.bad.sum()) for read in reads)


def is_named_epoch(name: str, sample: pa.ChunkedArray[Any]) -> bool:
    """Whether a column has the name of a time, and whole numbers that are an epoch of the years 2000 to 2100.

    Example:
        >>> cells = pa.chunked_array([[1704067200, 1704068100]])
        >>> is_named_epoch("Time", cells), is_named_epoch("count", cells)
        (True, False)
    """
    cells = sample.combine_chunks()
    if name.strip().lower() not in _TIME_NAMES or not whole_numbers(cells) or (kind := _epoch_of(cells)) is None:
        return False
    middle = pl.Series(cells.to_pylist(), strict=False).cast(pl.Float64, strict=False).median()
    return isinstance(middle, float) and middle >= epoch_years(kind)[0] * _YEAR_2000


def format_of(sample: pa.ChunkedArray[Any] | pa.Array[Any]) -> str | None:
    """A strptime format that all cells of a column of text with a digit have; None where no usual one fits.

    Example:
        >>> format_of(pa.array(["31.12.2024 23:45"])), format_of(pa.array(["", "a"])), format_of(pa.array([""]))
        ('%d.%m.%Y %H:%M', None, None)
    """
    cells = sample.combine_chunks() if isinstance(sample, pa.ChunkedArray) else sample
    if not pa.types.is_string(cells.type):
        return None
    cells = cells.filter(pc.match_substring_regex(cells, r"\d"))  # a row of units is no time
    for form in FORMATS:
        values, bad = text_times(cells, False, form)
        if not bad.any() and values.null_count < len(values):
            return form
    return None


class Times(NamedTuple):
    """values: the column in the table's type, null where there is none; bad, skipped: (N,) the rows that say
    something that cannot be read, and the local times that the clock skipped."""

    values: pa.Array[Any]
    bad: Bools
    skipped: Bools


class TimeReader:
    """Reads the time column of one source, front to back.

    It remembers, for every series, how far its last repeated hour had come, so that blocks do not matter.

    Example:
        >>> berlin = TimeReader(Clock("iso", zone="Europe/Berlin", localise=True))
        >>> cells = pa.array(["2024-10-27 02:00", "2024-10-27 02:30", "2024-10-27 02:00", "2024-03-31 02:30", "soon"])
        >>> read = berlin.read(cells)
        >>> [str(value) for value in read.values.cast(pa.timestamp("s"))]
        ['2024-10-27 00:00:00', '2024-10-27 00:30:00', '2024-10-27 01:00:00', 'None', 'None']
        >>> read.bad.tolist(), read.skipped.tolist()
        ([False, False, False, False, True], [False, False, False, True, False])
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._zone = LocalClock(clock.zone) if clock.localise and clock.zone else None

    @property
    def remembers(self) -> bool:
        """Whether what was read before changes how the next cells are read."""
        return self._zone is not None and self._zone.changes

    def read(self, cells: pa.Array[Any], series: pa.Array[Any] | None = None) -> Times:
        """Cells as times, in the order of the source; `series` says whose clock each row shows."""
        kind = self.clock.kind
        if kind in ("iso", "iso-offset", "format"):
            values, bad = text_times(cells, kind == "iso-offset", self.clock.format)
        elif kind == "timestamp":
            values, bad = timestamps(cells)
        elif kind == "excel":
            values, bad = serial_times(cells)
        else:
            values, bad = number_times(cells, kind)
        skipped = np.zeros(len(values), bool)
        if self._zone is not None:
            values, skipped = self._zone.to_utc(values, series)
        return Times(values.cast(self.clock.type), bad, skipped)


def _candidates(sample: pa.Array[Any], given: str | None, zone: str | None) -> list[Clock]:
    """The clocks to try, the likeliest first."""
    iso = [Clock("iso", zone=zone, localise=zone is not None), Clock("iso-offset", zone=zone or "UTC")]
    if given is None:
        text = pa.types.is_string(sample.type)
        unit = _epoch_of(sample)
        numbers = [Clock("step")] if unit is None else [Clock(unit, zone=zone or "UTC")]
        return [*iso, Clock("format", ISO_BASIC, zone, zone is not None), *numbers] if text else numbers
    if given == "iso":
        return iso
    if given == "step":
        return [Clock("step")]
    if given == "excel":
        return [Clock("excel", zone=zone, localise=zone is not None)]
    if given in ELAPSED or (given in EPOCHS and starts_over(sample, given)):
        elapsed = given.replace("epoch", "elapsed")
        return [Clock(kind) for kind in _ELAPSED_KINDS if kind == elapsed]
    if given in EPOCHS:
        return [Clock(kind, zone=zone or "UTC") for kind in _EPOCH_KINDS if kind == given]
    if "%" not in given:
        raise UsageError(
            f"time format {given!r} is unknown",
            hint=f"use iso, {', '.join(EPOCHS)}, step, excel, or a format like '%d.%m.%Y %H:%M'",
        )
    aware = "%z" in given or "%Z" in given
    return [Clock("format", given, (zone or "UTC") if aware else zone, zone is not None and not aware)]


def _epoch_of(sample: pa.Array[Any]) -> Kind | None:
    """The epoch whose years 1980 to 2100 hold nine in ten numbers of the sample, or more; None where they are steps."""
    numbers = pl.Series(sample.to_pylist(), strict=False).cast(pl.Float64, strict=False).drop_nulls()
    for kind in _EPOCH_KINDS:
        low, high = epoch_years(kind)
        if len(numbers) and numbers.is_between(low, high).sum() >= MOST * len(numbers):
            return kind
    return None


def _suggest(sample: pa.Array[Any]) -> str:
    if (form := format_of(sample)) is not None:
        return f"it looks like --time-format '{form}'"
    if serial_years(sample):
        return "if it counts the days of a workbook (45292 is 2024-01-01), say --time-format excel"
    if not number_times(sample, "elapsed-s")[1].any():
        return (
            "if it counts from a start, say in what with --time-format elapsed-s, elapsed-ms, elapsed-us or elapsed-ns"
        )
    return "say how it is written with --time-format, for example '%d.%m.%Y %H:%M', or use --time row"
