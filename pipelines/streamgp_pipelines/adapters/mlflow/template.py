"""An empty SQLite store as MLflow makes it, kept so that the next one is a copy.

MLflow makes a new store by running every schema change of its history, which takes longer than everything else that a
small run has to do. What comes out depends on MLflow's version alone.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path


def cache_folder() -> Path:
    """`streamgp` in the user's cache directory (XDG_CACHE_HOME, else ~/.cache)."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "streamgp"


def new_store(file: Path, make: Callable[[Path], object]) -> None:
    """Put an empty store at `file`: a copy of the kept one, or made, and then kept for the next time.

    A cache that cannot be written is not used; a kept store whose bytes have changed is made again.

    Args:
        file: does not exist yet.
        make: lets MLflow make a store there.
    """
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home
        for kept in cache_folder().glob(f"{_stem()}-*.db"):
            shutil.copyfile(kept, file)
            if _name(file) == kept.name:
                return
            kept.unlink()
    file.unlink(missing_ok=True)
    make(file)
    with suppress(OSError, RuntimeError, sqlite3.Error):
        _keep(file)


def _keep(file: Path) -> None:
    """Copy a new store into the cache, without the experiment whose artifacts MLflow puts into the working directory;
    MLflow makes that one again when it opens a store that has none."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{_stem()}.{os.getpid()}.tmp"
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(temporary)) as target:
            source.backup(target)
            target.execute("DELETE FROM experiments")
            target.commit()
            target.execute("VACUUM")
        temporary.replace(folder / _name(temporary))
    finally:
        temporary.unlink(missing_ok=True)


def _stem() -> str:
    return f"mlflow-{version('mlflow')}"


def _name(file: Path) -> str:
    """The name under which a store is kept: it carries the digest of its bytes."""
    with file.open("rb") as stream:
        return f"{_stem()}-{file_digest(stream, 'sha256').hexdigest()[:16]}.db"
