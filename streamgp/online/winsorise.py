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

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Predictive, Shape

SETTLED = 100.0
"""Rows that a model must have learned before truths are judged by its standard deviation."""
FAR = 1e4
"""Standard deviations of a window's column beyond which the window is not learned. Far events are learned: up to some
thousand standard deviations the bounded memory takes them without harm, while a glitch of 1e6 hides all else."""
LASTING = 0.5
"""Part of the newest rows beyond the limit from which on the process is taken to have changed."""


class Winsoriser(nn.Module):
    """Limits truths, and knows how often it did so recently.

    Args:
        shape: of the windows.
        deviations: c; None limits nothing.
        settled: rows that must be learned before.

    Attributes:
        excess: (T,) part of the newest rows whose truth lay beyond the limit.
        far: () part of the newest rows whose leverage was above 1, or whose window had a value beyond `FAR`.

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
            y: (..., N, T) as observed; NaN stays NaN, and a row without a truth is none.
            forecast: of these rows, before they are learned.
            rows: (), (T,), or (K, 1) of K models: how many each has learned so far.

        Returns:
            (..., N, T)
        """
        there, rows = torch.isfinite(y).any(-1), torch.atleast_1d(rows)
        within, self.excess = self.limited(there, forecast.mean, forecast.variance, y, rows, self.excess)
        return within

    def limited(
        self, there: Tensor, mean: Tensor, variance: Tensor, y: Tensor, rows: Tensor, excess: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The truths to learn from, of one model or of K, and which recent part was beyond the limit, (..., T).

        Args:
            there: (..., N) whether a model has a window at this place.
            mean: (..., N, T) of the forecasts of these rows, before they are learned.
            variance: (..., N, T)
            y: (..., N, T) as observed; NaN stays NaN.
            rows: (..., 1) or (..., T) that each has learned.
            excess: (..., T) the part so far.
        """
        if self.deviations is None or not y.shape[-2]:
            return y, excess
        most, off = self.deviations * variance.sqrt(), y - mean
        beyond = (off.abs() > most) & (rows >= self.settled).unsqueeze(-2)
        within = torch.where(beyond & (excess <= LASTING).unsqueeze(-2), mean + off.clamp(-most, most), y)
        return within, self._averaged(excess, beyond, there)

    def reaches(self, y: Tensor, forecast: Predictive) -> Tensor:
        """(..., N) which rows have a truth beyond the limit of this forecast; larger variances only make them fewer."""
        if self.deviations is None:
            return torch.zeros(y.shape[:-1], dtype=torch.bool, device=y.device)
        return ((y - forecast.mean).abs() > self.deviations * forecast.variance.sqrt()).any(-1)

    def admits(self, z: Tensor, there: Tensor, rows: Tensor) -> Tensor:
        """(..., N) which windows are learned: those that are there, and none of whose columns is beyond `FAR`.

        A glitch stands in L windows as a lag. Where most of the newest rows are so far out the process has changed, and
        all are learned.

        Args:
            z: (..., N, W) standardised windows.
            there: (..., N) whether a model has a window at this place.
            rows: as of `forward`.
        """
        settled = torch.atleast_1d(rows).amin(-1) >= self.settled
        if self.deviations is None or not z.shape[-2] or not bool(settled.any()):
            return there
        beyond, certain = (z.abs() > FAR).any(-1), settled & (self.far <= LASTING)
        self.far = torch.where(settled, self._averaged(self.far, beyond, there), self.far)
        found: Tensor = there & ~(beyond & certain[..., None])
        return found

    def weighed(self, there: Tensor, lever: Tensor, rows: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
        """(K, N, 1) weights 1/max(1, leverage) of windows, 0 where none is, or 1 where most of the newest rows of a
        model are so far out; and which recent part was, (K,). A window with a glitch among its lags then says no more
        of its direction than all rows before it.

        Args:
            there: (K, N) whether a model has a window at this place.
            lever: (K, N, 1) leverages uᵀA⁻¹u.
            rows: (K,) that each has learned.
            far: (K,) the part so far.
        """
        one, settled = there[..., None].to(lever), (rows > 0) & (rows >= self.settled)
        if self.deviations is None or not bool(settled.any()):
            return one, far
        less = settled & (far <= LASTING)
        weight = torch.where(less[:, None, None], one * lever.clamp(min=1.0).reciprocal(), one)
        return weight, torch.where(settled, self._averaged(far, lever[..., 0] > 1.0, there), far)

    def doubts(self, z: Tensor, rows: Tensor) -> Tensor | None:
        """() or (K,) the deviations beyond which a value is a glitch, where one of these windows (..., N, W) has such a
        value; else None. Nothing changes."""
        if self.deviations is None or not z.numel():
            return None
        certain = (torch.atleast_1d(rows).amin(-1) >= SETTLED) & (self.far <= LASTING)
        if not bool((certain & (z.abs().amax((-2, -1)) > FAR)).any()):
            return None
        return torch.where(certain, FAR, torch.inf)

    def _averaged(self, part: Tensor, found: Tensor, there: Tensor) -> Tensor:
        """Parts (..., T), or one a model, of the newest rows, moved by truth values (..., N, T), or (..., N)."""
        axis = there.dim() - 1
        more = [1] * (part.dim() - axis)
        count = there.sum(-1).to(FLOAT).view([*there.shape[:-1], *more])
        shown = found & there.view([*there.shape, *more])
        return part.lerp(shown.sum(axis) / count.clamp(min=1.0), -torch.expm1(-count / self.newest))


def far_off(windows: int) -> str:
    """The message about this many windows that `Winsoriser.admits` leaves out."""
    return f"undone: {windows} windows are beyond {FAR:,.0f} standard deviations" if windows else ""
