"""The head: sums over all rows that latent variances come from, and the factors that follow from them.

G = Σ_ℓ ν_ℓ φφᵀ over all rows of a stream or a batch, scaled down by what is forgotten: it needs no kept rows and is
never old. Over all features (G/σ² + I)⁻¹ is the covariance of the posterior, and chol(G + σ²I) solves for the means. It
has m²/2 numbers and takes O(m³) to factorise: for up to `config.EXACT` features. With more of them G is that of the
first block, in m̃²/2 numbers, and the variance of a prediction, O(m̃ (W + m̃)), is that of this block alone, as if it
were the whole basis: Fourier features are stretched by √(m/m̃), so that they carry the whole kernel. The posterior
variance is a concave function of the kernel, and the kernel of a block scatters around that of all: the head's variance
is smaller, the more so the fewer its features are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import cholesky, whiten
from streamgp.linalg.levels import beside, each_column, factors, levels, parted
from streamgp.models.qsgp.features import Basis
from streamgp.regression.block_rows import gram


class Triangle(nn.Module):
    """The lower triangle of a symmetric matrix in half of its numbers: G_21, and G_11 beside the transpose of G_22.

    Args:
        size: k, of the matrix.

    Attributes:
        cross: (k − h, h) G_21, h = ⌈k/2⌉.
        ends: (h + 1, h) G_11 from the second row on, up to the diagonal, and G_22ᵀ above it.

    Example:
        >>> triangle = Triangle(3)
        >>> triangle.add(torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(1), 1.0)
        >>> triangle.square(3).tolist()
        [[1.0, 0.0, 0.0], [2.0, 4.0, 0.0], [3.0, 6.0, 9.0]]
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.middle = -(-size // 2)
        self.cross: Tensor
        self.ends: Tensor
        self.register_buffer("cross", torch.zeros(size - self.middle, self.middle, dtype=FLOAT))
        self.register_buffer("ends", torch.zeros(self.middle + 1, self.middle, dtype=FLOAT))

    def zero(self) -> None:
        self.cross, self.ends = torch.zeros_like(self.cross), torch.zeros_like(self.ends)

    def add(self, phi: Tensor, weight: Tensor, kept: float) -> None:
        """Scale by `kept`, then add ΦᵀWΦ. phi: (N, ≤ k), weight: (N,)."""
        self.cross.mul_(kept)
        self.ends.mul_(kept)
        left, right = phi[:, : self.middle], phi[:, self.middle :]
        self.ends[1 : 1 + left.shape[1], : left.shape[1]] += gram(left, weight).tril()
        if right.shape[1]:
            size = right.shape[1]
            self.ends[:size, :size] += gram(right, weight).tril().mT
            self.cross[:size, : left.shape[1]] += right.mT @ (left * weight.to(phi.dtype)[:, None])

    def square(self, size: int) -> Tensor:
        """(size, size) the matrix of the first `size` functions, its lower triangle."""
        out = self.cross.new_zeros(size, size)
        left, right = min(self.middle, size), max(size - self.middle, 0)
        out[:left, :left] = self.ends[1 : 1 + left, :left].tril()
        out[left:, :left] = self.cross[:right, :left]
        out[left:, left:] = self.ends[:right, :right].triu().mT
        return out


class Head(nn.Module):
    """G, and the factors that follow from it.

    Args:
        basis: its block 0 is the head.
        whole: take all blocks for the head.
        columns: T where they have a noise each, else 0.

    Attributes:
        total: G, in the places of the capacity.
        rows: () Σν.
        noise: () σ² of the system, or (T,).
    """

    def __init__(self, basis: Basis, whole: bool = False, columns: int = 0) -> None:
        super().__init__()
        self.basis = (basis,)  # not a submodule: its state is with whoever solves
        self.whole = whole
        self.total = Triangle(basis.capacity if whole else min(basis.width, basis.capacity))
        self.rows: Tensor
        self.noise: Tensor
        self.register_buffer("rows", torch.zeros((), dtype=FLOAT))
        self.register_buffer("noise", torch.ones((columns,) if columns else (), dtype=FLOAT))
        self._root: Tensor | None = None
        self._spread: Tensor | None = None

    def begin(self, noise: Tensor) -> None:
        """Forget everything, under a new σ²."""
        self.noise.copy_(noise)
        self.total.zero()
        self.rows.zero_()
        self.changed()

    def sums(self) -> tuple[Tensor, ...]:
        """See `streamgp.online.summing.Additive`."""
        return self.total.cross, self.total.ends, self.rows

    def put(self, sums: tuple[Tensor, ...]) -> None:
        self.total.cross, self.total.ends, self.rows = sums
        self.changed()

    def zero(self) -> None:
        """Forget the rows."""
        self.total.zero()
        self.rows = torch.zeros_like(self.rows)
        self.changed()

    def changed(self) -> None:
        """Factors are void."""
        self._root = self._spread = None

    def features(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, k): of the head, in the dtype of z."""
        (basis,) = self.basis
        parts = [basis.block(z, b) for b in range(self.blocks)]
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def absorb(self, phi: Tensor, weight: Tensor, kept: float) -> None:
        """Add rows after scaling the sums by `kept`. phi: (N, k) `features`, weight: (N,) ν."""
        self.total.add(phi, weight, kept)
        self.rows.mul_(kept).add_(weight.sum())
        self.changed()

    @property
    def blocks(self) -> int:
        """How many of the basis, from the first on, are the head."""
        (basis,) = self.basis
        return basis.blocks if self.whole else min(basis.blocks, 1)

    @property
    def size(self) -> int:
        """k, features of the head."""
        (basis,) = self.basis
        return basis.span(self.blocks - 1).stop if self.blocks else 0

    @property
    def root(self) -> Tensor:
        """(k, k) chol(G + σ²I); of several levels (L, k, k), see `linalg.levels`."""
        if self._root is None:
            self._root = self._factor(self.total.square(self.size))
        return self._root

    @property
    def spread(self) -> Tensor:
        """chol(DGD + σ²I), D = `stretch`, as `root`."""
        if self.stretch is None:
            return self.root
        if self._spread is None:
            self._spread = self._factor(self.stretch[:, None] * self.total.square(self.size) * self.stretch)
        return self._spread

    @property
    def stretch(self) -> Tensor | None:
        """(k,) 1 for the linear part, √(m/m̃) for features that are a sample of the whole kernel; None: 1 for all."""
        (basis,) = self.basis
        if self.whole or basis.share == 1.0:
            return None
        stretch = torch.full((self.size,), 1.0 / math.sqrt(basis.share), dtype=FLOAT, device=self.rows.device)
        stretch[: basis.extra] = 1.0
        return stretch

    def log_determinant(self) -> Tensor:
        """() or (T,) log|DGD/σ² + I|"""
        found = [
            2.0 * factor.diagonal().log().sum() - noise.log() * self.size
            for noise, _, factor in parted(self.noise, self.spread)
        ]
        return beside(self.noise, [one[None] for one in found])[0] if self.noise.dim() else found[0]

    def variance(self, z: Tensor, phi: Tensor | None = None) -> Tensor:
        """(N, W) -> (N, 1), or (N, T) of columns with a noise each: the latent variance.

        phi: (N, k) `features`, where they are known.
        """
        (basis,) = self.basis
        if not self.size:
            return basis.prior_variance(z)[:, None]
        return beside(self.noise, [noise * half.square().sum(0) for noise, half in self._halves(z, phi)])

    def covariance(self, z: Tensor) -> Tensor:
        """(N, W) -> (1, N, N), or (T, N, N) of columns with a noise each: of the function, where the head has features;
        its diagonals are `variance`."""
        return each_column(self.noise, [noise * (half.mT @ half) for noise, half in self._halves(z)])

    def _halves(self, z: Tensor, phi: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
        """Of every level of the noise: () σ², and (k, N) the whitened features."""
        phi = self.features(z) if phi is None else phi
        phi = phi if self.stretch is None else phi * self.stretch
        return [(noise, whiten(factor, phi.mT)) for noise, _, factor in parted(self.noise, self.spread)]

    def _factor(self, matrix: Tensor) -> Tensor:
        found, diagonal = list[Tensor](), matrix.diagonal().clone()
        for noise, _ in levels(self.noise):
            matrix.diagonal().copy_(diagonal + noise)
            found.append(cholesky(matrix, first=0.0).lower)
        return factors(found)
