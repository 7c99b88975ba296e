"""Tasks here and on Ray: cells of a comparison and starts of a search have the numbers of one process."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from streamgp.base import Progress
from streamgp.errors import DataError, ServiceError, UsageError
from streamgp_data import checkpoint
from streamgp_pipelines.adapters.ray import tasks as adapter
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.comparing.compare import Comparison, compare
from streamgp_pipelines.config import CompareConfig, TuneConfig
from streamgp_pipelines.learning.checkpointing import state_digest
from streamgp_pipelines.tasks import Cluster, Report
from streamgp_pipelines.tuning.tune import tune
from tests.needs import needs
from tests.pipelines.worlds import frame_of, make_table

DEALT = {"engine": "ray", "workers": 2}


def compared(home: Path, table: Path, on: Cluster | None = None, **options: Any) -> Comparison:
    torch.set_num_threads(1)
    given = {"horizon": 3, "season": 24, "lags": 4, "batch": 64, "target": "y", "warmup": 150}
    given |= {"models": "linear,small=svdgp", "set": ["small.basis=32"], "checkpoint_every": 100}
    config = CompareConfig.read({"table": table, "comparison": home} | given | options)
    return compare(config, NoTracker, cluster=on)


def same(one: Comparison, other: Comparison, homes: tuple[Path, Path]) -> None:
    """The same scores, forecasts and states, bit for bit."""
    timed = ["cpu_seconds", "rows_per_second", "state_mb"]
    assert_frame_equal(one.scores.drop(timed), other.scores.drop(timed), rel_tol=0, abs_tol=0)
    assert_frame_equal(one.differences, other.differences, rel_tol=0, abs_tol=0)
    for name in ("linear", "small", "seasonal_naive"):
        predictions = [pl.read_parquet(home / name / "predictions.parquet") for home in homes]
        assert_frame_equal(*predictions, rel_tol=0, abs_tol=0)
        first, second = (state_digest(checkpoint.read(home / name)) for home in homes)
        assert first == second


@pytest.mark.parametrize("command", [CompareConfig, TuneConfig])
def test_workers_need_their_engine(command: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--engine ray"):
        command.read({"table": tmp_path, "workers": 2})
    with pytest.raises(UsageError, match="--device"):
        CompareConfig.read({"table": tmp_path, "engine": "ray", "device": "cuda"})


def test_a_program_gives_the_workers(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(400))
    with pytest.raises(UsageError) as caught:
        compared(tmp_path / "c", table.path, **DEALT)
    assert "ray_tasks" in caught.value.hint


def test_a_worker_without_the_directory_says_so(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(400))

    class Elsewhere(adapter.RayTasks):
        def __init__(self) -> None:
            self.lost = 0

        def run(self, task: Any, arguments: Any, tell: Report) -> dict[str, Any]:
            (tmp_path / "c").rename(tmp_path / "not here")
            return {name: task(name, argument, tell) for name, argument in arguments.items()}

        def close(self) -> None:
            pass

    with pytest.raises(ServiceError, match="no directory") as caught:
        compared(tmp_path / "c", table.path, lambda _: Elsewhere(), **DEALT)
    assert "share" in caught.value.hint


def noted(folder: Path, name: str, times: int, tell: Report) -> int:
    """Die so many times, then say something and return the process."""
    died = folder / name
    if len(before := died.read_text() if died.exists() else "") < times:
        died.write_text(before + "x")
        os.kill(os.getpid(), signal.SIGKILL)
    tell(Progress(name, 1, 1))
    logging.getLogger("streamgp.test").warning("%s is done", name)
    return torch.get_num_threads()


def fails(name: str, argument: int, tell: Report) -> None:
    if argument:
        raise DataError("it is wrong", hint="mend it")
    time.sleep(60)


@needs("ray")
@pytest.mark.slow
def test_tasks_are_run_again_and_errors_end_all(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tasks, told = adapter.RayTasks(2), list[Progress]()
    found = tasks.run(partial(noted, tmp_path), {"a": 0, "b": 1, "c": 0}, told.append)
    assert found == {"a": 1, "b": 1, "c": 1} and list(found) == ["a", "b", "c"]
    assert tasks.lost == 1
    assert {one.stage for one in told} == {"a", "b", "c"}
    assert sorted(record.getMessage() for record in caplog.records) == ["a is done", "b is done", "c is done"]
    began = time.monotonic()
    with pytest.raises(DataError, match="wrong") as caught:
        tasks.run(fails, {"waits": 0, "fails": 1}, told.append)
    assert caught.value.hint == "mend it" and time.monotonic() - began < 50
    monkeypatch.setattr(adapter, "ATTEMPTS", 1)
    with pytest.raises(ServiceError, match="lost 1 times"):
        tasks.run(partial(noted, tmp_path), {"d": 9}, told.append)
    with pytest.raises(UsageError, match="--workers"):
        adapter.RayTasks(40).run(fails, {"a": 1}, told.append)
    with pytest.raises(ServiceError, match="cannot be reached"):
        monkeypatch.setattr(tasks.cluster.ray, "is_initialized", lambda: False)
        adapter.RayTasks(2, "127.0.0.1:1").run(fails, {"a": 1}, told.append)


def struck(task: Any, marker: Path, name: str, cell: Any, tell: Report) -> Any:
    """A cell whose worker is killed once, in the middle of its stream."""

    home = cell[0].checkpoint

    def watch() -> None:
        while not (checkpoint.exists(home) and checkpoint.read(home).rows >= 300):
            time.sleep(0.001)
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    if name == "small" and not marker.exists():
        threading.Thread(target=watch, daemon=True).start()
    return task(name, cell, tell)


class Struck(adapter.RayTasks):
    """Workers, one of which is killed."""

    marker = Path()

    def run(self, task: Any, arguments: Any, tell: Report) -> dict[str, Any]:
        return super().run(partial(struck, task, self.marker), arguments, tell)


def killed(marker: Path, config: Any) -> Struck:
    made = Struck(config.workers)
    made.marker = marker
    return made


@needs("ray")
@pytest.mark.slow
def test_a_comparison_on_workers_has_the_numbers_of_one_process(ray: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(900))
    expected = compared(tmp_path / "one", table.path)
    for count, workers in ((1, adapter.ray_tasks), (2, partial(killed, tmp_path / "killed"))):
        home = tmp_path / f"with {count}"
        found = compared(home, table.path, workers, engine="ray", workers=count)
        same(found, expected, (home, tmp_path / "one"))
        assert found.lost == count - 1
    again = compared(tmp_path / "one", table.path, adapter.ray_tasks, **DEALT)  # begun here, ended there
    same(again, expected, (tmp_path / "one", tmp_path / "with 2"))
    fresh = compared(tmp_path / "one", table.path, adapter.ray_tasks, **DEALT, fresh=True)
    same(fresh, expected, (tmp_path / "one", tmp_path / "with 2"))


@needs("ray")
@pytest.mark.slow
@pytest.mark.parametrize("method", ["ml", "cv-implicit"])
def test_a_search_on_workers_finds_what_one_process_finds(ray: Any, tmp_path: Path, method: str) -> None:
    table = make_table(tmp_path / "t", frame_of(500))
    torch.set_num_threads(1)
    given = {"table": table.path, "target": "y", "lags": 4, "horizon": 2, "rows": 60, "method": method}
    own = METHOD[method]
    given |= {"set": {f"{own}.restarts": "3"}}
    found = [
        tune(TuneConfig.read(given | {"output": tmp_path / name} | more), NoTracker, cluster=adapter.ray_tasks)
        for name, more in (("one.json", {}), ("two.json", DEALT))
    ]
    for one in found:
        assert float(str(one.pop("cpu_seconds"))) > 0
        one.pop("output"), one.pop("next")
    assert found[0] == found[1]


METHOD = {"ml": "ml", "cv-implicit": "implicit"}
