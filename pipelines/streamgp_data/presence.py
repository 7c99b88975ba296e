"""Whether a table, a checkpoint or a file is where the user says, seen without the libraries that read them.

A URL is not asked here: what opens it says that nothing is there.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path

from streamgp.errors import CheckpointError, DataError, TableError, UsageError
from streamgp_data.remote import shown

NAME = re.compile(r"(\d{12})(?:-(\d+))?")
"""Of a checkpoint in its home."""


def check_table(path: str) -> None:
    """See that a directory holds a table.

    Raises:
        TableError: it holds none.

    Example:
        >>> check_table("/nowhere")
        Traceback (most recent call last):
        streamgp.errors.TableError: /nowhere is not a table
    """
    if "://" not in path and not (Path(path) / "_delta_log").is_dir():
        raise no_table(str(Path(path).absolute()))


def check_checkpoint(directory: Path) -> None:
    """See that a directory is a checkpoint, or the home of some.

    Raises:
        CheckpointError: it is neither.
    """
    if shown(directory) == str(directory) and not (directory / "state.json").is_file() and not homed(directory):
        raise no_checkpoint(directory)


def check_sources(names: Iterable[str]) -> None:
    """See that files, directories and globs stand for something; "-" does.

    Raises:
        DataError: one stands for nothing.
    """
    for name in names:
        if name != "-" and "://" not in name and not Path(name).exists() and not glob.glob(name, recursive=True):
            raise no_source(name)


def check_file(path: Path, flag: str) -> None:
    """See that there is a file; `flag` named it.

    Raises:
        UsageError: there is none.
    """
    if not path.is_file():
        raise UsageError(f"{flag} {path}: there is no such file", hint="check the path")


def homed(directory: Path) -> list[Path]:
    """The checkpoints of a home, in no order."""
    return [path for path in directory.iterdir() if NAME.fullmatch(path.name)] if directory.is_dir() else []


def no_table(uri: str) -> TableError:
    """What is said of a place without a table."""
    return TableError(f"{uri} is not a table", hint=f"make one: streamgp ingest SOURCE... --table {uri}")


def no_checkpoint(directory: Path) -> CheckpointError:
    """What is said of a place without a checkpoint."""
    hint = "streamgp train --checkpoint DIR writes one"
    return CheckpointError(f"there is no checkpoint in {shown(directory)}", hint=hint)


def no_source(name: str) -> DataError:
    """What is said of a name that stands for no file."""
    return DataError(f"{name}: there is no such file", hint="name a file, a directory, a glob in quotes, or -")
