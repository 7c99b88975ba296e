"""Made-up forecasts with their truths, as Due and as plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from streamgp.base import Due, Inputs, Predictive, Shape
from streamgp.forecasting.calibration import Calibration

CALIBRATION = Calibration((80.0, 95.0))
SHAPE = Shape(targets=("y", "z"), horizon=3, lags=1, past=("y", "z"), future=())


def due_of(
    issued: Predictive,
    y: torch.Tensor,
    column: torch.Tensor,
    quantiles: torch.Tensor,
    position: torch.Tensor | None = None,
) -> Due:
    """R forecasts of one series."""
    nil = torch.zeros(len(y), dtype=torch.int64)
    none = Inputs(torch.zeros(0, 1, 2).double(), torch.zeros(0, 3, 0).double())
    place = nil if position is None else position
    features = torch.zeros(10, len(y), dtype=torch.float64)
    target, parameters = torch.zeros(0, 6).double(), torch.zeros(3, 0, 6)
    return Due(nil, place, place, place, column, y, issued, quantiles, features, none, target, parameters)


def normal(data: dict[str, Any]) -> torch.Tensor:
    """(Q, R) quantiles of normal distributions `wider` than issued, at the probabilities of CALIBRATION."""
    scale = torch.from_numpy(data["wider"] * np.sqrt(data["latent"] + data["noise"]))
    p = torch.tensor(CALIBRATION.probabilities, dtype=torch.float64)[:, None]
    return torch.from_numpy(data["mean"]) + scale * torch.special.ndtri(p)


def frame(rows: int, seed: int) -> dict[str, Any]:
    """Means, variances, truths, columns and how much wider the calibrated normal distribution is."""
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(5, 2, rows), rng.gamma(2.0, 1.0, rows)
    return {
        "mean": mean,
        "latent": 0.25 * variance,
        "noise": 0.75 * variance,
        "y": mean + 1.3 * np.sqrt(variance) * rng.normal(size=rows),
        "column": rng.integers(0, 6, rows),
        "wider": rng.uniform(0.8, 1.7, rows),
    }
