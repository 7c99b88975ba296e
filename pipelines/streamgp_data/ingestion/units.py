"""Units of a source's columns against those of a table: converted, refused, or not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamgp.errors import SchemaError, UsageError
from streamgp_data.reading.cells import NULLS, said, unit_in
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.units import UnitConversion, is_unit, power
from streamgp_data.table import Table, TableMeta


def given_units(source: FileSource, given: Sequence[str]) -> dict[str, str]:
    """Column -> unit, as --unit says.

    Raises:
        UsageError: there is no such column, or no unit.
    """
    found = {}
    for one in given:
        name, _, unit = one.rpartition("=")
        if name not in source.names or not unit:
            hint = f"it is COLUMN=UNIT, and there are: {', '.join(source.names)}"
            raise UsageError(f"--unit {one!r}: {source.uri} has no column {name!r}", hint=hint)
        found[name] = unit
    return found


def units_of(
    source: FileSource,
    given: Sequence[str],
    null: Sequence[str],
    meta: TableMeta,
    schema: pa.Schema,
    new: bool = False,
    assumed: bool = False,
) -> UnitConversion:
    """What turns the numbers of a source into those of the table's units. Of messages, which come one by one, a number
    without a unit is a fault of its row; of a file, of the file.

    Args:
        source: the source.
        given: "COLUMN=UNIT", as --unit says.
        null: what stands for a missing value, beside the words that always do.
        meta, schema: of the table.
        new: whether it is made for this source.
        assumed: whether numbers that say no unit are in those of the table.

    Raises:
        SchemaError: a column has another unit than the table's, or one of the two has none; the line is named.
    """
    powers, unknown, units = {}, {}, given_units(source, given)
    for one in schema:
        name, told = one.name, units.get(one.name)
        if name in meta.keys or name not in source.names or not is_number(one.type):
            continue
        own = source.units.get(name) or unit_in(name) or told
        wanted = (one.metadata or {}).get(b"unit", b"").decode() or unit_in(name) or told
        if own == wanted:
            continue
        if own is None and wanted is not None:
            mine = getattr(source, "for_table", None)
            if mine is False:
                unknown[name] = wanted
            if assumed or mine is not None or _says_nothing(source, name, (*NULLS, *null)):
                continue
        between = None if own is None or wanted is None else power(own, wanted)
        if between is None or (between and not pa.types.is_floating(one.type)):
            where = f"{source.uri}, line {source.first_line}, column {name!r}"
            first = next((said(value) for value in source.sample.column(name).drop_null()), "")
            raise _other_unit(where, first, name, own, wanted, new, assumed)
        if between:
            powers[name] = between
    return UnitConversion(powers, unknown)


def check_said(source: FileSource, name: str, own: str, field: pa.Field[Any], null: Sequence[str]) -> None:
    """See that numbers of a column that says no unit are not those of a column of a table that has one.

    Args:
        source: the source.
        name: of the column in the table. own: what the file calls it. field: of the table.
        null: as of `units_of`.

    Raises:
        SchemaError: they are.
    """
    wanted = (field.metadata or {}).get(b"unit", b"").decode() or unit_in(name)
    if wanted and is_number(field.type) and not _says_nothing(source, name, (*NULLS, *null)):
        where = f"{source.uri}, line {source.first_line}, column {own!r}"
        first = next(said(value) for value in source.sample.column(name).drop_null())
        raise _other_unit(where, first, own, None, wanted, new=False, assumed=False)


def _other_unit(
    where: str, first: str, name: str, own: str | None, wanted: str | None, new: bool, assumed: bool
) -> SchemaError:
    """The error about a unit that is not the table's; `own` and `wanted` are None where there is none."""
    whose = "--unit says" if new else "the table has"
    if own is None:
        message = f"{where}: {first!r} has no unit, and {whose} {wanted}"
        hint = f"say which unit its numbers have: --unit {name}={wanted}"
    elif wanted is None:
        message = f"{where}: {first!r} is in {own}, and the numbers of the table have no unit"
        hint = f"if they are in {own}, say --unit {name}={own}; if not, ingest it into another table"
        hint = "leave the unit out, if it is the table's" if assumed else hint
    else:
        message = f"{where}: {first!r} is in {own}, and {whose} {wanted}"
        hint = "convert it" if assumed else "convert it, or ingest it into another table"
    return SchemaError(message, hint=hint)


def _says_nothing(source: FileSource, name: str, nulls: tuple[str, ...]) -> bool:
    """Whether the first rows have no value of a column, so that it has no unit to be wrong."""
    return all(said(value).strip() in nulls for value in source.sample.column(name).drop_null())


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


class SaidUnits:
    """Columns of text in which each row says its unit: nothing is converted by them, and where rows differ by a
    prefix, as after a meter was replaced, a note says so.

    Args:
        source: the source; all its first cells of such a column are units.
        schema, meta: of the table.
        table: where there is one: what its first rows say counts too.
    """

    def __init__(self, source: FileSource, schema: pa.Schema, meta: TableMeta, table: Table | None) -> None:
        self._found: dict[str, set[str]] = {}
        for one in schema:
            if pa.types.is_string(one.type) and one.name not in meta.keys and one.name in source.names:
                cells = source.sample.column(one.name).drop_null().unique().to_pylist()
                if cells and all(is_unit(str(cell).strip()) for cell in cells):
                    self._found[one.name] = set()
        first = None if table is None or not self._found else next(table.read(columns=list(self._found)), None)
        if first is not None:
            self.add(pa.Table.from_batches([first.rows]))

    def add(self, rows: pa.Table) -> None:
        """What these rows say."""
        for name, found in self._found.items():
            cells = {str(cell).strip() for cell in rows.column(name).unique().to_pylist() if cell}
            found.update(cell for cell in cells - found if is_unit(cell))

    def notes(self, uri: str) -> list[str]:
        """Where rows differ."""
        notes = []
        for name, found in self._found.items():
            alike = [unit for unit in sorted(found) if any(power(unit, other) for other in found)]
            if alike:
                differ = " in some rows and ".join(alike)
                notes.append(
                    f"{uri}: column {name!r} says {differ} in others, and nothing is converted by it: ingest numbers "
                    "of one unit into a new table"
                )
        return notes
