"""Forecasters of other libraries beside ours: what the libraries say when they are called directly."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

from streamgp.errors import UsageError
from streamgp_pipelines import compare
from streamgp_pipelines.comparing.compare import Comparison
from tests.needs import needs
from tests.pipelines.worlds import frame_of, make_table

pytestmark = [
    needs("peers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]
OPTIONS: dict[str, Any] = {"target": "y", "horizon": 3, "season": 24, "lags": 4, "batch": 64, "level": (80.0, 95.0)}
OPTIONS |= {"warmup": 200, "device": "cpu"}


def made(tmp_path: Path, data: pl.DataFrame, models: str, **options: Any) -> Comparison:
    if not (tmp_path / "table").exists():
        make_table(tmp_path / "table", data)
    return compare(tmp_path / "table", models=models, directory=tmp_path / "comparison", **(OPTIONS | options))


def written(tmp_path: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(tmp_path / "comparison" / name / "predictions.parquet").sort("unique_id", "cutoff", "ds")


def test_lightgbm_is_lightgbm_on_lags_and_known_inputs(tmp_path: Path) -> None:
    """One step, no season: its table is lags, known inputs and the step; the target departs from the last value."""
    data = frame_of(330)
    options = {"horizon": 1, "season": (), "known": "k", "lags": 3, "set": ["lightgbm.refit=1000", "lightgbm.trees=20"]}
    made(tmp_path, data, "lightgbm", **options)
    found = written(tmp_path, "lightgbm")
    y, k = data["y"].to_numpy(), data["k"].to_numpy()
    at = np.arange(2, 329)  # origins with three lags and a next row
    lags = np.stack([y[at - back] - y[at] for back in (2, 1, 0)], 1)
    past_known = np.stack([k[at - back] for back in (2, 1, 0)], 1)
    table = np.concatenate([lags, past_known, k[at + 1, None], np.ones((len(at), 1))], 1)
    warm = at + 1 < 199  # whose truth is in the warm-up, less the row that waits for its known input
    given = {"objective": "regression", "min_data_in_leaf": 20, "feature_fraction": 0.7, "bagging_fraction": 0.8}
    given |= {"bagging_freq": 1, "deterministic": True, "force_row_wise": True, "verbose": -1, "num_threads": 1}
    given |= {"learning_rate": 0.06, "num_leaves": 31, "seed": 0}
    import lightgbm

    own = lightgbm.train(given, lightgbm.Dataset(np.float32(table[warm]), (y[at + 1] - y[at])[warm]), 20)
    first = found.filter(pl.col("cutoff") < pl.col("cutoff").min() + pl.duration(hours=30))  # before it is refitted
    rows = at >= 200
    expected = own.predict(table[rows]) + y[at][rows]
    assert_allclose(first["lightgbm"], expected[: len(first)], rtol=1e-9)


def test_bands_of_lightgbm_are_quantiles_of_its_own_errors(tmp_path: Path) -> None:
    options = {"horizon": 1, "season": (), "lags": 3, "batch": 20, "set": ["lightgbm.errors=40", "lightgbm.trees=10"]}
    made(tmp_path, frame_of(300), "lightgbm", **options)
    found = written(tmp_path, "lightgbm")
    error = (found["y"] - found["lightgbm"]).to_numpy()
    for at in (60, 80):  # where a micro-batch begins; the truth of the origin before comes with its first row
        low, high = np.quantile(error[at - 41 : at - 1], [0.1, 0.9])
        shift = [found[f"lightgbm-{side}-80"][at] - found["lightgbm"][at] for side in ("lo", "hi")]
        assert_allclose(shift, [low, high], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["autoets", pytest.param("autoarima", marks=pytest.mark.slow), "mstl"])
def test_statsforecast_has_its_own_forecasts_and_intervals(tmp_path: Path, name: str) -> None:
    from statsforecast.models import MSTL, AutoARIMA, AutoETS

    data = frame_of(420)
    found = made(tmp_path, data, f"linear,{name}", set=[f"{name}.every=30", f"{name}.refit=90", f"{name}.history=150"])
    rows = written(tmp_path, name)
    origins = rows["cutoff"].unique().sort()
    y = dict(zip(data["t"].dt.replace_time_zone("UTC").dt.epoch("s"), data["y"], strict=True))
    times = sorted(y)
    model: Any = None
    for index, origin in enumerate(origins.dt.epoch("s").to_list()):
        past = np.array([y[time] for time in times if time <= origin][-150:])
        if name == "mstl":
            own = MSTL([24], trend_forecaster=AutoETS(model="ZZN")).forecast(past, 3, level=[80.0, 95.0])
        elif index % 3 == 0:
            kinds = {"autoets": AutoETS(24), "autoarima": AutoARIMA(season_length=24, approximation=True)}
            model = kinds[name].fit(past)
            own = model.predict(3, level=[80.0, 95.0])
        else:
            own = model.forward(past, 3, level=[80.0, 95.0])
        part = rows.filter(pl.col("cutoff") == origins[index])
        for ours, theirs in {name: "mean", f"{name}-lo-80": "lo-80.0", f"{name}-hi-95": "hi-95.0"}.items():
            assert_allclose(part[ours], own[theirs][: len(part)], rtol=1e-7)
    assert len(origins) == 7 and found.left_out
    assert found.scores.filter(by="all")["cells"].to_list() == [found.cells] * 3
    mae = (rows["y"] - rows[name]).abs().mean()
    assert_allclose(found.scores.filter(by="all", model=name)["mae"].item(), mae, rtol=1e-12)


@pytest.mark.slow
def test_every_peer_is_scored_on_the_same_cells_of_a_panel_with_holes(tmp_path: Path) -> None:
    data = frame_of(420, ("a", "b"))
    hole = pl.col("y").is_between(12.0, 12.4) & (pl.int_range(pl.len()) > 500)
    data = data.with_columns(y=pl.when(hole).then(None).otherwise("y"))
    found = made(tmp_path, data, "linear,fast=autoets,lightgbm", warmup=400, set=["fast.every=10"])
    whole = found.scores.filter(by="all")
    assert whole["cells"].to_list() == [found.cells] * 4 and found.cells > 40
    keys = [set(written(tmp_path, name).select("unique_id", "cutoff", "ds").iter_rows()) for name in whole["model"]]
    assert len(set.intersection(*keys)) == found.cells
    assert whole.filter(model="lightgbm")["skill"].item() > 0
    again = made(tmp_path, data, "linear,fast=autoets,lightgbm", warmup=400, set=["fast.every=10"])
    timing = ["cpu_seconds", "rows_per_second"]
    assert again.scores.drop(timing).equals(found.scores.drop(timing))


@pytest.mark.parametrize(
    "options",
    [{"set": ["lightgbm.tree=3"]}, {"set": ["lightgbm.trees=0"]}, {"test_tail": 0.2, "warmup": None}],
)
def test_what_a_peer_cannot_do_is_refused_before_any_run(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        made(tmp_path, frame_of(300), "linear,lightgbm", **options)
    assert not (tmp_path / "comparison").exists()


def test_without_its_library_a_peer_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(UsageError) as refused:
        made(tmp_path, frame_of(300), "linear,lightgbm")
    assert "streamgp[peers]" in str(refused.value.hint)
