"""Plain net, an Elman network over the lags with a linear head.

Trained on squared error; the baseline of gp_rnn.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import rnn
from streamgp.models._deep.config import DeepNetConfig
from streamgp.models._deep.net import DeepNet


class Config(DeepNetConfig):
    """What can be set."""

    encoder: rnn.Config = Field(rnn.Config(width=32), description="an Elman network over the lags")


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
        >>> model.epochs_for(300), model.epochs_for(100_000)
        (60, 8)
        >>> model.update(x, y[4:, None]).done  # a stream may begin without a warm-up
        'fit: first windows'
    """
    return DeepNet(config, shape, config.encoder)
