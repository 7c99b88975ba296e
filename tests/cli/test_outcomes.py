"""A true/false column from CSV to forecast, as a user goes; what is printed, tracked, refused."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from tests.cli.conftest import Result, run
from tests.words import names

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SETS = ["likelihood=logistic", "gradient.mean_basis=32", "gradient.covariance_basis=16", "gradient.steps=4"]


@pytest.fixture(scope="module")
def wet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A table from a CSV with true and false in it, and a run on it."""
    room = tmp_path_factory.mktemp("wet")
    generator = np.random.default_rng(0)
    rain = generator.random(900) < 0.3 + 0.4 * np.sin(np.arange(900) / 4).clip(0)
    hours = [datetime(2020, 1, 1) + timedelta(hours=row) for row in range(900)]
    pd.DataFrame({"ds": hours, "rain": np.where(rain, "true", "false"), "w": generator.normal(size=900)}).to_csv(
        room / "rain.csv", index=False
    )
    made = {"table": room / "table", "home": room / "c", "uri": f"sqlite:///{room}/mlflow.db", "room": room}
    assert run("ingest", room / "rain.csv", "--table", made["table"], "--every", "1h").exit_code == 0
    done = train(made, "--checkpoint", made["home"])
    assert done.exit_code == 0, done.stderr
    return made | {"done": done}


def train(made: dict[str, Any], *more: object) -> Result:
    words = ["train", "--online", "--table", made["table"], "--target", "rain", "--lags", 4, "--horizon", 3]
    words += ["--warmup", 200, "--batch", 128, "--model", "svdgp", "--tracking-uri", made["uri"]]
    return run(*words, *(word for one in SETS for word in ("--set", one)), *more)


@pytest.mark.slow
def test_the_summary_speaks_of_probabilities(wet: dict[str, Any]) -> None:
    printed = wet["done"].stdout
    for name in ("log loss", "Brier score", "accuracy", "calibration error", "base rate"):
        assert name in printed
    assert "coverage" not in printed and "rmse" not in printed


def test_json_has_the_scores_and_the_bins(wet: dict[str, Any]) -> None:
    again = train(wet, "--checkpoint", wet["home"], "--json")
    found = json.loads(again.stdout)
    assert 0.3 < found["log_loss"] < 0.75 and found["brier"] == found["crps"] and found["coverage"] == {}
    assert [step["step"] for step in found["steps"]] == [1, 2, 3] and "accuracy" in found["steps"][0]
    assert sum(one["forecasts"] for one in found["reliability"]) == found["scored"]
    client = MlflowClient(wet["uri"])
    metrics = client.get_run(found["run_id"]).data.metrics
    assert metrics["overall/log_loss"] == pytest.approx(found["log_loss"]) and "overall/calibration_error" in metrics
    plots = {Path(file.path).name for file in client.list_artifacts(found["run_id"], "plots")}
    assert "reliability.png" in plots and not {"coverage.png", "width.png"} & plots


def test_a_level_is_answered_in_training_and_refused_in_forecasts(wet: dict[str, Any], tmp_path: Path) -> None:
    done = train(wet, "--checkpoint", tmp_path / "c", "--level", 80, "--max-rows", 400, "--tracking-uri", "none")
    assert done.exit_code == 0 and names(done.stdout, "--level")
    refused = run("forecast", "--checkpoint", wet["home"], "--level", 80)
    assert refused.exit_code == 2 and names(refused.stderr, "--level")


def test_forecast_is_a_probability(wet: dict[str, Any], tmp_path: Path) -> None:
    done = run("forecast", "--checkpoint", wet["home"], "--plot", tmp_path / "f.png", "--output", tmp_path / "f.csv")
    assert done.exit_code == 0 and (tmp_path / "f.png").exists()
    header, *lines = (tmp_path / "f.csv").read_text().splitlines()
    assert header == "unique_id,ds,cutoff,svdgp,svdgp-std,svdgp-std-latent" and len(lines) == 3
    found = json.loads(run("forecast", "--checkpoint", wet["home"], "--json").stdout)
    assert found["levels"] == [] and all(0 < row["svdgp"] < 1 for row in found["forecast"])
    described = run("describe", "--checkpoint", wet["home"])
    assert described.exit_code == 0 and "logistic" in described.stdout


def test_the_logged_model_forecasts_alone(wet: dict[str, Any]) -> None:
    mlflow.set_tracking_uri(wet["uri"])
    model = mlflow.pyfunc.load_model("models:/table-rain-h3@champion")
    assert [one.name for one in model.metadata.signature.params.params] == ["horizon"]
    found = model.predict(pd.DataFrame(), params={"horizon": 2})
    assert len(found) == 2 and found["svdgp"].between(0, 1).all()


def test_another_value_is_exit_code_3(wet: dict[str, Any], tmp_path: Path) -> None:
    done = train(wet, "--checkpoint", tmp_path / "c", "--target", "w")
    assert done.exit_code == 3 and names(done.stderr, "'w'")
