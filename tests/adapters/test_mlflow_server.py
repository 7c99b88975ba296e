"""Tracking over HTTP: the same run, and what happens when the server goes away in the middle of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from streamgp.errors import ServiceError, StateError
from streamgp_pipelines.adapters.mlflow.metrics import SPILL
from streamgp_pipelines.adapters.mlflow.server import answers, mlflow_ui
from streamgp_pipelines.adapters.mlflow.store import open_store
from streamgp_pipelines.adapters.mlflow.tracker import MlflowTracker
from tests.words import naming

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.slow
def test_a_server_that_goes_away_stops_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr("streamgp_pipelines.adapters.mlflow.tracker.RETRY_SECONDS", (0.0,))
    store = f"sqlite:///{tmp_path}/mlflow.db"
    open_store(store)
    picture = tmp_path / "a.png"
    picture.write_bytes(b"png")
    with mlflow_ui(store, "127.0.0.1", free_port()) as (url, process):
        assert answers(url)
        tracker = MlflowTracker(tmp_path / "run", url, "remote")
        tracker.params({"model": "linear"})
        tracker.artifact(picture, "plots")
        for step in range(3):
            tracker.metrics({"rmse": 1.0 / (step + 1)}, step)
        tracker.flush()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        tracker.metrics({"rmse": 0.125}, 3)
        tracker.flush()
        tracker.tags({"late": "yes"})
        tracker.finish("FINISHED")
    assert not answers(url)
    assert SPILL in caplog.text
    assert json.loads((tmp_path / "run" / SPILL).read_text()) == [["rmse", 0.125, 3]]
    client = MlflowClient(store, store)
    assert [point.step for point in client.get_metric_history(tracker.run_id, "rmse")] == [0, 1, 2]
    assert client.get_run(tracker.run_id).data.params == {"model": "linear"}
    assert [entry.path for entry in client.list_artifacts(tracker.run_id, "plots")] == ["plots/a.png"]
    with pytest.raises(ServiceError):
        MlflowTracker(tmp_path / "run", url, "remote")


def test_the_interface_needs_a_store_and_a_free_port(tmp_path: Path) -> None:
    with pytest.raises(StateError), mlflow_ui(f"sqlite:///{tmp_path}/x.db", "127.0.0.1", 1):
        pass
    (tmp_path / "mlflow.db").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError):
            mlflow_ui(f"sqlite:///{tmp_path}/mlflow.db", "127.0.0.1", port).__enter__()


@pytest.mark.slow
def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("these are no tables" * 100)
    with (
        pytest.raises(ServiceError, match=naming("MLflow")),
        mlflow_ui(f"sqlite:///{tmp_path}/mlflow.db", "127.0.0.1", free_port()),
    ):
        pass


WATCHED = """
import subprocess
from streamgp_pipelines.adapters.mlflow import child as _mlflow_child
print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
_mlflow_child.end_with_the_starter()
"""


def test_a_server_whose_starter_is_gone_ends_with_all_that_it_started() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = subprocess.Popen(
        [sys.executable, "-c", WATCHED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        env=environment,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    worker = Path(f"/proc/{int(child.stdout.readline())}/stat")
    assert "(sleep)" in worker.read_text()
    child.stdin.close()  # as the kernel does when a process is killed
    assert child.wait(30) == -signal.SIGKILL
    child.stdout.close()
    while worker.exists() and ") Z " not in worker.read_text():  # the timeout of this file ends it
        time.sleep(0.01)


@pytest.mark.slow
def test_the_interface_leaves_no_server_behind_when_it_is_killed(tmp_path: Path) -> None:
    store, port = f"sqlite:///{tmp_path}/mlflow.db", free_port()
    open_store(store)
    words = ["ui", "--tracking-uri", store, "--port", str(port), "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-c", "from streamgp_cli.app import main; main()", *words],
            env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())
        assert answers(address["server"]) and "workflowType=machine_learning" in address["url"]
        process.send_signal(number)
        process.wait(60)
        process.stdout.close()
        while answers(address["server"], 1.0):
            time.sleep(0.05)
