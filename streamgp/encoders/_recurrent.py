"""What the recurrent encoders share: the last hidden state of the past, beside the future, projected to the latents.

    s_l,t = cell_l(s_l,t−1, x_l,t),  x_1,t = past at lag t,  x_l+1,t = h_l,t,  t = 1 … L, oldest first, s_l,0 = 0
    φ_W(z) = P [h_last,L ; future] + p

h is the visible part of the state s (eqs. 2 and 3 of Al-Shedivat et al. 2017; a known future is ours).

Dropout is that of Gal & Ghahramani (2016, "A theoretically grounded application of dropout in recurrent neural
networks"), with masks that all gates share: one mask a row for all lags, on the inputs of every layer, the projection
among them, and on the h_t−1 that enters the gates. What a cell carries over by itself (an LSTM's c, a GRU's share of
h_t−1) is not masked. Departure: kept units are scaled by 1/(1 − rate), so that nothing is rescaled without dropout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Generator, Tensor, nn
from torch.nn import functional

from streamgp.encoders._base import Dropout, Encoder, Layout
from streamgp.errors import UsageError

State: TypeAlias = tuple[Tensor, ...]
"""What a cell carries from lag to lag, each (N, hidden); the first is h."""


class RecurrentConfig(BaseModel):
    """Recurrent layers over the lags, then a linear map to the latent space."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    hidden: int = Field(32, ge=1, description="units of a layer's hidden state")
    layers: int = Field(1, ge=1, description="recurrent layers")
    width: int = Field(2, ge=1, description="columns of the latent space")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="part of every layer's inputs that is dropped in training, the same at all lags"
    )
    recurrent_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="part of the previous hidden state that is dropped in training, the same at all lags",
    )
    precision: Literal["float32", "float64"] = Field(
        "float32", description="arithmetic of the layers in training, on the CPU; forecasts are made in float64"
    )
    seed: int = Field(0, ge=0, description="of the initial weights")


class Recurrent(Encoder):
    """Recurrent layers with parameters in float64, from weights that the seed alone decides.

    Weights start as U(−1/√hidden, 1/√hidden), the projection's as U(−1/√fan_in, 1/√fan_in), biases at 0. Latents are
    small at first, a tenth or so: the function in front of the kernel starts almost linear, and a GP on a few hundred
    rows that starts from rougher latents never unlearns them.

    In training mode (`nn.Module.train`) the layers run in float32, several times faster on a CPU than in float64, with
    gradients for the float64 parameters. In evaluation mode everything is float64.

    Args:
        config: see RecurrentConfig.
        layout: of the windows.

    Raises:
        UsageError: the windows have no past to run over.
    """

    layer: ClassVar[type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]]
    """PyTorch's layer, whose parameters and order of gates are used; it runs all lags in one call."""

    run: ClassVar[Callable[..., tuple[Tensor, ...]]]
    """PyTorch's function that the layer calls, for weights of another dtype than the layer's own."""

    carried: ClassVar[int] = 1
    """Tensors in a cell's State."""

    def __init__(self, config: RecurrentConfig, layout: Layout) -> None:
        super().__init__()
        name = type(config).__module__.rpartition(".")[2]
        if not layout.lags * layout.past:
            raise UsageError(
                f"encoder {name} runs over the past, and these windows have none",
                hint="give --lags, and columns to look back on, or a perceptron (encoder mlp; model narx or gp_narx)",
            )
        self.width, self.layout = config.width, layout
        self.hidden, self.rate, self.recurrent_rate = config.hidden, config.dropout, config.recurrent_dropout
        self.single = config.precision == "float32"
        future = layout.horizon * layout.future
        inputs = [layout.past, *[config.hidden] * (config.layers - 1)]
        with torch.random.fork_rng(devices=[]):  # a layer's constructor draws from the global generator
            made = [self.layer(width, config.hidden, batch_first=True, dtype=torch.float64) for width in inputs]
            self.projection = nn.Linear(config.hidden + future, config.width, dtype=torch.float64)
        self.layers = nn.ModuleList(made)
        self._start(torch.Generator().manual_seed(config.seed))
        self.eval()  # float64 for everyone who does not ask for training

    def _start(self, generator: Generator) -> None:
        """The initial weights."""
        with torch.no_grad():
            for layer in self.stack():
                into, back, bias, back_bias = layer.parameters()
                for weight in (into, back):
                    _uniform(weight, self.hidden, generator)
                bias.zero_()
                back_bias.zero_()
            _uniform(self.projection.weight, self.projection.in_features, generator)
            self.projection.bias.zero_()

    @property
    def output(self) -> nn.Linear:
        return self.projection

    @torch.no_grad()
    def weigh(self, past: Tensor, future: Tensor) -> None:
        into, *_ = self.stack()[0].parameters()
        into.mul_(past)
        self.projection.weight[:, self.hidden :] *= future.repeat(self.layout.horizon)

    def forward(self, z: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(N, layout.width) -> (N, width)."""
        sequence, future = self.layout.split(z)  # (N, L, D), (N, H·F)
        for layer in self.stack():
            if dropout is not None and self.rate:
                sequence = sequence * dropout.mask(z, layer.input_size, self.rate)[:, None]
            if dropout is not None and self.recurrent_rate:
                sequence = self.unrolled(layer, sequence, dropout.mask(z, self.hidden, self.recurrent_rate))
            else:
                sequence = self._fused(layer, sequence)
        last = torch.cat((sequence[:, -1].to(z.dtype), future), 1)
        if dropout is not None and self.rate:
            last = last * dropout.mask(z, last.shape[1], self.rate)
        latent: Tensor = self.projection(last)
        return latent

    def _fused(self, layer: nn.RNNBase, x: Tensor) -> Tensor:
        """A layer over all lags in one call: (N, L, C) -> (N, L, hidden)."""
        if x.is_cuda:
            _join(layer)
        elif self.training and self.single:
            weights = [weight.float() for weight in layer.parameters()]
            start = torch.zeros(1, x.shape[0], self.hidden)
            state: Any = (start,) * self.carried if self.carried > 1 else start
            # has biases, layers, dropout between them, training, bidirectional, batch first
            return type(self).run(x.float(), state, weights, True, 1, 0.0, True, False, True)[0]
        out: Tensor = layer(x)[0]
        return out

    def unrolled(self, layer: nn.RNNBase, x: Tensor, mask: Tensor) -> Tensor:
        """A layer lag by lag, with h_t−1 masked where it enters the gates: what PyTorch's own layer cannot do.

        Args:
            layer: whose parameters are used.
            x: (N, L, C).
            mask: (N, hidden) or (1, hidden).

        Returns:
            (N, L, hidden): h at every lag.
        """
        into, back, bias, back_bias = layer.parameters()
        driven = functional.linear(x.transpose(0, 1), into, bias)  # (L, N, gates · hidden)
        state: State = (x.new_zeros(x.shape[0], self.hidden),) * self.carried
        step, seen = self.cell(layer), list[Tensor]()
        for now in driven.unbind(0):
            state = step(now, functional.linear(state[0] * mask, back, back_bias), state)
            seen.append(state[0])
        return torch.stack(seen, 1)

    def cell(self, layer: nn.RNNBase) -> Callable[[Tensor, Tensor, State], State]:
        """`step` of a layer, with what else it has of its own."""
        return self.step

    @staticmethod
    @abstractmethod
    def step(driven: Tensor, fed_back: Tensor, state: State) -> State:
        """One lag of a cell.

        Args:
            driven: (N, gates · hidden) what the inputs contribute to the gates, bias included.
            fed_back: (N, gates · hidden) what the masked h_t−1 contributes, bias included.
            state: before; h_t−1 as it is carried over is not masked.
        """

    def stack(self) -> list[nn.RNNBase]:
        return [layer for layer in self.layers if isinstance(layer, nn.RNNBase)]


def _join(layer: nn.RNNBase) -> None:
    """Put weights that a copy or an optimiser has set apart into one block of memory, which cuDNN wants."""
    if len({weight.untyped_storage().data_ptr() for weight in layer.parameters()}) > 1:
        layer.flatten_parameters()


def _uniform(weight: Tensor, fan_in: int, generator: Generator) -> None:
    """U(−1/√fan_in, 1/√fan_in), in place."""
    bound = max(fan_in, 1) ** -0.5
    weight.uniform_(-bound, bound, generator=generator)
