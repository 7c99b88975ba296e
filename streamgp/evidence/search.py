"""Hyper-parameters of a grouped radial kernel over the life of a stream: where a search starts, and when there is none.

The first search starts from the default, or from hyper-parameters that were found before. Every later one starts from
the last hyper-parameters and from the default, and the better evidence wins: a first batch with little signal can send
the outputscale to 0 and the noise to 1, where the gradient is nothing and a search from there alone would stay. Where
the last hyper-parameters lead to a clear signal, Adam leaves the default out (`thinned.by_adam`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from streamgp.base import Json
from streamgp.evidence.initial import Initial
from streamgp.evidence.thinned import Evaluation, LogHyper, Profile, by_adam, smooth
from streamgp.state import fitting


class Strategy(Protocol):
    """Takes the best of several searches, `thinned.by_lbfgs` and `thinned.by_adam`."""

    def __call__(
        self, x: Tensor, y: Tensor, groups: Tensor, starts: Sequence[tuple[LogHyper, int]], *, profile: Profile
    ) -> Evaluation:
        """Arguments as of `thinned.by_lbfgs`."""


class Way(NamedTuple):
    """How hyper-parameters are searched.

    Attributes:
        method: the optimiser.
        starts: groups -> the default starts.
        steps, further: of the optimiser, at first and from others.
    """

    method: Strategy
    starts: Callable[[int], Sequence[LogHyper]]
    steps: int
    further: int


ADAM = Way(by_adam, lambda groups: [LogHyper.start(groups)], steps=60, further=30)


def thinned(rows: int, horizon: int, most: int, device: torch.device) -> Tensor:
    """Indices of the rows that estimate hyper-parameters, evenly spread: about three a horizon, at least 60.

    Example:
        >>> thinned(5, 1, 400, torch.device("cpu")).tolist()
        [0, 1, 2, 3, 4]
    """
    count = min(max(3 * rows // horizon, 60), most, rows)
    return torch.linspace(0, rows - 1, count, device=device).round().long()


class Search:
    """See the module; Stateful parts are `hyper` and `found`, which the owner keeps.

    Args:
        groups: G, groups of columns that share a lengthscale.
        once: whether hyper-parameters are estimated once, and those of a file not at all.
        way: optimiser and default starts.

    Attributes:
        hyper: the hyper-parameters of now.
        found: whether they were estimated.
        initial: hyper-parameters of a file to start from.
    """

    def __init__(self, groups: int, once: bool, way: Way = ADAM) -> None:
        self.groups, self.once, self.way = groups, once, way
        self.forget()
        self.initial: Initial | None = None

    def forget(self) -> None:
        """Be as before the first search."""
        self.hyper, self.found = self.way.starts(self.groups)[0], False

    @property
    def signal(self) -> float:
        """ρ²/σ²."""
        return self.hyper.signal

    def run(
        self, z: Tensor, y: Tensor, groups: Tensor, scale: Tensor, target_scale: Tensor, profile: Profile = smooth
    ) -> LogHyper:
        """The hyper-parameters for rows of now.

        Args:
            z, y: (n, W), (n, T) thinned standardised rows and targets; NaN counts as the mean.
            groups: (W,) the group of each column.
            scale, target_scale: (G,), (T,) what a standardised unit of channels and targets is.
            profile: of the kernel.

        Raises:
            NotPositiveDefinite: the rows are not finite.
        """
        starts: list[tuple[LogHyper, int]] = []
        if self.initial is not None and (self.once or not self.found):
            self.hyper = self.initial.hyper(scale, target_scale)
            starts = [] if self.once else [(self.hyper, self.way.further)]
        elif not self.found:
            starts = [(start, self.way.steps) for start in self.way.starts(self.groups)]
        elif not self.once:
            starts = [(start, self.way.further) for start in (self.hyper, *self.way.starts(self.groups))]
        if starts:
            self.hyper = self.way.method(z, torch.nan_to_num(y), groups, starts, profile=profile).hyper
        self.found = True
        return self.hyper

    def held(self) -> tuple[LogHyper, bool]:
        """What `put_back` takes."""
        return self.hyper, self.found

    def put_back(self, held: tuple[LogHyper, bool]) -> None:
        """The inverse of `held`."""
        self.hyper, self.found = held

    def pack(self) -> Tensor:
        """(G + 3,) everything that changes."""
        return torch.cat((self.hyper.pack(), self.hyper.noise.new_tensor([float(self.found)])))

    def unpack(self, packed: Tensor) -> None:
        """The inverse of `pack`."""
        self.hyper, self.found = LogHyper.unpack(packed[:-1].clone()), bool(packed[-1])


@dataclass(frozen=True)
class SearchState:
    """The field of a declaration for the search that an attribute names; its key is "hyper"."""

    name: str

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tensors["hyper"] = self._of(owner).pack()

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        found = fitting("hyper", tensors.pop("hyper", None), self._of(owner).pack())
        return lambda: self._of(owner).unpack(found)

    def _of(self, owner: object) -> Search:
        found = getattr(owner, self.name)
        assert isinstance(found, Search)
        return found
