"""Cells to microseconds (or steps): text by ISO 8601 or a format, numbers by an epoch, Arrow timestamps.

Finer times are rounded to the nearest microsecond, however they are written; half a microsecond is rounded up.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Read: TypeAlias = "tuple[pa.Array[Any], Bools]"
"""The values, null where there is none, and (N,) where a cell says something that cannot be read."""

_FROM_1970 = {"epoch-s": (10**6, 1), "epoch-ms": (10**3, 1), "epoch-us": (1, 1), "epoch-ns": (1, 1000)}

ELAPSED = {name.replace("epoch", "elapsed"): scale for name, scale in _FROM_1970.items()}
"""Counted from a start of the source's own: such a time has no date."""

EPOCHS = _FROM_1970 | ELAPSED
"""Microseconds = value * first / second."""

_YEAR_1980, _YEAR_2100 = 315_532_800_000_000, 4_102_444_800_000_000  # microseconds
_YEAR = 31_556_952_000_000  # microseconds

_SERIAL_1970 = 25_569
"""Days from day 0 of a workbook (30 December 1899) to 1970."""
_MILLIS = 9.2e15
"""As microseconds these are an int64 still."""

MISSING = ("", "NA", "N/A", "NaN", "nan", "NaT", "null", "NULL", "None")
"""What stands for no time."""

COMPACT = {"%Y%m%d": 8, "%Y%m%d%H": 10, "%Y%m%d%H%M": 12, "%Y%m%d%H%M%S": 14, "%Y%m%d%H%M%S%3f": 17}
"""Dates without separators, which look like numbers, and their digits."""
TURNED = ("%d%m%Y", "%m%d%Y")
"""Dates without separators that do not begin with the year: which is the day, nobody knows."""
_DATED = 1900, 2100
"""The years of such a date."""
_LARGEST = 2**63 - 1

FORMATS = (
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%d/%m/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M",
    "%d/%m/%Y",
    "%m/%d/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y",
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%Y %I:%M %p",
    "%Y%m%d %H:%M:%S",
    "%Y%m%d%H%M",
    "%d-%m-%Y %H:%M:%S",
    "%d-%m-%Y %H:%M",
    "%d-%b-%Y %H:%M:%S",
    "%d-%b-%Y %H:%M",
    "%d-%b-%Y",
    "%d %b %Y %H:%M:%S",
    "%d %b %Y %H:%M",
    "%d %b %Y",
)
"""What a hint offers when a time is not ISO 8601."""

_OFFSET = r"[0-9][ ]?([Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)$"
_ENDS = r"(?:^|[ T])24:00(?::00(?:[.,]0+)?)?(?:[^:.,\d]|$)"
"""A time of day that ends the day."""
_SHAPE = (
    r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}( +[0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}(\.[0-9]*)?)?)?"
    r"([ ]?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?))?$"
)
"""chrono alone would take signs, spaces within, and years of fewer digits."""
_YEAR_FIRST = r"^(\d{4})(?:/(\d{1,2})/(\d{1,2})|\.(\d{1,2})\.(\d{1,2}))(\D|$)"
_ISO = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")


def text_times(cells: pa.Array[Any], offset: bool, form: str | None) -> Read:
    """Text as naive timestamps, or as UTC instants where `offset` says that every cell carries one. 24:00 is the
    midnight that ends a day.

    Example:
        >>> values, bad = text_times(pa.array(["2024-01-01T00:00:00+01:00", "2024-01-01"]), True, None)
        >>> str(values[0]), bad.tolist()
        ('2023-12-31 23:00:00+00:00', [False, True])
    """
    if form is None:
        try:  # the straight way: every cell is plain ISO 8601
            return cells.cast(pa.timestamp("us", "UTC" if offset else None)), np.zeros(len(cells), bool)
        except pa.ArrowInvalid:
            pass
    text = _texts(cells)
    if form in COMPACT or form in TURNED:  # a column with holes has them as 20240131.0
        text = text.str.replace(r"^(\d+)\.0+$", "${1}")
    if form in TURNED:  # a number has no zero in front
        text = text.str.replace(r"^(\d{7})$", "0${1}")
    ends = text.str.contains(_ENDS).fill_null(False)
    if not ends.any() or (form is not None and not any(mark in form for mark in ("%H:%M", "%T", "%R"))):
        found = _by_format(text, form) if form is not None else _iso(text, offset)
    else:
        begin = text.zip_with(~ends, text.str.replace("24:00", "00:00", literal=True))
        found = _by_format(begin, form) if form is not None else _iso(begin, offset)
        found = found.zip_with(~ends, found.dt.offset_by("1d"))
    bad = (text.is_not_null() & found.is_null()).to_numpy()
    kind = pa.timestamp("us", getattr(found.dtype, "time_zone", None) or ("UTC" if offset else None))
    return found.dt.epoch("us").to_arrow().cast(kind), bad


def _texts(cells: pa.Array[Any]) -> pl.Series:
    """Cells as text, whole numbers without a fraction or an exponent; null where nothing is said."""
    values = pl.Series(pl.from_arrow(cells))
    if values.dtype.is_float():
        values = _exact(values).cast(pl.String).fill_null(values.cast(pl.String))
    text = values.cast(pl.String).str.strip_chars()
    return text.set(text.is_in(list(MISSING)), None)


def compact_form(cells: pa.Array[Any]) -> tuple[str | None, float]:
    """The way of writing dates without separators that most cells have, and the share of those that do: only days that
    there are, of the years 1900 to 2100.

    Example:
        >>> compact_form(pa.array([20240131, 20240201])), compact_form(pa.array(["202402302359", "7"]))
        (('%Y%m%d', 1.0), (None, 0.0))
    """
    text = _texts(cells).drop_nulls().str.replace(r"^(\d+)\.0+$", "${1}")
    best: tuple[str | None, float] = (None, 0.0)
    for form, digits in COMPACT.items():
        like = text.filter(text.str.contains(rf"^[12]\d{{{digits - 1}}}$"))
        if 2 * len(like) < len(text) or not len(like):
            continue
        found = int(_by_format(like, form).dt.year().is_between(*_DATED).sum())
        several = digits != 10 or like.n_unique() > 1  # a single one is as well a second of the years 2030 to 2036
        if several and found / len(text) > best[1]:
            best = form, found / len(text)
    return best


def turned_form(cells: pa.Array[Any]) -> str | None:
    """The way of writing dates without separators, the year last, that nine in ten cells or more may have.

    Example:
        >>> turned_form(pa.array(["30012024", "31012024"])), turned_form(pa.array([12312001, 12312002]))
        ('%d%m%Y', None)
    """
    text = _texts(cells).drop_nulls().str.replace(r"^(\d+)\.0+$", "${1}").str.replace(r"^(\d{7})$", "0${1}")
    for form in TURNED:
        years = _by_format(text.filter(text.str.contains(r"^\d{8}$")), form).dt.year()
        years = years.filter(years.is_between(*_DATED).fill_null(False))
        if (
            len(years) and len(years) >= 0.9 * len(text) and 2 * years.n_unique() <= text.n_unique()
        ):  # a counter has more
            return form
    return None


def _by_format(text: pl.Series, form: str) -> pl.Series:
    if "%H" in form and not any(mark in form for mark in ("%M", "%T", "%R", "%c", "%X")):  # hours without minutes
        text, form = text + " 00", f"{form} %M"
    if "%m" in form and not any(mark in form for mark in ("%d", "%e")):  # months
        text, form = text + " 1", f"{form} %d"
    if not any(mark in form for mark in ("%H", "%I", "%T", "%R", "%c", "%s", "%X")):
        return text.str.to_date(form, strict=False).cast(pl.Datetime("us"))
    found = text.str.to_datetime(form, time_unit="us", strict=False)  # which cuts
    if "f" not in form:
        return found
    fine = text.str.to_datetime(form, time_unit="ns", strict=False)  # wraps around for a year that int64 cannot hold
    with np.errstate(over="ignore"):
        rest = fine.to_physical().fill_null(0).to_numpy() - found.to_physical().fill_null(0).to_numpy() * 1000
    return _up(found, pl.Series(rest >= 500))


def _up(micros: pl.Series, up: pl.Series) -> pl.Series:
    """Instants, one microsecond later where `up`."""
    return micros + pl.Series(up.cast(pl.Int64)).cast(pl.Duration("us")) if up.any() else micros


def _iso(text: pl.Series, offset: bool) -> pl.Series:
    """ISO 8601 cell by cell, to the nearest microsecond."""
    plain = dashed(text).str.replace(r"^([0-9-]+)[Tt]", "${1} ").str.replace(",", ".", literal=True)
    plain = plain.set(~plain.str.contains(_SHAPE), None)
    up = plain.str.contains(r"\.\d{6}[5-9]").fill_null(False)  # the parser cuts
    if not offset:
        return _up(_coalesce(plain), up)
    mark = plain.str.extract(_OFFSET)
    local = _up(_coalesce(plain.str.replace(r"[ ]?([Zz]|[+-]\d{2}(?::?\d{2})?)$", "")), up)
    local = local.set(mark.is_null() | ~plain.str.contains(":"), None)
    digits = mark.str.replace_all(r"[^0-9]", "").str.pad_end(4, "0")
    minutes = digits.str.slice(0, 2).cast(pl.Int64, strict=False).fill_null(0) * 60
    minutes = minutes + digits.str.slice(2, 2).cast(pl.Int64, strict=False).fill_null(0)
    west = mark.str.starts_with("-").fill_null(False)
    east = minutes.zip_with(~west, -minutes)
    return (local.dt.epoch("us") - east * 60_000_000).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def dashed(text: pl.Series) -> pl.Series:
    """Dates that begin with a year of four digits, which can be read in one way, as ISO 8601 has them.

    Example:
        >>> dashed(pl.Series(["2012/01/31 23:45", "2012.1.31", "31.01.2012", "2012/01"])).to_list()
        ['2012-01-31 23:45', '2012-1-31', '31.01.2012', '2012/01']
    """
    return text.str.replace(_YEAR_FIRST, "${1}-${2}${4}-${3}${5}${6}")


def _coalesce(text: pl.Series) -> pl.Series:
    frame = text.to_frame("t")
    forms = [pl.col("t").str.to_datetime(form, time_unit="us", strict=False) for form in _ISO[:2]]
    day = pl.col("t").str.to_date(_ISO[2], strict=False).cast(pl.Datetime("us"))
    return frame.select(pl.coalesce(*forms, day)).to_series()


def timestamps(column: pa.Array[Any]) -> Read:
    """Arrow timestamps or dates, to the nearest microsecond; what is more than an int64 holds is not read rather than
    cut.

    Example:
        >>> values, bad = timestamps(pa.array([10**18 + 499, 10**18 + 500], pa.timestamp("ns")))
        >>> values.cast(pa.int64()).to_pylist(), bad.tolist()
        ([1000000000000000, 1000000000000001], [False, False])
    """
    zone = getattr(column.type, "tz", None)
    wanted = pa.timestamp("us", "UTC" if zone else None)
    try:
        return column.cast(wanted), np.zeros(len(column), bool)
    except pa.ArrowInvalid:
        pass
    many, one = (86_400 * 10**6, 1) if pa.types.is_date32(column.type) else _UNITS[getattr(column.type, "unit", "ms")]
    said = column.is_valid().to_numpy(zero_copy_only=False)
    counts = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64()).cast(pa.int64())
    numbers = counts.fill_null(0).to_numpy(zero_copy_only=False)
    fits = (numbers <= _LARGEST // many) & (numbers >= -(_LARGEST // many))
    micros = _nearest(np.where(fits, numbers, 0), one) * many
    return pa.array(micros, mask=~(fits & said)).cast(wanted), said & ~fits


def _nearest(values: Any, one: int) -> Any:
    """Whole numbers divided by `one`, to the nearest whole number; without a sum that could wrap around."""
    return values // one + (values % one * 2 >= one) if one > 1 else values


_UNITS = {name.removeprefix("epoch-"): scale for name, scale in _FROM_1970.items()}


def number_times(cells: pa.Array[Any], kind: str) -> Read:
    """Epochs as UTC instants, to the nearest microsecond, steps as int64; text or numbers.

    Example:
        >>> number_times(pa.array(["1577836800", "1577836800.5", "x"]), "epoch-s")[0].cast(pa.int64()).to_pylist()
        [1577836800000000, 1577836800500000, None]
        >>> number_times(pa.array([1499, 1500]), "epoch-ns")[0].cast(pa.int64()).to_pylist()
        [1, 2]
    """
    values = pl.Series(pl.from_arrow(cells))
    if values.dtype == pl.String:
        values = values.str.strip_chars()
        values = values.set(values.is_in(list(MISSING)), None)
    whole = values.cast(pl.Int64, strict=False) if not values.dtype.is_float() else _exact(values)
    said = values.is_not_null()
    if kind == "step":
        exact = whole.fill_null(_exact(values.cast(pl.Float64, strict=False)))
        return exact.to_arrow(), (said & exact.is_null()).to_numpy()
    many, one = EPOCHS[kind]
    found = _times(whole, many, one)
    if found.null_count() > values.null_count() and values.dtype == pl.String:
        found = found.fill_null(_decimals(values, many, one))
    fraction = values.cast(pl.Float64, strict=False).set(whole.is_not_null(), None) * many / one
    fraction = fraction.set((fraction.is_finite() & (fraction.abs() < 2.0**63)).not_().fill_null(False), None)
    low = fraction.floor()
    found = found.fill_null((low + (fraction - low >= 0.5).cast(pl.Float64)).cast(pl.Int64, strict=False))
    return found.to_arrow().cast(pa.timestamp("us", "UTC")), (said & found.is_null()).to_numpy()


def _times(whole: pl.Series, many: int, one: int) -> pl.Series:
    """Whole numbers times many / one; null where the product would wrap around."""
    near = (whole // one).is_between(-(_LARGEST // many), _LARGEST // many)
    return pl.Series(_nearest(whole.set((~near).fill_null(False), None), one)) * many


def _decimals(text: pl.Series, many: int, one: int) -> pl.Series:
    """Text such as 1577836800.123456789, which float64 cannot hold, times many / one."""
    parts = text.str.extract_groups(r"^(?<whole>[+]?\d{1,18})\.(?<rest>\d*)$").struct.unnest()
    found = _times(parts["whole"].cast(pl.Int64, strict=False), many, one)
    if one > 1:  # half up: a fraction of a nanosecond changes nothing
        return found
    digits = len(str(many)) - 1
    rest = parts["rest"].str.pad_end(digits + 1, "0")
    found = found + pl.Series("0" + rest.str.slice(0, digits)).cast(pl.Int64, strict=False)
    return found + (rest.str.slice(digits, 1) >= "5").cast(pl.Int64)


_UNSET = (2**32 - 1) * 1_000_000
"""Seconds of a clock all whose 32 bits are set, as microseconds: a moment of 2106."""


def unset(times: pa.Array[Any]) -> Bools:
    """(N,) instants of the first year after 1970 began, or of the second before: 0, -1 and the like, of a clock that
    was not set, or numbers of a larger unit, as seconds are among milliseconds; and 2³² − 1 seconds, which is -1 too.

    Example:
        >>> unset(pa.array([0, -1, 2**32 - 1, -86_400, 1_700_000_000], pa.timestamp("s")).cast(pa.timestamp("us")))
        array([ True,  True,  True, False, False])
    """
    micros = times.cast(pa.int64()).fill_null(-_YEAR).to_numpy(zero_copy_only=False)
    return np.asarray(((micros >= -1_000_000) & (micros < _YEAR)) | (micros == _UNSET))


def numbers_in(cells: pa.Array[Any]) -> pl.Series:
    """The finite numbers of cells, which are numbers or text, as float64.

    Example:
        >>> numbers_in(pa.array(["1.5", "", "x", "NaN"])).to_list()
        [1.5]
    """
    values = pl.Series(cells.to_pylist(), strict=False).cast(pl.Float64, strict=False).drop_nulls()
    return values.filter(values.is_finite())


PERIOD = "period-"
"""Followed by the number of periods of a day: how times are written as "2024-01-31 period 48"."""


def periods_of(form: str | None) -> int | None:
    """The periods of a day in a table whose times are written so; None in others.

    Example:
        >>> periods_of("period-48"), periods_of("iso")
        (48, None)
    """
    count = (form or "").removeprefix(PERIOD)
    return int(count) if form != count and count.isdecimal() and int(count) > 0 else None


def period_days(cells: pa.Array[Any]) -> tuple[pl.Series, pl.Series, Bools]:
    """(N,) the days of "2024-01-31 period 48" as naive midnights, the numbers of the periods, from 1, and where a cell
    says something else."""
    text = _texts(cells)
    parts = dashed(text).str.extract_groups(r"^(?<day>\d{4}-\d{1,2}-\d{1,2}) period (?<k>\d{1,4})$").struct.unnest()
    days = parts["day"].str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us"))
    numbers = parts["k"].cast(pl.Int64, strict=False)
    return days, numbers, (text.is_not_null() & (days.is_null() | numbers.is_null())).to_numpy()


def serial_times(cells: pa.Array[Any]) -> Read:
    """Days since 30 December 1899, as workbooks count them, to the millisecond that they keep; text or numbers.

    Example:
        >>> values, bad = serial_times(pa.array(["45292,5", "45292.25", "x"]))
        >>> [str(value) for value in values], bad.tolist()
        (['2024-01-01 12:00:00', '2024-01-01 06:00:00', 'None'], [False, False, True])
    """
    values = pl.Series(pl.from_arrow(cells))
    if values.dtype == pl.String:
        values = values.str.strip_chars()
        values = values.set(values.is_in(list(MISSING)), None).str.replace(r"^([+-]?\d+),(\d+)$", "${1}.${2}")
    millis = ((values.cast(pl.Float64, strict=False) - _SERIAL_1970) * 86_400_000).round()
    millis = millis.set(millis.abs().le(_MILLIS).not_().fill_null(False), None)
    found = (millis.cast(pl.Int64, strict=False) * 1000).to_arrow().cast(pa.timestamp("us"))
    return found, (values.is_not_null() & millis.is_null()).to_numpy()


def serial_years(cells: pa.Array[Any], last: int = 2100) -> bool:
    """Whether all cells are days of a workbook in the years 1990 to `last`."""
    values, bad = serial_times(cells)
    said = pl.Series(pl.from_arrow(values)).drop_nulls().dt.year()
    return bool(len(said)) and not bad.any() and bool(said.is_between(1990, last).all())


def epoch_years(kind: str) -> tuple[float, float]:
    """The numbers that are years 1980 to 2100 in this epoch.

    Example:
        >>> epoch_years("epoch-s")
        (315532800.0, 4102444800.0)
    """
    many, one = EPOCHS[kind]
    return _YEAR_1980 * one / many, _YEAR_2100 * one / many


def starts_over(cells: pa.Array[Any], kind: str) -> bool:
    """Whether numbers that were said to be an epoch count from a start of their own: all within the first year.

    Example:
        >>> starts_over(pa.array([0.0, 0.1]), "epoch-s"), starts_over(pa.array([1577836800]), "epoch-s")
        (True, False)
    """
    many, one = EPOCHS[kind]
    numbers = numbers_in(cells)
    return bool(len(numbers)) and bool(numbers.is_between(0, _YEAR * one / many).all())


def whole_numbers(cells: pa.Array[Any]) -> bool:
    """Whether the cells are whole numbers, as numbers or as text.

    Example:
        >>> [whole_numbers(pa.array(cells)) for cells in ([1, 2], [1.0, 2.0], ["1", ""], ["1", "1.5"])]
        [True, False, True, False]
    """
    if pa.types.is_integer(cells.type):
        return True
    if not pa.types.is_string(cells.type):
        return False
    return not pl.Series(pl.from_arrow(cells)).str.contains(r"[.eE]").fill_null(False).any()


def _exact(values: pl.Series) -> pl.Series:
    """Floats that are whole numbers, as int64; null otherwise."""
    whole = values.set((values.is_finite() & (values.floor() == values)).not_().fill_null(False), None)
    return whole.cast(pl.Int64, strict=False)
