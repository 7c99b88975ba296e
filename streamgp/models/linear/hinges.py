"""Hinges of the newest values, for a static nonlinearity: a dead zone, a saturation, the weight of an arm.

Of each channel c, a newest target or an input at the step, the columns are max(0, v_c − k) for knots k on the multiples
of a power of 2, at most `KNOTS` within the range seen. When the range grows, knots follow: a new one lies where no row
was yet, with max(0, v_c − k) above the range and max(0, k − v_c) below it, so that the column was 0 in all rows before
and sums over rows need no rows again. When knots become too many every other one is left out. Beyond the last knot the
regression is linear. The outermost 1/64 of the rows of a batch, and one at least, do not extend the range: a glitch
places no knots.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Inputs, Shape

KNOTS = 16
"""Hinges of a channel, at most."""
TAIL = 64
"""One row in TAIL does not extend the range, at either end."""


class Hinges(nn.Module):
    """The columns, and where their knots are.

    Args:
        shape: of the windows, one step ahead.

    Attributes:
        parents: (C · KNOTS,) the column of the flattened window that each hinge is made from.

    Example:
        >>> hinges = Hinges(Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=()))
        >>> y = torch.linspace(0, 8, 100, dtype=torch.float64)[:, None, None]
        >>> bool(hinges.follow(Inputs(y, y[:, :, :0])).any()), len(hinges.parents)
        (True, 16)
        >>> sorted(hinges.knots[hinges.sides != 0].tolist())[:3]
        [0.5, 1.0, 1.5]
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        known = [at for at, name in enumerate(shape.future) if name in shape.past]
        self.known = torch.tensor(known, dtype=torch.int64)
        newest = [len(shape.past) * (shape.lags - 1) + at for at in range(shape.outputs)]
        channels = newest + [len(shape.past) * shape.lags + at for at in known]
        self.outputs, self.parents = shape.outputs, torch.tensor(channels).repeat_interleave(KNOTS)
        for name, size in (
            ("knots", (len(channels), KNOTS)),
            ("sides", (len(channels), KNOTS)),
            ("ends", (2, len(channels))),
        ):
            self.register_buffer(name, torch.zeros(size, dtype=FLOAT))
        self.register_buffer("begun", torch.zeros((), dtype=torch.bool))
        self.knots: Tensor
        self.sides: Tensor  # 1: above the knot, −1: below it, 0: no knot
        self.ends: Tensor  # (2, C) of the range that has knots
        self.begun: Tensor

    def values(self, x: Inputs) -> Tensor:
        """(N, C)"""
        return torch.cat([x.past[:, -1, : self.outputs], x.future[:, 0, self.known.to(x.future.device)]], 1)

    def forward(self, x: Inputs) -> Tensor:
        """(N, C · KNOTS) the columns."""
        return (self.sides * (self.values(x)[..., None] - self.knots)).clamp(min=0.0).nan_to_num(0.0).flatten(1)

    def limited(self, y: Tensor, noise: Tensor) -> Tensor:
        """(N, O) targets within the range seen and as much again, and noise (N, O), at either side."""
        low, high = self.ends[:, : self.outputs]
        room = high - low + noise.abs()
        return y.clamp(low - room, high + room)

    def follow(self, x: Inputs) -> Tensor:
        """Extend the range by N windows; returns (C · KNOTS,) whether a column has become another one."""
        values = self.values(x).nan_to_num(0.0).sort(0).values
        tail = min(max(len(values) // TAIL, 1), (len(values) - 1) // 2)
        low, high = values[tail], values[-1 - tail]
        if bool(self.begun):
            low, high = low.minimum(self.ends[0]), high.maximum(self.ends[1])
        ends = torch.stack([low, high])
        changed = torch.zeros_like(self.sides, dtype=torch.bool)
        for at in ((ends != self.ends).any(0) | ~self.begun).nonzero()[:, 0].tolist():
            changed[at] = self._place(at, *ends[:, at].tolist())
        self.ends.copy_(ends)
        self.begun.fill_(True)
        return changed.flatten()

    def _place(self, at: int, low: float, high: float) -> Tensor:
        """Knots of a channel for its new range; (KNOTS,) those that are others."""
        knots, sides = self.knots[at], self.sides[at]
        changed = torch.zeros_like(sides, dtype=torch.bool)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            return changed
        step = 2.0 ** math.ceil(math.log2((high - low) / KNOTS))
        new = step * torch.arange(math.floor(low / step) + 1, math.ceil(high / step)).to(knots)
        below, above = self.ends[:, at].tolist() if bool(self.begun) else (low, low)
        new = new[(new <= below) | (new >= above)]
        stays = (sides != 0) & (knots.remainder(step) == 0)
        free = (~stays).nonzero()[: len(new), 0]
        changed[free] = True
        changed |= (sides != 0) & ~stays
        sides[~stays] = 0.0
        knots[free], sides[free] = new, torch.where(new >= above, 1.0, -1.0).to(new)
        return changed
