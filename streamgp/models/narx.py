"""Plain net, a perceptron over the flattened lags with a linear head.

Trained on squared error; the yardstick of gp_narx.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import mlp
from streamgp.models._deep_config import DeepNetConfig
from streamgp.models._deep_net import DeepNet


class Config(DeepNetConfig):
    """What can be set."""

    encoder: mlp.Config = Field(mlp.Config(), description="a perceptron over the flattened lags")


def build(config: Config, shape: Shape) -> DeepNet:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode or the encoder.
    """
    return DeepNet(config, shape, config.encoder)
