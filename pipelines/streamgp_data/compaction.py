"""Many small commits leave many small files: merged, a table is read as quickly as one of few large commits.

Rows keep their `_seq`, so that readers, positions and marks stay as they are, and a merged file has the digest of its
bytes in its name as every other one. The newest files are merged, and with them older ones as long as one has no more
rows than all after it: a row is rewritten O(log n) times, and n commits leave O(log n) files.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as pa_fs
from deltalake.transaction import AddAction

from streamgp.errors import ServiceError
from streamgp_data import delta
from streamgp_data.delta import Conflict, Span
from streamgp_data.parts import cause, digest_in
from streamgp_data.scan import scan
from streamgp_data.table import Table

EVERY = 64
"""Commits from one merge to the next."""

LARGE = 32 << 20
"""Bytes that a merge reads at most; a file of as many is left as it is."""

KEPT = 3600
"""Seconds that files stay after they were merged: for readers of an older version."""

PROPERTIES = {
    "delta.deletedFileRetentionDuration": f"interval {KEPT} seconds",
    "delta.logRetentionDuration": "interval 2 minutes",  # each look lists all entries: 9 ms for a thousand
    "delta.checkpointInterval": "32",  # and reads those since the last checkpoint
}
"""Of a log with many small commits."""


PATIENCE = 100
"""Conflicts in a row after which `compact` gives up."""

FRESH = 60
"""Seconds that a file which no commit names yet is sure to stay: `vacuum` leaves those of the last minutes."""

_HALF = re.compile(r"part-\d+-[0-9a-f]+\.parquet\.\d+\.tmp")


class Compaction:
    """Merges the small files of a table that this process appends to.

    Args:
        table: its handle; it moves with every merge, as with a commit.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._commits, self._swept = 0, time.monotonic()

    def committed(self) -> None:
        """Count a commit; every EVERY of them files are merged. If others have written, it is left to the next time.

        Raises:
            TableError: a file is damaged.
            ServiceError: the storage refused.
        """
        self._commits += 1
        if self._commits % EVERY:
            return
        with suppress(Conflict):  # others wrote: the handle stays at the version that its owner knows
            delta.configure(self.table.log, self.table.path, PROPERTIES, self.table.disk)
            self._merge()
        pa.default_memory_pool().release_unused()  # what Arrow would keep of the merge
        if "://" not in self.table.path and time.monotonic() - self._swept > KEPT / 4:
            self._sweep()
            self._swept = time.monotonic()

    def tidy(self) -> None:
        """Merge the small files until few are left. If others write meanwhile, they go first.

        Raises:
            TableError, ServiceError: as `committed`.
        """
        while len(before := delta.spans(self.table.log)) > 1 and due(before):
            try:
                delta.configure(self.table.log, self.table.path, PROPERTIES, self.table.disk)
                self._merge()
            except Conflict:
                self.table.refresh()
                continue
            if len(delta.spans(self.table.log)) >= len(before):
                return

    def compact(self) -> None:
        """Merge all small files. If others write meanwhile, they go first, and it commits what it has merged after
        them: writing it again, it would be late again.

        Raises:
            TableError, ServiceError: as `committed`.
        """
        table, missed = self.table, 0
        files, made, wrote = list[Span](), list[AddAction](), 0.0
        while found := groups(there := delta.spans(table.log)):
            try:
                delta.configure(table.log, table.path, PROPERTIES, table.disk)
                if not made or not set(files) <= set(there) or time.monotonic() - wrote > FRESH:
                    files, wrote = found[0], time.monotonic()
                    made = self._written(files)
                delta.merge(table.log, table.path, files, made, table.disk)
                made, missed = [], 0
            except Conflict:
                missed += 1
                if missed > PATIENCE:
                    raise ServiceError(
                        f"table {self.table.path}: others commit too often to merge its files",
                        hint="what was merged stays so; run the same command again, when less is written",
                    ) from None
                self.table.refresh()

    def _merge(self) -> None:
        files = due(delta.spans(self.table.log))
        if files:
            delta.merge(self.table.log, self.table.path, files, self._written(files), self.table.disk)

    def _written(self, files: Sequence[Span]) -> list[AddAction]:
        """The rows of files as new ones, that no commit names yet."""
        table = self.table
        first, stop = files[0].first, files[-1].last + 1
        batches = scan(table.log, table.path, first, stop, None, 1 << 16, table.verified)
        rows = pa.Table.from_batches(batches, table.stored)
        return delta.write_merged(table.log, table.path, rows, table.disk)

    def _sweep(self) -> None:
        remove(self.table, leftovers(self.table))


class Left(NamedTuple):
    """A file that is not needed any more: its name in the table, and its bytes."""

    name: str
    size: int


def leftovers(table: Table, keep: float | None = None) -> list[Left]:
    """Files of ours that no row of the newest version is read from: merged ones, and those that a killed writer never
    committed or wrote by half. Those of the last `keep` seconds, by default KEPT, stay:
    they may be in use.

    A merged file is not needed since the file was written that has its rows now.

    Raises:
        TableError: the log cannot be read.
        ServiceError: the store does not answer.
    """
    spans = delta.spans(table.log)
    named, firsts = {span.path for span in spans}, [span.first for span in spans]
    store = delta.filesystem(table.log, table.path)
    try:
        files = [one for one in store.get_file_info(pa_fs.FileSelector("")) if one.is_file]
    except OSError as error:
        raise ServiceError(
            f"table {table.path} cannot be listed: {cause(error)}", hint="does the store answer?"
        ) from None
    written = {one.path: (one.mtime_ns or 0) / 1e9 for one in files}
    found, latest = [], time.time() - (KEPT if keep is None else keep)
    for one in files:
        half = _HALF.fullmatch(one.path) is not None
        if not half and (digest_in(one.path) is None or one.path in named):
            continue
        at = bisect_right(firsts, int(one.path.split("-")[1])) - 1
        heir = (
            0.0 if half or at < 0 or spans[at].last < int(one.path.split("-")[1]) else written.get(spans[at].path, 0.0)
        )
        if max(written[one.path], heir) < latest:
            found.append(Left(one.path, one.size))
    return found


def remove(table: Table, files: Sequence[Left]) -> None:
    """Delete leftovers; another process may do so too.

    Raises:
        ServiceError: the storage refused; those before it are deleted.
    """
    store = delta.filesystem(table.log, table.path)
    for one in files:
        try:
            store.delete_file(one.name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ServiceError(
                f"table {table.path}: {one.name} cannot be deleted: {cause(error)}", hint="may you write there?"
            ) from None


def groups(files: Sequence[Span]) -> list[list[Span]]:
    """Small neighbours that together have at most LARGE bytes: each list is to be one file.

    Example:
        >>> files = [Span(str(row), row, row, 1, 900) for row in range(3)] + [Span("b", 3, 99, 97, LARGE)]
        >>> [[file.path for file in group] for group in groups(files)]
        [['0', '1', '2']]
    """
    found: list[list[Span]] = [[]]
    for file in files:
        group = found[-1]
        small = file.size < LARGE // 2 and file.last - file.first + 1 == file.rows
        fits = small and (not group or group[-1].last + 1 == file.first)
        if not fits or sum(one.size for one in group) + file.size > LARGE:
            found.append([])
        if small:
            found[-1].append(file)
    return [group for group in found if len(group) > 1]


def due(files: Sequence[Span]) -> list[Span]:
    """The newest files, which are to be one, in their order; none where there is nothing to gain.

    Example:
        >>> ones = [Span(str(row), row, row, 1, 900) for row in range(100, 100 + EVERY)]
        >>> len(due([Span("a", 0, 99, 100, 900), *ones])), len(due([Span("b", 36, 99, EVERY, 900), *ones]))
        (64, 65)
    """
    found: list[Span] = []
    rows = size = 0
    for file in reversed(files):
        size += file.size
        if size > LARGE or (len(found) >= EVERY and file.rows > rows):
            break
        found.append(file)
        rows += file.rows
    found.reverse()
    whole = len(found) > 1 and found[-1].last - found[0].first + 1 == rows  # another program may pack rows otherwise
    return found if whole else []
