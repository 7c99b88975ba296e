"""A small system that no linear forecast gets right, as windows of the product, and models that learn it quickly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from streamgp import registry
from streamgp.base import FLOAT, Inputs, Shape
from streamgp.models.deep.gp import GpPosterior
from streamgp.models.deep.posterior import DeepPosterior
from streamgp.online.model import StreamModel

LAGS = 4
SYSTEM = Shape(targets=("y",), horizon=1, lags=LAGS, past=("y", "u"), future=())
PAIR = Shape(targets=("y",), horizon=2, lags=LAGS, past=("y", "u"), future=("u",))
"""One step ahead, and two steps with a known input."""


def series(rows: int, seed: int = 0, gain: float = 3.0, noise: float = 0.1) -> np.ndarray[Any, Any]:
    """(rows, 2) y and u in units of their own: y_t = 10 + 4 s_t, s_t = sin(gain s_{t−1}) / 2 + u_{t−1} + noise."""
    random = np.random.default_rng(seed)
    u, e = random.uniform(-0.5, 0.5, rows), noise * random.standard_normal(rows)
    s = np.zeros(rows)
    for t in range(1, rows):
        s[t] = np.sin(gain * s[t - 1]) / 2 + u[t - 1] + e[t]
    return np.stack([10 + 4 * s, 7 * u], 1)


def windows(shape: Shape, values: np.ndarray[Any, Any]) -> tuple[Inputs, Tensor]:
    """Every whole window of (rows, 2) values, in order of time, and their truths."""
    whole = torch.from_numpy(values).to(FLOAT)
    rows = len(whole) - shape.lags - shape.horizon + 1
    past = whole.unfold(0, shape.lags, 1)[:rows].transpose(1, 2)
    ahead = whole[shape.lags :].unfold(0, shape.horizon, 1)[:rows].transpose(1, 2)
    return Inputs(past, ahead[..., 1:] if shape.future else ahead[..., :0]), ahead[..., 0]


def build(name: str, shape: Shape = SYSTEM, **options: Any) -> StreamModel:
    """Small nets alone, small grids and windows unless the options say otherwise."""
    small: dict[str, Any] = {"encoder": {"hidden": 8}, "target": "change", "rebuild": 100, "online": {"window": 300}}
    if name.startswith("gp_"):
        small["solver"] = {"name": "kiss", "grid": 16}
    module = registry.load("models", name)
    made: StreamModel = module.build(module.Config(**{**small, **options}), shape)
    return made


def deep(model: StreamModel) -> DeepPosterior:
    assert isinstance(model.posterior, DeepPosterior)
    return model.posterior


def gp_of(model: StreamModel) -> GpPosterior:
    assert isinstance(model.posterior, GpPosterior)
    return model.posterior


def residuals(model: StreamModel, x: Inputs, y: Tensor) -> Tensor:
    """(N, T) what the encoder learns of rows."""
    return model.targets(x, y)


def chunk(x: Inputs, y: Tensor, start: int, stop: int) -> tuple[Inputs, Tensor]:
    return x.rows(slice(start, stop)), y[start:stop]


def fitted(model: StreamModel, x: Inputs, y: Tensor, epochs: int) -> StreamModel:
    assert all(step.healthy for step in model.fit(x, y, epochs))
    return model
