"""`streamgp compare`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from mlflow import MlflowClient

from .conftest import World, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
LINE = ["--target=y", "--horizon=3", "--season=24", "--lags=4", "--warmup=200", "--batch=64", "--models=linear"]


@pytest.mark.slow
def test_models_are_runs_below_the_comparison(world: World, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    words = ["compare", *LINE, "--table", world.table, "--comparison", tmp_path / "c", "--tracking-uri", store]
    result = run(*words, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    whole = [row for row in found["scores"] if row["by"] == "all"]
    assert {row["model"] for row in whole} == {"linear", "seasonal_naive"}
    assert found["against"] == "seasonal_naive" and whole[0]["skill"] > 0.3
    for name in ("scores", "differences", "picture"):
        assert Path(found["files"][name]).stat().st_size > 0
    assert pl.read_parquet(found["files"]["scores"]).height == len(found["scores"])
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("streamgp")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = (one for one in runs if one.info.run_id == found["run_id"])
    below = [one for one in runs if one.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(below) == 2 and len(runs) == 3
    assert parent.info.status == "FINISHED" and parent.data.metrics["linear.mae"] == pytest.approx(whole[0]["mae"])
    assert {one.path for one in client.list_artifacts(parent.info.run_id)} >= {"scores.parquet", "plots"}

    again = run(*words)
    assert again.exit_code == 0 and "linear" in again.stdout
    assert len(client.search_runs([experiment.experiment_id])) == 3


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["--models=linear,liner"], 2),
        (["--set=linear.ridg=1"], 2),
        (["--set=ridge=1"], 2),
        (["--horizon=900"], 3),
    ],
)
def test_what_is_wrong_ends_with_its_exit_code(world: World, tmp_path: Path, more: list[str], code: int) -> None:
    words = ["compare", *LINE, "--table", world.table, "--comparison", tmp_path / "c", "--tracking-uri", "none", *more]
    assert run(*words).exit_code == code
