"""Sizes: the estimates against what is really allocated, and what is refused before anything is."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from streamgp.base import FLOAT, Inputs
from streamgp.context import Context
from streamgp.errors import UsageError
from streamgp.forecasting.alarms import Alarms
from streamgp.forecasting.bands import Bands
from streamgp.forecasting.calibration import Calibration
from streamgp.models.svdgp import SharedFleet
from streamgp.predictives.gaussian import Gaussian
from streamgp.windows.ledger import Ledger
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_pipelines.assembly import build_fleet, build_model, model_settings
from streamgp_pipelines.config import ForecastConfig, TrainConfig, TuneConfig
from streamgp_pipelines.forecasting.forecast import forecast
from streamgp_pipelines.learning import sizes
from streamgp_pipelines.training.dry_run import plan
from streamgp_pipelines.tuning.tune import Tuning
from tests.pipelines.worlds import config_of, frame_of, make_table, run
from tests.words import names, naming


@pytest.mark.parametrize(("lags", "season"), [(500, 1), (24, 3000)])
def test_windows_take_what_is_estimated(lags: int, season: int) -> None:
    spec = WindowSpec(targets=("y",), inputs=("a", "b"), lags=lags, season=season, series="s")
    names = [f"s{at}" for at in range(64)]
    rows = pa.record_batch({"s": names, "y": [1.0] * 64, "a": [1.0] * 64, "b": [1.0] * 64})
    tracemalloc.start()
    kept = Windows(spec)
    kept.push(rows)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept.rows == 64
    assert taken / 2 < sizes.windows(spec, 64) < 4 * taken


def test_a_ledger_takes_what_is_estimated() -> None:
    windows = Windows(WindowSpec(targets=("y",), lags=10, horizon=300))
    asks, _ = windows.push(pa.record_batch({"y": [float(at) for at in range(400)]}))
    one = torch.ones(len(asks.origin), 300, dtype=FLOAT)
    tracemalloc.start()
    ledger = Ledger(windows.shape, 13, 10, Gaussian)
    ledger.add(asks, Gaussian(one, one, one))
    ledger.calibrate(torch.ones(13, len(one), 300), torch.ones(10, len(one), 300))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    estimate = sizes.ledger(windows.shape, series=1, levels=2, batch=400, rows=400)
    assert ledger.open == 391 and taken / 2 < estimate < 4 * taken, (estimate, taken)


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{"basis": 400, "memory": "all"}, {"basis": 900}])
def test_a_model_takes_what_is_estimated(options: dict[str, Any]) -> None:
    spec = WindowSpec(targets=("y",), lags=30, horizon=4)
    made = build_model("svdgp", options, spec.shape, torch.device("cpu"))
    x = torch.randn(1200, 30, 1, dtype=FLOAT, generator=torch.Generator().manual_seed(0))
    for _ in made.fit(Inputs(x, x.new_zeros(1200, 4, 0)), x[:, :4, 0] + x[:, 4:8, 0] ** 2, 1):
        pass
    held = sum(tensor.numel() * tensor.element_size() for tensor in made.state()[0].values())
    estimate = model_settings("svdgp", options).bytes_of(spec.shape)
    assert held / 2 < estimate < 8 * held, (estimate, held)  # beside the state there are factors in work


def test_a_linear_model_takes_what_is_estimated() -> None:
    shape = WindowSpec(targets=("y",), lags=300).shape
    made = build_model("linear", {}, shape, torch.device("cpu"))
    held = sum(tensor.numel() * tensor.element_size() for tensor in made.state()[0].values())
    assert held <= model_settings("linear", {}).bytes_of(shape) < 8 * held


def test_what_a_mix_leaves_takes_what_is_estimated() -> None:
    context = Context((24, 168), horizon=4, targets=("y", "z"), inputs=(), known=("k",))
    spec = WindowSpec(targets=("y", "z"), known=("k",), lags=4, horizon=4, season=168)
    shape = replace(spec.shape, context=context)
    stage = build_model("ensemble", {"experts": "linear"}, shape, torch.device("cpu")).interactions
    with_it, without = (
        model_settings("ensemble", {"experts": "linear", "interactions": some}).bytes_of(shape)
        for some in (True, False)
    )
    held = sum(tensor.numel() * tensor.element_size() for tensor in stage.state()[0].values())
    assert held < with_it - without < 8 * held


@pytest.mark.parametrize("horizon", [1, 8])
def test_a_fleet_on_one_kernel_takes_what_is_estimated(horizon: int) -> None:
    spec = WindowSpec(targets=("y",), lags=12, horizon=horizon, fleet=True)
    options = {"shared": True, "basis": 32, "reservoir": 128, "evidence_rows": 50}
    settings, bands = model_settings("svdgp", options), Bands(spec.shape, Calibration(), apart=True)
    fleet = build_fleet("svdgp", options, spec.shape, torch.device("cpu"))
    assert isinstance(fleet, SharedFleet)
    x = torch.randn(200, 12 + horizon, 1, dtype=FLOAT, generator=torch.Generator().manual_seed(0))
    fleet.fit(Inputs(x[:, :12], x.new_zeros(200, horizon, 0)), x[:, 12:, 0], torch.arange(200) % 4)
    bands.reserve(4)
    held = sum(part.nbytes for part in fleet.state()[0].values()) / 4
    assert held < settings.bytes_of(spec.shape) < 5 * held
    assert sum(part.nbytes for part in bands.state()[0].values()) / 4 < sizes.calibration(spec.shape)


@pytest.mark.parametrize("targets", [("y",), ("y", "z")])
def test_alarms_of_a_fleet_take_what_is_estimated(targets: tuple[str, ...]) -> None:
    spec = WindowSpec(targets=targets, lags=4, fleet=True)
    alarms = Alarms(spec.shape, (0.025, 0.5, 0.975), 0.01, apart=True)
    alarms.reserve(4)
    held = sum(part.nbytes for part in alarms.state()[0].values()) / 4
    assert held < sizes.alarms(spec.shape) / 3 < 1.1 * held
    parts = [
        sizes.of_training(spec, 100, 10**5, 1000, 3, 256, model_settings("linear", {}), raises)
        for raises in (False, True)
    ]
    assert sum(parts[1].values()) - sum(parts[0].values()) == 100 * sizes.alarms(spec.shape)


def test_a_fleet_that_does_not_fit_is_refused() -> None:
    spec = WindowSpec(targets=("y",), lags=24, fleet=True)
    settings = model_settings("svdgp", {"shared": True, "basis": 64})
    with pytest.raises(UsageError, match=naming("10,000 series")):
        sizes.check(sizes.of_training(spec, 10_000, 10**7, 10**6, 3, 256, settings), 4 * 10**9)
    sizes.check(sizes.of_training(spec, 100, 10**5, 10**4, 3, 256, settings), 10**9)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("sizes")
    run(make_table(home / "t", frame_of(300)), home / "c", horizon=1, season=1, warmup=100)
    return home


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"horizon": 2**31 - 1}, "--horizon"),
        ({"lags": 10**8}, "--lags"),
        ({"season": 2**31 - 1}, "--season"),
        ({"batch": 2**31 - 1}, "--batch"),
        ({"model": "svdgp", "set": {"basis": 10**6}}, ""),
        ({"horizon": 100_000, "max_memory": "4GB"}, "--horizon"),
    ],
)
def test_a_run_that_does_not_fit_is_refused(world: Path, options: dict[str, Any], named: str) -> None:
    for mode in ({}, {"online": False, "warmup": None, "checkpoint_every": None}):
        config: TrainConfig = config_of(world / "t", world / "none", **options, **mode)
        with pytest.raises(UsageError) as caught:
            plan(config)
        assert names(caught.value.message, named) and "--max-memory" in caught.value.hint
    assert not (world / "none").exists()


def test_many_columns_need_a_large_model() -> None:
    spec = WindowSpec(targets=("y",), inputs=tuple(f"x{at}" for at in range(5000)), lags=4)
    parts = sizes.of_training(spec, 1, 1000, 500, 3, 256, model_settings("linear", {}))
    assert 8e9 < sum(parts.values()) < 20e9
    with pytest.raises(UsageError):
        sizes.check(parts, 8 * 10**9)


def test_paths_and_rows_that_do_not_fit_are_refused(world: Path) -> None:
    ask = {"checkpoint": world / "c", "device": "cpu"}
    with pytest.raises(UsageError, match=naming("--paths")):
        forecast(ForecastConfig.read({**ask, "paths": 10**9, "horizon": 10}))
    with pytest.raises(UsageError, match=naming("--horizon")):
        forecast(ForecastConfig.read({**ask, "plug_in": True, "horizon": 10**10 // 5}))
    with pytest.raises(UsageError, match=naming("--rows")):
        Tuning(TuneConfig.read({"table": world / "t", "target": "y", "rows": 290, "max_memory": "100kB"}))


def test_what_fits_is_done(world: Path) -> None:
    config = config_of(world / "t", world / "none", max_memory="1GB")
    assert plan(config)["rows"] == 300
    assert forecast(ForecastConfig.read({"checkpoint": world / "c", "device": "cpu", "paths": 100})).frame.height == 1


@pytest.mark.parametrize("text", ["much", "-1GB", "0", "4 XB", "", "1e400GB"])
def test_no_amounts_of_memory(text: str) -> None:
    with pytest.raises(UsageError, match=naming("--max-memory")):
        TrainConfig.read({"table": "t", "max_memory": text})


@pytest.mark.parametrize(
    ("model", "options", "named"),
    [
        ("svdgp", {}, "--set basis"),
        ("svdgp", {"shared": True}, "--set reservoir"),
        ("ensemble", {}, "svdgp.basis"),
        ("linear", {}, "--lags"),
    ],
)
def test_a_model_that_does_not_fit_names_the_options_that_make_it_smaller(
    model: str, options: dict[str, Any], named: str
) -> None:
    spec = WindowSpec(targets=("y",), lags=24, horizon=4, season=24, series="s", fleet=True)
    parts = sizes.of_training(spec, 300, 36_000, 5000, 3, 256, model_settings(model, options))
    with pytest.raises(UsageError, match=naming(f"{named} 300 series")):
        sizes.check({name: size for name, size in parts.items() if "the models" in name}, 10**6)
