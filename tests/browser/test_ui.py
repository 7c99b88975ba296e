"""The MLflow UI that `streamgp ui` starts, opened in a real browser."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from mlflow import MlflowClient

from streamgp_data.table import Table, TableMeta
from streamgp_pipelines.adapters.mlflow.artifact import log_artifact
from streamgp_pipelines.adapters.mlflow.tracker import mlflow_tracker
from streamgp_pipelines.adapters.run_plots import draw_run
from streamgp_pipelines.comparing.compare import compare
from streamgp_pipelines.config import CompareConfig, ReportConfig, TrainConfig
from streamgp_pipelines.reporting.report import report
from streamgp_pipelines.training.train import train
from tests.needs import needs

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    needs("chromium", "test-slow"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a comparison of two models, and then one real run of 4000 rows."""
    directory = tmp_path_factory.mktemp("ui")
    schema = pa.schema([("step", pa.int64()), ("y", pa.float64())])
    table = Table.create(str(directory / "demand"), schema, TableMeta(time="step", clock=False, every_ns=1))
    y = [math.sin(step / 24 * 2 * math.pi) + 0.1 * math.sin(step * step) for step in range(4000)]
    table.append(pa.table({"step": range(4000), "y": y}, schema=schema), app_id="test", n=1)
    options = {"table": directory / "demand", "target": "y", "horizon": 3, "season": 24, "lags": 4, "batch": 250}
    both = options | {"warmup": 500, "max_rows": 1500, "models": "persistence,seasonal_naive"}
    compare(
        CompareConfig.read(both | {"comparison": directory / "compared"}),
        mlflow_tracker(f"sqlite:///{directory}/mlflow.db", "compared"),
    )
    options |= {"model": "seasonal_naive", "online": True, "warmup": 500, "checkpoint": directory / "checkpoint"}
    tracker = mlflow_tracker(f"sqlite:///{directory}/mlflow.db", "demo", "seasonal_naive y h3")
    train(TrainConfig.read(options), tracker, draw=draw_run)
    report(ReportConfig.read({"checkpoint": directory / "checkpoint", "output": directory / "report.html"}))
    assert log_artifact(directory / "checkpoint", directory / "report.html")[0]
    return directory


@pytest.fixture(scope="module")
def address(store: Path) -> Iterator[str]:
    """`streamgp ui --json` as a user starts it; ended as a user ends it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["ui", "--tracking-uri", f"sqlite:///{store}/mlflow.db", "--port", str(port), "--json"]
    code = "from streamgp_cli.app import main; main()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen([sys.executable, "-c", code, *words], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.send_signal(signal.SIGINT)
        code_at_end = process.wait(120)
        process.stdout.close()
    assert code_at_end == 130
    with socket.socket() as again:
        assert again.connect_ex(("127.0.0.1", port)) != 0  # nothing is left behind


@pytest.fixture
def page(address: str, open_page: Callable[..., Page]) -> Page:
    page = open_page()
    page.goto(address, wait_until="domcontentloaded")
    return page


def test_the_run_is_there_with_all_that_was_logged(page: Page) -> None:
    """The address that is printed shows the runs with their scores, and the training view stays on the way on."""
    for text in ("overall/calibrated_crps", "overall/coverage_95", "overall/crps", "Scores"):
        page.get_by_text(text).first.wait_for()
    page.get_by_role("link", name="seasonal_naive y h3").first.click()

    for text in ("Finished", "demand (v1-", "Parameters (", "horizon", "overall/rmse", "rmse", "demand-y-h3"):
        page.get_by_text(text).first.wait_for()
    assert page.get_by_text("Evaluation runs").count() == 0  # MLflow's other view

    page.get_by_role("tab", name="Model metrics").click()
    page.get_by_text("coverage", exact=True).first.wait_for()
    page.locator(".js-plotly-plot").nth(2).wait_for()
    page.get_by_text("Step", exact=True).first.wait_for()
    charts = "[...document.querySelectorAll('.js-plotly-plot')].map(chart => [...chart.data[0].x])"
    assert [1000, 2000, 3000, 4000][-3:] in [points[-3:] for points in page.evaluate(charts)]

    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_text("plots", exact=True).first.click()
    page.get_by_text("forecast.png").first.click()
    page.locator("img[src^='blob:'], img[src*='forecast.png']").first.wait_for()

    page.get_by_text("report.html").first.click()
    shown = page.frame_locator("iframe")
    shown.locator("html[data-ready]").wait_for()
    assert shown.locator(".js-plotly-plot").count() == shown.locator("figure").count() > 3

    page.get_by_role("link", name="Model registry").first.click()
    page.get_by_role("link", name="demand-y-h3").first.wait_for()
    page.get_by_text(re.compile("champion")).first.wait_for()


def test_the_servers_own_address_opens_on_the_experiments(address: str, open_page: Callable[..., Page]) -> None:
    """Not on the home of language models, in a browser that was never here."""
    page = open_page()
    page.goto(f"{address.partition('/training')[0]}/", wait_until="domcontentloaded")
    page.get_by_role("link", name="compared").first.wait_for()
    assert page.url.endswith("#/experiments") and page.get_by_text("GenAI").count() <= 1  # the switch alone
    page.get_by_role("link", name="demo").first.click()
    page.get_by_role("link", name="seasonal_naive y h3").first.wait_for()


def test_a_comparison_is_listed_with_its_models_and_shown_side_by_side(page: Page, store: Path) -> None:
    client = MlflowClient(f"sqlite:///{store}/mlflow.db")
    experiment = client.get_experiment_by_name("compared")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    below = [one.info.run_id for one in runs if "mlflow.parentRunId" in one.data.tags]
    (whole,) = (one for one in runs if "mlflow.parentRunId" not in one.data.tags)
    page.get_by_text("Scores").first.wait_for()
    home = page.url.partition("#")[0]

    page.goto(f"{home}#/experiments/{experiment.experiment_id}/runs/{whole.info.run_id}")
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_text("differences.parquet").first.wait_for()

    listed = "[" + ",".join(f'"{run}"' for run in below) + "]"
    page.goto(f'{home}#/compare-runs?runs={listed}&experiments=["{experiment.experiment_id}"]')
    page.get_by_text(re.compile("Comparing 2 Runs", re.IGNORECASE)).first.wait_for()
    for text in ("persistence y h3", "seasonal_naive y h3"):
        page.get_by_text(text).first.wait_for()


def test_a_version_of_a_model_shows_where_it_is_from_and_what_it_takes(page: Page, store: Path) -> None:
    version = MlflowClient(f"sqlite:///{store}/mlflow.db").get_model_version_by_alias("demand-y-h3", "champion")
    page.get_by_text("Scores").first.wait_for()
    page.goto(f"{page.url.partition('#')[0]}#/models/demand-y-h3/versions/{version.version}")
    for text in ("seasonal_naive y h3", "champion", "Schema"):
        page.get_by_text(text).first.wait_for()
