"""Plain net, gated recurrent units over the lags with a linear head.

Trained on squared error; the yardstick of gp_gru.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import gru
from streamgp.models._deep_config import DeepNetConfig
from streamgp.models._deep_net import DeepNet


class Config(DeepNetConfig):
    """What can be set."""

    encoder: gru.Config = Field(gru.Config(), description="gated recurrent units over the lags")


def build(config: Config, shape: Shape) -> DeepNet:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode or the encoder.
    """
    return DeepNet(config, shape, config.encoder)
