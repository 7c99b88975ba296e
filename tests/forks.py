"""Recordings that are read in a fork of this process, as another one takes half a second to start."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from types import TracebackType
from typing import Self


class Fork:
    """In the place of `streamgp_data.reading.process.started`; memory has no limit.

    Args:
        module: whose `main` is called. words: what it is given.
    """

    def __init__(self, module: str, *words: str) -> None:
        reads, writes = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _run(module, words, writes)
        os.close(writes)
        self.stdout = os.fdopen(reads, "rb")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stdout.close()
        os.waitpid(self.pid, 0)


def _run(module: str, words: tuple[str, ...], writes: int) -> None:
    """Never returns."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.dup2(writes, 1)
        with open(os.devnull, "w") as sys.stderr, os.fdopen(1, "w") as sys.stdout:
            reader = importlib.import_module(module)
            reader.limit_memory = lambda _: None  # type: ignore[attr-defined]
            reader.main(*words)
    finally:
        os._exit(0)
