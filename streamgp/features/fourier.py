"""Random Fourier features: pairs of a cosine and a sine, whose frequencies come from a seed and are never stored.

k(x, z) = E v cos(ωᵀ(x − z)) over the spectral density (Rahimi & Recht 2007), so that with P = m/2 frequencies

    φ(x) = √(2v/m) [cos ωᵀx, sin ωᵀx],   φ(x)ᵀφ(z) ≈ k(x, z),   φ(x)ᵀφ(x) = k(x, x)

Frequency p is made of standard normals by `Kernel.frequencies`; the normals of frequency p are the output of Philox, a
generator based on a counter, at key `seed` and counter proportional to p. A block is therefore read without its
neighbours, in O(W m̃) at any m, and a frequency does not depend on the partition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.features._base import Features
from streamgp.kernels import Frequencies, Kernel

TOGETHER = 1 << 19
"""Numbers, about, that lie between rows and their image at a time."""
_WORDS = 4
"""Numbers of 64 bits that Philox makes of one value of its counter."""


class Config(BaseModel):
    """Random Fourier features: any number of cosines and sines, for a stationary kernel."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    size: int = Field(
        10_000, ge=2, le=100_000_000, multiple_of=2, description="basis functions, cosines and sines counted singly"
    )
    width: int = Field(1000, ge=2, multiple_of=2, description="basis functions in a block")


def standard_normals(seed: int, start: int, rows: int, columns: int) -> Tensor:
    """Rows [start, start + rows) of an endless matrix of independent standard normals; float64, on the CPU.

    By Box and Muller (1958) from raw bits: NumPy keeps the bits of its bit generators for good, and those of its
    normals not, and weights that were learned for these frequencies have to find them again.

    Args:
        seed: 0 ≤ seed < 2⁶³, which matrix.

    Returns:
        (rows, columns)

    Example:
        >>> whole = standard_normals(3, 0, 10, 5)
        >>> torch.equal(standard_normals(3, 7, 2, 5), whole[7:9])
        True
    """
    half = -(-columns // 2)
    steps = -(-2 * half // _WORDS)  # of the counter, a row
    bits = np.random.Philox(key=seed, counter=start * steps).random_raw(rows * steps * _WORDS)
    uniform = ((bits >> np.uint64(11)) + 0.5) * 2.0**-53  # never 0 or 1
    left, right = uniform.reshape(rows, -1)[:, : 2 * half].reshape(rows, 2, half).swapaxes(0, 1)
    radius, angle = np.sqrt(-2.0 * np.log(left)), 2.0 * math.pi * right
    return torch.from_numpy(np.concatenate((radius * np.cos(angle), radius * np.sin(angle)), 1)[:, :columns])


class Fourier(Features):
    """Cosines and sines of ωᵀx; within a block the cosines of its frequencies, then their sines.

    Frequencies are computed in float64 and rounded to the dtype of x. In float32 the phase ωᵀx has an error of about
    6e-8 Σ_d |ω_d x_d|, which matters only for the far frequencies of a Matérn-½, where the phase is as good as random.

    A mixture's components take turns over the places, so that P should be large against their number.

    Attributes:
        seed: of the frequencies.

    Example:
        >>> from streamgp.kernels import matern
        >>> kernel = matern.build(matern.Config(nu=2.5), dims=2)
        >>> features = build(Config(size=10_000_000), kernel)
        >>> x = torch.zeros(3, 2, dtype=torch.float32)
        >>> features.blocks, features.block(x, 9_999).shape, features.span(9_999)
        (10000, torch.Size([3, 1000]), slice(9999000, 10000000, None))
    """

    def __init__(self, config: Config, kernel: Kernel, seed: int = 0) -> None:
        super().__init__(kernel, config.size, config.width)
        self.seed = seed
        self.frequencies(0)  # a kernel without any is refused now

    @property
    def size(self) -> int:
        return self.capacity

    def frequencies(self, block: int) -> Frequencies:
        """ω (|b|/2, W) and v (|b|/2,) of a block; float64, differentiable in the hyper-parameters.

        Raises:
            UsageError: the kernel has no spectral density to draw from.
        """
        span = self.span(block)
        start, count = span.start // 2, (span.stop - span.start) // 2
        device = next(self.kernel.parameters()).device
        normals = standard_normals(self.seed, start, count, self.kernel.normals).to(device)
        return self.kernel.frequencies(normals, torch.arange(start, start + count, device=device))

    def pairs(self, block: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """ω (|b|/2, W) and √(2v/m) (|b|/2,) of a block, in this dtype."""
        rate, weight = self.frequencies(block)
        return rate.to(dtype), (2.0 / self.size * weight).sqrt().to(dtype)

    def block(self, x: Tensor, block: int) -> Tensor:
        """(N, W) -> (N, |b|)"""
        rate, height = self.pairs(block, x.dtype)
        phase = x @ rate.T
        if phase.requires_grad or height.requires_grad:
            return torch.cat((phase.cos() * height, phase.sin() * height), 1)
        # without a graph nothing is copied: half of the time
        pairs = len(height)
        out = x.new_empty(len(x), 2 * pairs)
        torch.cos(phase, out=out[:, :pairs])
        torch.sin(phase, out=out[:, pairs:])
        return out.mul_(height.repeat(2))

    @torch.no_grad()
    def image(self, x: Tensor, blocks: Sequence[int], weights: Tensor) -> Tensor:
        """See `Features.image`; without a graph. Several blocks at a time where the rows are few, and the rows in
        parts where they are many: what lies between stays in the cache of a processor."""
        total = x.new_zeros(len(x), weights.shape[2])
        few, many = max(1, TOGETHER // (max(len(x), 1) * self.width)), max(1, TOGETHER // self.width)
        for start in range(0, len(blocks), few):
            rates, left, right = [], [], []
            for block, weight in zip(blocks[start : start + few], weights[start : start + few], strict=True):
                rate, height = self.pairs(block, x.dtype)
                count = len(height)
                rates.append(rate)
                left.append(height[:, None] * weight[:count].to(x.dtype))
                right.append(height[:, None] * weight[count : 2 * count].to(x.dtype))
            rate, cosine, sine = (torch.cat(parts) if len(parts) > 1 else parts[0] for parts in (rates, left, right))
            for part in range(0, len(x), many):
                phase = x[part : part + many] @ rate.T
                total[part : part + many] += phase.cos() @ cosine + phase.sin_() @ sine
        return total


def build(config: Config, kernel: Kernel, seed: int = 0) -> Fourier:
    """The features of a kernel.

    Raises:
        UsageError: the kernel has no spectral density to draw from.
    """
    return Fourier(config, kernel, seed)
