"""Commands as forks of a process that has imported everything and done nothing: ten commands in the time of one.

Each is a process of its own, with its own folder, environment, limits and signals; it begins where the installed
script does.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any


def serve() -> None:
    """Start a command for each line of standard input, and write its process id; "CODE" of an id ends it."""
    import polars  # noqa: F401
    import torch  # noqa: F401

    import streamgp_pipelines.forecasting.forecast
    import streamgp_pipelines.live.follow
    import streamgp_pipelines.training.train  # noqa: F401

    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            _, status = os.waitpid(job["wait"], 0 if job["block"] else os.WNOHANG)
            ended = _ > 0
            print(json.dumps(os.waitstatus_to_exitcode(status) if ended else None), flush=True)
            continue
        child = os.fork()
        if not child:
            _become(job)
        print(child, flush=True)


def _become(job: dict[str, Any]) -> None:
    for number, path in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        os.dup2(handle, number)
        os.close(handle)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where this was started by nohup
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    for name, value in job["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    sys.argv = ["streamgp", *job["words"]]
    from streamgp_cli import start

    code: Any = 1
    try:
        start.main()
    except SystemExit as error:
        code = error.code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 120
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


class Forked:
    """A command that was forked; what `subprocess.Popen` has of it."""

    def __init__(self, server: Server, pid: int, out: Path, err: Path) -> None:
        self._server, self.pid, self._out, self._err = server, pid, out, err
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None."""
        if self.returncode is None:
            self.returncode = self._server.ask({"wait": self.pid, "block": False})
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def told(self) -> str:
        """What it has written on standard output."""
        return self._out.read_text(errors="replace")

    def said(self) -> str:
        """What it has written on standard error."""
        return self._err.read_text(errors="replace")

    def wait(self, timeout: float = 600.0) -> int:
        """Wait for its end.

        Raises:
            TimeoutExpired: it still runs.
        """
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("streamgp", timeout)
            time.sleep(0.02)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float = 600.0) -> tuple[str, str]:
        """Wait for its end; what it wrote."""
        self.wait(timeout)
        return self.told(), self.said()


class Server:
    """The process that forks."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "from tests.forked import serve; serve()"]
        environment = {"MLFLOW_DISABLE_TELEMETRY": "true", **os.environ, "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._count = 0

    def start(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], limits: Mapping[str, int], logs: Path
    ) -> Forked:
        """A command in a folder; what it writes is in files of the folder `logs`."""
        self._count += 1
        out, err = logs / f"{self._count}.out", logs / f"{self._count}.err"
        job = {"words": list(words), "folder": str(folder), "environment": dict(environment), "limits": dict(limits)}
        for path in (out, err):
            path.touch()  # it may be killed before it opens them
        pid = self.ask(job | {"out": str(out), "err": str(err)})
        return Forked(self, pid, out, err)

    def ask(self, job: Mapping[str, Any]) -> Any:
        """The answer to one line."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@cache
def server() -> Server:
    """The one of this process; it ends with it."""
    made = Server()
    atexit.register(made.close)
    return made


@cache
def _logs() -> Path:
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    return Path(made.name)


def start(*words: object, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Forked:
    """`streamgp WORDS...` in a folder (default: the current one), with this environment in the place of its own."""
    given = os.environ if environment is None else environment
    return server().start([str(word) for word in words], folder or Path.cwd(), given, {}, _logs())
