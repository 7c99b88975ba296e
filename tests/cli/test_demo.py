"""The whole road of `streamgp demo`, on fewer rows and with a quicker model."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from mlflow import MlflowClient

from .conftest import run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.mark.slow
def test_the_demo_ends_with_scores_a_forecast_and_a_picture_and_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMGP_MODEL", "linear")
    monkeypatch.setenv("STREAMGP_MAX_ROWS", "2048")
    monkeypatch.setenv("STREAMGP_DIRECTORY", str(tmp_path / "demo"))
    first = run("demo", "--json")
    assert first.exit_code == 0, first.stderr
    made = json.loads(first.stdout)
    assert set(made["scores"]) == {"seasonal_naive", "linear"}
    assert all(found["rows"] == 2048 and found["scored"] > 0 for found in made["scores"].values())
    frame = pl.read_parquet(made["files"]["forecast"])
    assert frame.height == 48 and str(frame["ds"][0]).startswith("2014-12-31 00:00:00")
    assert frame["ds"].dtype == pl.Datetime("us", "Etc/GMT-10")  # the clock of the data, ten hours before UTC
    assert Path(made["files"]["picture"]).read_bytes().startswith(b"\x89PNG")
    assert made["ui"] == f"streamgp ui --tracking-uri sqlite:///{tmp_path}/demo/mlflow.db"

    again = run("demo")
    assert again.exit_code == 0, again.stderr
    assert "linear" in again.stdout and made["files"]["picture"] in again.stdout and made["ui"] in again.stdout
    client = MlflowClient(made["ui"].split()[-1])
    experiment = client.get_experiment_by_name("streamgp-demo")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {found.info.run_id for found in runs} == {found["run_id"] for found in made["scores"].values()}
