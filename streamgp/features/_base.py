"""What a feature map is: the basis of a Gaussian process in weight space, in blocks that stand alone.

f(x) = φ(x)ᵀw, w ~ N(0, S⁻¹), S = I but for inducing functions (Evans & Nair 2020, equation (1)). The m features are
cut once into B blocks: block b holds the features [b m̃, min((b + 1) m̃, m)). A random block is a cell of this
partition. Where every block is drawn with probability 1/B, one drawn block stands for all with the factor B; that is
m/m̃ where m̃ divides m, and B where the last block is shorter. (A random start in [0, m − m̃] would be biased: features
near the ends are in fewer blocks.)

Shapes: N rows, W columns of an input, m features, m̃ features in a block, |b| features in block b.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.kernels import Kernel


class Features(nn.Module, ABC):
    """Features φ: R^W -> R^m, with the hyper-parameters of a kernel; parameters and buffers are the whole state.

    Laws:
        1. The spans of the blocks are a partition of [0, size), in order.
        2. `block` depends on nothing but x, the block and the hyper-parameters: not on what was asked before, nor on
           other rows of x. It has the dtype of x.
        3. φ(x)ᵀS⁻¹φ(z) is a covariance, at most `prior_variance` on the diagonal.
        4. Everything is differentiable in x and in the hyper-parameters.
        5. Another feature map, built alike and loaded with the state, says the same bits.

    Attributes:
        kernel: k, which the features approximate or are made of; shared with whoever built it, not copied.
        width: m̃, features in a block; the last block may have fewer.
        capacity: the largest m, for whoever allocates something per feature.
        diagonal_precision: whether S = I.
    """

    diagonal_precision: bool = True

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

    @property
    def most(self) -> int:
        """Blocks that `capacity` features make."""
        return -(-self.capacity // self.width)

    def reach(self, block: int) -> slice:
        """The places that a block's features may have, whatever m is now: one of `most` blocks."""
        return slice(block * self.width, min((block + 1) * self.width, self.capacity))

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

    def image(self, x: Tensor, blocks: Sequence[int], weights: Tensor) -> Tensor:
        """Σ_b Φ_b(x) w_b over some blocks, in the dtype of x; O(N W m̃ P), whatever m is.

        Args:
            x: (N, W)
            blocks: P of them.
            weights: (P, m̃, K); of the last block, if it is shorter, those beyond its end are not looked at.

        Returns:
            (N, K)
        """
        total = x.new_zeros(len(x), weights.shape[2])
        for block, weight in zip(blocks, weights, strict=True):
            phi = self.block(x, block)
            total.addmm_(phi, weight[: phi.shape[1]].to(x.dtype))
        return total

    def precision(self, i: int, j: int) -> Tensor:
        """(|i|, |j|) float64: the block S_ij of the prior precision of the weights."""
        one, other = self.span(i), self.span(j)
        rows, columns = torch.arange(one.start, one.stop), torch.arange(other.start, other.stop)
        return (rows[:, None] == columns).to(FLOAT)

    def prior_variance(self, x: Tensor) -> Tensor:
        """(N, W) -> (N,): the prior variance of f(x) that φᵀS⁻¹φ stands for, in the dtype of x; here k(x, x)."""
        return self.kernel.diagonal(x).to(x.dtype)
