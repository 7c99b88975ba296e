"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamgp.errors import ServiceError


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
