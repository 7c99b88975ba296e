"""What SIGINT, SIGTERM and SIGHUP do, from the first moment of the process on.

Before a command has begun its work there is nothing to put in order: the process ends at once, in whatever import it
is, because an exception inside an import is swallowed or printed by many a library. From `working()` on a signal is a
KeyboardInterrupt, so that files, locks and the tracked run are put in order; if a library swallows that one too, the
signal is still known, and decides the exit code.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # 130, 143
HUNG_UP = 128 + signal.SIGHUP  # 129: the terminal was closed
UNREAD = 128 + signal.SIGPIPE  # 141: the reader of what is printed has gone, such as head

_state: dict[str, Any] = {"received": None, "graceful": False, "command": ""}


def install() -> None:
    """Take SIGINT, SIGTERM and, unless `nohup` has it ignored, SIGHUP; for the process of the installed script, which
    ends with the exit code of the signal."""
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _stop)
    sys.unraisablehook = _unraisable


def working() -> None:
    """From now on an interrupted command puts its things in order first."""
    _state["graceful"] = True


def done() -> None:
    """From now on there is nothing left to put in order."""
    _state["graceful"] = False


def finished() -> None:
    """The command has succeeded: a signal while the interpreter shuts down does not change its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def received() -> int | None:
    """The exit code of the signal that came, or None."""
    number = _state["received"]
    return None if number is None else 128 + number


def _stop(number: int, frame: FrameType | None) -> None:
    _state["received"] = number
    if _state["graceful"]:
        raise KeyboardInterrupt
    os.write(2, b'{"error": "Interrupted", "message": "interrupted", "hint": "", "code": %d}\n' % (128 + number)
             if "--json" in sys.argv else b"interrupted\n")  # fmt: skip
    os._exit(128 + number)


def _unraisable(what: Any) -> None:
    """An interruption that came where Python cannot raise it (in a finaliser) comes again a moment later."""
    number = _state["received"]
    if issubclass(what.exc_type, KeyboardInterrupt) and number is not None:
        signal.signal(signal.SIGALRM, lambda _, frame: _stop(number, frame))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        return
    sys.__unraisablehook__(what)
