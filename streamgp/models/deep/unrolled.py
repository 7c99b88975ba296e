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
"""Simulated values are limited to this multiple of the largest that was seen."""
LEAST = 1e-6
"""Smallest typical error, in units of the windows."""


class Chain:
    """Windows that follow each other, and what a model makes of them when it is run on its own output.

    A window is followed by the next row where this has the same lags, moved on by one.

    Args:
        z: (N, W) windows, in the order of their arrival.
        outputs: O; the targets are the first O channels of the past.
        layout: of z.

    Example:
        >>> y = torch.sin(torch.arange(60.0).double())
        >>> chain = Chain(y.unfold(0, 3, 1)[:-1], 1, Layout(3, 1, 1, 0))
        >>> step = lambda z: 2 * torch.cos(torch.tensor(1.0).double()) * z[:, 2:] - z[:, 1:2]
        >>> float(chain.errors(step, chain.starts(20), 20).abs().max()) < 1e-6
        True
    """

    def __init__(self, z: Tensor, outputs: int, layout: Layout) -> None:
        self.z, self.outputs, self.layout = z, outputs, layout
        past = layout.split(z)[0]
        self.level = past[:, -1, :outputs]  # (N, O)
        self.largest = BEYOND * self.level.abs().amax(0)
        broken = (past[1:, :-1] != past[:-1, 1:]).flatten(1).any(1)
        place = torch.arange(len(z), device=z.device)
        end = torch.where(torch.cat([broken, broken.new_ones(1)]), place, len(z)).flip(0).cummin(0).values.flip(0)
        self.left = end - place  # (N,) windows that follow each one

    def starts(self, steps: int) -> Tensor:
        """Windows that at least `steps` others follow."""
        return (self.left >= steps).nonzero()[:, 0]

    def errors(self, step: Callable[[Tensor], Tensor], starts: Tensor, steps: int) -> Tensor:
        """(B, K, O) of simulations, differentiable.

        Args:
            step: (B, W) -> (B, O) the targets' newest lags in the next windows.
            starts: (B,) windows to begin at.
            steps: K.
        """
        lags, found = self.layout.split(self.z[starts])[0][:, :, : self.outputs], []
        for ahead in range(steps):
            past, future = self.layout.split(self.z[starts + ahead])
            z = torch.cat([torch.cat([lags, past[:, :, self.outputs :]], 2).flatten(1), future], 1)
            y = step(z).clamp(-self.largest, self.largest)
            lags = torch.cat([lags[:, 1:], y[:, None]], 1)
            found.append(y - self.level[starts + ahead + 1])
        return torch.stack(found, 1)

    @torch.no_grad()
    def typical(self, step: Callable[[Tensor], Tensor], steps: int) -> Tensor:
        """(K, O) root mean square of the errors, at least that of the first step."""
        found = self.errors(step, self.some(steps), steps).square().mean(0).sqrt()
        return found.maximum(found[:1]).clamp(min=LEAST)

    def some(self, steps: int) -> Tensor:
        """At most `SAMPLE` starts, evenly spread."""
        starts = self.starts(steps)
        return starts[torch.linspace(0, len(starts) - 1, min(len(starts), SAMPLE), device=starts.device).long()]

    def draw(self, steps: int, count: int, generator: Generator) -> Tensor:
        """(B,) starts at random."""
        starts = self.starts(steps)
        some = torch.randint(len(starts), (count,), generator=generator, device=generator.device)
        return starts[some.to(starts.device)]

    @torch.no_grad()
    def fed_back(self, step: Callable[[Tensor], Tensor], steps: int, generator: Generator) -> Tensor:
        """(O,) φ, 0 to 1: the share of the noise that simulations go on with, so that they spread as far as they err.

        With e_k² the mean squared error k steps ahead without noise, s² = e_1² the noise, and v_k the variance of
        simulations that go on with all of it, φ = Σ_k (e_k² − s²) / Σ_k (v_k − s²).
        """
        starts = self.some(steps)
        clean = self.errors(step, starts, steps)
        error = clean.square().mean(0)  # (K, O)

        def noisy(z: Tensor) -> Tensor:
            y = step(z)
            return y + error[0].sqrt() * torch.randn(y.shape, generator=generator, device=generator.device).to(y)

        spread = (self.errors(noisy, starts, steps) - clean).square().mean(0)
        share = (error - error[0]).sum(0) / (spread - error[0]).sum(0).clamp(min=LEAST)
        return share.clamp(0.0, 1.0)

    @torch.no_grad()
    def score(self, step: Callable[[Tensor], Tensor], typical: Tensor) -> float:
        """The loss of `some` simulations."""
        return self.loss(step, self.some(len(typical)), typical).item()

    def loss(self, step: Callable[[Tensor], Tensor], starts: Tensor, typical: Tensor) -> Tensor:
        """() Huber loss of errors in units of `typical` (K, O)."""
        errors = self.errors(step, starts, len(typical)) / typical
        found: Tensor = torch.nn.functional.huber_loss(errors, torch.zeros_like(errors), delta=HUBER)
        return found
