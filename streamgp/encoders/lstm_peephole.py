"""Long short-term memory whose gates see the cell: equation 3 of Al-Shedivat et al. 2017 as it is printed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from streamgp.encoders._base import Layout
from streamgp.encoders._recurrent import State
from streamgp.encoders.lstm import Config as LstmConfig
from streamgp.encoders.lstm import Lstm


class Config(LstmConfig):
    """LSTM layers with peepholes over the lags, then a linear map to the latent space."""


class LstmPeephole(Lstm):
    """The memory cell of equation 3 of Al-Shedivat et al. 2017, with ⊙ by unit:

        i = σ(W_i x_t + U_i h_t−1 + p_i ⊙ c_t−1 + b_i),   f = σ(W_f x_t + U_f h_t−1 + p_f ⊙ c_t−1 + b_f)
        c_t = f c_t−1 + i tanh(W_g x_t + U_g h_t−1 + b_g)
        o = σ(W_o x_t + U_o h_t−1 + p_o ⊙ c_t + b_o),     h_t = o tanh(c_t)

    Peepholes are diagonal, as in Gers et al. 2002, and start at 0, so that the cell begins as that without them.
    PyTorch has no such cell: it runs lag by lag, several times slower than `lstm`, and in float64 whatever `precision`
    says.
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__(config, layout)
        none = torch.zeros(3, config.hidden, dtype=torch.float64)
        self.peepholes = nn.ParameterList([nn.Parameter(none.clone()) for _ in self.layers])

    def _fused(self, layer: nn.RNNBase, x: Tensor) -> Tensor:
        return self.unrolled(layer, x, x.new_ones(1, self.hidden))

    def cell(self, layer: nn.RNNBase) -> Callable[[Tensor, Tensor, State], State]:
        place = next(at for at, own in enumerate(self.layers) if own is layer)
        return partial(_step, self.peepholes[place])


def _step(peepholes: Tensor, driven: Tensor, fed_back: Tensor, state: State) -> State:
    """One lag; see `Recurrent.step`. peepholes: (3, hidden) of the gates i, f and o."""
    _, c = state
    i, f, g, o = (driven + fed_back).chunk(4, 1)
    see_i, see_f, see_o = peepholes
    c = (f + see_f * c).sigmoid() * c + (i + see_i * c).sigmoid() * g.tanh()
    return (o + see_o * c).sigmoid() * c.tanh(), c


def build(config: Config, layout: Layout) -> LstmPeephole:
    """The network for windows of this layout.

    Raises:
        UsageError: the windows have no past to run over.

    Example:
        >>> encoder = build(Config(hidden=8), Layout(lags=3, past=2, horizon=2, future=1))
        >>> encoder(torch.zeros(5, 8, dtype=torch.float64)).shape
        torch.Size([5, 2])
    """
    return LstmPeephole(config, layout)
