"""What Delta Lake needs to be an append log: conflicts between writers, file spans, errors in our words."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pa_fs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from streamgp.errors import ServiceError, TableError
from streamgp_data.disk import Disk
from streamgp_data.parts import SEQ as SEQ
from streamgp_data.parts import cause, write_parts
from streamgp_data.presence import no_table

LOG_EVERY = 32
"""Versions from one checkpoint of the log to the next, where commits are durable."""


_MEND = (
    "restore the newest files of its _delta_log from a copy; after a power cut the last one may be cut: ingest into a "
)
_MEND += "new table, or with that one moved away"


class Conflict(Exception):
    """Somebody else committed to the table since this handle was refreshed; refresh, look again, retry."""


class Span(NamedTuple):
    """One data file, the `_seq` that it holds, first and last, and its bytes."""

    path: str
    first: int
    last: int
    rows: int
    size: int


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn what the storage says into ServiceError (disk, permission) or Conflict (another writer).

    Raises:
        Conflict: another writer committed first.
        ServiceError: the storage refused; nothing of this commit is visible.
    """
    try:
        yield
    except CommitFailedError as error:
        raise Conflict(str(error)) from None
    except (DeltaError, OSError) as error:
        if "already exists" in str(error):
            raise Conflict(str(error)) from None
        raise ServiceError(
            f"table {path}: the storage refused the write: {cause(error)}",
            hint="nothing of this batch was committed; make room or give permission, and run the same command again",
        ) from None


def is_log(path: str) -> bool:
    """Whether there is a Delta table.

    Raises:
        ServiceError: a store that is not local does not answer.
    """
    if "://" not in path:
        return (Path(path) / "_delta_log").is_dir()
    try:
        return DeltaTable.is_deltatable(path)
    except (DeltaError, OSError) as error:
        raise ServiceError(f"{path}: {cause(error)}", hint="are the address and the credentials right?") from None


def open_log(path: str, version: int | None = None) -> DeltaTable:
    """The table at `path`, at a version; None is the newest.

    Raises:
        TableError: there is none, or its log cannot be read.
        ServiceError: a store that is not local does not answer.
    """
    try:
        if os.path.isfile(path):
            raise TableNotFoundError
        return DeltaTable(path, version=version)
    except TableNotFoundError:
        raise no_table(path) from None
    except (DeltaError, OSError, ValueError) as error:
        is_log(path)  # of a store that does not answer, that is said
        raise TableError(f"table {path} cannot be opened: {cause(error)}", hint=_MEND) from None


def catch_up(log: DeltaTable) -> bool:
    """Update the handle to the newest version; False if that fails, so that the log must be opened again."""
    try:
        log.update_incremental()
    except (DeltaError, OSError, ValueError):  # such as entries that are not kept any more
        return False
    return True


def create_log(path: str, schema: pa.Schema, description: str) -> DeltaTable:
    """A new, empty, append-only table.

    Raises:
        Conflict: somebody else created it first.
        TableError: the directory holds something else.
        ServiceError: the storage refused.
    """
    local = Path(path)
    if "://" not in path and local.is_dir() and not (local / "_delta_log").is_dir() and any(local.iterdir()):
        raise TableError(f"{path} is a directory with other things in it, not a table", hint="name a new directory")
    if "://" not in path and local.exists() and not local.is_dir():
        raise TableError(f"{path} is a file, not a table", hint="name a new directory")
    with writing(path):
        return DeltaTable.create(
            path,
            schema=schema,
            description=description,
            configuration={"delta.appendOnly": "true"},
            commit_properties=CommitProperties(max_commit_retries=0),  # a second try would replace another's table
        )


def arrow_schema(log: DeltaTable) -> pa.Schema:
    """The columns, with their metadata in the order of its keys: the log has none, and files are written with it."""
    columns: Any = log.schema()
    return pa.schema(
        [field.with_metadata(dict(sorted((field.metadata or {}).items()))) for field in pa.schema(columns)]
    )


def commit(
    log: DeltaTable, path: str, rows: pa.Table | None, marks: Mapping[str, int], disk: Disk | None = None
) -> None:
    """Append `rows` (or nothing) and set the transaction marks, in one atomic commit; with `disk` it is there when this
    returns.

    The handle moves to this very commit and not beyond: what others have committed after it, this writer has not
    looked at, and its next commit must meet it as a conflict.

    Raises:
        Conflict: there is another commit since the handle's version; nothing was committed.
        ServiceError: the storage refused.
    """
    with writing(path):
        store = filesystem(log, path)
        actions = [] if rows is None else write_parts(store, rows, disk=disk)
        _commit(log, actions, marks, disk)
        if rows is not None and "://" not in path and not all((Path(path) / one.path).exists() for one in actions):
            write_parts(store, rows, disk=disk)  # a vacuum took them for those of a killed writer


def write_merged(log: DeltaTable, path: str, rows: pa.Table, disk: Disk | None = None) -> list[AddAction]:
    """Write rows that the table has in other files, for `merge`.

    Raises:
        ServiceError: the storage refused.
    """
    with writing(path):
        return write_parts(filesystem(log, path), rows, data_change=False, disk=disk)


def merge(
    log: DeltaTable, path: str, files: Sequence[Span], made: Sequence[AddAction], disk: Disk | None = None
) -> None:
    """Put files of `write_merged` into the place of those whose rows they have: no data changes.

    Raises:
        Conflict, ServiceError: as `commit`.
    """
    now = time.time_ns() // 1_000_000
    with writing(path):
        _commit(log, [*(RemoveAction(file.path, False, now, file.size, {}) for file in files), *made], {}, disk)


def _commit(log: DeltaTable, actions: Sequence[Any], marks: Mapping[str, int], disk: Disk | None) -> None:
    transactions = [Transaction(key, value) for key, value in marks.items()]
    properties = CommitProperties(app_transactions=transactions, max_commit_retries=0)
    version = log.version() + 1
    log.create_write_transaction(
        list(actions), "append", log.schema(), commit_properties=properties, post_commithook_properties=_after(disk)
    )
    if disk is not None:
        disk.entries(version)
    _move(log, version)
    if disk is not None and version % LOG_EVERY == 0:
        log.create_checkpoint()
        disk.checkpoint(version)
        log.cleanup_metadata()


def _after(disk: Disk | None) -> PostCommitHookProperties | None:
    """What the library does after a commit: it would delete entries once it has written a checkpoint of the log, which
    may not be on the disk yet."""
    return None if disk is None else PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _move(log: DeltaTable, version: int) -> None:
    """To the version that was just committed, and not beyond."""
    log.update_incremental()
    if log.version() != version:
        log.load_as_version(version)


def configure(log: DeltaTable, path: str, properties: Mapping[str, str], disk: Disk | None = None) -> None:
    """Set properties of the table, where it has others.

    Raises:
        Conflict, ServiceError: as `commit`.
    """
    if properties.items() <= log.metadata().configuration.items():
        return
    version = log.version() + 1
    with writing(path):
        properties_of = CommitProperties(max_commit_retries=0)
        log.alter.set_table_properties(
            dict(properties), commit_properties=properties_of, post_commithook_properties=_after(disk)
        )
        _move(log, version)


def describe(log: DeltaTable, path: str, description: str, disk: Disk | None = None) -> None:
    """Replace the table's description.

    Raises:
        Conflict: another commit since the handle's version.
        ServiceError: the storage refused.
    """
    with writing(path):
        properties = CommitProperties(max_commit_retries=0)
        log.alter.set_table_description(
            description, commit_properties=properties, post_commithook_properties=_after(disk)
        )
        if disk is not None:
            disk.entries(log.version())


def spans(log: DeltaTable) -> list[Span]:
    """The data files in the order of their first `_seq`.

    Raises:
        TableError: another program has appended rows.
    """
    actions: Any = pa.table(log.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    wanted = ("path", f"min.{SEQ}", f"max.{SEQ}", "num_records", "size_bytes")
    columns = [actions.column(name).to_pylist() for name in wanted]
    found = [Span(*row) for row in zip(*columns, strict=True)]
    if any(span.first is None for span in found):
        raise TableError(
            f"the table has rows without {SEQ}",
            hint="another program appended to it, or its _delta_log is damaged: restore it, or ingest again",
        )
    return sorted(found, key=lambda span: span.first)


def filesystem(log: DeltaTable, path: str) -> pa_fs.FileSystem:
    """Where the paths of `spans` are read: the local directory, or whatever store the table lives in."""
    if "://" not in path:
        return pa_fs.SubTreeFileSystem(str(Path(path).absolute()), pa_fs.LocalFileSystem(use_mmap=True))
    from streamgp_data._store import Store

    handler: Any = Store.from_table(log._table)
    return pa_fs.PyFileSystem(handler)
