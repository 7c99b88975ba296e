"""What an encoder is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Encoder(nn.Module, ABC):
    """A deterministic map of rows; float64; no row sees another.

    Attributes:
        width: columns of the latent space.
    """

    width: int

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """(N, width_in) standardised windows -> (N, width)."""
