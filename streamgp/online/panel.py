"""Series of different size in one model: each window in units of its own recent variation.

    s_o = median |r − m|    over the references r of target o in the context, m the mean of its last long season

Windows divided by s differ in shape alone, which series share; without that the largest series would decide the model.
Known inputs have no such units: what a degree more adds to a load would be another number in each window. Where
there are some, windows stay as they are, and each series has units of its own that move slowly, from outside of the
model (`ModelConfig.steady_units`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import Inputs, Shape

LEAST = 1e-9
"""Least size of a series, in units of its level."""


class Panel:
    """Sizes of windows, and windows in units of them.

    Args:
        shape: of the windows; it has a context.
    """

    def __init__(self, shape: Shape) -> None:
        assert shape.context is not None
        self.shape, context = shape, shape.context
        first = len(context.window)
        self.references, self.means, self.own = list[Tensor](), list[int](), list[Tensor]()
        for target, name in enumerate(shape.targets):
            window = [at for at, entry in enumerate(context.window) if entry.channel == target]
            steps = [at for at, entry in enumerate(context.steps) if entry.channel == target]
            steps = [first + h * context.per_step + at for h in range(shape.horizon) for at in steps]
            self.own.append(torch.tensor([*window, *steps]))
            blocks = [at for at in window if context.window[at].name.startswith(("block", "coarse"))]
            self.references.append(torch.tensor([*blocks, *steps]))
            mean = f"week({name})" if context.long else f"day({name})"
            self.means.append(next(at for at, entry in enumerate(context.window) if entry.name == mean))

    def sizes(self, x: Inputs) -> Tensor:
        """(N, O) the size of each target, in its units; 1 where nothing is known or nothing varies."""
        assert x.context is not None
        found = []
        for references, mean in zip(self.references, self.means, strict=True):
            level = x.context[:, mean, None]
            away = (x.context[:, references] - level).abs()
            size = away.nanmedian(1).values
            size = torch.where(size > LEAST * level[:, 0].abs(), size, away.nanmean(1))
            found.append(torch.where(size > LEAST * level[:, 0].abs(), size, 1.0))
        return torch.stack(found, 1)

    def divide(self, x: Inputs, sizes: Tensor) -> Inputs:
        """The windows with the targets, at all their lags and references, over their sizes (N, O)."""
        assert x.context is not None
        outputs, seasonal = self.shape.outputs, self.shape.seasonal
        past, future, context = x.past.clone(), x.future.clone(), x.context.clone()
        past[..., :outputs] /= sizes[:, None]
        if seasonal:
            past[..., -outputs:] /= sizes[:, None]
            future[..., :outputs] /= sizes[:, None]
        for target, own in enumerate(self.own):
            context[:, own] /= sizes[:, target, None]
        return Inputs(past, future, context)

    def columns(self, sizes: Tensor) -> Tensor:
        """(N, O) -> (N, T) the size of each output column."""
        return sizes.repeat_interleave(self.shape.horizon, 1)


def panel_of(shape: Shape) -> Panel | None:
    """The panel of a shape; None for one series, windows without a context, or with known inputs."""
    return Panel(shape) if shape.panel and shape.context is not None and not shape.context.known else None
