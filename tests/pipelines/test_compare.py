"""Models side by side: the same forecasts, their scores, and how sure the differences are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from streamgp.errors import CheckpointError, DataError, StreamgpWarning, UsageError
from streamgp_pipelines import compare
from streamgp_pipelines.adapters.comparison_plot import draw_comparison
from streamgp_pipelines.comparing.cells import common_cells, scores
from streamgp_pipelines.comparing.compare import Comparison
from streamgp_pipelines.comparing.differences import diebold_mariano, difference
from streamgp_pipelines.reporting.comparison import comparison_page
from tests.pipelines.worlds import frame_of, make_table, run, same_bits, tensors_of
from tests.words import names

OPTIONS: dict[str, Any] = {"horizon": 3, "season": 24, "lags": 4, "batch": 64, "level": (80.0, 95.0)}
OPTIONS |= {"target": "y", "warmup": 150}


def made(tmp_path: Path, rows: int = 700, series: tuple[str, ...] = (), **options: Any) -> Comparison:
    table = tmp_path / "table"
    if not table.exists():
        make_table(table, frame_of(rows, series))
    return compare(table, comparison=tmp_path / "comparison", **(OPTIONS | options))


def test_models_that_made_no_forecast_together_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        made(tmp_path, models="linear", max_rows=1)
    assert "linear 0" in str(refused.value) and names(refused.value.hint or "", "warmup=")


@pytest.mark.slow
@pytest.mark.parametrize("series", [(), ("a", "b")])
def test_scores_are_those_of_the_runs_alone(tmp_path: Path, series: tuple[str, ...]) -> None:
    found = made(tmp_path, series=series, models="linear,seasonal_naive")
    for model in ("linear", "seasonal_naive"):
        own = run(tmp_path / "table", tmp_path / model, model=model, **(OPTIONS | {"quantiles": (0.5,)}))
        row = found.scores.filter(by="all", model=model).row(0, named=True)
        for name in ("rmse", "mae", "median_mae", "mase", "pinball", "nlpd"):
            assert_allclose(row[name], own[name], rtol=1e-9, err_msg=name)
        assert_allclose(row["calibrated_crps"], own["calibrated_crps"], rtol=1e-9)
        for level in ("80", "95"):
            assert_allclose(row[f"coverage_{level}"], own["coverage"][level], rtol=1e-9)
            assert_allclose(row[f"width_{level}"], own["width"][level], rtol=1e-9)
        assert row["cells"] == own["scored"] == found.cells and not found.left_out
        steps = found.scores.filter(by="step", model=model)
        assert steps["part"].to_list() == ["1", "2", "3"]
        assert_allclose(steps["mae"], [step["mae"] for step in own["steps"]], rtol=1e-9)
        each = found.scores.filter(by="series", model=model)
        assert {row["part"]: row["mase"] for row in each.iter_rows(named=True) if series} == {
            name: pytest.approx(one["mase"], rel=1e-9) for name, one in own["by_series"].items()
        }
    assert found.scores.filter(by="series")["part"].n_unique() == max(len(series), 1)
    assert found.against == "seasonal_naive"


@pytest.mark.slow
def test_only_forecasts_that_every_model_made_count(tmp_path: Path) -> None:
    data = frame_of(700)
    make_table(tmp_path / "table", data.with_columns(y=pl.when(pl.int_range(700) == 400).then(None).otherwise("y")))
    given = {"season": (), "gaps": "reset"}
    found = made(tmp_path, models="linear,persistence", against="persistence", **given)
    long = run(tmp_path / "table", tmp_path / "long", model="linear", **(OPTIONS | {"lags": 48} | given))
    assert found.cells > long["scored"]
    files = {name: tmp_path / "comparison" / name / "predictions.parquet" for name in ("linear", "persistence")}
    shorter = pl.read_parquet(files["persistence"]).filter(pl.col("cutoff") > pl.col("cutoff").median())
    shorter.write_parquet(tmp_path / "shorter.parquet")
    both = {"linear": (files["linear"], "linear"), "persistence": (tmp_path / "shorter.parquet", "persistence")}
    cells = common_cells(both, (80.0, 95.0))
    assert len(cells.keys) == len(shorter) and cells.made["linear"] == found.cells
    whole = pl.read_parquet(files["linear"]).join(shorter.select("unique_id", "cutoff", "ds"), on=["cutoff", "ds"])
    own = (whole["y"] - whole["linear"]).abs().mean()
    assert_allclose(scores(cells).filter(model="linear")["mae"].item(), own, rtol=1e-12)


@pytest.mark.slow
def test_it_goes_on_and_takes_more_models_in(tmp_path: Path) -> None:
    make_table(tmp_path / "table", frame_of(900))
    first = made(tmp_path, models="linear", max_rows=600)
    state = tensors_of(tmp_path / "comparison" / "linear")
    again = made(tmp_path, models="linear,persistence", max_rows=600)
    kept = tensors_of(tmp_path / "comparison" / "linear")
    assert all(same_bits(state[name], kept[name]) for name in state if "clock" not in name)
    same = ["rmse", "calibrated_crps", "cells"]
    assert (
        first.scores.filter(by="all", model="linear")
        .select(same)
        .equals(again.scores.filter(by="all", model="linear").select(same))
    )
    whole = made(tmp_path, models="linear,persistence")
    assert whole.cells > again.cells


@pytest.mark.slow
def test_a_frame_is_compared_as_its_table(tmp_path: Path) -> None:
    data = frame_of(500, zone=None)
    make_table(tmp_path / "table", data)
    given: dict[str, Any] = OPTIONS | {"models": ("linear",)}
    wanted = compare(tmp_path / "table", comparison=tmp_path / "one", **given).scores.filter(by="all")
    told: dict[str, Any] = given | {"time": "t", "every": "1h"}
    text = data.with_columns(pl.col("t").dt.strftime("%d.%m.%Y %H:%M")).to_arrow()
    for frame, more in ((data.to_pandas().set_index("t"), {}), (text, {"time_format": "%d.%m.%Y %H:%M"})):
        home = tmp_path / type(frame).__name__
        for _ in range(2):  # again, it goes on
            found = compare(frame, comparison=home, **told, **more).scores.filter(by="all")
            assert_allclose(found["mae"], wanted["mae"])
    with pytest.raises(DataError):
        compare(data.with_columns(t=pl.lit("soon")), comparison=tmp_path / "two", **told)
    with pytest.raises(UsageError):
        compare(tmp_path / "table", comparison=tmp_path / "two", **told)
    assert not (tmp_path / "two").exists()


def test_another_frame_begins_another_comparison_and_the_old_one_is_kept(tmp_path: Path) -> None:
    frame, home = frame_of(300, zone=None), tmp_path / "comparison"
    told: dict[str, Any] = {"models": "persistence seasonal_naive", "time": "t", "every": "1h", "season": 24}
    told |= {"horizon": 2, "warmup": 50, "lags": 2, "batch": 64, "comparison": home}
    with pytest.raises(UsageError):
        compare(frame, models="nothing", **{name: value for name, value in told.items() if name != "models"})
    first = compare(frame[:200], **told)
    with pytest.warns(StreamgpWarning, match=r"another data frame.*comparison\.2 now"):
        second = compare(frame[:250].rename({"x": "z"}), **told)
    assert second.cells > first.cells
    assert set(second.scores["model"]) == {"persistence", "seasonal_naive"}
    kept = tmp_path / "comparison.2"  # the first is that of the run that ended in an error
    assert pl.read_parquet(kept / "scores.parquet").equals(first.scores)
    assert "the data frame" not in compare(frame[:250].rename({"x": "z"}), **told).warnings


def test_variants_of_one_model_have_names_of_their_own(tmp_path: Path) -> None:
    found = made(tmp_path, models="weak=linear,v1.0=linear", set=["weak.ridge=1e6", "v1.0.ridge=0.1"], season=())
    scores = found.scores.filter(by="all")
    assert set(scores["model"]) == {"weak", "v1.0", "persistence"}
    mae = dict(scores.select("model", "mae").iter_rows())
    assert mae["v1.0"] < mae["weak"]


@pytest.mark.parametrize(
    "options",
    [
        {"models": " , "},
        {"models": "linear,linear"},
        {"models": "liner"},
        {"models": "../up=linear"},
        {"models": "=linear"},
        {"models": "linear", "set": ["svdgp.basis=4"]},
        {"models": "linear", "set": ["basis=4"]},
        {"models": "linear", "against": "naiv"},
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_run(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        made(tmp_path, **options)
    assert not (tmp_path / "comparison").exists()


@pytest.mark.slow
def test_rows_that_are_held_out_are_compared_in_batch(tmp_path: Path) -> None:
    found = made(tmp_path, models="linear,exact", lags=0, horizon=1, season=(), inputs="x", test_tail=0.2, warmup=None)
    assert set(found.scores.filter(by="all")["cells"]) == {140}
    assert found.against == "linear"


@pytest.mark.slow
def test_outcomes_have_their_own_scores(tmp_path: Path) -> None:
    data = frame_of(700).with_columns(y=(pl.col("y") > 11).cast(pl.Float64))
    make_table(tmp_path / "table", data)
    given: dict[str, Any] = {"horizon": 1, "season": (), "inputs": "x"}
    given["set"] = [f"{name}.{option}" for name in ("svgp", "weak") for option in ("likelihood=logistic", "points=8")]
    given["set"] += ["weak.rebuild=0", "weak.target=level"]
    found = made(tmp_path, models="linear,svgp,weak=svgp", max_rows=400, **given)
    scores = found.scores.filter(by="all")
    assert scores.drop_nulls("log_loss")["model"].sort().to_list() == ["svgp", "weak"]
    one = pl.read_parquet(tmp_path / "comparison" / "svgp" / "predictions.parquet").select("y", p="svgp")
    own = -np.log(np.where(one["y"] == 1, one["p"], 1 - one["p"]))
    mean = dict(scores.select("model", "log_loss").iter_rows())
    assert_allclose(mean["svgp"], own.mean(), rtol=1e-9)
    beside = found.differences.filter(model="svgp", other="weak", loss="log_loss").row(0, named=True)
    assert_allclose(beside["ratio"], mean["svgp"] / mean["weak"], rtol=1e-12)
    assert beside["low"] <= beside["ratio"] <= beside["high"] and beside["p"] is not None
    draw_comparison(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 0
    (calibration,) = [part for part in comparison_page(tmp_path / "comparison").sections if part.title == "Calibration"]
    (diagram,) = [one for one in calibration.parts if one.title == "Reliability"]
    drawn = {trace["name"]: trace for trace in diagram.data}
    assert set(drawn) == {"svgp", "weak"}
    ones = [part["y"].mean() for _, part in sorted(one.group_by(pl.col("p") * 10 // 1))]
    assert_allclose(drawn["svgp"]["y"], ones, rtol=1e-5)


def test_the_statistic_is_that_of_diebold_and_mariano() -> None:
    rng = np.random.default_rng(4)
    change, horizon = np.convolve(rng.standard_normal(205), np.ones(6), "valid") + 0.5, 6
    n, lags = len(change), 5
    mean = change.mean()
    variance = sum(
        (1 - abs(k) / (lags + 1)) * sum((change[t] - mean) * (change[t - abs(k)] - mean) for t in range(abs(k), n)) / n
        for k in range(-lags, lags + 1)
    )
    factor = (n + 1 - 2 * horizon + horizon * (horizon - 1) / n) / n
    statistic = mean / np.sqrt(variance / n) * np.sqrt(factor)
    found = diebold_mariano(change, horizon)
    assert found is not None
    assert_allclose(found, 2 * stats.t.sf(abs(statistic), n - 1), rtol=1e-10)


def test_chance_is_told_as_chance() -> None:
    """Equal models: a test at 5 % rejects about 5 %, and 95 % intervals hold 1 about 95 % of the time.

    300 streams of 40 days: 3 standard errors of the share are .038; both may err some percent more, as blocks are few.
    """
    rng = np.random.default_rng(11)
    rejected = inside = 0
    for _ in range(300):
        day = rng.exponential(size=40).repeat(24)  # losses of a day are alike
        first, other = (day * rng.exponential(size=960) for _ in range(2))
        found = difference(first, other, np.ones(960), 24, 1)
        assert found.p is not None and found.low is not None and found.high is not None
        rejected += found.p < 0.05
        inside += found.low <= 1 <= found.high
    assert 0.01 <= rejected / 300 <= 0.10
    assert 0.89 <= inside / 300 <= 0.985


def test_a_comparison_that_does_not_fit_names_its_own_flag(tmp_path: Path) -> None:
    made(tmp_path, models="linear", max_rows=300)
    with pytest.raises(CheckpointError) as refused:
        made(tmp_path, models="linear", max_rows=300, seed=1)
    assert "comparison=" in refused.value.hint and "checkpoint=" not in refused.value.hint


def test_too_few_origins_say_nothing_of_chance() -> None:
    loss = np.arange(1.0, 101.0)
    found = difference(0.5 * loss, loss, np.ones(100), 48, 48)
    assert (found.ratio, found.low, found.high, found.p) == (0.5, None, None, None)
    assert difference(loss, 0 * loss, np.ones(100), 1, 1).ratio is None
