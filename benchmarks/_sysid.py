"""The system identification data: windows, splits, fits, scores of one step ahead and of free simulation.

Drives: 500 rows of an electric drive, its speed from its voltage. Actuator: 1024 rows of a hydraulic actuator, the
pressure of its oil from its valve. No clock: a row is a step. The windows see the present input (`known`), and 10 lags
in autoregression or 32 in regression, the paper's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import torch
from _sequences import FOLDER, Task, fitted, scores, task
from torch import Tensor

from streamgp.base import Model, Simulates
from streamgp.errors import NumericalError
from streamgp.forecasting.calibration import Calibration
from streamgp.predictives.gaussian import Gaussian
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_data.moments import Moments
from streamgp_pipelines.forecasting.simulate import plug_in, sample_paths
from streamgp_pipelines.learning.frames import Naming

COLUMNS = {"drives": ("voltage_u1", "speed_z1"), "actuator": ("valve_u", "pressure_p")}
LAGS = {"autoregression": 10, "regression": 32}
PATHS = 200
NAMING = Naming("model", Calibration((90.0,)), Moments(clock=False))


@dataclass(frozen=True)
class Split:
    """Rows of a data set, in order: train, then perhaps some that nobody sees, then test.

    Attributes:
        name: "drives" or "actuator".
        train: part of the rows, from the first on.
        test: part of the rows at the end.
    """

    name: str
    train: float = 0.9
    test: float = 0.1

    def table(self) -> pl.DataFrame:
        return pl.read_parquet(FOLDER / f"sysid_{self.name}.parquet").select(COLUMNS[self.name])

    def spec(self, mode: str) -> WindowSpec:
        (given, target), lags = COLUMNS[self.name], LAGS[mode]
        return WindowSpec(targets=(target,), known=(given,), lags=lags)

    @property
    def ends(self) -> tuple[int, int]:
        """The first row that is not trained on, the first row that is tested on."""
        rows = len(self.table())
        return round(self.train * rows), rows - round(self.test * rows)

    def tasks(self, mode: str) -> tuple[Task, Task]:
        whole, (end, start) = task(self.table(), self.spec(mode)), self.ends
        return whole.part(whole.rows < end), whole.part(whole.rows >= start)

    @property
    def scale(self) -> float:
        """Standard deviation of the training rows' target: what normalises an RMSE."""
        found = self.table()[COLUMNS[self.name][1]][: self.ends[0]].std()
        assert isinstance(found, float)
        return found


def one_step(
    split: Split, mode: str, name: str, options: Mapping[str, Any], seed: int
) -> tuple[Model, dict[str, float]]:
    """A model fitted on the training rows, and its scores on the test rows, one step ahead; "seconds" is CPU time."""
    train, test = split.tasks(mode)
    began = time.process_time()
    model = fitted(name, {"mode": mode, **options}, train, seed)
    seconds = time.process_time() - began
    found = scores(model.predict(test.x), test.y, split.scale)
    return model, {**found, "seconds": seconds}


def free(split: Split, model: Model, seed: int, paths: int = PATHS) -> dict[str, dict[str, float]]:
    """Scores of free simulations of the test rows from the last row before them, the true inputs given.

    Returns:
        "plug_in" and, of a model that draws functions, "paths": of sample paths the point forecast is the median path
        value of each step, the band that between the paths' empirical quantiles, and the NLPD that of a Gaussian with
        the paths' mean and variance. A simulation that grows beyond all bounds scores infinity, and covers nothing.
    """
    table, start = split.table(), split.ends[1]
    windows = Windows(split.spec("autoregression"))
    for batch in table[:start].to_arrow().combine_chunks().to_batches():
        windows.push(batch)
    given, target = COLUMNS[split.name]
    ahead = table[start:]
    y = ahead[target].to_torch()[:, None]
    future = ahead.select(given).to_arrow()
    found = {"plug_in": _bounded(lambda: _of_plug_in(model, windows, future, y, split.scale))}
    if isinstance(model, Simulates):
        found["paths"] = _bounded(lambda: _of_paths(model, windows, future, y, split.scale, paths, seed))
    return found


def _bounded(simulate: Callable[[], dict[str, float]]) -> dict[str, float]:
    try:
        return simulate()
    except NumericalError:
        worst = float("inf")
        return {"rmse": worst, "nrmse": worst, "nlpd": worst, "nlpd_scaled": worst, "coverage": 0.0}


def _of_plug_in(model: Model, windows: Windows, future: pa.Table, y: Tensor, scale: float) -> dict[str, float]:
    issued = plug_in(model, windows, len(y), future, NAMING).issued
    assert issued is not None
    return scores(issued, y, scale)


def _of_paths(
    model: Model, windows: Windows, future: pa.Table, y: Tensor, scale: float, paths: int, seed: int
) -> dict[str, float]:
    drawn = sample_paths(model, windows, len(y), paths, seed, future, NAMING).y[:, 0]  # (P, K, 1)
    spread = drawn.var(0)
    found = scores(Gaussian(drawn.mean(0), spread, torch.zeros_like(spread)), y, scale)
    low, high = (torch.from_numpy(np.quantile(drawn.numpy(), p, axis=0, method="weibull")) for p in (0.05, 0.95))
    rmse = float((drawn.quantile(0.5, dim=0) - y).square().mean().sqrt())
    inside = float(((low <= y) & (y <= high)).double().mean())
    return {**found, "rmse_of_mean": found["rmse"], "rmse": rmse, "nrmse": rmse / scale, "coverage": inside}
