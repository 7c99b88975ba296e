"""Many small commits leave many small files: merged, a table is read as quickly as one of few large commits.

Rows keep their `_seq`, so that readers, positions and marks stay as they are, and a merged file has the digest of its
bytes in its name as every other one. The newest files are merged, and with them older ones as long as one has no more
rows than all behind it: a row is rewritten O(log n) times, and n commits leave O(log n) files.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from streamgp.streaming import delta
from streamgp.streaming.delta import Conflict, Span
from streamgp.streaming.parts import digest_in
from streamgp.streaming.scan import scan
from streamgp.streaming.table import Table

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
        with suppress(Conflict):  # the handle stays behind what others wrote, of which its owner knows nothing yet
            delta.configure(self.table.log, self.table.path, PROPERTIES)
            self._merge()
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
                delta.configure(self.table.log, self.table.path, PROPERTIES)
                self._merge()
            except Conflict:
                self.table.refresh()
                continue
            if len(delta.spans(self.table.log)) >= len(before):
                return

    def _merge(self) -> None:
        table = self.table
        files = due(delta.spans(table.log))
        if not files:
            return
        first, stop = files[0].first, files[-1].last + 1
        batches = scan(table.log, table.path, first, stop, None, 1 << 16, table.verified)
        delta.merge(table.log, table.path, files, pa.Table.from_batches(batches, table.stored))
        if "://" not in table.path:
            for file in files:
                os.utime(Path(table.path) / file.path)  # since when it is not needed

    def _sweep(self) -> None:
        for path in leftovers(self.table):
            with suppress(FileNotFoundError):  # another process sweeps too
                path.unlink()


def leftovers(table: Table) -> list[Path]:
    """Files of ours in a local table that no version names any more, also those that a killed writer never committed
    or wrote by half; not those of the last hour, which may be in use.

    Raises:
        TableError: the log cannot be read.
    """
    named = {span.path for span in delta.spans(table.log)}
    found = []
    with os.scandir(table.path) as entries:
        for entry in entries:
            half = _HALF.fullmatch(entry.name)
            ours = half is not None or (digest_in(entry.name) is not None and entry.name not in named)
            if ours and entry.stat().st_mtime < time.time() - KEPT:
                found.append(Path(entry.path))
    return found


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
