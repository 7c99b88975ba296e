"""Latents in (−1, 1)^d, for a solver whose grid lies there."""

from __future__ import annotations

from torch import Tensor, nn

from streamgp.encoders._base import Dropout, Encoder


class BoundedEncoder(Encoder):
    """tanh of another encoder's latents.

    A fixed squashing instead of a normalisation by the batch's statistics (Wilson et al. 2016): that one lets rows see
    each other, which breaks row gradients and predictions of single rows.

    Args:
        inner: the encoder whose latents are bounded.

    Example:
        >>> import torch
        >>> from streamgp.encoders import identity
        >>> from streamgp.encoders._base import Layout
        >>> encoder = BoundedEncoder(identity.build(identity.Config(), Layout(lags=1, past=2)))
        >>> [round(value, 3) for value in encoder(torch.tensor([[0.0, 5.0]], dtype=torch.float64))[0].tolist()]
        [0.0, 1.0]
    """

    def __init__(self, inner: Encoder) -> None:
        super().__init__()
        self.inner = inner
        self.width = inner.width
        self.eval()  # as the inner one

    @property
    def output(self) -> nn.Linear | None:
        return self.inner.output

    def weigh(self, past: Tensor, future: Tensor) -> None:
        self.inner.weigh(past, future)

    def _unbounded(self, z: Tensor) -> Tensor:
        latent: Tensor = self.inner(z)
        return latent

    def forward(self, z: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(N, layout.width) -> (N, d), every entry in [−1, 1]: tanh rounds to ±1 from about 19 on."""
        latent: Tensor = self.inner(z, dropout)
        return latent.tanh()
