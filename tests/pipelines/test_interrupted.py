"""Law 3: a run that is killed and started again ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from streamgp_data import checkpoint
from streamgp_data.table import Table
from tests.pipelines.killed import Bomb, Crash, code_of, quick_and_slow, start, train_apart, wait_for
from tests.pipelines.worlds import append, assert_same_state, frame_of, make_table, run, scores_of

SVDGP = {"set": {"basis": "32", "reservoir": "256", "rebuild": "400", "evidence_rows": "64"}}
AUTO = {"set": {f"svdgp.{name}": value for name, value in SVDGP["set"].items()}}
GRADIENT = {"set": {"likelihood": "student_t", "gradient.mean_basis": "32", "gradient.covariance_basis": "16"}}
CHECKPOINT, PREDICTIONS = "streamgp_data.checkpoint", "streamgp_pipelines.learning.predictions"
CRASHES = {
    "before any row": Crash("streamgp_pipelines.training.online", "OnlineRun.run", 1),
    "in the warm-up": Crash("streamgp_pipelines.learning.learner", "Learner.learn", 2),
    "after the model was fitted": Crash("streamgp.models.linear", "DirectLinear.fit", 1, after=True),
    "in the middle of a micro-batch": Crash("streamgp.models.linear", "DirectLinear.update", 5),
    "after an update, before a checkpoint": Crash("streamgp.models.linear", "DirectLinear.update", 8, after=True),
    "before the forecasts are kept": Crash(PREDICTIONS, "Predictions.write_part", 4),
    "between the forecasts and their checkpoint": Crash(PREDICTIONS, "Predictions.write_part", 4, after=True),
    "while tensors are written": Crash(CHECKPOINT, "store_file", 3),
    "before a checkpoint has its name": Crash(CHECKPOINT, "free_name", 2, after=True),
    "before an old checkpoint goes": Crash(CHECKPOINT, "remove_directory", 1),
    "before the forecasts are assembled": Crash(PREDICTIONS, "Predictions.assemble", 1),
    "after the forecasts were assembled": Crash(PREDICTIONS, "Predictions.assemble", 1, after=True),
    "after everything": Crash("streamgp_pipelines.training.train", "finish", 1, after=True),
}
QUICK = {"before a checkpoint has its name"}


class World:
    """A table, and the run over it that nobody interrupted."""

    def __init__(self, home: Path, rows: int, **options: Any) -> None:
        self.home = home
        self.table = home / "table"
        make_table(self.table, frame_of(rows, series=("a", "b")), cuts=[111, 500, 501])
        self.options = {"inputs": "x", "checkpoint_every": 128, **options}
        self.expected = run(self.table, home / "whole", predictions=home / "whole.parquet", **self.options)

    def again(self, home: Path, crash: Crash | Bomb | None = None) -> Any:
        """A process that trains in `home`."""
        options = {"predictions": home / "predictions.parquet", **self.options}
        return start(train_apart, str(self.table), str(home), options, crash, str(home / "summary.json"))

    def survives(self, home: Path, crash: Crash) -> None:
        """Killed there and started again, it ends as the run that was not."""
        assert code_of(self.again(home, crash)) == -signal.SIGKILL
        assert code_of(self.again(home)) == 0
        self.compare(home)

    def compare(self, home: Path) -> None:
        """Scores, weights, curves, ledger, bands and forecasts are those of the whole run, bit for bit."""
        summary = json.loads((home / "summary.json").read_text())
        assert scores_of(summary) == scores_of(json.loads(json.dumps(self.expected)))
        assert_same_state(home, self.home / "whole")
        one, two = pl.read_parquet(home / "predictions.parquet"), pl.read_parquet(self.home / "whole.parquet")
        assert_frame_equal(one, two, check_exact=True)
        assert one.height == summary["scored"] == one.unique(["unique_id", "ds", "cutoff"]).height


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("linear"), 600)  # 1200 rows: one point of every curve


@pytest.fixture(scope="module")
def svdgp(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("svdgp"), 450, model="svdgp", **SVDGP)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> World:
    options = {"horizon": 1, "season": None, "simulate": 15, "batch": 32, "checkpoint_every": 64}
    return World(tmp_path_factory.mktemp("simulated"), 500, **options)


@pytest.fixture(scope="module")
def auto(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("auto"), 500, model="auto", **AUTO)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Experts by name, one of them a net that trains."""
    net = {"encoder.hidden": "8", "online.window": "128", "rebuild": "128"}
    options = {"experts": "svdgp,gp_lstm,linear", **AUTO["set"]}
    options |= {f"gp_lstm.{name}": value for name, value in net.items()} | {"gp_lstm.epochs": "2"}
    return World(tmp_path_factory.mktemp("named"), 300, model="ensemble", set=options)


@pytest.fixture(scope="module")
def gradient(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("gradient"), 300, model="svdgp", **GRADIENT)


REHEARSAL = "streamgp_pipelines.learning.rollout"
REHEARSED = {
    "before a simulation of the past": Crash(REHEARSAL, "Rehearsal._simulate", 3),
    "while the model is that of a round before": Crash(REHEARSAL, "rollout", 5, after=True),
    "after the bands have learned": Crash(REHEARSAL, "Rehearsal._simulate", 7, after=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("crash", REHEARSED.values(), ids=REHEARSED)
def test_killed_while_the_past_is_simulated(simulated: World, tmp_path: Path, crash: Crash) -> None:
    simulated.survives(tmp_path, crash)
    assert simulated.expected["simulation"]["scored"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("crash", quick_and_slow(CRASHES, QUICK), ids=CRASHES)
def test_killed_at_a_given_place(linear: World, tmp_path: Path, crash: Crash) -> None:
    linear.survives(tmp_path, crash)
    left = [path.name for path in tmp_path.rglob("*") if "tmp" in path.name]
    assert not left, f"left behind: {left}"


AMID = {
    "between the mixer and its experts": Crash("streamgp.models.ensemble.members", "Member.update", 9),
    "between two experts": Crash("streamgp.models.ensemble.members", "Member.update", 12),
}


@pytest.mark.slow
@pytest.mark.parametrize("crash", AMID.values(), ids=AMID)
def test_experts_killed_amid_an_update(auto: World, tmp_path: Path, crash: Crash) -> None:
    auto.survives(tmp_path, crash)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "most"), [("linear", 10), ("svdgp", 10), ("gradient", 10), ("auto", 20), ("named", 5), ("simulated", 5)]
)
def test_killed_at_random_moments(request: pytest.FixtureRequest, tmp_path: Path, kind: str, most: int) -> None:
    """Kills at random moments in the first half of the loop; a run that ends before its kill is started again."""
    world: World = request.getfixturevalue(kind)
    seconds = 0.5 * float(world.expected["seconds"]["total"])
    moments = random.Random(kind)
    kills = round = 0
    while kills < most:
        code = code_of(world.again(tmp_path / str(round), Bomb(moments.uniform(0.0, seconds))))
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
        if code == 0:
            world.compare(tmp_path / str(round))
            round += 1
    assert code_of(world.again(tmp_path / str(round))) == 0
    world.compare(tmp_path / str(round))


def test_killed_and_started_again_with_other_pauses(linear: World, tmp_path: Path) -> None:
    """Forecasts that were kept ahead of their checkpoint are not kept twice."""
    crash = Crash(PREDICTIONS, "Predictions.write_part", 4, after=True)  # up to row 392; the checkpoint is at 264
    assert code_of(linear.again(tmp_path, crash)) == -signal.SIGKILL
    options = linear.options | {"checkpoint_every": 192, "predictions": tmp_path / "predictions.parquet"}
    train_apart(str(linear.table), str(tmp_path), options, None, str(tmp_path / "summary.json"))
    linear.compare(tmp_path)


@pytest.mark.slow
def test_interrupted_by_the_user(linear: World, tmp_path: Path) -> None:
    """Ctrl-C while a run follows its table; the next run, which does not follow, completes it."""
    table = Table.open(make_table(tmp_path / "t", frame_of(600, series=("a", "b"))[:300]).path)
    home = tmp_path / "c"
    options = linear.options | {"predictions": home / "predictions.parquet"}
    process = start(train_apart, table.path, str(home), options | {"follow": True}, None, None)
    wait_for(lambda: checkpoint.exists(home) and checkpoint.read(home).rows == 264)
    append(table, frame_of(600, series=("a", "b"))[300:])
    wait_for(lambda: checkpoint.read(home).rows == 1160)
    os.kill(process.pid, signal.SIGINT)
    assert code_of(process) == 1  # KeyboardInterrupt, which the command line turns into 130
    train_apart(table.path, str(home), options, None, str(home / "summary.json"))
    linear.compare(home)
