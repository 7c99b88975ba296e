"""What a feature map is: the basis of a Gaussian process in weight space, in blocks that stand alone.

f(x) = φ(x)ᵀw, w ~ N(0, S⁻¹) (Evans & Nair 2020, equation (1)). The m features are cut once into B blocks: block b holds
the features [b m̃, min((b + 1) m̃, m)). A random block is a cell of this partition. Where every block is drawn with
probability 1/B, one drawn block stands for all with the factor B; that is m/m̃ where m̃ divides m, and B where the last
block is shorter. (A random start in [0, m − m̃] would be biased: features near the ends are in fewer blocks.)

Shapes: N rows, W columns of an input, m features, m̃ features in a block, |b| features in block b.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from streamgp.kernels import Kernel


class Features(nn.Module, ABC):
    """Features φ: R^W -> R^m and the precision S of their weights, with the hyper-parameters of a kernel.

    A feature map's module has a frozen pydantic `Config` and `build(config, kernel) -> Features` for inputs of
    `kernel.dims` columns. A module's parameters and buffers are its whole state.

    Laws (streamgp.testing.check_features asserts them for every registered feature map):
        1. The spans of the blocks are a partition of [0, size), in order.
        2. `block` depends on nothing but x, the block, the hyper-parameters and the rows added: not on what was asked
           before, nor on other rows of x. It has the dtype of x.
        3. S is symmetric positive definite, S_ji = S_ijᵀ; it is diagonal where `diagonal_precision` says so.
        4. φ(x)ᵀS⁻¹φ(z) is a covariance, at most `prior_variance` on the diagonal.
        5. Everything is differentiable in x and in the hyper-parameters.
        6. Another feature map, built alike and loaded with the state, says the same bits.

    Attributes:
        kernel: k, which the features approximate or are made of; shared with whoever built it, not copied.
        width: m̃, features in a block; the last block may have fewer.
        capacity: the largest m, for whoever allocates something per feature.
        diagonal_precision: whether S is diagonal.
    """

    diagonal_precision: bool

    def __init__(self, kernel: Kernel, capacity: int, width: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.capacity = capacity
        self.width = width

    @property
    @abstractmethod
    def size(self) -> int:
        """m, features in use."""

    @property
    def blocks(self) -> int:
        """B = ⌈m/m̃⌉."""
        return -(-self.size // self.width)

    def span(self, block: int) -> slice:
        """The places of a block's features among the m.

        Raises:
            IndexError: there is no such block.
        """
        if not 0 <= block < self.blocks:
            raise IndexError(f"block {block} of {self.blocks}")
        return slice(block * self.width, min((block + 1) * self.width, self.size))

    def spans(self) -> Iterator[slice]:
        """The places of every block, in order."""
        return map(self.span, range(self.blocks))

    @abstractmethod
    def block(self, x: Tensor, block: int) -> Tensor:
        """(N, W) -> (N, |b|): Φ_b, in the dtype of x; O(N W |b|), whatever m is."""

    def precision(self, i: int, j: int) -> Tensor:
        """(|i|, |j|) float64: S_ij, the prior precision between the weights of blocks i and j; here S = I."""
        rows, columns = (span.stop - span.start for span in (self.span(i), self.span(j)))
        like = next(self.parameters())
        if i == j:
            return torch.eye(rows, dtype=like.dtype, device=like.device)
        return like.new_zeros(rows, columns)

    def prior_variance(self, x: Tensor) -> Tensor:
        """(N, W) -> (N,): the prior variance of f(x) that φᵀS⁻¹φ stands for, in the dtype of x; here k(x, x)."""
        return self.kernel.diagonal(x).to(x.dtype)

    def add(self, x: Tensor) -> slice:
        """Offer rows to make features of: the places of those that were made, in the order of the rows.

        Features that are not made of rows take none, and neither do those that are full.

        Args:
            x: (N, W)
        """
        return slice(self.size, self.size)
