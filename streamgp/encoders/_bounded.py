"""Latents in (−1, 1)^d, for a solver whose grid lies there."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.encoders._base import Dropout, Encoder


class Bounded(Encoder):
    """tanh of another encoder's latents.

    A fixed squashing instead of a normalisation by the batch's statistics (Wilson et al. 2016): that one lets rows see
    each other, which breaks row gradients and predictions of single rows.

    Args:
        inner: the encoder whose latents are bounded.

    Example:
        >>> import torch
        >>> from streamgp.encoders import identity
        >>> from streamgp.encoders._base import Layout
        >>> encoder = Bounded(identity.build(identity.Config(), Layout(lags=1, past=2)))
        >>> [round(value, 3) for value in encoder(torch.tensor([[0.0, 5.0]], dtype=torch.float64))[0].tolist()]
        [0.0, 1.0]
    """

    def __init__(self, inner: Encoder) -> None:
        super().__init__()
        self.inner = inner
        self.width = inner.width

    @torch.no_grad()
    def settle(self, z: Tensor, spread: float) -> None:
        """Adjust the inner encoder's output: before the tanh, latents of z (N, width) get mean 0 and this spread.

        An encoder without a linear output stays as it is.
        """
        if (output := self.inner.output) is None:
            return
        latent = self.inner(z)
        factor = spread / latent.std(0).clamp(min=1e-6)
        output.weight *= factor[:, None]
        output.bias.copy_((output.bias - latent.mean(0)) * factor)

    def forward(self, z: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(N, layout.width) -> (N, d), every entry in [−1, 1]: tanh rounds to ±1 from about 19 on."""
        latent: Tensor = self.inner(z, dropout)
        return latent.tanh()
