"""Ensemble: several models on one stream, mixed online.

    ŷ_t(x) = Σ_k w_kt m_kt(x)

Each expert k is a registered model, learns every window, and forecasts m_k. The weights of output column t are learned
from the errors of what the experts had issued, once the truth is known (`streamgp.mixing`). An expert that is a mix
itself contributes what it mixes. Before there is anything to compare, the mix is the mean of those that learn.

A GP can learn what the linear expert leaves (`on_top`). Alone it is the better expert (decision 17).
"""

from __future__ import annotations

from streamgp.base import Shape
from streamgp.models.ensemble.config import Config, Mix
from streamgp.models.ensemble.model import Ensemble

__all__ = ["Config", "build"]


def build(config: Mix, shape: Shape) -> Ensemble:
    """The model, before any data.

    Raises:
        UsageError: an expert cannot be built for this shape.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> model = build(
        ...     Config(experts=("linear", "persistence")),
        ...     Shape(targets=("y",), horizon=1, lags=2, past=("y",), future=()),
        ... )
        >>> y = torch.sin(torch.arange(300) / 5.0).double()
        >>> windows = y.unfold(0, 3, 1)  # two lags and a truth
        >>> x = Inputs(windows[:, :2, None], windows.new_zeros(298, 1, 0))
        >>> for start in range(0, 298, 50):
        ...     step = model.update(x.rows(slice(start, start + 50)), windows[start : start + 50, 2:])
        >>> [round(value, 2) for value in model.mixer.weights[0].tolist()]
        [1.0, 0.0]
    """
    return Ensemble(config, shape)
