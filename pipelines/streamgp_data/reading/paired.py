"""Two columns as one of times: a date beside a time of day, or beside the number of a period of that day.

A column that is called after the end of hours, such as HourEnding, numbers them also where it has times: 01:00 is the
first of the day, 24:00 the last. A mark of the second of two hours, as in 02* or 02X, says what their order says too.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.errors import DataError, UsageError
from streamgp_data.instants import MISSING, compact_form, numbers_in, text_times
from streamgp_data.reading.cells import FAULT, LINE, TEXT, with_bookkeeping
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.wrapped import Wrapped

USUAL = (24, 48, 96, 144, 288)
"""Periods of a day that are found without an interval."""
_DAY = 86_400 * 10**9  # nanoseconds
_MINUTE = 60 * 10**9
_ENDING = re.compile(r"(hour|hr|interval|period|stunde)[ _]?end|^he$", re.IGNORECASE)
WORDS = (
    "hour[ _]?ending|hour|hr|he|h|hora|heure|ora|uur|stunde|std|quarter|qh|q|interval|periodo|period|ptu|mtu|sp"
    "|viertelstunde"
)
"""What stands before the number of a period, as in HE01."""
_WORDED = rf"^(?i:{WORDS})[ _.-]*(\d)"
_MARKED = r"^(\d{1,2}(?::\d{2})?) ?[*xX]$"
_MIDNIGHT = r"[ T]00:00(:00(\.0+)?)?$"


def pair_in(name: str, names: list[str]) -> tuple[str, str] | None:
    """The two columns that "DATE,TIME" names; None where one column has this name, or they are not there.

    Example:
        >>> pair_in("Date, Time", ["Date", "Time", "y"]), pair_in("a,b", ["a,b", "a", "b"])
        (('Date', 'Time'), None)
    """
    if name in names:
        return None
    parts = name.split(",")
    for at in range(1, len(parts)):
        first, second = ",".join(parts[:at]).strip(), ",".join(parts[at:]).strip()
        if first in names and second in names:
            return first, second
    return None


class Paired(Wrapped):
    """A FileSource over one with a date and a time in two columns, which become one of text: "2024-01-31 23:45", or
    "2024-01-31 period 48".

    Args:
        inner: the source of both.
        date, clock: their names. Numbers of periods that begin with 0 are hours and minutes of the wall.
        form: of the dates beside numbers of periods; of both together where the second is a time of day.
        every: the interval, ns, where it is known: it says how many periods a day has.
        zone: of the clock; None where it is never changed.

    Attributes:
        periods: of a day; None where the second column is a time of day. first: the number of the first.

    Raises:
        UsageError: it cannot be known how many periods a day has.
        DataError: days have other numbers of periods, as where a clock is changed.
    """

    def __init__(
        self, inner: FileSource, date: str, clock: str, form: str | None, every: int | None, zone: str | None
    ) -> None:
        self.inner, self.uri = inner, inner.uri
        self.name, self._parts, self._form = f"{date},{clock}", (date, clock), form
        self.names = [self.name if name == date else name for name in inner.names if name != clock]
        sample, where = inner.sample, f"{inner.uri}, column {clock!r}"
        dates, clocks = (_whole(sample.column(name)) for name in (date, clock))
        self.periods, self.first = _periods(days_of(dates, form), clocks, every, zone, clock, where)
        self.sample = self._joined(sample)
        kinds = {name: inner.schema.field(name).type for name in self.names if name != self.name}
        self._typed(kinds)
        self.units = {name: unit for name, unit in inner.units.items() if name not in self._parts}

    @property
    def every(self) -> int | None:
        """The length of a period, ns."""
        return None if self.periods is None else _DAY // self.periods

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; date and time as in the file."""
        own = self.inner.sample.schema
        kinds = {name: schema.field(name).type for name in self.names if name != self.name}
        raw = {name: own.field(name).type for name in self._parts}
        if self.periods is not None and hasattr(self.inner, "dialect"):  # a mark may come after the sample
            raw[self._parts[1]] = pa.string()
        self.inner.expect(pa.schema([pa.field(name, (raw | kinds)[name]) for name in self.inner.names]))
        self._typed(kinds)

    def _typed(self, kinds: dict[str, pa.DataType]) -> None:
        self.schema = with_bookkeeping({name: kinds.get(name, pa.string()) for name in self.names})

    def _batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        table = self._joined(pa.Table.from_batches([rows])).select(self.schema.names)
        columns: list[Any] = [_whole(column) for column in table.columns]
        return pa.record_batch(columns, schema=self.schema)

    def _joined(self, rows: pa.Table) -> pa.Table:
        """Rows with one column of times; where there are bookkeeping columns they stay."""
        dates, clocks = (_whole(rows.column(name)) for name in self._parts)
        times = joined(dates, clocks, self.periods, self.first, self._form)
        kept = {name: rows.column(name) for name in rows.column_names if name in (LINE, FAULT, TEXT)}
        columns = {name: times if name == self.name else rows.column(name) for name in self.names}
        return pa.table(columns | kept)


def joined(
    dates: pa.Array[Any], clocks: pa.Array[Any], periods: int | None, first: int, form: str | None
) -> pa.Array[Any]:
    """(N,) dates and times of a day, or numbers of periods, as one text; null where either is missing.

    Args:
        dates, clocks: text, numbers, dates, times of a day, or timestamps of workbooks.
        periods: of a day, where `clocks` are numbers of these; first: the number of the first one.
        form: of dates beside numbers of periods, which become ISO 8601.

    Example:
        >>> joined(pa.array([20240131, None]), pa.array(["23:45", "0:00"]), None, 1, None).to_pylist()
        ['2024-01-31 23:45', None]
        >>> joined(pa.array(["2024-01-31"]), pa.array([48]), 48, 1, None).to_pylist()
        ['2024-01-31 period 48']
    """
    text = days_of(dates, form if periods is not None else None)
    if periods is None:
        clock = _clock(clocks)
        return (text + " " + clock).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
    numbers = _unmarked(clocks)
    numbers = (_minutes(numbers) * periods / 1440).cast(pl.String).str.strip_suffix(".0").fill_null(numbers)
    if first == 1:
        clock = "period " + numbers
    else:
        clock = _of_day(numbers.cast(pl.Int64, strict=False) * (1440 // periods))
        clock = clock.zip_with(clock.is_not_null() | numbers.is_null(), "period " + numbers)
    return (text + " " + clock).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def _of_day(minutes: pl.Series) -> pl.Series:
    """Minutes as 23:45; null where a day has no such."""
    inside = minutes.set(minutes.is_between(0, 1439).not_().fill_null(False), None)
    hour, minute = (part.cast(pl.String).str.zfill(2) for part in (inside // 60, inside % 60))
    return hour + ":" + minute


def _whole(column: Any) -> pa.Array[Any]:
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return found.cast(found.type.value_type) if pa.types.is_dictionary(found.type) else found


def days_of(dates: pa.Array[Any], form: str | None) -> pl.Series:
    """Dates as text, in ISO 8601 where they are dates, are written so, or without separators, or have this form."""
    if pa.types.is_timestamp(dates.type) or pa.types.is_date(dates.type):
        return pl.Series(pl.from_arrow(pc.strftime(dates, "%Y-%m-%d"))).cast(pl.String)
    text = _numbers(dates)
    text = text.str.replace(_MIDNIGHT, "")
    form = form or compact_form(dates)[0]
    if form is not None:
        found = text_times(text.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string()), False, form)[0]
        days = pl.Series(pl.from_arrow(pc.strftime(found, "%Y-%m-%d"))).cast(pl.String)
        return days.fill_null(text)
    return text


def _numbers(cells: pa.Array[Any]) -> pl.Series:
    """Cells as text without spaces around, 1.0 as 1; null where nothing is said."""
    values = pl.Series(pl.from_arrow(cells)).cast(pl.String).str.strip_chars()
    return values.set(values.is_in(list(MISSING)), None).str.replace(r"^(\d+)\.0+$", "${1}")


def _unmarked(clocks: pa.Array[Any]) -> pl.Series:
    """Numbers of periods or times of a day as text, without a word before them, and without the mark of those that come
    twice."""
    return _numbers(clocks).str.replace(_WORDED, "${1}").str.replace(_MARKED, "${1}")


def _minutes(text: pl.Series) -> pl.Series:
    """Minutes since midnight of times of a day; null for other cells."""
    parts = text.str.extract_groups(r"^(?<h>\d{1,2}):(?<m>\d{2})(?::00)?$").struct.unnest()
    return parts["h"].cast(pl.Int64) * 60 + parts["m"].cast(pl.Int64)


def ends(name: str, text: pl.Series) -> int | None:
    """How long periods are, ns, where a column of this name and these texts has the times at which they end.

    Example:
        >>> [ends(name, pl.Series(["01:00", "24:00"])) for name in ("HourEnding", "Time")]
        [3600000000000, None]
        >>> ends("Interval End", pl.Series(["00:30", "24:00"])), ends("HE", pl.Series(["00:59", "23:59"]))
        (1800000000000, None)
    """
    minutes = _minutes(text).drop_nulls()
    if _ENDING.search(name) is None or 2 * len(minutes) <= text.count() or minutes.min() == 0 or minutes.max() != 1440:
        return None
    step = int(np.gcd.reduce([60, *minutes.to_list()]))
    return step * _MINUTE if 1440 // step in USUAL else None


def _clock(clocks: pa.Array[Any]) -> pl.Series:
    """Times of a day as text; workbooks have them on the last day of 1899."""
    if pa.types.is_timestamp(clocks.type):
        clocks = clocks.cast(pa.timestamp("s"), safe=False).cast(pa.time32("s")).cast(pa.string())
    elif pa.types.is_time(clocks.type):
        clocks = clocks.cast(pa.string())
    return _unmarked(clocks).str.replace(r"^1899-12-3[01][ T]", "")


def _periods(
    days: pl.Series, clocks: pa.Array[Any], every: int | None, zone: str | None, name: str, where: str
) -> tuple[int | None, int]:
    """How many periods a day has, and the number of its first; None where the cells are times of a day."""
    if pa.types.is_temporal(clocks.type):
        return None, 1
    text = _unmarked(clocks)
    if (step := ends(name, text)) is not None:
        return _count([], every or step, where), 1
    whole = text.str.contains(r"^\d{1,4}$").fill_null(False)
    if 2 * int(whole.sum()) <= text.count():
        if 2 * len(numbers_in(text.to_arrow(compat_level=pl.CompatLevel.oldest()))) > text.count():
            raise UsageError(f"{where}: {text[0]!r} is neither a time of a day nor the number of a period", hint=_HOW)
        return None, 1
    frame = pl.DataFrame({"day": days.filter(whole), "k": text.filter(whole).cast(pl.Int64)}).drop_nulls()
    zeros = frame.filter(pl.col("k") == 0)["day"].n_unique()
    first = 0 if 2 * zeros > frame["day"].n_unique() else 1
    most = frame.group_by("day").agg(pl.col("k").max() + 1 - first).sort("day")
    count = _count(most["k"].to_list(), every, where)
    changed = {count - count // 24, count + count // 24} if count >= 24 and count % 24 == 0 else set()
    odd = most[:-1].filter(pl.col("k").is_in(list(changed)))
    if zone is None and first and odd.height:
        day, k = odd.row(0)
        raise DataError(
            f"{where}: {day} has {k} periods, and other days {count}, as where the clock is changed",
            hint="say where: --timezone Europe/London; or --timezone UTC, if it is not changed and rows are missing",
        )
    return count, first


def _count(most: list[int], every: int | None, where: str) -> int:
    """Periods of a day, by the interval, or by the largest number of each day."""
    if every is not None:
        if _DAY % every or every % _MINUTE:
            raise UsageError(f"{where}: a day has no whole number of periods of this interval", hint=_HOW)
        return _DAY // every
    days = Counter(most)
    found = [count for count in USUAL if days[count] > 1 and sum(days[k] for k in days if k > count * 25 // 24) <= 1]
    if len(found) != 1:
        raise UsageError(f"{where}: its numbers do not say how many periods a day has", hint=_HOW)
    return found[0]


_HOW = "say how long a period is, such as --every 30m; a time of day is written like 23:45"
