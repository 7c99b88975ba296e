"""Weights of very many features, of which a step moves a few blocks and nothing looks at the others.

Nothing here costs O(m) but the memory that is reserved, which an operating system hands out as it is written to, and
the scan of B step counts before a prediction. Φ times the first K' columns of the weights is kept for the support rows.

Shapes: R rows, W columns of an input, m features in B blocks, T target columns, K columns of weights.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT
from streamgp.features import Features
from streamgp.papers.qsgp.rows import SampledRows
from streamgp.regression.dual_descent import reserved


class SampledWeights(nn.Module):
    """(m, K) weights: T columns of means, and more of whatever goes with them. The buffers are the state.

    Args:
        features: Φ and S.
        columns: T.
        total: K.
        followed: K', columns whose Φ-image is kept for the support rows.
        support: n̄, rows that it is kept for.
        seed: of all draws.
        dtype: of the weights, and of features while learning.

    Attributes:
        weights: (capacity, K); a block that was never stepped is 0 exactly.
        last: (blocks,) int64, 1 + the number of the step that was the last on each block; 0: never stepped.
        steps: () int64, steps taken.
        stream: state of the generator that all draws come from.
    """

    def __init__(
        self,
        features: Features,
        columns: int,
        total: int,
        followed: int,
        support: int,
        seed: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.features, self.columns, self.total, self.followed = features, columns, total, followed
        self.support, self.seed, self.dtype = support, seed, dtype
        self.weights: Tensor
        self.last: Tensor
        self.steps: Tensor
        self.stream: Tensor
        self.register_buffer("weights", reserved((features.capacity, total), dtype))
        self.register_buffer("last", torch.zeros(features.most, dtype=torch.int64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("stream", Generator().manual_seed(seed).get_state())

    @property
    def shown(self) -> Features:
        """The features that the image of the support rows is of."""
        return self.features

    def touched(self) -> list[int]:
        """Blocks that were ever stepped; O(B)."""
        found: list[int] = self.last.nonzero()[:, 0].tolist()
        return found

    def forget(self, *more: Tensor) -> None:
        """Back to the start, in the weights and in other buffers of a row a feature; O(touched)."""
        for block in self.touched():
            span = self.features.reach(block)
            for buffer in (self.weights, *more):
                buffer[span] = 0.0
        self.last.zero_()
        self.steps.zero_()
        self.stream.copy_(Generator().manual_seed(self.seed).get_state())

    def _restart(self) -> None:
        """The image of the support rows is about to be computed from scratch."""

    @torch.no_grad()
    def rows(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> SampledRows:
        """Take up rows; O(R) before the first step, and O(n̄ m_touched) after.

        Args:
            x: (R, W)
            y: (R, T), NaN = not observed.
            weight: (R,) rows that each stands for; 1 if left out.
        """
        own = y.new_ones(len(y)) if weight is None else weight
        rows = SampledRows(x, y, own, self.dtype, self.support, self.followed)
        rows.residual.fill_(torch.nan)
        self.renew(rows)
        return rows

    @torch.no_grad()
    def renew(self, rows: SampledRows) -> None:
        """Draw the support rows again, and compute a from scratch; O(n̄ m_touched)."""
        generator = self._generator()
        places = rows.renew(generator)
        self.stream.copy_(generator.get_state())
        self._restart()
        rows.fit[: len(places)] = self.images(rows.x[places], self.shown).to(FLOAT)

    @torch.no_grad()
    def put(self, rows: SampledRows, places: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> None:
        """Replace rows in place; O(m_touched) for those that are, or become, support rows, and O(1) for others.

        Args:
            rows: of which some are replaced.
            places: (P,) which.
            x: (P, W)
            y: (P, T), NaN = not observed.
            weight: (P,)
        """
        rows.replace(places, x, y, weight, torch.full_like(y, torch.nan))
        slots, came = rows.replaced(places)
        if len(slots):
            rows.fit[slots] = self.images(rows.x[places[came]], self.shown).to(FLOAT)

    @torch.no_grad()
    def images(self, x: Tensor, features: Features | None = None) -> Tensor:
        """(N, W) -> (N, K'): Φ times the weights; O(N (W + K')) a touched feature."""
        x, features = x.to(self.dtype), features or self.features
        total = x.new_zeros(len(x), self.followed)
        for block in self.touched():
            total.addmm_(features.block(x, block), self.weights[features.span(block), : self.followed])
        return total

    def heads(self, x: Tensor, k: int, features: Features | None = None) -> Tensor:
        """(N, W) -> (N, k): the first features, those of the dense columns, in the dtype of x."""
        features = features or self.features
        blocks = range(-(-k // features.width))
        return torch.cat([x.new_zeros(len(x), 0), *(features.block(x, b) for b in blocks)], 1)[:, :k]

    def prior(self, block: int) -> Tensor:
        """(|b|,) the diagonal of S_bb."""
        if self.features.diagonal_precision:  # S = I: do not make a block of it
            span = self.features.span(block)
            return torch.ones(span.stop - span.start, dtype=FLOAT, device=self.weights.device)
        return self.features.precision(block, block).diagonal().to(FLOAT)

    def below(self, block: int, k: int) -> Tensor | None:
        """(|b|, k) 1 below the diagonal of the dense columns and 0 elsewhere; None where a block is all below."""
        span = self.features.span(block)
        if span.start >= k:
            return None
        return self.weights.new_ones(span.stop - span.start, k).tril(diagonal=span.start - 1)

    def _generator(self) -> Generator:
        draws = Generator()
        draws.set_state(self.stream.cpu())
        return draws
