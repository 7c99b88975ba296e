"""GP-GRU: Gaussian process on the latents of gated recurrent units over the lags (Al-Shedivat et al. 2017).

The encoder is trained through the kernel's marginal likelihood, by mini-batches of a bound above it that stays tight
at every refresh (docs/decisions/0008); kernel, solver and training are options.
Departures from the paper: a linear mean function; the paper has no GRU.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Shape
from streamgp.encoders import gru
from streamgp.models._deep.config import DeepGpConfig
from streamgp.models._deep.gp import DeepGp


class Config(DeepGpConfig):
    """What can be set."""

    encoder: gru.Config = Field(gru.Config(), description="gated recurrent units over the lags, in front of the kernel")


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
        >>> steps = list(model.fit(x, y[4:, None], epochs=2))
        >>> observe = model.functions(5, torch.Generator().manual_seed(0))  # five functions, asked window by window
        >>> observe(x.rows(torch.tensor([7, 7, 7, 7, 7]))).shape
        torch.Size([5, 1])
    """
    return DeepGp(config, shape, config.encoder)
