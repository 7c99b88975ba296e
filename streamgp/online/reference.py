"""What a model learns of its targets: their level, their change, or their departure from the season.

A model learns y − r(x), where the reference r(x) is read off the window, and shifts its predictions back by r(x):

    level    r = 0
    change   r(t+h) = y[t]
    season   r(t+h) = y[t+h−kS] + decay^(h/4) · (y[t] − y[t−S]), k ≥ 1 the fewest seasons with t+h−kS ≤ t

The season's second term lets the present departure from the season die out over the steps ahead.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from streamgp.base import Inputs, Shape
from streamgp.errors import UsageError

Kind: TypeAlias = Literal["auto", "level", "change", "season"]


class Reference:
    """The reference r(x) of each output column. Without state: a pure function of the window.

    Args:
        kind: "level", "change", "season", or "auto": the season where there is one, the change where there are
            lags, the level otherwise.
        shape: what the model is built for.
        decay: what is left of the present departure from the season after four rows, 0 to 1.

    Raises:
        UsageError: "change" without lags, or "season" without a season.

    Example:
        >>> shape = Shape(targets=("y",), horizon=2, lags=1, past=("y", "season(y)"), future=("season(y)",), season=7)
        >>> x = Inputs(torch.tensor([[[5.0, 4.0]]]).double(), torch.tensor([[[10.0], [20.0]]]).double())
        >>> Reference("change", shape)(x).tolist()
        [[5.0, 5.0]]
        >>> Reference("season", shape, decay=0.0625)(x).tolist()  # 0.0625^(1/4) = 1/2, 0.0625^(2/4) = 1/4
        [[10.5, 20.25]]
    """

    def __init__(self, kind: Kind, shape: Shape, decay: float = 0.9) -> None:
        if kind == "auto":
            kind = "season" if shape.seasonal else "change" if shape.lags else "level"
        if kind == "change" and not shape.lags:
            raise UsageError("the target as a change needs lags", hint="use --lags 1 or more, or target=level")
        if kind == "season" and not shape.seasonal:
            raise UsageError("the target as a departure from the season needs a season", hint="use --season ROWS")
        self.kind = kind
        self.shape = shape
        steps = torch.arange(1, shape.horizon + 1, dtype=torch.float64)
        self.left = torch.tensor(float(decay), dtype=torch.float64) ** (steps / 4)  # (H,)

    def __call__(self, x: Inputs) -> Tensor:
        """(N, T) in the targets' units."""
        outputs, horizon = self.shape.outputs, self.shape.horizon
        if self.kind == "level":
            return x.future.new_zeros(len(x.future), self.shape.columns)
        present = x.past[:, -1, :outputs]  # (N, O)
        if self.kind == "change":
            return present.repeat_interleave(horizon, 1)
        departure = present - x.past[:, -1, -outputs:]  # (N, O)
        seasonal = x.future[..., :outputs].transpose(1, 2)  # (N, O, H)
        return (seasonal + departure[..., None] * self.left.to(seasonal.device)).flatten(1)
