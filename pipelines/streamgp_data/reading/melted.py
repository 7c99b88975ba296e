"""A wide table as a long one: a column a series becomes a column of names and a column of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.errors import SchemaError, UsageError
from streamgp_data.reading.cells import FAULT, LINE, TEXT, fault, said, unit_in, with_bookkeeping
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.matching import matching
from streamgp_data.reading.units import power, times_power
from streamgp_data.reading.wrapped import ManyRows

VALUE = "y"
"""The column of values."""


class Melted(ManyRows):
    """A FileSource over a wide one. A row becomes one row for each melted column, in their order, beside the same
    values of the other columns. A row with a cell that cannot be read stays one row, for the quarantine.

    Args:
        inner: the wide source.
        patterns: of the columns to melt, such as "zone_*".
        series: name of the column of names.
        time: name of a column that patterns leave out.

    Raises:
        UsageError: a pattern fits no column, or the file has a column of that name.
        SchemaError: a column does not hold numbers.
    """

    def __init__(self, inner: FileSource, patterns: Sequence[str], series: str, time: str | None = None) -> None:
        self.inner, self.uri, self.series = inner, inner.uri, series
        for pattern in patterns:
            if not matching(pattern, inner.names):
                hint = f"it has: {', '.join(inner.names)}"
                raise UsageError(f"--melt {pattern!r}: {inner.uri} has no such column", hint=hint)
        matched = {name for pattern in patterns for name in matching(pattern, inner.names)}
        self._wide = [name for name in inner.names if name in matched and name != time]
        if not self._wide:
            raise UsageError(f"--melt: {inner.uri} has no column beside {time!r}", hint="melt columns of numbers")
        self._kept = [name for name in inner.names if name not in self._wide]
        for name in self._wide:
            kind = inner.schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
                raise SchemaError(f"--melt: column {name!r} of {inner.uri} is {kind}", hint="melt numbers alone")
        for name in (series, VALUE):
            if name in self._kept:
                raise UsageError(
                    f"--melt makes a column {name!r}, and {inner.uri} has one",
                    hint="rename it in the source, or name another --series" if name == series else "rename it",
                )
        self.names = [*self._kept, series, VALUE]
        rows = inner.sample
        first = pa.repeat(self._wide[0], rows.num_rows)
        self.sample = rows.select(self._kept).append_column(series, first)
        self.sample = self.sample.append_column(VALUE, rows.column(self._wide[0]))
        self._value: pa.DataType = pa.float64()
        if all(pa.types.is_integer(inner.schema.field(name).type) for name in self._wide) and not all(
            _exact(rows.column(name).combine_chunks()).all() for name in self._wide
        ):
            self._value = pa.int64()
        self._typed({name: inner.schema.field(name).type for name in self._kept})
        self.units = {name: unit for name, unit in inner.units.items() if name in self._kept}
        self.doubts = {VALUE if name in self._wide else name: why for name, why in inner.doubts.items()}
        self._powers = np.zeros(len(self._wide), np.int64)
        self._one_unit()

    def _one_unit(self) -> None:
        """See that the values have one unit; columns that name theirs, as "a [kW]" does, are series that name it.

        Raises:
            SchemaError: they have units that cannot be converted.
        """
        units = [self.inner.units.get(name) for name in self._wide]
        first = units[0]
        if len(set(units)) > 1 and all(unit == unit_in(name) for name, unit in zip(self._wide, units, strict=True)):
            return
        for at, (name, unit) in enumerate(zip(self._wide, units, strict=True)):
            between = 0 if unit == first else None if first is None or unit is None else power(unit, first)
            if between is None:
                raise SchemaError(
                    f"--melt: column {name!r} of {self.uri} has {unit or 'no unit'}, and {self._wide[0]!r} "
                    f"{first or 'none'}",
                    hint="melt columns of one unit, or ingest the file without --melt",
                )
            self._powers[at] = between
        if first is not None:
            self.units[VALUE] = first

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; every melted column as that of the values."""
        value, kinds = schema.field(VALUE).type, {name: schema.field(name).type for name in self._kept}
        own = [pa.field(name, kinds.get(name, value)) for name in self.inner.names]
        self.inner.expect(pa.schema(own))
        self._value = value
        self._typed(kinds)

    def _typed(self, kinds: dict[str, pa.DataType]) -> None:
        self.schema = with_bookkeeping({**kinds, self.series: pa.string(), VALUE: self._value})

    def _batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        rows = self._faulty(rows)
        bad = rows.column(FAULT).is_valid().to_numpy(zero_copy_only=False)
        width = len(self._wide)
        times = np.where(bad, 1, width)
        source = np.repeat(np.arange(rows.num_rows), times)
        which = np.arange(len(source)) - np.repeat(np.cumsum(times) - times, times)  # place among the melted columns
        order = pa.array(which * rows.num_rows + source, pa.int64())
        wide = [
            _values(rows.column(name), self._value, at)
            for name, at in zip(self._wide, self._powers.tolist(), strict=True)
        ]
        values = pa.concat_arrays(wide).take(order)
        found: dict[str, Any] = {name: rows.column(name).take(pa.array(source, pa.int64())) for name in self._kept}
        found[self.series] = pa.array(self._wide, pa.string()).take(pa.array(which, pa.int64()))
        found[VALUE] = values
        found |= {name: rows.column(name).take(pa.array(source, pa.int64())) for name in (LINE, FAULT, TEXT)}
        return pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], names=self.schema.names)

    def _faulty(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, with a fault where a whole number has more digits than a float64."""
        if not pa.types.is_floating(self._value):
            return rows
        at, faults = rows.schema.get_field_index(FAULT), None
        for name in self._wide:
            column = rows.column(name)
            for row in np.flatnonzero(~_exact(column)).tolist():
                faults = rows.column(FAULT).to_pylist() if faults is None else faults
                faults[row] = faults[row] or fault("unparsable", name, f"{said(column[row])} is no {self._value}")
        return rows if faults is None else rows.set_column(at, rows.schema.field(at), pa.array(faults, pa.string()))


def _exact(column: pa.Array[Any]) -> NDArray[np.bool_]:
    """(N,) whether a number is one of float64, or missing."""
    if not pa.types.is_integer(column.type):
        return np.ones(len(column), bool)
    near = column.cast(pa.float64(), safe=False)
    same = pc.equal(near.cast(pa.int64(), safe=False), column.cast(pa.int64(), safe=False)).fill_null(True)
    return np.asarray(same.to_numpy(zero_copy_only=False), bool)


def _values(column: pa.Array[Any], kind: pa.DataType, between: int) -> pa.Array[Any]:
    """Numbers times a power of ten as this type; NaN is a missing one."""
    found = column.cast(kind, safe=False)
    if between:
        found = pa.array(times_power(column.cast(pa.float64()).to_numpy(zero_copy_only=False), between), kind)
    return pc.if_else(pc.is_nan(found), pa.scalar(None, kind), found) if pa.types.is_floating(kind) else found
