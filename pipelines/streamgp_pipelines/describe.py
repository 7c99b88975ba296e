"""What is in a table: rows, series, columns, span, interval, gaps, what is missing and what was quarantined."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.base import Json
from streamgp_data.moments import Moments
from streamgp_data.pace import Pace
from streamgp_data.quarantine import Quarantine
from streamgp_data.table import SEQ, Table
from streamgp_pipelines.seasons import first_rows, proposed

COLUMNS = 8
"""Columns whose seasons are looked for."""
SHOWN = 5
"""Newest rows of the quarantine that are shown with their reasons."""


def describe_table(path: str | Path) -> dict[str, Json]:
    """One pass over the table, in memory that does not grow with its rows.

    Intervals are seconds (steps where the time is a step column), between consecutive rows of a series in the order
    of the table; `observed` is their median. `gaps` are those longer than 1.5 times the declared interval or, where
    none is declared, the median of their series; `backwards` those below zero; `snapped` those that are off a whole
    number of declared intervals by no more than the declared tolerance (None where none is declared). Of rows
    of one series and time `duplicates` counts those with the same values and `conflicts` those with other ones, both
    quarantined, and `versions` those in the table, which come as one row: as `read_of_versions` says.
    `span_dates` is the span of an epoch in ISO 8601.
    `quarantine` is the Delta table that holds what was put aside, and `newest_quarantined` its last rows.

    Raises:
        TableError: there is no table, or it is damaged.
    """
    table = Table.open(path)
    meta = table.meta
    names = [field.name for field in table.schema if field.name != SEQ]
    missing: Counter[str] = Counter()
    pace = Pace()
    for chunk in table.read():
        rows = chunk.rows
        missing.update({name: rows.column(name).null_count for name in names})
        if meta.time is not None:
            times = rows.column(meta.time).cast(pa.int64()).to_numpy()
            pace.add(times, None if meta.series is None else rows.column(meta.series))
    quarantine = Quarantine(table)
    reasons = quarantine.reasons()
    unit = 1e-6 if meta.clock else 1
    declared = None if meta.every_ns is None else meta.every_ns * (1e-9 if meta.clock else 1)
    observed = pace.median()
    return {
        "table": table.path,
        "version": table.version,
        "rows": table.rows,
        "series": _series(table, pace),
        "schema": [_column(field) for field in table.schema if field.name != SEQ],
        "time": meta.time,
        "time_format": meta.time_format,
        "zone": meta.zone,
        "span": None if pace.span is None else [_when(value, table) for value in pace.span],
        **_dates(pace.span, table),
        "interval": {
            "declared": declared,
            "tolerance": None if meta.tolerance_ns is None else meta.tolerance_ns * 1e-9,
            "lateness": None if meta.lateness is None else meta.lateness * unit,
            "observed": None if observed is None else observed * unit,
        },
        "gaps": pace.gaps(None if declared is None else declared / unit),
        "seasons": _seasons(table),
        "backwards": pace.backwards,
        "snapped": pace.snapped(meta),
        "duplicates": reasons.get("duplicate", 0),
        "conflicts": reasons.get("conflict", 0),
        "versions": table.versions,
        "read_of_versions": meta.duplicates,
        "quarantined": dict(sorted(reasons.items())),
        "quarantine": quarantine.path if quarantine.rows else None,
        "newest_quarantined": quarantine.newest(SHOWN),
        "missing": {name: int(missing[name]) for name in names},
        "bytes": sum(_sizes(table)),
        "files": len(_sizes(table)),
    }


def _series(table: Table, pace: Pace) -> Json:
    if table.meta.series is None:
        return {"column": None, "count": 1 if table.rows else 0, "names": []}
    if table.meta.time is None:
        for chunk in table.read(columns=[table.meta.series]):
            for name in pc.unique(chunk.rows.column(table.meta.series)).to_pylist():
                pace.series.setdefault(name, len(pace.series))
    return {
        "column": table.meta.series,
        "count": len(pace.series),
        "names": [str(name) for name in [*pace.series][:20]],
    }


def _seasons(table: Table) -> Json:
    """Rows in each season that `--season auto` would take, by the column."""
    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)
    skipped = {table.meta.time, table.meta.series, SEQ}
    names = [f.name for f in table.schema if f.name not in skipped and any(kind(f.type) for kind in kinds)]
    opening = first_rows(table, names[:COLUMNS])
    found: dict[str, Json] = {name: list(proposed(opening, table.meta, name)) for name in names[:COLUMNS]}
    return {name: seasons for name, seasons in found.items() if seasons}


def _column(field: pa.Field[Any]) -> dict[str, Json]:
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    return {"name": field.name, "type": str(field.type), "role": metadata.get("role"), "unit": metadata.get("unit")}


def _when(value: int, table: Table) -> Json:
    """A time as the source wrote it; a timestamp in the table's zone, in ISO 8601."""
    written: Any = Moments.of(table.meta).write(np.array([value * (1000 if table.meta.clock else 1)]))[0]
    return written.isoformat() if isinstance(written, datetime) else written


def _dates(span: Any, table: Table) -> dict[str, Json]:
    """The span in ISO 8601, where the source wrote an epoch."""
    moments = Moments.of(table.meta)
    if span is None or not moments.clock or not moments.numbers or moments.elapsed:
        return {}
    return {"span_dates": [datetime.fromtimestamp(value / 1e6, UTC).isoformat() for value in span]}


def _sizes(table: Table) -> list[int]:
    actions: Any = pa.table(table.log.get_add_actions(flatten=True))
    return list(actions.column("size_bytes").to_pylist()) if actions.num_rows else []
