"""The exceptions of streamgp, with the exit code that each ends a command with.

    StreamgpError                     never raised itself
    ├── UsageError               2    the command line or a configuration asks for something impossible
    ├── DataError                3    input that cannot be taken: it names the file, line, column and a remedy
    │   └── SchemaError          3    input whose columns or types do not fit the table
    ├── StateError               4    a checkpoint or a table that does not fit what is asked of it
    │   ├── CheckpointError      4    a checkpoint that is damaged, or that another configuration wrote
    │   └── TableError           4    a table that is missing, damaged, or changed under its reader
    ├── NumericalError           3    the mathematics could not go on with the data it was given
    │   └── NotPositiveDefinite  3    a Cholesky factorisation failed at the largest jitter
    └── ServiceError             5    something outside answered wrongly or not at all (tracking server, disk)

Every error carries a `hint`: one sentence that says what to try next. Messages name flags, such as --lags; the Python
API says them with its own arguments.

Example:
    >>> error = DataError("a.csv, line 3, column 'y': 'abc' is not a number", hint="declare it with --null abc")
    >>> error.exit_code, error.hint
    (3, 'declare it with --null abc')
"""

from __future__ import annotations

import os
import re
from typing import ClassVar

from streamgp.redaction import redacted


class StreamgpError(Exception):
    """Root of the tree; `exit_code` is what the command line ends with.

    Args:
        message: what is wrong.
        hint: what to try next.
        python: the hint for one who calls from Python, where that is more than the hint with other names of options.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", python: str = "") -> None:
        self.message, self.hint, self.python = redacted(message), redacted(hint), redacted(python)
        super().__init__(self.message)


class UsageError(StreamgpError):
    """The command line or a configuration asks for something impossible."""

    exit_code = 2


class DataError(StreamgpError):
    """Input that cannot be taken."""

    exit_code = 3


class SchemaError(DataError):
    """Input whose columns or types do not fit the table."""


class NumericalError(StreamgpError):
    """The mathematics could not go on with the data it was given."""

    exit_code = 3


class NotPositiveDefinite(NumericalError):
    """A Cholesky factorisation failed at the largest jitter."""


class StateError(StreamgpError):
    """A checkpoint or a table that does not fit what is asked of it."""

    exit_code = 4


class CheckpointError(StateError):
    """A checkpoint that is damaged, or that another configuration wrote."""


class TableError(StateError):
    """A table that is missing, damaged, or changed under its reader."""


class ServiceError(StreamgpError):
    """Something outside answered wrongly or not at all."""

    exit_code = 5


class StreamgpWarning(UserWarning):
    """What should be known of the data, the model or the forecast; nothing was refused."""


def disk_fault(error: BaseException) -> str | None:
    """What the operating system said, where it refused a file; libraries in Rust and databases wrap it.

    Example:
        >>> disk_fault(OSError(28, "No space left on device"))
        'No space left on device'
        >>> disk_fault(ValueError("parquet: underlying IO error: File too large (os error 27)"))
        'File too large'
        >>> disk_fault(ValueError("disk")) is None
        True
    """
    if isinstance(error, OSError):
        return error.strerror or str(error)
    found = re.search(r"\(os error (\d+)\)|Os \{ code: (\d+)", str(error))
    if found:
        return os.strerror(int(found[1] or found[2]))
    reason = re.search(
        r"database or disk is full|database is locked|disk I/O error|attempt to write a readonly database", str(error)
    )
    return None if reason is None else reason[0]
