"""Batch training: what is held out teaches nothing, and is scored exactly once."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.testing import assert_allclose

from streamgp.base import Inputs, Shape, Step
from streamgp.errors import CheckpointError, DataError, SchemaError, UsageError
from streamgp.models import linear
from streamgp_data import checkpoint
from streamgp_pipelines import load
from tests.pipelines.killed import Crash, code_of, start, train_apart
from tests.pipelines.worlds import assert_same_state, frame_of, make_table, run, same_bits, scores_of, tensors_of
from tests.words import naming

REGRESSION: dict[str, Any] = {
    "online": False,
    "lags": 0,
    "horizon": 1,
    "season": 1,
    "inputs": "u*",
    "test_column": "fold",
    "warmup": None,
    "checkpoint_every": None,
}
WINDOWS: dict[str, Any] = {"online": False, "warmup": None, "checkpoint_every": None, "test_tail": 0.2}
SVDGP: dict[str, Any] = {"model": "svdgp", "set": {"basis": "64", "evidence_rows": "100"}}
GRADIENT: dict[str, Any] = {
    "model": "svdgp",
    "epochs": 4,
    "set": {"inference": "gradient", "gradient.mean_basis": "48", "gradient.covariance_basis": "24"},
}


def cloud(count: int = 500, seed: int = 0) -> pl.DataFrame:
    """Rows without order or clock: y of two inputs; about a fifth are held out."""
    random = np.random.default_rng(seed)
    u, v = random.uniform(-2, 2, (2, count))
    y = np.sin(2 * u) + 0.5 * v + random.normal(scale=0.1, size=count)
    return pl.DataFrame({"u1": u, "u2": v, "y": y, "fold": (random.uniform(size=count) < 0.2).astype(np.int64)})


def models_of(home: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors_of(home).items() if name.startswith("model/")}


@pytest.mark.parametrize("options", [{}, SVDGP], ids=["linear", "svdgp"])
def test_each_held_out_row_is_scored_once(tmp_path: Path, options: dict[str, Any]) -> None:
    data = cloud()
    summary = run(
        make_table(tmp_path / "t", data), tmp_path / "c", predictions=tmp_path / "p.parquet", **REGRESSION, **options
    )
    held = np.flatnonzero(data["fold"].to_numpy())
    found = pl.read_parquet(tmp_path / "p.parquet")
    assert found["ds"].to_list() == held.tolist() == found["cutoff"].to_list()
    assert found["y"].to_list() == data["y"].to_numpy()[held].tolist()
    assert summary["rows"] == len(data) and summary["scored"] == len(held)
    error = found["y"] - found[options.get("model", "linear")]
    assert_allclose(summary["rmse"], np.sqrt(np.mean(error.to_numpy() ** 2)), rtol=1e-9)
    assert summary["rmse"] < (0.2 if options else 0.9)


def test_the_fit_is_that_of_the_other_rows(tmp_path: Path) -> None:
    data = cloud()
    run(make_table(tmp_path / "t", data), tmp_path / "c", predictions=tmp_path / "p.parquet", **REGRESSION)
    shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u1", "u2"), future=("u1", "u2"))
    model = linear.build(linear.Config(), shape)
    values = torch.from_numpy(data.select("u1", "u2", "y").to_numpy().copy())
    held = torch.from_numpy(data["fold"].to_numpy() == 1)

    def inputs(rows: torch.Tensor) -> Inputs:
        return Inputs(rows.new_zeros(len(rows), 0, 3), rows[:, None, :2])

    for _ in model.fit(inputs(values[~held]), values[~held, 2:], epochs=1):
        pass
    expected = model.predict(inputs(values[held])).mean[:, 0]
    assert_allclose(pl.read_parquet(tmp_path / "p.parquet")["linear"].to_numpy(), expected.numpy(), rtol=1e-9)


def drives(count: int = 600) -> pl.DataFrame:
    """Two recordings, row by row in turn: speeds that change slowly; a fifth of the rows is held out at random."""
    random = np.random.default_rng(3)
    walk = np.cumsum(random.normal(size=(2, count // 2)), 1).T.ravel()
    fold = (random.uniform(size=count) < 0.2).astype(np.int64)
    return pl.DataFrame({"car": ["a", "b"] * (count // 2), "u1": np.tanh(walk), "y": walk, "fold": fold})


BLOCKS = REGRESSION | {"test_column": None, "test_tail": 0.2}


@pytest.mark.parametrize(
    ("data", "options", "count"),
    [
        (drives(), REGRESSION, 1),
        (drives(), BLOCKS | {"test_blocks": 10}, 0),
        (drives().sample(fraction=1.0, shuffle=True, seed=0), REGRESSION, 0),
        (cloud(), REGRESSION, 0),
    ],
    ids=["rows of a recording", "blocks", "shuffled", "cloud"],
)
def test_test_rows_among_training_rows_of_a_trajectory_are_warned_of(
    tmp_path: Path, data: pl.DataFrame, options: dict[str, Any], count: int
) -> None:
    series = {"series": "car"} if "car" in data.columns else {}
    found = run(make_table(tmp_path / "t", data, **series), tmp_path / "c", **options)["warnings"]
    assert len([text for text in found if "--test-blocks" in text]) == count


def test_blocks_are_the_ends_of_equal_parts(tmp_path: Path) -> None:
    asked = BLOCKS | {"test_blocks": 5, "predictions": tmp_path / "p.parquet"}
    run(make_table(tmp_path / "t", cloud()), tmp_path / "c", **asked)
    rows = np.arange(500)
    assert pl.read_parquet(tmp_path / "p.parquet")["ds"].to_list() == rows[rows % 100 >= 80].tolist()


@pytest.mark.sampled
@pytest.mark.parametrize("case", ["column", "tail", "column and lags"])
@pytest.mark.parametrize("options", [{}, SVDGP], ids=["linear", "svdgp"])
def test_held_out_targets_change_nothing_of_the_model(tmp_path: Path, case: str, options: dict[str, Any]) -> None:
    if case == "column":
        data, asked = cloud(), REGRESSION
        held = pl.col("fold") == 1
    elif case == "tail":
        data, asked = frame_of(500), WINDOWS
        held = pl.int_range(pl.len()) >= 400
    else:
        data = frame_of(500).with_columns(fold=(pl.int_range(pl.len()) // 60 % 4 == 3).cast(pl.Int64))
        asked = WINDOWS | {"test_tail": None, "test_column": "fold"}
        held = pl.col("fold") == 1
    other = data.with_columns(y=pl.when(held).then(100 - pl.col("y")).otherwise(pl.col("y")))
    one = run(make_table(tmp_path / "t", data), tmp_path / "c", **asked, **options)
    two = run(make_table(tmp_path / "u", other), tmp_path / "d", **asked, **options)
    left, right = models_of(tmp_path / "c"), models_of(tmp_path / "d")
    assert left and all(same_bits(left[name], right[name]) for name in left)
    assert one["rmse"] != two["rmse"] and one["scored"] == two["scored"] > 0


def test_the_tail_is_forecast_from_the_rows_before(tmp_path: Path) -> None:
    data = frame_of(500)
    summary = run(make_table(tmp_path / "t", data), tmp_path / "c", predictions=tmp_path / "p.parquet", **WINDOWS)
    found = pl.read_parquet(tmp_path / "p.parquet")
    count = found.group_by("ds").len().sort("ds")
    assert count["ds"].to_list() == data["t"][400:].to_list() and (count["len"] == 3).all()
    assert summary["scored"] == 300 == found.height and summary["rows"] == 500
    y = data["y"].to_numpy()[:400]
    assert_allclose(summary["mase"], summary["mae"] / abs(y[24:] - y[:-24]).mean(), rtol=1e-9)


def test_series_of_other_pace_are_scored_too(tmp_path: Path) -> None:
    """One series has ten rows in the time of one of the other; every held-out row has its H forecasts."""
    fast, slow = frame_of(600, ("fast",)), frame_of(600, ("slow",), seed=1).gather_every(10)
    data = pl.concat([fast, slow]).sort("t", maintain_order=True)
    table = make_table(tmp_path / "t", data, every_ns=None)
    run(table, tmp_path / "c", predictions=tmp_path / "p.parquet", **WINDOWS | {"season": 1, "lags": 2})
    found = pl.read_parquet(tmp_path / "p.parquet").group_by("unique_id", "ds").len()
    assert (found["len"] == 3).all()
    assert found.height == 660 - (660 - int(0.2 * 660))


@pytest.mark.slow
def test_a_finished_run_repeats_its_summary(tmp_path: Path) -> None:
    for name, data, asked in (("regression", cloud(), REGRESSION), ("windows", frame_of(500), WINDOWS)):
        for options in ({}, {"epochs": 3}, {"time_budget": "50s"}, SVDGP | {"epochs": 4}):
            home = tmp_path / name / "-".join(options)
            table = make_table(home / "t", data)
            one = run(table, home / "c", predictions=home / "p.parquet", **asked, **options)
            frame = pl.read_parquet(home / "p.parquet")
            tensors = models_of(home / "c")
            two = run(table, home / "c", predictions=home / "p.parquet", **asked, **options)
            assert scores_of(one) == scores_of(two) and one["seconds"] == two["seconds"]
            assert frame.equals(pl.read_parquet(home / "p.parquet"))
            assert all(same_bits(tensor, tensors[key]) for key, tensor in models_of(home / "c").items())


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("options", "saves"), [({}, 1), (GRADIENT, 2), (GRADIENT, 5)])
def test_killed_and_started_again(tmp_path: Path, options: dict[str, Any], saves: int, after: bool) -> None:
    """Between epochs and after the scoring; the epochs that were saved are not learned again."""
    table, asked = make_table(tmp_path / "t", cloud(300)), REGRESSION | options
    whole = run(table, tmp_path / "c", **asked)
    crash = Crash("streamgp_pipelines.learning.session", "Session.save", saves, after)
    for mine, code in ((crash, -signal.SIGKILL), (None, 0)):
        process = start(train_apart, table.path, str(tmp_path / "d"), asked, mine, str(tmp_path / "summary"))
        assert code_of(process) == code
    assert_same_state(tmp_path / "c", tmp_path / "d")
    assert scores_of(json.loads((tmp_path / "summary").read_text())) == scores_of(json.loads(json.dumps(whole)))
    assert checkpoint.read(tmp_path / "d").rest["clock"]["updates"] == asked.get("epochs", 1)


class Stop(Exception):
    """Ends a run where a test wants it to."""


def test_epochs_go_on_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of five epochs, an interruption, the other three; then two more for --epochs 7, and an interruption there."""
    asked = []

    def fit(model: linear.Linear, x: Inputs, y: torch.Tensor, epochs: int) -> Iterator[Step]:
        asked.append(epochs)
        for _ in range(epochs):
            model.count += 1
            yield Step(0.0, 1, True, "epoch")

    def stop_after(saves: int) -> None:
        write, left = checkpoint.write, [saves]

        def stopping(*args: Any, **kwargs: Any) -> Any:
            if not left[0]:
                raise Stop
            left[0] -= 1
            return write(*args, **kwargs)

        with monkeypatch.context() as patched, pytest.raises(Stop):
            patched.setattr(checkpoint, "write", stopping)
            run(table, tmp_path / "c", **REGRESSION, epochs=7 if asked[1:] else 5)

    def epochs_learned() -> float:
        return float(tensors_of(tmp_path / "c")["model/count"][0])

    monkeypatch.setattr(linear.Linear, "fit", fit)
    table = make_table(tmp_path / "t", cloud())
    stop_after(2)
    assert epochs_learned() == 2
    run(table, tmp_path / "c", **REGRESSION, epochs=5)
    assert epochs_learned() == 5
    stop_after(1)
    assert epochs_learned() == 6  # newer than the finished run's checkpoint
    run(table, tmp_path / "c", **REGRESSION, epochs=7)
    run(table, tmp_path / "c", **REGRESSION, epochs=7)
    assert epochs_learned() == 7 and asked == [5, 3, 2, 1]


def test_the_time_budget_is_spent_once(tmp_path: Path) -> None:
    """The seconds of the epochs are kept, so that a second run with the same budget learns nothing more."""
    table = make_table(tmp_path / "t", cloud())
    run(table, tmp_path / "c", **REGRESSION, time_budget="0.0001s")
    before = checkpoint.read(tmp_path / "c").rest["clock"]["update"]
    run(table, tmp_path / "c", **REGRESSION, time_budget="0.0001s")
    assert checkpoint.read(tmp_path / "c").rest["clock"]["update"] == before


def test_only_the_first_rows(tmp_path: Path) -> None:
    """--max-rows ends the run inside the table, and a forecast with the table goes on from that row."""
    data = frame_of(500)
    table = make_table(tmp_path / "t", data, cuts=[100, 333])
    summary = run(table, tmp_path / "c", max_rows=350, predictions=tmp_path / "p.parquet", **WINDOWS)
    found = pl.read_parquet(tmp_path / "p.parquet")
    assert summary["rows"] == 350 and found["ds"].min() == data["t"][280] and found["ds"].max() == data["t"][349]
    alone, moved = load(tmp_path / "c"), load(tmp_path / "c")
    moved.observe(table)
    assert alone.forecast().frame["cutoff"][0] == data["t"][349]
    assert moved.forecast().frame["cutoff"][0] == data["t"][499]
    assert moved.learner.windows.late == 0
    with pytest.raises(CheckpointError, match=naming("max-rows 350")):
        run(table, tmp_path / "c", **WINDOWS)


def test_nothing_held_out(tmp_path: Path) -> None:
    summary = run(make_table(tmp_path / "t", frame_of(300)), tmp_path / "c", **WINDOWS | {"test_tail": None})
    assert summary["scored"] == 0 and summary["rmse"] is None and summary["rows"] == 300
    assert summary["warnings"]
    assert load(tmp_path / "c").forecast().frame.height == 3


def test_what_cannot_be(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", cloud().with_columns(text=pl.lit("a"), none=pl.lit(None, pl.Float64)))
    with pytest.raises(UsageError, match=naming("folds")):
        run(table, tmp_path / "c", **REGRESSION | {"test_column": "folds"})
    with pytest.raises(SchemaError):
        run(table, tmp_path / "c", **REGRESSION | {"test_column": "text"})
    with pytest.raises(DataError):
        run(table, tmp_path / "c", **REGRESSION | {"target": "none"})
