"""A multi-layer perceptron over the flattened window: GP-NARX when its latents feed a kernel."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional

from streamgp.encoders._base import Dropout, Encoder, Layout


class Config(BaseModel):
    """Hidden layers of one width, then a linear map to the latent space."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    hidden: int = Field(64, ge=1, description="units of a hidden layer")
    layers: int = Field(2, ge=1, description="hidden layers")
    width: int = Field(4, ge=1, description="columns of the latent space")
    activation: Literal["tanh", "relu", "silu"] = Field("tanh", description="after every hidden layer")
    outer: bool = Field(
        False,
        description="the activation after the last layer too, and latents whose squares sum to about 1 at the start: "
        "features of a linear kernel",
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="part of every layer's inputs that is dropped in training")
    precision: Literal["float32", "float64"] = Field(
        "float64", description="arithmetic of the layers in training; forecasts are made in float64"
    )
    seed: int = Field(0, ge=0, description="of the initial weights")


class Mlp(Encoder):
    """Fully connected layers in float64, from weights that the seed alone decides.

    Weights start as N(0, 1/fan_in), biases at 0, so that standardised inputs give latents of order 1, where a kernel's
    initial lengthscale of 1 is. With `outer` and relu they start as N(0, 2/fan_in) (He et al. 2015), those of the last
    layer divided by √width, so that φᵀφ is of order 1, as the prior variance of a standardised function is.

    In training mode (`nn.Module.train`) the layers run in the precision asked for, and so do the latents, with
    gradients for the float64 parameters. In evaluation mode everything is float64.

    Example:
        >>> encoder = build(Config(hidden=8, width=3), Layout(lags=5, past=1))
        >>> encoder(torch.zeros(2, 5, dtype=torch.float64)).shape, encoder.width
        (torch.Size([2, 3]), 3)
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__()
        self.width, self.layout = config.width, layout
        self.rate = config.dropout
        activation = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}[config.activation]
        generator = torch.Generator().manual_seed(config.seed)
        widths = [layout.width, *[config.hidden] * config.layers, config.width]
        stack: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):  # a layer's constructor draws from the global generator
            for before, after in pairwise(widths):
                stack += [nn.Linear(before, after, dtype=torch.float64), activation()]
        self.outer, self.single = config.outer, config.precision == "float32"
        self.net = nn.Sequential(*stack[: None if config.outer else -1])
        gain = 2**0.5 if config.outer and config.activation == "relu" else 1.0
        with torch.no_grad():
            for layer in self._layers():
                layer.weight.normal_(0.0, gain * max(layer.in_features, 1) ** -0.5, generator=generator)
                layer.bias.zero_()
            if config.outer:
                self._layers()[-1].weight *= config.width**-0.5
        self.eval()  # float64 for everyone who does not ask for training

    @property
    def output(self) -> nn.Linear | None:
        return None if self.outer else self._layers()[-1]

    @torch.no_grad()
    def weigh(self, past: Tensor, future: Tensor) -> None:
        columns = torch.cat((past.repeat(self.layout.lags), future.repeat(self.layout.horizon)))
        self._layers()[0].weight *= columns

    def forward(self, z: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(N, layout.width) -> (N, width)."""
        single = self.training and self.single
        z = z.float() if single else z
        for part in self.net:
            if not isinstance(part, nn.Linear):
                z = part(z)
                continue
            if dropout is not None and self.rate:
                z = z * dropout.mask(z, part.in_features, self.rate)
            z = functional.linear(z, part.weight.to(z.dtype), part.bias.to(z.dtype))
        return z

    def _layers(self) -> list[nn.Linear]:
        return [part for part in self.net if isinstance(part, nn.Linear)]


def build(config: Config, layout: Layout) -> Mlp:
    """The perceptron for windows of this layout, read as one row of numbers."""
    return Mlp(config, layout)
