"""The reservoirs of many series at once; see `reservoir`."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.online.stacked import Packed
from streamgp.online.stacked_units import Rows, State


class StackedReservoir:
    """At most C windows of each of K series, in the order of their arrival.

    Args:
        capacity: C.
        shape: of the windows.
        memory: rows after which a window counts 1/e; None never forgets.
    """

    def __init__(self, capacity: int, shape: Shape, memory: float | None) -> None:
        self.capacity, self.shape = capacity, shape
        self.rate = 0.0 if memory is None else 1.0 / memory

    def fresh(self) -> State:
        """Of a series before any data."""
        shape, rooms = self.shape, self.capacity
        found = {
            "past": torch.zeros(rooms, shape.lags, len(shape.past)),
            "future": torch.zeros(rooms, shape.horizon, len(shape.future)),
            "y": torch.zeros(rooms, shape.columns),
            "key": torch.full((rooms,), math.inf),
            "arrival": torch.zeros(rooms),
            "seen": torch.zeros(()),
            "threshold": torch.full((), math.inf),
        }
        return {name: part.to(FLOAT) for name, part in found.items()}

    def offer(self, packed: Packed, held: State, x: Inputs, y: Tensor, generator: Generator) -> None:
        """Offer windows to the reservoirs of their series, in place; see `Reservoir.offer`."""
        rows, there = packed.rows, packed.there
        arrival = held["seen"][:, None] + there.cumsum(1) - 1.0
        draws = torch.empty(there.shape, dtype=FLOAT).exponential_(generator=generator).clamp_min_(1e-300)
        key = draws.log_().to(arrival) - self.rate * arrival
        every = torch.cat([held["key"], torch.where(there, key, torch.inf)], 1)
        ordered = every.sort(1)
        kept = ordered.indices[:, : self.capacity].sort(1).values
        held["threshold"] = torch.minimum(held["threshold"], ordered.values[:, self.capacity])
        for name, new in (("past", x.past[rows]), ("future", x.future[rows]), ("y", y[rows]), ("arrival", arrival)):
            whole = torch.cat([held[name], new], 1)
            index = kept.view(*kept.shape, *[1] * (whole.dim() - 2)).expand(*kept.shape, *whole.shape[2:])
            held[name] = whole.gather(1, index)
        held["key"] = every.gather(1, kept)
        held["seen"] = held["seen"] + packed.counts

    def sample(self, held: State) -> Rows:
        """What the reservoirs keep; see `Reservoir.shares`."""
        last = held["seen"][:, None] - 1.0
        share = torch.exp(-self.rate * (last - held["arrival"]))
        kappa = torch.exp(held["threshold"][:, None] + self.rate * last)
        share = torch.where(kappa.isfinite(), share / -torch.expm1(-share * kappa).clamp(max=-1e-300), share)
        weight = torch.where(held["key"].isfinite(), share, 0.0)
        x = Inputs(held["past"].flatten(0, 1), held["future"].flatten(0, 1))
        return Rows(x, torch.where(weight[..., None] > 0, held["y"], torch.nan), weight)
