"""Weights of very many features, of which a step moves a block or two and nothing looks at the others.

Nothing here costs O(m) but the memory that is reserved, which an operating system hands out as it is written to, and
the scan of B step counts before a prediction.
"""

from __future__ import annotations

import math
import mmap
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT
from streamgp.features import Features
from streamgp.features.fourier import Fourier

SMALL = 2**22
"""Bytes from which memory is reserved rather than filled."""


def reserved(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros of this shape, whose memory is taken page by page as it is written to.

    `torch.zeros` writes them all. NumPy's asks for pages of 2 MB, of which a few hundred random blocks are in all.

    Example:
        >>> reserved((10, 2), torch.float32).sum().item()
        0.0
    """
    size = math.prod(shape) * dtype.itemsize
    if size < SMALL or not hasattr(mmap, "MAP_PRIVATE"):
        return torch.zeros(*shape, dtype=dtype)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(*shape)


class BlockWeights(nn.Module):
    """(m, K) weights in blocks: T columns of means, and k more of whatever goes with them.

    The buffers, those of the features included, are the whole state.

    Args:
        features: Φ.
        columns: T.
        more: k, further columns of weights.
        dtype: of the weights, and of features while learning.
        seed: of all draws.

    Attributes:
        weights: (capacity, K); blocks that were never stepped are 0 exactly.
        last: (blocks,) int64, 1 + the number of the step that was the last on each block; 0: never stepped.
        steps: () int64, steps taken.
        stream: state of the generator that all draws come from.
    """

    def __init__(self, features: Features, columns: int, more: int, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self.features, self.columns, self.dtype, self.seed = features, columns, dtype, seed
        self.weights: Tensor
        self.last: Tensor
        self.steps: Tensor
        self.stream: Tensor
        blocks = -(-features.capacity // features.width)
        self.register_buffer("weights", reserved((features.capacity, columns + more), dtype))
        self.register_buffer("last", torch.zeros(blocks, dtype=torch.int64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("stream", Generator().manual_seed(seed).get_state())

    @property
    def mu(self) -> Tensor:
        """(capacity, T) a view of the means as they are stored: a block's may be behind, `current` is what they are."""
        return self.weights[:, : self.columns]

    def touched(self) -> list[int]:
        """Blocks that were ever stepped; O(B)."""
        found: list[int] = self.last.nonzero()[:, 0].tolist()
        return found

    def forget(self) -> None:
        """Back to the start: weights 0 and the draws from their beginning; O(touched)."""
        for block in self.touched():
            self.weights[self.features.span(block)] = 0.0
        self.last.zero_()
        self.steps.zero_()
        self.stream.copy_(Generator().manual_seed(self.seed).get_state())

    def generator(self) -> Generator:
        """The generator as the state has it; `keep` it after the draws."""
        draws = Generator()
        draws.set_state(self.stream.cpu())
        return draws

    def keep(self, generator: Generator) -> None:
        """Note where the generator is."""
        self.stream.copy_(generator.get_state())

    @abstractmethod
    def current(self, block: int) -> Tensor:
        """(|b|, K) the weights of a block as they are now."""

    @torch.no_grad()
    def image(self, x: Tensor) -> Tensor:
        """(N, W) -> (N, K): Φ times the weights, in the dtype of x; O(N (W + K)) a touched feature, and no other."""
        total = x.new_zeros(len(x), self.weights.shape[1])
        for block in self.touched():
            total.addmm_(self.features.block(x, block), self.current(block).to(x.dtype))
        return total

    @torch.no_grad()
    def mean(self, x: Tensor) -> Tensor:
        """(N, W) -> (N, T): Φμ, in the dtype of x. Touched blocks only, since the others are 0."""
        total = x.new_zeros(len(x), self.columns)
        for block in self.touched():
            total.addmm_(self.features.block(x, block), self.current(block)[:, : self.columns].to(x.dtype))
        return total

    def prior(self, block: int) -> Tensor:
        """(|b|,) the diagonal of S_bb."""
        if type(self.features).precision is Features.precision:  # S = I: do not make a block of it
            span = self.features.span(block)
            return torch.ones(span.stop - span.start, dtype=FLOAT, device=self.weights.device)
        return self.features.precision(block, block).diagonal().to(FLOAT)

    def held(self, columns: int) -> list[int]:
        """Blocks whose rows of a covariance are computed one by one: those touched, and those of the dense columns;
        all of them where the others are not random features, of which nothing is known on average."""
        if not isinstance(self.features, Fourier):
            return list(range(self.features.blocks))
        return sorted({*self.touched(), *range(-(-columns // self.features.width))})

    def below(self, block: int, columns: int) -> Tensor | None:
        """(|b|, k) 1 below the diagonal of the first k columns and 0 elsewhere; None where a block is all below."""
        span = self.features.span(block)
        if span.start >= columns:
            return None
        ones = self.weights.new_ones(span.stop - span.start, columns)
        return ones.tril(diagonal=span.start - 1)
