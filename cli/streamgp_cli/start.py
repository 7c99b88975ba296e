"""The entry point of the installed script: it takes the signals before anything else is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn, TextIO, cast

from streamgp_cli import _lean, _memory, signals


def main() -> NoReturn:
    """Run the command line of this process.

    A process that has caught an error of the Delta library can abort while the interpreter shuts down, which would
    spoil the exit code: so after an error everything is flushed, and the process ends at once.
    """
    _open_standard_streams()
    sys.stderr = cast("TextIO", _Discreet(sys.stderr))
    signals.install()
    _lean.own_this_process()
    _memory.spend()
    try:
        from streamgp_cli.app import app

        app()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:  # a second one, while the first was seen to
        code = signals.received() or signals.INTERRUPTED
    signals.done()
    code = signals.received() or code  # also where a library has swallowed the interruption
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader of our pipe has gone
            code = code or signals.UNREAD
    if code:
        os._exit(code)
    signals.finished()
    _memory.leave()
    raise SystemExit(0)


class _Discreet:
    """Standard error without the secrets of URLs, whatever library writes there: a warning, a log, a traceback.

    Args:
        stream: to write to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text."""
        if ":/" in text:
            from streamgp.redaction import redacted

            text = redacted(text)
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _open_standard_streams() -> None:
    """Where standard input, output or error is closed, have it lead nowhere: a file that is opened would take its
    place, and what is printed would go into that."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  open until the end
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
