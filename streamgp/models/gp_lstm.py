"""GP-LSTM: Gaussian process on the latents of long short-term memory over the lags (Al-Shedivat et al. 2017).

The encoder is trained through the kernel's marginal likelihood, by mini-batches of a bound above it that stays tight
at every refresh (docs/decisions/0008); kernel, solver and training are options.
Departures from the paper: no peepholes in the cell, a forget bias of 1, and a linear mean function.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import lstm
from streamgp.models._deep.config import DeepGpConfig
from streamgp.models._deep.gp import DeepGp


class Config(DeepGpConfig):
    """What can be set."""

    encoder: lstm.Config = Field(
        lstm.Config(), description="long short-term memory over the lags, in front of the kernel"
    )


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
        >>> steps = list(model.fit(x, y[4:, None], epochs=10))
        >>> found = model.predict(x)
        >>> bool((found.mean - y[4:, None]).abs().mean() < 0.04), bool((found.latent_variance < found.variance).all())
        (True, True)
    """
    return DeepGp(config, shape, config.encoder)
