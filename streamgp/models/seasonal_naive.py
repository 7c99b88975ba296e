"""The seasonal naive: the next season is as the last one."""

from __future__ import annotations

from collections.abc import Collection

from streamgp.base import Shape
from streamgp.errors import UsageError
from streamgp.models._naive import Naive, NaiveConfig
from streamgp.online.reference import Reference


class Config(NaiveConfig):
    """Options of the naive forecast of a season."""

    def idle(self, shape: Shape, others: Collection[str]) -> bool:
        """Without a season it is `persistence`."""
        return "persistence" in others and not shape.seasonal


class SeasonalNaive(Naive):
    """y[t+h] = y[t+h−kS] + e; see `_naive`."""


def build(config: Config, shape: Shape) -> SeasonalNaive:
    """The model y[t+h] = y[t+h−kS] + e, k ≥ 1 the fewest seasons with t+h−kS ≤ t; without a season, persistence.

    Raises:
        UsageError: there are no lags.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> past = ("y", "season(y)")
        >>> model = build(Config(), Shape(("y",), horizon=2, lags=1, past=past, future=("season(y)",), season=7))
        >>> x = Inputs(torch.tensor([[[3.0, 5.0]]]).double(), torch.tensor([[[1.0], [2.0]]]).double())
        >>> model.predict(x).mean.tolist()
        [[1.0, 2.0]]
    """
    if not shape.lags:
        raise UsageError("the seasonal naive repeats past values, and so needs lags", hint="use --lags 1 or more")
    return SeasonalNaive(Reference("season" if shape.seasonal else "change", shape, decay=0.0), config.memory)
