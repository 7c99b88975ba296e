"""The first block of a stream's basis, whose Gram matrix is a sum over every row, and the variance that it gives.

G_0 = Σ_ℓ ν_ℓ φ₀φ₀ᵀ, scaled down by what is forgotten, needs no kept rows and is never old. The variance of a prediction
is that of this block alone, as if it were the whole basis: Fourier features are stretched by √(m/m̃), so that they
carry the whole kernel, and inducing functions are augmented at the test point (proposition 4). Summed over all blocks
the variance would grow with their number towards the prior, since none knows what the others have learned.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.features.inducing import augmentation
from streamgp.linalg.cholesky import cholesky, whiten
from streamgp.models._qsgp_features import Basis
from streamgp.optim._block_rows import gram


class Head(nn.Module):
    """G_0, and the factors that follow from it.

    Args:
        basis: its block 0 is the head.

    Attributes:
        total: (h, h) G_0, its lower triangle, in the places of the first block's capacity.
        rows: () Σν.
        noise: () σ² of the system.
    """

    def __init__(self, basis: Basis) -> None:
        super().__init__()
        self.basis = (basis,)  # not a submodule: its state is with whoever solves
        size = min(basis.width, basis.capacity)
        self.total: Tensor
        self.rows: Tensor
        self.noise: Tensor
        self.register_buffer("total", torch.zeros(size, size, dtype=FLOAT))
        self.register_buffer("rows", torch.zeros((), dtype=FLOAT))
        self.register_buffer("noise", torch.ones((), dtype=FLOAT))
        self._root: Tensor | None = None
        self._stretched: Tensor | None = None

    def begin(self, noise: Tensor) -> None:
        """Forget everything, under a new σ²."""
        self.noise.copy_(noise)
        self.total.zero_()
        self.rows.zero_()
        self.changed()

    def changed(self) -> None:
        """Factors are void."""
        self._root = self._stretched = None

    def absorb(self, phi: Tensor, weight: Tensor, kept: float) -> None:
        """Add rows after scaling the sum by `kept`. phi: (N, |0|) features of block 0, weight: (N,) ν."""
        size = phi.shape[1]
        self.total.mul_(kept)
        self.total[:size, :size] += gram(phi, weight).tril()
        self.rows.mul_(kept).add_(weight.sum())
        self.changed()

    @property
    def size(self) -> int:
        """|0|"""
        (basis,) = self.basis
        return basis.span(0).stop if basis.blocks else 0

    def _factor(self, stretch: Tensor | None) -> Tensor:
        (basis,) = self.basis
        matrix = self.total[: self.size, : self.size]
        if stretch is not None:
            matrix = matrix * stretch[:, None] * stretch
        return cholesky(matrix + self.noise * basis.precision(0, 0), first=0.0).lower

    @property
    def root(self) -> Tensor:
        """(|0|, |0|) chol(G_0 + σ²S_00)."""
        if self._root is None:
            self._root = self._factor(None)
        return self._root

    def _stretch(self) -> Tensor:
        """(|0|,) D: 1 for the linear part, √(m/m̃) for features that are a sample of the whole kernel."""
        (basis,) = self.basis
        stretch = torch.full((self.size,), 1.0 / math.sqrt(basis.share), dtype=FLOAT, device=self.total.device)
        stretch[: basis.extra] = 1.0
        return stretch

    def variance(self, z: Tensor) -> Tensor:
        """(N, W) -> (N,): the latent variance."""
        (basis,) = self.basis
        if not self.size:
            return basis.prior_variance(z)
        phi = basis.block(z, 0)
        if basis.diagonal_precision:
            stretch = self._stretch()
            if self._stretched is None:
                self._stretched = self._factor(stretch)
            phi = phi * stretch
            return self.noise * whiten(self._stretched, phi.mT).square().sum(0)
        known = self.noise * whiten(self.root, phi.mT).square().sum(0)
        points = max(self.size - basis.extra, 1)
        norm = phi[:, basis.extra :].square().sum(1) * self.rows / points
        return known + augmentation(basis.inner.prior_variance(z), norm, self.noise[None])[:, 0]
