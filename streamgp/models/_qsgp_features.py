"""Random Fourier features with frequencies orthogonal within a block, held once drawn where they are few enough."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.features.fourier import Config, Fourier, standard_normals
from streamgp.kernels._base import Frequencies, Kernel

HELD = 1 << 25
"""Normals that are held: 256 MB. Drawing a block costs as much as its features of 4,000 rows."""


def orthogonal(normals: Tensor) -> Tensor:
    """(P, W) -> (P, W): every W rows made orthogonal, each keeping its length (Yu et al. 2016)."""
    parts = []
    for part in normals.split(normals.shape[1]):
        q = torch.linalg.qr(part.T).Q.T  # (k, W)
        parts.append(q * part.norm(dim=1, keepdim=True))
    return torch.cat(parts)


class Held(Fourier):
    """Normals depend on the seed alone, so that what is held stays good under any hyper-parameters."""

    def __init__(self, config: Config, kernel: Kernel) -> None:
        self.held: dict[int, Tensor] = {}
        super().__init__(config, kernel)

    def frequencies(self, block: int) -> Frequencies:
        span = self.span(block)
        start, count = span.start // 2, (span.stop - span.start) // 2
        normals = self.held.get(block)
        if normals is None:
            normals = standard_normals(self.seed, start, count, self.kernel.normals)
            normals = orthogonal(normals)
            if self.size // 2 * self.kernel.normals <= HELD:
                self.held[block] = normals
        device = next(self.kernel.parameters()).device
        return self.kernel.frequencies(normals.to(device), torch.arange(start, start + count, device=device))
