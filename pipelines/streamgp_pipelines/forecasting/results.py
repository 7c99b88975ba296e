"""What a forecast or a simulation gives back, and how it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from numbers import Real
from pathlib import Path
from typing import IO, Any

import polars as pl
from torch import Tensor

from streamgp.errors import UsageError
from streamgp_data.moments import Moments
from streamgp_data.recordings.recording import missing, needs
from streamgp_pipelines.files import replaced

SUFFIXES = (".parquet", ".csv", ".xlsx", ".json")
"""How a forecast can be written."""
_ROWS = 1_048_575
"""Of a sheet of a workbook, under the names of the columns."""


@dataclass(frozen=True)
class Forecast:
    """What comes next.

    Attributes:
        frame: unique_id, ds, cutoff, [target,] and the forecast columns, one row a step ahead.
        history: unique_id, ds, [target,] y: the newest rows seen.
        model: its name, which prefixes the columns.
        levels: widths of the bands in percent.
        unit: of the first target, "" where it is not known.
        binary: whether it is of outcomes 0 and 1: the column `model` is then the probability of 1; there are no bands.
        moments: how its times are written.
        target: the column that is forecast; "" where there are several, which the frame names.
        point: what the column `model` is, mean or median.
        warnings: what should be known of it.
        spikes: rows in the columns of `history`, which lacks them: they count as missing; None where none is known.
    """

    frame: pl.DataFrame
    history: pl.DataFrame
    model: str
    levels: tuple[float, ...]
    unit: str
    binary: bool
    moments: Moments
    target: str = field(default="", kw_only=True)
    point: str = field(default="mean", kw_only=True)
    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    spikes: pl.DataFrame | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Simulation(Forecast):
    """What comes next, by free simulation.

    Attributes:
        samples: (P, S, K, O) the paths; series, targets and steps in the order of the frame. One path of means by
            plug-in.
    """

    samples: Tensor = field(kw_only=True)

    def paths(self) -> pl.DataFrame:
        """Every value of every path: unique_id, ds, [target,] path (from 0) and y."""
        keys = self.frame.select(name for name in ("unique_id", "ds", "target") if name in self.frame.columns)
        y = pl.Series("y", self.samples.permute(0, 1, 3, 2).flatten().numpy())
        path = (pl.int_range(pl.len(), dtype=pl.Int64) // keys.height).alias("path")
        return pl.concat([keys] * len(self.samples)).with_columns(path, y)


def in_order(levels: Sequence[float]) -> tuple[float, ...]:
    """Levels as bands are made of them: narrow to wide, each once.

    Raises:
        UsageError: there is none, or one is no percentage.
    """
    numbers = not isinstance(levels, str) and all(isinstance(level, Real) for level in levels)
    if not numbers or not levels or not all(1 <= level < 100 for level in levels):
        raise UsageError("levels are percentages from 1 to below 100", hint="such as 80 and 95")
    return tuple(sorted(set(levels)))


def write_csv(data: pl.DataFrame, sink: Path | IO[bytes]) -> None:
    """Write a frame as CSV, with a fraction of a second, of 6 or 9 digits, where a time has one.

    Example:
        >>> from datetime import datetime
        >>> from io import BytesIO
        >>> sink = BytesIO()
        >>> ds = pl.Series("ds", [datetime(2024, 7, 1)]).dt.replace_time_zone("Europe/Berlin")
        >>> write_csv(ds.to_frame(), sink)
        >>> sink.getvalue()
        b'ds\\n2024-07-01T00:00:00+02:00\\n'
        >>> sink = BytesIO()
        >>> write_csv(pl.Series("ds", [1]).cast(pl.Datetime("ns")).to_frame(), sink)
        >>> sink.getvalue()
        b'ds\\n1970-01-01T00:00:00.000000001\\n'
    """
    times = [column for column in data.iter_columns() if isinstance(column.dtype, pl.Datetime)]
    parts = [column.dt.nanosecond() for column in times]
    digits = max((9 if (part % 1000 != 0).any() else 6 if (part != 0).any() else 0 for part in parts), default=0)
    zoned = any(column.dtype.time_zone for column in times)  # type: ignore[attr-defined]
    form = f"%Y-%m-%dT%H:%M:%S{f'%.{digits}f' if digits else ''}{'%:z' if zoned else ''}"
    data.write_csv(sink, datetime_format=form if times else None)


def write_xlsx(data: pl.DataFrame, sink: Path) -> None:
    """Write a frame as a workbook: numbers and times are those of the workbook, whatever its language. A workbook knows
    no zones: a time is what the clock showed, and `utc_offset` says how far it was ahead of UTC. Cells of NaN and of
    infinite numbers are empty.

    Raises:
        UsageError: there are more rows than a sheet has.
    """
    if data.height > _ROWS:
        raise UsageError(f"a sheet has {_ROWS:,} rows, and these are {data.height:,}", hint="write .parquet or .csv")
    zoned = [name for name, kind in data.schema.items() if getattr(kind, "time_zone", None)]
    offset = [pl.col("ds").dt.to_string("%:z").alias("utc_offset")] if "ds" in zoned else []
    data = data.with_columns(*offset).with_columns(pl.col(zoned).dt.replace_time_zone(None))
    numbers = [pl.when(pl.col(name).is_finite()).then(name) for name, kind in data.schema.items() if kind.is_float()]
    general: dict[Any, str] = {kind: "General" for kind in data.dtypes if kind.is_numeric()}
    options = {"strings_to_urls": False, "strings_to_formulas": False}
    with BytesIO() as sheet:
        with needs("xlsxwriter", "excel").Workbook(sheet, options) as book:
            data.with_columns(numbers).write_excel(
                book, "forecast", dtype_formats=general, autofit=True, freeze_panes=(1, 0)
            )
        sink.write_bytes(sheet.getvalue())


def check_workbook(path: Path) -> None:
    """See that a workbook can be written, where a file is to be one.

    Raises:
        UsageError: xlsxwriter is not installed.
    """
    if path.suffix == ".xlsx" and find_spec("xlsxwriter") is None:
        raise missing("xlsxwriter", "excel")


def write(data: pl.DataFrame, path: Path) -> None:
    """Write a forecast atomically as its suffix says.

    Raises:
        UsageError: the suffix is none of .parquet, .csv, .xlsx, .json, or a workbook cannot be written.
        ServiceError: the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: a forecast is written as .parquet, .csv, .xlsx or .json", hint="change the suffix")
    with replaced(path) as temporary:
        if path.suffix == ".parquet":
            data.write_parquet(temporary)
        elif path.suffix == ".csv":
            write_csv(data, temporary)
        elif path.suffix == ".xlsx":
            write_xlsx(data, temporary)
        else:
            data.write_json(temporary)
