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
            y: (N, T) as observed; NaN stays NaN.
            forecast: of these rows, before they are learned.
            rows: () or (T,) how many the model has learned so far.

        Returns:
            (N, T)
        """
        there, issued = _every(y), (forecast.mean[None], forecast.variance[None])
        within, excess = self.limited(there, *issued, y[None], rows.reshape(1, -1), self.excess[None])
        self.excess = excess[0]
        return within[0]

    def limited(
        self, there: Tensor, mean: Tensor, variance: Tensor, y: Tensor, rows: Tensor, excess: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The truths to learn from, of K models, and which recent part was beyond the limit, (K, T).

        Args:
            there: (K, N) whether a model has a window at this place.
            mean: (K, N, T) of the forecasts of these rows, before they are learned.
            variance: (K, N, T)
            y: (K, N, T) as observed; NaN stays NaN.
            rows: (K, 1) or (K, T) that each has learned.
            excess: (K, T) the part so far.
        """
        if self.deviations is None or not y.shape[1]:
            return y, excess
        most, off = self.deviations * variance.sqrt(), y - mean
        beyond = (off.abs() > most) & (rows >= self.settled)[:, None]
        within = torch.where(beyond & (excess <= LASTING)[:, None], mean + off.clamp(-most, most), y)
        return within, self._averaged(excess, beyond, there)

    def reaches(self, y: Tensor, forecast: Predictive) -> Tensor:
        """(N,) which rows have a truth beyond the limit of this forecast; larger variances only make them fewer."""
        if self.deviations is None:
            return torch.zeros(len(y), dtype=torch.bool, device=y.device)
        return ((y - forecast.mean).abs() > self.deviations * forecast.variance.sqrt()).any(1)

    def admits(self, z: Tensor, rows: Tensor) -> Tensor:
        """(N, W) standardised windows -> (N,) whether they are learned: none of whose columns is beyond `FAR`.

        A glitch stands in L windows as a lag. Where most of the newest rows are so far out the process has changed, and
        all are learned. rows: () or (T,) as of `forward`.
        """
        admitted, far = self.admitted(_every(z), z[None], rows.reshape(1, -1).amin(1), self.far[None])
        self.far = far[0]
        return admitted[0]

    def admitted(self, there: Tensor, z: Tensor, rows: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
        """(K, N) whether windows are learned, as of `admits`, of K models; and which recent part was so far out, (K,).

        Args:
            there: (K, N) whether a model has a window at this place.
            z: (K, N, W)
            rows: (K,) that each has learned.
            far: (K,) the part so far.
        """
        settled = rows >= self.settled
        if self.deviations is None or not z.shape[1] or not bool(settled.any()):
            return there, far
        beyond = (z.abs() > FAR).any(2)
        admitted = there & ~(beyond & (settled & (far <= LASTING))[:, None])
        return admitted, torch.where(settled, self._averaged(far, beyond, there), far)

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

    def doubts(self, z: Tensor, rows: Tensor) -> bool:
        """Whether one of these windows (N, W) has a value that `admits` would take for a glitch; nothing changes."""
        if self.deviations is None or not z.numel() or bool((rows < SETTLED).any()) or self.far > LASTING:
            return False
        return bool(z.abs().amax() > FAR)

    def _averaged(self, part: Tensor, found: Tensor, there: Tensor) -> Tensor:
        """Parts (K, ...) of the newest rows, moved by those that came, truth values (K, N, ...)."""
        count = there.sum(1).to(FLOAT).view(-1, *[1] * (part.dim() - 1))
        shown = found & there.view(*there.shape, *[1] * (part.dim() - 1))
        return part.lerp(shown.sum(1) / count.clamp(min=1.0), -torch.expm1(-count / self.newest))


def far_off(windows: int) -> str:
    """The message about this many windows that `Winsoriser.admits` leaves out."""
    return f"undone: {windows} windows are beyond {FAR:,.0f} standard deviations" if windows else ""


def _every(rows: Tensor) -> Tensor:
    """(1, N) of one model, all there."""
    return torch.ones(1, len(rows), dtype=torch.bool, device=rows.device)
