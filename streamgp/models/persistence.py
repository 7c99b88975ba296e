"""Persistence: tomorrow is as today. Every step ahead is forecast as the last value."""

from __future__ import annotations

from streamgp.base import Shape
from streamgp.errors import UsageError
from streamgp.models._naive import Naive, NaiveConfig
from streamgp.online.reference import Reference


class Config(NaiveConfig):
    """Options of the naive forecast."""


class Persistence(Naive):
    """y[t+h] = y[t] + e; see `_naive`."""


def build(config: Config, shape: Shape) -> Persistence:
    """The model y[t+h] = y[t] + e, e ~ N(0, v_h), v_h the mean squared error h steps ahead so far.

    Raises:
        UsageError: there are no lags.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> model = build(Config(), Shape(targets=("y",), horizon=2, lags=2, past=("y",), future=()))
        >>> x = Inputs(torch.tensor([[[3.0], [5.0]]]).double(), torch.zeros(1, 2, 0).double())
        >>> g = model.predict(x)  # before any data: a random walk with the window's own steps
        >>> g.mean.tolist(), g.variance.tolist()
        ([[5.0, 5.0]], [[4.0, 8.0]])
        >>> _ = model.update(x, torch.tensor([[6.0, 5.0]]).double())
        >>> model.predict(x).variance.tolist()  # (1 + 4)/2, (0 + 8)/2
        [[2.5, 4.0]]
    """
    if not shape.lags:
        raise UsageError("persistence repeats the last value, and so needs lags", hint="use --lags 1 or more")
    return Persistence(Reference("change", shape), config.memory)
