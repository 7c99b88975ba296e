"""GP-NARX: Gaussian process on the latents of a perceptron over the flattened lags (NARX) (Al-Shedivat et al. 2017).

The encoder is trained through the kernel's marginal likelihood, by mini-batches of a bound above it that stays tight
at every refresh (docs/decisions/0008); kernel, solver and training are options.
Departures from the paper: a linear mean function.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import mlp
from streamgp.models._deep.config import DeepGpConfig
from streamgp.models._deep.gp import GRID_WIDTH, DeepGp


class Config(DeepGpConfig):
    """What can be set."""

    encoder: mlp.Config = Field(
        mlp.Config(width=GRID_WIDTH), description="a perceptron over the flattened lags (NARX), in front of the kernel"
    )


def build(config: Config, shape: Shape) -> DeepGp:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode, the encoder or the solver.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> u = torch.linspace(-2, 2, 300, dtype=torch.float64)
        >>> x, y = Inputs(u.new_zeros(300, 0, 1), u.view(300, 1, 1)), torch.sin(2 * u)[:, None]
        >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y",), future=("u",))
        >>> model = build(Config(encoder={"hidden": 16}, kernel={"name": "matern", "nu": 2.5}), shape)
        >>> steps = list(model.fit(x, y, epochs=6))
        >>> bool((model.predict(x).mean - y).abs().mean() < 0.1)
        True
    """
    return DeepGp(config, shape, config.encoder)
