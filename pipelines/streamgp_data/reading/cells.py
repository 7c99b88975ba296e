"""Text cells to typed columns, and the faults of the cells that cannot be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from streamgp.errors import DataError, SchemaError
from streamgp_data.reading.convention import grouping, in_ascii
from streamgp_data.reading.units import base_of, is_unit, times_power

LINE, FAULT, TEXT = "_line", "_fault", "_text"
"""Bookkeeping columns of every file source: the first line (or row) of the record, from 1; what is wrong with
it, as "reason|column|detail", or null; the record as it was, where something is wrong."""

HEADER = "header"
"""The reason of a line between rows that names columns."""

NULLS = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
"""What stands for a missing value in a column that is not text."""

_WHOLE: dict[pa.DataType, pl.DataType] = {
    pa.int8(): pl.Int8(),
    pa.int16(): pl.Int16(),
    pa.int32(): pl.Int32(),
    pa.int64(): pl.Int64(),
}
_REAL: dict[pa.DataType, pl.DataType] = {pa.float32(): pl.Float32(), pa.float64(): pl.Float64()}


def with_bookkeeping(kinds: Mapping[str, pa.DataType]) -> pa.Schema:
    """The columns that a file source gives out."""
    extra: dict[str, pa.DataType] = {LINE: pa.int64(), FAULT: pa.string(), TEXT: pa.string()}
    return pa.schema([pa.field(name, kind) for name, kind in {**kinds, **extra}.items()])


def unit_in(name: str) -> str | None:
    """The unit that a column's name ends with, in brackets; in parentheses one that is known.

    Example:
        >>> unit_in("Load (net) [MWh]"), unit_in("Power (kW)"), unit_in("load_mwh")
        ('MWh', 'kW', None)
        >>> unit_in("Load (net)"), unit_in("Car(s)")
        (None, None)
    """
    if found := re.search(r"\[([^\[\]]+)\]\s*$", name):
        return found[1].strip()
    found = _PARENTHESIS.search(name)
    return found[1].strip() if found and not _PLURAL.search(name) and is_unit(found[1].strip()) else None


_PARENTHESIS, _PLURAL = re.compile(r"\s*\(([^()]+)\)\s*$"), re.compile(r"\w\(s\)\s*$")


def bare_name(name: str) -> str:
    """A column's name without the unit that it ends with.

    Example:
        >>> bare_name("flow [m3/h]"), bare_name("flow"), bare_name("Angle (deg)")
        ('flow', 'flow', 'Angle')
    """
    return name if unit_in(name) is None else re.sub(r"\s*[\[(][^\[\]()]+[\])]\s*$", "", name)


def units_in(names: Sequence[str]) -> dict[str, str]:
    """Column -> the unit that its name ends with, of the columns that have one. What is in parentheses is none where
    columns that are called alike have there something else than that unit, with or without an SI prefix.

    Example:
        >>> units_in(["Phase (A)", "Phase (B)", "Power (kW)", "Power (W)", "Power"])
        {'Power (kW)': 'kW', 'Power (W)': 'W'}
    """
    alike: dict[str, set[str | None]] = {}
    for name in names:
        if found := _PARENTHESIS.search(name):
            unit = unit_in(name)
            alike.setdefault(name[: found.start()], set()).add(None if unit is None else base_of(unit))
    units = {name: unit for name in names if (unit := unit_in(name)) is not None}
    return {name: unit for name, unit in units.items() if len(alike.get(_PARENTHESIS.sub("", name), ())) < 2}


def polars_type(kind: pa.DataType) -> pl.DataType:
    """The type that a CSV parser may read directly; text for whatever needs a second look."""
    return pl.Float64() if kind == pa.float64() else _WHOLE.get(kind) or pl.String()


def convert(
    cells: pl.Series,
    kind: pa.DataType,
    decimal: str,
    nulls: Sequence[str],
    thousands: str | None = None,
    powers: NDArray[np.int64] | None = None,
) -> tuple[pl.Series, pl.Series]:
    """Cells as `kind`, and where a cell that says something could not be read (N,) bool.

    Digits that are too many for the type could not be read; "inf" is a missing value. Where a missing value is written
    as a number, it is that number however it is written: -999 is -999.00 too.

    Args:
        cells: (N,) text.
        kind: the type.
        decimal: "." or ",".
        nulls: what stands for a missing value.
        thousands: the sign between groups of three digits.
        powers: (N,) of ten, by which each number is multiplied.

    Raises:
        SchemaError: text cannot be read as this type at all.
    """
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return cells, pl.Series(np.zeros(len(cells), bool))
    bare = in_ascii(cells.str.strip_chars())
    bare = bare.set(bare.is_in(list(nulls)), None)
    if kind in _REAL or kind in _WHOLE:
        if thousands is not None:
            bare = bare.str.replace_all("\u2019", "'", literal=True) if thousands == "'" else bare
            grouped = bare.str.contains(grouping(thousands, decimal)).fill_null(False)
            bare = bare.zip_with(~grouped, bare.str.replace_all(thousands, "", literal=True))
        number = _reals_of(bare, decimal)
        if named := _null_numbers(tuple(nulls), decimal):
            same = number.is_in(named)
            if kind in _WHOLE:  # beyond, neighbours are one float64
                same &= number.abs() < 2.0**53
            bare = bare.set(same.fill_null(False), None)
            number = number.set(bare.is_null(), None)
        number = finite(number, missing := infinite(number))
        if missing.any():
            missing &= bare.str.contains(r"\d").fill_null(False).not_()
        said = bare.is_not_null()
        if powers is not None and powers.any():
            number = pl.Series(number.name, times_power(number.to_numpy(), powers), nan_to_null=True)
            bare = bare.set(pl.Series(powers != 0), None)  # whose digits are not those of the number any more
        found = _reals(bare, number, kind) if kind in _REAL else _integers(bare, number, _WHOLE[kind])
        return found, said & found.is_null() & missing.not_()
    if pa.types.is_boolean(kind):
        lower = bare.str.to_lowercase()
        found = lower.replace_strict(
            {"true": True, "false": False, "1": True, "0": False}, default=None, return_dtype=pl.Boolean
        )
        return found, bare.is_not_null() & found.is_null()
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        found = bare.str.to_datetime(time_unit="us", time_zone=getattr(kind, "tz", None), strict=False)
        wanted = pl.Date() if pa.types.is_date(kind) else found.dtype
        return found.cast(wanted), bare.is_not_null() & found.is_null()
    raise SchemaError(f"text cannot be read as {kind}", hint="ingest it into another table")


def infinite(numbers: pl.Series) -> pl.Series:
    """(N,) where a number is NaN or infinite."""
    known = numbers.is_finite()
    if known.all():
        return pl.Series(numbers.name, np.zeros(len(numbers), bool))
    return known.not_().fill_null(False)


def name_numbers(nulls: Sequence[str]) -> bool:
    """Whether what stands for a missing value may be a number, which a parser of numbers would take for a value.

    Example:
        >>> name_numbers(["ERR", "nan"]), name_numbers(["-999"])
        (False, True)
    """
    return any(re.fullmatch(r"\s*[+-]?[\d.,]*\d[\d.,]*(?:[eE][+-]?\d+)?\s*", null) for null in nulls)


def null_numbers(nulls: Sequence[str], decimal: str = ".") -> list[float]:
    """The numbers among what stands for a missing value.

    Example:
        >>> null_numbers(["ERR", "-999", "nan"]), null_numbers(["-99,9"], ",")
        ([-999.0], [-99.9])
    """
    return list(_null_numbers(tuple(nulls), decimal))


@lru_cache
def _null_numbers(nulls: tuple[str, ...], decimal: str) -> tuple[float, ...]:
    texts = pl.Series([null.strip() for null in nulls if name_numbers([null])], dtype=pl.String)
    return tuple(_reals_of(in_ascii(texts), decimal).drop_nulls())


def _reals_of(bare: pl.Series, decimal: str) -> pl.Series:
    """(N,) numbers of text. Two decimal marks, or a point where the mark is a comma, is no number: "1.234,5" is never
    guessed at."""
    if decimal == ",":
        bare = bare.str.replace_all(".", "?", literal=True).str.replace_all(",", ".", literal=True)
    return bare.cast(pl.Float64, strict=False)


def finite(numbers: pl.Series, missing: pl.Series) -> pl.Series:
    """NaN and infinities are missing values."""
    return numbers.set(missing, None) if missing.any() else numbers


def _reals(bare: pl.Series, number: pl.Series, kind: pa.DataType) -> pl.Series:
    """Numbers as this type; none where a whole number would become another one."""
    if lossy(number):
        digits = bare.cast(pl.Int64, strict=False)
        number = number.set((digits.is_not_null() & digits.ne_missing(number.cast(pl.Int64, strict=False))), None)
    found = number.cast(_REAL[kind])
    return found if kind == pa.float64() else found.set(pl.Series(changed(number.to_numpy(), found.to_numpy())), None)


def changed(numbers: NDArray[Any], narrow: NDArray[Any]) -> Any:
    """(N,) where a number became infinite, or a whole number another one, in a narrower type; rounding is neither.

    Example:
        >>> numbers = np.array([0.1, 1e300, 123456789.0, 16777216.0])
        >>> changed(numbers, np.array([0.1, np.inf, 123456792.0, 16777216.0], np.float32)).tolist()
        [False, True, True, False]
    """
    back = narrow.astype(np.float64)
    with np.errstate(invalid="ignore"):
        whole = np.floor(numbers) == numbers
        return (np.isinf(back) & np.isfinite(numbers)) | (whole & (back != numbers) & np.isfinite(numbers))


EXACT = 2.0**53
"""From here on a float64 has no longer every whole number."""


def lossy(numbers: pl.Series) -> bool:
    """Whether a number is infinite, or may be a whole number of 64 bits that has lost digits."""
    size = numbers.abs()
    if (size <= EXACT).all():
        return False
    return bool((((size > EXACT) & (size <= 2.0**63)) | numbers.is_infinite()).any())


def _integers(bare: pl.Series, number: pl.Series, kind: pl.DataType) -> pl.Series:
    """Digits as they are; "1.0" and "1e3" are whole numbers too, "1.5" is not."""
    digits = bare.cast(pl.Int64, strict=False)
    exact = number.set((number.floor() != number) | (number.abs() > EXACT), None).cast(pl.Int64, strict=False)
    return digits.fill_null(exact).cast(kind, strict=False)


def exact_kind(cells: Sequence[str]) -> pa.DataType | None:
    """The type that keeps every digit of whole numbers of which some are too long for a float64; None for others.

    Example:
        >>> exact_kind(["1", "9007199254740993"]), exact_kind(["1", "12345678901234567890"]), exact_kind(["1", "2"])
        (DataType(int64), DataType(string), None)
    """
    said = [cell for cell in (cell.strip() for cell in cells) if cell]
    if not any(len(cell) > 15 for cell in said) or not all(_WHOLE_NUMBER.fullmatch(cell) for cell in said):
        return None
    if max(map(len, said)) > _DIGITS:
        return None
    numbers = [int(cell) for cell in said]
    if all(int(float(number)) == number for number in numbers):
        return None
    return pa.int64() if all(-(2**63) <= number < 2**63 for number in numbers) else pa.string()


_WHOLE_NUMBER = re.compile(r"[+-]?\d+")
_DIGITS = 40  # what is longer is damage, and no name


def fault(reason: str, column: str, detail: str) -> str:
    """What the column FAULT says of a row: reason|column|detail."""
    return f"{reason}|{column.replace('|', '/')}|{detail}"


def cell_faults(faults: list[str | None], column: str, cells: pl.Series, bad: pl.Series, kind: pa.DataType) -> None:
    """Write the first fault of each row into `faults`, one entry a row."""
    for row in bad.arg_true().to_list():
        if faults[row] is None:
            faults[row] = fault("unparsable", column, f"{str(cells[row])[:80]!r} is not {_noun(kind)}")


def no_unit(column: str, unit: str) -> tuple[str, str, str]:
    """Reason, column and detail of a number that does not say its unit, where a table has one."""
    said = f"the table has {unit}: say which unit the numbers have, such as --unit {column}={unit}"
    return "no unit", column, said


def without_plain(faults: list[str | None], column: str, cells: pl.Series, unit: str) -> pl.Series:
    """(N,) cells without those that are a number alone, which `faults`, one entry a row, then says.

    Example:
        >>> faults = [None, None]
        >>> without_plain(faults, "v", pl.Series(["30 km/h", "30"]), "km/h").to_list(), faults[1][:7]
        (['30 km/h', None], 'no unit')
    """
    plain = in_ascii(cells.str.strip_chars()).cast(pl.Float64, strict=False).is_finite().fill_null(False)
    for row in plain.arg_true().to_list():
        if faults[row] is None:
            faults[row] = fault(*no_unit(column, unit))
    return cells.set(plain, None)


def _noun(kind: pa.DataType) -> str:
    if kind in _REAL:
        return "a number" if kind == pa.float64() else f"a number ({kind})"
    if kind in _WHOLE:
        return f"a whole number ({kind})"
    return "true or false" if pa.types.is_boolean(kind) else "a time" if pa.types.is_timestamp(kind) else f"a {kind}"


def said(value: Any) -> str:
    """A value of Arrow in words; of a time that no calendar has, its number, and of bytes that are no text, these.

    Example:
        >>> said(pa.scalar(1.5)), said(pa.scalar(2**62, pa.timestamp("s")))
        ('1.5', '4611686018427387904')
    """
    try:
        return str(value.as_py())
    except UnicodeDecodeError:
        return str(value.as_buffer().to_pybytes().decode("utf-8", "backslashreplace"))
    except (OverflowError, ValueError):
        return str(value.value)


def to_arrow(column: pl.Series, kind: pa.DataType) -> pa.Array[Any]:
    """The column as Arrow, of exactly this type."""
    return column.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kind)


def check_names(names: Sequence[str], where: str) -> None:
    """Names that a table can have.

    Raises:
        DataError: two are the same, one is ours, or has a character that no column name can have.
    """
    if own := [name for name in names if name in (LINE, FAULT, TEXT)]:
        raise DataError(f"{where}: the column name {own[0]!r} is used by streamgp", hint="rename the column")
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f"{where}: two columns are called {', '.join(twice)}", hint="rename one of them")
    for name in names:
        if "\0" in name or "\r" in name or not storable_text(name):
            raise DataError(
                f"{where}: the column name {name!r} has a character that no column name can have",
                hint="rename the column; is this a text file, and is its encoding right?",
            )


def storable_text(text: str) -> bool:
    """Whether it has a form in UTF-8; half a surrogate pair has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def unreadable(schema: pa.Schema, line: int, wrong: str, text: str) -> pa.RecordBatch:
    """One row that is nothing but its fault."""
    extra: dict[str, Any] = {LINE: line, FAULT: wrong, TEXT: text}
    return pa.RecordBatch.from_pylist([extra], schema=schema)


def nothing(schema: pa.Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_pylist([], schema=schema)
