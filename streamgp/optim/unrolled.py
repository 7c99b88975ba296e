"""Training on simulation error: a model of one step is run on its own output along windows that follow each other.

From a window i on the model's own forecasts take the place of the targets' lags in the windows i + 1, ..., i + K − 1,
whose inputs are given. The loss is the Huber loss of all K steps, each in units of its error before, and its gradient
goes through the model's own output: an output error model (Ljung 1999, section 4.2), truncated at K steps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from streamgp.encoders import Layout

SAMPLE = 256
"""Simulations that a loss is measured on."""
HUBER = 3.0
"""Typical errors from which on an error counts by its size."""
BEYOND = 1.5
"""Simulated values are limited to so many times the largest that was seen."""


class Chain:
    """Windows that follow each other, and what a target becomes as a lag of the next one.

    A window is followed by the next row where this has the same lags, moved on by one. There the newest lag is an
    affine function of the newest lag before and of what is learned, whatever the scaling of both.

    Args:
        z: (N, W) standardised windows, in the order of their arrival.
        y: (N, O) what is learned of each.
        layout: of z; the targets are the first O of its channels.
        slope: 1 where changes from the last value are learned, 0 where levels are.

    Example:
        >>> y = torch.sin(torch.arange(60.0).double())
        >>> z = y.unfold(0, 3, 1)[:-1]
        >>> chain = Chain(z, (y[3:] - y[2:-1])[:, None], Layout(3, 1, 1, 0))  # a change from the last value
        >>> step = lambda z: (2 * torch.cos(torch.tensor(1.0).double()) - 1) * z[:, 2:] - z[:, 1:2]
        >>> float(chain.errors(step, chain.starts(20), 20).abs().max()) < 1e-6
        True
    """

    def __init__(self, z: Tensor, y: Tensor, layout: Layout, slope: float = 1.0) -> None:
        self.z, self.outputs, self.lags = z, y.shape[1], layout.lags
        self.width = layout.lags * layout.past
        past = self._past(z)
        level = past[:, -1, : self.outputs]  # (N, O)
        follows = (past[1:, :-1] == past[:-1, 1:]).flatten(1).all(1)
        place = torch.arange(len(z), device=z.device)
        broken = torch.cat([~follows, follows.new_ones(1)])
        end = torch.where(broken, place, len(z)).flip(0).cummin(0).values.flip(0)
        self.left = end - place  # (N,) windows that follow each one
        self.level, self.largest = level, BEYOND * level.abs().amax(0)
        rows = follows.nonzero()[:, 0]
        moved = level[rows + 1] - slope * level[rows]
        self.slope, self.gain, self.constant = slope, torch.ones_like(level[0]), torch.zeros_like(level[0])
        for at in range(self.outputs if len(rows) else 0):  # from two that no winsorising has changed
            low, high = y[rows, at].argsort(stable=True)[[len(rows) // 4, 3 * len(rows) // 4]]
            apart = y[rows[high], at] - y[rows[low], at]
            if not float(apart) > 0:
                self.left.zero_()
                return
            self.gain[at] = (moved[high, at] - moved[low, at]) / apart
            self.constant[at] = moved[low, at] - self.gain[at] * y[rows[low], at]

    def _past(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, L, D), a view."""
        past: Tensor = z[:, : self.width].unflatten(1, (self.lags, -1))
        return past

    def starts(self, steps: int) -> Tensor:
        """Windows that so many others follow."""
        return (self.left >= steps).nonzero()[:, 0]

    def errors(self, net: Callable[[Tensor], Tensor], starts: Tensor, steps: int) -> Tensor:
        """(B, K, O) of simulations, in units of what is learned; differentiable.

        Args:
            net: (B, W) -> (B, O) what is forecast of it.
            starts: (B,) windows to begin at.
            steps: K.
        """
        lags, found = self._past(self.z[starts])[:, :, : self.outputs], []
        for step in range(steps):
            past = self._past(self.z[starts + step])
            whole = torch.cat([lags, past[:, :, self.outputs :]], 2).flatten(1)
            z = torch.cat([whole, self.z[starts + step, self.width :]], 1)
            y = self.slope * lags[:, -1] + self.constant + self.gain * net(z)
            y = y.clamp(-self.largest, self.largest)
            lags = torch.cat([lags[:, 1:], y[:, None]], 1)
            found.append((y - self.level[starts + step + 1]) / self.gain)
        return torch.stack(found, 1)

    @torch.no_grad()
    def typical(self, net: Callable[[Tensor], Tensor], steps: int, least: Tensor) -> Tensor:
        """(K, O) root mean square of the errors, at least (O,) `least`."""
        return self.errors(net, self.some(steps), steps).square().mean(0).sqrt().maximum(least)

    def some(self, steps: int) -> Tensor:
        """At most `SAMPLE` starts, evenly spread."""
        starts = self.starts(steps)
        return starts[torch.linspace(0, len(starts) - 1, min(len(starts), SAMPLE), device=starts.device).long()]

    def draw(self, steps: int, count: int, generator: Generator) -> Tensor:
        """(B,) starts at random."""
        starts = self.starts(steps)
        some = torch.randint(len(starts), (count,), generator=generator, device=generator.device)
        return starts[some.to(starts.device)]

    def loss(self, net: Callable[[Tensor], Tensor], starts: Tensor, typical: Tensor) -> Tensor:
        """() Huber loss of errors in units of `typical` (K, O)."""
        errors = self.errors(net, starts, len(typical)) / typical
        found: Tensor = torch.nn.functional.huber_loss(errors, torch.zeros_like(errors), delta=HUBER)
        return found
