"""Files that are on the disk when a function returns: power may fail behind it.

A kill loses nothing that was written: the operating system has it. A power cut loses what is in its memory alone, in
any order. So a commit that is to survive one has its data files on the disk first, then the entry of the log that
names them, and only then is it reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def store_file(path: Path, data: bytes) -> None:
    """Write a file through to the disk. Its name is there after `sync` of its directory."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Bring to the disk the bytes of a file, or the names in a directory: files made, renamed and removed.

    Raises:
        OSError: the disk refused.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_above(path: Path) -> None:
    """See that the names of a folder, and of those above it on its file system, are on the disk.

    Raises:
        OSError: the disk refused.
    """
    here = path.stat().st_dev
    for one in (path, *path.parents):
        try:
            if one.stat().st_dev != here:
                return
            sync(one)
        except PermissionError:  # of another user, who had it before
            return


class Disk:
    """What of a local table is on the disk.

    Args:
        table: its directory.
    """

    def __init__(self, table: Path) -> None:
        self.table, self.log = table, table / "_delta_log"
        self._synced, self._files = -1, set[str]()

    def entries(self, last: int) -> None:
        """See that the entries of the log up to a version are there, also those of other writers: an entry that is
        lost would take all behind it along.

        Raises:
            OSError: the disk refused.
        """
        there = [name for name in os.listdir(self.log) if name.endswith(".json") and name[:-5].isdigit()]
        for name in sorted(there):
            if self._synced < int(name[:-5]) <= last:
                sync(self.log / name)
        sync(self.log)
        self._synced = last

    def files(self, names: Iterable[str]) -> None:
        """See that data files are there. One that was merged meanwhile is not needed any more.

        Raises:
            OSError: the disk refused.
        """
        wanted = set(names)
        for name in wanted - self._files:
            with suppress(FileNotFoundError):
                sync(self.table / name)
        sync(self.table)
        self._files = wanted

    def checkpoint(self, version: int) -> None:
        """See that a checkpoint of the log is there.

        Raises:
            OSError: the disk refused.
        """
        for name in (f"{version:020d}.checkpoint.parquet", "_last_checkpoint"):
            sync(self.log / name)
        sync(self.log)
