"""A bounded sample of a stream's windows, in raw units, that prefers recent ones and knows what each stands for.

Row i gets the key log e_i − i/τ, e_i ~ Exp(1), and the C smallest keys are kept: a weighted sample without
replacement (Efraimidis & Spirakis 2006) whose weights w_i = exp(−(n − i)/τ) need no rescaling as the stream continues
(forward decay, Cormode et al. 2009). With κ the smallest rejected e_i/w_i, a row is kept with probability
π_i = 1 − exp(−w_i κ) given the others, so that w_i/π_i is its share in an unbiased estimate of any sum over the stream
that forgets with τ (Cohen & Kaplan 2007, bottom-k sketches). Without forgetting (τ = ∞) it is a uniform sample.

The functions here take the memories of K streams, tensors with a leading axis K; `Reservoir` is the module of one, and
calls them with K = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeAlias

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.online.stacked import Stacked

WINDOWS = ("past", "future", "y")
"""The parts that hold windows and truths: most of the bytes, of which a batch changes few."""
KEYS = ("key", "arrival", "seen", "threshold")
"""The other parts."""
EMPTY = 1e6
"""Beyond all keys, which are below 7: log e of the largest e that is drawn. Empty places stand there in their order."""
State: TypeAlias = "dict[str, Tensor]"
"""Of K streams, which is their leading axis."""


class Entered(NamedTuple):
    """Windows that enter, M: the stream (0 to K − 1), the place (0 to C − 1) and the index among those offered, of
    each."""

    series: Tensor
    places: Tensor
    rows: Tensor


def fresh(capacity: int, shape: Shape) -> State:
    """The memory of one stream before any data: C windows, their keys and arrivals; rows seen, and log κ."""
    return {
        "past": torch.zeros(capacity, shape.lags, len(shape.past), dtype=FLOAT),
        "future": torch.zeros(capacity, shape.horizon, len(shape.future), dtype=FLOAT),
        "y": torch.zeros(capacity, shape.columns, dtype=FLOAT),
        "key": torch.full((capacity,), math.inf, dtype=FLOAT),
        "arrival": torch.zeros(capacity, dtype=FLOAT),
        "seen": torch.zeros((), dtype=FLOAT),
        "threshold": torch.full((), math.inf, dtype=FLOAT),
    }


def rate_of(memory: float | None) -> float:
    """1/τ"""
    return 0.0 if memory is None else 1.0 / memory


def offer(held: State, there: Tensor, rate: float, generator: Generator) -> Entered:
    """Offer windows in the order of their arrival. `KEYS` are replaced; the windows that enter are the caller's to
    write, into the places of those that leave.

    Args:
        held: of K streams.
        there: (K, N) whether a stream has a window at this place.
        rate: 1/τ.
        generator: of the keys.
    """
    capacity = held["key"].shape[1]
    if not there.shape[1]:
        nothing = torch.zeros(0, dtype=torch.long, device=there.device)
        return Entered(nothing, nothing, nothing)
    arrival = held["seen"][:, None] + there.cumsum(1) - 1.0
    draws = torch.empty(there.shape, dtype=FLOAT).exponential_(generator=generator).clamp_min_(1e-300).log_()
    key = torch.where(there, draws.to(arrival) - rate * arrival, torch.inf)
    every = torch.cat((held["key"], key), 1)
    order = torch.where(every.isinf(), EMPTY + torch.arange(every.shape[1], device=every.device), every)
    leaving = order.topk(there.shape[1], dim=1, sorted=False).indices
    stays = torch.ones_like(every, dtype=torch.bool).scatter_(1, leaving, False)
    at = series, places = (~stays[:, :capacity]).nonzero(as_tuple=True)  # as many as enter, stream by stream
    window = stays[:, capacity:].nonzero(as_tuple=True)
    held["threshold"] = torch.minimum(held["threshold"], every.gather(1, leaving).amin(1))
    held["key"] = held["key"].index_put(at, key[window])
    held["arrival"] = held["arrival"].index_put(at, arrival[window])
    held["seen"] = held["seen"] + there.sum(1)
    return Entered(series, places, window[1])


def shares(held: State, rate: float) -> Tensor:
    """(K, C) how many rows of the forgetting stream each place stands for; 0 where it is empty. rate: 1/τ."""
    last = held["seen"][:, None] - 1.0
    share = torch.exp(-rate * (last - held["arrival"]))
    kappa = torch.exp(
        held["threshold"][:, None] + rate * last
    )  # it and w are relative to now: only their product counts
    share = torch.where(kappa.isfinite(), share / -torch.expm1(-share * kappa).clamp(max=-1e-300), share)
    return torch.where(held["key"].isfinite(), share, 0.0)


def ordered(held: State) -> State:
    """States of which the windows are in the order of their arrival, empty places last."""
    order = torch.where(held["key"].isfinite(), held["arrival"], torch.inf).argsort(stable=True, dim=1)
    moved = {name: held[name] for name in (*WINDOWS, "key", "arrival")}
    for name, part in moved.items():
        moved[name] = part.gather(1, order.view(*order.shape, *[1] * (part.dim() - 2)).expand_as(part))
    return held | moved


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
        >>> len(sample.y), bool((sample.y == sample.x.past[:, :, 0] + 1.0).all()), int(reservoir.seen)
        (3, True, 8)
    """

    def __init__(self, capacity: int, shape: Shape, memory: float | None) -> None:
        super().__init__()
        self.capacity, self.rate = capacity, rate_of(memory)
        self.past: Tensor
        self.future: Tensor
        self.y: Tensor
        self.key: Tensor
        self.arrival: Tensor
        self.seen: Tensor
        self.threshold: Tensor
        for name, part in fresh(capacity, shape).items():
            self.register_buffer(name, part)

    def offer(self, x: Inputs, y: Tensor, generator: Generator) -> Offered:
        """Windows in the order of their arrival; y: (N, T)."""
        before = {name: getattr(self, name) for name in KEYS}
        held = {name: part[None] for name, part in before.items()}
        _, places, rows = offer(held, torch.ones(1, len(y), dtype=torch.bool, device=y.device), self.rate, generator)
        windows = [(whole, whole[places]) for whole in (self.past, self.future, self.y)]

        def put_back() -> None:
            for whole, part in windows:
                whole[places] = part
            for name, value in before.items():
                setattr(self, name, value)

        self.past[places], self.future[places], self.y[places] = x.past[rows], x.future[rows], y[rows]
        for name, value in held.items():
            setattr(self, name, value[0])
        return Offered(rows, places, put_back)

    def shares(self) -> Tensor:
        """(C,) how many rows of the forgetting stream each place stands for; 0 where it is empty."""
        return shares({name: getattr(self, name)[None] for name in KEYS}, self.rate)[0]

    def places(self) -> Tensor:
        """(R,) those that are taken, in the order of arrival."""
        filled = torch.isfinite(self.key).nonzero()[:, 0]
        return filled[torch.argsort(self.arrival[filled], stable=True)]

    def sample(self) -> Sample:
        """What is kept, in the order of arrival."""
        index = self.places()
        return Sample(Inputs(self.past[index], self.future[index]), self.y[index], self.shares()[index], index)


class StackedReservoir(Reservoir):
    """The reservoirs of K series of a fleet, whose windows stay where the states of all series are.

    Args:
        capacity: C.
        shape: of the windows.
        memory: τ, as of `Reservoir`.

    Attributes:
        key, arrival, seen, threshold: (K, ...) of these series.
        series: the states of all; its windows are "memory.past", "memory.future" and "memory.y".
        codes: (K,) of the series.
    """

    NOT_STATE: ClassVar = {"entered": "windows that are being learned"}

    def __init__(self, capacity: int, shape: Shape, memory: float | None) -> None:
        super().__init__(capacity, shape, memory)
        self.series: Stacked
        self.codes: Tensor
        self.entered: tuple[Entered, Inputs, Tensor] | None = None

    def offer(self, x: Inputs, y: Tensor, generator: Generator) -> Offered:
        """Windows (K, N, ...) and truths (K, N, T), of which `keep` writes those that enter; a row without a truth is
        none."""
        held = self._keys()
        entered = offer(held, torch.isfinite(y).any(2), self.rate, generator)
        self.entered = entered, x, y
        for name, value in held.items():
            setattr(self, name, value)
        return Offered(entered.rows, entered.places, lambda: None)

    def keep(self, well: Tensor) -> None:
        """Write the windows that entered the reservoirs of some of the K series. well: (K,) whether of one."""
        if self.entered is None:
            return
        (series, places, rows), x, y = self.entered
        some, self.entered = well[series], None
        series, places, rows = series[some], places[some], rows[some]
        for name, part in zip(WINDOWS, (x.past, x.future, y), strict=True):
            self.series.write(f"memory.{name}", (self.codes[series], places), part[series, rows])

    def shares(self) -> Tensor:
        """(K, C), as of one."""
        return shares(self._keys(), self.rate)

    def sample(self) -> Sample:
        """What was kept, (K, C) in the order of arrival; NaN where a place is empty."""
        held = self.series.take(self.codes, [f"memory.{name}" for name in WINDOWS])
        held = ordered({name.removeprefix("memory."): part for name, part in held.items()} | self._keys())
        empty = ~held["key"].isfinite()
        for name in WINDOWS if bool(empty.any()) else ():
            held[name][empty] = torch.nan
        return Sample(Inputs(held["past"], held["future"]), held["y"], shares(held, self.rate), held["arrival"])

    def _keys(self) -> State:
        return {name: getattr(self, name) for name in KEYS}
