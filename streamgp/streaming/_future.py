"""The future that a user hands in for a forecast: known inputs at the steps behind the newest rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamgp.errors import DataError
from streamgp.streaming._rows import Names, numbers, times
from streamgp.streaming._spec import WindowSpec
from streamgp.streaming.calendar import Bools, Floats, Ints


def known_ahead(
    spec: WindowSpec, future: pa.Table, names: Names, step: Ints, ds: Ints, first: Ints
) -> tuple[Floats, Bools]:
    """The known inputs at the H steps behind each series' newest row.

    Args:
        spec: what windows are made of.
        future: rows with the series, time and known columns; rows beyond the H steps, or not after the newest row,
            are left aside. Without a clock, the h-th row of a series is h steps ahead.
        names: of the series.
        step, ds, first: (S,) newest step, its time, and the first time of each series.

    Returns:
        (S, H, K) values, and (S,) which series `future` names.

    Raises:
        SchemaError: a column is missing.
        DataError: a series is unknown, or a step or value is missing.
    """
    out, named = values_ahead(spec, future, names, (step, ds, first), spec.known, spec.horizon)
    missing = np.argwhere(named[:, None, None] & np.isnan(out))
    if len(missing):
        at, behind, channel = (int(index) for index in missing[0])
        raise DataError(
            f"the future of series {names.all[at]!r} lacks {spec.known[channel]!r} {behind + 1} steps ahead",
            hint=f"--future must hold the {spec.horizon} steps that come after the newest row seen",
        )
    return out, named


def values_ahead(
    spec: WindowSpec,
    future: pa.Table,
    names: Names,
    newest: tuple[Ints, Ints, Ints],
    columns: tuple[str, ...],
    steps: int,
) -> tuple[Floats, Bools]:
    """The values of some columns at the K steps behind each series' newest row.

    Args:
        spec, future, names: as in `known_ahead`.
        newest: (S,) each: newest step, its time, and the first time of each series.
        columns: C of them.
        steps: K.

    Returns:
        (S, K, C) values, NaN where there is none, and (S,) which series `future` names.

    Raises:
        SchemaError: a column is missing.
        DataError: a series is unknown.
    """
    step, ds, first = newest
    code, when, values = _read(spec, future, names, columns)
    if spec.every_ns is not None:
        ahead = (when - first[code] + spec.every_ns // 2) // spec.every_ns - step[code]
    else:
        later = np.flatnonzero(when > ds[code]) if spec.time is not None else np.arange(len(code))
        order = later[np.lexsort((when[later], code[later]))]
        code, values = code[order], values[order]
        ahead = 1 + np.arange(len(code)) - np.searchsorted(code, code)
    near = (ahead >= 1) & (ahead <= steps)
    out = np.full((len(step), steps, len(columns)), np.nan)
    out[code[near], ahead[near] - 1] = values[near]
    named = np.zeros(len(step), bool)
    named[code] = True
    return out, named


def regressors(spec: WindowSpec, future: pa.Table, names: Names) -> tuple[Ints, Ints, Floats]:
    """The rows to predict without lags: series (N,), time (N,) or row number, inputs (N, C − O).

    Raises:
        SchemaError: a column is missing.
        DataError: a series is unknown, or a value is missing.
    """
    code, when, values = _read(spec, future, names, spec.columns[len(spec.targets) :])
    missing = np.argwhere(np.isnan(values))
    if len(missing):
        row, channel = (int(index) for index in missing[0])
        name = spec.columns[len(spec.targets) + channel]
        raise DataError(f"row {row + 1} of the future lacks {name!r}", hint="every input must have a value")
    return code, when, values


def _read(spec: WindowSpec, future: pa.Table, names: Names, columns: tuple[str, ...]) -> tuple[Ints, Ints, Floats]:
    whole = future.combine_chunks().to_batches()
    rows = whole[0] if whole else pa.RecordBatch.from_pylist([], schema=future.schema)
    code = np.zeros(rows.num_rows, np.int64) if spec.series is None else names.read(rows, spec.series, grow=False)
    if (code < 0).any():
        row = int(np.argmin(code)) + 1
        raise DataError(f"row {row} of the future names a series never seen", hint="series are named as in the table")
    when = np.arange(rows.num_rows) if spec.time is None else times(rows, spec.time)
    return code, when, numbers(rows, columns)
