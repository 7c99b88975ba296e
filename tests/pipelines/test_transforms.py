"""Targets that are learned transformed: forecasts and scores come back in their own units, and the laws hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy.special import expit, ndtri

from streamgp.errors import DataError, UsageError
from streamgp_pipelines import load
from tests.pipelines.worlds import append, assert_same_state, frame_of, make_table, run, scores_of

HOURS = np.arange(2600)
LOCATION = 0.8 * np.sin(2 * np.pi * HOURS / 24)
SIGMA = 0.5


def table_of(path: Path, *targets: Any, names: str = "yx") -> Any:
    data = frame_of(len(targets[0])).select("t", "k")
    return make_table(path, data.with_columns(pl.Series(n, y) for n, y in zip(names, targets, strict=False)))


def scored(table: Any, home: Path, **options: Any) -> tuple[pl.DataFrame, dict[str, Any]]:
    options = {"lags": 2, "horizon": 2, "warmup": 400, "predictions": home / "scored.parquet", **options}
    summary = run(table, home, **options)
    return pl.read_parquet(home / "scored.parquet"), summary


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["log", "logit"])
def test_bands_and_means_are_those_of_the_closed_form(tmp_path: Path, kind: str) -> None:
    """z is a random walk: y is asked about from z = g(y) with the quantiles g⁻¹(z + sd √h Φ⁻¹(p)), and their mean."""
    sd, warmup = 0.1, 400
    back, bounds = (np.exp, {}) if kind == "log" else (expit, {"lower": 0, "upper": 1})
    z = np.cumsum(sd * np.random.default_rng(1).normal(size=len(HOURS)))
    table = table_of(tmp_path / "t", back(z))
    options = {"transform": kind, "model": "persistence", "season": None, "warmup": warmup, **bounds}
    frame, summary = scored(table, tmp_path / "c", **options)
    median, _ = scored(table, tmp_path / "d", point="median", **options)
    frame, median = (part.sort("cutoff", "ds").tail(2000) for part in (frame, median))
    step = np.tile([1, 2], 1000)
    hour = (frame["cutoff"] - frame_of(1)["t"][0]).dt.total_hours().to_numpy()
    spread = sd * np.sqrt(step)[:, None]
    nodes = ndtri((np.arange(1000) + 0.5) / 1000)
    mean = back(z[hour][:, None] + spread * nodes).mean(1)
    error = abs(frame["persistence"] / mean - 1)
    assert error.mean() < 0.01 and error.max() < 0.05
    assert abs((median["persistence"] / back(z[hour])) - 1).max() < 0.05
    for side, p in (("lo", 0.025), ("hi", 0.975)):
        exact = back(z[hour] + spread[:, 0] * ndtri(p))
        assert abs((frame[f"persistence-{side}-95"] / exact).mean() - 1) < 0.03
    assert 0.935 < summary["coverage"]["95"] < 0.965 and 0.78 < summary["coverage"]["80"] < 0.82


MODELS: dict[str, dict[str, Any]] = {
    "linear": {},
    "seasonal_naive": {},
    "svdgp": {"set": {"basis": "32", "reservoir": "256", "rebuild": "400", "evidence_rows": "64"}},
    "ensemble": {"set": {"experts": '["seasonal_naive", "linear"]'}},
}
each_model = pytest.mark.parametrize(
    "model", [name if name == "linear" else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)


@each_model
def test_a_model_learns_the_log_of_the_target(tmp_path: Path, model: str) -> None:
    """Quantiles and paths are exp of those of a run on log y."""
    z = LOCATION[:600] + SIGMA * np.random.default_rng(4).normal(size=600)
    options = {"model": model, "quantiles": "0.3", "point": "median", **MODELS[model]}
    log, _ = scored(table_of(tmp_path / "t", np.exp(z)), tmp_path / "c", transform="log", **options)
    own, _ = scored(table_of(tmp_path / "u", z), tmp_path / "d", **options)
    names = [name for name in own.columns if name.startswith(model) and "-std" not in name]
    assert len(names) == 10
    np.testing.assert_allclose(np.log(log.select(names).to_numpy()), own.select(names).to_numpy(), atol=1e-6)
    ahead, exact = (load(tmp_path / home).forecast().frame.select(names).to_numpy() for home in "cd")
    np.testing.assert_allclose(np.log(ahead), exact, atol=1e-6)


def test_scores_are_those_of_the_forecasts_in_target_units(tmp_path: Path) -> None:
    y = np.exp(LOCATION + SIGMA * np.random.default_rng(2).normal(size=len(HOURS)))[:900]
    options = {"transform": "log", "quantiles": "0.3,0.7"}
    frame, summary = scored(table_of(tmp_path / "t", y), tmp_path / "c", **options)
    truth = pl.DataFrame({"ds": frame_of(900)["t"], "exact": y})
    both = frame.join(truth, on="ds")
    assert (both["y"] == both["exact"]).all() and len(both) == summary["scored"]
    error = frame["y"] - frame["linear"]
    assert summary["mae"] == pytest.approx(error.abs().mean())
    assert summary["rmse"] == pytest.approx((error**2).mean() ** 0.5)
    inside = frame["y"].is_between(frame["linear-lo-95"], frame["linear-hi-95"])
    assert summary["coverage"]["95"] == pytest.approx(inside.mean())
    assert 0 < summary["calibrated_crps"] < 1.1 * summary["crps"]
    assert summary["transforms"] == {"y": "log"}
    _, other = scored(table_of(tmp_path / "u", y), tmp_path / "d", transform="none")
    assert other["transforms"] == {} and summary["mase_scale"] == other["mase_scale"]
    assert summary["nlpd"] < other["nlpd"] - 0.2


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["log", "logit"])
def test_values_at_and_beyond_a_bound_lose_no_row(tmp_path: Path, kind: str) -> None:
    y = np.clip(0.4 + 0.5 * np.sin(2 * np.pi * HOURS / 24) + 0.1 * np.random.default_rng(3).normal(size=2600), 0, 1)[
        :900
    ]
    y[700], y[701] = -0.5, 1.5
    bounds = {"lower": 0, "upper": 1}
    frame, summary = scored(table_of(tmp_path / "t", y), tmp_path / "c", transform=kind, **bounds)
    _, other = scored(table_of(tmp_path / "u", y), tmp_path / "d", **bounds)
    assert (y == 0).sum() > 50 and summary["scored"] == other["scored"] == len(frame)
    assert frame.select(pl.col(pl.Float64).is_finite().all()).row(0) == (True,) * len(
        frame.select(pl.col(pl.Float64)).columns
    )
    assert frame["linear-lo-95"].min() == 0 and frame["linear-hi-95"].max() <= 1  # a bound is met, not approached
    assert set(frame["y"]) >= {-0.5, 1.5}
    assert summary["coverage"]["95"] > 0.9


def test_warm_ups_beyond_the_bounds_are_refused(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", LOCATION[:900])
    with pytest.raises(DataError, match="bounds"):
        run(table, tmp_path / "c", transform="log")
    assert not (tmp_path / "c").exists()
    run(table, tmp_path / "c", transform="log", lower=-1)
    with pytest.raises(UsageError):
        run(table, tmp_path / "d", transform="x=log")
    with pytest.raises(UsageError):
        run(table, tmp_path / "d", transform="logit", lower=0)


@each_model
def test_the_laws_hold_for_transformed_targets(tmp_path: Path, model: str) -> None:
    """Chunks, restarts and what comes later change nothing; a panel of two targets, each with its own transform."""
    data = frame_of(220, ("a", "b")).with_columns(x=(pl.col("x") * 0.3).exp(), y=pl.col("y").clip(lower_bound=0.0))
    options = {"model": model, "target": "y,x", "transform": "x=log", "warmup": 200, "known": "k", **MODELS[model]}
    whole = make_table(tmp_path / "t", data)
    one = run(whole, tmp_path / "one", predictions=tmp_path / "one.parquet", **options)
    cut = make_table(tmp_path / "cut", data.head(277), [1, 200, 201])
    run(cut, tmp_path / "two", predictions=tmp_path / "two.parquet", **options)
    append(cut, data.tail(-277))
    two = run(cut, tmp_path / "two", predictions=tmp_path / "two.parquet", **options)
    assert scores_of(one) == scores_of(two) and one["transforms"] == {"y": "none", "x": "log"}
    assert_same_state(tmp_path / "one", tmp_path / "two")
    frames = [pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("one", "two")]
    assert_frame_equal(*frames, check_exact=True)
    assert frames[0].filter(pl.col("target") == "x")[f"{model}-lo-95"].min() > 0
    other = data.with_columns(x=pl.when(pl.int_range(pl.len()) < 360).then("x").otherwise(7.0))
    run(make_table(tmp_path / "other", other), tmp_path / "three", predictions=tmp_path / "three.parquet", **options)
    until = data["t"][359 - 2 * 3]
    issued = [
        frame.filter(pl.col("cutoff") <= until).drop("y").sort("unique_id", "target", "cutoff", "ds")
        for frame in (frames[0], pl.read_parquet(tmp_path / "three.parquet"))
    ]
    assert_frame_equal(*issued, check_exact=True)


def test_a_checkpoint_forecasts_and_simulates_in_target_units(tmp_path: Path) -> None:
    z = LOCATION[:500] + SIGMA * np.random.default_rng(4).normal(size=500)
    log, own = table_of(tmp_path / "t", 1000 * np.exp(z)), table_of(tmp_path / "u", np.log(1000) + z)
    found = run(log, tmp_path / "c", transform="auto", horizon=1)
    run(own, tmp_path / "d", horizon=1)
    assert found["transforms"] == {"y": "log"}
    forecasters = [load(tmp_path / home) for home in "cd"]
    ahead, _ = (one.forecast() for one in forecasters)
    assert ahead.history["y"].to_list() == (1000 * np.exp(z)).tolist()[-len(ahead.history) :]
    assert 0 < ahead.frame["linear-lo-95"][0] < ahead.frame["linear"][0] < ahead.frame["linear-hi-95"][0]
    paths, exact = (one.simulate(30, 100).samples.numpy() for one in forecasters)
    np.testing.assert_allclose(np.log(paths), exact, atol=1e-6)
    plug, means = (one.simulate(30, plug_in=True).samples.numpy() for one in forecasters)
    np.testing.assert_allclose(np.log(plug), means, atol=1e-6)


def test_auto_leaves_symmetric_targets_alone(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(600))
    auto, none = (run(table, tmp_path / kind, transform=kind) for kind in ("auto", "none"))
    assert auto["transforms"] == {"y": "none"}
    assert scores_of(auto | {"transforms": {}}) == scores_of(none)


def test_values_outside_of_the_bounds_are_told(tmp_path: Path) -> None:
    frame = frame_of(400)
    table, lower = make_table(tmp_path / "t", frame), float(np.quantile(frame["y"].to_numpy(), 0.1))
    inside = run(table, tmp_path / "a", model="linear", lower=float(frame["y"].to_numpy().min()))
    told = run(table, tmp_path / "b", model="linear", lower=lower)
    assert len(told["warnings"]) == len(inside["warnings"]) + 1
    assert any("40" in warning for warning in told["warnings"])
