"""kin40k for the benchmarks: 36,000 rows to learn and 4,000 held out by the published mask split0, as windows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from streamgp.base import Inputs, Predictive, Shape

INPUTS = tuple(f"x{i}" for i in range(8))
SHAPE = Shape(targets=("y",), horizon=1, lags=0, past=("y", *INPUTS), future=INPUTS)
DEFAULT = Path(__file__).parents[2] / "shared" / "data" / "uci_kin40k.parquet"


def load(path: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x (36000, 8), y (36000, 1), and the same of the held-out rows; float64, in the units of the file."""
    frame = pl.read_parquet(path)
    x, y = torch.tensor(frame.select(INPUTS).to_numpy()), torch.tensor(frame["y"].to_numpy())[:, None]
    held = torch.tensor(frame["split0"].to_numpy())
    return x[~held], y[~held], x[held], y[held]


def windows(x: Tensor) -> Inputs:
    """Rows of a regression: no past, one future row each."""
    return Inputs(x.new_zeros(len(x), 0, len(SHAPE.past)), x[:, None])


def rmse(mean: Tensor, y: Tensor) -> float:
    """Root mean squared error, in the units of y (whose standard deviation is 1)."""
    return float((mean - y).square().mean().sqrt())


def scores(issued: Predictive, y: Tensor) -> str:
    """RMSE, mean negative log predictive density, and the coverage of the 95 % band, as words."""
    low, high = issued.quantile(torch.tensor([0.025, 0.975], dtype=y.dtype))
    inside = ((low <= y) & (y <= high)).double().mean()
    return f"rmse {rmse(issued.mean, y):.4f}  nlpd {-issued.log_prob(y).mean():.3f}  coverage 95: {inside:.3f}"
