"""A bounded reservoir of standardised rows, to be learned again beside the new ones."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn


class Replay(nn.Module):
    """At most C rows of a stream.

    Every row enters with probability C/min(n, memory) and takes a random place, so that without a memory the rows
    are a uniform sample of all n rows seen (Vitter 1985), and with one their ages are geometric with that mean
    (Aggarwal 2006).

    Attributes:
        x: (C, width)
        y: (C, T), NaN = not observed.
        count: () int64, places taken.
        seen: () int64, rows offered.
    """

    def __init__(self, capacity: int, width: int, columns: int) -> None:
        super().__init__()
        self.x: Tensor
        self.y: Tensor
        self.count: Tensor
        self.seen: Tensor
        self.register_buffer("x", torch.zeros(capacity, width, dtype=torch.float64))
        self.register_buffer("y", torch.zeros(capacity, columns, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def offer(self, x: Tensor, y: Tensor, memory: int | None, generator: Generator) -> None:
        """Rows in the order of their arrival. x: (N, width), y: (N, T)."""
        capacity, count = self.x.shape[0], int(self.count)
        free = min(capacity - count, x.shape[0])
        self.x[count : count + free], self.y[count : count + free] = x[:free], y[:free]
        self.count += free
        late = x.shape[0] - free
        if late:
            n = int(self.seen) + free + torch.arange(1, late + 1)
            if memory is not None:
                n = n.clamp(max=max(memory, capacity))
            enters = torch.rand(late, generator=generator, dtype=torch.float64) < capacity / n
            rows = enters.nonzero()[:, 0]
            places = torch.randint(capacity, (rows.numel(),), generator=generator)
            for place, row in zip(places.tolist(), rows.tolist(), strict=True):  # a later row may take an earlier one's
                self.x[place], self.y[place] = x[free + row], y[free + row]
        self.seen += x.shape[0]

    def draw(self, rows: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """`rows` distinct rows at random, or all if there are fewer."""
        index = torch.randperm(int(self.count), generator=generator)[:rows].to(self.x.device)
        return self.x[index], self.y[index]
