"""Long short-term memory over the lags: GP-LSTM when its latents feed a kernel."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from streamgp.encoders._base import Layout
from streamgp.encoders._recurrent import Recurrent, RecurrentConfig, State


class Config(RecurrentConfig):
    """LSTM layers over the lags, then a linear map to the latent space."""


class Lstm(Recurrent):
    """The memory cell of eq. 3 of Al-Shedivat et al. 2017, without its peepholes:

        i, f, o = σ(W x_t + U h_t−1 + b), each its own W, U, b;   g = tanh(W_g x_t + U_g h_t−1 + b_g)
        c_t = f c_t−1 + i g,   h_t = o tanh(c_t)

    Departures: no peepholes (W_ci, W_cf, W_co of the paper are 0), as PyTorch's cell has none and they seldom help
    (Greff et al. 2017); `lstm_peephole` has them. PyTorch keeps two biases a gate, of which only the sum matters: the
    forget gate's sum starts at 1, as is common (Jozefowicz et al. 2015), so that a cell remembers before it has learned
    to.
    """

    layer = nn.LSTM
    run = staticmethod(torch.lstm)
    carried = 2

    def _start(self, generator: Generator) -> None:
        super()._start(generator)
        with torch.no_grad():
            for layer in self.stack():
                _, _, bias, _ = layer.parameters()
                bias[self.hidden : 2 * self.hidden] = 1.0

    @staticmethod
    def step(driven: Tensor, fed_back: Tensor, state: State) -> State:
        _, c = state
        i, f, g, o = (driven + fed_back).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


def build(config: Config, layout: Layout) -> Lstm:
    """The network for windows of this layout.

    Raises:
        UsageError: the windows have no past to run over.

    Example:
        >>> encoder = build(Config(hidden=8), Layout(lags=3, past=2, horizon=2, future=1))
        >>> encoder(torch.zeros(5, 8, dtype=torch.float64)).shape
        torch.Size([5, 2])
    """
    return Lstm(config, layout)
