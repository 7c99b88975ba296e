"""The file of `--future`: values of the inputs at the steps to be forecast or simulated."""

from __future__ import annotations

from datetime import UTC, date, datetime, tzinfo
from pathlib import Path

import polars as pl
import pyarrow as pa

from streamgp.errors import DataError, UsageError
from streamgp.streaming.windows import WindowSpec
from streamgp_pipelines.zones import clock_of


def read_future(path: Path, spec: WindowSpec, clock: bool, columns: tuple[str, ...] | None = None) -> pa.Table:
    """Read CSV, Parquet or JSON Lines with the table's own column names; a text clock is ISO 8601.

    Args:
        path: of the file.
        spec: which columns are wanted. Times without an offset are in its zone.
        clock: whether the time column holds instants; otherwise it holds steps.
        columns: the inputs wanted; the known inputs when left out.

    Raises:
        UsageError: there is no such file, or its suffix is unknown.
        DataError: it cannot be read, a column is missing, it holds no row, or a time is not one; the line is named.
    """
    if not path.is_file():
        raise UsageError(f"--future {path}: there is no such file", hint="check the path")
    try:
        data = _read(path, spec)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"--future {path} cannot be read: {error}", hint="is it whole?") from None
    columns = spec.known or spec.inputs if columns is None else columns
    wanted = [name for name in (spec.time, spec.series, *columns) if name is not None]
    missing = [name for name in wanted if name not in data.columns]
    if missing:
        raise DataError(f"--future {path} lacks the column {missing[0]!r}", hint=f"it must have: {', '.join(wanted)}")
    if not data.height:
        raise DataError(f"--future {path} holds no row", hint="it must hold the rows after the newest row seen")
    if spec.time is not None and clock:
        data = data.with_columns(_instants(data[spec.time], clock_of(spec.zone), path))
    elif spec.time is not None and not data.schema[spec.time].is_integer():
        raise DataError(f"--future {path}: column {spec.time!r} holds no steps", hint="write whole numbers")
    return data.select(wanted).to_arrow()


def _read(path: Path, spec: WindowSpec) -> pl.DataFrame:
    if path.suffix == ".csv":
        names = {} if spec.series is None else {spec.series: pl.String}  # 007 is a name, no number
        return pl.read_csv(path, infer_schema_length=None, schema_overrides=names)
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    if path.suffix in (".jsonl", ".ndjson"):
        return pl.read_ndjson(path, infer_schema_length=None)
    raise UsageError(f"--future {path}: read are .csv, .parquet and .jsonl", hint="convert the file")


def _instants(column: pl.Series, zone: tzinfo, path: Path) -> pl.Series:
    """Text, dates and local times as instants in UTC."""
    kind = column.dtype
    if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        return column
    if not (isinstance(kind, pl.Datetime) or kind in (pl.String, pl.Date)):
        raise DataError(f"--future {path}: column {column.name!r} holds {kind}, not times", hint="write ISO 8601")
    first = 2 if path.suffix == ".csv" else 1
    moments = [_moment(value, zone, f"{path}, line {line}") for line, value in enumerate(column, start=first)]
    return pl.Series(column.name, moments, dtype=pl.Datetime("us", "UTC"))


def _moment(value: str | date | datetime | None, zone: tzinfo, where: str) -> datetime:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise DataError(f"{where}: {value!r} is not a time", hint="write ISO 8601, such as 2015-01-01T00:30") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
