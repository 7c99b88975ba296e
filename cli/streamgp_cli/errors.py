"""What a failed command says: the error's name, its message, a hint, and the exit code."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from typing import NamedTuple

from typer.exceptions import Abort, TyperException

from streamgp_cli._log import say, structured
from streamgp_cli.signals import UNREAD

_RESOURCES = {
    "database is locked": "another program holds the database: run the same command again when it has ended",
    os.strerror(errno.EMFILE): "allow more open files (ulimit -n), and run the same command again",
}
_RESUMABLE = ("ingest", "train", "demo")
_SMALLER = {
    "ingest": "a shorter --max-line, or no --sort, needs less",
    "train": "a smaller --batch, --lags or --horizon, or --model linear, needs less",
    "compare": "a smaller --batch, --lags or --horizon, or fewer --models, need less",
    "tune": "fewer --rows, or a smaller --lags or --horizon, need less",
    "forecast": "a smaller --horizon, or fewer --paths, need less",
    "serve": "a smaller --max-body needs less",
}
"""Of a command, the options that memory goes with."""


class Failure(NamedTuple):
    """An error as it is shown to the user."""

    error: str
    message: str
    hint: str
    code: int


def explain(error: BaseException, command: str = "") -> Failure:
    """Name, message, hint and exit code of anything that a command may raise.

    Example:
        >>> from streamgp.errors import TableError
        >>> explain(TableError("t: there is no table", hint="streamgp ingest makes one"))
        Failure(error='TableError', message='t: there is no table', hint='streamgp ingest makes one', code=4)
        >>> explain(OSError(28, "No space left on device", "t/0.parquet")).code
        5
    """
    if isinstance(error, TyperException):
        return _usage(error)
    if isinstance(error, Abort):
        return Failure("Aborted", "aborted", "", 1)
    from streamgp.errors import ServiceError, StreamgpError, disk_fault

    if isinstance(error, StreamgpError):
        return Failure(type(error).__name__, error.message, error.hint, error.exit_code)
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror or error}"
        return Failure(ServiceError.__name__, message, _remedy(error.errno), ServiceError.exit_code)
    if (reason := disk_fault(error)) is not None:
        hint = _RESOURCES.get(reason, "free some space or check the permissions, and run the same command again")
        return Failure(ServiceError.__name__, reason, hint, ServiceError.exit_code)
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and "failed to map segment" in str(error)):
        hint = "; ".join(["allow more memory (ulimit -v)", *filter(None, [_SMALLER.get(command)])])
        return Failure("MemoryError", "out of memory", hint, ServiceError.exit_code)
    hint = "this is a bug in streamgp: run it again with --debug, and report the output"
    return Failure(type(error).__name__, str(error) or type(error).__name__, hint, 1)


def report(error: BaseException, *, as_json: bool, debug: bool, command: str = "") -> int:
    """Say it on standard error, as text or as one JSON document; returns the exit code."""
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return UNREAD  # whoever read our output has gone: nobody is left to tell
    from streamgp.redaction import redacted

    found = explain(error, command)
    failure = found._replace(message=redacted(found.message), hint=redacted(found.hint))
    if debug and not isinstance(error, TyperException):
        print(redacted("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    document = {"error": failure.error, "message": failure.message, "hint": failure.hint, "code": failure.code}
    if structured():
        del document["message"]
        say("error", failure.message, **document)
    elif as_json:
        print(json.dumps(document), file=sys.stderr)
    else:
        say("error", failure.message)
        if failure.hint:
            print(f"hint: {failure.hint}", file=sys.stderr)
    return failure.code


def interrupted(command: str, code: int, *, as_json: bool) -> None:
    """Say that the command was stopped, and whether it can go on."""
    hint = "the same command continues from what is saved" if command in _RESUMABLE else ""
    if structured():
        say("info", "interrupted", hint=hint, code=code)
    elif as_json:
        document = {"error": "Interrupted", "message": "interrupted", "hint": hint, "code": code}
        print(json.dumps(document), file=sys.stderr)
    else:
        print(f"interrupted: {hint}" if hint else "interrupted", file=sys.stderr)


def _usage(error: TyperException) -> Failure:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "streamgp"
    meant = _MEANT.get((path.rpartition(" ")[2], str(getattr(error, "option_name", ""))))
    if meant is not None and hasattr(error, "possibilities"):
        error.possibilities = [meant]
    hint, command = f"see: {path} --help", path.rpartition(" ")[2]
    if command != "ingest" and hasattr(error, "possibilities") and getattr(error, "option_name", None) in _OF_TABLES:
        error.possibilities = []
        hint = "it is an option of streamgp ingest, and the table that ingest makes keeps it"
    message = error.format_message()
    if message.startswith("Got unexpected extra argument"):
        hint = _BARE.get(command, hint)
    if getattr(error, "option_name", None) == "--table" and command in ("compact", "vacuum"):
        hint = f"name it without a flag: {path} TABLE"
    return Failure("UsageError", message[:1].lower() + message[1:], hint, error.exit_code)


_MEANT = {
    ("compare", "--output"): "--comparison",
    ("compare", "--directory"): "--comparison",
    ("train", "--output"): "--predictions",
}
"""What is meant by an option of other commands that a command has not."""
_OF_TABLES = (
    "--time",
    "--time-format",
    "--series",
    "--every",
    "--timezone",
    "--tolerance",
    "--lateness",
    "--duplicates",
)
"""What a table is made with."""
_BARE = dict.fromkeys(("forecast", "serve", "check", "report"), "name it with --checkpoint DIR")
_BARE |= dict.fromkeys(
    ("train", "compare", "tune"), "name it with --table DIR; of a file streamgp ingest FILE --table DIR makes one"
)
_BARE |= {"demo": "it has data of its own; with yours begin with: streamgp ingest FILE --table NAME"}
"""Of a command, what to do with the path that was given without an option."""


def _remedy(number: int) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "free some space and run the same command again: complete writes are kept"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "check the permissions, or use another path"
    if number == errno.ENOENT:
        return "check the path, and that the working directory is there"
    if number in (errno.EMFILE, errno.ENFILE):
        return _RESOURCES[os.strerror(errno.EMFILE)]
    return "check the disk, and run the same command again"
