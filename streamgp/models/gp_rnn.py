"""GP-RNN: Gaussian process on the latents of an Elman network over the lags (Al-Shedivat et al. 2017).

The encoder is trained through the kernel's marginal likelihood, by mini-batches of a bound above it that stays tight
at every refresh (docs/decisions/0008); kernel, solver and training are options.
Departures from the paper: a linear mean function.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import rnn
from streamgp.models._deep.config import DeepGpConfig
from streamgp.models._deep.gp import DeepGp


class Config(DeepGpConfig):
    """What can be set."""

    encoder: rnn.Config = Field(rnn.Config(), description="an Elman network over the lags, in front of the kernel")


def build(config: Config, shape: Shape) -> DeepGp:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode, the encoder or the solver.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> y = torch.sin(0.3 * torch.arange(304, dtype=torch.float64)) ** 3
        >>> x = Inputs(y.unfold(0, 4, 1)[:300, :, None], y.new_zeros(300, 1, 0))
        >>> shape = Shape(targets=("y",), horizon=1, lags=4, past=("y",), future=())
        >>> model = build(Config(encoder={"hidden": 8}), shape)
        >>> steps = list(model.fit(x.rows(slice(0, 200)), y[4:204, None], epochs=2))
        >>> model.update(x.rows(slice(200, 300)), y[204:, None]).done  # learned by the additive statistics alone
        'update'
    """
    return DeepGp(config, shape, config.encoder)
