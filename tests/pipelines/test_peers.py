"""Forecasters of other libraries beside ours: what the libraries say when they are called directly."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose

from streamgp.errors import UsageError
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_pipelines import compare
from streamgp_pipelines.comparing.compare import Comparison
from streamgp_pipelines.comparing.peers.columns import PeerColumns
from streamgp_pipelines.comparing.peers.ridge import solved
from streamgp_pipelines.comparing.peers.statistical import Config as Options
from streamgp_pipelines.comparing.peers.trees import Config
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
    return compare(tmp_path / "table", models=models, comparison=tmp_path / "comparison", **(OPTIONS | options))


def written(tmp_path: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(tmp_path / "comparison" / name / "predictions.parquet").sort("unique_id", "cutoff", "ds")


def recipe(data: pl.DataFrame, step: int, models: dict[str, Any], since: int) -> dict[str, float]:
    """MAE a step ahead as a first attempt has it: lags, seasons before, means, hour and weekday; the change from the
    last value; refitted every 60 rows on all before."""
    y, at = data["y"].to_numpy(), np.arange(48, len(data) - step)
    means = np.convolve(y, np.ones(24) / 24)[: len(y)]
    lags = [y[at - back] for back in (0, 1, 2, 3, 23)]
    columns = [*lags, y[at + step - 24], y[at + step - 48], means[at], (at + step) % 24, (at + step) // 24 % 7]
    table, change = np.stack(columns, 1), y[at + step] - y[at]
    errors: dict[str, list[float]] = {name: [] for name in models}
    for begin in range(since, len(data) - step, 60):
        known, ahead = at + step <= begin, (at >= begin) & (at < begin + 60)
        for name, model in models.items():
            error = model.fit(table[known], change[known]).predict(table[ahead]) - change[ahead]
            errors[name] += np.abs(error).tolist()
    return {name: float(np.mean(values)) for name, values in errors.items()}


@pytest.mark.slow
def test_direct_peers_are_no_worse_than_the_first_attempt_of_their_users(tmp_path: Path) -> None:
    from lightgbm import LGBMRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = pl.read_csv("data/elecdemand.csv").with_columns(pl.col("timestamp").str.to_datetime(time_zone="UTC"))
    hourly = rows.group_by_dynamic("timestamp", every="1h").agg(y=pl.col("demand_gw").mean()).head(1500)
    data = hourly.select(t="timestamp", y="y", x=pl.lit(0.0), k=pl.lit(0.0))
    options: dict[str, Any] = {"season": (24, 168), "lags": 24, "warmup": 600, "score_from": "600", "horizon": 6}
    found = made(tmp_path, data, "lightgbm,ridge", **options, set=["lightgbm.refit=60", "ridge.refit=60"])
    plain = {"lightgbm": LGBMRegressor(n_estimators=300, learning_rate=0.05, n_jobs=1, verbose=-1)}
    plain["ridge"] = make_pipeline(StandardScaler(), Ridge(1.0))
    steps = found.scores.filter(by="step")
    own = {(row["model"], row["part"]): row["mae"] for row in steps.iter_rows(named=True)}
    first = {step: recipe(data, step, plain, 600) for step in (1, 6)}
    for name in plain:
        ratios = [own[name, str(step)] / first[step][name] for step in first]
        assert np.prod(ratios) < 1.0 and max(ratios) < 1.05


def test_lightgbm_chooses_what_it_forecasts_departures_from(tmp_path: Path) -> None:
    """A walk departs from its last value, a pattern with noise from its season or its own level."""
    generator, hours = np.random.default_rng(0), np.arange(600)
    walk = generator.normal(size=600).cumsum() * 10 + 1e6
    pattern = 5 * generator.normal(size=24)[hours % 24] + generator.normal(size=600)
    chosen = []
    for y in (walk, pattern):
        windows = Windows(WindowSpec(targets=("y",), lags=24, horizon=1, season=24, seasons=(24,)))
        asks = windows.push(pa.record_batch({"y": y}))[0]
        x, truth = asks.x.rows(slice(0, -1)), torch.from_numpy(y[asks.origin.numpy()[:-1] + 1][:, None])
        peer = Config(trees=15).build("lightgbm", windows.shape, (0.5,), 0)
        list(peer.fit(x, truth, 1))
        chosen.append(peer.base(0, 0))
    assert chosen[0] == "last" and chosen[1] in ("level", "season", "mean")


def test_columns_of_trees_are_what_they_are_called() -> None:
    """Lags, their statistics and references are less the last value; a known input is at its step."""
    y, k = np.random.default_rng(1).normal(size=(2, 40))
    spec = WindowSpec(targets=("y",), known=("k",), lags=4, horizon=3, season=5, seasons=(5,))
    windows = Windows(spec)
    asks = windows.push(pa.record_batch({"y": y, "k": k}))[0]
    columns, which = PeerColumns(windows.shape), len(asks.origin) - 1
    at = int(asks.origin[which])
    found = columns.rows(asks.x, np.array([which]), np.array([2]))  # three steps ahead
    assert_allclose(found.last, [[y[at]]])
    assert_allclose(found.values[0, :4], y[at - np.arange(4)] - y[at])
    newest = y[at - 3 : at + 1]
    statistics = newest.mean() - y[at], newest.min() - y[at], newest.max() - y[at], newest.std()
    assert_allclose(found.values[0, 4:8], statistics)
    bases = dict(zip(columns.bases, found.bases[0, :, 0] + y[at], strict=True))
    week = y[at - 4 : at + 1].mean()
    assert_allclose([bases[name] for name in ("level", "last", "season", "mean")], [0.0, y[at], y[at - 2], week])
    assert found.values.shape[1] == len(columns.own)
    for value in (k[at + 3], k[at + 3] - k[at], k[at - 2 : at + 4].mean(), 3.0):
        assert np.isclose(found.values[0], value).any()


def test_ridge_is_that_of_scikit_learn() -> None:
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler

    generator = np.random.default_rng(2)
    table, truth = generator.normal(3.0, [1.0, 5.0, 0.1], (50, 3)), generator.normal(size=(50, 2))
    whole = np.column_stack([table, np.ones(50)])
    found = solved(whole.T @ whole, whole.T @ truth, np.array([0.5, 20.0]))
    for penalty, weights in zip((0.5, 20.0), found, strict=True):
        scale = StandardScaler().fit(table)
        own = Ridge(penalty).fit(scale.transform(table), truth)
        assert_allclose(whole @ weights, own.predict(scale.transform(table)), rtol=1e-9)


def test_ridge_finds_a_linear_system(tmp_path: Path) -> None:
    """y[t + 1] = 0.6 y[t] + k[t + 1] + noise: the error is that of the noise."""
    generator = np.random.default_rng(3)
    k, noise, y = generator.normal(size=600), generator.normal(scale=0.1, size=600), np.zeros(600)
    for at in range(1, 600):
        y[at] = 0.6 * y[at - 1] + k[at] + noise[at]
    data = frame_of(600).with_columns(y=pl.Series(y), k=pl.Series(k))
    found = made(tmp_path, data, "ridge", horizon=1, season=(), lags=2, known="k", warmup=300)
    whole = found.scores.filter(by="all", model="ridge")
    assert whole["mae"].item() < 1.3 * np.abs(noise[300:]).mean()
    assert 0.9 < whole["coverage_95"].item() <= 1.0


def test_bands_of_lightgbm_are_quantiles_of_its_own_errors(tmp_path: Path) -> None:
    options = {"horizon": 1, "season": (), "lags": 3, "batch": 20, "set": ["lightgbm.errors=40", "lightgbm.trees=10"]}
    made(tmp_path, frame_of(300), "lightgbm", **options)
    found = written(tmp_path, "lightgbm")
    error = (found["y"] - found["lightgbm"]).to_numpy()
    for at in (60, 80):  # where a micro-batch begins; the truth of the origin before comes with its first row
        low, high = np.quantile(error[at - 41 : at - 1], [0.1, 0.9])
        shift = [found[f"lightgbm-{side}-80"][at] - found["lightgbm"][at] for side in ("lo", "hi")]
        assert_allclose(shift, [low, high], rtol=1e-9)


@pytest.mark.parametrize(("rows", "every"), [(20_000, 25), (3_600, 17), (700, 1), (30, 1)])
def test_statsforecast_forecasts_at_enough_origins_of_a_short_table(rows: int, every: int) -> None:
    shape = replace(WindowSpec(targets=("y",), lags=4, horizon=3, season=24).shape, context=None)
    assert Options().on(shape, rows) == Options(every=every) and Options(every=7).on(shape, rows) == Options(every=7)


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
            own = MSTL([24], trend_forecaster=AutoARIMA()).forecast(past, 3, level=[80.0, 95.0])
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
def test_bands_of_statsforecast_are_quantiles_of_its_own_errors_once_there_are_enough(tmp_path: Path) -> None:
    options: dict[str, Any] = {"horizon": 1, "season": (), "lags": 3, "batch": 20}
    made(tmp_path, frame_of(420), "autoets", **options, set=["autoets.every=5", "autoets.refit=900"])
    found = written(tmp_path, "autoets")
    error = (found["y"] - found["autoets"]).to_numpy()
    at = len(found) - 5  # the errors of the micro-batch before have come, and at most those of its own
    shift = found["autoets-lo-80"][at] - found["autoets"][at]
    counts = range(20, at + 1)
    own = [np.quantile(error[:n], (0.1 * (n + 1) - 1) / (n - 1)) for n in counts]
    assert np.isclose(own, shift, rtol=1e-9).any()


@pytest.mark.slow
def test_every_peer_is_scored_on_the_same_cells_of_a_panel_with_holes(tmp_path: Path) -> None:
    data = frame_of(420, ("a", "b"))
    hole = pl.col("y").is_between(12.0, 12.4) & (pl.int_range(pl.len()) > 500)
    data = data.with_columns(y=pl.when(hole).then(None).otherwise("y"))
    found = made(tmp_path, data, "linear,fast=autoets,lightgbm,ridge", warmup=400, set=["fast.every=10"])
    whole = found.scores.filter(by="all")
    assert whole["cells"].to_list() == [found.cells] * 5 and found.cells > 40
    keys = [set(written(tmp_path, name).select("unique_id", "cutoff", "ds").iter_rows()) for name in whole["model"]]
    assert len(set.intersection(*keys)) == found.cells
    assert whole.filter(model="lightgbm")["skill"].item() > 0
    again = made(tmp_path, data, "linear,fast=autoets,lightgbm,ridge", warmup=400, set=["fast.every=10"])
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
