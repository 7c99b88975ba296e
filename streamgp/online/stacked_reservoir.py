"""The reservoirs of many series at once; see `reservoir`."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.online.stacked import Packed
from streamgp.online.stacked_units import StackedRows, State

WINDOWS = ("past", "future", "y")
"""The parts of a state that hold windows and truths: most of its bytes, of which a batch changes few."""


class Entered(NamedTuple):
    """Windows that enter reservoirs: whose, (M,) among the series; where, (M,); which row of the batch, (M,)."""

    series: Tensor
    place: Tensor
    row: Tensor


class StackedReservoir:
    """At most C windows of each of K series.

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

    def offer(self, packed: Packed, held: State, generator: Generator) -> Entered:
        """Offer windows to the reservoirs of their series; see `Reservoir.offer`. Keys, times and counts change in
        place; the windows that enter are the caller's to write, into the places of those that leave."""
        there, rooms = packed.there, self.capacity
        arrival = held["seen"][:, None] + there.cumsum(1) - 1.0
        draws = torch.empty(there.shape, dtype=FLOAT).exponential_(generator=generator).clamp_min_(1e-300)
        key = draws.log_().to(arrival) - self.rate * arrival
        every = torch.cat([held["key"], torch.where(there, key, torch.inf)], 1)
        ordered = every.sort(1)
        stays = torch.zeros_like(every, dtype=torch.bool).scatter_(1, ordered.indices[:, :rooms], True)
        held["threshold"] = torch.minimum(held["threshold"], ordered.values[:, rooms])
        series, place = (~stays[:, :rooms]).nonzero(as_tuple=True)  # as many as enter, series by series
        window = stays[:, rooms:].nonzero(as_tuple=True)
        held["key"][series, place] = every[:, rooms:][window]
        held["arrival"][series, place] = arrival[window]
        held["seen"] = held["seen"] + packed.counts
        return Entered(series, place, packed.rows[window])

    def ordered(self, held: State) -> State:
        """States of which the windows are in the order of their arrival, empty places last."""
        order = torch.where(held["key"].isfinite(), held["arrival"], torch.inf).argsort(stable=True, dim=1)
        found = dict(held)
        for name in (*WINDOWS, "key", "arrival"):
            part = held[name]
            found[name] = part.gather(1, order.view(*order.shape, *[1] * (part.dim() - 2)).expand_as(part))
        return found

    def sample(self, held: State) -> StackedRows:
        """What `ordered` reservoirs keep; see `Reservoir.shares`."""
        last = held["seen"][:, None] - 1.0
        share = torch.exp(-self.rate * (last - held["arrival"]))
        kappa = torch.exp(held["threshold"][:, None] + self.rate * last)
        share = torch.where(kappa.isfinite(), share / -torch.expm1(-share * kappa).clamp(max=-1e-300), share)
        weight = torch.where(held["key"].isfinite(), share, 0.0)
        x = Inputs(held["past"].flatten(0, 1), held["future"].flatten(0, 1))
        return StackedRows(x, torch.where(weight[..., None] > 0, held["y"], torch.nan), weight)
