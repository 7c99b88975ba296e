"""A date and a time in two columns, `--time DATE,TIME`: read as one, or found and named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.errors import StreamgpError, UsageError
from streamgp.windows.zones import canonical
from streamgp_data.instants import PERIOD, compact_form, periods_of, text_times
from streamgp_data.intervals import nanoseconds, written
from streamgp_data.reading.cells import NULLS
from streamgp_data.reading.day_rows import DayRows, periods_in
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.melted import VALUE
from streamgp_data.reading.paired import USUAL, Paired, ends, joined, pair_in
from streamgp_data.table import Table
from streamgp_data.times import format_of
from streamgp_pipelines.ingestion.units import is_number

if TYPE_CHECKING:
    from streamgp_pipelines.config import IngestConfig

_PERIOD = re.compile(r"period|hour|\bhr\b|interval|\bslot\b|\bstunde|viertelstunde|\bsp\b|\bmtu\b", re.I)
"""Names of columns that number the periods of a day."""


def by_periods(source: FileSource, config: IngestConfig, table: Table | None) -> tuple[FileSource, IngestConfig]:
    """A source with a row a day, and columns that are its hours, with a row an hour; and the settings for it. Others as
    they are, and where --signals or --melt names columns, the table has them, or one is called as those that are made.

    Raises:
        DataError: as `DayRows`.
        UsageError: days may begin with the day or with the month.
    """
    meta = None if table is None else table.meta
    periods = None if config.melt or config.signals else periods_in(source.names)
    if (
        periods is None
        or {periods.clock, VALUE} & set(source.names)
        or (table is not None and set(periods.names) & set(table.schema.names))
    ):
        return source, config
    cells = {name: source.sample.column(name) for name in source.names}
    time = config.time or (None if meta is None else meta.time)
    days = [name for name in source.names if name not in periods.names and _days(cells[name], again=False)]
    days = [name for name in days if time in (None, name, f"{name},{periods.clock}")]
    kinds = [source.schema.field(name).type for name in periods.names if cells[name].null_count < len(cells[name])]
    if len(days) != 1 or not all(map(is_number, kinds)):
        return source, config
    zone = config.timezone or (None if meta is None else meta.clock_of)
    counted = None if meta is None else periods_of(meta.time_format) is not None
    nulls = (*NULLS, *config.null)
    made = DayRows(source, periods, days[0], nulls, None if zone is None else canonical(zone), counted)
    changes: dict[str, Any] = {"time": f"{days[0]},{periods.clock}"}
    if meta is None:
        changes["every"] = config.every or f"{periods.step}m"
    form = config.time_format
    if form is None and (meta is None or made.counted):
        form = made.form = _form_of(
            cells[days[0]].combine_chunks(), not made.counted, f"{source.uri}, column {days[0]!r}"
        )
    if form is not None and not made.counted and "%H" not in form:
        form += " %H:%M"
    changes["time_format"] = form
    return made, config.model_copy(update=changes)


def _form_of(days: pa.Array[Any], compact: bool, where: str) -> str | None:
    """How days are written; None where that is found later, as of ISO 8601, or of dates without separators.

    Raises:
        UsageError: they may begin with the day or with the month.
    """
    form = None if compact and compact_form(days)[0] is not None else format_of(days)
    other = (form or "").replace("%d", "%_").replace("%m", "%d").replace("%_", "%m")
    if other != (form or "") and not text_times(days, False, other)[1].any():
        raise UsageError(
            f"{where}: a day and a month may be the other way round", hint=f"say --time-format '{form}' or '{other}'"
        )
    return form


def paired(source: FileSource, config: IngestConfig, table: Table | None) -> tuple[FileSource, IngestConfig]:
    """The source with one column of times, where --time or the table names two; and the settings for it.

    Raises:
        UsageError, DataError: as `Paired`.
    """
    meta = None if table is None else table.meta
    name = config.time or (None if meta is None else meta.time)
    pair = None if name is None else pair_in(name, source.names)
    if pair is None:
        return source, config
    every = _DAY // count if meta is not None and (count := periods_of(meta.time_format)) else None
    every = every or (nanoseconds(config.every) if config.every else None)
    zone = config.timezone or (None if meta is None else meta.clock_of)
    made = Paired(source, *pair, config.time_format, every, None if zone is None else canonical(zone))
    changes: dict[str, Any] = {"time": made.name}
    if made.periods is not None and made.every is not None:
        own = f"{PERIOD}{made.periods}" if made.first else None
        changes |= {"time_format": own, "every": config.every or written(made.every)}
    return made, config.model_copy(update=changes)


_DAY = 86_400 * 10**9


def one_column(data: pl.DataFrame, name: str, form: str | None) -> pl.DataFrame:
    """A frame with the column of times, where it has them in two; else the frame as it is.

    Args:
        data: rows of a user.
        name: of the column of times, such as "Date,Period".
        form: how the times of the table are written.
    """
    pair = pair_in(name, data.columns)
    if pair is None:
        return data
    dates, clocks = (data[one].to_arrow(compat_level=pl.CompatLevel.oldest()) for one in pair)
    cells = [cells.cast(pa.string()) if pa.types.is_large_string(cells.type) else cells for cells in (dates, clocks)]
    times = joined(cells[0], cells[1], periods_of(form), 1, None)
    return data.with_columns(pl.Series(name, pl.from_arrow(times)))


class Two(NamedTuple):
    """A date and a time in two columns, and the options that read them as one."""

    date: str
    clock: str
    options: str


def two_columns(source: FileSource, series: str | None = None) -> Two | None:
    """The two columns that a time seems to be in; None where it seems to be in none, or in one.

    Args:
        series: a column that is no part of the time.
    """
    cells = {name: source.sample.column(name) for name in source.names if name != series}
    days = [name for name in cells if _days(cells[name])]
    clocks = [name for name in cells if name not in days and of_day(cells[name])]
    if days and clocks:
        return _two(source, days[0], clocks[0])
    numbers = [name for name in cells if days and name not in days and _small(cells[name])]
    numbers = [name for name in numbers if _PERIOD.search(name) or _counts(cells[days[0]], cells[name])]
    if numbers:
        try:
            Paired(source, days[0], numbers[0], format_of(cells[days[0]]), None, "UTC")
        except StreamgpError:  # its numbers do not count the periods of a day
            return None
        found = _two(source, days[0], numbers[0])
        named = f", or with --series '{numbers[0]}' if that names series"
        return found if _PERIOD.search(numbers[0]) else found._replace(options=found.options + named)
    return None


def _two(source: FileSource, day: str, clock: str) -> Two:
    form = format_of(source.sample.column(day))
    both = source.sample.column(clock)
    text = pl.Series(pl.from_arrow(both.combine_chunks())).cast(pl.String)
    if form is not None and of_day(both) and ends(clock, text) is None:
        made = joined(source.sample.column(day).combine_chunks(), both.combine_chunks(), None, 1, None)
        form = None if compact_form(source.sample.column(day).combine_chunks())[0] else format_of(made) or form
    options = f"--time '{day},{clock}'" + (f" --time-format '{form}'" if form is not None else "")
    return Two(day, clock, options)


def of_day(cells: pa.ChunkedArray[Any]) -> bool:
    """Whether the cells of a column, below a row of units perhaps, are different times of a day, such as 23:45; a
    workbook has them on the last day of 1899."""
    if pa.types.is_time(cells.type):
        return True
    if pa.types.is_timestamp(cells.type):
        return cells.type.tz is None and pc.unique(pc.year(cells)).drop_null().to_pylist() == [1899]
    pattern = r"^\s*((1899-12-3[01][ T])?\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm]| ?[*xX])?)?\s*$"
    return pa.types.is_string(cells.type) and _all_but_units(cells, pattern) and len(pc.unique(cells)) > 1


def _days(cells: pa.ChunkedArray[Any], again: bool = True) -> bool:
    """Whether the cells of a column, below a row of units perhaps, are days: dates of a format, or others of which some
    come again, unless that is not asked for."""
    date = r"\d{4}(-?\d{2}-?\d{2}|/\d{1,2}/\d{1,2}|\.\d{1,2}\.\d{1,2})"
    whole = rf"^\s*({date}([ T]00:00(:00(\.0+)?)?)?)?\s*$"
    if pa.types.is_string(cells.type) and not _all_but_units(cells, whole):
        form = format_of(cells)
        return form is not None and not any(mark in form for mark in ("%H", "%I"))
    if again and len(pc.unique(cells)) == len(cells):
        return False
    if pa.types.is_timestamp(cells.type):
        return cells.type.tz is None and bool(cells == pc.floor_temporal(cells, unit="day")) and not of_day(cells)
    if pa.types.is_integer(cells.type):
        return compact_form(cells.combine_chunks()) == ("%Y%m%d", 1.0)
    return pa.types.is_date(cells.type) or pa.types.is_string(cells.type)


def _small(cells: pa.ChunkedArray[Any]) -> bool:
    """Whether cells are whole numbers of a day."""
    text = pl.Series(pl.from_arrow(cells.combine_chunks())).cast(pl.String).drop_nulls()
    return bool(len(text)) and bool(text.str.contains(r"^\s*\d{1,4}(\.0+)? ?[*xX]?\s*$").all())


def _counts(days: pa.ChunkedArray[Any], numbers: pa.ChunkedArray[Any]) -> bool:
    """Whether on most days numbers count the periods of a day, whatever they are called."""
    day, text = (pl.Series(pl.from_arrow(cells.combine_chunks())).cast(pl.String) for cells in (days, numbers))
    frame = pl.DataFrame({"day": day, "k": text.str.strip_chars().cast(pl.Float64, strict=False)}).drop_nulls()
    found = frame.group_by("day").agg(pl.col("k").unique().sort())["k"].to_list()
    whole = [list(range(first, first + count)) for count in USUAL for first in (0, 1)]
    return 2 * sum(one in whole for one in found) >= max(len(found), 2)


def _all_but_units(cells: pa.ChunkedArray[Any], pattern: str) -> bool:
    """Whether all texts of a column, or all but the first, are as a regular expression says."""
    found: list[bool | None] = pc.match_substring_regex(cells, pattern).to_pylist()
    return cells.null_count < len(cells) and False not in found[1:]
