"""Partly shared bases (Cheng & Boots 2017, appendix A.2): the first M_β functions of the mean are the covariance's.

Their points are learned once, by the gradients of both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.training.decoupled import GrowingBasis


class PartlyShared(GrowingBasis):
    """β's points, then own ones, which are added once β is full: places of the first are those of β.

    Args:
        own: the other M_α − M_β functions, before any data.
        beta: the covariance's basis, with functions of the same kind.
    """

    def __init__(self, own: GrowingBasis, beta: GrowingBasis) -> None:
        super().__init__(beta.capacity + own.capacity, 0)
        del self.points, self.count
        self.own, self._beta = own, (beta,)  # in a tuple: its parameters belong to who has both

    @property
    def shared(self) -> GrowingBasis:
        """β."""
        return self._beta[0]

    @property
    def size(self) -> int:
        """Points in use, of both kinds."""
        return self.shared.size + self.own.size

    @property
    def active(self) -> Tensor:
        """(count, stored)"""
        return torch.cat((self.shared.active, self.own.active))

    def cross(self, x: Tensor, lengthscale: Tensor) -> Tensor:
        """(N, d) -> (N, count)"""
        return self.own.cross_of(x, self.active, lengthscale)

    def gram(self, lengthscale: Tensor, index: Tensor | None = None) -> Tensor:
        """(count, count), or (count, k)."""
        active = self.active
        return self.own.gram_of(active, active if index is None else active[index], lengthscale)

    def between(self, other: GrowingBasis, lengthscale: Tensor) -> Tensor:
        """(count, other's count)"""
        return self.own.gram_of(self.active, other.active, lengthscale)

    @torch.no_grad()
    def add(self, x: Tensor) -> Tensor:
        """Append own rows, once β is full. x: (k, d). Returns the new places, (<= k,)."""
        if self.shared.room:
            return torch.arange(0, device=x.device)
        return self.own.add(x) + self.shared.size

    def rows(self, places: Tensor) -> Tensor:
        """Those of its own among the places, as rows of its own parameters."""
        return places[places >= self.shared.size] - self.shared.size

    @torch.no_grad()
    def put(self, places: Tensor, x: Tensor) -> None:
        """Write rows over points of its own. x: (k, d)."""
        self.own.put(places - self.shared.size, x)
        self.use[places] = self.use[: self.size].mean()

    def least(self, places: int, weight: Tensor | None = None) -> Tensor:
        """The least used places of its own; those of β are β's to give up."""
        mine = slice(self.shared.size, self.size)
        worth = self.use[mine] if weight is None else self.use[mine] * weight[mine]
        return torch.argsort(worth, stable=True)[:places] + self.shared.size
