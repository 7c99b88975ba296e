"""Plain net, long short-term memory over the lags with a linear head.

Trained on squared error; the baseline of gp_lstm.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import lstm
from streamgp.models._deep.config import DeepNetConfig
from streamgp.models._deep.net import DeepNet


class Config(DeepNetConfig):
    """What can be set."""

    encoder: lstm.Config = Field(lstm.Config(width=32), description="long short-term memory over the lags")


def build(config: Config, shape: Shape) -> DeepNet:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode or the encoder.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> y = torch.sin(0.3 * torch.arange(304, dtype=torch.float64)) ** 3
        >>> x = Inputs(y.unfold(0, 4, 1)[:300, :, None], y.new_zeros(300, 1, 0))
        >>> shape = Shape(targets=("y",), horizon=1, lags=4, past=("y",), future=())
        >>> model = build(Config(encoder={"hidden": 8}), shape)
        >>> steps = list(model.fit(x, y[4:, None], epochs=20))
        >>> found = model.predict(x)
        >>> bool((found.mean - y[4:, None]).abs().mean() < 0.04), found.variance.unique().numel()  # one width for all
        (True, 1)
    """
    return DeepNet(config, shape, config.encoder)
