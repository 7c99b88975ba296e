"""Processes that streamgp starts for a file, run in this process: start-up and imports cost a hundred times a case.

Both ends of the pipe stay as they are: `main` of the module, which reads the file and writes what it found, and who
reads that. Only the process between them is left out, with its limits of memory and time, which the benchmark sets.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import _fuzz
from _fuzz import Found, one


class _Here:
    """In place of a process that `reading.process.started` gives: `main` has come to its end, its output is kept."""

    raised = ""
    """What came out of `main`, which turns all that a library raises into a report."""

    def __init__(self, module: str, *words: str) -> None:
        out, before = io.BytesIO(), sys.stdout
        sys.stdout = SimpleNamespace(buffer=out)  # type: ignore[assignment]
        try:
            importlib.import_module(module).main(*words)
        except BaseException as error:
            _Here.raised = f"{type(error).__name__}: {error}"[:300]
        finally:
            sys.stdout = before
        self.stdout, self.returncode = io.BytesIO(out.getvalue()), 0

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to be waited for."""

    def communicate(self, timeout: float) -> tuple[bytes, None]:
        return self.stdout.read(), None

    def kill(self) -> None:
        """It has ended."""


def here(read: Callable[..., Found]) -> Callable[..., Found]:
    """As `read`, but without processes, unless files are ingested or `_fuzz.APART`; what `main` raises is a fault."""
    if _fuzz.INGESTED or _fuzz.APART:
        return read
    from streamgp_data.reading import workbook
    from streamgp_data.recordings import apart

    for module in (apart, workbook):
        changed: Any = module
        changed.started, changed.limit_memory, changed.end_in = _Here, _nothing, _nothing
    changed = apart
    changed.Timer = _NoTimer

    def check(*words: Any) -> Found:
        _Here.raised = ""
        found = read(*words)
        return one("raised", f"behind the pipe: {_Here.raised}") if _Here.raised else found

    return check


class _NoTimer:
    """In place of the thread that ends a process which says nothing."""

    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        """Nothing is waited for: all is said."""

    cancel = start


def _nothing(_: object) -> None:
    """The benchmark's own limits hold."""
