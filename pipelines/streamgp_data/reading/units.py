"""Units of numbers: which are the same but for an SI prefix, and what lies between them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

_POWERS = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "m": -3, "μ": -6, "u": -6, "n": -9, "p": -12}
_SMALL = {"h": 2, "d": -1, "c": -2}
"""Prefixes that other units begin with: a dB is no tenth of a byte."""
_NAMES = "W Wh Wp V Vs A Ah VA VAh var varh J N Nm Pa bar Hz m g s l L F Ω ohm Ohm H S T Wb lm lx mol"
_BASES = frozenset(f"{_NAMES} eV B Bq Gy Sv K cal bit rad".split())
_WITH_SMALL = frozenset(("m", "l", "L", "Pa"))
_NO_SI = (
    "% ‰ ° °C °F oC C deg degC degF degrees rpm mph kn kt knots ppm ppb psi sec min h hr hrs hours d days ft in mi lb",
    "inHg mmHg gal gpm cfm Btu BTU MMBtu therm EUR € USD $ GBP £ CHF kr p.u. pu dB dBm dBA pH NTU Nm3",
)
_OTHERS = frozenset(" ".join(_NO_SI).split())
"""Units without prefixes, as columns name them."""
_NUMBER = r"[+-]?[\d.,]+(?:[eE][+-]?\d+)?"
_BEHIND = rf"^{_NUMBER}(?:\s+([^\d\s+-]\S{{0,15}})|([%°]\S{{0,15}}))$"
_WITH_UNIT = re.compile(_BEHIND)
_FORM = re.compile(r"([A-Za-zμΩ]+)(.*)", re.DOTALL)


class UnitConversion(NamedTuple):
    """How the numbers of a source become those of a table's columns.

    Attributes:
        powers: column -> power of ten that turns its numbers into those of the table's unit, where they need one.
        unknown: column -> unit of the table, where nobody says what the numbers of the source have.
    """

    powers: Mapping[str, int] = MappingProxyType({})
    unknown: Mapping[str, str] = MappingProxyType({})


NO_UNITS = UnitConversion()
"""There are none, or they are the table's."""


def power(given: str, wanted: str) -> int | None:
    """The power of ten that turns numbers of one unit into those of another; None where they are not the same unit
    with SI prefixes.

    Example:
        >>> power("W", "kW"), power("MWh", "kWh"), power("m/s", "mm/s"), power("µA", "uA"), power("m²", "m2")
        (-3, 3, 3, 0, 0)
        >>> power("km/h", "mph"), power("m2", "km2"), power("min", "h"), power("dB", "kB"), power("mW", "mWh")
        (None, None, None, None, None)
    """
    (base, own), (other, theirs) = _parts(given), _parts(wanted)
    return own - theirs if base == other else None


def base_of(unit: str) -> str:
    """The unit without its prefix: equal for units that can be converted.

    Example:
        >>> base_of("kW") == base_of("MW"), base_of("km/h"), base_of("mph")
        (True, 'm/h', 'mph')
    """
    return _parts(unit)[0]


def is_unit(text: str) -> bool:
    """Whether a text is a unit that is known, or a product or quotient of these, and no word or letter that means more
    often something else: min a minimum, N the north.

    Example:
        >>> [is_unit(text) for text in ("kW", "°C", "µg/m³", "EUR/MWh", "1/min", "m s-1")]
        [True, True, True, True, True, True]
        >>> [is_unit(text) for text in ("net", "day-ahead", "min", "N", "V2", "2", "")]
        [False, False, False, False, False, False, False]
    """
    if text in ("min", "in") or (re.fullmatch("[A-Za-z]", text) and text not in "WVAK"):
        return False
    factors = re.split(r"[/·*⋅]|\s+", unicodedata.normalize("NFKC", text).replace("^", ""))
    units = [one if one in _OTHERS else re.sub("-[123]$|(?<=[ms])[23]$", "", one) for one in factors if one != "1"]
    return bool(units) and all(unit in _OTHERS or _parts(unit)[0] in _BASES for unit in units)


def times_power(numbers: NDArray[Any], powers: Any) -> NDArray[np.float64]:
    """Numbers times powers of ten, rounded once: 1,500 W are 1.5 kW, as 0.001 is no float64.

    Example:
        >>> times_power(np.array([1500.0, 2.0]), np.array([-3, 3])).tolist()
        [1.5, 2000.0]
    """
    found: NDArray[np.float64] = numbers * 10.0 ** np.maximum(powers, 0) / 10.0 ** np.maximum(np.negative(powers), 0)
    return found


def unit_of(cells: Iterable[str]) -> str | None:
    """The unit that at least half of the cells of a column have after a number, with or without an SI prefix: the most
    frequent of these. None where there is none.

    Example:
        >>> unit_of(["57 km/h", "58.5 km/h", "-"]), unit_of(["12%"]), unit_of(["1 a", "2 b", "3 c"]), unit_of(["12A"])
        ('km/h', '%', None, None)
        >>> unit_of(["1.5 kW", "1500 W", "0.001 MW", "2 kW", "-"])
        'kW'
    """
    said = [cell.strip() for cell in cells if cell.strip()]
    units = Counter(found[1] or found[2] for cell in said if (found := _WITH_UNIT.match(cell)))
    bases = Counter[str]()
    for unit, count in units.items():
        bases[base_of(unit)] += count
    base, count = bases.most_common(1)[0] if bases else ("", 0)
    if not count or 2 * count < len(said):
        return None
    return next(unit for unit, _ in units.most_common() if base_of(unit) == base)


def number_cells(column: Sequence[str]) -> Sequence[str]:
    """The cells of a column without the unit that most have after a number; as they are where there is none.

    Example:
        >>> number_cells(["3,41 kW", "-", "12,5 W"]), number_cells(["1,5", "2"])
        (['3,41', '-', '12,5'], ['1,5', '2'])
    """
    unit = unit_of(column)
    return column if unit is None else without_unit(pl.Series(list(column), dtype=pl.String), unit)[0].to_list()


def without_unit(cells: pl.Series, unit: str, named: bool = False) -> tuple[pl.Series, NDArray[np.int64]]:
    """(N,) cells without their unit, and the powers of ten that turn each into numbers of `unit`; a cell that has
    another unit, or none, stays a text that is no number. named: the column's name has the unit, and a cell without
    one is in it.

    Example:
        >>> texts, powers = without_unit(pl.Series(["57 km/h", "35 mph", "", None, "9 m/h", "1"]), "km/h")
        >>> texts.to_list(), powers.tolist()
        (['57', '35 mph', '', None, '9', '1 (without a unit)'], [0, 0, 0, 0, -3, 0])
        >>> without_unit(pl.Series(["3.1", "3100 W"]), "kW", named=True)[0].to_list()
        ['3.1', '3100']
    """
    bare, powers = cells.str.strip_chars(), np.zeros(len(cells), np.int64)
    texts = pl.select(
        pl.when(bare.str.ends_with(unit)).then(bare.str.strip_suffix(unit).str.strip_chars_end()).otherwise(bare)
    ).to_series()
    own = (
        bare.str.extract_groups(_BEHIND).struct.unnest()
        if len(bare)
        else pl.DataFrame(schema={"1": pl.String, "2": pl.String})
    )
    units = pl.select(pl.coalesce(own.to_series(0), own.to_series(1))).to_series()
    for other in units.drop_nulls().unique().to_list():
        between = power(other, unit)
        if other != unit and between is not None:
            here = units.eq_missing(other)
            texts = bare.str.strip_suffix(other).str.strip_chars_end().zip_with(here, texts)
            powers[here.to_numpy()] = between
    if named:
        return texts.alias(cells.name), powers
    plain = bare.str.contains(rf"^{_NUMBER}$").fill_null(False)
    return (bare + " (without a unit)").zip_with(plain, texts).alias(cells.name), powers


def _parts(unit: str) -> tuple[str, int]:
    """The unit without its prefix, and the power of ten that the prefix stands for."""
    plain = unicodedata.normalize("NFKC", unit).replace("^", "").replace(" ", "")
    found = _FORM.fullmatch(plain)
    if found is None or found[2][:1].isdigit() or found[2][:1] == "-":  # (10³ m)², not 10³ m²
        return plain, 0
    head, tail = found[1], found[2]
    if head in _BASES:
        return plain, 0
    prefix, base = head[:1], head[1:]
    if base in _BASES and prefix in _POWERS:
        return base + tail, _POWERS[prefix]
    if base in _WITH_SMALL and prefix in _SMALL:
        return base + tail, _SMALL[prefix]
    return plain, 0
