"""The basis of a QSGP: a feature map with a linear part before its first block, and frequencies held once drawn."""

from __future__ import annotations

import torch
from pydantic import BaseModel
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.features import Features, fourier
from streamgp.features.fourier import Fourier, standard_normals
from streamgp.features.inducing import Inducing
from streamgp.kernels import Frequencies, Kernel

HELD = 1 << 25
"""Normals that are held: 256 MB. Drawing a block costs as much as its features of 4,000 rows."""


def orthogonal(normals: Tensor) -> Tensor:
    """(P, W) -> (P, W): every W rows made orthogonal, each keeping its length (Yu et al. 2016).

    Example:
        >>> rows = orthogonal(torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]]))
        >>> rows.norm(dim=1).tolist(), round(abs((rows[0] @ rows[1]).item()), 6)
        ([5.0, 1.0, 2.0], 0.0)
    """
    count, width = normals.shape
    whole = count // width * width
    parts = [normals[:whole].unflatten(0, (-1, width))] if whole else []
    if count > whole:
        parts.append(normals[None, whole:])
    turned = [torch.linalg.qr(part.mT).Q.mT * part.norm(dim=2, keepdim=True) for part in parts]
    return torch.cat([part.flatten(0, 1) for part in turned])


class HeldFourier(Fourier):
    """Random Fourier features with frequencies orthogonal within a block.

    The normals depend on the seed alone, so that what is held stays good under any hyper-parameters.
    """

    def __init__(self, config: fourier.Config, kernel: Kernel) -> None:
        self._held: dict[int, Tensor] = {}
        super().__init__(config, kernel)

    def frequencies(self, block: int) -> Frequencies:
        """See `Fourier.frequencies`."""
        if not self.kernel.normals:  # refused there, with a hint
            return super().frequencies(block)
        span = self.span(block)
        start, count = span.start // 2, (span.stop - span.start) // 2
        device = next(self.kernel.parameters()).device
        normals = self._held.get(block)
        if normals is None:
            normals = standard_normals(self.seed, start, count, self.kernel.normals)
            dims = self.kernel.dims  # the others are no directions
            normals = torch.cat((orthogonal(normals[:, :dims]), normals[:, dims:]), 1).to(device)
            if self.size // 2 * self.kernel.normals <= HELD:
                self._held[block] = normals
        return self.kernel.frequencies(normals.to(device), torch.arange(start, start + count, device=device))


class Basis(Features):
    """[s x, s, φ(x)]: the features of a map, and before those of its first block a linear part with precision I.

    With s² = σ² the linear part's prior counts as one row: ridge regression.

    Args:
        features: φ.
        linear: whether there is a linear part.

    Attributes:
        extra: columns of the linear part, W + 1 or 0.
        scale: () s.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), 3)
        >>> basis = Basis(fourier.build(fourier.Config(size=10, width=4), kernel), linear=True)
        >>> basis.size, [(span.start, span.stop) for span in basis.spans()], basis.block(torch.zeros(2, 3), 0).shape
        (14, [(0, 8), (8, 12), (12, 14)], torch.Size([2, 8]))
    """

    def __init__(self, features: Features, linear: bool) -> None:
        self.extra = features.kernel.dims + 1 if linear else 0
        super().__init__(features.kernel, self.extra + features.capacity, self.extra + features.width)
        self.inner = features
        self.diagonal_precision = features.diagonal_precision
        self.scale: Tensor
        self.register_buffer("scale", torch.ones((), dtype=FLOAT))

    @property
    def size(self) -> int:
        return self.extra + self.inner.size

    @property
    def blocks(self) -> int:
        return max(self.inner.blocks, min(self.extra, 1))

    @property
    def share(self) -> float:
        """m̃/m, the part of the features of φ that is in the first block."""
        return min(self.inner.width / max(self.inner.size, 1), 1.0)

    def span(self, block: int) -> slice:
        if not 0 <= block < self.blocks:
            raise IndexError(f"block {block} of {self.blocks}")
        inner = self.inner.span(block) if self.inner.blocks else slice(0, 0)
        return slice(self.extra + inner.start if block else 0, self.extra + inner.stop)

    def block(self, x: Tensor, block: int) -> Tensor:
        """(N, W) -> (N, |b|)"""
        parts = [self.inner.block(x, block)] if self.inner.blocks else []
        if not block and self.extra:
            scale = self.scale.to(x.dtype)
            parts = [scale * x, scale.expand(len(x), 1), *parts]
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def precision(self, i: int, j: int) -> Tensor:
        """(|i|, |j|) S_ij."""
        rows, columns = self.span(i), self.span(j)
        like = self.scale
        out = like.new_zeros(rows.stop - rows.start, columns.stop - columns.start)
        before = (0 if i else self.extra, 0 if j else self.extra)
        if i == j == 0:
            out.diagonal()[: self.extra] = 1.0
        if self.inner.blocks:
            out[before[0] :, before[1] :] = self.inner.precision(i, j)
        return out

    def prior_variance(self, x: Tensor) -> Tensor:
        """(N, W) -> (N,)"""
        smooth = self.inner.prior_variance(x)
        if not self.extra:
            return smooth
        return smooth + self.scale.to(x.dtype).square() * (x.square().sum(1) + 1.0)

    def prior(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, W), (M, W) -> (N, M): the prior covariance of the linear part and the kernel that the features are of."""
        smooth: Tensor = self.kernel(x, z)
        return smooth + self.scale.square() * (x @ z.mT + 1.0) if self.extra else smooth

    def add(self, x: Tensor) -> slice:
        """See `Features.add`."""
        made = self.inner.add(x)
        return slice(self.extra + made.start, self.extra + made.stop)

    def begin(self, x: Tensor) -> None:
        """Take these rows for those features that are made of rows, in place of the ones before. x: (N, W)."""
        if isinstance(self.inner, Inducing):
            self.inner.count.zero_()
            self.inner.add(x)


def basis(config: BaseModel, kernel: Kernel, linear: bool) -> Basis:
    """The basis of a Config of features; a linear part goes in where a window has no more columns than a block."""
    features = HeldFourier(config, kernel) if isinstance(config, fourier.Config) else None
    if features is None:
        features = choice.build("features", config, kernel)
    return Basis(features, linear and kernel.dims <= features.width).requires_grad_(False)
