"""What may be misunderstood of the cells of a column, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from streamgp_data.reading.cells import convert
from streamgp_data.reading.convention import in_ascii
from streamgp_data.reading.dialect import Dialect, looks_like_numbers

_DIGITS, _POINT = r"^\s*[+-]?\d+\s*$", r"^\s*[+-]?[1-9]\d{0,2}\.\d{3}\s*$"


def text_of_numbers(said: pl.Series) -> str:
    """What to do about cells of text that look like numbers.

    Example:
        >>> text_of_numbers(pl.Series(["a", "b"])), "--decimal" in text_of_numbers(pl.Series(["1,200", "950"]))
        ('', True)
        >>> print(text_of_numbers(pl.Series(["1'051.58", "950.00"])).rpartition(", ")[2])
        say --thousands "'" if they are
    """
    like = looks_like_numbers(said)
    if like is None:
        return ""
    sign = next((mark for mark in "'_,." if mark in like), ",")
    say = f'--thousands "{sign}"' + (f' or --decimal "{sign}"' if sign in ",." else "")
    return f"is text, though its cells look like numbers, such as {like!r}: in a new table, say {say} if they are"


def few_numbers(said: pl.Series, dialect: Dialect, nulls: Sequence[str]) -> str:
    """What to do about text of which a fifth or more are numbers; `nulls` stand for missing values."""
    _, wrong = convert(in_ascii(said), pa.float64(), dialect.decimal, nulls, dialect.thousands)
    numbers, other = len(said) - int(wrong.sum()), said.filter(wrong)
    if 5 * numbers < len(said) or not len(other) or other.n_unique() > max(numbers // 5, 1):
        return ""
    word = other.mode().sort()[0].strip()
    return (
        f"is text: {numbers} of its first {len(said)} cells are numbers, others are such as {word!r}. In a new "
        f"table, --null {word!r} takes these as missing"
    )


def points_of_thousands(said: pl.Series, dialect: Dialect) -> str:
    """What to do about numbers that are all like 1.234, or digits alone, where commas do not separate cells: as some
    write 1234.

    Example:
        >>> cells = pl.Series(["950", "1.234"])
        >>> [bool(points_of_thousands(cells, Dialect(sign, ".", "utf-8"))) for sign in ";,"]
        [True, False]
    """
    points = said.filter(~said.str.contains(_DIGITS))
    if dialect.separator == "," or dialect.decimal != "." or not len(points) or not points.str.contains(_POINT).all():
        return ""
    return (
        f"is read with a decimal point, such as {points[0].strip()!r}: in a new table, say --thousands . if these "
        "are thousands, --decimal . if not"
    )
