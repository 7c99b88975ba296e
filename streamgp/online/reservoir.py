"""A bounded sample of a stream's windows, in raw units, that prefers recent ones and knows what each stands for.

Row i gets the key log e_i − i/τ, e_i ~ Exp(1), and the C smallest keys are kept: a weighted sample without
replacement (Efraimidis & Spirakis 2006) whose weights w_i = exp(−(n − i)/τ) need no rescaling as the stream goes on
(forward decay, Cormode et al. 2009). With κ the smallest rejected e_i/w_i, a row is kept with probability
π_i = 1 − exp(−w_i κ) given the others, so that w_i/π_i is its share in an unbiased estimate of any sum over the stream
that forgets with τ (Cohen & Kaplan 2007, bottom-k sketches). Without forgetting (τ = ∞) it is a uniform sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Inputs, Shape


class Sample(NamedTuple):
    """Kept windows in the order of their arrival.

    Attributes:
        x: R windows, raw units.
        y: (R, T) raw units, NaN = not observed.
        weight: (R,) how many rows of the forgetting stream each stands for.
        places: (R,) where the memory keeps them.
    """

    x: Inputs
    y: Tensor
    weight: Tensor
    places: Tensor


class Offered(NamedTuple):
    """What became of N windows that were offered to a memory.

    Attributes:
        rows: (B,) those that it keeps.
        places: (B,) where.
        put_back: makes the memory what it was before, as long as nothing else was offered.
    """

    rows: Tensor
    places: Tensor
    put_back: Callable[[], None]


class Reservoir(nn.Module):
    """At most C windows of a stream.

    Args:
        capacity: C.
        shape: of the windows.
        memory: τ, rows after which a window counts 1/e; None never forgets.

    Example:
        >>> reservoir = Reservoir(3, Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=()), memory=None)
        >>> x = Inputs(torch.arange(8.0).double().view(8, 1, 1), torch.zeros(8, 1, 0).double())
        >>> _ = reservoir.offer(x, x.past[:, :, 0] + 1.0, torch.Generator().manual_seed(0))
        >>> sample = reservoir.sample()
        >>> len(sample.y), bool((sample.y == sample.x.past[:, :, 0] + 1.0).all()), reservoir.seen.item()
        (3, True, 8)
    """

    def __init__(self, capacity: int, shape: Shape, memory: float | None) -> None:
        super().__init__()
        self.rate = 0.0 if memory is None else 1.0 / memory
        self.past: Tensor
        self.future: Tensor
        self.y: Tensor
        self.key: Tensor
        self.arrival: Tensor
        self.count: Tensor
        self.seen: Tensor
        self.threshold: Tensor
        self.register_buffer("past", torch.zeros(capacity, shape.lags, len(shape.past), dtype=FLOAT))
        self.register_buffer("future", torch.zeros(capacity, shape.horizon, len(shape.future), dtype=FLOAT))
        self.register_buffer("y", torch.zeros(capacity, shape.columns, dtype=FLOAT))
        self.register_buffer("key", torch.full((capacity,), math.inf, dtype=FLOAT))
        self.register_buffer("arrival", torch.zeros(capacity, dtype=torch.int64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("threshold", torch.full((), math.inf, dtype=FLOAT))

    @property
    def capacity(self) -> int:
        """C."""
        return len(self.key)

    def offer(self, x: Inputs, y: Tensor, generator: Generator) -> Offered:
        """Windows in the order of their arrival; y: (N, T)."""
        rows, capacity = len(y), self.capacity
        arrival = int(self.seen) + torch.arange(rows, device=y.device)
        draws = torch.empty(rows, dtype=FLOAT).exponential_(generator=generator).clamp_min_(1e-300).log_()
        key = draws.to(y.device) - self.rate * arrival.to(FLOAT)
        every = torch.cat((self.key, key))
        order = torch.argsort(every, stable=True)
        kept = order[:capacity]
        numbers = [(value, value.clone()) for value in (self.count, self.seen, self.threshold)]
        if bool(torch.isfinite(every[order[capacity:]]).any()):
            self.threshold.copy_(torch.minimum(self.threshold, every[order[capacity]]))
        stays = torch.zeros(capacity, dtype=torch.bool, device=y.device)
        stays[kept[kept < capacity]] = True
        incoming = torch.sort(kept[kept >= capacity] - capacity).values
        places = (~stays).nonzero()[:, 0][: len(incoming)]
        held = [(whole, whole[places]) for whole in (self.past, self.future, self.y, self.key, self.arrival)]

        def put_back() -> None:
            for whole, part in held:
                whole[places] = part
            for value, before in numbers:
                value.copy_(before)

        self.past[places], self.future[places] = x.past[incoming], x.future[incoming]
        self.y[places], self.key[places], self.arrival[places] = y[incoming], key[incoming], arrival[incoming]
        self.count.fill_(min(int(self.count) + rows, capacity))
        self.seen += rows
        return Offered(incoming, places, put_back)

    def shares(self) -> Tensor:
        """(C,) how many rows of the forgetting stream each place stands for; 0 where it is empty."""
        age = (self.seen - 1 - self.arrival).to(FLOAT)
        share = torch.exp(-self.rate * age)
        if math.isfinite(float(self.threshold)):  # κ and w are both relative to now: only their product matters
            kappa = torch.exp(self.threshold + self.rate * (self.seen - 1).to(FLOAT))
            share = share / -torch.expm1(-share * kappa).clamp(max=-1e-300)
        return torch.where(torch.isfinite(self.key), share, 0.0)

    def places(self) -> Tensor:
        """(R,) those that are taken, in the order of arrival."""
        filled = torch.isfinite(self.key).nonzero()[:, 0]
        return filled[torch.argsort(self.arrival[filled], stable=True)]

    def sample(self) -> Sample:
        """What is kept, in the order of arrival."""
        index = self.places()
        return Sample(Inputs(self.past[index], self.future[index]), self.y[index], self.shares()[index], index)
