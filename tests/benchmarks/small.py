"""A copy of the benchmarks on small data: the project's folders with few rows, smaller sizes, one process that waits.

Every script runs in a child of one process that has imported what takes long, and so does what it starts of Python and
of `streamgp`: a case costs its own work.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


def copied(home: Path, public: Path | None, rows: int) -> Path:
    """The folders that benchmarks look into, with that many rows of every set: `home`/project and `home`/shared/data.

    Args:
        home: an empty folder.
        public: of the public data sets, or None where they are not here.
        rows: at most.
    """
    project = home / "project"
    shutil.copytree(BENCHMARKS, project / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "data").mkdir()
    for name in ("tests", "pyproject.toml"):
        (project / name).symlink_to(ROOT / name)
    for file in (ROOT / "data").glob("*.csv"):
        (project / "data" / file.name).write_text(_head(file, rows))
    recipes = project / "pipelines" / "streamgp_pipelines" / "recipes"
    recipes.mkdir(parents=True)
    shutil.copy(ROOT / "data" / "elecdemand.csv", recipes)
    shared = home / "shared" / "data"
    shared.mkdir(parents=True)
    for file in sorted(public.glob("*.parquet")) if public else []:
        frame = pl.read_parquet(file)
        kept = frame.head(rows) if "unique_id" not in frame.columns else frame.group_by("unique_id").head(rows // 4)
        kept.write_parquet(shared / file.name)
    return project


def _head(file: Path, rows: int) -> str:
    return "".join(file.read_text("utf-8").splitlines(keepends=True)[: rows + 1])


def replaced(script: Path, text: Mapping[str, str]) -> None:
    """Put small sizes into a script.

    Args:
        script: rewritten.
        text: what stands there -> what shall.

    Raises:
        KeyError: it does not stand there.
    """
    code = script.read_text("utf-8")
    for old, new in text.items():
        if old not in code:
            raise KeyError(f"{script.name} has no {old!r}")
        code = code.replace(old, new)
    script.write_text(code)


class Ended(NamedTuple):
    """How a script ended: exit status, or minus the signal; what it printed; CPU-seconds, its children's too."""

    status: int
    told: str
    seconds: float


class Children:
    """Runs scripts, each in a fork of one process that has imported the library.

    Args:
        home: where they are run, and what they print is kept.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "PYTHONWARNINGS": "ignore",
            "HOME": str(home),
        }
        environment.pop("BENCHMARK_RESULTS", None)
        self.waiting = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=home,
            env=environment,
        )

    def run(self, script: Path, words: Sequence[str], seconds: float) -> Ended:
        """Run a script with these words; it is killed after so many seconds."""
        assert self.waiting.stdin is not None and self.waiting.stdout is not None
        out = self.home / f"{script.stem}.out"
        self.waiting.stdin.write(json.dumps([str(script), list(words), str(out), seconds]) + "\n")
        self.waiting.stdin.flush()
        status, spent = self.waiting.stdout.readline().split()
        return Ended(int(status), out.read_text("utf-8", errors="replace"), float(spent))

    def close(self) -> None:
        """End the process that waits."""
        assert self.waiting.stdin is not None
        self.waiting.communicate(timeout=120)


PYTHON, PROGRAM = sys.executable, str(Path(sys.executable).with_name("streamgp"))
SUBREAPER = 36
"""Of prctl: orphans among the descendants become children."""


class Forking(subprocess.Popen[Any]):
    """A fork of a process that has imported everything, where Python or `streamgp` is started in the usual way."""

    asked: socket.socket
    one = threading.Lock()

    def _execute_child(
        self, args: Any, executable: Any, preexec: Any, close: bool, kept: Any, cwd: Any, env: Any, info: Any,
        flags: int, shell: bool, *more: Any,
    ) -> None:  # fmt: skip
        words = [] if isinstance(args, str | bytes) else [os.fsdecode(word) for word in args]
        plain = words[:1] == [PROGRAM] or (words[:1] == [PYTHON] and (words[1] in ("-c", "-m") or words[1][0] != "-"))
        if not plain or shell or preexec or kept:
            given = (args, executable, preexec, close, kept, cwd, env, info, flags, shell, *more)
            super()._execute_child(*given)  # type: ignore[misc]
            return
        job = {"words": words, "folder": os.path.abspath(cwd or "."), "environment": dict(env or os.environ)}
        handles = [number if handle < 0 else handle for number, handle in enumerate((more[0], more[3], more[5]))]
        with self.one:
            socket.send_fds(self.asked, [json.dumps(job, default=os.fsdecode).encode()], handles)
            self.pid = int(self.asked.recv(64))
        self._child_created = True
        self._close_pipe_fds(*more[:6])  # type: ignore[attr-defined]


def _fork(asked: socket.socket) -> None:
    """Never returns: a process for each job. Its parent ends, so that it is a child of the process that asks."""
    while True:
        job, handles, _, _ = socket.recv_fds(asked, 1 << 20, 3)
        if not job:
            os._exit(0)
        reads, writes = os.pipe()
        if not (between := os.fork()):
            if not (child := os.fork()):
                _become(**json.loads(job), handles=handles)
            os.write(writes, str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)
        asked.send(os.read(reads, 64))
        for handle in (reads, writes, *handles):
            os.close(handle)


def _become(words: list[str], folder: str, environment: dict[str, str], handles: list[int]) -> None:
    """Never returns."""
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
    sys.stdin = os.fdopen(0)
    os.closerange(3, 256)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    _run(words)


def _child(script: str, words: list[str], out: str) -> None:
    """Never returns: the script's end is the process's."""
    os.setsid()
    file = os.open(out, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    Forking.asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        Forking.asked.close()
        _fork(theirs)
    theirs.close()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    subprocess.Popen = Forking  # type: ignore[misc]
    _run([PYTHON, script, *words])


def _run(words: list[str]) -> None:
    """Never returns: what the command line starts."""
    status = 0
    try:
        if words[0] == PROGRAM:
            from streamgp_cli import start

            sys.argv = words
            start.main()
        elif words[1] == "-c":
            sys.argv = ["-c", *words[3:]]
            exec(words[2], {"__name__": "__main__"})
        elif words[1] == "-m":
            sys.argv = words[2:]
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words[1:]
            sys.path.insert(0, str(Path(words[1]).parent))
            runpy.run_path(words[1], run_name="__main__")
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _main() -> None:
    """Fork a child for each line; answer with its exit status."""
    import gpytorch  # noqa: F401
    import scipy.optimize  # noqa: F401
    import torch

    import streamgp_cli.app  # noqa: F401
    import streamgp_pipelines.training.online

    del streamgp_pipelines
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # loads PyTorch's compiler, 2 seconds
    for line in sys.stdin:
        script, words, out, seconds = json.loads(line)
        pid = os.fork()
        if not pid:
            _child(script, words, out)
        waiting = os.pidfd_open(pid)
        if not select.select([waiting], [], [], seconds)[0]:
            os.killpg(pid, signal.SIGKILL)
        os.close(waiting)
        _, status, used = os.wait4(pid, 0)
        sys.__stdout__.write(f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime:.1f}\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    _main()
