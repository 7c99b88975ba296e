"""Rolling-origin evaluation: a stream cut at several places, the same stretch after each as what is to be forecast.

The stream is gone through once: the rows up to the first cutoff, the next steps as truths, then the rows up to the
second cutoff, and so on. A model that learns online has then seen, at each cutoff, the rows up to it and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from streamgp.errors import DataError, UsageError
from streamgp.windows.calendar import Bools, Floats, Ints
from streamgp.windows.paths import rows_ahead
from streamgp.windows.rows import numbers
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_data.batches import together
from streamgp_data.meaning import TableMeta
from streamgp_data.moments import Moments
from streamgp_data.reading.cells import nothing

Texts: TypeAlias = NDArray[np.object_]


@dataclass(frozen=True)
class RollingPlan:
    """Where a stream is cut.

    Attributes:
        h: steps that are forecast at each cutoff.
        n_windows: cutoffs; the last one is h steps before the newest row.
        step_size: steps from one cutoff to the next.

    Raises:
        UsageError: one is no whole number, or less than 1.
    """

    h: int
    n_windows: int
    step_size: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int | np.integer) or value < 1:
                raise UsageError(f"{name}={value!r} is not a whole number of 1 or more", hint=f"such as {name}=1")

    def ends(self, steps: Ints) -> list[tuple[int, int]]:
        """Rows up to each cutoff, and up to h steps after it.

        Args:
            steps: (N,) of each row after the newest one, 0 or less, ascending.

        Raises:
            DataError: no row stands before the first cutoff.

        Example:
            >>> RollingPlan(h=2, n_windows=2, step_size=3).ends(np.arange(-9, 1))
            [(5, 7), (8, 10)]
        """
        cutoffs = -(self.h + self.step_size * np.arange(self.n_windows - 1, -1, -1))
        found = np.searchsorted(steps, np.stack([cutoffs, cutoffs + self.h]), side="right")
        if not found[0, 0]:
            count = 1 - int(steps.min(initial=0))
            raise DataError(
                f"the data frame has {count} steps, and the first cutoff is {-int(cutoffs[0])} steps before the newest "
                "row: there is nothing to learn",
                hint="give more rows, or a smaller n_windows, step_size or h",
            )
        return [(int(end), int(last)) for end, last in found.T]


def steps_of(place: Ints, meta: TableMeta) -> Ints:
    """(N,) steps of rows after the newest one, 0 or less: of the interval, or of the times that occur.

    Example:
        >>> place = np.array([0, 10, 21, 40])
        >>> steps_of(place, TableMeta("t", every_ns=10)).tolist(), steps_of(place, TableMeta("t")).tolist()
        ([-4, -3, -2, 0], [-3, -2, -1, 0])
    """
    if not len(place):
        return place
    behind: Ints = place - place.max()
    if meta.time is None:
        return behind
    if meta.every_ns is not None:
        return np.asarray((behind + meta.every_ns // 2) // meta.every_ns, np.int64)
    different, rank = np.unique(place, return_inverse=True)
    return rank.astype(np.int64) - (len(different) - 1)


class RollingFold(NamedTuple):
    """One cutoff.

    Attributes:
        fresh: the rows from the cutoff before to this one, as the user gave them.
        given: those of the h steps after it, or all of them: where rows are counted, the next of a series may be far.
        read: the same, as they are read.
        place: (N,) where these stand, and `newest`: the last row before them.
    """

    fresh: pa.Table
    given: pa.Table
    read: pa.RecordBatch
    place: Ints
    newest: int

    def known(self, windows: Windows, h: int) -> pa.Table:
        """The rows ahead of series that were learned and whose known inputs have all values: what a user would know."""
        spec = windows.spec
        if not spec.lags:
            return self.given.filter(pa.array(self._asked(windows, h)))
        inputs = self._ahead(windows, spec.horizon)[..., len(spec.columns) - len(spec.known) :]
        whole = [name for name, values in zip(windows.names, inputs, strict=True) if not np.isnan(values).any()]
        return self.given.filter(pa.array(np.isin(_series(self.read, windows), whole)))

    def scored(self, forecast: pl.DataFrame, windows: Windows, moments: Moments, h: int) -> pl.DataFrame:
        """A forecast of this cutoff beside its truths; steps without one are left out.

        Returns:
            unique_id, ds, cutoff, step, [target,] y and the forecast columns.
        """
        spec = windows.spec
        keys = ["unique_id", *(["target"] if len(spec.targets) > 1 else [])]
        found = forecast.with_columns(step=pl.int_range(1, pl.len() + 1).over(keys))
        truth = self._truths(windows, h)
        if not spec.lags:  # each row is asked about by itself: its own number, and the cutoff before all of them
            newest = moments.write(np.array([self.newest]))
            found = found.drop("cutoff", *(["ds"] if spec.time is None else [])).with_columns(cutoff=newest[0])
            truth = truth if spec.time is None else truth.drop("ds")
        whole = found.join(truth, on=[*keys, "step"], maintain_order="left").filter(pl.col("y").is_not_nan())
        first = ["unique_id", "ds", "cutoff", "step", *keys[1:], "y"]
        return whole.select(*first, pl.exclude(first))

    def _truths(self, windows: Windows, h: int) -> pl.DataFrame:
        """unique_id, step, [target,] y of the h steps after the newest row of each series; without lags, of the rows
        that `known` has, with their ds."""
        spec, names, outputs = windows.spec, windows.names, len(windows.spec.targets)
        if spec.lags:
            values = self._ahead(windows, h)[..., :outputs].reshape(-1, outputs)
            steps = np.tile(np.arange(1, h + 1), len(names))
            return _long({"unique_id": np.repeat(names, h), "step": steps}, values, spec)
        values, series, kept = numbers(self.read, spec.targets), _series(self.read, windows), self._asked(windows, h)
        long = _long({"unique_id": series[kept], "ds": self.place[kept]}, values[kept], spec)
        keys = [name for name in ("unique_id", "target") if name in long.columns]
        return long.with_columns(step=pl.int_range(1, pl.len() + 1).over(keys))

    def _asked(self, windows: Windows, h: int) -> Bools:
        """(N,) without lags, which rows are asked about: the next h of each series that was learned, if inputs are
        known."""
        spec, series = windows.spec, _series(self.read, windows)
        inputs = numbers(self.read, spec.columns[len(spec.targets) :])
        number = pl.DataFrame({"series": pl.Series(series.tolist())}).select(pl.int_range(pl.len()).over("series"))
        return np.isin(series, windows.names) & ~np.isnan(inputs).any(1) & (number.to_series().to_numpy() < h)

    def _ahead(self, windows: Windows, steps: int) -> Floats:
        """(S, K, C) the next K steps of each series that was learned, NaN where there is none."""
        seen = np.isin(_series(self.read, windows), windows.names)
        return rows_ahead(windows, self.read.filter(pa.array(seen)), steps)


def folds(given: pa.Table, read: pa.Table, place: Ints, meta: TableMeta, plan: RollingPlan) -> Iterator[RollingFold]:
    """The cutoffs of a stream, first to last.

    Args:
        given, read: its N rows, as the user gave them and as they are read.
        place: (N,) where each stands, of `ordering.places`.
        meta: what the columns mean.
        plan: where it is cut.

    Raises:
        DataError: as `RollingPlan.ends`.
    """
    order = np.argsort(place, kind="stable")
    given, read, place = given.take(order), read.take(order), place[order]
    start, counted = 0, meta.time is not None and meta.every_ns is None and meta.series is not None
    for end, last in plan.ends(steps_of(place, meta)):
        stop = len(place) if counted else last
        fresh, ahead = given.slice(start, end - start), given.slice(end, stop - end)
        yield RollingFold(fresh, ahead, _batch(read.slice(end, stop - end)), place[end:stop], int(place[end - 1]))
        start = end


def _series(rows: pa.RecordBatch, windows: Windows) -> Texts:
    """(N,) the series of each row."""
    if windows.spec.series is None:
        return np.full(rows.num_rows, windows.names[0], object)
    column = rows.column(windows.spec.series)
    column = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode(null_encoding="encode")
    names = np.array([str(name) for name in column.dictionary.to_pylist()], object)
    found: Texts = names[column.indices.to_numpy(zero_copy_only=False)]
    return found


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return together(rows.to_batches() or [nothing(rows.schema)])


def _long(base: dict[str, object], values: Floats, spec: WindowSpec) -> pl.DataFrame:
    """One row a value (N, O), with its target where there are several; a sentinel is no value."""
    values = np.where(np.isin(values, spec.sentinels), np.nan, values)
    parts = [pl.DataFrame(base | {"target": name, "y": values[:, o]}) for o, name in enumerate(spec.targets)]
    whole = pl.concat(parts).with_columns(pl.col("unique_id").cast(pl.String))
    return whole.drop("target") if len(spec.targets) == 1 else whole
