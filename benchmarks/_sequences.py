"""Sequences for the benchmarks of the recurrent models: windows of a table's rows, fits, scores, printed tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import polars as pl
import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import Inputs, Model, Predictive, Shape
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_pipelines.assembly import build_model

FOLDER = Path(__file__).parents[2] / "shared" / "data"
CPU = torch.device("cpu")
NETS = ("narx", "rnn", "lstm")
EVERY = (*NETS, *(f"gp_{net}" for net in NETS))


@dataclass(frozen=True)
class Task:
    """Windows in order of time and their truths.

    Attributes:
        spec: what they are made of.
        rows: (N,) the row of the table that each window forecasts.
        x, y: N windows; (N, T).
    """

    spec: WindowSpec
    rows: Tensor
    x: Inputs
    y: Tensor

    @property
    def shape(self) -> Shape:
        return self.spec.shape

    def part(self, keep: Tensor) -> Task:
        """The windows where `keep` (N,) is true."""
        return Task(self.spec, self.rows[keep], self.x.rows(keep), self.y[keep])


def task(data: pl.DataFrame | pa.Table, spec: WindowSpec) -> Task:
    """Every whole window of horizon 1 whose truth is there."""
    table = data.to_arrow() if isinstance(data, pl.DataFrame) else data
    windows = Windows(spec)
    found, truths = [], []
    for batch in table.combine_chunks().to_batches():
        asks, answers = windows.push(batch)
        found.append(asks)
        truths.append(answers)
    series = torch.cat([part.series for part in found])
    step = torch.cat([part.origin for part in found]) + 1
    x = Inputs(torch.cat([part.x.past for part in found]), torch.cat([part.x.future for part in found]))
    key = torch.cat([part.series for part in truths]) * 10**9 + torch.cat([part.step for part in truths])
    y, position = torch.cat([part.y for part in truths]), torch.cat([part.position for part in truths])
    order = torch.argsort(key)
    at = torch.searchsorted(key[order], series * 10**9 + step).clamp(max=len(key) - 1)
    there = (key[order][at] == series * 10**9 + step) & torch.isfinite(y[order][at]).all(1)
    place = order[at[there]]
    return Task(spec, position[place], x.rows(there), y[place])


def fitted(name: str, options: Mapping[str, Any], train: Task, seed: int) -> Model:
    """The named model, fitted on the windows of `train` with as many epochs as it asks for."""
    model = build_model(name, options, train.shape, CPU, seed)
    for _ in model.fit(train.x, train.y, model.epochs_for(len(train.y))):
        pass
    return model


def scores(issued: Predictive, y: Tensor, scale: float, level: float = 0.9) -> dict[str, float]:
    """RMSE raw and over `scale` (the targets' standard deviation), NLPD of raw and of scaled targets, coverage."""
    edge = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=y.dtype)
    low, high = issued.quantile(edge)
    rmse = float((issued.mean - y).square().mean().sqrt())
    nlpd = float(-issued.log_prob(y).mean())
    inside = float(((low <= y) & (y <= high)).double().mean())
    return {
        "rmse": rmse,
        "nrmse": rmse / scale,
        "nlpd": nlpd,
        "nlpd_scaled": nlpd - math.log(scale),
        "coverage": inside,
    }


def summed_up(runs: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over runs, score by score."""
    return {
        key: (mean(run[key] for run in runs), stdev(run[key] for run in runs) if len(runs) > 1 else 0.0)
        for key in runs[0]
    }


def cell(value: tuple[float, float], digits: int = 3) -> str:
    """mean (standard deviation), as the paper prints it.

    Example: cell((0.1234, 0.0101)) is "0.123 (0.010)".
    """
    return f"{value[0]:.{digits}f} ({value[1]:.{digits}f})"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
