"""The columns that names and patterns of options mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from streamgp_data.reading.cells import bare_name, units_in


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The columns that a name or a pattern means, in their order: the one that is called so, else the only one that is
    but for its unit, else those that a pattern such as "zone_*" fits. Brackets that fit nothing as a choice of letters
    are those around a unit.

    Example:
        >>> there = ["zone_1 [kW]", "zone_2 [kW]", "zone_k"]
        >>> matching("zone_1 [kW]", there), matching("zone_* [kW]", there), matching("zone_[jk]", there)
        (['zone_1 [kW]'], ['zone_1 [kW]', 'zone_2 [kW]'], ['zone_k'])
        >>> matching("zone_2", there), matching("Load", ["Load (net)"])
        (['zone_2 [kW]'], [])
    """
    there = list(names)
    if pattern in there:
        return [pattern]
    if len(alike := but_for_units(pattern, there)) == 1:
        return alike
    found = [name for name in there if fnmatchcase(name, pattern)]
    return found or [name for name in there if fnmatchcase(name, pattern.replace("[", "[[]"))]


def but_for_units(name: str, names: Sequence[str]) -> list[str]:
    """The columns that have this name, followed by a unit.

    Example:
        >>> but_for_units("flow", ["flow [m3/h]", "flow (net)", "Flow (kW)"])
        ['flow [m3/h]']
    """
    return [one for one in units_in(names) if bare_name(one) == name]


def unwanted(columns: Sequence[str], given: Collection[str], alien: Iterable[str]) -> str | None:
    """Why a row with keys that its table lacks is not taken; None where these can be left out.

    Args:
        columns: of the table, without time and series.
        given: the keys of the row.
        alien: those that the table lacks.

    Example:
        >>> unwanted(["y", "load"], ["y", "load", "fw"], ["fw"])
        >>> unwanted(["y", "load"], ["y", "Load"], ["Load"])
        "the table has no key 'Load', and the row lacks 'load': is it renamed?"
    """
    lacking = [name for name in columns if name not in given]
    if len(lacking) == len(columns):
        return "the table has no such key, and the row has none of the table's values"
    for key in alien:
        near = get_close_matches(bare_name(key).lower(), [bare_name(name).lower() for name in lacking], n=1)
        found = next((name for name in lacking if [bare_name(name).lower()] == near), None)
        if found is not None:
            return f"the table has no key {key!r}, and the row lacks {found!r}: is it renamed?"
    return None
