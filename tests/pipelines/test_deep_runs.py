"""Models behind an encoder on the whole road: online, in batch, killed, cut otherwise, alone, on their own output."""

from __future__ import annotations

import json
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from streamgp.base import Progress
from streamgp.errors import CheckpointError
from streamgp_data import checkpoint
from streamgp_pipelines import load
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import ForecastConfig
from streamgp_pipelines.forecasting.forecast import forecast
from streamgp_pipelines.training.train import train
from tests.pipelines.killed import Bomb, Crash, code_of, start, train_apart
from tests.pipelines.test_interrupted import World
from tests.pipelines.worlds import assert_same_state, config_of, frame_of, make_table, run, scores_of

SMALL = {
    "encoder.hidden": "6",
    "epochs": "2",
    "online.window": "192",
    "rebuild": "96",
}
GP: dict[str, Any] = {"model": "gp_lstm", "set": SMALL | {"solver.grid": "10", "training.batch": "32"}}
NET: dict[str, Any] = {"model": "lstm", "set": SMALL | {"training.batch": "32"}}
BATCH: dict[str, Any] = {"online": False, "warmup": None, "checkpoint_every": None, "test_tail": 0.2}
ONE: dict[str, Any] = {"horizon": 1, "season": 1}
DEEP, SESSION = "streamgp.models.deep.gp", "streamgp_pipelines.learning.session"
CRASHES = {
    "in the warm-up's second epoch": Crash(DEEP, "GpPosterior.descend", 2),
    "between a training and its checkpoint": Crash(
        "streamgp.models.deep.posterior", "DeepPosterior.rebuild", 2, after=True
    ),
    "in the middle of an update": Crash(DEEP, "GpPosterior.learn", 2),
}


def epochs_of(home: Path) -> int:
    """Epochs of the fit that a checkpoint is in."""
    model: Any = checkpoint.read(home).rest["model"]
    found: int = model["net"]["parts"]["posterior"]["parts"]["fit"]["trained"]
    return found


def home_of(path: Path, rows: int = 500, **options: Any) -> Path:
    """A table `t` and the checkpoint `c` of a run over it."""
    run(make_table(path / "t", frame_of(rows)), path / "c", **options)
    return path / "c"


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> World:
    """700 rows of two series; refreshes before and after every checkpoint."""
    return World(tmp_path_factory.mktemp("online"), 350, **GP)


@pytest.fixture(scope="module")
def one_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gp_lstm of one step, on y alone."""
    return home_of(tmp_path_factory.mktemp("one"), **GP, **ONE)


@pytest.mark.slow
@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_killed_at_a_given_place(online: World, tmp_path: Path, crash: Crash) -> None:
    online.survives(tmp_path, crash)


@pytest.mark.slow
def test_killed_at_random_moments(online: World, tmp_path: Path) -> None:
    seconds = float(online.expected["seconds"]["total"])
    moments = random.Random(0)
    codes = [code_of(online.again(tmp_path, Bomb(moments.uniform(0.1, 0.7) * seconds))) for _ in range(2)]
    assert set(codes) <= {0, -signal.SIGKILL}
    assert code_of(online.again(tmp_path)) == 0
    online.compare(tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize("options", [GP, NET], ids=["gp_lstm", "lstm"])
def test_the_same_rows_in_other_commits(tmp_path: Path, options: dict[str, Any]) -> None:
    data = frame_of(400)
    tables = [make_table(tmp_path / f"t{i}", data, cuts=cuts) for i, cuts in enumerate(((), (3, 64, 201, 202, 333)))]
    found = [run(table, tmp_path / f"c{i}", **options) for i, table in enumerate(tables)]
    assert scores_of(found[0]) == scores_of(found[1])
    assert_same_state(tmp_path / "c0", tmp_path / "c1")


@pytest.mark.slow
@pytest.mark.parametrize(("saves", "after"), [(2, False), (4, True)])
def test_epochs_in_batch_are_not_learned_twice(tmp_path: Path, saves: int, after: bool) -> None:
    """Killed before the second epoch is saved, and after the scoring."""
    table = make_table(tmp_path / "t", frame_of(400))
    asked = BATCH | GP | {"epochs": 3}
    whole = run(table, tmp_path / "c", **asked)
    crash = Crash(SESSION, "Session.save", saves, after)
    for mine, code in ((crash, -signal.SIGKILL), (None, 0)):
        process = start(train_apart, table.path, str(tmp_path / "d"), asked, mine, str(tmp_path / "summary"))
        assert code_of(process) == code
    assert_same_state(tmp_path / "c", tmp_path / "d")
    assert scores_of(json.loads((tmp_path / "summary").read_text())) == scores_of(json.loads(json.dumps(whole)))
    assert epochs_of(tmp_path / "d") == 3


def told(table: Any, home: Path, **options: Any) -> list[tuple[str, int, int | None]]:
    """What a run says of its progress."""
    found: list[tuple[str, int, int | None]] = []

    def hear(progress: Progress) -> None:
        found.append((progress.stage, progress.done, progress.total))

    train(config_of(table, home, **options), NoTracker, hear)
    return found


def test_the_model_says_how_many_epochs_it_wants(tmp_path: Path) -> None:
    """In a warm-up and in batch training, where --epochs is the last word."""
    table = make_table(tmp_path / "t", frame_of(300))
    heard = told(table, tmp_path / "a", **GP)
    assert [step for step in heard if step[0] == "warm-up"] == [("warm-up", 1, 2), ("warm-up", 2, 2)]
    assert ("train", 2, 2) in told(table, tmp_path / "b", **BATCH, **GP)
    assert ("train", 1, 1) in told(table, tmp_path / "c", **BATCH, **GP, epochs=1)
    assert [epochs_of(tmp_path / name) for name in "bc"] == [2, 1]
    assert not [step for step in told(table, tmp_path / "d") if step[0] == "warm-up"]  # one epoch: nothing to tell


@pytest.mark.slow
def test_a_finished_run_repeats_its_summary(online: World, tmp_path: Path) -> None:
    again = run(online.table, online.home / "whole", predictions=online.home / "again.parquet", **online.options)
    assert scores_of(again) == scores_of(online.expected) and again["seconds"] == online.expected["seconds"]
    home = home_of(tmp_path, 400, **BATCH, **NET)
    one, two = (run(tmp_path / "t", home, **BATCH, **NET) for _ in range(2))
    assert scores_of(one) == scores_of(two) and one["seconds"] == two["seconds"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "options",
    [
        GP,
        NET,
        GP | {"inputs": "x", "known": "k", "calendar": True},
        GP | {"set": SMALL | {"solver": "exact", "kernel": "matern", "training.scheme": "algorithm2"}, "warmup": 100},
        GP | {"set": SMALL | {"solver.grid": "10", "mode": "regression"}, "inputs": "x", "known": "k"},
    ],
    ids=["gp_lstm", "lstm", "gaps", "exact", "regression"],
)
def test_a_checkpoint_forecasts_alone(tmp_path: Path, options: dict[str, Any]) -> None:
    data = frame_of(500)
    if "calendar" in options:
        data = data.with_columns(y=pl.when(pl.int_range(pl.len()) % 37 != 5).then("y"))
    table = make_table(tmp_path / "t", data)
    found = run(table, tmp_path / "c", **options)
    future = frame_of(503)[500:].select("t", "k").to_arrow() if "known" in options else None
    with_table = load(tmp_path / "c")
    with_table.observe(table)
    expected = with_table.forecast(future=future).frame
    shutil.rmtree(tmp_path / "t")
    assert_frame_equal(load(tmp_path / "c").forecast(future=future).frame, expected, check_exact=True)
    assert expected.height == 3 and found["scored"] > 300 and np.isfinite(found["nlpd"])


@pytest.mark.slow
def test_another_kernel_is_another_run(one_step: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        run(one_step.parent / "t", one_step, **ONE, model="gp_lstm", set=GP["set"] | {"kernel": "matern"})
    assert caught.value.exit_code == 4 and "--fresh" in caught.value.hint


@pytest.mark.slow
def test_simulation(one_step: Path, tmp_path: Path) -> None:
    """The same paths for the same seed, one function a path, spread that grows; a plain net only plugs in."""

    def ask(home: Path, **options: Any) -> pl.DataFrame:
        return forecast(ForecastConfig.read({"checkpoint": home, "device": "cpu", **options})).frame

    found = ask(one_step, horizon=30, paths=60, seed=2)
    assert_frame_equal(found, ask(one_step, horizon=30, paths=60, seed=2), check_exact=True)
    assert_frame_equal(found[:20], ask(one_step, horizon=20, paths=60, seed=2), check_exact=True)
    spread = found["gp_lstm-std"].to_numpy()
    assert spread[0] < spread[-1] < 30.0
    step = ask(one_step)
    first = ask(one_step, horizon=1, paths=4000)
    assert abs(first["gp_lstm"][0] - step["gp_lstm"][0]) < 5 * step["gp_lstm-std"][0] / 4000**0.5
    assert first["gp_lstm-std"][0] == pytest.approx(step["gp_lstm-std"][0], rel=0.06)
    plug_in = ask(one_step, horizon=30, plug_in=True)
    assert plug_in["gp_lstm-std"].to_numpy()[-1] < 0.8 * spread[-1]
    assert ask(home_of(tmp_path, **NET, **ONE), horizon=30, plug_in=True).height == 30
