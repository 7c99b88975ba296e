"""A date and a time in two columns, `--time DATE,TIME`: read as one, or found and named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.errors import DataError, StreamgpError, UsageError
from streamgp.windows.zones import canonical
from streamgp_data.ingestion.units import is_number
from streamgp_data.instants import COMPACT, PERIOD, compact_form, periods_of, text_times
from streamgp_data.intervals import nanoseconds, written
from streamgp_data.reading.cells import NULLS
from streamgp_data.reading.day_rows import DayRows, Periods, midnights, periods_in
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.melted import VALUE
from streamgp_data.reading.paired import USUAL, Paired, ends, joined, pair_in
from streamgp_data.reading.some_columns import SomeColumns
from streamgp_data.table import Table
from streamgp_data.times import format_of, formats_of

if TYPE_CHECKING:
    from streamgp_pipelines.config import IngestConfig

_PERIOD = re.compile(r"period|hour|\bhr\b|interval|\bslot\b|\bstunde|viertelstunde|\bsp\b|\bmtu\b", re.I)
"""Names of columns that number the periods of a day."""


def by_periods(source: FileSource, config: IngestConfig, table: Table | None) -> tuple[FileSource, IngestConfig]:
    """A source with a row a day, and columns that are its hours, with a row an hour; and the settings for it. Others as
    they are, and where --signals or --melt names columns, --every is another interval, or the table has none of these
    rows.

    Raises:
        DataError: as `DayRows`, or the rows of the table are of another step.
        UsageError: days may begin with the day or with the month.
    """
    meta = None if table is None else table.meta
    time = config.time or (None if meta is None else meta.time)
    found = None if config.melt or config.signals else day_columns(source, time, config.series, config.time_format)
    if found is None:
        return source, config
    day, periods, sure = found
    every, name = f"{periods.step}m", f"{day},{periods.noun}"
    if meta is None:
        other = config.every is not None and nanoseconds(config.every) != nanoseconds(every)
        if not (other or sure or time == name):
            what = f"the columns {periods.span} may be the {periods.noun}s of a day: if they are"
            source.doubts[periods.names[0]] = f"{source.uri}: {what}, ingest into a new table with --time '{name}'"
        if other or not (sure or time == name):
            return source, config
    elif meta.time not in (f"{day},hour", f"{day},period"):
        return source, config
    elif meta.time != name or meta.every_ns not in (None, nanoseconds(every)):
        rows = "of another step" if meta.every_ns is None else f"{written(meta.every_ns)} apart"
        raise DataError(
            f"{source.uri}: the columns {periods.span} are {written(nanoseconds(every) or 0)} apart, and the rows of "
            f"the table {rows}",
            hint="ingest it into another table",
        )
    zone = config.timezone or (None if meta is None else meta.clock_of)
    known = None if meta is None or "%" not in (meta.time_format or "") else meta.time_format
    forms = _forms_of(source.sample.column(day).combine_chunks(), config.time_format)
    taught = [form for form in forms if len(forms) == 1 or known == f"{form}{_CLOCK}"]
    if not taught:
        raise UsageError(
            f"{source.uri}, column {day!r}: a day and a month may be the other way round",
            hint=f"say --time-format '{forms[0]}' or '{forms[1]}'",
        )
    form = taught[0]
    nulls = (*NULLS, *config.null)
    made = DayRows(source, periods, day, form, nulls, None if zone is None else canonical(zone))
    kept = f"{form}{_CLOCK}" if form else f"{PERIOD}{1440 // periods.step}" if periods.numbered else None
    changes = {"time": name, "time_format": kept}
    if meta is None:
        changes["every"] = every
    return made, config.model_copy(update=changes)


_CLOCK = " %H:%M"
"""What the format of times has after that of days."""


def day_columns(
    source: FileSource, time: str | None = None, series: str | None = None, form: str | None = None
) -> tuple[str, Periods, bool] | None:
    """The column of days of a source with a row a day, its columns of periods, and whether these are surely such: not
    where days are not one apart, or one day has numbers alone for names. None where there are none, or another column
    is a time of the day.

    Args:
        time: the column of days, alone or with the word that its times will have.
        series: a column that is no part of the time.
        form: how days are written, where that is known.
    """
    periods = periods_in(source.names)
    if periods is None or {"hour", "period", VALUE} & {name.lower() for name in source.names}:
        return None
    cells = {name: source.sample.column(name).combine_chunks() for name in source.names}
    kinds = [source.schema.field(name).type for name in periods.names if cells[name].null_count < len(cells[name])]
    others = {name: name for name in source.names if name not in periods.names}
    days = [name for name in others if time in (f"{name},hour", f"{name},period")] or [
        name for name in others if time in (None, name) and _days(source.sample.column(name), again=False)
    ]
    series = series or ("unique_id" if "unique_id" in others else None)
    if (
        len(days) != 1
        or not all(map(is_number, kinds))
        or any(of_day(source.sample.column(name)) for name in others)
        or two_columns(SomeColumns(source, others), series) is not None
    ):
        return None
    sure = False
    for one in _forms_of(cells[days[0]], form):
        apart = midnights(cells[days[0]], one)[0].drop_nulls().unique().sort().diff().drop_nulls().dt.total_days()
        sure |= 2 * int((apart == 1).sum()) > len(apart) or (not len(apart) and not periods.bare)
    return days[0], periods, sure


def _forms_of(days: pa.Array[Any], given: str | None) -> list[str | None]:
    """How days may be written: two ways where a day and a month may change places; None is ISO 8601, or no text."""
    if given is not None and "%" in given:
        return [given.removesuffix(_CLOCK)]
    form = compact_form(days)[0] or format_of(days)
    if form is None or form in COMPACT:
        return [form]
    other = form.replace("%d", "%_").replace("%m", "%d").replace("%_", "%m")
    return [form] if other == form or text_times(days, False, other)[1].any() else [form, other]


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
    days, both = source.sample.column(day).combine_chunks(), source.sample.column(clock).combine_chunks()
    forms, text = formats_of(days), pl.Series(pl.from_arrow(both)).cast(pl.String)
    if forms and of_day(source.sample.column(clock)) and ends(clock, text) is None:
        made = formats_of(joined(days, both, None, 1, None))
        made = [form for day_form in forms for form in made if form.startswith(day_form)]
        forms = [] if compact_form(days)[0] else made or forms
    options = f"--time '{day},{clock}'" + " or".join(f" --time-format '{form}'" for form in forms)
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
