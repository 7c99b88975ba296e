"""Linear regression on the short season: `linear` as if the shortest season were the only one.

Where a stream has a day and a week, `linear` departs from the week; this departs from the day and looks at no week at
all. Which of them forecasts better differs by stream, by step and with time: the two are experts side by side, and
their mix is about as good as the better one, or better (decision 38). It has fewer columns: 61 for each step and 41 for
each phase where `linear` has 123 and 65, and 135 and 95 for 197 and 119 with a known input.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from streamgp.base import Shape
from streamgp.models import linear
from streamgp.models.linear import DirectLinear, Linear


class Config(linear.Config):
    """Options of the linear regression on the short season."""

    baseline: ClassVar[bool] = True

    def idle(self, shape: Shape, others: Collection[str]) -> bool:
        """With one season, or none, it is `linear`."""
        return "linear" in others and not (self.direct(shape) and shape.context is not None and shape.context.long)


def build(config: Config, shape: Shape) -> Linear | DirectLinear:
    """The model for a shape; `linear` where there is one season, or none.

    Raises:
        UsageError: the target is a change without lags, or a season's without a season.

    Example:
        >>> from streamgp.context import Context
        >>> context = Context((24, 168), horizon=2, targets=("y",), inputs=(), known=())
        >>> past, future = ("y", "season(y)"), ("season(y)",)
        >>> model = build(Config(), Shape(("y",), 2, 1, past, future, season=168, context=context))
        >>> model.regression.context.seasons
        (24,)
    """
    if config.direct(shape) and shape.context is not None and shape.context.long:
        return DirectLinear(shape, config.ridge or 1.0, config.memory, config.limit, (shape.context.short,))
    return linear.build(config, shape)
