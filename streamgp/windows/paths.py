"""Windows that continue after the newest row, many times over: the state of a free simulation.

A path continues a series on values that were made up: each of its rows holds simulated targets and given inputs, and
is one step after the row before. P paths of S series are P · S series that share their past, path by path: path
p of the s-th series has code p · S + s.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamgp.errors import UsageError
from streamgp.windows import calendar
from streamgp.windows._future import GIVE, GIVE_FRAME, values_ahead
from streamgp.windows._spec import Asks
from streamgp.windows.asking import Current
from streamgp.windows.calendar import Bools, Floats, Ints
from streamgp.windows.last_known import Recent
from streamgp.windows.timeline import Ring
from streamgp.windows.windows import Windows


class KnownPath(NamedTuple):
    """Inputs at the K steps after the newest row of each series.

    Attributes:
        values: (S, K, C − O) in the order of `spec.columns`; NaN where there is none.
        named: (S,) the series that have any.
        ds: (S, K) the times of the steps, ns (or steps).
    """

    values: Floats
    named: Bools
    ds: Ints


class PathWindows(Windows):
    """The windows of some series, each continued P times. What they were made of stays as it is.

    Args:
        seen: the windows of the rows that were read.
        series: (S,) codes of the series to continue.
        paths: P.

    Example:
        >>> from streamgp.windows.windows import WindowSpec
        >>> seen = Windows(WindowSpec(targets=("y",), lags=2, horizon=1))
        >>> _ = seen.push(pa.record_batch({"y": [1.0, 2.0]}))
        >>> paths = PathWindows(seen, np.array([0]), paths=2)
        >>> none = np.zeros((2, 0))
        >>> asks = paths.ask(none)
        >>> paths.go_on(asks, np.array([[3.0], [4.0]]), none)
        >>> paths.ask(none).x.past[:, :, 0].tolist(), seen.ask_last().x.past[:, :, 0].tolist()
        ([[2.0, 3.0], [2.0, 4.0]], [[1.0, 2.0]])
    """

    def __init__(self, seen: Windows, series: Ints, paths: int) -> None:
        super().__init__(seen.spec)
        codes = np.tile(series, paths)
        self._names.restore([f"{seen.names[code]}#{at // len(series)}" for at, code in enumerate(codes)])
        self._last, self._valued = seen._last[:, codes], seen._valued[codes]
        self._ring = Ring(seen._ring.capacity, seen._ring.channels)
        self._ring.step, self._ring.ds = seen._ring.step[codes], seen._ring.ds[codes]
        self._ring.values = seen._ring.values[codes]
        self._ring.series = len(codes)
        own, before = self._asking, seen._asking
        own.at_phase, own.latest = before.at_phase.of(codes), before.latest.of(codes)
        self._code = np.arange(len(codes))
        self._nowhere = np.full(len(codes), -1, np.int64)  # no path is on the line of a micro-batch

    def ask(self, inputs: Floats) -> Asks:
        """A question at the newest row of every path whose window is whole; one step ahead is asked about.

        Args:
            inputs: (P · S, C − O) at the row that is asked about; only the known ones are looked at.
        """
        step, ds, _ = self._last
        rows = Current(self._code, step, ds, *(self._nowhere,) * 3)
        known = inputs[:, None, inputs.shape[1] - len(self.spec.known) :] if self.spec.known else None
        return self._asking.ask(rows, self._past(), known)

    def go_on(self, asks: Asks, y: Floats, inputs: Floats) -> None:
        """Put the next row of every path in.

        Args:
            asks: what `ask` gave back: a question for every path.
            y: (P · S, O) simulated targets of that row.
            inputs: (P · S, C − O) its inputs.
        """
        ds = asks.ds[:, 0].numpy()
        self._last[0] += 1
        self._last[1] = ds
        self._ring.write(self._code, self._last[0], ds, np.concatenate([y, inputs], 1))
        self._take(Recent(self._code, self._last[0], y))


def rows_ahead(seen: Windows, rows: pa.RecordBatch, steps: int) -> Floats:
    """(S, K, C) the next K steps of each series after the newest row in `seen`, columns as in `spec.columns`; NaN where
    a row is missing. Steps are counted as `Windows.push` counts them; `seen` stays as it is.

    Raises:
        SchemaError, DataError: as `Windows.push`.
    """
    after = copy.deepcopy(seen)
    read = after._read(rows)
    after._reserve()
    keep, step = after._steps(read)
    code, ahead = read.code[keep], step - seen._last[0][read.code[keep]]
    near = ahead <= steps
    out = np.full((len(seen.names), steps, len(seen.spec.columns)), np.nan)
    out[code[near], ahead[near] - 1] = read.values[keep][near]
    return out


def inputs_ahead(
    seen: Windows, future: pa.Table | None, steps: int, columns: tuple[str, ...] | None = None
) -> KnownPath:
    """Inputs at the K steps after the newest row of each series.

    Args:
        seen: the windows of the rows that were read.
        future: series, time and input columns; may be None where there are no inputs.
        steps: K.
        columns: the inputs; every one, known or not, when left out.

    Raises:
        UsageError: there are inputs, and no future of them.
        SchemaError: a column is missing.
        DataError: a series is unknown, or two rows of it belong to one step.
    """
    spec, newest = seen.spec, seen.newest()
    columns = spec.columns[len(spec.targets) :] if columns is None else columns
    behind = np.arange(1, steps + 1)
    zone = spec.zone if spec.time is not None else None
    ds = calendar.ahead(newest.ds, behind, newest.every, zone)
    if not columns:
        return KnownPath(np.zeros((len(ds), steps, 0)), np.ones(len(ds), bool), ds)
    if future is None:
        raise UsageError(f"the future of {', '.join(columns)} is needed", hint=GIVE, python=GIVE_FRAME)
    return KnownPath(*values_ahead(spec, future, seen._names, newest, columns, steps), ds)
