"""An Elman network over the lags: GP-RNN when its latents feed a kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from streamgp.encoders._base import Layout
from streamgp.encoders._recurrent import Recurrent, RecurrentConfig, State


class Config(RecurrentConfig):
    """Elman layers over the lags, then a linear map to the latent space."""


class Rnn(Recurrent):
    """h_t = tanh(W_x x_t + b_x + W_h h_t−1 + b_h), eq. 2 of Al-Shedivat et al. 2017 with φ = tanh.

    Departure: x_t enters h_t, where (2) prints x_t−1, so that the newest lag is seen.
    """

    layer = nn.RNN
    run = staticmethod(torch.rnn_tanh)

    @staticmethod
    def step(driven: Tensor, fed_back: Tensor, state: State) -> State:
        return ((driven + fed_back).tanh(),)


def build(config: Config, layout: Layout) -> Rnn:
    """The network for windows of this layout.

    Raises:
        UsageError: the windows have no past to run over.

    Example:
        >>> import torch
        >>> encoder = build(Config(hidden=8), Layout(lags=3, past=2, horizon=2, future=1))
        >>> encoder(torch.zeros(5, 8, dtype=torch.float64)).shape
        torch.Size([5, 2])
    """
    return Rnn(config, layout)
