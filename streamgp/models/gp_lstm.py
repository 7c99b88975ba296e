"""GP-LSTM: Gaussian process on the latents of long short-term memory over the lags (Al-Shedivat et al. 2017).

Encoder `lstm`, a kernel on its latents, a solver for the marginal likelihood, and the semi-stochastic optimiser:
every one of them is an option.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import lstm
from streamgp.models._deep_config import DeepGpConfig
from streamgp.models._deep_gp import DeepGp


class Config(DeepGpConfig):
    """What can be set."""

    encoder: lstm.Config = Field(
        lstm.Config(), description="long short-term memory over the lags, in front of the kernel"
    )


def build(config: Config, shape: Shape) -> DeepGp:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode, the encoder or the solver.
    """
    return DeepGp(config, shape, config.encoder)
