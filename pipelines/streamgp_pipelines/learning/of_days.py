"""Inputs that have one value in each day: perhaps its mean or total, which is not known yet in its first rows."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.windows import calendar
from streamgp.windows.rows import times
from streamgp.windows.windows import WindowSpec

DAYS, ROWS = 20, 4
"""Days, and rows of a day, that must have come."""


class OfDays:
    """Follows the inputs in the first rows of a table, of one series where it has several.

    Args:
        spec: with the inputs, the clock and its zone.

    Example:
        >>> hours = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 2, 1), "1h", eager=True)
        >>> clock = pl.col("t").dt
        >>> rows = hours.to_frame("t").with_columns(total=1.5 * clock.ordinal_day(), hour=clock.hour())
        >>> found = OfDays(WindowSpec(("y",), inputs=("total", "hour"), time="t"))
        >>> found.add(rows.to_arrow().to_batches()[0])
        >>> found.names()
        ['total']
    """

    def __init__(self, spec: WindowSpec) -> None:
        self._spec = spec
        self._of: dict[str, dict[int, float]] = {name: {} for name in spec.inputs if spec.time and spec.lags}
        self._series: object = None
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """The next rows of the table."""
        spec = self._spec
        if spec.time is None or not self._of or not pa.types.is_timestamp(rows.schema.field(spec.time).type):
            return
        if spec.series is not None:
            names = rows.column(spec.series)
            self._series = names[0].as_py() if self._series is None else self._series
            rows = rows.filter(pc.equal(names, pa.scalar(self._series, names.type)))
        self._rows += rows.num_rows
        ds = times(rows, spec.time)
        day = (ds + calendar.offset(ds, spec.zone)) // calendar.DAY
        days = pl.DataFrame(pl.from_arrow(rows.select([*self._of]))).group_by(pl.Series("day", day))
        for name, seen in list(self._of.items()):
            values = pl.col(name).drop_nulls().cast(pl.Float64)
            each = days.agg(values.n_unique().alias("count"), values.first().alias("value"))
            if any(count > 1 or (count and seen.setdefault(at, value) != value) for at, count, value in each.rows()):
                del self._of[name]

    def names(self) -> list[str]:
        """The inputs that have one value in each day, and others in half of the days at least."""
        return [
            name
            for name, seen in self._of.items()
            if len(seen) >= DAYS and self._rows >= ROWS * len(seen) and 2 * len(set(seen.values())) >= len(seen)
        ]
