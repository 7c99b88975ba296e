"""Reading the time column: ISO 8601, given formats, epochs, steps; naive clocks and zones.

A table keeps instants as microseconds since 1970, finer times rounded (UTC where the time carries an offset or
`--timezone` is given, else the naive local clock as it is), steps as int64.

The rule for a local clock with daylight saving time, where a zone is given for times without offset:

- A local time that occurs twice (the clock was set back) is the earlier instant, unless the same series already
  had that local time, or a later one of the same repeated hour, earlier in the same source: then it is the later
  instant. So a file that runs through the repeated hour twice keeps both, in the order of its rows.
- A local time that does not exist (the clock was set forward) is never moved: the row goes to the quarantine.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.errors import DataError, UsageError
from streamgp.windows.zones import LocalClock, offset_of
from streamgp_data.instants import (
    ELAPSED,
    EPOCHS,
    FORMATS,
    MISSING,
    compact_form,
    epoch_years,
    number_times,
    numbers_in,
    period_days,
    periods_of,
    serial_times,
    serial_years,
    starts_over,
    text_times,
    timestamps,
    turned_form,
    unset,
)
from streamgp_data.numbered import calendar_in
from streamgp_data.swapped import swapped
from streamgp_data.wall_periods import WallPeriods

Bools = NDArray[np.bool_]

ISO_BASIC = "%Y%m%dT%H%M%S"

MOST = 0.9
"""Of cells that are dates without separators; the rest are taken for faults."""
CLEAR = 2 / 3
"""Of numbers, which are an epoch; the rest are taken for faults, such as 0 of a clock that is not set."""
FEW = 0.1
"""Of numbers that may be in an epoch, at most, where all are steps."""

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
    "period",
    "timestamp",
    "step",
]

TEXTS: tuple[Kind, ...] = ("iso", "iso-offset", "format", "period")
"""Of times that are text, and no numbers."""
COUNTED = "if it counts from a start, say in what with --time-format elapsed-s, elapsed-ms, elapsed-us or elapsed-ns"

_ELAPSED_NAME = re.compile(
    r"(?:.*[_ .])?(?:t|time|times|timestamp|timestamps|ts|ds|stamp|clock|elapsed|seconds|secs?|zeit|temps|tiempo|tempo)"
    r"(?:[_ ]?[\[(]?(?P<unit>ns|us|µs|ms|s)[\])]?)?",
    re.IGNORECASE,
)
_TIME_NAMES = ("time", "timestamp", "date", "datetime", "ts", "ds", "epoch")
_YEAR_2000 = 946_684_800 / 315_532_800
"""The first instant of 2000 by that of 1980, both counted from 1970."""

_ISO: tuple[Kind, Kind] = ("iso", "iso-offset")
_EPOCH_KINDS: tuple[Kind, ...] = ("epoch-s", "epoch-ms", "epoch-us", "epoch-ns")
_ELAPSED_KINDS: tuple[Kind, ...] = ("elapsed-s", "elapsed-ms", "elapsed-us", "elapsed-ns")


@dataclass(frozen=True)
class Clock:
    """How the time column is read.

    Attributes:
        kind: what the cells are; format: the strptime format where kind is "format", period-48 where it is "period".
        zone: the zone of a local clock, of the output otherwise; None keeps a naive clock.
        localise: whether cells without an offset are local times of `zone`.
        modern: whether the first year after 1970 began holds no times, nor what else a clock says that was not set: of
            an epoch whose other numbers are of the years 1980 to 2100, these are such, or numbers of a larger unit.
    """

    kind: Kind
    format: str | None = None
    zone: str | None = None
    localise: bool = False
    modern: bool = False

    @property
    def type(self) -> pa.DataType:
        """The column's type in the table."""
        if self.kind == "step":
            return pa.int64()
        return pa.timestamp("us", "UTC" if self.zone else None)


def decide(
    sample: pa.ChunkedArray[Any] | pa.Array[Any],
    given: str | None,
    zone: str | None,
    where: str,
    line: int | None = None,
) -> Clock:
    """How to read a time column, from its first cells. `given`: iso, epoch-s ..., elapsed-s ..., step, excel, or a
    strptime format. What is given as an epoch, and lies in its first year, is elapsed time. `where` and `line`, that of
    the first cell, are for messages.

    Raises:
        DataError: most of the cells cannot be read as times, or some are an epoch, or dates without separators, and too
            many are not; the hint names a format that fits.
        UsageError: the format or the zone is unknown.

    Dates without separators, such as 20240131, are such a format where nine in ten cells or more are days that there
    are. Numbers are an epoch where two in three or more are of the years 1980 to 2100 in it.

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
        form = given if given and ("%" in given or periods_of(given)) else None
        return Clock("timestamp", form, zone or own, zone is not None and own is None)
    reads = list[tuple[Clock, Times]]()
    for clock in _candidates(whole, given, zone, where):
        read = TimeReader(clock).read(whole)
        wrong = int((read.bad | read.beyond).sum())
        if wrong < len(whole) - read.values.null_count + int(read.skipped.sum()) or not wrong:
            return clock
        reads.append((clock, read))
    wrong_ones = reads[0][1].bad if reads[0][1].bad.any() else whole.is_valid().to_numpy(zero_copy_only=False)
    at = int(wrong_ones.argmax())
    first, place = str(whole[at].as_py()), where if line is None else f"{where}, line {line + at:,}"
    counts = {clock.kind: len(whole) - read.values.null_count for clock, read in reads}
    if counts.get("iso") and counts.get("iso-offset"):
        raise DataError(
            f"{where}: some times have an offset from UTC, and others have none, such as {first!r} is one of",
            hint="--timezone says whose clock those without an offset show",
        )
    why, hint = f" as {given}" if given else "", suggestion(whole)
    if hint == COUNTED and not given:
        why = ": it is no date and no epoch, and seems to count from a start"
    raise DataError(f"{place}: the time {first!r} cannot be read{why}", hint=hint)


def readable(sample: pa.ChunkedArray[Any], given: str | None, zone: str | None, kind: pa.DataType) -> Bools:
    """(N,) the cells that are times of a table whose times are of this type, in the way that most of them are.

    Args:
        sample: as of `decide`.
        given: as of `decide`.
        zone: as of `decide`.
        kind: of the table's times.

    Example:
        >>> cells = pa.chunked_array([["soon", "2024-01-01T00:00Z", "2024-01-01", None]])
        >>> readable(cells, None, None, pa.timestamp("us", "UTC")).tolist()
        [False, True, False, False]
    """
    whole, found = sample.combine_chunks(), np.zeros(len(sample), bool)
    if pa.types.is_timestamp(whole.type) or pa.types.is_date(whole.type):
        return found
    try:
        clocks = _candidates(whole, given, zone, "")
    except DataError:  # numbers of several scales
        return found
    for clock in clocks:
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
    reads = [TimeReader(Clock(kind, zone="UTC" if kind == "iso-offset" else None)).read(cells) for kind in _ISO]
    found = sum(len(cells) - read.values.null_count for read in reads)  # with an offset, and without
    return 2 * found > len(cells) - reads[0].values.null_count + int(reads[0].bad.sum())


def is_named_time(name: str, sample: pa.ChunkedArray[Any]) -> bool:
    """Whether a column has the name of a time, and numbers that are an epoch of the years 2000 to 2100, or dates
    without separators.

    Example:
        >>> cells = pa.chunked_array([[1704067200.5, 1704068100.5]])
        >>> is_named_time("Time", cells), is_named_time("count", cells)
        (True, False)
        >>> is_named_time("date", pa.chunked_array([[20240131, 20240201]]))
        True
    """
    cells = sample.combine_chunks()
    if name.strip().lower() not in _TIME_NAMES or not _may_be_numbers(cells.type):
        return False
    if compact_form(cells)[1] >= MOST:
        return True
    numbers = numbers_in(cells)
    found = _epochs(numbers)
    kind = max(found, key=lambda kind: found[kind], default=None)
    if kind is None or sum(found.values()) <= FEW:
        return False
    low, high = epoch_years(kind)
    middle = numbers.filter(numbers.is_between(low, high)).median()
    return isinstance(middle, float) and middle >= low * _YEAR_2000


def elapsed_form(name: str, sample: pa.ChunkedArray[Any]) -> str | None:
    """How a column that has the name of a time, and numbers that rise, is read if it counts from a start; else None.

    Example:
        >>> rising, noise = pa.chunked_array([[0.0, 0.1, 0.2]]), pa.chunked_array([[0.4, 0.1, 0.3]])
        >>> elapsed_form("Time", rising), elapsed_form("Zeit [ms]", rising), elapsed_form("t", noise)
        ('elapsed-s', 'elapsed-ms', None)
    """
    found, cells = _ELAPSED_NAME.fullmatch(name.strip()), sample.combine_chunks()
    if found is None or not _may_be_numbers(cells.type):
        return None
    numbers = numbers_in(cells).to_numpy()
    if len(numbers) < max(2, len(cells) - cells.null_count) or np.mean(np.diff(numbers) > 0) < MOST:
        return None
    return f"elapsed-{(found['unit'] or 's').lower().replace('µ', 'u')}"


def _may_be_numbers(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind))


def format_of(sample: pa.ChunkedArray[Any] | pa.Array[Any]) -> str | None:
    """A strptime format that all cells of a column of text with a digit have; None where no usual one fits. Of days and
    months that may be either, those by which the cells are closer together.

    Example:
        >>> format_of(pa.array(["31.12.2024 23:45"])), format_of(pa.array(["", "a"])), format_of(pa.array([""]))
        ('%d.%m.%Y %H:%M', None, None)
        >>> format_of(pa.array(["03/01/2024", "03/02/2024"])), format_of(pa.array(["01/03/2024", "02/03/2024"]))
        ('%m/%d/%Y', '%d/%m/%Y')
    """
    return next(iter(formats_of(sample)), None)


def formats_of(sample: pa.ChunkedArray[Any] | pa.Array[Any]) -> list[str]:
    """All formats of `format_of`: first one by which the cells are the first days of a year of months or more, each of
    another month than the one before; then those by which the cells are closest together.

    Example:
        >>> formats_of(pa.array(["03/05/2024"])), formats_of(pa.array(["03/15/2024"]))
        (['%d/%m/%Y', '%m/%d/%Y'], ['%m/%d/%Y'])
    """
    cells = sample.combine_chunks() if isinstance(sample, pa.ChunkedArray) else sample
    if not pa.types.is_string(cells.type):
        return []
    cells = cells.filter(pc.match_substring_regex(cells, r"\d"))  # a row of units is no time
    first = next((text for cell in cells if (text := str(cell).strip()) not in MISSING), "")
    found: dict[str, tuple[bool, int]] = {}
    for form in FORMATS:
        if _shape(re.sub(r"^(\d+)\.0+$", r"\1", first)) != _SHAPES[form]:  # a conversion takes a millisecond
            continue
        values, bad = text_times(cells, False, form)
        if not bad.any() and values.null_count < len(values):
            times = values.drop_null().to_numpy(zero_copy_only=False)
            months = times.astype("datetime64[M]")
            monthly = len(times) >= 12 and bool((times == months).all() and (months[1:] != months[:-1]).all())
            found[form] = not monthly, int(np.ptp(times.astype(np.int64)))
    return sorted(found, key=lambda form: found[form])


def _shape(text: str) -> tuple[bool, str]:
    """Whether a time has letters, and its punctuation but for signs: a cell has those of its format."""
    return re.search(r"[^\W\d_]", text) is not None, re.sub(r"[\w\s+-]", "", text)


_SHAPES = {form: _shape(re.sub("%.", "1", re.sub("%[bp]", "a", form))) for form in FORMATS}


class Times(NamedTuple):
    """values: the column in the table's type, null where there is none; bad, skipped, beyond: (N,) the rows that say
    something that cannot be read, the local times that the clock skipped, and numbers that are far from the others."""

    values: pa.Array[Any]
    bad: Bools
    skipped: Bools
    beyond: Bools


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
        self._numbered = WallPeriods(periods_of(clock.format) or 1)

    def copy(self) -> TimeReader:
        """One that has read the same, and reads on by itself."""
        return deepcopy(self) if self.remembers else self

    @property
    def remembers(self) -> bool:
        """Whether what was read before changes how the next cells are read."""
        return self._zone is not None and self._zone.changes

    def read(self, cells: pa.Array[Any], series: pa.Array[Any] | None = None) -> Times:
        """Cells as times, in the order of the source; `series` says whose clock each row shows."""
        kind, zone = self.clock.kind, self._zone
        if kind in ("iso", "iso-offset") and zone is not None:
            return self._both(cells, series, zone)
        if kind == "period":
            return self._periods(cells, series)
        if kind in ("iso", "iso-offset", "format"):
            values, bad = text_times(cells, kind == "iso-offset", self.clock.format)
        elif kind == "timestamp":
            values, bad = timestamps(cells)
        elif kind == "excel":
            values, bad = serial_times(cells)
        else:
            values, bad = number_times(cells, kind)
        skipped = beyond = np.zeros(len(values), bool)
        if kind in EPOCHS:
            values, bad, beyond = self._near(cells, values, bad)
        if zone is not None:
            values, skipped = zone.to_utc(values, series)
        return Times(values.cast(self.clock.type), bad, skipped, beyond)

    def _both(self, cells: pa.Array[Any], series: pa.Array[Any] | None, zone: LocalClock) -> Times:
        """ISO 8601 with an offset, and without one by the clock of the zone."""
        offset = self.clock.kind == "iso-offset"
        values, bad = text_times(cells, offset, None)
        skipped, nothing = np.zeros(len(values), bool), np.zeros(len(values), bool)
        if not offset:
            values, skipped = zone.to_utc(values, series)
        if bad.any():
            others, wrong = text_times(cells.filter(pa.array(bad)), not offset, None)
            places = np.flatnonzero(bad)
            if offset:
                names = None if series is None else series.filter(pa.array(bad))
                others, skipped[places] = zone.to_utc(others, names)
            order: NDArray[np.int64] = np.arange(len(values))
            order[places] = len(values) + np.arange(len(places))
            both = pa.concat_arrays([values.cast(self.clock.type), others.cast(self.clock.type)])
            values = both.take(pa.array(order, pa.int64()))
            bad = bad.copy()
            bad[places] = wrong
        return Times(values.cast(self.clock.type), bad, skipped, nothing)

    def _periods(self, cells: pa.Array[Any], series: pa.Array[Any] | None) -> Times:
        """The beginnings of periods; a day has as many as it has time, which is more where a clock is set back."""
        days, numbers, bad = period_days(cells)
        count = periods_of(self.clock.format) or 1
        step = _DAY // count
        if self._zone is None:
            begin, end = days.dt.epoch("us"), days.dt.epoch("us") + _DAY
        else:
            begin, end = self._zone.begins(days), self._zone.begins(days.dt.offset_by("1d"))
            changed = (end - begin != count * step) & ((end - begin) % step == 0) & (numbers > 0)
            rows = changed.fill_null(False).arg_true()
            ends = set(zip(days[rows], begin[rows], end[rows], strict=True))
            shown = {day: self._zone.shown(first, last, step) for day, first, last in ends}
            names = [None] * len(rows) if series is None else series.take(rows.to_arrow()).to_pylist()
            places = [
                self._numbered.place(name, day, shown[day], number)
                for name, day, number in zip(names, days[rows], numbers[rows], strict=True)
            ]
            numbers = numbers.scatter(rows, places) if places else numbers
        found = begin + (numbers - 1) * step
        beyond = ((numbers < 1) | (found >= end)).fill_null(False)
        values = found.set(beyond, None).to_arrow().cast(self.clock.type)
        return Times(values, bad, np.zeros(len(values), bool), beyond.to_numpy())

    def _near(self, cells: pa.Array[Any], values: pa.Array[Any], bad: Bools) -> tuple[pa.Array[Any], Bools, Bools]:
        """Times of an epoch, what cannot be read, and the numbers that are no time of it."""
        beyond = np.zeros(len(values), bool)
        if bad.any():
            numbers = pl.Series(pl.from_arrow(cells)).cast(pl.Float64, strict=False)
            beyond = numbers.is_finite().fill_null(False).to_numpy() & bad
        if self.clock.modern:
            early = unset(values)
            beyond = beyond | early
            values = pc.if_else(pa.array(early), pa.scalar(None, values.type), values) if early.any() else values
        return values, bad & ~beyond, beyond


def _candidates(sample: pa.Array[Any], given: str | None, zone: str | None, where: str) -> list[Clock]:
    """The clocks to try, the likeliest first.

    Raises:
        DataError: numbers are of several scales.
        UsageError: the format is unknown.
    """
    iso = [Clock("iso", zone=zone, localise=zone is not None)]
    iso += [Clock("iso-offset", zone=zone or "UTC", localise=zone is not None)]
    if zone is not None and pa.types.is_string(sample.type) and _mostly_offset(sample):
        iso = iso[::-1]
    if given is None:
        if not pa.types.is_string(sample.type):
            return [_of_numbers(sample, zone, where)]
        basic = Clock("format", ISO_BASIC, zone, zone is not None)
        said = sum(str(cell).strip() not in MISSING for cell in sample.drop_null().to_pylist())
        numbers = 2 * len(numbers_in(sample)) > said
        return [_of_numbers(sample, zone, where)] if numbers else [*iso, basic, Clock("step")]
    if given == "iso":
        return iso
    if given == "step":
        return [Clock("step")]
    if periods_of(given) is not None:
        return [Clock("period", given, zone, zone is not None)]
    if given == "excel":
        return [Clock("excel", zone=zone, localise=zone is not None)]
    if given in ELAPSED or (given in EPOCHS and starts_over(sample, given)):
        elapsed = given.replace("epoch", "elapsed")
        return [Clock(kind) for kind in _ELAPSED_KINDS if kind == elapsed]
    if given in EPOCHS:
        return [_of_epoch(kind, sample, zone, where) for kind in _EPOCH_KINDS if kind == given]
    if "%" not in given:
        raise UsageError(
            f"time format {given!r} is unknown",
            hint=f"use iso, {', '.join(EPOCHS)}, step, excel, or a format like '%d.%m.%Y %H:%M'",
        )
    aware = "%z" in given or "%Z" in given
    return [Clock("format", given, (zone or "UTC") if aware else zone, zone is not None and not aware)]


def _mostly_offset(sample: pa.Array[Any]) -> bool:
    """Whether more texts have an offset from UTC than have none."""
    with_one, without = (TimeReader(Clock(kind, zone="UTC")).read(sample) for kind in ("iso-offset", "iso"))
    return with_one.values.null_count < without.values.null_count


def _of_numbers(sample: pa.Array[Any], zone: str | None, where: str) -> Clock:
    """How numbers, or text of numbers, are read: as dates without separators, as an epoch, or as steps.

    Raises:
        DataError: some are the one, and too many are not.
    """
    form, share = compact_form(sample)
    if form is not None and share >= MOST:
        return Clock("format", form, zone, zone is not None)
    numbers = numbers_in(sample)
    first = numbers[0] if len(numbers) else 0.0
    if form is not None and share > 1 / 2:
        raise DataError(
            f"{where}: {share:.0%} of the numbers are dates such as 20240131, and the others, or {first:.0f}, are none",
            hint=f"if they are dates, say --time-format '{form}'; if they count steps, --time-format step",
        )
    if (turned := turned_form(sample)) is not None:
        raise DataError(
            f"{where}: {first:08.0f} and the others may be dates, or count steps",
            hint=f"say which: --time-format '{turned}' (%d is the day, %m the month), or --time-format step",
        )
    found = _epochs(numbers)
    kind = max(found, key=lambda kind: found[kind], default=None)
    if kind is not None and found[kind] >= CLEAR:
        return _of_epoch(kind, sample, zone, where)
    if (like := calendar_in(numbers)) is not None:
        raise DataError(
            f"{where}: {first:.0f} and the others seem to be {like.what}: {like.before:.0f} comes before "
            f"{like.after:.0f}, and as steps there would be a gap",
            hint=f"{like.hint}; if they count steps, say --time-format step",
        )
    if sum(found.values()) > FEW:
        said = ", ".join(f"{share:.0%} {_SECONDS[kind]}" for kind, share in found.items() if share)
        raise DataError(
            f"{where}: of the numbers {said} since 1970 would be in the years 1980 to 2100, and the others would not",
            hint=f"say what they are: --time-format {kind}, elapsed-ms or another unit, or --time-format step; or mend "
            "the source, if some are of another unit, or of a clock that was not set",
        )
    return Clock("step")


def _of_epoch(kind: Kind, sample: pa.Array[Any], zone: str | None, where: str) -> Clock:
    """An epoch.

    Raises:
        DataError: the numbers are of too few digits.
    """
    if pa.types.is_float16(sample.type) or pa.types.is_float32(sample.type):
        raise DataError(
            f"{where}: single precision (float32) has 7 digits: seconds since 1970 are off by up to two minutes",
            hint="write the column as float64 or int64",
        )
    low, high = epoch_years(kind)
    numbers = numbers_in(sample)
    year = low / _YEARS_1980
    second = low / 315_532_800
    apart = not ((numbers < -second) | ((numbers > year) & (numbers < low))).any()
    modern = apart and bool(numbers.is_between(low, high).any())
    return Clock(kind, zone=zone or "UTC", modern=modern)


_DAY = 86_400_000_000  # microseconds
_YEARS_1980 = 315_532_800 / 31_556_952
"""Years from 1970 to 1980."""

_SECONDS: dict[Kind, str] = {
    "epoch-s": "seconds",
    "epoch-ms": "milliseconds",
    "epoch-us": "microseconds",
    "epoch-ns": "nanoseconds",
}


def _epochs(numbers: pl.Series) -> dict[Kind, float]:
    """Epoch -> the share of numbers that are of the years 1980 to 2100 in it; no two have the same."""
    if not len(numbers):
        return {}
    return {kind: int(numbers.is_between(*epoch_years(kind)).sum()) / len(numbers) for kind in _EPOCH_KINDS}


def suggestion(sample: pa.Array[Any]) -> str:
    """How a column of times seems to be written, as a hint.

    Example:
        >>> suggestion(pa.array(["31.12.2024 23:45"])), suggestion(pa.array(["2024-01-01 00:00"]))
        ("it looks like --time-format '%d.%m.%Y %H:%M'", 'it looks like ISO 8601: --time-format iso')
        >>> suggestion(pa.array([1704067200000]))
        'it looks like --time-format epoch-ms'
    """
    if is_time(pa.chunked_array([sample])) and any(
        not TimeReader(Clock(kind, zone="UTC")).read(sample).bad.any() for kind in _ISO
    ):
        return "it looks like ISO 8601: --time-format iso"
    found = _epochs(numbers_in(sample)) if _may_be_numbers(sample.type) else {}
    if found and (epoch := max(found, key=lambda kind: found[kind])) and found[epoch] >= CLEAR:
        return f"it looks like --time-format {epoch}"
    if pa.types.is_string(sample.type):  # of a date beside a period
        sample = pc.replace_substring_regex(sample, r" period \d+$", "")
    if forms := formats_of(sample):
        also = "" if swapped(forms[0]) not in forms else f", or '{swapped(forms[0])}' (%d is the day, %m the month)"
        return f"it looks like --time-format '{forms[0]}'{also}"
    if serial_years(sample):
        return "if it counts the days of a workbook (45292 is 2024-01-01), say --time-format excel"
    if not number_times(sample, "elapsed-s")[1].any():
        return COUNTED
    return "say how it is written with --time-format, for example '%d.%m.%Y %H:%M', or use --time row"
