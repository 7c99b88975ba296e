"""The model in the registry forecasts alone, with what `streamgp forecast` would say."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import mlflow
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from mlflow import MlflowClient

from streamgp_data.table import Table, TableMeta
from streamgp_pipelines.adapters.mlflow.registry import CHAMPION
from streamgp_pipelines.adapters.mlflow.server import answers
from streamgp_pipelines.adapters.mlflow.tracker import mlflow_tracker
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.forecasting.forecast import load
from streamgp_pipelines.training.train import train

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

START = datetime(2020, 1, 1)
ROWS = 640
OPTIONS = {"target": "y", "horizon": 3, "lags": 4, "season": 24, "batch": 64, "warmup": 200, "online": True}


def rows(first: int, count: int) -> dict[str, list[Any]]:
    span = range(first, first + count)
    y = [math.sin(row / 24 * 2 * math.pi) + row % 7 // 5 for row in span]
    return {"ds": [START + timedelta(hours=row) for row in span], "y": y, "w": [float(row % 7 // 5) for row in span]}


def make_table(path: Path, count: int = ROWS) -> Table:
    columns = rows(0, count)
    zoned = pa.array(columns["ds"], pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    data = pa.table({"ds": zoned, "y": columns["y"], "w": columns["w"]})
    table = Table.create(str(path), data.schema, TableMeta(time="ds", zone="Europe/Berlin", every_ns=3600 * 10**9))
    table.append(data, app_id="test", n=1)
    return table


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A linear model with a known input, logged; then everything but the store is gone."""
    room = tmp_path_factory.mktemp("pyfunc")
    uri = f"sqlite:///{room}/mlflow.db"
    make_table(room / "roof")
    config = TrainConfig.read(
        OPTIONS | {"table": room / "roof", "known": "w", "model": "linear", "checkpoint": room / "c"}
    )
    found = train(config, mlflow_tracker(uri, "solar/roof", "one"))
    future = pa.table(rows(ROWS, 3)).drop_columns("y")
    expected = load(room / "c").forecast(future=future).frame
    shutil.rmtree(room / "c")
    shutil.rmtree(room / "roof")
    mlflow.set_tracking_uri(uri)
    return {"uri": uri, "run": found["run_id"], "expected": expected}


def loaded(made: dict[str, Any]) -> Any:
    return mlflow.pyfunc.load_model(f"models:/roof-y-h3@{CHAMPION}")


def future_rows(first: int = ROWS) -> pd.DataFrame:
    """Three rows without a target: the known future."""
    frame = pd.DataFrame(rows(first, 3))
    frame["y"] = float("nan")
    return frame


@pytest.mark.slow
def test_the_version_belongs_to_the_run_and_names_what_it_needs(made: dict[str, Any]) -> None:
    version = MlflowClient(made["uri"]).get_model_version_by_alias("roof-y-h3", CHAMPION)
    assert version.run_id == made["run"]
    model = loaded(made)
    needs = mlflow.pyfunc.get_model_dependencies(f"models:/roof-y-h3@{CHAMPION}")
    assert {"streamgp", "torch", "mlflow"} <= {line.split("==")[0] for line in Path(needs).read_text().splitlines()}
    signature = model.metadata.signature
    assert signature.inputs.input_names() == ["ds", "y", "w"]
    assert signature.outputs.input_names() == list(made["expected"].columns)


def test_the_logged_model_has_the_parameters_and_the_final_scores_of_its_run(made: dict[str, Any]) -> None:
    client = MlflowClient(made["uri"])
    run = client.get_run(made["run"])
    (output,) = run.outputs.model_outputs
    logged = client.get_logged_model(output.model_id)
    assert (str(logged.status), logged.source_run_id, logged.params) == ("READY", made["run"], run.data.params)
    assert logged.tags["mlflow.source.name"] == "streamgp" and logged.tags["metric"] == "calibrated_crps"
    scores = {metric.key: metric.value for metric in logged.metrics}
    assert scores["overall/calibrated_crps"] == run.data.metrics["overall/calibrated_crps"] > 0


def test_its_input_example_can_be_asked_with(made: dict[str, Any]) -> None:
    model = loaded(made)
    asked = model.input_example
    assert list(asked.columns) == ["ds", "y", "w"] and len(asked) == 3 and asked["y"].isna().all()
    assert list(asked["ds"]) == list(made["expected"]["ds"].dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    assert len(model.predict(asked)) == 3


def test_it_forecasts_what_the_checkpoint_forecasts(made: dict[str, Any]) -> None:
    model = loaded(made)
    found = model.predict(future_rows())
    columns = made["expected"].select(pl.exclude("unique_id", "ds", "cutoff")).columns
    expected = made["expected"].to_pandas()
    pd.testing.assert_frame_equal(found[columns], expected[columns])
    assert list(found["ds"]) == list(expected["ds"]) and set(found["unique_id"]) == {"y"}
    pd.testing.assert_frame_equal(model.predict(future_rows()), found)  # asked again, the same


def test_recent_rows_move_it_without_teaching_it(made: dict[str, Any]) -> None:
    model = loaded(made)
    newer = pd.concat([pd.DataFrame(rows(ROWS, 5)), future_rows(ROWS + 5)])
    found = model.predict(newer, params={"horizon": 2, "levels": [50.0]})
    assert list(found["cutoff"].dt.tz_convert("UTC").dt.tz_localize(None)) == [START + timedelta(hours=ROWS + 4)] * 2
    assert "linear-lo-50" in found.columns and "linear-lo-80" not in found.columns
    before = model.predict(future_rows())
    assert before["cutoff"].iloc[0] < found["cutoff"].iloc[0]


def test_without_a_known_input_an_empty_frame_will_do(tmp_path: Path, made: dict[str, Any]) -> None:
    make_table(tmp_path / "table")
    line = OPTIONS | {"table": tmp_path / "table", "model": "seasonal_naive", "checkpoint": tmp_path / "c"}
    train(TrainConfig.read(line), mlflow_tracker(made["uri"], "empty", ""))
    model = mlflow.pyfunc.load_model(f"models:/table-y-h3@{CHAMPION}")
    found = model.predict(pd.DataFrame())
    assert len(found) == 3 and found["seasonal_naive"].notna().all()


def test_a_model_is_logged_once_a_state(tmp_path: Path, made: dict[str, Any]) -> None:
    table = make_table(tmp_path / "once")
    line = OPTIONS | {"table": tmp_path / "once", "model": "persistence", "checkpoint": tmp_path / "c"}
    client = MlflowClient(made["uri"])
    found = []
    for step in range(3):
        if step == 2:
            more = rows(ROWS, 64)
            zoned = pa.array(more["ds"], pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
            table.append(pa.table({"ds": zoned, "y": more["y"], "w": more["w"]}), app_id="test", n=2)
        train(TrainConfig.read(line), mlflow_tracker(made["uri"], "once", ""))
        found.append([int(one.version) for one in client.search_model_versions("name = 'once-y-h3'")])
    assert found == [[1], [1], [2]]  # a run keeps one version, its newest


@pytest.mark.slow
def test_mlflow_serves_it(made: dict[str, Any]) -> None:
    """`mlflow models serve` answers on loopback with what the checkpoint forecasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    beside = {"MLFLOW_TRACKING_URI": made["uri"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    beside["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it starts `uvicorn`
    words = ["models", "serve", "-m", f"models:/roof-y-h3@{CHAMPION}", "--env-manager", "local"]
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *words, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
        env=os.environ | beside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        while not answers(f"http://127.0.0.1:{port}/ping", 1.0):  # until the timeout of this file
            assert server.poll() is None
            time.sleep(0.2)
        asked = json.loads(future_rows().to_json(orient="split", date_format="iso", index=False))
        body = {"dataframe_split": asked, "params": {"horizon": 2, "levels": [95.0]}}
        request = Request(
            f"http://127.0.0.1:{port}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urlopen(request, timeout=60) as answer:
            found = json.load(answer)["predictions"]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    expected = made["expected"].head(2)
    assert [row["linear"] for row in found] == pytest.approx(expected["linear"].to_list())
    assert [row["linear-hi-95"] for row in found] == pytest.approx(expected["linear-hi-95"].to_list())
    assert "linear-lo-80" not in found[0]
