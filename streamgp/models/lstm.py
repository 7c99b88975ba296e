"""Plain net, long short-term memory over the lags with a linear head.

Trained on squared error; the yardstick of gp_lstm.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import lstm
from streamgp.models._deep_config import DeepNetConfig
from streamgp.models._deep_net import DeepNet


class Config(DeepNetConfig):
    """What can be set."""

    encoder: lstm.Config = Field(lstm.Config(), description="long short-term memory over the lags")


def build(config: Config, shape: Shape) -> DeepNet:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode or the encoder.
    """
    return DeepNet(config, shape, config.encoder)
