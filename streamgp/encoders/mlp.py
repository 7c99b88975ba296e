"""A multi-layer perceptron over the flattened window: GP-NARX when its latents feed a kernel."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from streamgp.encoders._base import Encoder


class Config(BaseModel):
    """Hidden layers of one width, then a linear map to the latent space."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden: int = Field(64, ge=1, description="units of a hidden layer")
    layers: int = Field(2, ge=1, description="hidden layers")
    width: int = Field(4, ge=1, description="columns of the latent space")
    activation: Literal["tanh", "relu", "silu"] = Field("tanh", description="after every hidden layer")
    seed: int = Field(0, ge=0, description="of the initial weights")


class Mlp(Encoder):
    """Fully connected layers in float64, from weights that the seed alone decides.

    Weights start as N(0, 1/fan_in), biases at 0, so that standardised inputs give latents of order 1, where a kernel's
    initial lengthscale of 1 is.

    Example:
        >>> encoder = build(Config(hidden=8, width=3), width_in=5)
        >>> encoder(torch.zeros(2, 5, dtype=torch.float64)).shape, encoder.width
        (torch.Size([2, 3]), 3)
    """

    def __init__(self, config: Config, width_in: int) -> None:
        super().__init__()
        self.width = config.width
        activation = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}[config.activation]
        generator = torch.Generator().manual_seed(config.seed)
        widths = [width_in, *[config.hidden] * config.layers, config.width]
        stack: list[nn.Module] = []
        for before, after in pairwise(widths):
            layer = nn.Linear(before, after, dtype=torch.float64)
            with torch.no_grad():
                layer.weight.normal_(0.0, max(before, 1) ** -0.5, generator=generator)
                layer.bias.zero_()
            stack += [layer, activation()]
        self.net = nn.Sequential(*stack[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """(N, width_in) -> (N, width)."""
        latent: Tensor = self.net(x)
        return latent


def build(config: Config, width_in: int) -> Mlp:
    """The perceptron for windows of `width_in` columns."""
    return Mlp(config, width_in)
