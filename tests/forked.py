"""Commands, and calls of functions, as forks of a process that has imported everything and done nothing: ten commands
in the time of one.

Each is a process of its own, with its own folder, environment, limits and signals; a command begins where the
installed script does.
"""

from __future__ import annotations

import atexit
import base64
import gc
import importlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

IMPORTED = ["polars", "torch", "streamgp_pipelines.forecasting.forecast", "streamgp_pipelines.live.follow"]
IMPORTED += ["streamgp_pipelines.training.train", "tests.pipelines.worlds"]
IMPORTED += ["streamgp.models.linear", "streamgp.models.svdgp", "streamgp.models.deep.build"]


def serve() -> None:
    """Start a command or a call for each line of standard input, and write its process id; or wait for one to end."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # nothing of it is garbage, to search in every fork
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
    code: Any = 1
    try:
        if "call" in job:
            target, args = pickle.loads(base64.b64decode(job["call"]))
            target(*args)
            code = 0
        else:
            sys.argv = ["streamgp", *job["words"]]
            from streamgp_cli import start

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
    """A command or call that was forked; what `subprocess.Popen` has of it."""

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
        self._started: list[Forked] = []

    def start(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], limits: Mapping[str, int], logs: Path
    ) -> Forked:
        """A command in a folder; what it writes is in files of the folder `logs`."""
        return self._start({"words": list(words)}, folder, environment, limits, logs)

    def call(self, target: Callable[..., None], args: Sequence[Any], logs: Path) -> Forked:
        """`target(*args)` in the folder and the environment of this process."""
        code = base64.b64encode(pickle.dumps((target, args))).decode()
        return self._start({"call": code}, Path.cwd(), os.environ, {}, logs)

    def _start(
        self,
        job: Mapping[str, Any],
        folder: Path,
        environment: Mapping[str, str],
        limits: Mapping[str, int],
        logs: Path,
    ) -> Forked:
        count = len(self._started)
        out, err = logs / f"{count}.out", logs / f"{count}.err"
        where = {"folder": str(folder), "environment": dict(environment), "limits": dict(limits)}
        for path in (out, err):
            path.touch()  # it may be killed before it opens them
        pid = self.ask({**job, **where, "out": str(out), "err": str(err)})
        self._started.append(Forked(self, pid, out, err))
        return self._started[-1]

    def ask(self, job: Mapping[str, Any]) -> Any:
        """The answer to one line."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and all that it has started."""
        for one in self._started:
            if one.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
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


def call(target: Callable[..., None], *args: Any) -> Forked:
    """`target(*args)`, of a function at the top of a module."""
    return server().call(target, args, _logs())
