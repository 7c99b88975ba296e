"""Runs that are killed: in processes of their own (`tests.forked`)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forked import Forked, call


@dataclass(frozen=True)
class Crash:
    """The process dies (SIGKILL, its own) at the `count`-th call of `function` in `module`, before or after it.

    `function` may be dotted: a method of a class. Where it is a context manager's, "after" is its entry.
    """

    module: str
    function: str
    count: int
    after: bool = False

    def arm(self) -> None:
        """Put the mine in place; only ever in a process that may die."""
        import importlib

        owner: Any = importlib.import_module(self.module)
        *path, name = self.function.split(".")
        for part in path:
            owner = getattr(owner, part)
        whole, left = getattr(owner, name), [self.count]

        def mined(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if not left[0] and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            found = whole(*args, **kwargs)
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        setattr(owner, name, mined)


@dataclass(frozen=True)
class Bomb:
    """The process dies (SIGKILL) some seconds after it has opened its table and its checkpoint."""

    seconds: float

    def arm(self) -> None:
        """Set the clock going when the loop begins."""
        from streamgp_pipelines.training.online import OnlineRun

        begin = OnlineRun.run

        def timed(run: OnlineRun) -> None:
            threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
            begin(run)

        OnlineRun.run = timed  # type: ignore[method-assign]


def quick_and_slow(crashes: Mapping[str, Crash], quick: Collection[str]) -> list[Any]:
    """Parameters of a test: the crashes in their order, those that are not named in `quick` marked slow."""
    return [pytest.param(crash, marks=[] if name in quick else [pytest.mark.slow]) for name, crash in crashes.items()]


def train_apart(
    table: str, home: str, options: dict[str, Any], crash: Crash | Bomb | None, summary: str | None
) -> None:
    """What the process does: arm, train, leave the summary in a file."""
    import json

    from streamgp_pipelines.training import online
    from tests.pipelines.worlds import run

    online.POLL_SECONDS = 0.01
    if crash is not None:
        crash.arm()
    found = run(Path(table), Path(home), **options)
    if summary is not None:
        Path(summary).write_text(json.dumps(found))


def start(target: Callable[..., None], *args: Any) -> Forked:
    """A process that runs `target(*args)`, of a function at the top of a module."""
    return call(target, *args)


def code_of(process: Forked, timeout: float = 400.0) -> int:
    """How the process ended: minus the signal's number where one ended it."""
    return process.wait(timeout)


def wait_for(what: Callable[[], bool], seconds: float = 400.0) -> None:
    """Until something is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
