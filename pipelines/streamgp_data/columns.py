"""The columns of a table: those of the rows, and those that it adds.

`_seq` comes first. Behind the columns of the rows a table with versions has `_revises`, and one with a lateness
`_late`, which is true for rows that came later than it. Readers of a table get neither, unless they name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamgp.errors import SchemaError
from streamgp_data.delta import SEQ
from streamgp_data.meaning import TableMeta
from streamgp_data.versions import REVISES

LATE = "_late"


def hidden(meta: TableMeta) -> tuple[str, ...]:
    """The columns that a table adds after those of its rows.

    Example:
        >>> hidden(TableMeta("t", lateness_ns=5, duplicates="last")), hidden(TableMeta("t"))
        (('_revises', '_late'), ())
    """
    return (() if meta.duplicates == "first" else (REVISES,)) + (() if meta.lateness_ns is None else (LATE,))


def stored_columns(schema: pa.Schema, meta: TableMeta) -> pa.Schema:
    """The columns of a new table; field metadata (unit, ...) is kept.

    Raises:
        SchemaError: a column has a reserved name or is missing.
    """
    for name in (meta.time, meta.series):
        if name is not None and name not in schema.names:
            raise SchemaError(f"there is no column {name!r}", hint=f"there are: {', '.join(schema.names)}")
    check_names(schema)
    roles = {meta.time: {"role": "time", "zone": meta.zone or ""}, meta.series: {"role": "series"}}
    fields = [_describe(field, roles.get(field.name, {})) for field in schema]
    added = {SEQ: (pa.int64(), "sequence"), REVISES: (pa.int64(), "revises"), LATE: (pa.bool_(), "late")}
    own = {name: pa.field(name, kind, metadata={"role": role}) for name, (kind, role) in added.items()}
    return pa.schema([own[SEQ], *fields, *(own[name] for name in hidden(meta))])


def check_names(schema: pa.Schema) -> None:
    """See that a table can have these columns, without `_seq`.

    Raises:
        SchemaError: a name is reserved, or two names differ by case alone, which Delta Lake does not tell apart.
    """
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.lower() in (SEQ, REVISES, LATE):
            raise SchemaError(f"the column name {name!r} is reserved", hint="rename the column in the source")
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise SchemaError(
                f"columns {other!r} and {name!r} differ by case alone, which Delta tables do not tell apart",
                hint="rename one of them in the source",
            )


def check_schema(found: pa.Schema, table: pa.Schema, what: str = "the batch") -> None:
    """Compare names and types; Delta itself would cast 1.5 to 1.

    Raises:
        SchemaError: every column that is missing, unknown or of another type is named.
    """
    wanted = {field.name: field.type for field in table if field.name != SEQ}
    given = {field.name: field.type for field in found if field.name != SEQ}
    faults = [f"column {name!r} is missing" for name in wanted if name not in given]
    faults += [f"column {name!r} is not in the table" for name in given if name not in wanted]
    faults += [
        f"column {name!r} is {given[name]}, {wanted[name]} in the table"
        for name in wanted
        if name in given and given[name] != wanted[name]
    ]
    if faults:
        lacks = "give a missing column empty cells, or " if wanted.keys() - given.keys() else ""
        hint = f"{lacks}ingest it into another table"
        raise SchemaError(f"{what} does not fit the table: {'; '.join(faults)}", hint=hint)


def _describe(field: pa.Field[Any], role: Mapping[str, str]) -> pa.Field[Any]:
    kept = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    return pa.field(field.name, field.type, metadata={**kept, **{key: value for key, value in role.items() if value}})
