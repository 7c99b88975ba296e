"""`streamgp report` and `forecast --plot x.html`, as a user runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from mlflow import MlflowClient

from tests.pipelines.reports import figure

from .conftest import World, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_the_page_is_an_artifact_of_the_run(world: World, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("report", "--checkpoint", world.checkpoint, "--output", page, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["bytes"] == page.stat().st_size and any("--predictions" in line for line in found["missing"])
    artifacts = {one.path for one in MlflowClient(world.uri).list_artifacts(found["run_id"])}
    assert "page.html" in artifacts

    alone = run("report", "--checkpoint", world.known, "--output", page, "--tracking-uri", "none", "--json")
    assert alone.exit_code == 0 and json.loads(alone.stdout)["run_id"] is None


def test_a_store_that_is_gone_is_a_warning(world: World, tmp_path: Path) -> None:
    gone = tmp_path / "gone.db"
    words = ["report", "--checkpoint", world.checkpoint, "--output", tmp_path / "r.html"]
    result = run(*words, "--tracking-uri", f"sqlite:///{gone}")
    assert result.exit_code == 0 and str(gone) in result.stderr
    assert not gone.exists() and (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--output", "r.html"], 2),
        (["--checkpoint", "CHECKPOINT", "--comparison", "c"], 2),
        (["--comparison", "c", "--table", "t"], 2),
        (["--checkpoint", "CHECKPOINT", "--output", "r.pdf"], 2),
        (["--comparison", "nowhere", "--output", "r.html"], 3),
        (["--checkpoint", "nowhere", "--output", "r.html"], 4),
        (["--checkpoint", "CHECKPOINT", "--table", "ROWS", "--output", "r.html"], 4),
    ],
)
def test_what_is_wrong_ends_with_its_exit_code(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    known = {"CHECKPOINT": str(world.checkpoint), "ROWS": str(world.row_table)}
    result = run("report", *(known.get(word, word) for word in words))
    assert result.exit_code == code and not list(tmp_path.glob("*.html"))


@pytest.mark.slow
def test_a_comparison_has_the_scores_of_its_tables(world: World, tmp_path: Path) -> None:
    line = ["compare", "--table", world.table, "--target=y", "--horizon=3", "--season=24", "--lags=4", "--warmup=200"]
    home = tmp_path / "c"
    line += ["--batch=64", "--models=persistence", "--comparison", home, "--tracking-uri", "none"]
    assert run(*line).exit_code == 0
    page = tmp_path / "c.html"
    shutil.copytree(home, spaced := tmp_path / "my c")
    missing = json.loads(run("report", "--comparison", spaced, "--output", page, "--json").stdout)["missing"]
    assert any(
        repr(str(spaced / "persistence")) in line or repr(str(spaced / "seasonal_naive")) in line for line in missing
    )
    result = run("report", "--comparison", home, "--output", page)
    assert result.exit_code == 0, result.stderr
    text = page.read_text()
    scores = pl.read_parquet(home / "scores.parquet")
    models = scores.filter(by="all")["model"].to_list()
    for drawn, model in zip(figure(text, "MAE by step")["data"], models, strict=True):
        assert drawn["name"] == model
        assert drawn["y"] == pytest.approx(scores.filter(by="step", model=model)["mae"].to_list(), rel=1e-5)
    ratio = next(
        one for one in figure(text, "Mean losses over those of seasonal_naive")["data"] if one["name"] == "MAE"
    )
    beside = pl.read_parquet(home / "differences.parquet").filter(model="persistence", loss="mae")
    assert ratio["x"] == pytest.approx(beside["ratio"].to_list(), rel=1e-5)
    assert ratio["error_x"]["array"] == pytest.approx((beside["high"] - beside["ratio"]).to_list(), rel=1e-4)
    fan: dict[str, Any] = figure(text, "Forecast beside")["fan"]
    assert fan["models"] == models
    view = fan["panels"][0]["views"][-1]
    for numbers, model in zip(view["models"], models, strict=True):
        own = pl.read_parquet(home / model / "predictions.parquet").sort("cutoff", "ds")
        own = own.filter(pl.len().over("cutoff") == 3)  # the newest origins wait for truths
        assert numbers[0][-3:] == pytest.approx(own[model].to_list()[-3:], rel=1e-4)


@pytest.mark.parametrize("suffix", ["html", "svg", "png"])
def test_a_forecast_is_drawn_as_its_suffix_says(world: World, tmp_path: Path, suffix: str) -> None:
    plot, output = tmp_path / f"f.{suffix}", tmp_path / "f.parquet"
    result = run("forecast", "--checkpoint", world.checkpoint, "--plot", plot, "--output", output, "--level", "80,95")
    assert result.exit_code == 0, result.stderr
    start = {"html": b"<!DOCTYPE html>", "svg": b"<?xml", "png": b"\x89PNG"}[suffix]
    assert plot.read_bytes().startswith(start)
    if suffix == "html":
        (view,) = figure(plot.read_text(), "seasonal_naive")["fan"]["panels"][0]["views"]
        found = pl.read_parquet(output)
        ends = [f"seasonal_naive-{side}-{level}" for level in (80, 95) for side in ("lo", "hi")]
        for values, name in zip(view["models"][0], ["seasonal_naive", *ends], strict=True):
            assert values == pytest.approx(found[name].to_list(), rel=1e-4)
        assert view["y"] == [None] * 3
