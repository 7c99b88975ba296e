"""Linear regression online, Bayesian and in closed form: the cheapest model that learns.

With seasons it is the direct regression of each step ahead on its references (`direct`); without, or where another
`target` or the t distribution is asked for, one regression of all steps on the flattened window (`window`).
"""

from __future__ import annotations

import torch

from streamgp.base import Shape
from streamgp.models.linear.direct import DirectLinear, DirectRegression
from streamgp.models.linear.direct_fleet import DirectFleet
from streamgp.models.linear.fleet import LinearFleet
from streamgp.models.linear.window import Config, Linear

__all__ = [
    "Config",
    "DirectFleet",
    "DirectLinear",
    "DirectRegression",
    "Linear",
    "LinearFleet",
    "build",
    "build_fleet",
]


def build(config: Config, shape: Shape) -> Linear | DirectLinear:
    """The model for a shape.

    Raises:
        UsageError: the target is a change without lags, or a season's without a season.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
        >>> model = build(Config(), shape)
        >>> u = torch.linspace(-1, 1, 400, dtype=torch.float64)[:, None]
        >>> x = Inputs(u.new_zeros(400, 0, 2), u[:, None])
        >>> _ = model.update(x, 3 * u + 7)
        >>> [round(value, 2) for value in model.predict(x.rows(slice(0, 2))).mean[:, 0].tolist()]
        [4.0, 4.02]
    """
    if config.direct(shape):
        return DirectLinear(shape, config.ridge or 1.0, config.memory, config.limit)
    return Linear(config, shape)


def build_fleet(config: Config, shape: Shape, device: torch.device) -> LinearFleet | DirectFleet:
    """The models of many series in one."""
    if config.direct(shape):
        return DirectFleet(shape, config.ridge or 1.0, config.memory, config.limit, device)
    return LinearFleet(config, shape, device)
