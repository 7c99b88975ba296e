"""Free simulation from a checkpoint: paths against dense NumPy, bands against what happened, errors, every kind of
table."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.testing import assert_allclose
from polars.testing import assert_frame_equal

from streamgp.errors import DataError, NumericalError, UsageError
from streamgp.models.linear import Linear
from streamgp_data.table import Table
from streamgp_pipelines import load
from streamgp_pipelines.config import ForecastConfig
from streamgp_pipelines.forecasting.forecast import Forecast, Forecaster, Simulation, forecast
from tests.pipelines.worlds import START_US, append, frame_of, make_table, run, tensors_of
from tests.words import names, naming

ONE: dict[str, Any] = {"horizon": 1, "season": None}
ROWS = 500


def ask(home: Path, **options: Any) -> Forecast:
    return forecast(ForecastConfig.read({"checkpoint": home, "device": "cpu", **options}))


def linear_of(forecaster: Forecaster) -> Linear:
    model = forecaster.learner.model
    assert isinstance(model, Linear)
    return model


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A one-step model of y alone: table `t`, checkpoint `c`."""
    home = tmp_path_factory.mktemp("plain")
    run(make_table(home / "t", frame_of(ROWS)), home / "c", **ONE)
    return home


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A one-step model with an input, a known input, a season and a calendar, in a zone."""
    home = tmp_path_factory.mktemp("rich")
    data = frame_of(ROWS, zone="Europe/Berlin")
    run(make_table(home / "t", data), home / "c", horizon=1, inputs="x", known="k", lags=3, set={"target": "level"})
    return home


def future_of(steps: int) -> pl.DataFrame:
    return frame_of(ROWS + 60, zone="Europe/Berlin")[ROWS : ROWS + steps].select("t", "x", "k")


# numbers


def test_paths_are_those_of_a_dense_simulation(rich: Path) -> None:
    """The same draws of weights and noise, windows cut by hand: lags of y, x, k and the season, then season and k."""
    paths, steps, season = 45, 40, 24
    forecaster = load(rich / "c")
    found = forecaster.simulate(steps, paths, future_of(steps).to_arrow(), seed=3)
    model = linear_of(forecaster)
    g = torch.Generator().manual_seed(3)
    z = torch.randn(paths, *model.weights.shape, generator=g, dtype=torch.float64)[..., 0].numpy()
    s = np.sqrt(float(model.noise) / (1 + float(model.count) / 2))
    w = model.weights[:, 0].numpy() + s * np.linalg.solve(model.factor.numpy().T, z.T).T
    data = pl.concat([frame_of(ROWS, zone="Europe/Berlin").select("t", "x", "k"), future_of(steps)])
    seen = frame_of(ROWS)["y"].to_numpy()
    y = np.concatenate([np.tile(seen, (paths, 1)), np.zeros((paths, steps))], 1)
    x, k = data["x"].to_numpy(), data["k"].to_numpy()
    for t in range(ROWS - 1, ROWS + steps - 1):
        rows = [[y[:, i], np.full(paths, x[i]), np.full(paths, k[i]), y[:, i - season]] for i in (t - 2, t - 1, t)]
        flat = [channel for row in rows for channel in row]
        flat += [y[:, t + 1 - season], np.full(paths, k[t + 1])]
        u = np.concatenate([np.ones((paths, 1)), np.stack(flat, 1) - model.feature_centre.numpy()], 1)
        noise = torch.randn(paths, 1, generator=g, dtype=torch.float64)[:, 0].numpy()
        y[:, t + 1] = float(model.target_centre) + (u * w).sum(1) + s * noise
    expected = y[:, ROWS:]
    assert found.samples.shape == (paths, 1, steps, 1)
    assert_allclose(found.samples[:, 0, :, 0].numpy(), expected, rtol=1e-12)
    frame = found.frame
    assert_allclose(frame["linear"], expected.mean(0), rtol=1e-12)
    assert_allclose(frame["linear-std"], expected.std(0, ddof=1), rtol=1e-10)
    order = np.sort(expected, 0)  # 46 · 0.1 = 4.6: between the fourth and the fifth
    assert_allclose(frame["linear-lo-80"], 0.4 * order[3] + 0.6 * order[4], rtol=1e-12)
    assert frame["linear-std-latent"].null_count() == steps
    assert_frame_equal(
        frame.select("linear-lo-80", "linear-hi-95"),
        frame.select("linear-raw-lo-80", "linear-raw-hi-95").rename(lambda name: name.replace("raw-", "")),
    )
    assert frame["ds"].to_list() == future_of(steps)["t"].to_list()


def test_plug_in_is_the_forecast_of_one_step_on_the_means(plain: Path) -> None:
    found = load(plain / "c").simulate(12, plug_in=True)
    by_hand, data = load(plain / "c"), frame_of(ROWS + 12)
    rows = []
    for step in range(12):
        rows.append(by_hand.forecast().frame)
        mean = pl.DataFrame({"t": data["t"][ROWS + step : ROWS + step + 1], "y": rows[-1]["linear"]})
        by_hand.learner.windows.push(mean.to_arrow().to_batches()[0])
    expected = pl.concat(rows)
    for name in ("unique_id", "ds", "linear", "linear-std", "linear-std-latent", "linear-raw-lo-80"):
        assert_frame_equal(found.frame.select(name), expected.select(name), rel_tol=1e-10)
    assert_frame_equal(found.frame.select(y="linear-lo-95"), expected.select(y="linear-raw-lo-95"), rel_tol=1e-10)
    assert found.frame["cutoff"].n_unique() == 1 and found.samples.shape == (1, 1, 12, 1)
    assert_allclose(found.samples.flatten(), found.frame["linear"])


def test_bands_of_paths_cover_what_happened_and_those_of_plug_in_do_not(tmp_path: Path) -> None:
    """150 AR(1) series; the truth is the 20 rows behind the rows learned."""
    count, learned, steps = 150, 30, 20
    g = np.random.default_rng(0)
    y = np.zeros((count, learned + steps))
    y[:, 0] = g.normal(size=count) / np.sqrt(1 - 0.95**2)
    for t in range(1, learned + steps):
        y[:, t] = 0.95 * y[:, t - 1] + g.normal(size=count)
    t, name = np.divmod(np.arange(count * (learned + steps)), count)
    data = pl.DataFrame({"unique_id": [f"s{code:03}" for code in name], "y": y.T.ravel()})
    table = make_table(tmp_path / "t", data[: count * learned])
    run(table, tmp_path / "c", **ONE, lags=2, warmup=1000, set={"target": "level"}, batch=500, checkpoint_every=None)
    forecaster, truth = load(tmp_path / "c"), y[:, learned:].ravel()

    def coverage(found: Simulation) -> float:
        low, high = (found.frame[f"linear-{side}-90"].to_numpy() for side in ("lo", "hi"))
        return float(((low <= truth) & (truth <= high)).mean())

    paths = forecaster.simulate(steps, 200, levels=[90])
    assert paths.frame["unique_id"].to_list() == [f"s{code:03}" for code in range(count) for _ in range(steps)]
    assert 0.85 <= coverage(paths) <= 0.95
    assert coverage(forecaster.simulate(steps, plug_in=True, levels=[90])) < 0.6


# the same again


def test_the_seed_decides_and_nothing_else_changes(plain: Path) -> None:
    before, forecaster = tensors_of(plain / "c"), load(plain / "c")
    forecaster.observe()
    windows = {name: tensor.clone() for name, tensor in forecaster.learner.windows.state()[0].items()}
    rest = forecaster.learner.windows.state()[1]
    torch.manual_seed(7)
    first = forecaster.simulate(30, 40, seed=1)
    torch.rand(1)
    assert_frame_equal(forecaster.simulate(30, 40, seed=1).frame, first.frame, check_exact=True)
    assert_frame_equal(ask(plain / "c", horizon=30, paths=40, seed=1).frame, first.frame, check_exact=True)
    assert (forecaster.simulate(30, 40, seed=2).samples != first.samples).all()
    after = forecaster.learner.windows.state()
    assert after[1] == rest and all(torch.equal(after[0][name], tensor) for name, tensor in windows.items())
    again = tensors_of(plain / "c")
    assert all(torch.equal(again[name].nan_to_num(), tensor.nan_to_num()) for name, tensor in before.items())
    assert_frame_equal(forecaster.forecast().frame, load(plain / "c").forecast().frame, check_exact=True)
    # sums over windows of another shape may round otherwise, by the processor
    assert_frame_equal(forecaster.simulate(10, 40, seed=1).frame, first.frame.head(10), rel_tol=1e-12, abs_tol=1e-12)


def test_newer_rows_of_the_table(plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path / "p")
    data = frame_of(ROWS + 30)
    append(Table.open(tmp_path / "p" / "t"), data[ROWS:])
    found = ask(tmp_path / "p" / "c", table=tmp_path / "p" / "t", horizon=5, plug_in=True).frame
    assert found["cutoff"].unique().to_list() == [data["t"][ROWS + 29]]


def test_two_series_at_once_are_each_alone(tmp_path: Path) -> None:
    """Series of different lengths; those that the future does not name are left out."""
    data = frame_of(300, ("a", "b"))
    run(make_table(tmp_path / "t", data[:599]), tmp_path / "c", horizon=1, inputs="x", known="k")
    forecaster = load(tmp_path / "c")
    later = frame_of(340, ("a", "b"))
    ends = {"a": 300, "b": 299}
    parts = [later.filter(pl.col("unique_id") == name)[end : end + 9] for name, end in ends.items()]
    both = forecaster.simulate(9, plug_in=True, future=pl.concat(parts[::-1]).to_arrow())
    alone = [forecaster.simulate(9, plug_in=True, future=part.to_arrow()).frame for part in parts]
    assert_frame_equal(both.frame, pl.concat(alone), rel_tol=1e-10)
    assert both.frame["ds"].to_list() == [t for part in parts for t in part["t"].to_list()]
    assert both.frame["cutoff"].unique().sort().to_list() == later["t"].unique().sort()[298:300].to_list()
    # paths of a series have the same distribution whatever other series are simulated
    one, two = (forecaster.simulate(9, 1000, pl.concat(rows).to_arrow()).frame for rows in (parts[1:], parts))
    two = two.filter(pl.col("unique_id") == "b")
    assert_allclose(two["linear-std"], one["linear-std"], rtol=0.16)
    assert ((two["linear"] - one["linear"]).abs() < 0.25 * one["linear-std"]).all()


# every kind of table


def test_several_targets(tmp_path: Path) -> None:
    run(make_table(tmp_path / "t", frame_of(400)), tmp_path / "c", **ONE, target="y,x")
    found = load(tmp_path / "c").simulate(4, 60)
    assert found.frame["target"].to_list() == ["y"] * 4 + ["x"] * 4
    assert found.frame.columns[:5] == ["unique_id", "ds", "cutoff", "target", "linear"]
    assert found.frame["ds"].to_list() == frame_of(404)["t"][400:].to_list() * 2
    assert_allclose(found.frame["linear"].to_numpy().reshape(2, 4).T, found.samples.mean(0)[0], rtol=1e-12)
    paths = found.paths()
    assert paths.columns == ["unique_id", "ds", "target", "path", "y"] and paths.height == 60 * 8
    part = paths.filter((pl.col("path") == 7) & (pl.col("target") == "x"))
    assert_allclose(part["y"], found.samples[7, 0, :, 1])
    mean = paths.group_by("target", "ds", maintain_order=True).agg(pl.col("y").mean())
    assert_allclose(mean["y"], found.frame["linear"], rtol=1e-12)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["rows", "steps", "days", "unknown interval", "fixed offset"])
def test_a_simulation_is_rows_pushed_one_by_one(kind: str, tmp_path: Path) -> None:
    """By plug-in, on a clock that changes to summer time, steps of two, rows without a clock: as `forecast` goes on."""
    data, more = frame_of(330), 20
    options: dict[str, Any] = {"every_ns": None} if kind in ("rows", "unknown interval") else {}
    if kind == "rows":
        data = data.drop("t")
    elif kind == "steps":
        data, options = data.with_columns(t=7 + 2 * pl.int_range(pl.len())), {"every_ns": 2}
    elif kind == "days":  # local midnights; summer time begins at row 326
        midnights = pl.datetime_range(
            pl.datetime(2023, 5, 10), pl.datetime(2025, 5, 10), "1d", time_zone="Europe/Berlin"
        )
        data = data.with_columns(t=pl.select(midnights.alias("t"))["t"].head(330))
        options = {"every_ns": 86_400 * 10**9}
    elif kind == "fixed offset":
        options = {"zone": "+05:30"}
    table = make_table(tmp_path / "t", data[:-more], **options)
    calendar = kind not in ("rows", "steps")
    run(table, tmp_path / "c", horizon=1, known="k", calendar=calendar, season=7, warmup=100)
    future = data[-more:].drop("y").to_arrow()
    found = load(tmp_path / "c").simulate(more, future=future, plug_in=True).frame
    by_hand, rows = load(tmp_path / "c"), []
    by_hand.observe()
    for step in range(more):
        rows.append(by_hand.forecast(future=future.slice(step)).frame)
        row = data[step - more : (step - more + 1) or None].with_columns(y=rows[-1]["linear"])
        by_hand.learner.windows.push(row.to_arrow().to_batches()[0])
    assert_frame_equal(found.select("ds"), pl.concat(rows).select("ds"))
    assert_allclose(found["linear"], pl.concat(rows)["linear"], rtol=1e-10)
    if "t" in data.columns and kind != "unknown interval":
        assert found["ds"].cast(pl.Int64).to_list() == data["t"][-more:].cast(pl.Int64).to_list()


def test_gaps(tmp_path: Path) -> None:
    """With --gaps reset, a gap in the window leaves the series out, and one in the season ends the simulation there."""

    def table_of(name: str, missing: int) -> Any:
        gone = pl.when(pl.int_range(pl.len()) == missing).then(None).otherwise("y")
        return make_table(tmp_path / name, frame_of(400).with_columns(y=gone))

    run(table_of("near", 397), tmp_path / "reset", **ONE, gaps="reset")
    with pytest.raises(DataError):
        ask(tmp_path / "reset", horizon=9, paths=50)
    run(tmp_path / "near", tmp_path / "fill", **ONE)
    assert ask(tmp_path / "fill", horizon=9, paths=50).frame["linear"].null_count() == 0
    run(table_of("season", 384), tmp_path / "d", horizon=1)
    assert ask(tmp_path / "d", horizon=20, paths=50).frame["linear"].null_count() == 0
    run(tmp_path / "season", tmp_path / "c", horizon=1, gaps="reset")  # 24 rows before the 9th step ahead
    with pytest.raises(DataError, match=naming("y 9")) as caught:
        ask(tmp_path / "c", horizon=20, paths=50)
    assert names(caught.value.hint, "8")
    assert ask(tmp_path / "c", horizon=8, paths=50).frame.height == 8


# what cannot be


def test_beyond_the_trained_horizon_the_hint_names_the_simulation(plain: Path) -> None:
    with pytest.raises(UsageError, match=naming("--horizon 9 1")) as caught:
        ask(plain / "c", horizon=9)
    assert "--paths 200" in caught.value.hint and "--horizon 9" in caught.value.hint


def test_models_that_cannot_be_simulated(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(300))
    run(table, tmp_path / "far", season=None)
    for way in ({"paths": 50}, {"plug_in": True}):
        with pytest.raises(UsageError, match=naming("3")) as caught:
            ask(tmp_path / "far", horizon=2, **way)
        assert "--horizon 1" in caught.value.hint
    run(table, tmp_path / "walk", **ONE, model="persistence")
    with pytest.raises(UsageError) as caught:
        ask(tmp_path / "walk", horizon=9, paths=50)
    assert all(word in caught.value.hint for word in ("--plug-in", "--horizon 9", "linear"))
    walk = ask(tmp_path / "walk", horizon=9, plug_in=True).frame
    assert walk["persistence"].n_unique() == 1 and walk["persistence-std"][0] > 0
    row = {"lags": 0, "inputs": "x", "online": False, "warmup": None, "checkpoint_every": None}
    run(table, tmp_path / "flat", **ONE | row)
    with pytest.raises(UsageError) as caught:
        ask(tmp_path / "flat", paths=50)
    with pytest.raises(UsageError, match=naming("1")) as caught:
        ask(tmp_path / "flat", horizon=2)
    assert "--paths" not in caught.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.head(20), "x 21 2023-12-06 17:00:00+01:00"),
        (lambda d: d.with_columns(k=pl.when(pl.int_range(pl.len()) == 29).then(None).otherwise("k")), "k 30"),
        (lambda d: d[3:], "x 1 2023-12-05 21:00:00+01:00"),
        (lambda d: d.drop("x"), "x"),
    ],
)
def test_a_future_that_will_not_do(rich: Path, tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "future.parquet"
    change(future_of(30)).write_parquet(path)
    with pytest.raises(DataError, match=naming(message)):
        ask(rich / "c", horizon=30, paths=50, future=path)


def test_settings_that_do_not_fit(rich: Path, plain: Path) -> None:
    with pytest.raises(UsageError, match=naming("x k")):
        ask(rich / "c", horizon=30, paths=50)
    with pytest.raises(UsageError):
        ask(plain / "c", horizon=30, paths=50, plug_in=True)
    with pytest.raises(UsageError, match=naming("--samples")):
        ask(plain / "c", samples="s.parquet")
    with pytest.raises(UsageError, match=naming("38 95")) as caught:
        ask(plain / "c", horizon=9, paths=38)
    assert names(caught.value.hint, "--paths 39")
    assert ask(plain / "c", horizon=9, paths=9, level="80").frame.height == 9
    with pytest.raises(UsageError, match=naming("0")):
        load(plain / "c").simulate(0)


def test_a_model_that_is_not_stable(plain: Path) -> None:
    forecaster = load(plain / "c")
    linear_of(forecaster).weights.mul_(1e60)
    with pytest.raises(NumericalError) as caught:
        forecaster.simulate(200, 40)
    assert caught.value.hint


def test_files_and_times(plain: Path, tmp_path: Path) -> None:
    found = ask(plain / "c", horizon=6, paths=40, samples=tmp_path / "s.parquet", output=tmp_path / "f.csv")
    assert isinstance(found, Simulation)
    assert_frame_equal(pl.read_parquet(tmp_path / "s.parquet"), found.paths(), check_exact=True)
    assert pl.read_csv(tmp_path / "f.csv")["linear-std-latent"].null_count() == 6
    last = pl.Series([START_US + (ROWS - 1) * 3_600_000_000]).cast(pl.Datetime("us", "UTC"))[0]
    assert found.frame["ds"].to_list() == [last + timedelta(hours=step) for step in range(1, 7)]
    assert ask(plain / "c", paths=40).frame.height == 1
