"""A fleet in buckets, here and in Ray actors: the numbers of a fleet in one process, whatever happens to workers."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from streamgp.errors import CheckpointError, ServiceError, StateError, UsageError
from streamgp_data import checkpoint
from streamgp_data.table import Table
from streamgp_pipelines import load
from streamgp_pipelines.adapters.ray import cluster
from streamgp_pipelines.adapters.ray import workers as adapter
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.check import check
from streamgp_pipelines.config import CheckConfig, TrainConfig
from streamgp_pipelines.learning.checkpointing import state_digest
from streamgp_pipelines.learning.recipe import Recipe
from streamgp_pipelines.learning.shard import Shard, Since, here
from streamgp_pipelines.state import describe_checkpoint
from streamgp_pipelines.training.train import Cluster, train
from tests.needs import needs
from tests.pipelines.worlds import append, config_of, frame_of, make_table, run, scores_of

NAMES = tuple("abcdefi")
OPTIONS: dict[str, Any] = {
    "season": None,
    "warmup": 100,
    "batch": 32,
    "lags": 4,
    "horizon": 2,
    "fleet": True,
    "checkpoint_every": 100,
}
DEALT = OPTIONS | {"engine": "ray"}
KEY = ["unique_id", "cutoff", "ds"]
CLOSE: dict[str, Any] = {"rel_tol": 1e-7, "abs_tol": 1e-7}
"""Batched products add in another order where other series are beside them."""


def panel(hours: int = 300) -> pl.DataFrame:
    """Series i begins late, a rests at the end."""
    data = frame_of(hours, NAMES)
    hour, name = (pl.col("t") - pl.col("t").min()).dt.total_hours(), pl.col("unique_id")
    return data.filter(~((name == "i") & (hour < 120)) & ~((name == "a") & (hour >= 250)))


def dealt(table: Table, home: Path, cluster: Cluster | None, **options: Any) -> tuple[dict[str, Any], pl.DataFrame]:
    """The summary of a run with workers, and what it forecast."""
    torch.set_num_threads(1)
    path = home.with_suffix(".parquet")
    config = config_of(table, home, **DEALT | {"predictions": path} | options)
    return train(config, lambda directory, _: NoTracker(directory), cluster=cluster), pl.read_parquet(path)


def in_process(config: TrainConfig, recipe: Recipe, since: Since) -> Shard:
    """Workers without Ray."""
    return here(recipe, since)


def digest(home: Path) -> str:
    return state_digest(checkpoint.read(home))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"season": 24, "inputs": "x", "known": "k"}], ids=["lags", "known"])
def test_a_fleet_in_buckets_has_the_numbers_of_one_in_one_piece(tmp_path: Path, options: dict[str, Any]) -> None:
    table = make_table(tmp_path / "t", panel())
    path = tmp_path / "one.parquet"
    expected = run(table, tmp_path / "one", **OPTIONS | {"predictions": path} | options)
    found, issued = dealt(table, tmp_path / "many", in_process, **options)
    assert_frame_equal(issued.sort(KEY), pl.read_parquet(path).sort(KEY), **CLOSE)
    for name in ("rmse", "mae", "crps", "calibrated_crps", "mase"):
        assert found[name] == pytest.approx(expected[name], rel=1e-9)
    for name in ("rows", "warmup", "forecasts", "late"):
        assert found[name] == expected[name]
    tenths = found["coverage_by"]["tenths"]
    assert sum(part["scored"] for part in tenths) == pytest.approx(found["scored"], abs=10)
    one, many = load(tmp_path / "one"), load(tmp_path / "many")
    if not options:
        assert_frame_equal(many.forecast().frame, one.forecast().frame, **CLOSE)
    assert_frame_equal(many.history(), one.history())


@pytest.mark.slow
def test_it_goes_on_without_workers_and_a_new_series_joins(tmp_path: Path) -> None:
    data = panel()
    late = data.filter(pl.col("unique_id") == "c").with_columns(unique_id=pl.lit("new"))
    whole = pl.concat([data[:1200], pl.concat([data[1200:], late[180:]]).sort("t", maintain_order=True)])
    expected, _ = dealt(make_table(tmp_path / "t", whole), tmp_path / "whole", in_process)
    table = make_table(tmp_path / "u", whole[:1200])
    dealt(table, tmp_path / "pieces", in_process)
    append(table, whole[1200:])
    found, _ = dealt(table, tmp_path / "pieces", None, engine="local")
    scores = [{k: v for k, v in scores_of(one).items() if k != "coverage_by"} for one in (found, expected)]
    assert scores[0] == scores[1]  # tenths of the stream depend on the series that there were at the beginning
    forecasts = [load(tmp_path / home).forecast().frame for home in ("pieces", "whole")]
    assert_frame_equal(*forecasts)
    assert "new" in forecasts[0]["unique_id"]


@pytest.mark.slow
def test_check_and_describe_know_its_rows_and_its_parts(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", panel())
    dealt(table, tmp_path / "many", in_process)
    run(table, tmp_path / "one", **OPTIONS)
    age, *_ = check(CheckConfig.read({"checkpoint": tmp_path / "many", "max_age": "1h"}))
    assert age.about == check(CheckConfig.read({"checkpoint": tmp_path / "one"}))[0].about and age.alarm
    parts: Any = describe_checkpoint(tmp_path / "many")["parts_mb"]
    assert parts["model"] > 0 and parts["windows"] > 0


@pytest.mark.slow
def test_a_shard_that_is_damaged_or_missing_is_found(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", panel())
    dealt(table, tmp_path / "many", in_process)
    newest = checkpoint.read(tmp_path / "many").path
    file = next(newest.glob("*.shard"))
    file.write_bytes(file.read_bytes()[:-1])
    assert checkpoint.read(tmp_path / "many").warning
    file.unlink()
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.read(newest)


@pytest.mark.parametrize(
    "options", [{"engine": "ray", "fleet": False}, {"workers": 2}, {"engine": "ray", "device": "cuda"}]
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        config_of(tmp_path / "t", tmp_path / "c", **OPTIONS | options)


def test_a_fleet_in_one_piece_is_not_dealt(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", panel(150))
    run(table, tmp_path / "c", **OPTIONS)
    with pytest.raises(StateError) as caught:
        dealt(table, tmp_path / "c", in_process)
    assert "--engine" in caught.value.hint and "--fresh" in caught.value.hint


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="ray") as caught:
        dealt(make_table(tmp_path / "t", panel(150)), tmp_path / "c", adapter.ray_workers)
    assert "streamgp[ray]" in caught.value.hint
    with pytest.raises(UsageError, match="ray"):
        dealt(Table.open(tmp_path / "t"), tmp_path / "c", None)


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://localhost:{}", "auto"])
def test_a_cluster_that_does_not_answer_is_said_at_once(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        cluster.reach(form.format(port))
    with pytest.raises(ServiceError, match=str(port)):
        cluster.reach(form.format(port))


@needs("ray")
@pytest.mark.slow
def test_a_run_on_a_cluster_that_does_not_answer_ends(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", panel(150))
    with pytest.raises(ServiceError, match="cannot be reached"):
        dealt(table, tmp_path / "c", adapter.ray_workers, address="127.0.0.1:1")


class Killed(adapter.RayWorkers):
    """Workers that are killed at some calls: before they are asked, or about when they are."""

    calls, at = 0, {2: None, 4: 0.0, 6: None}

    def run(self, name: str, arguments: Any) -> dict[int, Any]:
        self.calls += 1
        if self.calls in self.at:
            pid = self.pid(self.calls % self.count)
            wait = self.at[self.calls]
            if wait is None:
                os.kill(pid, signal.SIGKILL)
            else:
                threading.Timer(wait, os.kill, (pid, signal.SIGKILL)).start()
        return super().run(name, arguments)


@needs("ray")
@pytest.mark.slow
def test_any_number_of_workers_that_are_killed_have_the_same_numbers(ray: Any, tmp_path: Path) -> None:
    data = panel()
    expected, issued = dealt(make_table(tmp_path / "t", data), tmp_path / "one", in_process)
    table, made = make_table(tmp_path / "u", data[:1100]), list[Killed]()

    def killed(config: TrainConfig, recipe: Recipe, since: Since) -> Killed:
        made.append(Killed(recipe, since, config.workers))
        return made[-1]

    found, _ = dealt(table, tmp_path / "many", killed, workers=3)
    assert made[0].lost == 3 and any("lost 3 times" in warning for warning in found["warnings"]), made[0].calls
    append(table, data[1100:])
    found, forecasts = dealt(table, tmp_path / "many", adapter.ray_workers, workers=1)
    assert scores_of(found) == scores_of(expected)
    assert_frame_equal(forecasts, issued)
    assert digest(tmp_path / "many") == digest(tmp_path / "one")


class Dies(Shard):
    """A worker that dies of every call."""

    def run(self, name: str, arguments: Any) -> dict[int, Any]:
        os._exit(1)


@needs("ray")
@pytest.mark.slow
def test_what_workers_raise_and_workers_that_always_die_end_a_run(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, recipes = make_table(tmp_path / "t", panel(150)), list[Recipe]()

    def kept(config: TrainConfig, recipe: Recipe, since: Since) -> Shard:
        recipes.append(recipe)
        return here(recipe, since)

    dealt(table, tmp_path / "c", kept)
    workers = adapter.RayWorkers(recipes[0], lambda _: (), 1)
    with pytest.raises(CheckpointError, match="damaged"):
        workers.run("load", {3: b"none"})
    workers.close()
    with pytest.raises(UsageError, match="--workers"):
        adapter.RayWorkers(recipes[0], lambda _: (), 40).run("tally", {0: None})
    monkeypatch.setattr(adapter, "Worker", Dies)
    monkeypatch.setattr(adapter, "ATTEMPTS", 2)
    workers = adapter.RayWorkers(recipes[0], lambda _: (), 1)
    with pytest.raises(ServiceError, match="lost"):
        workers.run("tally", {0: None})
    workers.close()


def test_a_regression_of_all_series_is_not_dealt(tmp_path: Path) -> None:
    own = {"model": "svdgp", "set": {"shared": "true", "pooled": "true"}}
    with pytest.raises(UsageError, match="workers learn series apart"):
        dealt(make_table(tmp_path / "t", panel(150)), tmp_path / "c", in_process, **own)
