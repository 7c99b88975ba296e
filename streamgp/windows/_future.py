"""The future that a user hands in for a forecast: known inputs at the steps after the newest rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamgp.errors import DataError
from streamgp.windows import monthly
from streamgp.windows import steps as steps_of
from streamgp.windows._spec import WindowSpec
from streamgp.windows.calendar import Bools, Floats, Ints
from streamgp.windows.monthly import Months
from streamgp.windows.rows import Names, numbers, times

GIVE = "give it: --future FILE, or POST /forecast of a service"
GIVE_FRAME = "give future=, a frame of them with a row for each step ahead and its time"
"""The hint where known inputs are needed."""


class Newest(NamedTuple):
    """The newest row of each series, (S,) each: its step, its time, the first time of the series (of a clock with a
    tolerance, its tick at the newest row), the interval of its next rows, in units of the time, 0 where it is not known
    yet, and the months that lie between them, where they keep to a day of the month."""

    step: Ints
    ds: Ints
    first: Ints
    every: Ints
    months: Months | None = None


def known_ahead(
    spec: WindowSpec, future: pa.Table, names: Names, newest: Newest, needed: int | None = None
) -> tuple[Floats, Bools]:
    """The known inputs at the H steps after each series' newest row.

    Args:
        spec: what windows are made of.
        future: rows with the series, time and known columns; see `values_ahead`.
        names: of the series.
        newest: row of each series.
        needed: steps that the future must have; H when left out. A value that is missing beyond is that of the step
            before.

    Returns:
        (S, H, K) values, and (S,) which series `future` names.

    Raises:
        SchemaError: a column is missing.
        DataError: a series is unknown, a step or value is missing, or a step is there twice.
    """
    out, named = values_ahead(spec, future, names, newest, spec.known, spec.horizon)
    needed = spec.horizon if needed is None else needed
    missing = np.argwhere(named[:, None, None] & np.isnan(out[:, :needed]))
    if len(missing):
        at, behind, channel = (int(index) for index in missing[0])
        raise DataError(
            f"the future of series {names.all[at]!r} lacks {spec.known[channel]!r} {behind + 1} steps ahead",
            hint=f"--future must hold the {needed} steps that come after the newest row seen",
        )
    for step in range(needed, spec.horizon):
        out[:, step] = np.where(np.isnan(out[:, step]), out[:, step - 1], out[:, step])
    return out, named


def values_ahead(
    spec: WindowSpec, future: pa.Table, names: Names, newest: Newest, columns: tuple[str, ...], steps: int
) -> tuple[Floats, Bools]:
    """The values of some columns at the K steps after each series' newest row.

    A row belongs to the step that its time is nearest to, and no two to the same; rows up to the newest one seen, and
    beyond the K steps, are left aside. Where rows have no time, the h-th of a series is h steps ahead.

    Args:
        spec: what windows are made of.
        future: rows with the series, time and wanted columns.
        names: of the series.
        newest: row of each series.
        columns: C of them.
        steps: K.

    Returns:
        (S, K, C) values, NaN where there is none, and (S,) which series `future` names. A series whose interval is not
        known yet counts as not named.

    Raises:
        SchemaError: a column is missing.
        DataError: a series is unknown, or two rows belong to one step; the rows are named.
    """
    code, when, values = _read(spec, future, names, columns)
    ahead = _steps_ahead(spec, code, when, newest)
    near = np.flatnonzero((ahead >= 1) & (ahead <= steps))
    _check_once(code[near], ahead[near], near, names)
    out = np.full((len(newest.step), steps, len(columns)), np.nan)
    out[code[near], ahead[near] - 1] = values[near]
    named = np.zeros(len(newest.step), bool)
    named[code] = True
    return out, named & (newest.every > 0)


def _steps_ahead(spec: WindowSpec, code: Ints, when: Ints, newest: Newest) -> Ints:
    """(R,) how many steps after the newest row of its series each row of the future is.

    Raises:
        DataError: a row is after the newest one, but before the first step.
    """
    if spec.time is None:
        order = np.argsort(code, kind="stable")
        ahead = np.empty(len(code), np.int64)
        ahead[order] = 1 + np.arange(len(code)) - np.searchsorted(code[order], code[order])
        return ahead
    if spec.every_ns is not None and spec.tolerance_ns is not None:
        return _jittered(code, when, newest, spec.every_ns, spec.tolerance_ns)
    if spec.every_ns is not None:
        grid = (when - newest.first[code] + spec.every_ns // 2) // spec.every_ns
        return np.asarray(grid - newest.step[code], np.int64)
    every = np.maximum(newest.every[code], 1)
    ahead = (when - newest.ds[code] + every // 2) // every
    if newest.months is not None and (some := np.flatnonzero(newest.months.step[code])).size:
        step = newest.months.step[code[some]]
        ahead[some] = (monthly.between(newest.ds[code[some]], when[some], spec.zone) + step // 2) // step
    between = np.flatnonzero((when > newest.ds[code]) & (ahead == 0) & (newest.every[code] > 0))
    if len(between):
        raise DataError(
            f"row {between[0] + 1} of the future stands between the newest row seen and the first step ahead",
            hint=f"the typical interval of the series is {_spoken(int(every[between[0]]))}: give a row for each step",
        )
    return np.asarray(ahead, np.int64)


def _jittered(code: Ints, when: Ints, newest: Newest, every: int, tolerance: int) -> Ints:
    """(R,) steps from row to row, as the table's rows are counted; a row too near to the one before has its step."""
    order = np.lexsort((when, code))
    rows, moments = code[order], when[order]
    counted = steps_of.follow(rows, moments, newest.ds, newest.first, every, tolerance)
    kept, found = counted.kept, np.zeros(len(code), np.int64)
    found[kept] = counted.steps
    before = np.maximum.accumulate(np.where(kept, np.arange(len(code)), -1))
    near = ~kept & (before >= 0) & (rows[before] == rows)
    found[near] = found[before[near]]
    ahead = np.empty(len(code), np.int64)
    ahead[order] = found
    return ahead


def _check_once(code: Ints, ahead: Ints, row: Ints, names: Names) -> None:
    """Check that no two rows of a series are at one step.

    Raises:
        DataError: two are; both rows are named.
    """
    order = np.lexsort((row, ahead, code))
    code, ahead, row = code[order], ahead[order], row[order]
    twice = np.flatnonzero((code[1:] == code[:-1]) & (ahead[1:] == ahead[:-1]))
    if len(twice):
        at = int(twice[0])
        raise DataError(
            f"rows {row[at] + 1} and {row[at + 1] + 1} of the future are both {ahead[at]} steps ahead of the newest "
            f"row of series {names.all[code[at]]!r}",
            hint="--future must hold one row for each step",
        )


def _spoken(interval: int) -> str:
    """An interval in seconds, where it is one of a clock."""
    return f"{interval / 1e9:g} s"


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
