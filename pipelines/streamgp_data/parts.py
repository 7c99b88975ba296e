"""Data files that carry the digest of their bytes in their name, so that damage is an error and never a number.

A file is called `part-<first _seq>-<128 bits of its SHA-256>.parquet`. The name is in the log, survives the log's
checkpoints, copies and moves, and needs no store beside it. Files with other names (a compaction by another program)
carry no digest and are read as they are.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import file_digest, sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from streamgp.errors import ServiceError, TableError
from streamgp_data.disk import Disk, sync

_REFUSED = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE)
SEQ = "_seq"
LENGTH = 32
"""Hexadecimal digits of the digest in a name: 128 bits of SHA-256."""

MOST_BYTES = 128 << 20
"""Arrow bytes of one file: what is written is held in memory once, as Parquet."""

STATISTICS = 32
"""Columns with statistics in the log, as Delta Lake has it."""

_MILLISECOND = timedelta(milliseconds=1)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_PLACE = re.compile(r"at \S+:\d+:\d+|\d+: \S+")  # in a library, after the error itself
_REPLY = re.compile(r"<Message>(.*?)</Message>")  # of a store that speaks S3
_NAME = re.compile(rf"(?:.*/)?part-\d+-([0-9a-f]{{{LENGTH}}})\.parquet")


def digest_in(name: str) -> str | None:
    """The digest that a file's name carries, or None.

    Example:
        >>> digest_in("part-000000000000-" + 32 * "a" + ".parquet") == 32 * "a"
        True
        >>> digest_in("part-00000-d7bfba4c-e0fa-4d73-9b18-7d8155b20eaf-c000.snappy.parquet")
    """
    found = _NAME.fullmatch(name)
    return None if found is None else found[1]


def write_parts(
    store: pa_fs.FileSystem, rows: pa.Table, data_change: bool = True, disk: Disk | None = None
) -> list[AddAction]:
    """Write `rows`, whose first column is `_seq`, as files that no commit names yet; without `data_change` the table
    has these rows already. With `disk` they are there when this returns.

    The same rows under the same `_seq` are the same file: what a killed writer left is written over, by whole files.

    Raises:
        OSError: the storage refused.
    """
    count = -(-max(rows.nbytes, 1) // MOST_BYTES)
    size = max(-(-rows.num_rows // count), 1)
    actions = [_write(store, rows.slice(at, size), data_change, disk) for at in range(0, rows.num_rows, size)]
    if disk is not None:
        sync(disk.table)
    return actions


def _write(store: pa_fs.FileSystem, rows: pa.Table, data_change: bool, disk: Disk | None) -> AddAction:
    """Snappy, and no dictionaries, which cost most of the time of writing measurements."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="snappy", use_dictionary=False)
    whole = sink.getvalue()
    name = f"part-{rows.column(SEQ)[0].as_py():012d}-{sha256(whole).hexdigest()[:LENGTH]}.parquet"
    local = isinstance(store, pa_fs.SubTreeFileSystem)
    place = f"{name}.{time.time_ns()}.tmp" if local else name  # an object store shows an object when it is whole
    try:
        with store.open_output_stream(place) as stream:
            stream.write(whole)
        if disk is not None:
            sync(disk.table / place)
    except OSError:
        if local and store.get_file_info(place).type != pa_fs.FileType.NotFound:
            store.delete_file(place)
        raise
    if local:
        store.move(place, name)
    return AddAction(name, whole.size, {}, int(time.time() * 1000), data_change, json.dumps(_statistics(rows)))


def _statistics(rows: pa.Table) -> dict[str, Any]:
    """What Delta Lake readers use to skip files: nulls of the first columns, and the range of numbers and instants.

    Instants are in milliseconds, the least rounded down and the largest up.
    """
    first = rows.schema.names[:STATISTICS]
    found: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}}
    found["nullCount"] = {name: rows.column(name).null_count for name in first}
    for name in first:
        column = rows.column(name)
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind)):
            continue
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        ends: Any = pc.min_max(column).as_py()
        low, high = ends["min"], ends["max"]
        if low is not None and pa.types.is_timestamp(kind) and max(-low, high) > _BEYOND:
            continue
        if low is None or not (math.isfinite(low) and math.isfinite(high)):
            continue
        if pa.types.is_timestamp(kind):
            low, high = (_instant(value, kind.tz is not None) for value in (low // 1000, -(-high // 1000)))
        found["minValues"][name], found["maxValues"][name] = low, high
    return found


_BEYOND = 62_000_000_000_000_000
"""Microseconds from 1970, close to 2,000 years, beyond which there are no statistics: a calendar may not have them."""


def _instant(milliseconds: int, zoned: bool) -> str:
    """A time of Delta Lake's statistics, as delta-rs writes it."""
    moment = datetime.fromtimestamp(0, UTC) + _MILLISECOND * milliseconds
    text = moment.strftime("%Y-%m-%dT%H:%M:%S." if zoned else "%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}"
    return text + ("Z" if zoned else "")


class Verified:
    """The files that a reader has found whole: each is hashed at the first read, and when it was rewritten."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._known: dict[str, tuple[int | None, int | None]] = {}

    def forget_others(self, names: Iterable[str]) -> None:
        """Let go of what is known of files that are not among these."""
        kept = set(names)
        self._known = {name: stamp for name, stamp in self._known.items() if name in kept}

    def check(self, store: pa_fs.FileSystem, name: str) -> None:
        """See that a file has the bytes that its name promises; nothing where the name promises none.

        Raises:
            FileNotFoundError: it is gone.
            TableError: it is damaged; the message names it.
            ServiceError: the store that it is in does not answer.
        """
        digest = digest_in(name)
        if digest is None:
            return
        info = store.get_file_info(name)
        if info.type == pa_fs.FileType.NotFound:
            raise FileNotFoundError(name)
        stamp = (info.size, info.mtime_ns)
        if self._known.get(name) == stamp:
            return
        try:
            with store.open_input_stream(name) as stream:
                found = file_digest(stream, "sha256").hexdigest()[:LENGTH]
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unreadable(self._table, name, error) from None
        if found != digest:
            raise damaged(self._table, name, "is damaged: its bytes do not have the digest in its name")
        self._known[name] = stamp


def damaged(table: str, name: str, what: str) -> TableError:
    """The error that names the file."""
    return TableError(
        f"table {table}: the file {name} {what}",
        hint="bring this file back from a copy, or ingest the sources into a new table",
    )


def unreadable(table: str, name: str, error: Exception) -> TableError | ServiceError:
    """The error that names the file: of a store that does not answer, of a file that may not be read, or else of a
    damaged one."""
    if isinstance(error, OSError) and error.errno in _REFUSED:
        return ServiceError(
            f"table {table}: the file {name} cannot be read: {os.strerror(error.errno)}",
            hint="the file itself may be whole: give permission, and run the same command again",
        )
    if "://" in table and isinstance(error, OSError):
        return ServiceError(
            f"table {table}: the file {name} cannot be read: {cause(error)}",
            hint="does the store answer? run the same command again",
        )
    return damaged(table, name, f"cannot be read: {cause(error)}")


def cause(error: BaseException) -> str:
    """What failed, and the innermost reason, of an error that a store gave as a chain of lines."""
    text = _COLOUR.sub("", str(error)).partition(": ParsedLogPath")[0]  # what follows is the library's own structure
    lines = [line.strip(" ↳") for line in text.splitlines()]
    reasons = [line for line in lines if line and not _PLACE.fullmatch(line)] or [type(error).__name__]
    if reply := _REPLY.search(reasons[-1]):
        return f"{reasons[0]}: {reply[1]}"
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]}: {reasons[-1]}"
