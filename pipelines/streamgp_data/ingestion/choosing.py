"""Which columns of a file are those of a table: some that are asked for, and those of a later file by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgp.errors import UsageError
from streamgp_data.ingestion.plan import time_name
from streamgp_data.ingestion.units import check_said, given_units
from streamgp_data.reading.cells import bare_name, unit_in
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.matching import matching
from streamgp_data.reading.some_columns import SomeColumns
from streamgp_data.recordings.joined import Joined
from streamgp_data.table import SEQ, Table

if TYPE_CHECKING:
    from streamgp_pipelines.config import IngestConfig


def asked_for(source: FileSource, config: IngestConfig, table: Table | None) -> FileSource:
    """The columns that --signals names, and those of the time and the series; the source where all are wanted.

    Raises:
        UsageError: a pattern fits no column, or the time cannot be known.
    """
    if not config.signals or isinstance(source, Joined):
        return source
    kept = {time_name(source, config, table), config.series or "unique_id"}
    kept |= set() if table is None else {table.meta.series}
    for pattern in config.signals:
        found = matching(pattern, source.names)
        if not found:
            hint = f"it has: {', '.join(source.names)}"
            raise UsageError(f"--signals {pattern!r}: {source.uri} has no such column", hint=hint)
        kept |= set(found)
    return SomeColumns(source, {name: name for name in source.names if name in kept})


def as_table(source: FileSource, config: IngestConfig, table: Table) -> tuple[FileSource, IngestConfig, list[str]]:
    """A file with the columns of a table: one that differs by the unit in brackets alone is that column, and what the
    table has not is left out, unless it may be one that the file lacks.

    Args:
        source: with its own columns.
        config: of the run; --unit may name columns as the file or as the table does.
        table: that has rows already.

    Returns:
        the source, the settings, and what to say of it.

    Raises:
        SchemaError: numbers have no unit, and those of the table have one.
        UsageError: --unit is none.
    """
    wanted = [name for name in table.schema.names if name != SEQ]
    lacking = [name for name in wanted if name not in source.names and name not in table.meta.keys]
    new = [name for name in source.names if name not in wanted]
    if isinstance(source, Joined) or not new:
        return source, config, []
    renamed = {}
    for name in lacking:
        fitting = [one for one in new if bare_name(one) == bare_name(name)]
        if len(fitting) == 1 and sum(bare_name(one) == bare_name(name) for one in lacking) == 1:
            renamed[fitting[0]] = name
    if len(renamed) < min(len(lacking), len(new)):  # others may stand for what it lacks
        return source, config, []
    names = {name: renamed.get(name, name) for name in source.names if name in wanted or name in renamed}
    given = [one.rpartition("=") for one in config.unit]
    units = tuple(f"{renamed.get(name, name)}={unit}" for name, _, unit in given)
    found = SomeColumns(source, names)
    told = given_units(found, units)
    for own, name in renamed.items():
        unit = unit_in(own) or source.units.get(own) or told.get(name)
        if unit is None:
            check_said(found, name, own, table.schema.field(name), config.null)
        else:
            found.units[name] = unit
    left = [name for name in new if name not in renamed]
    notes = [f"{source.uri}: column {own!r} is read as {name!r} of the table" for own, name in renamed.items()]
    if left:
        notes.append(
            f"{source.uri}: left out {', '.join(map(repr, left))}, which the table has not; for these too, ingest all "
            "sources into a new table"
        )
    return found, config.model_copy(update={"unit": units}), notes
