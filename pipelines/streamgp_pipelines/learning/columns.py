"""Which columns of a table a run reads, and as what."""

from __future__ import annotations

from difflib import get_close_matches

import pyarrow as pa

from streamgp import registry
from streamgp.errors import SchemaError, UsageError
from streamgp.model_config import LARGEST_LAGS
from streamgp.windows.windows import WindowSpec
from streamgp_data.columns import LATE
from streamgp_data.reading.matching import but_for_units, matching
from streamgp_data.table import SEQ, TableMeta
from streamgp_data.versions import REVISES
from streamgp_pipelines.config import AUTO, DataConfig, TrainConfig
from streamgp_pipelines.config.settings import split_names

DEFAULT_LAGS = 24


def window_spec(config: DataConfig, schema: pa.Schema, meta: TableMeta, clock: tuple[int, ...] = ()) -> WindowSpec:
    """What one window of this run looks at: names checked, patterns expanded, defaults filled.

    Args:
        config: of the run, with seasons in rows.
        schema: of its table.
        meta: of its table.
        clock: rows in a day and a week of the table's clock: a week that is named alone has its day.

    Raises:
        UsageError: a column does not exist, or is asked to be two things.
        SchemaError: a column is not a number.
    """
    schema = pa.schema([field for field in schema if field.name != SEQ])
    test = None if config.test_column is None else in_table(config.test_column, schema, "--test-column")
    reserved = {name for name in (meta.time, meta.series, test) if name}
    numeric = [field.name for field in schema if field.name not in reserved and _is_number(field.type)]
    targets = targets_in(config.target, schema)
    known = _expand(with_commas(config.known, schema, "--known"), schema, numeric, "--known", without=targets)
    inputs = (
        _expand(with_commas(config.inputs, schema, "--inputs"), schema, numeric, "--inputs", without=(*targets, *known))
        + known
    )
    for name in (*targets, *inputs):
        if not _is_number(kind := schema.field(name).type):
            hint, others = _instead_of(kind, numeric), ", ".join(numeric) or "none"
            python = f"make it numbers, with pandas.to_numeric or polars' cast; numbers are: {others}"
            raise SchemaError(f"column {name!r} is {kind}, not a number", hint=hint, python=python)
    if config.calendar and meta.time is None:
        raise UsageError("--calendar needs a clock, and this table has none", hint="ingest it with --time COLUMN")
    assert not isinstance(config.season, str), "seasons are taken from the table first"
    seasons = clock if config.season and config.season == clock[1:] else config.season
    lags = config.lags if config.lags is not None else _default_lags(seasons, meta, _most_lags(config))
    if lags == 0 and not inputs and not config.calendar:
        raise UsageError("without lags and without inputs there is nothing to look at", hint="give --lags or --inputs")
    if lags == 0 and (config.horizon != 1 or seasons):
        raise UsageError(
            "this table has no clock, so it is regression (--lags 0): one step ahead and no season",
            hint="give --lags to look back over rows",
        )
    simulated = config.simulate or 0 if isinstance(config, TrainConfig) else 0  # with every input at every step
    fleet = isinstance(config, TrainConfig) and config.fleet
    if fleet and meta.series is None:
        raise UsageError("--fleet is for several series, and this table has one", hint="leave it out")
    if isinstance(config, TrainConfig) and config.scale == "series":
        if meta.series is None:
            hint = "leave it out, or ingest the source into a new table with --series COLUMN"
            raise UsageError("--scale series is for several series, and this table has one", hint=hint)
        if lags == 0:
            hint = "leave it out, or give --lags to look back over rows"
            raise UsageError("--scale series is of the past of series, and regression (--lags 0) has none", hint=hint)
    return WindowSpec(
        targets=targets,
        inputs=inputs,
        known=inputs if lags == 0 or simulated else known,
        calendar=bool(config.calendar),
        lags=lags,
        horizon=config.horizon,
        season=seasons[-1] if seasons else 1,
        seasons=seasons if lags else (),
        gaps=config.gaps,
        time=meta.time,
        series=meta.series,
        every_ns=meta.every_ns,
        zone=meta.zone,
        tolerance_ns=meta.tolerance_ns,
        simulated=simulated,
        fleet=fleet,
        late=config.late,
        sentinels=tuple(value for value in config.sentinel if value != "none"),
        faults="none" not in config.sentinel,
    )


def test_column(config: DataConfig, schema: pa.Schema) -> str | None:
    """The column that says which rows are held out.

    Raises:
        UsageError: there is no such column.
        SchemaError: the column is neither true/false nor a number.
    """
    if config.test_column is None:
        return None
    name = in_table(config.test_column, schema, "--test-column")
    kind = schema.field(name).type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise SchemaError(f"column {name!r} is {kind}, not true/false", hint="use a 0/1 column")
    return name


def _instead_of(kind: pa.DataType, numeric: list[str]) -> str:
    """The hint for a column that is not numeric: name another one, or read its cells as numbers."""
    hints = [f"numbers are: {', '.join(numeric)}"] if numeric else []
    if pa.types.is_string(kind):
        what = "--decimal ',' (3,41), --thousands ',' (1,234) or --null '-' (a missing value)"
        hints.append(f"if its cells are numbers, ingest again into a new table with {what}")
    return "; ".join(hints) or "ingest numbers into a new table"


def _default_lags(seasons: tuple[int, ...], meta: TableMeta, most: int) -> int:
    if meta.time is None:
        return 0
    return min(seasons[0], most) if seasons else DEFAULT_LAGS


def _most_lags(config: DataConfig) -> int:
    """Lags by default at most, as the model says."""
    if not isinstance(config, TrainConfig) or config.model == AUTO:
        return LARGEST_LAGS
    return int(registry.load("models", config.model).Config.most_lags)


def with_commas(names: tuple[str, ...], schema: pa.Schema, flag: str) -> tuple[str, ...]:
    """Names that were split at a comma and are one column's name, put together again.

    Raises:
        UsageError: both readings are columns of the table.

    Example:
        >>> with_commas(("a", "b", "c"), pa.schema([("a,b", pa.float64()), ("c", pa.float64())]), "--target")
        ('a,b', 'c')
    """
    whole = {split_names(name): name for name in schema.names if "," in name}
    found: list[str] = []
    rest = names
    while rest:
        fitting = [parts for parts in whole if parts and parts == rest[: len(parts)]]
        parts = max(fitting, key=len, default=rest[:1])
        if fitting and all(part in schema.names for part in parts):
            raise UsageError(
                f"{flag} {','.join(parts)} is the column {whole[parts]!r}, or the columns {' and '.join(parts)}",
                hint="rename the column in the source and ingest it into another table",
            )
        found.append(whole[parts] if fitting else rest[0])
        rest = rest[len(parts) :]
    return tuple(found)


def targets_in(names: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...]:
    """The columns to forecast.

    Raises:
        UsageError: one is not there, or none is named and none is called y.
    """
    target = with_commas(names, schema, "--target") or _default_target(schema)
    return tuple(in_table(name, schema, "--target") for name in target)


def _default_target(schema: pa.Schema) -> tuple[str, ...]:
    if "y" in schema.names:
        return ("y",)
    raise UsageError("which column is to be forecast?", hint=f"give --target; there are: {', '.join(schema.names)}")


def in_table(name: str, schema: pa.Schema, flag: str) -> str:
    """The column of a name; the unit after it can be left out where only one column fits then.

    Raises:
        UsageError: there is none, or there are several.

    Example:
        >>> in_table("flow", pa.schema([("_seq", pa.int64()), ("flow [m3/h]", pa.float64())]), "--target")
        'flow [m3/h]'
    """
    names = [one for one in schema.names if one != SEQ]
    if name in names:
        return name
    fitting = but_for_units(name, names)
    if len(fitting) == 1:
        return fitting[0]
    near = fitting or [one for one in names if one.startswith(f"{name} (")] or get_close_matches(name, names, n=1)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(names)}"
    raise UsageError(f"{flag}: the table has no column {name!r}", hint=hint)


def _expand(
    patterns: tuple[str, ...], schema: pa.Schema, numeric: list[str], flag: str, without: tuple[str, ...]
) -> tuple[str, ...]:
    """Columns for names and patterns, in table order for a pattern, each once, the others' columns left out."""
    found: list[str] = []
    for pattern in patterns:
        if pattern not in schema.names and any(mark in pattern for mark in "*?["):
            matched = [name for name in matching(pattern, numeric) if name not in without]
            if not matched:
                raise UsageError(
                    f"{flag}: no numeric column is like {pattern!r}", hint=f"there are: {', '.join(numeric)}"
                )
        else:
            matched = [in_table(pattern, schema, flag)]
            if matched[0] in without and flag == "--known":
                raise UsageError(f"{flag}: {matched[0]!r} is a target", hint="a target's future is what is forecast")
        found += [name for name in matched if name not in found and name not in without]
    return tuple(found)


def _is_number(kind: pa.DataType) -> bool:
    numbers = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
    return any(fits(kind) for fits in numbers)


def unused(config: DataConfig, spec: WindowSpec, schema: pa.Schema) -> list[str]:
    """Columns of numbers that a run leaves out which names no inputs; [] for one that names some.

    Example:
        >>> spec = WindowSpec(targets=("y",), time="ds", lags=2)
        >>> table = pa.schema([("_seq", pa.int64()), ("ds", pa.int64()), ("y", pa.float64()), ("wind", pa.float64())])
        >>> unused(DataConfig.read({"table": "t"}), spec, table)
        ['wind']
    """
    if config.inputs or config.known:
        return []
    read = {SEQ, LATE, REVISES, *columns_read(spec), config.test_column}
    return [field.name for field in schema if field.name not in read and _is_number(field.type)]


def columns_read(spec: WindowSpec) -> tuple[str, ...]:
    """The table's columns that windows look at."""
    keys = tuple(name for name in (spec.time, spec.series) if name is not None)
    return (*keys, *spec.columns)
