"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamgp.errors import ServiceError, UsageError


def check_writable(path: Path, flag: str) -> None:
    """See, before the work that leads to it, that a file can be written to its folder; nothing is written.

    Raises:
        UsageError: the path is a folder, or in none; the message names the flag.
        ServiceError: it may not be written.
    """
    if path.is_dir():
        raise UsageError(f"{flag} {path} is a folder", hint=f"name a file in it, such as {path / 'tuned.json'}")
    if not path.parent.is_dir():
        raise UsageError(
            f"{flag} {path} cannot be written: there is no folder {path.parent}", hint="make it, or name another file"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ServiceError(
            f"{path} cannot be written: Permission denied", hint="name a file in a folder that you may write to"
        )


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; on success it takes the place of `path`, else it is removed.

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
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServiceError(f"{path} cannot be written: {reason}", hint="is there room, and may you write?") from None
    finally:
        if temporary.exists():
            temporary.unlink()
