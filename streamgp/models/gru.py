"""Plain net, gated recurrent units over the lags with a linear head.

Trained on squared error; the baseline of gp_gru.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import gru
from streamgp.models._deep.config import DeepNetConfig
from streamgp.models._deep.net import DeepNet


class Config(DeepNetConfig):
    """What can be set."""

    encoder: gru.Config = Field(gru.Config(width=32), description="gated recurrent units over the lags")


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
        >>> [step.done for step in model.fit(x, y[4:, None], epochs=2)], model.predict(x).mean.shape
        (['epoch', 'epoch'], torch.Size([300, 1]))
    """
    return DeepNet(config, shape, config.encoder)
