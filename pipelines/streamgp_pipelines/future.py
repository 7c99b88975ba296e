"""The file of `--future`: values of the known inputs at the steps to be forecast."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa

from streamgp.errors import DataError, UsageError
from streamgp.streaming.windows import WindowSpec


def read_future(path: Path, spec: WindowSpec) -> pa.Table:
    """Read CSV, Parquet or JSON Lines with the table's own column names; a text clock is ISO 8601.

    Times without an offset are in the table's zone.

    Raises:
        UsageError: there is no such file, or its suffix is unknown.
        DataError: it cannot be read, a column is missing, or a time is not one; the line is named.
    """
    if not path.is_file():
        raise UsageError(f"--future {path}: there is no such file", hint="check the path")
    try:
        data = _read(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"--future {path} cannot be read: {error}", hint="is it whole?") from None
    wanted = [name for name in (spec.time, spec.series, *(spec.known or spec.inputs)) if name is not None]
    missing = [name for name in wanted if name not in data.columns]
    if missing:
        raise DataError(f"--future {path} lacks the column {missing[0]!r}", hint=f"it must have: {', '.join(wanted)}")
    if spec.time is not None and data.schema[spec.time] == pl.String:
        zone = ZoneInfo(spec.zone or "UTC")
        moments = [_moment(text, zone, f"{path}, line {row}") for row, text in enumerate(data[spec.time], start=2)]
        data = data.with_columns(pl.Series(spec.time, moments, dtype=pl.Datetime("us", "UTC")))
    return data.select(wanted).to_arrow()


def _read(path: Path) -> pl.DataFrame:
    if path.suffix == ".csv":
        return pl.read_csv(path)
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    if path.suffix in (".jsonl", ".ndjson"):
        return pl.read_ndjson(path)
    raise UsageError(f"--future {path}: read are .csv, .parquet and .jsonl", hint="convert the file")


def _moment(text: str | None, zone: ZoneInfo, where: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        raise DataError(f"{where}: {text!r} is not a time", hint="write ISO 8601, such as 2015-01-01T00:30") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(ZoneInfo("UTC"))
