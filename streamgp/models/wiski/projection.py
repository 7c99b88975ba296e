"""Few linear functions of a window, bounded by tanh, for a Gaussian process on a grid.

h = tanh(s ∘ (zᵀA − c)), with c and s such that each coordinate has a spread in which tanh is still nearly linear. The
directions A are estimated from rows:

    regression  the leading direction of the ridge regression of the columns on the windows, B: A_1 = Bv with v the
                first right singular vector of ZB. Then the active subspace of the regression and of what it leaves:
                leading eigenvectors of E Σ_t (β_t + g_t)(β_t + g_t)ᵀ, whitened and apart from A_1, with β_t the slopes
                and g_t(z) the gradients of a kernel ridge regression of the residuals of some rows (gradient-based
                kernel dimension reduction, Fukumizu & Leng 2014; Constantine et al. 2014)
    pca         the leading eigenvectors of the windows' covariance Σ
    none        A = I
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT

SOME = 512
"""Rows at most, evenly spread, whose residuals are smoothed: cubic in them."""
RIDGE = 1e-3
"""Of the regression, relative to the weight of the rows: standardised windows have variances of order 1."""
SPREAD = 0.35
"""Standard deviation of a coordinate before tanh, which is nearly linear there."""
NOTHING = 1e-9
"""Spread of a direction, relative to that of all, below which it is none."""


class Projection(nn.Module):
    """See the module.

    Args:
        kind: how directions are estimated.
        width: W, columns of a window.
        dims: d.

    Attributes:
        directions: (W, d) A s.
        centre: (d,) c s.

    Example:
        >>> projection = Projection("none", width=2, dims=2)
        >>> z = torch.tensor([[1.0, 0.0], [-1.0, 2.0]], dtype=FLOAT)
        >>> projection.fit(z, z[:, :1], torch.ones(2, dtype=FLOAT))
        >>> [round(value, 3) for value in projection(z)[:, 0].tolist()]  # tanh(±0.35)
        [0.336, -0.336]
    """

    directions: Tensor
    centre: Tensor

    def __init__(self, kind: Literal["regression", "pca", "none"], width: int, dims: int) -> None:
        super().__init__()
        self.kind, self.dims = kind, dims
        self.register_buffer("directions", SPREAD * torch.eye(width, dims, dtype=FLOAT))
        self.register_buffer("centre", torch.zeros(dims, dtype=FLOAT))

    def forward(self, z: Tensor) -> Tensor:
        """(N, W) standardised windows -> (N, d) in [−1, 1]."""
        return (z @ self.directions - self.centre).tanh()

    @torch.no_grad()
    def fit(self, z: Tensor, y: Tensor, weight: Tensor) -> None:
        """Estimate the directions from rows; O(N W² + W³).

        Args:
            z: (N, W) standardised windows.
            y: (N, T) standardised targets, finite.
            weight: (N,) how many rows each stands for.
        """
        share = weight / weight.sum()
        middle = share @ z
        around = z - middle
        moment = around.T @ (share[:, None] * around)  # (W, W) Σ
        if self.kind == "none":
            found = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
        elif self.kind == "pca":
            found = torch.linalg.eigh(moment).eigenvectors.flip(1)
        else:
            found = self._of_regression(around, y - share @ y, weight, moment)
        found = found[:, : self.dims]
        spread = torch.einsum("wd,wv,vd->d", found, moment, found).clamp(min=0.0).sqrt()
        scale = torch.where(spread > NOTHING * spread.max(), SPREAD / spread.clamp(min=1e-300), 0.0)
        self.directions.copy_(found * scale)
        self.centre.copy_(middle @ self.directions)

    def _of_regression(self, z: Tensor, y: Tensor, weight: Tensor, moment: Tensor) -> Tensor:
        """(W, d) from centred rows."""
        eye = torch.eye(len(moment), dtype=z.dtype, device=z.device)
        values, vectors = torch.linalg.eigh(moment + RIDGE * eye)
        half = vectors / values.sqrt()  # (W, W) Σ^−½ in its eigenbasis: half halfᵀ = Σ⁻¹
        white = z @ half  # (N, W)
        slopes = white.T @ ((weight / weight.sum())[:, None] * y)  # (W, T) whitened β
        first: Tensor = slopes @ torch.linalg.eigh(slopes.T @ slopes).eigenvectors[:, -1:]  # (W, 1)
        chosen = first
        if self.dims > 1:
            some = torch.linspace(0, len(z) - 1, min(len(z), SOME), device=z.device).round().long()
            energy = _energy(white[some], (y - white @ slopes)[some], slopes, weight[some])
            known = torch.nn.functional.normalize(first, dim=0)
            apart = eye - known @ known.T
            rest = torch.linalg.eigh(apart @ energy @ apart).eigenvectors.flip(1)[:, : self.dims - 1]
            chosen = torch.cat([first, rest], 1)
        found: Tensor = half @ chosen
        return found


def _energy(z: Tensor, residual: Tensor, slopes: Tensor, weight: Tensor) -> Tensor:
    """(W, W) E Σ_t (β_t + g_t)(β_t + g_t)ᵀ over rows.

    In the kernel ridge regression a row has the noise variance 1/weight, the function the variance 1 and the squared
    lengthscale W, half of the usual squared distance of whitened rows.

    Args:
        z: (n, W) whitened windows.
        residual: (n, T)
        slopes: (W, T) β.
        weight: (n,) how many rows each stands for.
    """
    width = z.shape[1]
    scale = float(width)  # ℓ²
    kernel = torch.exp(-0.5 * torch.cdist(z, z).square() / scale)
    alpha = torch.linalg.solve(kernel + torch.diag(1.0 / weight), residual)  # (n, T)
    total = torch.zeros(width, width, dtype=z.dtype, device=z.device)
    for slope, own in zip(slopes.T, alpha.T, strict=True):
        held = kernel * own
        gradient = slope + (held @ z - held.sum(1, keepdim=True) * z) / scale  # (n, W)
        total += gradient.T @ (weight[:, None] * gradient)
    return total / weight.sum()
