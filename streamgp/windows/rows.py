"""From an Arrow batch to arrays: series codes, times and values, with the columns checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.errors import DataError, SchemaError
from streamgp.windows.calendar import Bools, Floats, Ints

_NUMBERS = (
    pa.types.is_floating,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_null,  # a column without any value
)


class BatchRows(NamedTuple):
    """B rows. code: (B,) series; ds: (B,) ns or the clock's own integers; values: (B, C), NaN is missing; truths:
    (B, C) the same with spikes, None where there are none."""

    code: Ints
    ds: Ints
    values: Floats
    truths: Floats | None = None

    def rows(self, which: slice | Ints | Bools) -> BatchRows:
        """Some of them."""
        truths = None if self.truths is None else self.truths[which]
        return BatchRows(self.code[which], self.ds[which], self.values[which], truths)


class Names:
    """Series names <-> codes, in order of first appearance.

    Example:
        >>> names = Names()
        >>> names.codes(pa.array(["b", "a", "b"])).tolist(), names.all
        ([0, 1, 0], ['b', 'a'])
    """

    NOT_STATE: ClassVar[Mapping[str, str]] = dict.fromkeys(("_met", "_codes"), "found again in the next rows")

    def __init__(self) -> None:
        self.all: list[str] = []
        self._code: dict[str, int] = {}
        self._met: pa.Array[Any] | None = None  # values of which the code is known
        self._codes = np.zeros(0, np.int64)  # of these

    def codes(self, column: pa.Array[Any], grow: bool = True) -> Ints:
        """(B,) codes; new names are appended when `grow`, else -1. Python runs once a name, not a row."""
        plain = column.cast(column.type.value_type) if isinstance(column.type, pa.DictionaryType) else column
        if self._met is None or self._met.type != plain.type:
            self._met, self._codes = plain.slice(0, 0), np.zeros(0, np.int64)
        place = self._places(plain)
        new = plain.filter(pa.array(place < 0)).unique()  # in order of first appearance
        if len(new):
            codes = np.array([self._add(str(name), grow) for name in new.to_pylist()], np.int64)
            known = codes >= 0
            self._met = pa.concat_arrays([self._met, new.filter(pa.array(known))])
            self._codes = np.append(self._codes, codes[known])
            place = self._places(plain)
        return np.where(place < 0, -1, np.append(self._codes, -1)[place])

    def _places(self, plain: pa.Array[Any]) -> Ints:
        """(B,) of values among those met; -1 of others."""
        assert self._met is not None
        found = pc.index_in(plain, value_set=self._met)
        return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)

    def _add(self, name: str, grow: bool) -> int:
        code = self._code.get(name, -1)
        if code < 0 and grow:
            code = self._code[name] = len(self.all)
            self.all.append(name)
        return code

    def read(self, rows: pa.RecordBatch, name: str, grow: bool = True) -> Ints:
        """Codes of the series column `name`.

        Raises:
            SchemaError: there is no such column.
            DataError: a row has no series.
        """
        array = column(rows, name)
        if array.null_count:
            raise DataError(f"{array.null_count} rows have no value in the series column {name!r}", hint="ingest again")
        return self.codes(array, grow)

    def restore(self, names: list[str]) -> None:
        self.all = list(names)
        self._code = {name: code for code, name in enumerate(names)}
        self._met = None


YEARS = 1678, 2261
"""The first and the last year in which windows count nanoseconds; ingest puts rows of others aside."""

LARGEST = 1e150
"""Values beyond it are no measurements: sums of their squares overflow float64."""


def column(rows: pa.RecordBatch, name: str) -> pa.Array[Any]:
    """A column by name.

    Raises:
        SchemaError: there is none.
    """
    at = rows.schema.get_field_index(name)
    if at < 0:
        raise SchemaError(f"there is no column {name!r}", hint=f"the columns are {', '.join(rows.schema.names)}")
    return rows.column(at)


def times(rows: pa.RecordBatch, name: str) -> Ints:
    """The time column as int64: nanoseconds since the epoch, or an integer clock as it is.

    Raises:
        SchemaError: the column is neither a time nor an integer.
        DataError: a row has no time, or one that nanoseconds since 1970 cannot hold.
    """
    array = column(rows, name)
    if array.null_count:
        raise DataError(f"{array.null_count} rows have no value in the time column {name!r}", hint="ingest it again")
    kind = array.type
    try:
        if pa.types.is_timestamp(kind):
            array = array.cast(pa.timestamp("ns", kind.tz)).cast(pa.int64())
        elif pa.types.is_date(kind):
            array = array.cast(pa.timestamp("ns")).cast(pa.int64())
        elif pa.types.is_integer(kind):
            array = array.cast(pa.int64())
        else:
            raise SchemaError(f"column {name!r} holds {kind}, not times", hint="name the time column with --time")
    except pa.ArrowInvalid:
        instants = array if pa.types.is_timestamp(kind) else array.cast(pa.timestamp("s"))
        years = instants.to_numpy(False).astype("datetime64[Y]").astype(np.int64) + 1970
        found = years[(years < YEARS[0]) | (years > YEARS[1])]
        raise DataError(
            f"column {name!r}: a time of the year {found[0]}: they are of the years {YEARS[0]} to {YEARS[1]}",
            hint="correct it; if it is in a table, ingest the sources into a new one, which puts such rows aside",
        ) from None
    return np.asarray(array.to_numpy(zero_copy_only=False), np.int64)


def numbers(rows: pa.RecordBatch, names: tuple[str, ...]) -> Floats:
    """The columns as (B, C) float64; null, NaN, infinity and what is beyond `LARGEST` are NaN.

    Raises:
        SchemaError: a column is missing or does not hold numbers.
    """
    out = np.empty((rows.num_rows, len(names)))
    for at, name in enumerate(names):
        array = column(rows, name)
        kind = array.type
        if not any(fits(kind) for fits in _NUMBERS):
            raise SchemaError(f"column {name!r} holds {kind}, not numbers", hint="name numeric columns only")
        out[:, at] = pc.cast(array, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    out[~(np.abs(out) <= LARGEST)] = np.nan
    return out


def increasing(code: Ints, clock: Ints, last: Ints) -> Bools:
    """Whether a row's clock is beyond every earlier one of its series; rows sorted by series, (B,).

    A series' rows are kept apart by an offset. Where it would overflow, clocks are replaced by their ranks.
    """
    if not len(code):
        return np.zeros(0, bool)
    lowest = int(min(clock.min(), last.min()))
    span = int(max(clock.max(), last.max())) - lowest + 2
    if span < 2**62 // (len(code) + 1):
        rank = np.concatenate([clock, last]) - lowest
    else:
        span = 2 * len(code) + 1
        rank = np.unique(np.concatenate([clock, last]), return_inverse=True)[1].astype(np.int64)
    offset = np.searchsorted(code, code) * span
    here, before = rank[: len(code)] + offset, rank[len(code) :] + offset
    highest = np.maximum.accumulate(np.maximum(here, before))
    before[1:] = np.maximum(before[1:], np.where(code[1:] == code[:-1], highest[:-1], 0))
    return np.asarray(here > before)
