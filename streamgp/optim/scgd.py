"""SCGD: log|F| by the gradient at a moving average F̃ of its mini-batch estimates (Shoham & Avron, section 3.2).

    F̃ ← (1 − b) F̃ + b (N/|b|) Σ_b F_i,   F_i = φ_iφ_iᵀ + (κ/N) I,   P = F̃⁻¹ held

The estimate of the gradient is biased at any finite b, and exact as b → 0 with features that stand still. With b near 1
F̃ is κI and a few mini-batches.

Departures. κ is kept apart: F̃ = G̃ + κI with the present κ and the moving average G̃ of (N/|b|) ΦᵀΦ, so that steps on
the noise are not lagged. The average begins as a plain mean, b_t = max(b, 1/t): no step sees a start that was made up.
The paper prints the step on θ before F̃ takes in its mini-batch (`order=before`); taken in first (`after`), a row
never meets an F̃ without it, which at b = 0.9 has rank |b|/d only.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from streamgp.base import Json
from streamgp.objectives.finite_evidence import Determinant
from streamgp.optim.finite_head import Estimator
from streamgp.optim.recent_rows import Dense, Recent

LOW_RANK_UP_TO = 0.8
"""Rows for every feature up to which M (r, r) is worth its way: it is factorised like F̃, and more is multiplied."""


class ScgdConfig(BaseModel):
    """The moving average of SCGD."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    b: float = Field(0.1, gt=0, le=1, description="weight of a mini-batch in the moving average; the paper's is 0.9")
    power: float = Field(
        0.0,
        ge=0,
        le=1,
        description="0: that weight stays; p: it is t^-p at mini-batch t, never above that of a plain mean and b; "
        "0.5 in the theory",
    )
    order: Literal["after", "before"] = Field(
        "after",
        description="whether the step on the features uses the average after or before it takes in their mini-batch",
    )
    every: int = Field(8, ge=1, le=1000, description="mini-batches that use one factorisation; of dense averages alone")
    low_rank: bool | None = Field(
        None,
        description="whether the average is kept as its newest rows (Woodbury); none: where those are fewer than 0.8 "
        "times the features",
    )
    tolerance: float = Field(
        1e-12,
        gt=0,
        lt=1,
        description="weight of all older mini-batches together below which they are left out of newest rows",
    )

    @model_validator(mode="after")
    def _rows_forget(self) -> ScgdConfig:
        if self.low_rank and self.power:
            raise ValueError("low_rank needs mini-batches that are forgotten: set power to 0")
        return self


def slots(config: ScgdConfig) -> int:
    """Mini-batches that newest rows must hold: the fewest K with (1 − b)^K at most `tolerance`.

    Example:
        >>> slots(ScgdConfig(b=0.9)), slots(ScgdConfig(b=0.5, tolerance=1e-3))
        (12, 10)
    """
    if config.b == 1.0:
        return 1
    return max(math.ceil(math.log(config.tolerance) / math.log(1.0 - config.b) - 1e-9), 1)


class Scgd(Estimator):
    """SCGD's part for log|F|. O(d³ + |b|d²) a step and O(d²) memory; O(r³ + r|b|d), O(rd) from r newest rows.

    Args:
        config: see there.
        batch: rows of a mini-batch, at most.

    Attributes:
        seen: mini-batches so far.

    Example:
        >>> import torch
        >>> method, phi = Scgd(ScgdConfig(), 4), torch.eye(4, 2, dtype=torch.float64)
        >>> part = method.determinant(phi, torch.tensor(0.5, dtype=torch.float64), total=4)
        >>> round(float(part.value.exp()), 9), round(float(part.trace), 9)
        (2.25, 1.333333333)
    """

    def __init__(self, config: ScgdConfig, batch: int) -> None:
        self.config, self.batch, self.seen = config, batch, 0
        self.average: Dense | Recent | None = None

    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        average = self.average = self.average or self._made(phi)
        self.seen += 1
        b = self.rate(self.seen)
        before = self.config.order == "before" and self.seen > 1
        part = self._part(average, phi, kappa, newest=False) if before else None
        average.add(phi, 1.0 - b, b * total / len(phi))
        return part or self._part(average, phi, kappa, newest=True)

    def rate(self, seen: int) -> float:
        """b_t of mini-batch t = 1, 2, …"""
        b = self.config.b if not self.config.power else min(self.config.b, seen**-self.config.power)
        return max(b, 1.0 / seen)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        if self.average is None:
            return {}, {"seen": self.seen}
        tensors, rest = self.average.state()
        return tensors, {"seen": self.seen, "average": rest}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.seen, self.average = int(str(rest["seen"])), None
        if "average" in rest:
            inner = rest["average"]
            assert isinstance(inner, dict)
            self.average = self._made(tensors["gram"] if "gram" in tensors else tensors["rows"])
            self.average.restore(tensors, inner)

    def _made(self, like: Tensor) -> Dense | Recent:
        width, rows = like.shape[1], slots(self.config) * self.batch
        wanted = self.config.low_rank
        if wanted is None:
            wanted = rows <= LOW_RANK_UP_TO * width and not self.config.power
        if wanted:
            return Recent(width, slots(self.config), self.batch, like.device)
        return Dense(width, self.config.every, like.device)

    def _part(self, average: Dense | Recent, phi: Tensor, kappa: Tensor, *, newest: bool) -> Determinant:
        if isinstance(average, Recent):
            return average.determinant(phi, kappa, newest=newest)
        return average.determinant(phi, kappa)
