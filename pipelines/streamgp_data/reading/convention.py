"""How the numbers of a text file are written: which sign is the decimal mark, and which one groups digits by threes.

A file has one convention. What 1,200 and 1.200 are follows from cells that can be read in one way only, such as 1,5 and
1.234.567; where nothing says it, the column stays text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from streamgp_data.reading.units import number_cells

GROUPINGS = (",", ".", "'", " ", "_")
_SPACES = "\u00a0\u202f\u2009"
"""Spaces between groups of digits that stand nowhere else in a number: no-break, narrow no-break, thin."""
_SPACED = rf"^\s*[+-]?[1-9]\d{{0,2}}([{_SPACES}]\d{{3}})+([.,]\d*)?(\s*[^\d\s].*)?$"
_LAST = rf"^\s*((?:\d[\d.,]*|[1-9]\d{{0,2}}(?:['\u2019 _{_SPACES}]\d{{3}})+)[.,]\d+)[-\u2212]\s*$"
"""A minus after the digits, as SAP writes a negative number. 5,- is five, and 2- may be a mark."""
_MINUS_LAST = re.compile(_LAST)
_UNLIKE = {first: rf"[{_SPACES}\u2212]" + rf"|{_LAST}" * first for first in (False, True)}
"""What a cell has that is not yet as ASCII has it, with and without a minus behind the number."""
_NEARLY = 0.9
"""Part of the cells of a column that are numbers where the minus is last: 31.12- may be a date without its year."""
_EXPONENT = r"([eE][+-]?\d+)?"
_PLAIN = re.compile(r"[+-]?\d+" + _EXPONENT)
_OTHER = {",": ".", ".": ","}


class Convention(NamedTuple):
    """How numbers are written.

    Attributes:
        decimal: "." or ",". thousands: the sign between groups of three digits, or None.
        doubtful: places of the columns of which nobody knows what they mean.
        open: places of the columns of digits alone, in a file whose decimal mark nothing says: a later 1.200 of theirs
            would be doubtful too.
    """

    decimal: str
    thousands: str | None
    doubtful: frozenset[int]
    open: frozenset[int] = frozenset()


class _Column(NamedTuple):
    """What the cells of a column of numbers can be, by sign ("," and ".").

    Attributes:
        decimal: signs that can only be the decimal mark: 1,5. groups: that can only be between groups: 1,234.5.
        either: that can be both: 1,234. padded: of these, those with a 0 at the end.
        plain: whether some cells are digits alone.
    """

    decimal: frozenset[str]
    groups: frozenset[str]
    either: frozenset[str]
    padded: frozenset[str]
    plain: bool

    @property
    def digits(self) -> bool:
        """Whether all cells are digits alone."""
        return self.plain and not (self.decimal or self.groups or self.either)


def are_numbers(cells: pl.Series, wrong: pl.Series) -> bool:
    """Whether a column is one of numbers: half of its cells are, or nearly all of them where those with the minus last
    are needed for that.

    Args:
        cells: (N,) text, each of which says something.
        wrong: (N,) where it is no number.

    Example:
        >>> cells, wrong = pl.Series(["31.12-", "31.01-", "to the end"]), pl.Series([False, False, True])
        >>> are_numbers(cells, wrong), are_numbers(pl.Series(["1", "2", "-"]), wrong), are_numbers(cells[:2], wrong[:2])
        (False, True, True)
    """
    numbers = len(wrong) - int(wrong.sum())
    if _are_numbers(numbers, 0, len(cells)) and not _are_numbers(numbers, numbers, len(cells)):
        return _are_numbers(numbers, int((minus_last(cells) & ~wrong).sum()), len(cells))
    return _are_numbers(numbers, 0, len(cells))


def _are_numbers(numbers: int, last: int, cells: int) -> bool:
    return 2 * (numbers - last) >= cells or numbers >= _NEARLY * cells


def minus_last(cells: pl.Series) -> pl.Series:
    """(N,) whether a cell is a decimal with its minus after the digits, 5,00-."""
    return cells.str.contains(_LAST).fill_null(False)


def in_ascii(cells: pl.Series, minus_first: bool = True) -> pl.Series:
    """Numbers as ASCII has them: a Unicode minus is a "-", the minus of 5,00- comes first, unless that is not asked
    for, and a space that does not break, between groups of three digits, is nothing.

    Example:
        >>> in_ascii(pl.Series(["\\u22125", "1\\u00a0234\\u202f567,5 kW", "1\\u00a02", "a\\u00a0b", None])).to_list()
        ['-5', '1234567,5 kW', '1\\xa02', 'a\\xa0b', None]
        >>> in_ascii(pl.Series(["5,00-", "1.234,5- ", "1 234,5-", "5,-", "2-", "1,5-2,5"])).to_list()
        ['-5,00', '-1.234,5', '-1 234,5', '5,-', '2-', '1,5-2,5']
    """
    if not cells.str.contains(_UNLIKE[minus_first]).any():
        return cells
    if minus_first:
        cells = cells.str.replace(_LAST, "-${1}")
    plain = cells.str.replace(r"^(\s*)\u2212(\d|[.,]\d)", "${1}-${2}").str.replace(r"(\d[eE])\u2212(\d)", "${1}-${2}")
    grouped = plain.str.contains(_SPACED).fill_null(False)
    return plain.zip_with(~grouped, plain.str.replace_all(rf"(\d)[{_SPACES}](\d)", "${1}${2}"))


def grouping(sign: str, decimal: str) -> str:
    """A regular expression of numbers whose digits are grouped by threes; "0.123" is none of them.

    Example:
        >>> [bool(re.fullmatch(grouping(".", ","), one)) for one in ("1.234", "-1.234.567,8", "0.123", "12.34")]
        [True, True, False, False]
    """
    return rf"^[+-]?[1-9]\d{{0,2}}({re.escape(sign)}\d{{3}})+({re.escape(decimal)}\d*)?$"


def convention_of(
    columns: Sequence[Sequence[str]], separator: str, decimal: str | None = None, thousands: str | None = None
) -> Convention:
    """The convention of a file by the cells of its columns, as far as it is not given.

    Between commas, "1,234" may be a thousand and "1,5" a list: neither says anything. Numbers with a unit say something
    where plain ones do not, as "10.04 LTS" is a name.

    Example:
        >>> convention_of([["1,5", "2"]], ";")[:2], convention_of([["1,5", "2"]], ",")[:2]
        ((',', None), ('.', None))
        >>> convention_of([["1.200", "1.234.567"]], ";")[:2], convention_of([["1.234,5"]], ",")[:2]
        ((',', '.'), (',', '.'))
        >>> convention_of([["1.200"], ["1,5"]], ";")[:3], convention_of([["950", "1,200"]], ";").thousands
        ((',', None, frozenset({0})), None)
        >>> convention_of([["950"], ["a"]], ";").open, convention_of([["950"], ["1.5"]], ";").open
        (frozenset({0}), frozenset())
        >>> convention_of([["950", "1,200"]], ";", decimal=".")[:2]
        ('.', ',')
    """
    if decimal is None and thousands in _OTHER:
        decimal = _OTHER[thousands]
    plain = [_read(column, separator) for column in columns]
    numbers = [number_cells(column) for column in columns]
    bare = [
        read if cells is column else _read(cells, separator)
        for column, cells, read in zip(columns, numbers, plain, strict=True)
    ]
    votes = _votes(plain) or _votes(bare)
    mark = decimal or ("," if votes == {","} else ".")
    sign = thousands or _grouped(bare, mark, _OTHER[mark], decimal is not None)
    doubtful, digits = frozenset[int](), frozenset[int]()
    if decimal is None and thousands is None:
        doubtful = frozenset(at for at, column in enumerate(bare) if _doubtful(column, mark, sign, votes, separator))
        if not votes and separator != ",":
            digits = frozenset(at for at, column in enumerate(bare) if column is not None and column.digits)
    return Convention(mark, sign, doubtful, digits)


PADDED = r"^\s*[+-]?[1-9]\d{0,2}\.\d\d0(\D.*)?$"
"""1.200 beside 950: as a decimal it would be written 1.2, or the other 950.000."""


def _votes(columns: Sequence[_Column | None]) -> set[str]:
    """The decimal marks that cells can have only."""
    found = [column for column in columns if column is not None]
    return {sign for sign in _OTHER if any(sign in one.decimal or _OTHER[sign] in one.groups for one in found)}


def _grouped(columns: Sequence[_Column | None], mark: str, sign: str, given: bool) -> str | None:
    """The sign between groups, where a column has it and nothing in that column contradicts."""
    for column in columns:
        if column is None or sign in column.decimal:
            continue
        known = given or mark in column.decimal
        if sign in column.groups or (known and sign in column.either):
            return sign
    return None


def _doubtful(column: _Column | None, mark: str, sign: str | None, votes: set[str], separator: str) -> bool:
    """Whether cells like 1.200 of a column may not be the decimals that the convention of the file makes of them."""
    if column is None or mark in column.decimal:
        return False
    if sign is None and _OTHER[mark] in column.either and mark == ",":
        return True
    if mark not in column.either:
        return False
    if mark in column.groups or len(votes) == 2:
        return True
    # 1.200 beside 950: with three decimals that would be 950.000, and without zeros 1.2
    return not votes and separator != "," and mark in column.padded and column.plain


def _read(column: Sequence[str], separator: str) -> _Column | None:
    """What a column of numbers can be; None for one that has other cells mostly."""
    said = [cell for cell in (cell.strip() for cell in column) if cell]
    decimal, groups, either, padded = set[str](), set[str](), set[str](), set[str]()
    numbers = plain = last = 0
    sizes: dict[str, set[int]] = {",": set(), ".": set()}  # how many groups cells have, of those with the sign
    for text in said:
        cell = _MINUS_LAST.sub(r"-\1", text) if text[-1] in "-\u2212" else text
        if _PLAIN.fullmatch(cell):
            plain, numbers = plain + 1, numbers + 1
            continue
        for sign in _OTHER:
            if sign not in cell:
                continue
            if _SINGLE[sign].fullmatch(cell):
                either.add(sign)
                sizes[sign].add(1)
                if cell[-1] == "0":
                    padded.add(sign)
            elif _MANY[sign].fullmatch(cell):
                sizes[sign].add(cell.count(sign))
            elif _GROUPS[sign].fullmatch(cell):
                groups.add(sign)
            elif _DECIMAL[sign].fullmatch(cell):
                if sign == "." or separator != ",":
                    decimal.add(sign)
            else:
                continue
            numbers, last = numbers + 1, last + (cell != text)
            break
    if not _are_numbers(numbers, last, len(said)):
        return None
    # of one length all, 100,200,300 may be a list, and 192.168.100.200 an address
    groups |= {sign for sign, found in sizes.items() if max(found, default=0) > 1 and len(found) + (plain > 0) > 1}
    return _Column(frozenset(decimal), frozenset(groups), frozenset(either), frozenset(padded), plain > 0)


_SINGLE = {sign: re.compile(rf"[+-]?[1-9]\d{{0,2}}{re.escape(sign)}\d{{3}}") for sign in _OTHER}
_MANY = {sign: re.compile(rf"[+-]?[1-9]\d{{0,2}}({re.escape(sign)}\d{{3}}){{2,}}") for sign in _OTHER}
_GROUPS = {
    sign: re.compile(rf"[+-]?[1-9]\d{{0,2}}({re.escape(sign)}\d{{3}})+{re.escape(other)}\d*")
    for sign, other in _OTHER.items()
}
_DECIMAL = {
    ",": re.compile(r"[+-]?(\d+,\d+|,\d+)" + _EXPONENT),
    ".": re.compile(r"[+-]?(\d+\.\d*|\.\d+)" + _EXPONENT),
}
