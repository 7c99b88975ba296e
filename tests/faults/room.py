"""A folder in which a fault is injected into real commands, and what is asked of every one of them."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from streamgp_data.quarantine import FOLDER
from streamgp_data.table import Table
from tests.forked import Forked, server

PATIENCE = 60.0
"""Seconds of one command."""
FORKING = True
"""Whether commands are forks of one process, where they need not be started by another program."""
START = datetime(2024, 1, 1)
POWERLESS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.getuid() == 0 else ()
"""Before a command: root may then do what the permissions of files allow, and no more."""


class Outcome(NamedTuple):
    """A row of the table of faults.

    Attributes:
        happened: what the command did.
        lost: "nothing", as was checked, or what was.
        said: to the user.
    """

    happened: str
    lost: str
    said: str


Process = subprocess.Popen[str] | Forked


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The message, with its hint."""
        lines = self.err.splitlines()
        found = [line for line in lines if line.startswith(("error:", "hint:", "interrupted"))]
        found = found or [line for line in lines if line.startswith(("warning:", "note:"))]
        return " ".join(found)

    def clean(self) -> Ended:
        """Without a traceback, and without a message that calls it a defect."""
        whole = self.out + self.err
        for word in ("Traceback", "this is a bug", "panicked", "Segmentation", "Exception ignored"):
            assert word not in whole, f"{word} after exit {self.code}: {whole[-1500:]}"
        return self

    def fine(self) -> Ended:
        """With success."""
        assert self.code == 0, f"exit {self.code}: {self.err[-1500:]}"
        return self.clean()

    def refused(self, *codes: int, word: str = "") -> Ended:
        """With one of these exit codes, a message and a remedy."""
        self.clean()
        assert self.code in codes, f"exit {self.code}, not {codes}: {self.out[-300:]} {self.err[-1500:]}"
        assert re.search(r"^error: \S", self.err, re.MULTILINE), f"no message: {self.err[-1500:]}"
        assert re.search(r"^hint: \S", self.err, re.MULTILINE), f"no remedy: {self.err[-1500:]}"
        assert word in self.err, f"no {word!r} in: {self.err[-1500:]}"
        return self


class Room:
    """Runs `streamgp` in a folder of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._started: list[Process] = []
        self._logs = Path(tempfile.mkdtemp(dir=path.parent))

    def write(self, name: str, data: str | bytes) -> Path:
        """A file of the folder."""
        path = self.path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def rows(self, name: str, start: int, count: int) -> Path:
        """A CSV of `count` rows a minute from number `start` on; appended to where it is there."""
        path = self.path / name
        with path.open("a") as file:
            file.write("" if path.stat().st_size else "ds,y\n")
            file.write(lines(start, count))
        return path

    def run(self, *words: object, **more: Any) -> Ended:
        """One command to its end; the arguments are those of `start`."""
        return self.end(self.start(*words, **more))

    def here(self, *words: object) -> None:
        """A command that has to succeed: it prepares a fault, or continues after one."""
        self.run(*words).fine()

    def start(
        self,
        *words: object,
        limits: Mapping[str, int] | None = None,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Process:
        """A command in the background.

        Args:
            words: of the command line.
            limits: of resources, by name.
            prefix: a command that starts it.
            env: more of the environment.
            more: for subprocess.Popen.
        """
        environment = {"MLFLOW_DISABLE_TELEMETRY": "true", **os.environ, **(env or {})}
        process: Process
        if prefix or more or not FORKING:
            command = [*prefix, str(Path(sys.executable).with_name("streamgp")), *map(str, words)]
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more

            def limited() -> None:
                for name, value in (limits or {}).items():
                    resource.setrlimit(getattr(resource, name), (value, value))

            process = subprocess.Popen(
                command, cwd=self.path, text=True, errors="replace", env=environment, preexec_fn=limited, **pipes
            )
        else:
            process = server().start([str(word) for word in words], self.path, environment, limits or {}, self._logs)
        self._started.append(process)
        return process

    def end(self, process: Process, number: int | None = None) -> Ended:
        """Wait for the end of a command, after a signal if one is given."""
        if number is not None:
            process.send_signal(number)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"no end after {PATIENCE:.0f} s: {(err or '')[-1500:]}") from None
        return Ended(process.returncode, out or "", err or "")

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.communicate()

    def taken(self, table: str = "t") -> list[float]:
        """`y` of every accepted row, by `_seq`."""
        found = Table.open(self.path / table)
        return [value for chunk in found.read(columns=["y"]) for value in chunk.rows.column("y").to_pylist()]

    def aside(self, table: str = "t") -> list[str]:
        """The reason of every quarantined row."""
        path = self.path / table / FOLDER
        if not path.is_dir():
            return []
        return [
            value
            for chunk in Table.open(path).read(columns=["reason"])
            for value in chunk.rows.column("reason").to_pylist()
        ]

    def whole(self, count: int, table: str = "t") -> str:
        """See that rows 0 to `count` are there, each once."""
        found = self.taken(table)
        assert sorted(found) == [float(row) for row in range(count)], (
            f"{len(found)} rows of {count}, {len(set(found))} different"
        )
        return "nothing"

    def until(self, met: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        """Wait for something that a command in the background does."""
        end = time.monotonic() + seconds
        while not met():
            assert time.monotonic() < end, f"waited for {what}"
            time.sleep(0.05)

    def count(self, table: str = "t") -> int:
        """Rows of a table that may not be there yet."""
        return Table.open(self.path / table).rows if Table.exists(self.path / table) else 0

    def shown(self, text: str) -> str:
        """A message without the names of this folder, on one line."""
        return re.sub(r"\s+", " ", text.replace(f"{self.path}/", "").replace(str(self.path), ".")).strip()


def lines(start: int, count: int) -> str:
    """Lines of rows from number `start` on."""
    return "".join(f"{START + timedelta(minutes=row)},{row}\n" for row in range(start, start + count))


TRAIN = ("train", "--online", "--target", "y", "--model", "linear", "--lags", "4", "--warmup", "200")
TRAIN = (*TRAIN, "--season", "none")
UNTRACKED = ("--tracking-uri", "none")

Fault = Callable[[Room], Outcome]


@dataclass(frozen=True)
class Listed:
    """A fault of the list.

    Attributes:
        group, name: where it belongs, and what is injected.
        fast: whether it is a test of the quick part.
        inject: does it, and asserts what is claimed.
    """

    group: str
    name: str
    fast: bool
    inject: Fault


FAULTS: list[Listed] = []


def fault(group: str, name: str, fast: bool = False) -> Callable[[Fault], Fault]:
    """List a fault."""

    def add(inject: Fault) -> Fault:
        FAULTS.append(Listed(group, name, fast, inject))
        return inject

    return add


@contextmanager
def small_disk(room: Room, megabytes: int) -> Iterator[Path]:
    """A file system of its own in the folder `disk`, where this process may make one."""
    path = room.path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
