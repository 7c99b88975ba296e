"""What an encoder is: φ_W, a map of windows to a latent space, in front of a kernel or of a linear head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

FLAT = 1e-6
"""Spread of a latent below which it is constant."""


class Layout(NamedTuple):
    """How a window lies in a flattened row: L·D past values, oldest lag first, then H·F future values.

    Attributes:
        lags: L.
        past: D, channels of the past.
        horizon: H.
        future: F, channels of the future.

    Example:
        >>> Layout(lags=3, past=2, horizon=2, future=1).width
        8
    """

    lags: int
    past: int
    horizon: int = 1
    future: int = 0

    @property
    def width(self) -> int:
        """L·D + H·F."""
        return self.lags * self.past + self.horizon * self.future

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(N, width) -> the past (N, L, D), the future (N, H·F)."""
        cut = self.lags * self.past
        return z[:, :cut].unflatten(1, (self.lags, self.past)), z[:, cut:]


class Dropout(NamedTuple):
    """Asks an encoder to drop units at its own rates.

    Attributes:
        generator: what the masks are drawn from; nothing else is random.
        shared: one mask for all rows (a draw of the network, for Monte Carlo dropout) instead of one a row (training).
            A mask is drawn once for all lags of a row (Gal & Ghahramani 2016).
    """

    generator: Generator
    shared: bool = False

    def mask(self, z: Tensor, width: int, rate: float) -> Tensor:
        """(N, width), or (1, width) where shared: 0 with probability `rate`, else 1/(1 − rate), so that the mean is 1.

        Args:
            z: (N, ...) whose rows, dtype and device the mask is for.
            width: units.
            rate: 0 <= rate < 1.

        Example:
            >>> drop = Dropout(Generator().manual_seed(0))
            >>> mask = drop.mask(torch.zeros(2000, 3, dtype=torch.float64), width=4, rate=0.2)
            >>> mask.shape, mask.unique().tolist(), round(float(mask.mean()), 1)
            (torch.Size([2000, 4]), [0.0, 1.25], 1.0)
        """
        rows = 1 if self.shared else z.shape[0]
        kept = torch.rand(rows, width, generator=self.generator, dtype=z.dtype, device=self.generator.device) >= rate
        return (kept.to(z.dtype) / (1.0 - rate)).to(z.device)


class Encoder(nn.Module, ABC):
    """A map of standardised windows to latents; float64; no row sees another.

    An encoder's module has a frozen pydantic `Config` and `build(config, layout) -> Encoder`. The seed of the Config
    alone decides the initial weights.

    Laws (the tests assert them for every registered encoder):
        1. Without `dropout` the map is deterministic, and a row alone gives its row of the batch.
        2. With rates of 0, `dropout` changes nothing; with `shared`, equal rows get equal latents.

    Attributes:
        width: d, columns of the latent space.
    """

    width: int

    @property
    def output(self) -> nn.Linear | None:
        """The linear map that the latents come out of; None where there is none to adjust."""
        return None

    @torch.no_grad()
    def settle(self, z: Tensor, spread: float, *, widen: bool = True) -> None:
        """Adjust the output: latents of z (N, width), before any bound on them, get mean 0 and this spread.

        An encoder without a linear output stays as it is, and so do, without `widen`, latents that spread less. Latents
        that do not spread at all, of one row or of equal ones, keep their scale: nothing says what it should be.
        """
        if (output := self.output) is None:
            return
        latent = self._unbounded(z)
        found = latent.std(0) if len(z) > 1 else torch.zeros_like(latent[0])
        factor = torch.where(found > FLAT, spread / found.clamp(min=FLAT), 1.0)
        if not widen:
            factor = factor.clamp(max=1.0)
        output.weight *= factor[:, None]
        output.bias.copy_((output.bias - latent.mean(0)) * factor)

    @torch.no_grad()
    def weigh(self, past: Tensor, future: Tensor) -> None:
        """Adjust the weights on the window: it becomes what the encoder was of windows with these multiples of the
        channels. An encoder without weights stays as it is.

        Args:
            past, future: (D,) and (F,) factors.
        """

    def _unbounded(self, z: Tensor) -> Tensor:
        """What comes out of the linear map."""
        return self(z)  # type: ignore[no-any-return]

    @abstractmethod
    def forward(self, z: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(N, layout.width) standardised, flattened windows -> (N, d)."""
