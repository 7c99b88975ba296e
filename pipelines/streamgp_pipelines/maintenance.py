"""What a table that is written for months needs: few files, and none that nobody reads."""

from __future__ import annotations

from typing import NamedTuple

from streamgp_data import delta
from streamgp_data.compaction import Compaction, groups, leftovers, remove
from streamgp_data.quarantine import FOLDER
from streamgp_data.table import Table
from streamgp_pipelines.config import CompactConfig, VacuumConfig


class Merged(NamedTuple):
    """What `compact` did, or would do.

    Attributes:
        table: path of the table, or of its quarantine.
        rows: of the table.
        files, bytes: of the version before.
        files_after, bytes_after: of the version now; with `dry_run` the files that there would be, and None.
    """

    table: str
    rows: int
    files: int
    bytes: int
    files_after: int
    bytes_after: int | None


class Vacuumed(NamedTuple):
    """What `vacuum` did, or would do.

    Attributes:
        table: path of the table, or of its quarantine.
        files, bytes: that are needed, and stay.
        deleted, freed: files, and bytes of them, that are not needed.
        kept: files that are not needed either, and not old enough.
    """

    table: str
    files: int
    bytes: int
    deleted: int
    freed: int
    kept: int


def compact(config: CompactConfig) -> list[Merged]:
    """Merge the small files of a table and of its quarantine; rows and their numbers stay.

    Others may read and write meanwhile. The files that were merged stay until `vacuum`.

    Raises:
        TableError: the table is missing or damaged.
        ServiceError: the storage refused, or others write too often.
    """
    found = []
    for table in _tables(config.table):
        before = delta.spans(table.log)
        fewer = sum(len(group) - 1 for group in groups(before))
        if not config.dry_run:
            Compaction(table).compact()
        after = delta.spans(table.log)
        size = None if config.dry_run else _bytes(after)
        count = len(before) - fewer if config.dry_run else len(after)
        found.append(Merged(table.path, table.rows, len(before), _bytes(before), count, size))
    return found


def vacuum(config: VacuumConfig) -> list[Vacuumed]:
    """Delete the files of a table and of its quarantine that no row is read from since `keep` seconds.

    Every row stays, so that every checkpoint can be continued. A reader that has an older
    version open continues with the newest.

    Raises:
        TableError: the table is missing or damaged.
        ServiceError: the storage refused.
    """
    found = []
    for table in _tables(config.table):
        every = leftovers(table, 0.0)
        old = leftovers(table, config.keep)
        if not config.dry_run:
            remove(table, old)
        needed = delta.spans(table.log)
        freed = sum(one.size for one in old)
        found.append(Vacuumed(table.path, len(needed), _bytes(needed), len(old), freed, len(every) - len(old)))
    return found


def _bytes(files: list[delta.Span]) -> int:
    return sum(file.size for file in files)


def _tables(path: str) -> list[Table]:
    """A table, and its quarantine where there is one."""
    table = Table.open(path)
    aside = f"{table.path}/{FOLDER}"
    return [table, Table.open(aside)] if Table.exists(aside) else [table]
