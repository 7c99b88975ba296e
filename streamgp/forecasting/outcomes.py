"""Scores of probabilities of outcomes 0 and 1, as sums, so that they need constant memory.

log_loss           mean −log p(y): the NLPD of an outcome
brier              mean (p − y)²: its CRPS (Brier 1950, halved)
accuracy           share of outcomes that the more probable value was
calibration_error  Σ_b n_b/n · |mean p − mean y in bin b|, over BINS bins of p of one width: the expected calibration
                   error of Naeini, Cooper & Hauskrecht (2015). Of n forecasts that are perfectly calibrated it is about
                   Σ_b √(2 n_b p_b(1 − p_b)/π)/n, not 0
base_rate          share of ones: always to say the likelier value would be right in max(base_rate, 1 − base_rate)
reliability        the bins that are not empty, as probability, frequency and forecasts: what was said, what happened
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Json, Predictive

BINS = 10
ROWS = 2 + 3 * BINS
"""Sums kept a column: right answers and ones; then rows, probabilities and ones of each bin."""


def values(issued: Predictive, y: Tensor) -> Tensor:
    """(ROWS, R, 1) what each forecast adds to the sums.

    Args:
        issued: (R, 1) distributions of outcomes.
        y: (R, 1) outcomes.
    """
    p = issued.mean
    right = ((p > 0.5) == (y > 0.5)).to(p)
    place = (p * BINS).long().clamp(max=BINS - 1)
    inside = (place == torch.arange(BINS, device=p.device).reshape(-1, 1, 1)).to(p)  # (BINS, R, 1)
    return torch.cat([torch.stack([right, y]), inside, inside * p, inside * y])


def figures(total: NDArray[np.float64], rows: float, nlpd: Json, crps: Json) -> dict[str, Json]:
    """The scores from (ROWS,) sums over `rows` forecasts, beside the mean NLPD and CRPS of the same.

    Example:
        >>> from streamgp.predictives.bernoulli import Bernoulli
        >>> p, y = torch.tensor([0.9, 0.9, 0.2, 0.2]).double()[:, None], torch.tensor([1.0, 1.0, 0.0, 1.0])[:, None]
        >>> sums = values(Bernoulli(torch.logit(p), torch.zeros(1)), y).sum((1, 2)).numpy()
        >>> found = figures(sums, 4.0, 0.4, 0.15)
        >>> found["accuracy"], round(found["calibration_error"], 3), found["base_rate"]  # (2 · 0.1 + 2 · 0.3)/4
        (0.75, 0.2, 0.75)
    """
    right, ones = total[:2].tolist()
    _, said, happened = total[2:].reshape(3, BINS)
    return {
        "log_loss": nlpd,
        "brier": crps,
        "accuracy": right / rows if rows else None,
        "calibration_error": float(np.abs(said - happened).sum()) / rows if rows else None,
        "base_rate": ones / rows if rows else None,
    }


def reliability(total: NDArray[np.float64]) -> list[Json]:
    """The bins of (ROWS,) sums that are not empty: what was said, how often it happened, how many forecasts said it."""
    count, said, happened = total[2:].reshape(3, BINS)
    full = count > 0
    rows = zip((said[full] / count[full]).tolist(), (happened[full] / count[full]).tolist(), count[full], strict=True)
    return [{"probability": p, "frequency": share, "forecasts": int(forecasts)} for p, share, forecasts in rows]


def wilson(share: float, count: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a probability (JASA 22, 1927), which holds the share itself.

    Args:
        share: of ones.
        count: outcomes that it is of.
        z: standard deviations of the normal approximation; 1.96 for 95 %.

    Example:
        >>> [round(end, 3) for end in wilson(0.0, 10)]
        [0.0, 0.278]
    """
    middle, weight = (share + z * z / (2 * count)) / (1 + z * z / count), z / (1 + z * z / count)
    half = weight * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share)
