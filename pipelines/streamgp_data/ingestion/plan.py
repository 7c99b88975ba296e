"""What the columns of a source mean, against the table if there is one: roles, types, units, the clock."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamgp.errors import DataError, SchemaError, TableError, UsageError
from streamgp.windows.zones import canonical
from streamgp_data.columns import LATE, check_names, check_schema
from streamgp_data.ingestion.pairing import of_day, two_columns
from streamgp_data.ingestion.units import given_units, is_number, units_of
from streamgp_data.instants import (
    COMPACT,
    ELAPSED,
    EPOCHS,
    numbers_in,
    serial_times,
    serial_years,
    whole_numbers,
)
from streamgp_data.intervals import nanoseconds, written
from streamgp_data.reading.cells import FAULT, LINE, TEXT, said
from streamgp_data.reading.columnar import storable
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.header import NO_HEADER, looks_like_data, seems_in
from streamgp_data.reading.lines import TextLines
from streamgp_data.reading.units import NO_UNITS, UnitConversion
from streamgp_data.table import SEQ, Table, TableMeta
from streamgp_data.times import COUNTED, Clock, decide, elapsed_form, formats_of, is_named_time, is_time, readable
from streamgp_data.versions import REVISES, Policy

if TYPE_CHECKING:
    from streamgp_pipelines.config import IngestConfig

ROW = "row"
TARGET = "y"
"""The column that is the target where none is named."""
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_BY_CALENDAR = re.compile(r"\s*\d*\s*(mo|mons?|months?|q|quarters?|y|yrs?|years?|[MQYA][SE]?(-[A-Z]{3})?)\s*")


@dataclass(frozen=True)
class Plan:
    """How one source goes into the table.

    Attributes:
        meta: the table's. schema: the table's columns without `_seq`, units in the field metadata.
        clock: how the time column is read; None without one.
        units: how its numbers become those of the table's units.
        empty: columns of the table that the source has not, which its rows leave empty.
    """

    meta: TableMeta
    schema: pa.Schema
    clock: Clock | None
    units: UnitConversion = NO_UNITS
    empty: tuple[str, ...] = ()


def plan(
    source: FileSource, config: IngestConfig, table: Table | None, fill: bool = False, known: Clock | None = None
) -> Plan:
    """Decide, or check against the table. With `fill` the source may lack columns of it, if it has no others in their
    place. `known` is how text of times was read before.

    Raises:
        SchemaError: columns or types do not fit the table, or a named column is missing.
        TableError: a flag contradicts the table.
        UsageError: which column is the time cannot be known.
        DataError: the times cannot be read.
    """
    zone = None if config.timezone is None else canonical(config.timezone)
    every = interval(config.every) if config.every else None
    tolerance = interval(config.tolerance, "--tolerance") if config.tolerance else None
    meta = _meta(source, config, zone) if table is None else _agreed(config, table, zone)
    for name in (meta.time, meta.series):
        if name is not None and name not in source.names:
            also = "" if source.header is None else f"; {seems_in(source.header)}"
            hint = f"it has: {', '.join(source.names)}{also}"
            hint += "" if table is None else "; rename the one that is meant, or ingest the file into another table"
            raise SchemaError(f"{source.uri}: there is no column {name!r}", hint=hint)
    clock = None
    if meta.time is not None:
        where = f"{source.uri}, column {meta.time!r}"
        cells = source.sample.column(meta.time)
        if known is not None and pa.types.is_string(cells.type):
            clock = known
        else:
            line = source.first_line if isinstance(source, TextLines) else None
            clock = _clock(cells, _form(config.time_format, meta, cells), zone, meta, where, line)
        if table is None:
            meta = _with_clock(meta, clock, whole_numbers(cells.combine_chunks()))
        elif meta.time_format is not None and (meta.time_format in ELAPSED) != (clock.kind in ELAPSED):
            raise SchemaError(
                f"{where}: its times are {clock.kind}, the table's {meta.time_format}",
                hint="elapsed time and dates do not mix: ingest it into another table",
            )
    if config.max_ahead not in (None, math.inf) and (not meta.clock or meta.time is None):
        raise UsageError("--max-ahead belongs to times, and the rows of this table have none", hint="leave it out")
    if every is not None or tolerance is not None:
        meta = _spaced(meta, clock, every, tolerance)
    if config.lateness is not None:
        meta = _late(meta, config.lateness, new=table is None)
    if config.duplicates is not None:
        meta = _repeated(meta, config.duplicates, new=table is None)
    given = given_units(source, config.unit)
    empty = () if table is None or not fill else _lacking(source, table)
    schema = _schema(source, meta, clock, table, given, empty)
    units = units_of(source, config.unit, config.null, meta, schema, new=table is None)
    return Plan(meta, schema, clock, units, empty)


def plan_as_table(source: FileSource, config: IngestConfig, table: Table) -> Plan:
    """`plan` for rows that did not come in the table's file: times as in its source, or ISO 8601.

    Raises:
        DataError: the times are neither.
        SchemaError, TableError, UsageError: as `plan`.
    """
    meta = table.meta
    assert meta.time is not None
    form, cells = meta.time_format or "", source.sample.column(meta.time)
    text = pa.types.is_string(cells.type)
    own = "%" in form if text else form in (*EPOCHS, *COMPACT, "step")
    forms = [form, None] if own and text else [form if own else None]
    fault: DataError | None = None
    for given in forms:
        try:
            return plan(source, config.model_copy(update={"time_format": given}), table)
        except DataError as error:
            fault = fault or error
    kind = table.schema.field(meta.time).type
    for given in forms:  # in the way that any of them is: the others are faults of their rows
        good = readable(cells, given, meta.clock_of, kind)
        if good.any() and not good.all():
            source.sample = source.sample.filter(pa.array(good))
            return plan(source, config.model_copy(update={"time_format": given}), table)
    if isinstance(fault, SchemaError):
        raise fault
    cell = next((said(value) for value in cells.drop_null()), "")
    also = f", or {form} as in the source" if "%" in form or form in EPOCHS else ""
    hint = f"write ISO 8601, such as 2026-01-01T00:30:00Z{also}"
    if form in ELAPSED:
        hint = f"write elapsed time in {form.partition('-')[2]}, such as 12.5, as in the source"
    elif not meta.clock:
        hint = "write whole numbers, which count steps, as in the source"
    raise DataError(f"rows: column {meta.time!r}: {cell[:80]!r} is not a time", hint=hint) from fault


def _spaced(meta: TableMeta, clock: Clock | None, every: int | None, tolerance: int | None) -> TableMeta:
    """The meaning with the interval and the tolerance that were given.

    Raises:
        UsageError: there is no clock, or the tolerance has no interval to belong to.
        TableError: the table has others.
    """
    flag = "--tolerance" if every is None else "--every"
    if clock is None:
        raise UsageError(f"{flag}: without a clock (--time row) rows are no interval apart", hint=f"leave {flag} out")
    if clock.kind == "step":
        raise UsageError(
            f"{flag}: column {meta.time!r} holds whole numbers, which count steps: each is one step",
            hint=f"leave {flag} out; if they are dates or seconds, say so in a new table: --time-format '%Y%m%d' "
            "or elapsed-s",
        )
    for name, given, own in (("--every", every, meta.every_ns), ("--tolerance", tolerance, meta.tolerance_ns)):
        if given is not None and own is not None and given != own:
            raise TableError(
                f"{name} {written(given)} contradicts the table, which has {written(own)}",
                hint="leave it out, or ingest into another table",
            )
    every, tolerance = every or meta.every_ns, tolerance or meta.tolerance_ns
    if tolerance is not None and every is None:
        raise UsageError("--tolerance belongs to an interval", hint="give --every too")
    if tolerance is not None and every is not None and tolerance >= every:
        raise UsageError(
            f"--tolerance {written(tolerance)} is not less than the interval, {written(every)}",
            hint="half the interval lets every row be the next step",
        )
    return replace(meta, every_ns=every, tolerance_ns=tolerance)


def _late(meta: TableMeta, given: str, new: bool) -> TableMeta:
    """The meaning with the lateness that was given.

    Raises:
        UsageError: rows have no time, or it is no interval.
        TableError: the table was made with another one.
    """
    if meta.time is None:
        raise UsageError("--lateness: rows without a time have no order of time", hint="leave it out")
    if meta.clock:
        lateness = interval(given, "--lateness")
    elif given.isdecimal():
        lateness = int(given)
    else:
        raise UsageError(f"--lateness {given!r}: this table counts steps", hint="give a number of steps, such as 5")
    if not new and lateness != meta.lateness_ns:
        own = "none" if meta.lateness_ns is None else written(meta.lateness_ns) if meta.clock else meta.lateness_ns
        raise TableError(
            f"--lateness {given} contradicts the table, which has {own}: its rows may have been learned",
            hint="leave it out, or ingest into another table",
        )
    return replace(meta, lateness_ns=lateness)


def _repeated(meta: TableMeta, given: Policy, new: bool) -> TableMeta:
    """The meaning with the policy of duplicates that was given.

    Raises:
        UsageError: rows have no time.
        TableError: the table was made with another one.
    """
    if meta.time is None:
        raise UsageError("--duplicates: rows without a time are never duplicates", hint="leave it out")
    if not new and given != meta.duplicates:
        raise TableError(
            f"--duplicates {given} contradicts the table, which has {meta.duplicates}: its rows may have been learned",
            hint="leave it out, or ingest into another table",
        )
    return replace(meta, duplicates=given)


def interval(text: str, flag: str = "--every") -> int:
    """An interval in nanoseconds.

    Raises:
        UsageError: it is none.

    Example:
        >>> interval("30m"), interval("1.5h") == interval("90min")
        (1800000000000, True)
    """
    found = nanoseconds(text)
    if found is None:
        hint = "for example 30m, 1h, 1d, 10ms"
        if flag == "--every" and _BY_CALENDAR.fullmatch(text):
            hint = "months and years vary in length: leave --every out, and rows on one day of each are one step apart"
        raise UsageError(f"{flag} {text!r} is no interval", hint=hint)
    return found


def _meta(source: FileSource, config: IngestConfig, zone: str | None) -> TableMeta:
    time = time_name(source, config, None)
    series = config.series or ("unique_id" if "unique_id" in source.names else None)
    _two_columns(time, series)
    return TableMeta(time=time, series=series, zone=zone)


def time_name(source: FileSource, config: IngestConfig, table: Table | None) -> str | None:
    """The time column of a source: that of the table where there is one; None without a clock.

    Raises:
        UsageError: it cannot be known.
    """
    if table is not None:
        return table.meta.time
    found = config.time or _found_time(source, config)
    return None if found == ROW else found


def _two_columns(time: str | None, series: str | None) -> None:
    if series is not None and series == time:
        raise UsageError(f"column {time!r} cannot be both the time and the series", hint="name another --series")


def _found_time(source: FileSource, config: IngestConfig) -> str:
    if "ds" in source.names:
        return "ds"
    if source.header is not None:
        raise UsageError(
            f"{source.uri}: the first row names no columns",
            hint=f"{seems_in(source.header)}; if it is not, name the time with --time",
        )
    cells = {name: source.sample.column(name) for name in source.names}
    clocks = [name for name in source.names if of_day(cells[name])]
    candidates = [name for name in source.names if name not in clocks and is_time(cells[name])]
    candidates = candidates or [name for name in source.names if is_named_time(name, cells[name])]
    forms = {name: found for name in source.names if (found := formats_of(cells[name]))}
    two = two_columns(source, config.series or ("unique_id" if "unique_id" in source.names else None))
    whole = any(mark in found[0] for found in forms.values() for mark in ("%H", "%I"))
    if two is not None and not whole and candidates in ([], [two.date]):
        raise UsageError(
            f"{source.uri}: the time seems to be in two columns, {two.date!r} and {two.clock!r}",
            hint=f"read both with {two.options}; or name one with --time",
        )
    if looks_like_data(candidates if len(candidates) == 1 else [] if candidates else source.names):
        raise UsageError(f"{source.uri}: the first line names no columns: {', '.join(source.names)}", hint=NO_HEADER)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise UsageError(
            f"{source.uri}: {', '.join(candidates)} could each be the time",
            hint=f"say which: --time '{candidates[-1]}'",
        )
    forms |= {name: ["excel"] for name in source.names if name not in forms and _of_workbook(cells[name])}
    options = [f"--time '{name}' --time-format '{form}'" for name, found in forms.items() for form in found]
    looks = " or ".join(options[:3])
    if len(source.names) == 1 and " " in source.names[0] and not looks:
        hint = "if cells are apart by something else than , ; | or a tab, name it: --separator ' '"
        raise UsageError(f"{source.uri}: it has one column, {source.names[0]!r}", hint=hint)
    counted = {name: form for name in source.names if (form := elapsed_form(name, cells[name])) is not None}
    hint = "name one with --time COLUMN (and --time-format), or use --time row where there is no clock"
    parts = [name for part in _PARTS for name in source.names if name.lower() == part]
    if len(parts) > 2 and parts[2].lower() == "day":
        hint = f"join {', '.join(parts)} first, such as with df['ds'] = pandas.to_datetime(df[{parts}])"
    if looks:
        hint = f"it looks like {looks}" + (
            _more(config) if "'%" in looks else "; where there is no clock, use --time row"
        )
    elif counted:
        name, form = next(iter(counted.items()))
        steps = f"; if it counts steps: --time '{name}'" if whole_numbers(cells[name].combine_chunks()) else ""
        hint = f"if {name!r} counts time from a start: --time '{name}' --time-format {form}, or another unit{steps}"
    raise UsageError(f"{source.uri}: none of the columns is a time by itself: {', '.join(source.names)}", hint=hint)


def _more(config: IngestConfig) -> str:
    """What else may be needed where a time is named."""
    zone = "" if config.timezone else "--timezone Europe/Berlin or the like if it is a local time"
    every = "" if config.every else "--every 1h if rows are that far apart"
    more = " and ".join(part for part in (zone, every) if part)
    return f"; add {more}" if more else ""


def _of_workbook(cells: pa.ChunkedArray[Any]) -> bool:
    """Whether numbers, which rise, may be the days of a workbook."""
    whole = cells.combine_chunks()
    if not (is_number(cells.type) or pa.types.is_string(cells.type)) or not serial_years(whole, 2060):
        return False
    days = serial_times(whole)[0].drop_null().cast(pa.int64()).to_numpy()
    return len(days) > 1 and bool((days[1:] > days[:-1]).all())


def _form(given: str | None, meta: TableMeta, cells: pa.ChunkedArray[Any]) -> str | None:
    """How times are written; in a table of elapsed time an epoch is that too, whatever its numbers, and numbers are
    dates without separators where those of the table are."""
    if (
        given is None
        and meta.time_format in COMPACT
        and len(numbers_in(cells.combine_chunks())) == len(cells) - cells.null_count
    ):
        return meta.time_format
    if meta.time_format not in ELAPSED:
        return given
    return meta.time_format if given is None else given.replace("epoch-", "elapsed-")


def _clock(
    cells: pa.ChunkedArray[Any], form: str | None, zone: str | None, meta: TableMeta, where: str, line: int | None
) -> Clock:
    """How the times of a source are read: those whose format is neither given nor known, as the table's first were."""
    own = zone or meta.clock_of
    try:
        return decide(cells, form, own, where, line)
    except DataError as fault:
        if not meta.clock and fault.hint == COUNTED:
            raise DataError(
                f"{fault.message}, and the rows before counted steps",
                hint="if these are seconds, say so in a new table: --time-format elapsed-s",
            ) from None
        if form is not None or "%" not in (meta.time_format or ""):
            raise
        try:
            return decide(cells, meta.time_format, own, where, line)
        except DataError:
            raise fault from None


def _with_clock(meta: TableMeta, clock: Clock, whole: bool) -> TableMeta:
    steps = clock.kind == "step"
    return TableMeta(
        meta.time,
        meta.series,
        clock=not steps,
        zone=None if steps else clock.zone,
        every_ns=1 if steps else None,
        time_format=clock.format or clock.kind,
        time_whole=whole,
        local=None if steps or clock.zone is None else meta.zone is not None,
    )


def _agreed(config: IngestConfig, table: Table, zone: str | None) -> TableMeta:
    """The table's own meaning; flags may repeat it, not change it."""
    meta = table.meta
    _two_columns(config.time or meta.time, config.series)
    given_and_own = {"--time": (config.time, meta.time or ROW), "--series": (config.series, meta.series)}
    if meta.clock and meta.time is not None and table.schema.field(meta.time).type.tz is None:
        given_and_own["--timezone"] = (zone, meta.zone)
    for flag, (given, own) in given_and_own.items():
        if (given is not None and own is not None and given != own) or (given is not None and own is None):
            raise TableError(
                f"{flag} {given} contradicts the table, which has {own or 'none'}", hint="ingest into another table"
            )
    return meta


def _lacking(source: FileSource, table: Table) -> tuple[str, ...]:
    """Columns of a table that a source has not.

    Raises:
        SchemaError: the target is among them, as later rows with it would be duplicates, or others may stand for them.
    """
    wanted = [name for name in table.schema.names if name != SEQ]
    found = tuple(name for name in wanted if name not in source.names)
    new = [name for name in source.names if name not in wanted]
    if found and (new or TARGET in found or set(source.names) <= {*table.meta.keys}):
        also, hint = "", "add it to the file, empty where there is no value"
        if new:
            both = ",".join(name for name in source.names if name not in (*new, *table.meta.keys))
            also = f", but {', '.join(map(repr, new))}"
            hint = "if one is the other, rename it"
            hint += f"; else leave the new one out: --signals '{both}'" if both else ""
            hint += "" if both else "; if the rows are of the times of the table's, join the files before ingest"
        raise SchemaError(
            f"{source.uri} does not fit the table: it has no {', '.join(map(repr, found))}{also}",
            hint=f"{hint}; or ingest the file into another table",
        )
    return found


def _schema(
    source: FileSource,
    meta: TableMeta,
    clock: Clock | None,
    table: Table | None,
    given: Mapping[str, str],
    empty: tuple[str, ...],
) -> pa.Schema:
    """The table's columns; the source will read them as these types, but for the empty ones."""
    natural = {field.name: field for field in source.schema if field.name not in (LINE, FAULT, TEXT)}
    for name in source.names:
        kept = table is not None and name in table.schema.names[1:]  # which is older than this name's meaning
        if name in (SEQ, REVISES, LATE, LINE, FAULT, TEXT) and not kept:
            raise SchemaError(f"{source.uri}: the column name {name!r} is reserved", hint="rename it in the source")
    if table is None:
        order = [name for name in (meta.time, meta.series) if name is not None]
        order += [name for name in natural if name not in order]
        fields = []
        for name in order:
            kind = clock.type if clock is not None and name == meta.time else natural[name].type
            if name == meta.series and kind == pa.float64():  # names, even where they look like numbers: "007"
                kind = storable(source.sample.schema.field(name).type, name, source.uri)
            fields.append(pa.field(name, kind, metadata=_metadata(given.get(name) or source.units.get(name))))
        schema = pa.schema(fields)
        check_names(schema)
    else:
        schema = pa.schema([field for field in table.schema if field.name != SEQ])
        names = pa.schema(
            [
                pa.field(name, schema.field(name).type if name in schema.names else field.type)
                for name, field in natural.items()
            ]
        )
        _check_kinds(source, natural, schema, meta.time)
        check_schema(names, pa.schema([field for field in schema if field.name not in empty]), source.uri)
    if clock is not None and meta.time is not None and clock.type != schema.field(meta.time).type:
        own = schema.field(meta.time).type
        hint = "times with an offset and naive ones do not mix; --timezone says whose clock naive times show"
        if pa.types.is_integer(clock.type) or pa.types.is_integer(own):
            hint = (
                "steps and dates do not mix: ingest it into another table, or say what its numbers are: --time-format"
            )
        raise SchemaError(f"{source.uri}: its times are {clock.type}, the table's {own}", hint=hint)
    raw = {meta.time: source.sample.schema.field(meta.time).type} if meta.time is not None else {}
    kinds = {name: schema.field(name).with_type(raw.get(name, schema.field(name).type)) for name in natural}
    source.expect(pa.schema([kinds[name] for name in natural]))
    return schema


def _check_kinds(source: FileSource, natural: dict[str, pa.Field[Any]], table: pa.Schema, time: str | None) -> None:
    """Text where the table has numbers and the like is not this table's file, however well some cells convert.

    Raises:
        SchemaError: it names every such column, and its first cell.
    """
    cells_are_text = hasattr(source, "dialect")
    faults = []
    for name, field in natural.items():
        if name == time or name not in table.names:
            continue
        wanted, found = table.field(name).type, field.type
        same = [check(wanted) == check(found) for check in (is_number, pa.types.is_string, pa.types.is_boolean)]
        free = cells_are_text and not (is_number(wanted) and not is_number(found))
        if not all(same) and not free:
            first = next((said(value) for value in source.sample.column(name).drop_null()), None)
            noun = "a number" if is_number(wanted) else str(wanted)
            faults.append(f"column {name!r} is {wanted} in the table, and {first!r} is not {noun}")
    if faults:
        doubts = [source.doubts[name] for name in natural if name in source.doubts]
        hint = doubts[0] if doubts else "ingest it into another table"
        raise SchemaError(f"{source.uri}: {'; '.join(faults)}", hint=hint)


def _metadata(unit: str | None) -> dict[str, str]:
    return {"unit": unit} if unit else {}
