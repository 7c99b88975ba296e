"""The file of `--future`: values of the inputs at the steps to be forecast or simulated."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa

from streamgp.errors import DataError, UsageError
from streamgp.streaming.windows import WindowSpec
from streamgp_pipelines.ingestion.pairing import one_column
from streamgp_pipelines.moments import Moments


def read_future(path: Path, spec: WindowSpec, moments: Moments, columns: tuple[str, ...] | None = None) -> pa.Table:
    """Read CSV, Parquet or JSON Lines with the table's own column names, and times as its source wrote them or in ISO
    8601.

    Args:
        path: of the file.
        spec: which columns are wanted.
        moments: how times are written.
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
    return as_future(data, spec, moments, columns, f"--future {path}", 2 if path.suffix == ".csv" else 1)


def as_future(
    data: pl.DataFrame,
    spec: WindowSpec,
    moments: Moments,
    columns: tuple[str, ...] | None,
    where: str,
    first: int = 1,
) -> pa.Table:
    """Values of inputs at the steps ahead, with times as windows count them.

    Args:
        data: with the table's own column names.
        spec, moments, columns: of `read_future`.
        where: what the data is called in messages.
        first: number of its first row there.

    Raises:
        DataError: a column is missing, it holds no row, or a time is not one.
    """
    columns = spec.known or spec.inputs if columns is None else columns
    if spec.time is not None:
        data = one_column(data, spec.time, moments.form)
    wanted = [name for name in (spec.time, spec.series, *columns) if name is not None]
    missing = [name for name in wanted if name not in data.columns]
    if missing:
        raise DataError(f"{where} lacks the column {missing[0]!r}", hint=f"it must have: {', '.join(wanted)}")
    if not data.height:
        raise DataError(f"{where} holds no row", hint="it must hold the rows after the newest row seen")
    if spec.time is not None:
        names = None if spec.series is None else data[spec.series]
        data = data.with_columns(moments.read(data[spec.time], names, where, first))
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
