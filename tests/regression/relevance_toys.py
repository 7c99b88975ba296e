"""Functions, targets and dense twins for the tests of relevance selection."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from streamgp.kernels.squared_exponential import correlation
from streamgp.regression.relevance import RelevanceSums, Selection, posterior


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def sums_of(phi: Tensor, y: Tensor, weight: Tensor | None = None) -> RelevanceSums:
    """From functions (n, m) and targets (n, T)."""
    weight = torch.ones(len(phi), dtype=torch.float64) if weight is None else weight
    gram = phi.T @ (phi * weight[:, None])
    return RelevanceSums(
        gram.diagonal().clone(),
        phi.T @ (y * weight[:, None]),
        weight @ y.square(),
        float(weight.sum()),
        lambda places: gram[:, places],
    )


def sinc(rows: int, seed: int, noise: float = 0.1, columns: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Functions (rows, rows) on the rows themselves, targets of variance 1 (rows, columns), and the truth of these."""
    generator = torch.Generator().manual_seed(seed)
    x = 20.0 * torch.rand(rows, 1, generator=generator, dtype=torch.float64) - 10.0
    truth = torch.sinc(x / math.pi).expand(rows, columns)
    y = truth + noise * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    scale = y.std()
    return correlation(x / 2.2, x / 2.2), y / scale, truth / scale


def covariance(phi: Tensor, precision: Tensor, noise: float) -> np.ndarray:
    """(n, n) C = σ²I + Φ diag(s)⁻¹Φᵀ."""
    return (noise * torch.eye(len(phi), dtype=torch.float64) + (phi / precision) @ phi.T).numpy()


def log_evidence(sums: RelevanceSums, kept: Selection) -> float:
    """log p(y | s, σ²) of the average column (Tipping & Faul 2003, equation (5)):
    −½ [n log 2πσ² + log|A| − Σ log s_j + (yᵀy − yᵀΦμ)/σ²].

    """
    moment = sums.moment[kept.places]
    found = posterior(sums.columns(kept.places)[kept.places], moment, sums.total, kept.precision, kept.noise)
    misfit = float((sums.total - (found.mean * moment).sum(0)).mean()) / kept.noise
    determinant = 2.0 * float(found.lower.diagonal().log().sum()) - float(kept.precision.log().sum())
    return -0.5 * (sums.rows * math.log(2.0 * math.pi * kept.noise) + determinant + misfit)
