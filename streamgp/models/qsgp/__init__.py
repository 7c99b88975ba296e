"""Gaussian process regression on random Fourier features, solved exactly up to 4,096 of them (after Evans & Nair 2020).

Beyond that the features are learned in blocks, and beyond 200,000, or with solver=stochastic, by steps whose cost is
independent of rows and features; the paper's own steps are solver=quadruple. The exact solve is O(m³), and an update of
a stream takes one.
"""

from __future__ import annotations

from streamgp.base import Model, Shape
from streamgp.models.qsgp.config import Config
from streamgp.models.qsgp.posterior import QsgpPosterior
from streamgp.online.model import StreamModel
from streamgp.online.winsorise import SETTLED

__all__ = ["Config", "build"]

OVERLAPPING = 20.0
"""Rows that must be learned before winsorising begins, for each row that a window spans: windows overlap."""


def build(config: Config, shape: Shape) -> Model:
    """The model, before any data.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> config = Config(features={"size": 256, "width": 64})
        >>> model = build(config, Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",)))
        >>> u = torch.linspace(-3, 3, 200, dtype=torch.float64)
        >>> x = Inputs(torch.zeros(200, 0, 2).double(), u.view(200, 1, 1))
        >>> for start in range(0, 200, 50):
        ...     step = model.update(x.rows(slice(start, start + 50)), torch.sin(u[start : start + 50, None]))
        >>> step.healthy, bool((model.predict(x).mean[:, 0] - torch.sin(u)).abs().max() < 0.1)
        (True, True)
    """
    settled, time = max(SETTLED, OVERLAPPING * (shape.lags + shape.horizon)), config.forgetting(shape)
    if time is not None:
        settled = min(settled, 0.5 * time)  # more than a stream that forgets ever has
    return StreamModel(QsgpPosterior(config, shape), config, shape, settled=settled)
