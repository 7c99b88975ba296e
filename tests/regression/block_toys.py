"""Small systems of every kind that the block solver takes, and their dense solution in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from streamgp.features import Features, fourier
from streamgp.kernels import squared_exponential
from streamgp.regression.block_rows import BlockRows
from streamgp.regression.block_solver import BlockSolver

Array = npt.NDArray[np.float64]
EXACT: dict[str, Any] = {"dtype": torch.float64, "gram_rows": 0, "history": 30}


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def features_of() -> Features:
    """26 Fourier features in blocks of 10, 10 and 6."""
    kernel = squared_exponential.build(squared_exponential.Config(lengthscale=0.8, outputscale=1.5), 2)
    return fourier.build(fourier.Config(size=26, width=10), kernel, seed=1)


class Problem(NamedTuple):
    """R rows, T = 2 columns."""

    x: Tensor
    y: Tensor
    weight: Tensor | None
    noise: Tensor


def problem(weights: str = "none", *, rows: int = 50, missing: bool = False, own_noise: bool = False) -> Problem:
    x = normal(rows, 2, seed=2)
    y = torch.stack((torch.sin(2 * x[:, 0]), x[:, 1].cos()), 1) + 0.1 * normal(rows, 2, seed=3)
    if missing:
        y[::7, 0], y[3::5, 1] = torch.nan, torch.nan
    weight = {"none": None, "rows": normal(rows, seed=4).exp(), "columns": normal(rows, 2, seed=5).exp()}[weights]
    return Problem(x, y, weight, torch.tensor([0.05, 0.2] if own_noise else [0.1, 0.1]).double())


def everything(features: Features, x: Tensor) -> Array:
    """(R, m) Φ."""
    with torch.no_grad():
        return torch.cat([features.block(x, b) for b in range(features.blocks)], 1).numpy()


def weights_of(p: Problem) -> Array:
    """(R, T), 0 where y is missing."""
    own = np.ones(p.y.shape) if p.weight is None else p.weight.numpy()
    return np.broadcast_to(own if own.ndim == 2 else own[:, None], p.y.shape) * np.isfinite(p.y.numpy())


def systems(features: Features, p: Problem) -> list[tuple[Array, Array]]:
    """(A, b) of every column: (ΦᵀWΦ + σ²I) μ = ΦᵀWy."""
    phi, weights, y = everything(features, p.x), weights_of(p), np.nan_to_num(p.y.numpy())
    return [
        ((phi * weights[:, [t]]).T @ phi + s * np.eye(phi.shape[1]), phi.T @ (weights[:, t] * y[:, t]))
        for t, s in enumerate(p.noise.tolist())
    ]


def solution(features: Features, p: Problem) -> Array:
    """(m, T)"""
    return np.stack([np.linalg.solve(*system) for system in systems(features, p)], 1)


def started(features: Features, p: Problem, config: dict[str, Any] = EXACT) -> tuple[BlockSolver, BlockRows]:
    solver = BlockSolver(features, p.y.shape[1], **config).begin(p.noise)
    return solver, solver.rows(p.x, p.y, p.weight)
