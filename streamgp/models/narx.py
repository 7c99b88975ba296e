"""Plain net, a perceptron over the flattened lags with a linear head.

Trained on squared error; the baseline of gp_narx.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import mlp
from streamgp.models._deep.config import DeepNetConfig
from streamgp.models._deep.net import DeepNet


class Config(DeepNetConfig):
    """What can be set."""

    encoder: mlp.Config = Field(mlp.Config(width=64), description="a perceptron over the flattened lags")


def build(config: Config, shape: Shape) -> DeepNet:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode or the encoder.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> u = torch.linspace(-2, 2, 300, dtype=torch.float64)
        >>> x, y = Inputs(u.new_zeros(300, 0, 1), u.view(300, 1, 1)), torch.sin(2 * u)[:, None]
        >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y",), future=("u",))
        >>> model = build(Config(encoder={"hidden": 16}), shape)
        >>> steps = list(model.fit(x, y, epochs=20))
        >>> bool((model.predict(x).mean - y).abs().mean() < 0.2)
        True
    """
    return DeepNet(config, shape, config.encoder)
