"""Files that are on the disk when a function returns: power may fail afterwards.

A kill loses nothing that was written: the operating system has it. A power cut loses what is in its memory alone, in
any order. So a commit that is to survive one has its data files on the disk first, then the entry of the log that
names them, and only then is it reported.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def load_file(path: Path, most: int) -> bytes:
    """What a file has, where it is one: a pipe would be waited for, and a device read without end.

    Args:
        path: of the file, or of a link to it.
        most: bytes that it may have.

    Raises:
        OSError: it is no file, is larger, or cannot be read.
    """
    _check_file(os.stat(path), path, most)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(_check_file(os.fstat(file.fileno()), path, most))  # it may be another one by now


def _check_file(about: os.stat_result, path: Path, most: int) -> int:
    """The size of a file."""
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "this is no regular file", str(path))
    if about.st_size > most:
        raise OSError(errno.EFBIG, f"{about.st_size:,} bytes are more than the {most:,} that can be read", str(path))
    return about.st_size


def memory_at_hand() -> int:
    """Bytes that this process can still take: of the machine, of its control group and of its own limit."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    memory = _said("/proc/meminfo")
    if available := re.search(r"MemAvailable:\s+(\d+) kB", memory):
        found.append(int(available[1]) * 1024)
    group, used = _said("/sys/fs/cgroup/memory.max").strip(), _said("/sys/fs/cgroup/memory.current").strip()
    if group.isdigit() and used.isdigit():
        found.append(int(group) - int(used))
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY:
        found.append(soft)
    return max(min(found), 0)


def _said(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


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
        lost would take all after it along.

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
