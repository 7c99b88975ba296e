"""Training in batch whose rows are shared among Ray workers: the numbers of one process, whatever happens to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from streamgp.errors import ServiceError, UsageError
from streamgp.training.shared_gradients import Gradients
from streamgp_data import checkpoint
from streamgp_data.table import Table
from streamgp_pipelines.adapters.ray import sums as adapter
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.checkpointing import state_digest
from streamgp_pipelines.training.train import Sharing, train
from tests.needs import needs
from tests.pipelines.worlds import make_table

OPTIONS: dict[str, dict[str, Any]] = {
    "svdgp": {"basis": 32, "mean_basis": 64},
    "svgp": {"points": 32},
    "rvm": {"dictionary": 100, "basis": 32},
    "finite_rkhs": {"fourier.size": 32, "fourier.frequencies": "drawn"},
    "gp_gru": {"encoder.hidden": 8, "encoder.dropout": 0.1, "training.batch": 2700, "solver.grid": 16},
    "qsgp": {"features.size": 64, "features.width": 32},
}


def surface(path: Path, rows: int = 6000) -> Table:
    generator = np.random.default_rng(2)
    x = generator.uniform(size=(rows, 2))
    y = np.sin(6 * x[:, 0]) + x[:, 1] + 0.1 * generator.normal(size=rows)
    return make_table(path, pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}), every_ns=None)


def trained(table: Table, home: Path, model: str, sharing: Sharing | None = None, **options: Any) -> dict[str, Any]:
    torch.set_num_threads(1)
    given = {"table": table.path, "checkpoint": home, "model": model, "set": OPTIONS.get(model, {}), "target": "y"}
    given |= {"known": "a,b", "lags": 4 if model.endswith("gru") else 0, "test_tail": 0.1, "epochs": 2, "device": "cpu"}
    found: dict[str, Any] = train(TrainConfig.read(given | options), NoTracker, sharing=sharing)
    return found


def digest(home: Path) -> str:
    return state_digest(checkpoint.read(home))


@pytest.mark.parametrize(
    "options",
    [
        {"online": True, "model": "svdgp"},
        pytest.param({"model": "exact"}, marks=needs("ray")),
        pytest.param({"model": "linear"}, marks=needs("ray")),
        {"model": "svdgp"},
        *(pytest.param({"model": name}, marks=needs("ray")) for name in ("narx", "svgp", "rvm", "finite_rkhs")),
        {"model": "svdgp", "sample": 100},
    ],
)
def test_what_shares_nothing_is_refused_with_what_does(tmp_path: Path, options: dict[str, Any]) -> None:
    table = surface(tmp_path / "t", 300)
    online = options | ({"test_tail": None, "epochs": None} if "online" in options else {})
    sharing = None if options == {"model": "svdgp"} else adapter.ray_sums
    with pytest.raises(UsageError) as caught:
        trained(table, tmp_path / "c", sharing=sharing, engine="ray", **online)
    said = f"{caught.value.message} {caught.value.hint}"
    assert any(word in said for word in ("--fleet", "100,000 rows", "ray_sums", "--sample"))


class Killed(adapter.RaySums):
    """Workers, one of which is killed before calls 2, 4, 8, 16 and so on: another one takes seconds to start."""

    calls = kills = 0

    def __call__(self, learner: Any, absorb: Any, rows: Sequence[Tensor], chunk: int) -> None:
        self.kill()
        super().__call__(learner, absorb, rows, chunk)

    def gradients(self, *given: Any) -> Gradients:
        self.kill()
        return super().gradients(*given)

    def kill(self) -> None:
        self.calls += 1
        if self.actors and self.calls > 1 and self.calls.bit_count() == 1:
            os.kill(self.pid(self.kills % len(self.actors)), signal.SIGKILL)
            self.kills += 1


@needs("ray")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "count"),
    [("svdgp", 3), ("gp_gru", 2), ("qsgp", 1)],
)
def test_workers_that_are_killed_have_the_numbers_of_one_process(
    ray: Any, tmp_path: Path, model: str, count: int
) -> None:
    table, made = surface(tmp_path / "t"), list[Killed]()

    def killed(config: TrainConfig) -> Killed:
        made.append(Killed(config.workers))
        return made[0]

    expected = trained(table, tmp_path / "one", model)
    found = trained(table, tmp_path / "shared", model, killed, engine="ray", workers=count)
    assert found["rmse"] == expected["rmse"] and digest(tmp_path / "shared") == digest(tmp_path / "one")
    assert made[0].lost == made[0].kills == max(made[0].calls.bit_length() - 1, 0)
    assert any("lost" in warning for warning in found["warnings"]) == bool(made[0].lost)


@needs("ray")
@pytest.mark.slow
def test_workers_that_are_always_lost_end_a_run(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = surface(tmp_path / "t", 3000)
    monkeypatch.setattr(adapter, "ATTEMPTS", 0)
    with pytest.raises(ServiceError, match="lost"):
        trained(table, tmp_path / "c", "svdgp", lambda _: Killed(1), engine="ray")
    with pytest.raises(UsageError, match="--workers"):
        trained(table, tmp_path / "d", "svdgp", adapter.ray_sums, engine="ray", workers=40)
