"""What a command says on standard error: lines for people, or with `--log json` a JSON document a line."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

Level = Literal["info", "note", "warning", "error"]
_state = {"structured": False, "command": ""}


def begin(words: Sequence[str]) -> None:
    """Take the form from a command line, or from STREAMGP_LOG.

    Raises:
        UsageError: STREAMGP_LOG is none.

    Example:
        >>> begin(["train", "--log", "json"])
        >>> structured()
        True
        >>> begin([])
    """
    given = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--log"]
    given += [word.removeprefix("--log=") for word in words if word.startswith("--log=")]
    form = given[-1] if given else os.environ.get("STREAMGP_LOG", "text")
    if not given and form not in ("text", "json"):
        from streamgp.errors import UsageError

        raise UsageError(f"STREAMGP_LOG={form}: lines are text or json", hint="leave it out for text")
    _state.update(structured=form == "json", command=words[0] if words else "")
    logger = logging.getLogger("streamgp")
    if not any(isinstance(handler, _Ours) for handler in logger.handlers):
        logger.addHandler(_Ours())
        logger.propagate = False


class _Ours(logging.Handler):
    """Says what the packages log."""

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "info" if record.levelno < logging.WARNING else "warning"
        say("error" if record.levelno >= logging.ERROR else level, record.getMessage())


def structured() -> bool:
    """Whether lines are JSON documents."""
    return bool(_state["structured"])


def say(level: Level, text: str, **fields: Any) -> None:
    """Write one line. text: what people read; fields: what the document has beside time, level, command and message."""
    line = text
    if structured():
        about = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level}
        line = json.dumps(about | {"command": _state["command"], "message": text} | fields, default=str)
    elif level != "info":
        line = f"{level}: {text}"
    from streamgp.redaction import redacted

    print(redacted(line), file=sys.stderr, flush=True)
