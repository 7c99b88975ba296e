"""The MLflow user interface on a tracking store, as a child process that ends with us."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from streamgp.errors import ServiceError, StateError
from streamgp.redaction import reason
from streamgp_pipelines.adapters.mlflow import app as mlflow_app
from streamgp_pipelines.adapters.mlflow import child
from streamgp_pipelines.adapters.mlflow import view as ui_view
from streamgp_pipelines.adapters.mlflow.store import sqlite_file

START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_TRAINING = "workflowType=machine_learning"  # MLflow's page opens on language models without it


@contextmanager
def mlflow_ui(uri: str, host: str, port: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start the interface, wait until it answers, and end it on leaving.

    Args:
        uri: the tracking store.
        host: address to listen on; 127.0.0.1 is this machine only.
        port: port to listen on.

    Yields:
        The address to open, and the process, to wait for.

    Raises:
        StateError: the SQLite store does not exist.
        ServiceError: the port is taken, or the server does not start.
    """
    file = sqlite_file(uri)
    if file is not None and not file.is_file():
        raise StateError(
            f"there is no tracking store {file}",
            hint="train something first, go to the directory where it was trained, or give --tracking-uri",
        )
    _check_port(host, port)
    url = f"http://{host}:{port}"
    with TemporaryFile() as log:
        process = _start(uri, host, port, file, log)
        try:
            _wait_until_it_answers(process, url, log, uri)
            yield url, process
        finally:
            _stop(process)


def answers(url: str, seconds: float = 5.0) -> bool:
    """Whether an HTTP server answers there, whatever it says."""
    try:
        with urlopen(url, timeout=seconds):
            return True
    except HTTPError:
        return True
    except (URLError, OSError, ValueError):
        return False


def front_page(url: str) -> str:
    """The address of the training view: the runs of the experiment that was used last, with their scores as columns.

    Args:
        url: of a server that answers.
    """
    begin = f"{url}/{mlflow_app.PATH}?" if _ours(url) else f"{url}/#"
    experiments = _ask(url, "experiments/search", {"max_results": 1000, "view_type": "ACTIVE_ONLY"}).get("experiments")
    found = {one["experiment_id"]: one for one in experiments or []}
    asked = {"experiment_ids": list(found), "order_by": ["attributes.start_time DESC"], "max_results": 1}
    newest = _ask(url, "runs/search", asked).get("runs") if found else None
    if not newest:
        return f"{begin}/experiments?{_TRAINING}"
    experiment = found[newest[0]["info"]["experiment_id"]]
    tags = {tag["key"] for tag in experiment.get("tags") or []}
    view = f"&viewStateShareKey={ui_view.ID}" if ui_view.TAG in tags else ""
    return f"{begin}/experiments/{experiment['experiment_id']}/runs?{_TRAINING}{view}"


def _ours(url: str) -> bool:
    """Whether the server has our page, which keeps the browser in the training view."""
    try:
        with urlopen(f"{url}/{mlflow_app.PATH}", timeout=5.0) as answer:
            return bool(answer.status == 200 and mlflow_app.MARK in answer.read())
    except OSError:
        return False


def _ask(url: str, what: str, question: dict[str, object]) -> dict[str, Any]:
    """An answer of MLflow's REST API; {} where there is none, as behind a log-in: the plain page is opened then."""
    body = json.dumps(question).encode()
    request = Request(f"{url}/api/2.0/mlflow/{what}", body, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=10.0) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, ValueError):
        return {}


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ServiceError(
                f"cannot listen on {host}:{port}: {reason.lower()}", hint="choose another --port"
            ) from None


def _start(uri: str, host: str, port: int, file: Path | None, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """The server in a process group of its own, so that its workers end with it.

    It holds the other end of a pipe of ours: when we are gone, killed outright even, it ends too.
    """
    words = [sys.executable, "-m", child.__name__, "server"]
    words += ["--host", host, "--port", str(port), "--workers", "1"]
    if file is not None:
        words += ["--default-artifact-root", (file.parent / "mlartifacts").as_uri()]
    environment = os.environ | {
        "MLFLOW_BACKEND_STORE_URI": uri,  # no argument: those of a process are everybody's to read
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # helpers for its evaluation jobs: 2 GB that nobody uses here
    }
    return subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str, log: IO[bytes], uri: str) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            why = reason(RuntimeError(said[-1]), uri) if said else f"exit code {process.returncode}"
            raise ServiceError(f"the MLflow server ended: {why}", hint="run: mlflow server, and see what it says")
        if answers(f"{url}/health", 1.0):
            return
        time.sleep(0.2)
    raise ServiceError(
        f"the MLflow server did not answer within {START_SECONDS:.0f} s", hint="try again, or another --port"
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and its workers: asked first, then killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        break
    if process.stdin is not None:
        process.stdin.close()
