"""A multi-layer perceptron over the flattened window: GP-NARX when its latents feed a kernel."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from streamgp.encoders._base import Dropout, Encoder, Layout


class Config(BaseModel):
    """Hidden layers of one width, then a linear map to the latent space."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    hidden: int = Field(64, ge=1, description="units of a hidden layer")
    layers: int = Field(2, ge=1, description="hidden layers")
    width: int = Field(4, ge=1, description="columns of the latent space")
    activation: Literal["tanh", "relu", "silu"] = Field("tanh", description="after every hidden layer")
    dropout: float = Field(0.0, ge=0, lt=1, description="part of every layer's inputs that is dropped in training")
    seed: int = Field(0, ge=0, description="of the initial weights")


class Mlp(Encoder):
    """Fully connected layers in float64, from weights that the seed alone decides.

    Weights start as N(0, 1/fan_in), biases at 0, so that standardised inputs give latents of order 1, where a kernel's
    initial lengthscale of 1 is.

    Example:
        >>> encoder = build(Config(hidden=8, width=3), Layout(lags=5, past=1))
        >>> encoder(torch.zeros(2, 5, dtype=torch.float64)).shape, encoder.width
        (torch.Size([2, 3]), 3)
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__()
        self.width = config.width
        self.rate = config.dropout
        activation = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}[config.activation]
        generator = torch.Generator().manual_seed(config.seed)
        widths = [layout.width, *[config.hidden] * config.layers, config.width]
        stack: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):  # a layer's constructor draws from the global generator
            for before, after in pairwise(widths):
                stack += [nn.Linear(before, after, dtype=torch.float64), activation()]
        self.net = nn.Sequential(*stack[:-1])
        with torch.no_grad():
            for layer in self._layers():
                layer.weight.normal_(0.0, max(layer.in_features, 1) ** -0.5, generator=generator)
                layer.bias.zero_()

    @property
    def output(self) -> nn.Linear:
        return self._layers()[-1]

    def forward(self, z: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(N, layout.width) -> (N, width)."""
        if dropout is None or not self.rate:
            latent: Tensor = self.net(z)
            return latent
        for part in self.net:
            if isinstance(part, nn.Linear):
                z = z * dropout.mask(z, part.in_features, self.rate)
            z = part(z)
        return z

    def _layers(self) -> list[nn.Linear]:
        return [part for part in self.net if isinstance(part, nn.Linear)]


def build(config: Config, layout: Layout) -> Mlp:
    """The perceptron for windows of this layout, read as one row of numbers."""
    return Mlp(config, layout)
