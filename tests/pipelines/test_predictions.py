"""Anyone can recompute the scores of a summary from the file of forecasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from streamgp.errors import CheckpointError, TableError
from streamgp_pipelines.describe import describe_table
from tests.pipelines.worlds import frame_of, make_table, run
from tests.words import names

LEVELS = ("80", "95")
COLUMNS = ["lo-80", "hi-80", "lo-95", "hi-95", "std", "std-latent", "raw-lo-80", "raw-hi-80", "raw-lo-95", "raw-hi-95"]


def recomputed(data: pl.DataFrame, model: str) -> dict[str, Any]:
    """The scores of Gaussian forecasts, from nothing but the file."""
    y, mean, std = (data[name].to_numpy() for name in ("y", model, f"{model}-std"))
    z = (y - mean) / std
    found: dict[str, Any] = {
        "scored": len(y),
        "rmse": np.sqrt(np.mean((y - mean) ** 2)),
        "mae": np.mean(abs(y - mean)),
        "nlpd": -np.mean(norm.logpdf(y, mean, std)),
        "crps": np.mean(std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))),
    }
    for prefix in ("", "raw-"):
        name = prefix.replace("-", "_")
        found[f"{name}coverage"], found[f"{name}width"] = {}, {}
        for level in LEVELS:
            low, high = (data[f"{model}-{prefix}{side}-{level}"].to_numpy() for side in ("lo", "hi"))
            found[f"{name}coverage"][level] = np.mean((low <= y) & (y <= high))
            found[f"{name}width"][level] = np.mean(high - low)
    return found


def compare(summary: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        if isinstance(value, dict):
            for level, number in value.items():
                assert_allclose(summary[name][level], number, rtol=1e-9, atol=1e-12, err_msg=f"{name} {level}")
        else:
            assert_allclose(summary[name], value, rtol=1e-9, err_msg=name)


def steps_checked(data: pl.DataFrame) -> pl.DataFrame:
    """The frame, whose steps ahead are those of its times: rows are hourly."""
    assert data["step"].equals((data["ds"] - data["cutoff"]).dt.total_hours().alias("step"))
    return data


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["linear", "seasonal_naive"])
@pytest.mark.parametrize("series", [(), ("a", "b", "c")])
def test_every_score_is_in_the_file(tmp_path: Path, model: str, series: tuple[str, ...]) -> None:
    table = make_table(tmp_path / "t", frame_of(500, series))
    summary = run(table, tmp_path / "c", model=model, predictions=tmp_path / "p.parquet", known="k")
    data = steps_checked(pl.read_parquet(tmp_path / "p.parquet"))
    compare(summary, recomputed(data, model))
    assert [figures["step"] for figures in summary["steps"]] == [1, 2, 3]
    for figures in summary["steps"]:
        compare(figures, recomputed(data.filter(pl.col("step") == figures["step"]), model))
    assert sum(figures["scored"] for figures in summary["steps"]) == summary["scored"] == data.height


def test_several_targets(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(500))
    summary = run(table, tmp_path / "c", target="y,x", predictions=tmp_path / "p.parquet")
    data = steps_checked(pl.read_parquet(tmp_path / "p.parquet"))
    assert data.columns == [
        "unique_id",
        "ds",
        "cutoff",
        "step",
        "target",
        "y",
        "linear",
        *(f"linear-{n}" for n in COLUMNS),
    ]
    assert data["target"].unique().sort().to_list() == ["x", "y"]
    compare(summary, recomputed(data, "linear"))
    for name, figures in summary["targets"].items():
        own = data.filter(pl.col("target") == name)
        compare(figures, recomputed(own, "linear"))
        for at in figures["steps"]:
            compare(at, recomputed(own.filter(pl.col("step") == at["step"]), "linear"))


def test_the_truths_and_names_are_the_table_s(tmp_path: Path) -> None:
    rows = frame_of(500, ("a", "b"))
    run(make_table(tmp_path / "t", rows), tmp_path / "c", predictions=tmp_path / "p.parquet")
    data = pl.read_parquet(tmp_path / "p.parquet")
    assert data.columns == ["unique_id", "ds", "cutoff", "step", "y", "linear", *(f"linear-{n}" for n in COLUMNS)]
    joined = data.join(rows, left_on=["unique_id", "ds"], right_on=["unique_id", "t"], how="left")
    assert joined["y"].equals(joined["y_right"]) and not joined["y_right"].has_nulls()
    assert data.unique(["unique_id", "ds", "cutoff"]).height == data.height
    assert (data["ds"] > data["cutoff"]).all() and data.schema["ds"] == rows.schema["t"]
    assert (data["linear-raw-lo-95"] < data["linear-raw-lo-80"]).all()
    assert (data["linear-lo-95"] <= data["linear-lo-80"]).all() and (
        data["linear-std-latent"] < data["linear-std"]
    ).all()


def test_mase_s_scale_is_from_before_scoring(tmp_path: Path) -> None:
    rows = frame_of(500)
    summary = run(make_table(tmp_path / "t", rows), tmp_path / "c")
    y = rows["y"].to_numpy()[:200]
    assert_allclose(summary["mase"], summary["mae"] / abs(y[24:] - y[:-24]).mean(), rtol=1e-9)


def test_without_a_clock_times_are_steps(tmp_path: Path) -> None:
    rows = frame_of(500).drop("t")
    run(make_table(tmp_path / "t", rows), tmp_path / "c", predictions=tmp_path / "p.parquet")
    data = pl.read_parquet(tmp_path / "p.parquet")
    assert data["ds"].max() == 499 and data["cutoff"].min() == 200
    assert ((data["ds"] - data["cutoff"]).unique().sort() == pl.Series([1, 2, 3])).all()


def test_times_are_shown_in_the_table_s_zone(tmp_path: Path) -> None:
    rows = frame_of(400, zone="Europe/Berlin")
    run(make_table(tmp_path / "t", rows), tmp_path / "c", predictions=tmp_path / "p.parquet")
    data = pl.read_parquet(tmp_path / "p.parquet")
    assert data.schema["ds"] == pl.Datetime("us", "Europe/Berlin") and data["ds"].max() == rows["t"].max()


def test_a_naive_clock_stays_naive(tmp_path: Path) -> None:
    rows = frame_of(400, zone=None)
    run(make_table(tmp_path / "t", rows), tmp_path / "c", predictions=tmp_path / "p.parquet")
    data = pl.read_parquet(tmp_path / "p.parquet")
    assert data.schema["ds"] == pl.Datetime("us") and data["ds"].max() == rows["t"].max()


@pytest.mark.slow
def test_asked_for_late_the_file_says_what_it_lacks(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(800))
    run(table, tmp_path / "c", max_rows=500)
    late = run(table, tmp_path / "c", predictions=tmp_path / "p.parquet")
    held = pl.read_parquet(tmp_path / "p.parquet").height
    assert 0 < held < late["scored"]
    assert any(names(warning, f"{held} {late['scored']}") for warning in late["warnings"])
    whole = run(table, tmp_path / "c", predictions=tmp_path / "p.parquet", fresh=True)
    assert pl.read_parquet(tmp_path / "p.parquet").height == whole["scored"] and not whole["warnings"]


@pytest.mark.slow
def test_the_file_can_go_elsewhere_later(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(500))
    run(table, tmp_path / "c", predictions=tmp_path / "p.parquet")
    run(table, tmp_path / "c", predictions=tmp_path / "new" / "q.parquet")
    assert pl.read_parquet(tmp_path / "p.parquet").equals(pl.read_parquet(tmp_path / "new" / "q.parquet"))


def parts_of(home: Path) -> list[Path]:
    return sorted((home / "predictions").glob("*.parquet"))


@pytest.mark.slow
def test_a_damaged_part_is_an_error_that_names_it(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(800))
    options: dict[str, Any] = {"predictions": tmp_path / "p.parquet", "checkpoint_every": 128}
    run(table, tmp_path / "c", **options)
    whole = (tmp_path / "p.parquet").read_bytes()
    part = parts_of(tmp_path / "c")[1]
    text = part.read_bytes()
    for place in [*range(0, len(text), len(text) // 9), None]:
        if place is None:
            part.write_bytes(text[:-1])
        else:
            part.write_bytes(text[:place] + bytes([text[place] ^ 4]) + text[place + 1 :])
        with pytest.raises(CheckpointError, match=part.name):
            run(table, tmp_path / "c", **options)
        assert (tmp_path / "p.parquet").read_bytes() == whole
    part.write_bytes(text)
    run(table, tmp_path / "c", **options)
    assert pl.read_parquet(tmp_path / "p.parquet").equals(pl.read_parquet(whole))


def test_training_on_a_damaged_table_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(800), cuts=[300, 500])
    part = sorted((tmp_path / "t").glob("part-*.parquet"))[1]
    text = part.read_bytes()
    part.write_bytes(text[:900] + bytes([text[900] ^ 1]) + text[901:])
    modes: list[dict[str, Any]] = [{}, {"online": False, "warmup": None, "checkpoint_every": None}]
    for i, mode in enumerate(modes):
        with pytest.raises(TableError, match=part.name):
            run(table, tmp_path / f"c{i}", **mode)
    with pytest.raises(TableError, match=part.name):
        describe_table(tmp_path / "t")
