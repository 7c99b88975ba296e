"""Lengthscales that a grid can hold: below five cells, interpolation errs by more than 1e-3 of the covariance."""

from __future__ import annotations

import torch

from streamgp.kernels import Kernel, Stationary
from streamgp.linalg.interpolate import Grid

CELLS = 5.0
"""Grid cells that a lengthscale must span: a shorter one is not interpolated to 1e-3."""


@torch.no_grad()
def widen(kernel: Kernel, grid: Grid) -> None:
    """Raise lengthscales below `CELLS` cells to that, in place; those that are not in units of the input stay.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(lengthscale=0.3), 1)
        >>> widen(kernel, Grid.cover(dims=1, size=15))  # a step of 0.2
        >>> round(kernel.lengthscale.item(), 6)
        1.0
    """
    for part in kernel.modules():
        if isinstance(part, Stationary) and part.spatial:
            least = part.log_lengthscale.new_tensor(grid.steps).mul(CELLS).log()
            part.log_lengthscale.copy_(torch.maximum(part.log_lengthscale, least))
