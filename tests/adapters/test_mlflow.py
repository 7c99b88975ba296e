"""The MLflow tracker: one run per checkpoint directory, nothing lost, nothing doubled."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import polars as pl
import pyarrow as pa
import pytest
from mlflow import MlflowClient

from streamgp.base import ModelCard
from streamgp.errors import CheckpointError, ServiceError, UsageError
from streamgp.forecasting.metrics import series_table
from streamgp_pipelines.adapters.mlflow import run as _mlflow_run
from streamgp_pipelines.adapters.mlflow.metrics import BATCH, SPILL, MetricBuffer
from streamgp_pipelines.adapters.mlflow.store import open_store, sqlite_file, store_uri
from streamgp_pipelines.adapters.mlflow.tracker import MlflowTracker, mlflow_tracker
from streamgp_pipelines.training.train import train
from tests.pipelines.worlds import append, config_of, frame_of, make_table
from tests.words import naming

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


CARD = ModelCard("linear", "t", "id", ("y",), 3, 24, "prequential", "crps", 1.0, 1000, 2000, "state")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One SQLite store for this file: creating one takes seconds."""
    uri = store_uri(f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}")
    open_store(uri)
    return uri


def points(uri: str, run_id: str, key: str) -> list[tuple[int, int, float]]:
    history = MlflowClient(uri).get_metric_history(run_id, key)
    return sorted((point.step, point.timestamp, point.value) for point in history)


def test_a_run_holds_what_was_logged(uri: str, tmp_path: Path) -> None:
    tracker = mlflow_tracker(uri, "logged", "a name")(tmp_path / "checkpoint", "")
    tracker.params({"model": "svdgp", "set": {"basis": 64}, "target": ["a", "b"], "note": "x" * 10_000, "none": None})
    tracker.tags({"host": "here"})
    tracker.dataset("demand", "/data/demand", 7, pa.schema([("ds", pa.timestamp("us")), ("y", pa.float64())]))
    for step in range(0, 300, 100):
        tracker.metrics({"rmse": 0.5 + step, "coverage_95": 0.95, "bad": math.nan, "odd(y)": 1.0}, step)
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"png")
    tracker.artifact(picture, "plots")
    tracker.finish("FINISHED")

    client = MlflowClient(uri)
    run = client.get_run(tracker.run_id)
    assert run.info.status == "FINISHED" and run.info.run_name == "a name"
    assert run.data.params["set.basis"] == "64" and run.data.params["target"] == "a,b"
    assert len(run.data.params["note"]) == 6000 and run.data.params["none"] == ""
    assert run.data.tags["host"] == "here" and run.data.tags["table_version"] == "7"
    (dataset,) = run.inputs.dataset_inputs
    assert dataset.dataset.name == "demand" and json.loads(dataset.dataset.source)["delta_table_version"] == 7
    source = mlflow.data.get_source(dataset)  # MLflow itself knows how to find the table again
    assert source.to_dict()["path"] == "/data/demand" and source.to_dict()["delta_table_version"] == 7
    started = run.info.start_time
    expected = [(0, started, 0.5), (100, started + 100, 100.5), (200, started + 200, 200.5)]
    assert points(uri, tracker.run_id, "rmse") == expected
    assert set(run.data.metrics) == {"rmse", "coverage/95", "odd_y_"}
    assert [entry.path for entry in client.list_artifacts(tracker.run_id, "plots")] == ["plots/picture.png"]


def test_a_restart_continues_the_run_and_a_replay_adds_nothing(uri: str, tmp_path: Path) -> None:
    first = MlflowTracker(tmp_path, uri, "restart")
    first.params({"seed": 1, "max_rows": 400})
    for step in range(5):
        first.metrics({"rmse": 1.0 / (step + 1), "seconds": time.perf_counter()}, step)
    first.flush()
    before = points(uri, first.run_id, "seconds")

    second = MlflowTracker(tmp_path, uri, "restart")  # as after a kill: replays from step 2 on
    second.params({"seed": 1, "max_rows": 800})
    for step in range(2, 8):
        second.metrics({"rmse": 1.0 / (step + 1), "seconds": time.perf_counter()}, step)
    second.finish("FINISHED")

    assert second.run_id == first.run_id
    assert [step for step, _, _ in points(uri, second.run_id, "rmse")] == list(range(8))
    assert points(uri, second.run_id, "seconds")[:5] == before
    run = MlflowClient(uri).get_run(second.run_id)
    assert run.data.params["max_rows"] == "400" and run.data.tags["resumed.max_rows"] == "800"
    assert "resumed.seed" not in run.data.tags


def test_system_metrics_are_logged_where_mlflow_is_told_so(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "system/cpu_utilization_percentage"
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    for wanted in (1, 3):  # points that there are before a process ends; the second goes on behind the first
        tracker = MlflowTracker(tmp_path, uri, "system")
        while True:  # until the timeout of this file
            found = MlflowClient(uri).get_run(tracker.run_id).to_proto().data.metrics
            if any(metric.key == key and metric.step >= wanted for metric in found):
                break
            time.sleep(0.05)
        tracker.finish("FINISHED")
    steps = [step for step, _, _ in points(uri, tracker.run_id, key)]
    assert steps == list(range(len(steps)))
    with monkeypatch.context() as gone:
        for name in [name for name in sys.modules if name.startswith("mlflow.system_metrics")]:
            gone.delitem(sys.modules, name)
        gone.setitem(sys.modules, "psutil", None)
        with pytest.raises(UsageError, match=naming("psutil")):
            MlflowTracker(tmp_path, uri, "system")
    monkeypatch.delenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING")
    assert not [thread for thread in threading.enumerate() if "SystemMetrics" in thread.name]


def test_a_kill_between_creating_the_run_and_noting_it_leaves_one_run(uri: str, tmp_path: Path) -> None:
    tracker = MlflowTracker(tmp_path, uri, "noted")
    stored = json.loads((tmp_path / _mlflow_run.FILE).read_text())
    (tmp_path / _mlflow_run.FILE).write_text(json.dumps(stored | {"run_id": ""}))
    assert MlflowTracker(tmp_path, uri, "noted").run_id == tracker.run_id


def test_a_finished_run_goes_on_and_another_experiment_begins_a_new_one(uri: str, tmp_path: Path) -> None:
    first = MlflowTracker(tmp_path, uri, "one")
    first.finish("KILLED")
    again = MlflowTracker(tmp_path, uri, "one")
    assert again.run_id == first.run_id
    assert MlflowClient(uri).get_run(again.run_id).info.status == "RUNNING"
    other = MlflowTracker(tmp_path, uri, "two")
    assert other.run_id != first.run_id


def test_a_run_that_is_gone_from_the_store_is_told_of_once(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = MlflowTracker(tmp_path, uri, "gone")
    MlflowClient(uri).delete_run(first.run_id)
    again = MlflowTracker(tmp_path, uri, "gone")
    assert again.run_id != first.run_id
    assert [first.run_id in record.getMessage() for record in caplog.records] == [True]
    assert MlflowTracker(tmp_path, uri, "gone").run_id == again.run_id and len(caplog.records) == 1


@pytest.mark.slow
@pytest.mark.slow
def test_pictures_are_made_again_only_where_something_came(uri: str, tmp_path: Path) -> None:
    data, made = frame_of(420), list[Path]()
    table = make_table(tmp_path / "table", data.head(400))

    def draw(curves: object, found: object, outlook: object, folder: Path, alarmed: object) -> None:
        made.append(folder)
        (folder / "a.png").write_bytes(b"png")

    def again(name: str = "drawn", **options: Any) -> int:
        train(config_of(table, tmp_path / "run", **options), mlflow_tracker(uri, name), draw=draw)
        return len(made)

    assert [again(), again(), again()] == [1, 1, 1]
    append(table, data.tail(20))
    assert [again(), again()] == [2, 2]
    assert again("drawn elsewhere") == 3  # another run, which has none
    assert again("drawn elsewhere", fresh=True) == 4


def test_a_run_of_several_series_has_the_scores_of_each_as_a_table(uri: str, tmp_path: Path) -> None:
    tracker = mlflow_tracker(uri, "series")
    for name, series in (("one", ()), ("several", ("a", "b", "c"))):
        table = make_table(tmp_path / f"{name}.table", frame_of(300, series))
        found = train(config_of(table, tmp_path / name, model="persistence", warmup=60), tracker)
        artifacts = [one.path for one in MlflowClient(uri).list_artifacts(str(found["run_id"]))]
        assert "summary.json" in artifacts and ("series.csv" in artifacts) == bool(series)
    path = MlflowClient(uri).download_artifacts(str(found["run_id"]), "series.csv", str(tmp_path))
    heads, rows = series_table(found["by_series"])  # type: ignore[arg-type]
    written = pl.read_csv(path)
    assert written.columns == heads and len(rows) == 3 and "MASE" in heads
    assert written.rows() == [tuple(row) for row in rows]


def test_pictures_that_did_not_arrive_are_made_again(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = mlflow_tracker(uri, "away")(tmp_path / "checkpoint", "")
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"png")
    away, made = ["the store is away"], list[int]()

    def log(*_: object) -> None:
        if away:
            raise OSError(away[0])

    def show() -> None:
        made.append(1)
        tracker.artifact(picture)

    monkeypatch.setattr(tracker.client, "log_artifact", log)
    tracker.once("state", show)
    away.clear()
    tracker.once("state", show)
    tracker.once("state", show)
    assert len(made) == 2 and "away" in caplog.text


def test_the_duration_is_that_of_the_work_and_not_of_the_time_between(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgp_pipelines.adapters.mlflow.tracker.RETRY_SECONDS", ())  # the folder has no model

    def hours() -> float:
        info = MlflowClient(uri).get_run(tracker.run_id).info
        return (info.end_time - info.start_time) / 3_600_000

    begun = int(time.time() * 1000) - 7 * 86_400_000  # the run is a week old
    _mlflow_run.write(tmp_path, _mlflow_run.RunIdentity("week", uri, "duration", begun))
    for total in (2, 5):
        tracker = MlflowTracker(tmp_path, uri, "duration")
        tracker.began -= 3600 * (2 if total == 2 else 3)  # this process was at work so long
        tracker.flush()
        tracker.finish("FINISHED")
        assert hours() == pytest.approx(total, abs=0.1)
    tracker = MlflowTracker(tmp_path, uri, "duration")
    tracker.note(state=CARD.state, name="nothing")
    tracker.began -= 3600
    tracker.model(tmp_path, lambda: CARD)  # started again without a new row
    tracker.finish("FINISHED")
    assert hours() == pytest.approx(5, abs=0.1)


def test_a_damaged_identity_is_refused(uri: str, tmp_path: Path) -> None:
    (tmp_path / _mlflow_run.FILE).write_text("{")
    with pytest.raises(CheckpointError, match=naming("run.json")):
        MlflowTracker(tmp_path, uri, "damaged")


class Store:
    """Takes metrics, or refuses them."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.down = False

    def send(self, metrics: list) -> None:
        assert len(metrics) <= BATCH
        if self.down:
            raise ConnectionError("refused")
        self.taken += [(metric.key, metric.step) for metric in metrics]


def test_metrics_survive_an_outage_and_a_kill_during_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    buffer = MetricBuffer(store.send, tmp_path, 0, {})
    buffer.add({"a": 1.0}, 0)
    assert buffer.flush()
    store.down = True
    buffer.add({"a": 2.0}, 1)
    assert not buffer.flush() and (tmp_path / SPILL).exists()
    buffer.add({"a": 3.0}, 2)
    assert not buffer.flush()  # does not ask again at once, but keeps the new point as well
    assert len(caplog.records) == 1

    store.down = False
    after = MetricBuffer(store.send, tmp_path, 0, {"a": 0})  # the process was killed here
    after.add({"a": 3.0}, 3)
    assert after.flush(now=True)
    assert store.taken == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]
    assert not (tmp_path / SPILL).exists() and after.waiting == 0


def test_metrics_are_sent_in_batches(tmp_path: Path) -> None:
    store = Store()
    buffer = MetricBuffer(store.send, tmp_path, 0, {})
    for step in range(2 * BATCH // 10 + 1):
        buffer.add({f"k{index}": 1.0 for index in range(10)}, step)
    assert len(store.taken) >= 2 * BATCH > 0 and buffer.waiting <= 10


class Unsteady:
    """A client whose store is down at first."""

    def __init__(self, client: MlflowClient) -> None:
        self.client, self.down = client, True

    def __getattr__(self, name: str) -> Callable:
        def call(*args: object, **options: object) -> object:
            if self.down:
                raise ConnectionError("gone")
            return getattr(self.client, name)(*args, **options)

        return call


def test_a_failing_store_does_not_stop_a_run(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = MlflowTracker(tmp_path, uri, "outage")
    monkeypatch.setattr("streamgp_pipelines.adapters.mlflow.tracker.RETRY_SECONDS", (0.0,))
    client = tracker.client = Unsteady(tracker.client)  # type: ignore[assignment]
    tracker.params({"a": 1})
    tracker.metrics({"rmse": 1.0}, 10)
    tracker.flush()
    tracker.finish("FINISHED")
    assert SPILL in caplog.text
    client.down = False
    tracker.finish("FINISHED")
    run = MlflowClient(uri).get_run(tracker.run_id)
    assert run.data.params == {"a": "1"} and run.data.metrics == {"rmse": 1.0} and run.info.status == "FINISHED"


@pytest.mark.parametrize("bad", ["file:/tmp/runs", "ftp://host/x", "mlruns", "sqlite:", "nothing://"])
def test_a_store_that_mlflow_does_not_have_is_a_usage_error(bad: str) -> None:
    with pytest.raises(UsageError):
        store_uri(bad)


def test_the_store_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert store_uri() == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert store_uri() == "http://127.0.0.1:1"
    assert store_uri("sqlite:///x.db") == f"sqlite:///{tmp_path}/x.db"
    assert sqlite_file("http://127.0.0.1:1") is None


def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ServiceError) as caught:
        open_store("http://127.0.0.1:9")
    assert caught.value.exit_code == 5 and caught.value.hint


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    file.write_text("these are not tables" * 100)
    with pytest.raises(ServiceError, match=naming("notes.db")):
        open_store(f"sqlite:///{file}")
    assert file.read_text().startswith("these are not tables")


@pytest.mark.slow
def test_a_kill_while_the_store_is_created_leaves_nothing_behind_that_is_refused(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    code = f"from streamgp_pipelines.adapters.mlflow.store import open_store; open_store({uri!r})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")  # empty: the tables are made, which takes its time
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    until = time.monotonic() + 400
    while not list(tmp_path.glob(".mlflow.db.*.tmp")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "mlflow.db").exists()
    open_store(uri)
    assert MlflowClient(uri).search_experiments()
    assert not list(tmp_path.glob(".mlflow.db.*"))
