"""Features of the windows of many series on a kernel and basis that they share; see `Conjugate.features`.

A thousand rows at a time stay near the processor from the first product to the last. The columns are as many as
`aligned` says, the last ones 0: products of matrices whose rows begin at whole cache lines take three quarters of the
time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import whiten
from streamgp.models.svdgp.conjugate import Conjugate

ALIGNED = 8
"""Columns are a multiple of it: a cache line holds so many numbers."""
NEAR = 1024
"""Rows at a time."""


def aligned(columns: int) -> int:
    """The columns that so many take.

    Example:
        >>> aligned(89)
        96
    """
    return columns + -columns % ALIGNED


def features(kernel: Conjugate, z: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """φ (N, P) of the rows z (N, W), 0 beyond those that the basis has, and ρ² − ‖φ‖², (N,), of the basis alone.

    log k(x, Z) = xᵀz − ½‖x‖² − ½‖z‖² + log ρ² is one product of (x, −½‖x‖², 1), and φ = k C⁻ᵀ another: C is conditioned
    well enough for its inverse (`conjugate.JITTER`).
    """
    points, size = kernel.points, len(kernel.points)
    first, last = kernel.explicit, kernel.explicit + size
    own = torch.log(kernel.outputscale) - 0.5 * points.square().sum(1)
    right = torch.cat((points.T, torch.ones_like(own)[None], own[None]))
    inverse = whiten(kernel.lower, torch.eye(size, dtype=FLOAT, device=z.device)).T.contiguous()
    found, gap = z.new_empty(len(z), columns), z.new_empty(len(z))
    found[:, last:] = 0.0
    if first:
        scale = kernel.noise.sqrt()
        torch.mul(z, scale, out=found[:, : first - 1])
        found[:, first - 1] = scale
    left, near = z.new_ones(min(NEAR, len(z)), len(right)), z.new_empty(min(NEAR, len(z)), size)
    for start in range(0, len(z), NEAR):
        stop = min(start + NEAR, len(z))
        x, k, phi = left[: stop - start], near[: stop - start], found[start:stop, first:last]
        torch.mul(z[start:stop], kernel.inverse, out=x[:, :-2])
        torch.mul(x[:, :-2].square().sum(1), -0.5, out=x[:, -2])
        torch.mm(torch.mm(x, right, out=k).exp_(), inverse, out=phi)
        torch.sub(kernel.outputscale, phi.square().sum(1), out=gap[start:stop])
    return found, gap.clamp_(min=0.0)
