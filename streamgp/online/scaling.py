"""Standardisation: raw units to zero mean and unit spread, fitted once and then frozen.

z = (x − m) / s with m and s the mean and the standard deviation of the rows it was fitted on, NaN left out. A
channel that never varied keeps s = 1, so that it stays finite if it varies later; a target that never varied has a
thousandth of its size, so that its first bands do not depend on its unit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.state import Declared, Tensors, Value

FLAT = 1e-12
"""A channel whose spread is below this part of its size counts as constant."""
STILL = 1e-3
"""Standard deviation of a target that never varied, in units of its size: it will move, and nothing says how far."""


def still(size: Tensor) -> Tensor:
    """The standard deviation assumed for targets that never varied, by their mean size; 1 where they were always 0.

    Example:
        >>> still(torch.tensor([50.0, 0.0]).double()).tolist()
        [0.05, 1.0]
    """
    return torch.where(size > 0, STILL * size, 1.0)


def moments(values: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(..., N, C), NaN left out -> (..., C) locations and scales; targets as of `Standardiser.fit`."""
    seen = torch.isfinite(values)
    some = seen.sum(-2).clamp(min=1)
    location = torch.where(seen, values, 0.0).sum(-2) / some
    spread = (torch.where(seen, values - location.unsqueeze(-2), 0.0).square().sum(-2) / some).sqrt()
    size, instead = location.abs(), torch.ones_like(location)
    if targets is not None:
        level = torch.nanmean(targets.abs(), -2).nan_to_num(0.0)
        size, instead = torch.maximum(size, level), still(level)
    return location, torch.where(spread <= FLAT * size.clamp(min=1e-300), instead, spread)


def standardised(values: Tensor, location: Tensor, scale: Tensor) -> Tensor:
    """Values in these units; NaN becomes 0."""
    return (values - location).div_(scale).nan_to_num_(nan=0.0)


class Standardiser(Declared):
    """Per-channel location and scale; Stateful.

    Until `fit` it changes nothing (location 0, scale 1). A second `fit` replaces the first. Fitted to the values of K
    models at once, it has a location and a scale (K, C) of each.

    Args:
        channels: C, the length of the last dimension.

    Example:
        >>> scaler = Standardiser(2)
        >>> scaler.fit(torch.tensor([[1.0, 5.0], [3.0, 5.0], [float("nan"), 5.0]], dtype=torch.float64))
        >>> scaler.location.tolist(), scaler.scale.tolist()
        ([2.0, 5.0], [1.0, 1.0])
        >>> scaler.transform(torch.tensor([[4.0, float("nan")]], dtype=torch.float64)).tolist()
        [[2.0, 0.0]]
    """

    STATE = (Tensors("location", "scale"), Value("fitted", bool))

    def __init__(self, channels: int) -> None:
        self.location = torch.zeros(channels, dtype=FLOAT)  # (C,)
        self.scale = torch.ones(channels, dtype=FLOAT)  # (C,)
        self.fitted = False

    def fit(self, values: Tensor, targets: Tensor | None = None) -> None:
        """Estimate from values (..., N, C), NaN left out; a channel without any value keeps location 0, scale 1.

        Args:
            values: (N, C), or (K, N, C) of K models.
            targets: as many, of which the values are departures: a column of these that never varied has the scale
                `still`. Without, it is 1.
        """
        self.location, self.scale = moments(values.to(FLOAT), None if targets is None else targets.to(FLOAT))
        self.fitted = True

    def transform(self, values: Tensor) -> Tensor:
        """(..., C) raw -> standardised; NaN becomes 0, the mean of the rows it was fitted on."""
        return standardised(values, self.location.to(values.device), self.scale.to(values.device))

    def inverse(self, values: Tensor) -> Tensor:
        """(..., C) standardised -> raw."""
        return self.location.to(values) + self.scale.to(values) * values


class InputScaling(Declared):
    """A Standardiser for the D past channels and one for the F future channels; Stateful.

    One location and scale a channel, shared by its lags (or steps ahead), so that a flattened window keeps the
    relative size of its lags.

    Example:
        >>> shape = Shape(targets=("y",), horizon=1, lags=2, past=("y",), future=("u",))
        >>> x = Inputs(torch.tensor([[[1.0], [3.0]]]).double(), torch.tensor([[[7.0]]]).double())
        >>> scaling = InputScaling(shape)
        >>> scaling.fit(x)
        >>> scaling.past.location.tolist(), scaling.past.scale.tolist()
        ([2.0], [1.0])
    """

    STATE = (
        Tensors("past.location", "past.scale", "future.location", "future.scale"),
        Value("fitted", bool),
    )

    def __init__(self, shape: Shape) -> None:
        self.past, self.future = Standardiser(len(shape.past)), Standardiser(len(shape.future))

    @property
    def fitted(self) -> bool:
        return self.future.fitted

    @fitted.setter
    def fitted(self, fitted: bool) -> None:
        self.past.fitted = self.future.fitted = fitted

    def fit(self, x: Inputs) -> None:
        """Estimate from the windows x, (..., N, L, D) and (..., N, H, F)."""
        self.past.fit(x.past.flatten(-3, -2))
        self.future.fit(x.future.flatten(-3, -2))
