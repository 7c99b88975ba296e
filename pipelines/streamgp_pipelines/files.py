"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from streamgp.errors import ServiceError, UsageError, disk_fault
from streamgp_data.disk import sync, sync_above


def check_writable(path: Path, flag: str, suffixes: Sequence[str] = (), make: bool = False) -> None:
    """See, before the work that leads to it, that a file can be written to its folder; nothing is written.

    Args:
        path: of the file, which may be there.
        flag: that named it, for messages.
        suffixes: those that it may have; all, where none are named.
        make: whether folders that are not there will be made.

    Raises:
        UsageError: the path is a folder, a device or a pipe, is in no folder, or has another suffix.
        ServiceError: it may not be written.
    """
    if path.is_dir():
        raise UsageError(f"{flag} {path} is a folder", hint=f"name a file in it, such as {path / 'file'}{path.suffix}")
    if path.exists() and not path.is_file():
        raise UsageError(f"{flag} {path} is a device or a pipe, and would be replaced by a file", hint="name a file")
    if suffixes and path.suffix not in suffixes:
        which = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise UsageError(f"{flag} {path}: it is written as {which}", hint=f"name it {path.stem}{suffixes[0]}")
    folder = path.parent
    while make and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(
            f"{flag} {path} cannot be written: there is no folder {folder}", hint="make it, or name another file"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ServiceError(
            f"{path} cannot be written: Permission denied", hint="name a file in a folder that you may write to"
        )


@contextmanager
def replaced(path: Path, durable: bool = False) -> Iterator[Path]:
    """A temporary path beside `path` to write to; on success it takes the place of `path`, else it is removed. With
    `durable` it is on the disk then.

    Raises:
        ServiceError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with replaced(target) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            sync(temporary)
        os.replace(temporary, path)
        if durable:
            sync_above(path.parent)
    except Exception as error:
        reason = disk_fault(error)
        if reason is None:
            raise
        raise ServiceError(f"{path} cannot be written: {reason}", hint="is there room, and may you write?") from None
    finally:
        if temporary.exists():
            temporary.unlink()
