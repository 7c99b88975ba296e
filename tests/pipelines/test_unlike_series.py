"""Series of unlike scale that share a model: each is learned in units of its own."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import streamgp
from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import UsageError
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_pipelines import load
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.own_units import MEMORY, OwnUnits
from streamgp_pipelines.learning.session import open_session
from tests.pipelines.worlds import assert_same_state, config_of, frame_of, make_table, run
from tests.words import naming

SIZES = {"a": 1.0, "b": 1000.0}
LINE: dict[str, Any] = {"season": None, "warmup": 150, "batch": 32, "lags": 4, "horizon": 2, "predictions": True}


def panel(alike: bool = False, hours: int = 200) -> pl.DataFrame:
    """Two machines; b is a thousand times as large but for its input k, which is 0 or 1 on both."""
    data = frame_of(hours, tuple(SIZES)).with_columns(y=pl.col("y") - 10)
    size = pl.lit(1.0) if alike else pl.col("unique_id").replace_strict(SIZES)
    return data.with_columns(y=pl.col("y") * size, x=pl.col("x") * size)


def issued(home: Path, data: pl.DataFrame, **options: Any) -> tuple[dict[str, Any], pl.DataFrame]:
    """The summary of a run and its forecasts."""
    given = LINE | options | {"predictions": home.with_suffix(".parquet")}
    found = run(make_table(home.with_suffix(".table"), data), home, **given)
    return found, pl.read_parquet(given["predictions"]).sort("unique_id", "cutoff", "ds")


@pytest.mark.parametrize("model", ["linear", pytest.param("auto", marks=pytest.mark.slow)])
def test_series_of_unlike_scale_are_forecast_as_those_of_like_scale(tmp_path: Path, model: str) -> None:
    """A series in units of itself does not know how large it is."""
    small = {"svdgp": {"basis": "16", "reservoir": "128", "rebuild": "100", "evidence_rows": "32"}}
    options: dict[str, Any] = {"model": model, "set": small if model == "auto" else {}}
    told, unlike = issued(tmp_path / "unlike", panel(), **options)
    _, alike = issued(tmp_path / "alike", panel(alike=True), **options, scale="series")
    numbers = [name for name in alike.columns if alike.schema[name] == pl.Float64]
    size = pl.col("unique_id").replace_strict(SIZES)
    assert_frame_equal(unlike.with_columns(pl.col(numbers) / size), alike, rel_tol=1e-7, abs_tol=1e-7)
    assert any("unlike scale: y " in text for text in told["warnings"])


@pytest.mark.slow
def test_known_inputs_act_on_series_of_a_panel_as_on_each_alone(tmp_path: Path) -> None:
    """Units of each window, which vary from hour to hour, would blur what a known input adds: 1.6 times the error."""
    generator, errors = np.random.default_rng(0), list[float]()
    at = np.arange(400.0)
    parts = []
    for name, size in SIZES.items():
        k = 10 * np.sin(2 * np.pi * at / 24) + generator.normal(0, 0.5, len(at)).cumsum()
        time = pl.datetime_range(
            datetime(2026, 1, 1), datetime(2026, 1, 1) + timedelta(hours=len(at) - 1), "1h", eager=True
        )
        y = size * (50 + 2 * k + generator.normal(size=len(at)))
        parts.append(pl.DataFrame({"ds": time, "unique_id": name, "y": y, "k": k}))
    data = pl.concat(parts).sort("ds", "unique_id")
    options = {"season": "24", "known": "k", "warmup": 200, "batch": 48}
    for name, fleet in (("panel", False), ("fleet", True)):
        told, found = issued(tmp_path / name, data, **options, fleet=fleet)
        away = (pl.col("y") - pl.col("linear")).abs() / pl.col("unique_id").replace_strict(SIZES)
        errors.append(found.select(away.mean()).item())
        assert not any("unlike" in text for text in told["warnings"])
    assert errors[0] < 1.1 * errors[1]


@pytest.mark.slow
def test_inputs_that_are_unlike_get_units_too(tmp_path: Path) -> None:
    told, unlike = issued(tmp_path / "unlike", panel(), inputs="x,k")
    _, alike = issued(tmp_path / "alike", panel(alike=True), inputs="x,k", scale="series")
    small = [found.filter(pl.col("unique_id") == "a") for found in (unlike, alike)]
    errors = [float((one["linear"] - one["y"]).abs().mean()) for one in small]  # type: ignore[arg-type]
    assert abs(errors[0] / errors[1] - 1) < 0.05
    assert any("y, x of each" in text for text in told["warnings"])


def test_series_of_like_scale_are_learned_as_before(tmp_path: Path) -> None:
    """Bit for bit as with one unit for all."""
    data = panel(alike=True).with_columns(y=pl.col("y") * pl.col("unique_id").replace_strict({"a": 1.0, "b": 3.0}))
    told, auto = issued(tmp_path / "auto", data)
    _, one = issued(tmp_path / "all", data, scale="all")
    assert auto.equals(one)
    assert not any("scale" in text for text in told["warnings"])


@pytest.mark.slow
def test_one_unit_for_all_is_worse_for_the_small_one(tmp_path: Path) -> None:
    own, _ = issued(tmp_path / "own", panel())
    one, _ = issued(tmp_path / "one", panel(), scale="all")
    fleet, _ = issued(tmp_path / "fleet", panel(), fleet=True, warmup=75)
    mae = [found["by_series"]["a"]["mae"] for found in (own, one, fleet)]
    assert mae[0] < 1.1 * mae[2] < 0.2 * mae[1]


@pytest.mark.parametrize("rows", [100, pytest.param(200, marks=pytest.mark.slow)])
def test_a_run_goes_on_with_the_same_units(tmp_path: Path, rows: int) -> None:
    """From within the warm-up, whose windows are kept with their series, and from after it."""
    whole, _ = issued(tmp_path / "whole", panel())
    table, parts = tmp_path / "whole.table", LINE | {"predictions": None}
    run(table, tmp_path / "parts", max_rows=rows, **parts)
    again = run(table, tmp_path / "parts", **parts)
    assert again["mae"] == whole["mae"]
    assert_same_state(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.slow
def test_a_series_that_begins_after_a_restart_is_forecast_as_without_one(tmp_path: Path) -> None:
    hour = (pl.col("t") - pl.col("t").min()).dt.total_hours()
    late = (
        panel()
        .filter((pl.col("unique_id") == "b") & (hour >= 150))
        .with_columns(unique_id=pl.lit("c"), y=pl.col("y") * 1000)
    )
    data = pl.concat([panel(), late]).sort("t", maintain_order=True)
    told, whole = issued(tmp_path / "whole", data)
    parts = tmp_path / "parts.parquet"
    options = LINE | {"predictions": parts}
    run(tmp_path / "whole.table", tmp_path / "parts", max_rows=280, **options)
    again = run(tmp_path / "whole.table", tmp_path / "parts", **options)
    found = pl.read_parquet(parts).sort("unique_id", "cutoff", "ds")
    assert any("unlike scale" in text for text in told["warnings"]) and again["mae"] == told["mae"]
    assert found.equals(whole) and found.filter(pl.col("unique_id") == "c").height
    assert_same_state(tmp_path / "parts", tmp_path / "whole")


def test_a_forecaster_and_its_forecast_are_in_the_units_of_the_table(tmp_path: Path) -> None:
    data = panel()
    issued(tmp_path / "run", data)
    of_run = load(tmp_path / "run").forecast().frame
    one = streamgp.Forecaster(
        "y", 2, season="none", warmup=150, batch=32, lags=4, every="1h", model="linear", series="unique_id", time="t",
        levels=[80, 95],
    )  # fmt: skip
    found = one.learn(data).forecast()
    names = ["linear", "linear-lo-95", "linear-hi-95"]
    assert_frame_equal(of_run.select(names), found.select(names), rel_tol=1e-9)
    assert found.filter(pl.col("unique_id") == "b")["linear"].abs().min() > 50  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("plug_in", [False, True])
def test_simulations_are_in_the_units_of_the_table(tmp_path: Path, plug_in: bool) -> None:
    spread = []
    for name, data, more in (("un", panel(), {}), ("al", panel(alike=True), {"scale": "series"})):
        issued(tmp_path / name, data, horizon=1, **more)
        spread.append(load(tmp_path / name).simulate(5, plug_in=plug_in, levels=[50]).frame.sort("unique_id", "ds"))
    size = pl.col("unique_id").replace_strict(SIZES)
    for column in ("linear", "linear-lo-50", "linear-hi-50"):
        scaled = spread[0].select(pl.col(column) / size)
        assert_frame_equal(scaled, spread[1].select(column), rel_tol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"online": False, "warmup": None, "checkpoint_every": None, "model": "svdgp", "epochs": 1},
        {"simulate": 3, "horizon": 1},
    ],
)
def test_where_units_are_one_for_all_a_note_says_so(tmp_path: Path, options: dict[str, Any]) -> None:
    given = LINE | {"predictions": None} | options
    for name, alike in (("unlike", False), ("alike", True)):
        told = run(make_table(tmp_path / f"{name}.table", panel(alike)), tmp_path / name, **given)["warnings"]
        assert any("unlike scale" in text for text in told) is not alike


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"fleet": True}, "--fleet"),
        ({"simulate": 3, "horizon": 1}, "--simulate"),
        ({"lags": 0, "horizon": 1, "inputs": "x"}, "--lags 0"),
    ],
)
def test_units_of_series_are_refused_where_nothing_could_follow_them(options: dict[str, Any], named: str) -> None:
    given = {"table": "t", "target": "y", "online": True, **options}
    with pytest.raises(UsageError, match=naming(f"--scale {named} leave")):
        TrainConfig.read({**given, "scale": "series"})
    for scale in ("auto", "all"):
        assert TrainConfig.read({**given, "scale": scale}).scale == scale


@pytest.mark.parametrize(
    ("data", "options", "named"),
    [
        (panel(hours=30).drop("unique_id"), {}, "--scale one"),
        (panel(hours=30).drop("t"), {"inputs": "x", "horizon": 1, "lags": None}, "--scale regression"),
        (
            panel(hours=30).with_columns(y=pl.col("k")),
            {"model": "svdgp", "set": {"likelihood": "logistic"}, "horizon": 1},
            "0 or 1",
        ),
    ],
)
def test_so_they_are_where_the_table_or_the_model_says_so(
    tmp_path: Path, data: pl.DataFrame, options: dict[str, Any], named: str
) -> None:
    table = make_table(tmp_path / "table", data)
    with pytest.raises(UsageError, match=naming(named)) as told:
        open_session(config_of(table, tmp_path / "run", **(LINE | {"scale": "series", "predictions": None} | options)))
    assert "leave" in told.value.hint


def windows(sizes: list[float], rows: int = 80) -> tuple[Inputs, torch.Tensor]:
    """Windows of series of these sizes with a target y, an input u that is alike and one, w, that is constant."""
    draw, series = torch.Generator().manual_seed(0), torch.arange(rows) % len(sizes)
    past = torch.randn(rows, 3, 3, generator=draw, dtype=FLOAT)
    past[..., 0] *= torch.tensor(sizes, dtype=FLOAT)[series, None]
    past[..., 2] = series[:, None].to(FLOAT)
    return Inputs(past, past.new_zeros(rows, 1, 0)), series


SHAPE = Shape(targets=("y",), horizon=1, lags=3, past=("y", "u", "w"), future=())


def test_only_channels_that_are_unlike_get_units() -> None:
    own = OwnUnits(SHAPE, "auto")
    x, series = windows([1.0, 500.0])
    own.see(x, series)
    assert own.settle() == ["y"]
    z, units = own.of(x, series)
    assert torch.equal(z.past[..., 1:], x.past[..., 1:])
    assert torch.allclose(units.values(z.past[:, -1, :1]), x.past[:, -1, :1], atol=1e-9)


def test_the_context_of_a_window_is_in_own_units_too() -> None:
    """Nets learn what a regression on it leaves; the phases, and an input that is as it is, stay."""
    spec = WindowSpec(
        targets=("y",), known=("k",), lags=4, horizon=2, season=6, seasons=(6,), series="s", contexts=True
    )
    generator = np.random.default_rng(0)
    y, k = generator.standard_normal(200), generator.standard_normal(200)
    rows = {"s": ["a", "b"] * 200, "y": np.stack([y, 7 + 1000 * y], 1).ravel(), "k": np.repeat(k, 2)}
    asks, _ = Windows(spec).push(pl.DataFrame(rows).to_arrow().combine_chunks().to_batches()[0])
    own = OwnUnits(spec.shape, "auto")
    own.see(asks.x, asks.series)
    assert own.settle() == ["y"]
    found, units = own.of(asks.x, asks.series)
    layout, a, b = spec.context, asks.series == 0, asks.series == 1
    assert layout is not None and found.context is not None and asks.x.context is not None
    torch.testing.assert_close(found.context[a], found.context[b], rtol=0, atol=1e-9, equal_nan=True)
    channel = np.array([entry.channel for entry in layout.window])
    window, before = found.context[:, : len(channel)], asks.x.context[:, : len(channel)]
    of_y = (before[:, channel == 0] - units.location[:, :1]) / units.scale[:, :1]
    torch.testing.assert_close(window[:, channel == 0], of_y, equal_nan=True)
    torch.testing.assert_close(window[:, channel == 1], before[:, channel == 1], rtol=0, atol=0, equal_nan=True)
    phases = slice(-layout.PHASES, None)
    assert torch.equal(found.context[:, phases], asks.x.context[:, phases])


@pytest.mark.slow
def test_nets_with_seasons_forecast_series_of_unlike_scale_as_each_alone(tmp_path: Path) -> None:
    """The regression below them sees the context: errors were thousands of times as large."""
    options = {"model": "narx", "season": 24, "lags": 6}
    unlike, alike = (issued(tmp_path / name, panel(name == "alike", 400), **options)[1] for name in ("unlike", "alike"))
    for name, size in SIZES.items():
        of_series = (found.filter(pl.col("unique_id") == name) for found in (unlike, alike))
        error, usual = (float((one["narx"] - one["y"]).abs().mean()) for one in of_series)  # type: ignore[arg-type]
        assert error < 1.5 * size * usual


def test_moments_are_those_of_the_rows_however_they_come() -> None:
    x, series = windows([1.0, 500.0])
    pieces = [OwnUnits(SHAPE, "series"), OwnUnits(SHAPE, "series")]
    pieces[0].see(x, series)
    for start in range(0, 80, 7):
        pieces[1].see(x.rows(slice(start, start + 7)), series[start : start + 7])
    first, newest = x.past[1, :-1, 0], x.past[series == 1, -1, 0]
    rows = torch.cat([first, newest]).numpy()
    for own in pieces:
        own.settle()
        own._count[:] = MEMORY  # as of a long stream: the window itself says nothing more
        units = own.of_series(torch.tensor([1]))
        assert np.allclose([units.location.item(), units.scale.item()], [rows.mean(), rows.std()])


def test_a_micro_batch_touches_its_own_series_and_a_new_one_finds_room() -> None:
    """What is held of the others is neither copied nor in the way, and the room for more is no state."""
    own = OwnUnits(SHAPE, "auto")
    x, series = windows([1.0, 500.0, 1.0])
    own.see(x, series)
    held, before = own._count, own._count.copy()
    own.see(x.rows(slice(1, 2)), series[1:2])
    assert own._count is held and np.argwhere((held != before).any(1)).ravel().tolist() == [1]
    for code in (3, 4, 5):
        own.see(x.rows(slice(0, 1)), torch.tensor([code]))
    assert np.shares_memory(own._count[:4], own._count.base) and len(own._count.base) == 6  # type: ignore[arg-type]
    tensors, rest = own.state()
    assert [len(tensors[name]) for name in ("count", "mean", "square")] == [6, 6, 6]
    again = OwnUnits(SHAPE, "auto")
    again.restore(tensors, rest)
    for one in (own, again):
        one.see(x.rows(slice(0, 4)), torch.tensor([6, 0, 7, 6]))
    assert all(
        torch.equal(one, other) for one, other in zip(own.state()[0].values(), again.state()[0].values(), strict=True)
    )


def test_a_new_series_begins_with_what_its_window_shows() -> None:
    own = OwnUnits(SHAPE, "auto")
    own.see(*windows([1.0, 500.0]))
    own.settle()
    past = torch.tensor([[[7e6, 0.0, 0.0], [8e6, 0.0, 0.0], [9e6, 0.0, 0.0]]], dtype=FLOAT)
    z, _ = own.of(Inputs(past, past.new_zeros(1, 1, 0)), torch.tensor([9]))
    assert torch.allclose(z.past[0, :, 0], torch.tensor([-1.2247, 0.0, 1.2247], dtype=FLOAT), atol=1e-3)


def test_many_short_series_are_not_unlike_by_chance() -> None:
    """The smallest of many spreads, each of a few rows, says nothing."""
    own, draw = OwnUnits(SHAPE, "auto"), torch.Generator().manual_seed(0)
    past = torch.randn(900, 3, 3, generator=draw, dtype=FLOAT)
    own.see(Inputs(past, past.new_zeros(900, 1, 0)), torch.arange(900) % 150)
    assert own.settle() == []


@pytest.mark.parametrize("level", [1.0, 1000.0])
def test_a_machine_that_idles_in_the_warmup_decides_nothing(level: float) -> None:
    """Rounding noise around a level is no scale: neither one to compare with, nor a unit."""
    x, series = windows([1.0, 2.0, 3.0])
    noise, idle = 6.7e-6 * level * torch.sign(x.past[..., 0]), series == 2
    x.past[..., 0] = torch.where(idle[:, None], level + noise, x.past[..., 0])
    own, always = OwnUnits(SHAPE, "auto"), OwnUnits(SHAPE, "series")
    for one in (own, always):
        one.see(x, series)
    assert own.settle() == [] and always.settle() == ["y"]
    assert always.of_series(torch.tensor([2])).scale.item() == pytest.approx(1e-3 * level, rel=1e-3)
    z, _ = always.of(x.rows(idle), series[idle])
    assert z.past[..., 0].abs().max() < 0.1


def test_a_series_that_was_always_zero_has_the_unit_of_the_others() -> None:
    x, series = windows([1e5, 2e5, 3e5, 0.0])
    own = OwnUnits(SHAPE, "series")
    own.see(x, series)
    own.settle()
    scale = own.of_series(torch.arange(5)).scale[:, 0]  # the last was never seen
    assert scale[3] == scale[4] == scale[:3].median()
    none = OwnUnits(SHAPE, "series")
    none.see(x._replace(past=0 * x.past), series)
    none.settle()
    assert none.of_series(torch.arange(5)).scale.tolist() == [[1.0]] * 5


def test_one_series_or_none_that_varies_decides_nothing() -> None:
    own = OwnUnits(SHAPE, "auto")
    x, series = windows([1.0])
    own.see(x, series)
    assert own.settle() == [] and not own.used
    still = OwnUnits(SHAPE, "auto")
    still.see(x._replace(past=torch.ones_like(x.past)), torch.arange(80) % 2)
    assert still.settle() == []
