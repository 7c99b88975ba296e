"""Why no window of a table is whole, and what would make one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow.compute as pc

from streamgp.errors import DataError
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_data.table import Table


class NoNewestWindow(DataError):
    """No forecast is possible at the newest rows."""


def span(spec: WindowSpec) -> int:
    """Rows of a series up to the end of its first whole window."""
    window = spec.lags + spec.horizon if spec.lags else 1
    return window + (spec.season if spec.season > 1 else 0)


def check_span(table: Table, spec: WindowSpec) -> None:
    """See that a series of the table is as long as a window; a table without rows may still get some.

    Raises:
        DataError: none is.
    """
    if table.rows and max(_rows(table, spec).values()) < span(spec):
        raise DataError("no window of the table can be whole: there is nothing to learn", hint=advice(table, spec))


def first_windows(table: Table, spec: WindowSpec, rows: int) -> int:
    """Windows of the first rows of a table that teach something; 0 where that depends on its gaps (gaps="reset")."""
    if spec.lags and spec.gaps == "reset":
        return 0
    found, series = 0, set[object]()
    for chunk in table.read({}, [name for name in (spec.series, *spec.targets) if name is not None]):
        part = chunk.rows.slice(0, rows)
        known = reduce(pc.or_, [part.column(name).is_valid() for name in spec.targets])
        found += int(known.to_numpy(zero_copy_only=False).sum())
        series |= {None} if spec.series is None else set(part.column(spec.series).unique().to_pylist())
        rows -= part.num_rows
        if not rows:
            break
    return max(found - len(series) * (span(spec) - 1), 0)


def without_values(table: Table, columns: Sequence[str]) -> str:
    """Which columns have no value in any row, and what to do; "" where all have one. It reads until all have."""
    empty = list(columns) if table.rows else []
    for chunk in table.read({}, columns) if empty else ():
        empty = [name for name in empty if chunk.rows.column(name).null_count == chunk.rows.num_rows]
        if not empty:
            break
    return f"no row has a value of {' or '.join(map(repr, empty))}: use another column" if empty else ""


def check_columns(table: Table, spec: WindowSpec) -> None:
    """See that every column has a value in some row of the table.

    Raises:
        DataError: one has none.
    """
    if nothing := without_values(table, spec.columns):
        raise DataError("a column has no values", hint=nothing)


def no_newest_window(windows: Windows) -> NoNewestWindow:
    """That no forecast is possible at the newest rows, and when it will be."""
    why = (
        "a gap or a missing value is too near: wait for more rows, or train with --gaps fill"
        if windows.spec.gaps == "reset"
        else "the series are too short, or their targets have no value in a window or a season: wait for more rows"
    )
    if windows.late:
        why += (
            f"; {windows.late} rows were left out, for they came behind a newer one: if its time is wrong, ingest the "
            "source into a new table with --max-ahead 1d, or without that row"
        )
    return NoNewestWindow("no series has a whole window at its newest row", hint=why)


def _rows(table: Table, spec: WindowSpec) -> dict[object, int]:
    """Rows of each series."""
    if spec.series is None:
        return {None: table.rows}
    rows: dict[object, int] = {}
    for chunk in table.read({}, (spec.series,)):
        names, counts = pc.value_counts(chunk.rows.column(spec.series)).flatten()
        for series, count in zip(names.to_pylist(), counts.to_pylist(), strict=True):
            rows[series] = rows.get(series, 0) + (count or 0)
    return rows


def advice(table: Table, spec: WindowSpec, wanted: int = 1) -> str:
    """What to change where fewer than `wanted` windows of the table are whole; one pass over the columns read."""
    rows = _rows(table, spec)
    most, long = max(rows.values(), default=0), span(spec)
    if not most:
        return "it has no rows yet: ingest some"
    if nothing := without_values(table, spec.columns):
        return nothing
    if sum(max(count - long + 1, 0) for count in rows.values()) < wanted:
        whose = "the table" if spec.series is None else "the longest series"
        return (
            f"a window takes {long} rows (lags, season and horizon), and {whose} has {most}: "
            "use fewer --lags, a shorter --season or a shorter --horizon"
        )
    return "look for gaps and missing values with streamgp describe; use fewer --lags, or --gaps fill"
