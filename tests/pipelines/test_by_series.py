"""Errors of each series, beside those of the naive forecast in the same rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from streamgp_data.numbers import number
from tests.pipelines.worlds import assert_same_state, frame_of, make_table, run


@pytest.mark.sampled
@pytest.mark.parametrize("fleet", [False, True])
def test_errors_of_each_series_are_those_of_its_forecasts(tmp_path: Path, fleet: bool) -> None:
    data = frame_of(300, ("a", "b"))
    data = data.with_columns(y=pl.when(pl.col("unique_id") == "b").then(pl.col("y") * 100).otherwise("y"))
    table = make_table(tmp_path / "t", data)
    found = run(table, tmp_path / "c", predictions=tmp_path / "p.parquet", fleet=fleet, batch=96, warmup=None)
    scored = pl.read_parquet(tmp_path / "p.parquet").with_columns(error=(pl.col("y") - pl.col("linear")).abs())
    assert list(found["by_series"]) == ["a", "b"]
    for name, one in found["by_series"].items():
        own = scored.filter(unique_id=name)
        assert (one["scored"], one["mae"]) == (own.height, pytest.approx(own["error"].mean()))
        assert one["ratio"] == one["mae"] / one["naive_mae"]
        assert one["mase"] == one["mae"] / one["mase_scale"]
    scales = [one["mase"] for one in found["by_series"].values()]
    assert found["mase"] == pytest.approx(sum(scales) / 2), "MASE of several series is the mean, each over its own"
    for name, one in found["by_series"].items():
        own = scored.filter(unique_id=name)
        past = data.filter(unique_id=name).select("t", "y", past=(pl.col("y") - pl.col("y").shift(24)).abs())
        rows = past.filter(pl.col("t") >= own["ds"].min())
        assert one["naive_mae"] == pytest.approx(rows["past"].mean(), rel=0.05)


def test_one_series_has_none_and_a_longer_horizon_no_naive_error(tmp_path: Path) -> None:
    assert run(make_table(tmp_path / "t", frame_of(400)), tmp_path / "c")["by_series"] == {}
    table = make_table(tmp_path / "u", frame_of(400, ("a", "b")))
    found = run(table, tmp_path / "d", season=2, horizon=3)["by_series"]
    assert all(one["naive_mae"] is None and one["ratio"] is None and one["mae"] > 0 for one in found.values())


def test_the_naive_error_is_that_of_the_rows_that_are_scored(tmp_path: Path) -> None:
    data = frame_of(400).with_row_index("row")
    data = data.with_columns(y=pl.when(pl.col("row") < 250).then(pl.col("y") * 100).otherwise("y")).drop("row")
    found = run(make_table(tmp_path / "t", data), tmp_path / "c", score_from="300", warmup=100)
    y = data["y"].to_numpy()
    assert found["naive_mae"] == pytest.approx(abs(y[300:] - y[276:-24]).mean(), rel=0.02)


def test_they_go_on_with_the_run(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(250, ("a", "b")))
    whole = run(table, tmp_path / "c")
    run(table, tmp_path / "d", max_rows=400)
    assert run(table, tmp_path / "d")["by_series"] == whole["by_series"]
    assert_same_state(tmp_path / "c", tmp_path / "d")


@pytest.mark.sampled
@pytest.mark.parametrize("fleet", [False, True])
def test_the_one_series_that_decides_the_scores_is_named(tmp_path: Path, fleet: bool) -> None:
    """A meter of five is replaced by one that counts in thousandths."""
    data = frame_of(300, tuple("abcde"))
    replaced = (pl.col("unique_id") == "c") & (pl.col("t") > data["t"][900])
    changed = data.with_columns(y=pl.when(replaced).then(pl.col("y") * 1000).otherwise("y"))
    options = {"predictions": tmp_path / "p.parquet", "fleet": fleet, "warmup": 100 if fleet else 500, "season": 1}
    found = run(make_table(tmp_path / "t", changed), tmp_path / "c", **options)
    told = [note for note in found["warnings"] if "decides the scores" in note]
    scored = pl.read_parquet(tmp_path / "p.parquet").filter(pl.col("unique_id") != "c")
    mae = number(float((scored["y"] - scored["linear"]).abs().mean()))  # type: ignore[arg-type]
    assert len(told) == 1 and told[0].startswith("c makes 9") and f"MAE {mae}, MASE" in told[0]
    steady = run(make_table(tmp_path / "u", data), tmp_path / "d", **options)
    assert not any("decides the scores" in note for note in steady["warnings"])
