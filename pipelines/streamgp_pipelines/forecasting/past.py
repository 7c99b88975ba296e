"""The history that is drawn before a forecast: as long as it needs, and no longer."""

from __future__ import annotations

import polars as pl
import torch

from streamgp.errors import StreamgpError, UsageError
from streamgp.windows.rows import times
from streamgp.windows.windows import WindowSpec
from streamgp_data.delta import SEQ
from streamgp_data.intervals import nanoseconds
from streamgp_data.table import Table
from streamgp_pipelines.learning.frames import Naming

SPANS, LEAST = 4, 24
"""Horizons that are drawn before a forecast by default, and rows at least."""


def recent(history: pl.DataFrame, steps: int, given: str | None = None) -> pl.DataFrame:
    """The newest rows of every series and target.

    Args:
        history: unique_id, ds, [target,] y.
        steps: ahead, of the forecast that is drawn after them.
        given: how many rows, or how long before the newest, as `--history`; None: as many as the forecast needs.

    Raises:
        UsageError: it is a length of time, and the times are no dates.

    Example:
        >>> rows = pl.DataFrame({"unique_id": "y", "ds": range(500), "y": 0.0})
        >>> len(recent(rows, 48)), len(recent(rows, 1)), len(recent(rows, 48, "10"))
        (192, 24, 10)
    """
    keys = [key for key in ("unique_id", "target") if key in history.columns]
    rows = wanted(steps, given)
    if rows is not None:
        return history.filter(pl.int_range(pl.len()).over(keys) >= pl.len().over(keys) - rows)
    if not history["ds"].dtype.is_temporal():
        raise UsageError(f"--history {given}: the times of this run are no dates", hint="give a number of rows")
    span = pl.duration(nanoseconds=nanoseconds(given or "") or 0)
    return history.filter(pl.col("ds") > pl.col("ds").max().over(keys) - span)


def wanted(steps: int, given: str | None) -> int | None:
    """Rows of a series that are drawn; None where a length of time says it."""
    if given is None:
        return max(SPANS * steps, LEAST)
    return int(given) if given.isdecimal() else None


def longer(history: pl.DataFrame, table: Table, spec: WindowSpec, naming: Naming, rows: int, end: int) -> pl.DataFrame:
    """The history with rows of the table before it, where a checkpoint holds too few of them.

    Args:
        history: unique_id, ds, [target,] y: the newest rows that a checkpoint holds.
        table: that of the training.
        rows: of each series, wanted. end: no row that is wanted is from there on.
    """
    series = max(history["unique_id"].n_unique(), 1)
    columns = [name for name in (spec.time, spec.series, *spec.targets) if name is not None]
    parts = []
    for rows_read, _ in table.arrived({SEQ: max(0, end - rows * series), "table": table.id}, columns):
        batch = rows_read.slice(0, max(0, end - rows_read.column(SEQ)[0].as_py()))
        if not batch.num_rows:
            break
        ds = naming.times(torch.from_numpy(times(batch, spec.time or SEQ).copy()))
        names = pl.Series(batch.column(spec.series)).cast(pl.String) if spec.series else None
        for target in spec.targets:
            part = pl.DataFrame({"ds": ds, "y": pl.Series(batch.column(target)).cast(pl.Float64)})
            part = part.with_columns(unique_id=pl.lit(spec.targets[0]) if names is None else names)
            parts.append(part.with_columns(target=pl.lit(target)) if len(spec.targets) > 1 else part)
    if not parts:
        return history
    keys = [key for key in ("unique_id", "target") if key in history.columns]
    before = pl.concat(parts).select(history.columns).cast(dict(history.schema))  # type: ignore[arg-type]
    first = history.group_by(keys).agg(pl.col("ds").min().alias("first"))
    before = before.join(first, on=keys).filter(pl.col("ds") < pl.col("first")).drop("first")
    return pl.concat([before.unique([*keys, "ds"]), history]).sort([*keys, "ds"], maintain_order=True)


def of_training(path: object) -> Table | None:
    """The table that a run was trained on, where it is still there and has one version of each row."""
    try:
        table = Table.open(str(path)) if path and path != "memory" else None
    except (StreamgpError, OSError):
        return None
    return table if table is not None and table.meta.duplicates == "first" else None
