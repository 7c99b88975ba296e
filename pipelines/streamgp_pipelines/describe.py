"""What is in a table: rows, series, columns, span, interval, gaps, what is missing and what was quarantined."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.base import Json
from streamgp.streaming.quarantine import Quarantine
from streamgp.streaming.table import SEQ, Table, TableMeta
from streamgp_pipelines.moments import Moments

_CAP = 1 << 16
"""Distinct intervals that are counted; beyond them the commonest so far are kept."""

SHOWN = 5
"""Newest rows of the quarantine that are shown with their reasons."""


def describe_table(path: str | Path) -> dict[str, Json]:
    """One pass over the table, in memory that does not grow with its rows.

    Intervals are seconds (steps where the time is a step column), between consecutive rows of a series in the order
    of the table; `gaps` are those longer than 1.5 times the declared interval (or the observed median), `backwards`
    those below zero, and `snapped` those that are off a whole number of declared intervals by no more than the declared
    tolerance (None where none is declared). `duplicates` counts quarantined rows: the table itself has none.
    `quarantine` is the Delta table that holds what was put aside, and `newest_quarantined` its last rows.

    Raises:
        TableError: there is no table, or it is damaged.
    """
    table = Table.open(path)
    meta = table.meta
    names = [field.name for field in table.schema if field.name != SEQ]
    missing: Counter[str] = Counter()
    pace = _Pace()
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
    expected = declared if declared is not None else None if observed is None else observed * unit
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
        "interval": {
            "declared": declared,
            "tolerance": None if meta.tolerance_ns is None else meta.tolerance_ns * 1e-9,
            "observed": None if observed is None else observed * unit,
        },
        "gaps": 0 if expected is None else pace.longer_than(1.5 * expected / unit),
        "backwards": pace.backwards,
        "snapped": pace.snapped(meta),
        "duplicates": reasons.get("duplicate", 0),
        "quarantined": dict(sorted(reasons.items())),
        "quarantine": quarantine.path if quarantine.rows else None,
        "newest_quarantined": quarantine.newest(SHOWN),
        "missing": {name: int(missing[name]) for name in names},
        "bytes": sum(_sizes(table)),
        "files": len(_sizes(table)),
    }


class _Pace:
    """First and last time, and how often each interval between consecutive rows of a series occurs."""

    def __init__(self) -> None:
        self.span: tuple[int, int] | None = None
        self.backwards = 0
        self.series: dict[Any, int] = {}
        self._newest: dict[int, int] = {}
        self._counts: Counter[int] = Counter()

    def add(self, times: NDArray[np.int64], series: pa.Array[Any] | None) -> None:
        first, last = int(times.min()), int(times.max())
        self.span = (first, last) if self.span is None else (min(first, self.span[0]), max(last, self.span[1]))
        codes = np.zeros(len(times), np.int64)
        if series is not None:
            encoded = series.dictionary_encode()
            local = [self.series.setdefault(name, len(self.series)) for name in encoded.dictionary.to_pylist()]
            codes = np.array(local, np.int64)[encoded.indices.to_numpy()]
        order = np.argsort(codes, kind="stable")
        times, codes = times[order], codes[order]
        starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        ends = np.append(starts[1:], len(codes)) - 1
        known = [self._newest.get(int(codes[i])) for i in starts]
        steps = np.delete(np.diff(times), starts[1:] - 1)
        joins = [int(times[i]) - past for i, past in zip(starts, known, strict=True) if past is not None]
        self._newest.update(zip(codes[ends].tolist(), times[ends].tolist(), strict=True))
        steps = np.append(steps, np.array(joins, np.int64))
        self.backwards += int((steps < 0).sum())
        values, counts = np.unique(steps[steps >= 0], return_counts=True)
        self._counts.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        if len(self._counts) > _CAP:
            self._counts = Counter(dict(self._counts.most_common(_CAP // 2)))

    def median(self) -> int | None:
        """The median interval."""
        half = sum(self._counts.values()) / 2
        for value in sorted(self._counts):
            half -= self._counts[value]
            if half <= 0:
                return value
        return None

    def snapped(self, meta: TableMeta) -> int | None:
        """Intervals that the tolerance rounds; the clock counts microseconds."""
        if meta.every_ns is None or meta.tolerance_ns is None:
            return None
        total = 0
        for value, count in self._counts.items():
            off = abs(1000 * value - max((1000 * value + meta.every_ns // 2) // meta.every_ns, 1) * meta.every_ns)
            total += count * (value > 0 and 0 < off <= meta.tolerance_ns)
        return total

    def longer_than(self, limit: float) -> int:
        return sum(count for value, count in self._counts.items() if value > limit)


def _series(table: Table, pace: _Pace) -> Json:
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


def _column(field: pa.Field[Any]) -> dict[str, Json]:
    told = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    return {"name": field.name, "type": str(field.type), "role": told.get("role"), "unit": told.get("unit")}


def _when(value: int, table: Table) -> Json:
    """A time as the source wrote it; a timestamp in the table's zone, in ISO 8601."""
    written: Any = Moments.of(table.meta).write(np.array([value * (1000 if table.meta.clock else 1)]))[0]
    return written.isoformat() if isinstance(written, datetime) else written


def _sizes(table: Table) -> list[int]:
    actions: Any = pa.table(table.log.get_add_actions(flatten=True))
    return list(actions.column("size_bytes").to_pylist()) if actions.num_rows else []
