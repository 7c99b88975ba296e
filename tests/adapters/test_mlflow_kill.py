"""A run that is killed and started again leaves the same points in MLflow as one that was not."""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest
from mlflow import MlflowClient

from streamgp_data.table import Table, TableMeta
from streamgp_pipelines.adapters.mlflow.store import open_store
from tests.forked import Forked, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROWS = 3000
TIMES = {"rows_per_second"}


def started(room: Path, name: str) -> Forked:
    """The run as a process of its own, in a checkpoint directory of its own."""
    words: list[object] = [
        "train",
        "--online",
        "--table",
        room / "table",
        "--target",
        "y",
        "--horizon",
        3,
        "--season",
        24,
    ]
    words += ["--lags", 4, "--warmup", 500, "--batch", 50, "--checkpoint-every", 500, "--model", "seasonal_naive"]
    words += ["--tracking-uri", f"sqlite:///{room}/mlflow.db", "--experiment", name]
    return start(*words, "--checkpoint", room / name, "--json")


def kill_at(process: Forked, directory: Path, rows: int) -> None:
    """SIGKILL as soon as there is a checkpoint of at least so many rows."""
    until = time.monotonic() + 400
    while process.poll() is None and time.monotonic() < until:
        if any(int(path.name[:12]) >= rows for path in directory.glob("0" * 8 + "*")):
            process.send_signal(signal.SIGKILL)
        time.sleep(0.002)
    assert process.wait() == -signal.SIGKILL


def points(uri: str, experiment: str) -> tuple[str, dict[str, list[tuple[int, float, int]]]]:
    """Status and the history of every metric of the experiment's only run; times count from the run's start."""
    client = MlflowClient(uri, uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    (run,) = client.search_runs([found.experiment_id])
    histories = {}
    for key in run.data.metrics:
        if key not in TIMES:
            history = client.get_metric_history(run.info.run_id, key)
            histories[key] = sorted((p.step, p.value, p.timestamp - run.info.start_time) for p in history)
    return run.info.status, histories


def test_killed_and_started_again_is_the_same_run_with_the_same_points(tmp_path: Path) -> None:
    schema = pa.schema([("step", pa.int64()), ("y", pa.float64())])
    table = Table.create(str(tmp_path / "table"), schema, TableMeta(time="step", clock=False, every_ns=1))
    y = [math.sin(step / 24 * 2 * math.pi) + 0.1 * math.sin(step * step) for step in range(ROWS)]
    table.append(pa.table({"step": range(ROWS), "y": y}, schema=schema), app_id="test", n=1)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    open_store(uri)

    kill_at(started(tmp_path, "killed"), tmp_path / "killed", 1500)
    for name in ("killed", "straight"):
        assert started(tmp_path, name).wait() == 0

    status, killed = points(uri, "killed")
    assert status == "FINISHED"
    assert (status, killed) == points(uri, "straight")
    assert [step for step, _, _ in killed["rmse"]] == list(range(1000, ROWS + 1, 1000))
    assert all(after == step for step, _, after in killed["rmse"])
