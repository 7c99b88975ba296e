"""Files that are on the disk when a function returns: power may fail behind it."""

from __future__ import annotations

import os
from pathlib import Path


def store_file(path: Path, data: bytes) -> None:
    """Write a file through to the disk. Its name is there after `sync_directory` of its directory."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Bring the names in a directory to the disk: files made, renamed and removed."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
