"""UCI regression sets for the benchmarks: rows to learn, rows held out by a published mask, windows and scores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import torch
from torch import Tensor

from streamgp.base import Inputs, Model, Predictive, Shape, Step

FOLDER = Path(__file__).parents[2] / "shared" / "data"


class Split(NamedTuple):
    """Rows of a set whose inputs are `width` columns; float64, in the units of the file.

    Attributes:
        x, y: (N, W), (N, 1) to learn.
        held, truth: the same of the rows held out, 10 %.
    """

    x: Tensor
    y: Tensor
    held: Tensor
    truth: Tensor

    @property
    def shape(self) -> Shape:
        """What a model is built for."""
        names = tuple(f"x{i}" for i in range(self.x.shape[1]))
        return Shape(targets=("y",), horizon=1, lags=0, past=("y", *names), future=names)


class Scores(NamedTuple):
    """Of predictions of rows held out: RMSE and MNLP (nats) in the units of the file, coverage of the 95 % band."""

    rmse: float
    mnlp: float
    coverage: float

    def __str__(self) -> str:
        return f"rmse {self.rmse:7.4f}  mnlp {self.mnlp:7.3f}  coverage 95: {self.coverage:.3f}"


def path(name: str, folder: Path = FOLDER) -> Path:
    """The file of a set."""
    return folder / f"uci_{name}.parquet"


def load(file: Path, split: int = 0) -> Split:
    """Read a set, and divide it by one of its five masks."""
    frame = pl.read_parquet(file)
    width = sum(name.startswith("x") for name in frame.columns)
    x = torch.tensor(frame.select(f"x{i}" for i in range(width)).to_numpy())
    y, held = torch.tensor(frame["y"].to_numpy())[:, None], torch.tensor(frame[f"split{split}"].to_numpy())
    return Split(x[~held], y[~held], x[held], y[held])


def windows(x: Tensor) -> Inputs:
    """Rows of a regression: no past, one future row each."""
    return Inputs(x.new_zeros(len(x), 0, x.shape[1] + 1), x[:, None])


def rmse(mean: Tensor, y: Tensor) -> float:
    """Root mean squared error, in the units of y."""
    return float((mean - y).square().mean().sqrt())


def scores(issued: Predictive, y: Tensor) -> Scores:
    """Of what was predicted for y (N, 1)."""
    low, high = issued.quantile(torch.tensor([0.025, 0.975], dtype=y.dtype))
    inside = ((low <= y) & (y <= high)).double().mean()
    return Scores(rmse(issued.mean, y), float(-issued.log_prob(y).mean()), float(inside))


class Mark(NamedTuple):
    """Where training stood after `seconds` of CPU time, and how it scored on the rows held out."""

    seconds: float
    step: Step
    scores: Scores


def trace(model: Model, rows: Split, epochs: int | None = None, last: bool = False) -> Iterator[Mark]:
    """Fit, and score after every epoch, or after the last alone; scoring is not counted.

    Nor are imports: the first optimiser of PyTorch that a process makes loads its compiler, 2 seconds.

    Args:
        epochs: as many as the model asks for, if not given.
    """
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    began, step, x = time.process_time(), None, windows(rows.x)
    for step in model.fit(x, rows.y, epochs or model.epochs_for(len(rows.y))):
        if not last:
            taken = time.process_time() - began
            yield Mark(taken, step, scores(model.predict(windows(rows.held)), rows.truth))
            began = time.process_time() - taken
    if last and step is not None:
        yield Mark(time.process_time() - began, step, scores(model.predict(windows(rows.held)), rows.truth))
