"""The basis of a QSGP: a feature map with a linear part before its first block, and frequencies held once drawn.

Its kernel is one of several radial ones, with the hyper-parameters that they share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.features import Features, fourier, inducing
from streamgp.features.fourier import Fourier, standard_normals
from streamgp.features.inducing import Inducing
from streamgp.kernels import Frequencies, Kernel, Stationary, matern, names_where, radial, squared_exponential

AUTO: tuple[BaseModel, ...] = (squared_exponential.Config(), *(matern.Config(nu=nu) for nu in (2.5, 1.5, 0.5)))
"""What is chosen from where nothing is named: ever rougher functions."""
HELD = 1 << 25
"""Normals that are held: 256 MB. Drawing a block costs as much as its features of 4,000 rows."""


class Candidates(Stationary):
    """One of several radial kernels; lengthscales and outputscale are the same tensors for all of them.

    Args:
        kernels: of the same columns.
        configs: theirs.

    Attributes:
        configs: as given.
        index: () int64, the one in use.

    Example:
        >>> kernel = candidates(AUTO, dims=1)
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> smooth = kernel(0.0 * one, one).item()
        >>> kernel.take(3).index.item(), round(smooth, 4), round(kernel(0.0 * one, one).item(), 4)
        (3, 0.6065, 0.3679)
    """

    def __init__(self, kernels: Sequence[Stationary], configs: Sequence[BaseModel] = ()) -> None:
        super().__init__(kernels[0].dims, 1.0, 1.0)
        self.configs = tuple(configs)
        for kernel in kernels:
            kernel.log_lengthscale, kernel.log_outputscale = self.log_lengthscale, self.log_outputscale
        self.kernels = nn.ModuleList(kernels)
        self.index: Tensor
        self.register_buffer("index", torch.zeros((), dtype=torch.int64))

    @property
    def radial(self) -> list[Stationary]:
        """The kernels to choose from."""
        return [kernel for kernel in self.kernels if isinstance(kernel, Stationary)]

    @property
    def own(self) -> Stationary:
        """The one in use."""
        return self.radial[int(self.index)]

    def take(self, index: int) -> Candidates:
        """Use another."""
        self.index.fill_(index)
        return self

    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M)"""
        return self.own.correlation(x, z)

    def profile(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """See `Stationary.profile`."""
        return self.own.profile(squares)

    @property
    def normals(self) -> int:
        return max(kernel.normals for kernel in self.radial)

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        """Those of the kernel in use, from the first of the normals; see `Kernel.frequencies`."""
        return self.own.frequencies(normals[:, : self.own.normals], place)


def candidates(configs: Sequence[BaseModel], dims: int) -> Candidates:
    """The kernels of these Configs for inputs of `dims` columns.

    Raises:
        UsageError: one of them is no function of one distance, or has hyper-parameters set, which evidence would undo.
    """
    kernels = []
    for config in configs:
        name = choice.part_name(config)
        kernel = choice.build("kernels", config, dims)
        if not isinstance(kernel, Stationary):
            raise UsageError(
                f"kernel={name} is no function of one distance, so that qsgp cannot estimate its lengthscales",
                hint=f"use kernel=auto, or {names_where(radial)}",
            )
        kernel.profile(torch.zeros(1, dtype=torch.float64))  # refuses what is not radial
        for field in ("lengthscale", "outputscale"):
            if getattr(config, field) != type(config).model_fields[field].default:
                raise UsageError(
                    f"kernel.{field} is estimated by evidence, and what is set would be lost",
                    hint=f"leave out --set kernel.{field}",
                )
        kernels.append(kernel)
    return Candidates(kernels, configs)


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

    The normals depend on the seed alone, so that what is held stays good under any hyper-parameters; the frequencies
    in float32 are held as long as these are the same.
    """

    NOT_STATE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("_held", "_pairs", "_pairs_of"), "made again when asked for"
    )

    def __init__(self, config: fourier.Config, kernel: Kernel, seed: int) -> None:
        self._held: dict[int, Tensor] = {}
        self._pairs: dict[int, tuple[Tensor, Tensor]] = {}
        self._pairs_of: tuple[int, ...] = ()
        super().__init__(config, kernel, seed)

    def pairs(self, block: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """See `Fourier.pairs`."""
        if dtype != torch.float32 or not self._pairs_of:
            return super().pairs(block, dtype)
        if block not in self._pairs:
            self._pairs[block] = super().pairs(block, dtype)
        return self._pairs[block]

    def block(self, x: Tensor, block: int) -> Tensor:
        """(N, W) -> (N, |b|)"""
        self._follow()
        return super().block(x, block)

    def image(self, x: Tensor, blocks: Sequence[int], weights: Tensor) -> Tensor:
        """See `Fourier.image`."""
        self._follow()
        return super().image(x, blocks, weights)

    def _follow(self) -> None:
        """Drop what is held of other hyper-parameters; nothing is held of very many features, or with a gradient."""
        held = (*self.parameters(), *self.buffers())
        if self.size // 2 * self.kernel.normals > HELD or any(tensor.requires_grad for tensor in held):
            held = ()
        now = (*(tensor._version for tensor in held), *(tensor.data_ptr() for tensor in held))
        if now != self._pairs_of:
            self._pairs.clear()
            self._pairs_of = now

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
    """[s x, s, φ(x)]: the features of a map, and before those of its first block a linear part.

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

    @property
    def most(self) -> int:
        return max(self.inner.most, min(self.extra, 1))

    def reach(self, block: int) -> slice:
        inner = self.inner.reach(block)
        return slice(self.extra + inner.start if block else 0, self.extra + inner.stop)

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
        """(|i|, |j|): that of the map where there is no linear part."""
        return super().precision(i, j) if self.diagonal_precision else self.inner.precision(i, j)

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


def basis(config: BaseModel, kernel: Kernel, linear: bool, seed: int) -> Basis:
    """The basis of a Config of features; a linear part goes in where a window has no more columns than a block, and
    features are random."""
    if isinstance(config, inducing.Config):
        return Basis(Inducing(config, kernel), linear=False).requires_grad_(False)
    assert isinstance(config, fourier.Config)
    features = HeldFourier(config, kernel, seed)
    return Basis(features, linear and kernel.dims <= features.width).requires_grad_(False)
