"""Winsorise targets at c predictive standard deviations.

A glitch of a sensor does not describe the process. Learned as it is, one value 200 standard deviations off widens the
bands of thousands of rows after it, and the windows that hold it among their lags bend the coefficients. With the
forecast N(m, v) of a row that is not learned yet, what is learned in place of y is

    y' = m + clamp(y − m, ±c √v)

the winsorised observation of robust recursive estimation (Huber 1964, section 3; Masreliez & Martin 1977), with c = 5.
For Bayesian linear regression such a row adds (y' − m)²/(1 + leverage) ≤ c²σ² to the residual sum of squares, and moves
no coefficient by more than c of its posterior standard deviations.

What lasts is no glitch. A wrong value stands in L windows as a lag and in H as a truth; so where more than half of the
rows, averaged over the newest 2 (L + H), were limited, the process has changed, and rows count in full again.

What it costs: values so rare and so far out that they never widen the forecast, such as a demand of 1 in less than 1
of 25 rows and 0 in the others, are learned as less than they are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Predictive, Shape

SETTLED = 100.0
"""Rows that a model must have learned before its own standard deviation is a measure of others."""
FAR = 1e4
"""Standard deviations of a window's column beyond which the window is not learned. Far events are learned: up to some
thousand standard deviations the bounded memory takes them without harm, while a glitch of 1e6 hides all else."""
LASTING = 0.5
"""Part of the newest rows beyond the limit from which on it is a change of the process."""


class Winsoriser(nn.Module):
    """Limits truths, and knows how often it did of late.

    Args:
        shape: of the windows.
        deviations: c; None limits nothing.
        settled: rows that must be learned before.

    Attributes:
        excess: (T,) part of the newest rows whose truth lay beyond the limit.
        far: () part of the newest rows whose leverage was above 1, or whose window was beyond `FAR`.

    Example:
        >>> from streamgp.predictives.gaussian import Gaussian
        >>> limit = Winsoriser(Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=()), deviations=5.0)
        >>> zero = torch.zeros(3, 1, dtype=torch.float64)
        >>> y = torch.tensor([[1.0], [200.0], [float("nan")]], dtype=torch.float64)
        >>> limit(y, Gaussian(zero, zero, zero + 4.0), rows=torch.tensor(1000.0))[:, 0].tolist()
        [1.0, 10.0, nan]
    """

    def __init__(self, shape: Shape, deviations: float | None, settled: float = SETTLED) -> None:
        super().__init__()
        self.deviations, self.settled = deviations, settled
        self.newest = 2.0 * (shape.lags + shape.horizon)
        self.excess: Tensor
        self.far: Tensor
        self.register_buffer("excess", torch.zeros(shape.columns, dtype=FLOAT))
        self.register_buffer("far", torch.zeros((), dtype=FLOAT))

    def forward(self, y: Tensor, forecast: Predictive, rows: Tensor) -> Tensor:
        """The truths to learn from.

        Args:
            y: (N, T) as observed; NaN stays NaN.
            forecast: of these rows, before they are learned.
            rows: () or (T,) how many the model has learned so far.

        Returns:
            (N, T)
        """
        if self.deviations is None or not len(y):
            return y
        most = self.deviations * forecast.variance.sqrt()
        off = y - forecast.mean
        beyond = (off.abs() > most) & (rows >= self.settled)
        within = torch.where(beyond & (self.excess <= LASTING), forecast.mean + off.clamp(-most, most), y)
        self._average(self.excess, beyond)
        return within

    def reaches(self, y: Tensor, forecast: Predictive) -> Tensor:
        """(N,) which rows have a truth beyond the limit of this forecast; with larger variances no others have one."""
        if self.deviations is None:
            return torch.zeros(len(y), dtype=torch.bool, device=y.device)
        return ((y - forecast.mean).abs() > self.deviations * forecast.variance.sqrt()).any(1)

    def admits(self, z: Tensor, rows: Tensor) -> Tensor:
        """(N, W) standardised windows -> (N,) whether they are learned: none of whose columns is beyond `FAR`.

        A glitch stands in L windows as a lag. Where most of the newest rows are so far out the process has changed, and
        all are learned. rows: () or (T,) as of `forward`.
        """
        every = torch.ones(len(z), dtype=torch.bool, device=z.device)
        if self.deviations is None or not len(z) or bool((rows < self.settled).any()):
            return every
        far = (z.abs() > FAR).any(1)
        admitted = every if self.far > LASTING else ~far
        self._average(self.far, far)
        return admitted

    def doubts(self, z: Tensor, rows: Tensor) -> bool:
        """Whether one of these windows (N, W) has a value that `admits` would take for a glitch; nothing changes."""
        if self.deviations is None or not z.numel() or bool((rows < SETTLED).any()) or self.far > LASTING:
            return False
        return bool(z.abs().amax() > FAR)

    def _average(self, part: Tensor, found: Tensor) -> None:
        """Move a part of the newest rows by N rows more, (N,) or (N, T) of truth values."""
        part.lerp_(found.to(FLOAT).mean(0), -math.expm1(-len(found) / self.newest))
