"""Rows that mini-batches are drawn of, and the support rows of the control variates among them.

A row costs nothing until it is drawn: no residual is kept. Φμ is known on the support rows p alone, as the running
a = Φ_pμ of proposition 3, which whoever moves μ keeps true.

Shapes: R rows, n̄ support rows at most, T target columns, K = T + k columns of weights.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.kernels import Kernel
from streamgp.linalg.cholesky import cholesky
from streamgp.regression.block_rows import BlockRows

FREE = -1
"""Place of a support row that there is none of yet."""
JITTER = 1e-4
"""Of the support rows' Gram matrix. A control variate has expectation 0 whatever matrix it is made with."""


class SampledRows(BlockRows):
    """See the module; arguments as of `BlockRows`, and the numbers n̄ of support rows and K of columns.

    Attributes:
        support: (n̄,) int64 places of the support rows, `FREE` where there is none.
        fit: (n̄, K) float64 a = Φ_pμ, at the features at which it was started.

    Example:
        >>> x = torch.zeros(5, 1)
        >>> rows = SampledRows(x, torch.ones(5, 1), torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0]), torch.float32, 3, 1)
        >>> rows.renew(torch.Generator().manual_seed(0)).tolist(), rows.places().tolist()
        ([0, 2, 4], [0, 2, 3, 4])
    """

    def __init__(self, x: Tensor, y: Tensor, weight: Tensor, dtype: torch.dtype, support: int, columns: int) -> None:
        super().__init__(x, y, weight, dtype)
        self.support: Tensor
        self.fit: Tensor
        self.register_buffer("support", torch.full((support,), FREE, dtype=torch.int64, device=x.device))
        self.register_buffer("fit", torch.zeros(support, columns, dtype=FLOAT, device=x.device))

    def changed(self) -> None:
        super().changed()
        self._root: Tensor | None = None
        self._places: Tensor | None = None
        self._count: Tensor | None = None

    def places(self) -> Tensor:
        """(P,) rows that have a weight; found again only when rows or weights change."""
        if self._places is None:
            own = self.weight if self.weight.ndim == 1 else self.weight.sum(1)
            self._places = (own > 0).nonzero()[:, 0]
        return self._places

    @property
    def count(self) -> Tensor:
        """(T,) rows that each column stands for."""
        if self._count is None:
            self._count = self.total()
        return self._count

    @property
    def held(self) -> Tensor:
        """(n̄',) places of the support rows that there are."""
        return self.support[self.support >= 0]

    @property
    def known(self) -> Tensor:
        """(n̄', K) a, of the support rows that there are."""
        return self.fit[self.support >= 0]

    def root(self, kernel: Kernel) -> Tensor:
        """(n̄', n̄') L with LLᵀ = K_pp + a little, of the support rows; found again when rows change: O(n̄³)."""
        if self._root is None:
            x = self.x[self.held].to(FLOAT)
            gram = kernel(x, x)
            gram.diagonal().add_(JITTER * gram.diagonal().mean())
            self._root = cholesky(gram).lower
        return self._root

    def draw(self, count: int, generator: Generator) -> Tensor:
        """(count,) places with a weight, uniformly with replacement."""
        places = self.places()
        return places[torch.randint(len(places), (count,), generator=generator).to(places.device)]

    def renew(self, generator: Generator) -> Tensor:
        """Draw the support rows again; their a is void. Returns their places."""
        places = self.places()
        if len(places) > len(self.support):
            order = torch.randperm(len(places), generator=generator).to(places.device)
            places = places[order[: len(self.support)]].sort().values
        self.support.fill_(FREE)
        self.support[: len(places)] = places
        self.fit.zero_()
        self._root = None
        return places

    def replaced(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Support rows for rows that came in at these places, where they replace one or one is free.

        Returns:
            (P,), (P,): numbers of support rows whose a is void, and which of `places` stand there.
        """
        equal = self.support[:, None] == places[None]
        slots, came = equal.nonzero(as_tuple=True)
        free = (self.support == FREE).nonzero()[:, 0]
        fresh = (~equal.any(0)).nonzero()[:, 0][: len(free)]
        free = free[: len(fresh)]
        self.support[free] = places[fresh]
        self._root = None
        return torch.cat((slots, free)), torch.cat((came, fresh))

    def precision(self, places: Tensor, noise: Tensor, of: int) -> Tensor:
        """(P, T): rows that each of these places stands for, over σ_t². noise: (T,); of: places that they stand for."""
        own = self.weight[places]
        own = (own if own.ndim == 2 else own[:, None]) * self.observed[places]
        return own * (of / max(len(places), 1)) / noise
