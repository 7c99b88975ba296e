"""A set of basis points that grows to its maximum, and then gives places to newer points."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from streamgp.models.svdgp.decoupled import Basis


class GrowingBasis(nn.Module):
    """Up to M basis points, allocated at M with a count.

    Attributes:
        points: (M, d) learned; the rows from `count` on are not in use.
        log_widths: (M, d) learned log c of the generalised kernel, or None where every c is 1.
        count: () int64, points in use.
        use: (M,) running mean of the squared correlation with the rows that were learned; what it names least is
            given up first.
    """

    def __init__(self, size: int, width: int, own_widths: bool) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.zeros(size, width, dtype=torch.float64))
        self.log_widths = nn.Parameter(torch.zeros(size, width, dtype=torch.float64)) if own_widths else None
        self.count: Tensor
        self.use: Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("use", torch.zeros(size, dtype=torch.float64))

    @property
    def size(self) -> int:
        """Points in use."""
        return int(self.count)

    @property
    def room(self) -> int:
        """Points that may still be added."""
        return self.points.shape[0] - self.size

    @property
    def active(self) -> Basis:
        """The points in use."""
        widths = None if self.log_widths is None else self.log_widths[: self.size]
        return Basis(self.points[: self.size], widths)

    @torch.no_grad()
    def add(self, x: Tensor) -> Tensor:
        """Append rows, as many as there is room for, with c = 1. x: (k, d). Returns the new places, (<= k,)."""
        places = torch.arange(self.size, self.size + min(x.shape[0], self.room), device=x.device)
        self.count += places.numel()
        self.put(places, x[: places.numel()])
        return places

    @torch.no_grad()
    def put(self, places: Tensor, x: Tensor) -> None:
        """Write rows over the points at `places`, with c = 1."""
        self.points[places] = x
        if self.log_widths is not None:
            self.log_widths[places] = 0.0
        self.use[places] = self.use[: self.size].mean() if self.size else 0.0

    @torch.no_grad()
    def observe(self, correlations: Tensor, decay: float) -> None:
        """Follow which points the rows make use of. correlations: (N, count) of `models.svdgp.decoupled.cross`."""
        self.use[: self.size].lerp_(correlations.square().mean(0), 1.0 - decay)
