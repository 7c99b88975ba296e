"""Gated recurrent units over the lags: GP-GRU when its latents feed a kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from streamgp.encoders._base import Layout
from streamgp.encoders._recurrent import Recurrent, RecurrentConfig, State


class Config(RecurrentConfig):
    """Gated recurrent layers over the lags, then a linear map to the latent space."""


class Gru(Recurrent):
    """The unit of Cho et al. 2014:

        r = σ(W_r x_t + U_r h_t−1 + b_r),   u = σ(W_u x_t + U_u h_t−1 + b_u)
        n = tanh(W_n x_t + b_n + r (U_n h_t−1 + c_n)),   h_t = (1 − u) n + u h_t−1

    Departure (PyTorch's): the reset gate r acts after U_n, not before it, so that one product serves all gates.
    """

    layer = nn.GRU
    run = staticmethod(torch.gru)

    @staticmethod
    def step(driven: Tensor, fed_back: Tensor, state: State) -> State:
        (h,) = state
        width = h.shape[1]
        r, u = (driven[:, : 2 * width] + fed_back[:, : 2 * width]).sigmoid().chunk(2, 1)
        n = (driven[:, 2 * width :] + r * fed_back[:, 2 * width :]).tanh()
        return (torch.lerp(n, h, u),)


def build(config: Config, layout: Layout) -> Gru:
    """The network for windows of this layout.

    Raises:
        UsageError: the windows have no past to run over.

    Example:
        >>> encoder = build(Config(hidden=8), Layout(lags=3, past=2, horizon=2, future=1))
        >>> encoder(torch.zeros(5, 8, dtype=torch.float64)).shape
        torch.Size([5, 2])
    """
    return Gru(config, layout)
