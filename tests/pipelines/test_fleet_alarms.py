"""Alarms of a fleet: those of a run on each series alone, wherever they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import streamgp
from streamgp.base import FLOAT, Due, Inputs, Shape
from streamgp.forecasting.alarms import Alarms
from streamgp.predictives.gaussian import Gaussian
from streamgp_pipelines import load
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.learning.shard import here
from streamgp_pipelines.training.train import train
from tests.pipelines.worlds import append, assert_same_state, config_of, frame_of, make_table, run, scores_of

NAMES = ("a", "b", "c")
OPTIONS: dict[str, Any] = {"season": None, "warmup": 80, "batch": 32, "lags": 4, "horizon": 2, "alarm_rate": 0.02}
COLUMNS = ("linear-p", "linear-alarm")


def panel(hours: int = 420) -> pl.DataFrame:
    """Series b begins late, and is another size; c is stuck at the end; a has a spike now and then."""
    data = frame_of(hours, NAMES)
    hour, name = (pl.col("t") - pl.col("t").min()).dt.total_hours(), pl.col("unique_id")
    y = pl.when((name == "c") & (hour >= hours - 25)).then(pl.lit(7.5)).otherwise(pl.col("y"))
    y = y + pl.when((name == "a") & (hour % 97 == 96)).then(20.0).otherwise(0.0)
    return data.filter(~((name == "b") & (hour < 90))).with_columns(y=pl.when(name == "b").then(50 * y).otherwise(y))


def fleet(home: Path, data: pl.DataFrame, **options: Any) -> tuple[dict[str, Any], pl.DataFrame]:
    """The summary of a run and what it forecast."""
    path = home.with_suffix(".parquet")
    given = OPTIONS | {"fleet": True, "predictions": path} | options
    return run(make_table(home.with_suffix(".table"), data), home, **given), pl.read_parquet(path)


def of(found: pl.DataFrame, name: str) -> pl.DataFrame:
    return found.filter(pl.col("unique_id") == name).drop("unique_id").sort("cutoff", "ds")


@pytest.mark.slow
def test_the_alarms_of_a_series_are_those_of_a_run_on_it_alone(tmp_path: Path) -> None:
    data = panel()
    found, issued = fleet(tmp_path / "fleet", data)
    counts = dict.fromkeys(("rows", "anomaly", "change", "stuck"), 0)
    for name in NAMES:
        own = data.filter(pl.col("unique_id") == name).drop("unique_id")
        one, alone = fleet(tmp_path / name, own, fleet=False)
        alone = alone.drop("unique_id").sort("cutoff", "ds")
        assert_frame_equal(of(issued, name).select(COLUMNS), alone.select(COLUMNS), rel_tol=1e-9, abs_tol=1e-9)
        counts = {kind: count + one["alarms"][kind] for kind, count in counts.items()}
    assert {kind: found["alarms"][kind] for kind in counts} == counts
    assert counts["anomaly"] > 5 and of(issued, "c")["linear-alarm"].str.contains("stuck").any()


@pytest.mark.sampled
@pytest.mark.parametrize("targets", [("y",), ("y", "z")])
def test_judging_series_apart_is_judging_each_alone(targets: tuple[str, ...]) -> None:
    shape = Shape(targets=targets, horizon=1, lags=1, past=targets, future=())
    together = Alarms(shape, (0.025, 0.5, 0.975), rate=0.05, apart=True)
    alone = [Alarms(shape, (0.025, 0.5, 0.975), rate=0.05) for _ in range(3)]
    draw, outputs = torch.Generator().manual_seed(0), len(targets)
    for size in (300, 7, 64, 300):
        series = torch.randint(3, (size,), generator=draw).repeat_interleave(outputs)
        y = (3 * torch.randn(len(series), dtype=FLOAT, generator=draw)).round() * (1 + series)
        found = together.judge(due(shape, series, y))
        for code, one in enumerate(alone):
            own = series == code
            expected = one.judge(due(shape, 0 * series[own], y[own]))
            assert torch.equal(found.p[own], expected.p) and torch.equal(found.kind[own], expected.kind)
    again = Alarms(shape, (0.025, 0.5, 0.975), rate=0.05, apart=True)
    again.restore(*together.state())
    with pytest.raises(ValueError, match="units"):
        Alarms(shape, (0.025, 0.5, 0.975), rate=0.05).restore(*together.state())


@pytest.mark.parametrize("apart", [True, False])
def test_a_series_that_first_appears_after_a_restart_is_judged_as_without_one(apart: bool) -> None:
    """What a state leaves out, the room for more series, changes nothing."""
    shape = Shape(targets=("y", "z"), horizon=1, lags=1, past=("y", "z"), future=())
    whole, again = (Alarms(shape, (0.025, 0.5, 0.975), rate=0.05, apart=apart) for _ in range(2))
    draw = torch.Generator().manual_seed(0)
    for known in (1, 2, 3, 4, 7, 5):
        series = torch.randint(known, (120,), generator=draw).repeat_interleave(2)
        y = (3 * torch.randn(len(series), dtype=FLOAT, generator=draw)).round()
        found, expected = again.judge(due(shape, series, y)), whole.judge(due(shape, series, y))
        assert all(
            torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(found, expected, strict=True)
        )
        tensors, rest = again.state()
        again = Alarms(shape, (0.025, 0.5, 0.975), rate=0.05, apart=apart)
        again.restore(tensors, rest)
    assert len(tensors["last"]) == 7
    assert all(torch.equal(one, tensors[name]) for name, one in whole.state()[0].items())


def test_room_for_series_that_come_one_by_one_doubles() -> None:
    shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
    alarms, moved = Alarms(shape, (0.025, 0.5, 0.975), rate=0.05, apart=True), 0
    for series in range(1, 129):
        before = alarms._counts.ctypes.data
        alarms.reserve(series)
        moved += alarms._counts.ctypes.data != before
    fresh = Alarms(shape, (0.025, 0.5, 0.975), rate=0.05, apart=True)
    fresh.reserve(128)
    assert moved <= 9
    assert all(one.allclose(fresh.state()[0][name], equal_nan=True) for name, one in alarms.state()[0].items())


def due(shape: Shape, series: torch.Tensor, y: torch.Tensor) -> Due:
    """Truths of forecasts of N(0, 1), target after target in each row."""
    row, one = torch.arange(len(y)), torch.ones(len(y), 1, dtype=FLOAT)
    bands = torch.tensor([[-1.96], [0.0], [1.96]], dtype=FLOAT).expand(3, len(y))
    rest = Inputs(one[:0], one[:0]), one[:0], one[None]
    return Due(series, row, row, row, row % shape.outputs, y, Gaussian(0 * one, one, one), bands, 0 * one.T, *rest)


@pytest.mark.slow
def test_a_fleet_that_is_stopped_raises_the_same(tmp_path: Path) -> None:
    data = panel()
    whole, issued = fleet(tmp_path / "whole", data)
    table, path = make_table(tmp_path / "t", data[:500], cuts=(7, 300)), tmp_path / "pieces.parquet"
    options = OPTIONS | {"fleet": True, "predictions": path}
    run(table, tmp_path / "pieces", **options)
    append(table, data[500:])
    assert scores_of(run(table, tmp_path / "pieces", **options)) == scores_of(whole)
    assert_same_state(tmp_path / "pieces", tmp_path / "whole")
    assert_frame_equal(
        pl.read_parquet(path).sort("unique_id", "cutoff", "ds"), issued.sort("unique_id", "cutoff", "ds")
    )


@pytest.mark.slow
def test_a_series_that_begins_after_a_restart_is_forecast_and_judged_as_without_one(tmp_path: Path) -> None:
    hour = (pl.col("t") - pl.col("t").min()).dt.total_hours()
    data = panel(300).filter((pl.col("unique_id") != "c") | (hour >= 160))
    whole, issued = fleet(tmp_path / "whole", data)
    path = tmp_path / "pieces.parquet"
    options = OPTIONS | {"fleet": True, "predictions": path}
    table = make_table(tmp_path / "t", data.filter(hour < 150))
    run(table, tmp_path / "pieces", **options)
    append(table, data.filter(hour >= 150))
    assert scores_of(run(table, tmp_path / "pieces", **options)) == scores_of(whole)
    assert_same_state(tmp_path / "pieces", tmp_path / "whole")
    found, expected = of(pl.read_parquet(path), "c"), of(issued, "c")
    assert found.height and found["linear-p"].count() and found.equals(expected)


@pytest.mark.slow
def test_alarms_of_buckets_are_those_of_one_piece(tmp_path: Path) -> None:
    data, path = panel(), tmp_path / "many.parquet"
    expected, issued = fleet(tmp_path / "one", data)
    given = OPTIONS | {"fleet": True, "engine": "ray", "predictions": path}
    config = config_of(make_table(tmp_path / "t", data), tmp_path / "many", **given)
    torch.set_num_threads(1)
    found = train(config, lambda directory, _: NoTracker(directory), cluster=lambda _, recipe, __: here(recipe, __))
    assert found["alarms"] == expected["alarms"]
    for name in NAMES:
        one, many = (of(frame, name).select(COLUMNS) for frame in (issued, pl.read_parquet(path)))
        assert_frame_equal(one, many, rel_tol=1e-7, abs_tol=1e-7)


@pytest.mark.slow
def test_they_are_passed_on_once_and_written(tmp_path: Path) -> None:
    told, file = tmp_path / "told.jsonl", tmp_path / "alarms.parquet"
    script = tmp_path / "keep.py"
    script.write_text(f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + chr(10))")
    data = panel()
    table = make_table(tmp_path / "t", data)
    for rows in (700, None, None):
        options = OPTIONS | {"fleet": True, "alarms": file, "on_alarm": f"python {script}", "max_rows": rows}
        run(table, tmp_path / "run", **options)
    keys = [
        (one["unique_id"], one["ds"]) for line in told.read_text().splitlines() for one in json.loads(line)["alarms"]
    ]
    raised = pl.read_parquet(file)
    assert len(keys) == len(set(keys)) == raised.height > 5
    assert {name for name, _ in keys} == set(raised["unique_id"])


def test_a_loaded_fleet_raises_alarms(tmp_path: Path) -> None:
    data = panel()
    fleet(tmp_path / "fleet", data)
    later = data.group_by("unique_id", maintain_order=True).last()
    odd = pl.when(pl.col("unique_id") == "c").then(900.0).otherwise(pl.col("y"))
    later = later.with_columns(pl.col("t").dt.offset_by("1h"), y=odd)
    found = streamgp.load(tmp_path / "fleet").learn(later.select(data.columns)).alarms
    assert found.filter(pl.col("y") == 900.0)["unique_id"].to_list() == ["c"]
    assert load(tmp_path / "fleet").forecast().frame["unique_id"].n_unique() == 3
