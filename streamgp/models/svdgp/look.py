"""What the posteriors of several series see of windows, and what of it is known when the windows are learned.

Most windows are learned in the round of their forecast: of N rows one after another, all but the first `horizon` that
are learned were forecast just before, and by the same posterior.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import Inputs
from streamgp.online.stacked import Packed
from streamgp.predictives.gaussian import Gaussian


class FleetLook(NamedTuple):
    """Windows as the posteriors see them, standardised. phi: (K, N, P); mean: (K, N, T); latent: (K, N, 1); shift:
    (K, N, T) and unit: (K, 1, T), what they are in the units of the columns; noise: (K, 1, T)."""

    z: Tensor
    phi: Tensor
    mean: Tensor
    latent: Tensor
    shift: Tensor
    noise: Tensor
    unit: Tensor

    def issued(self) -> Gaussian:
        """(K, N, T) in the units of the columns."""
        return Gaussian(self.mean, self.latent, self.noise).affine(self.unit, self.shift)


class Seen(NamedTuple):
    """A look at the windows (K · N, ...) of these series, side by side."""

    codes: Tensor
    x: Inputs
    look: FleetLook

    def recalled(
        self, packed: Packed, x: Inputs, horizon: int, first: Callable[[Inputs], FleetLook]
    ) -> FleetLook | None:
        """The look at windows that are learned; None where they are not those that were seen.

        Args:
            packed: the windows.
            x: of the batch.
            horizon: rows that a window waits for its last truth.
            first: looks at the first windows of each series, which were not seen.
        """
        asked, learned = self.look.z.shape[1], packed.rows.shape[1]
        known, more = asked - horizon, learned - asked + horizon
        if known <= 0 or more < 0 or not torch.equal(self.codes, packed.codes) or not bool(packed.there.all()):
            return None
        rows = packed.rows[:, more:]
        for part, seen in ((x.past, self.x.past), (x.future, self.x.future)):
            if not torch.equal(part[rows], seen.unflatten(0, (-1, asked))[:, :known]):
                return None
        head, own = first(x.rows(packed.rows[:, :more].flatten())), self.look
        z, phi, mean, latent, shift = (torch.cat([a, b[:, :known]], 1) for a, b in zip(head[:5], own[:5], strict=True))
        return FleetLook(z, phi, mean, latent, shift, head.noise, head.unit)
