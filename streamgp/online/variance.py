"""How far targets may move, before anything is learned: the variance of a random walk."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.online.scaling import still


def random_walk_variance(x: Inputs, shape: Shape) -> Tensor:
    """What the variances would be if the targets were random walks: h times the mean squared change of the lags.

    A window without two neighbouring values says nothing: the variance is 1 then, in squared target units. Where the
    values are all the same, it is that of `online.scaling.still`.

    Returns:
        (N, T)
    """
    steps = torch.arange(1, shape.horizon + 1, dtype=FLOAT, device=x.future.device)
    change = x.past[..., : shape.outputs].diff(dim=1).square()  # (N, L − 1, O)
    known = torch.isfinite(change)
    count = known.sum(1)
    mean = torch.where(known, change, 0.0).sum(1) / count.clamp(min=1)
    size = torch.nanmean(x.past[..., : shape.outputs].abs(), 1).nan_to_num(0.0)
    level = torch.where(count > 0, still(size).square(), 1.0)
    one = torch.where(mean > 0, mean, level)  # (N, O)
    return (one[..., None] * steps).flatten(1)
