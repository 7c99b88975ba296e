"""What batched forms of many models share: windows side by side, and states with a leading axis of series."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import Inputs, Json
from streamgp.linalg.batched import halved, whole
from streamgp.state import Declared, fitting


class Packed(NamedTuple):
    """Windows of several series, side by side.

    Attributes:
        codes: (K,) of the series.
        rows: (K, N) of the batch; where a series has fewer, its first one again.
        there: (K, N) whether a series has a window at this place.
        even: whether the batch has this order too: side by side, as many of each series.
    """

    codes: Tensor
    rows: Tensor
    there: Tensor
    even: bool = False

    @classmethod
    def of(cls, series: Tensor) -> Packed:
        """series: (R,) codes, the rows of each in their order.

        Example:
            >>> Packed.of(torch.tensor([7, 3, 7])).rows.tolist()
            [[1, 1], [0, 2]]
        """
        count = torch.arange(len(series), device=series.device)
        increasing = bool((series[1:] >= series[:-1]).all())
        order = count if increasing else series.argsort(stable=True)
        codes, counts = (series if increasing else series[order]).unique_consecutive(return_counts=True)
        most = int(counts.max()) if len(counts) else 0
        if increasing and len(codes) * most == len(series):
            rows = count.view(len(codes), most)
            return cls(codes, rows, torch.ones_like(rows, dtype=torch.bool), True)
        there = torch.arange(most, device=series.device) < counts[:, None]
        index = order[counts.cumsum(0) - counts][:, None].repeat(1, most)
        index[there] = order
        return cls(codes, index, there)

    @classmethod
    def alone(cls, x: Inputs) -> Packed:
        """N windows of one series."""
        rows = torch.arange(len(x.past), device=x.past.device)[None]
        return cls(rows.new_zeros(1), rows, torch.ones_like(rows, dtype=torch.bool), True)

    @classmethod
    def by_kind(cls, series: Tensor, kind: Tensor) -> Iterator[tuple[int, Packed]]:
        """The windows of the series of each kind. series, kind: (R,)"""
        for one in kind.unique().tolist():
            own = (kind == one).nonzero()[:, 0]
            packed = cls.of(series[own])
            yield one, cls(packed.codes, own[packed.rows], packed.there)

    @property
    def counts(self) -> Tensor:
        """(K,) windows of each."""
        return self.there.sum(1)

    def some(self, taken: Tensor | slice, windows: slice = slice(None)) -> Packed:
        """Some of the series, and some of the windows of each."""
        return Packed(self.codes[taken], self.rows[taken, windows], self.there[taken, windows])

    def parts(self, most: int) -> Iterator[Packed]:
        """This many of the series at a time."""
        for start in range(0, len(self.codes), max(most, 1)):
            own = self.some(slice(start, start + max(most, 1)))
            yield own.some(slice(None), slice(int(own.counts.max())))

    def laid(self, values: Tensor) -> Tensor:
        """(R, ...) of the batch -> (K, N, ...); a view where that says the same."""
        return values.unflatten(0, self.rows.shape) if self.even else values[self.rows]

    def truths(self, y: Tensor) -> Tensor:
        """(R, ...) of the batch -> (K, N, ...); NaN where a series has no window."""
        laid = self.laid(y)
        if not self.even and not bool(self.there.all()):
            laid[~self.there] = torch.nan  # a copy of `y`
        return laid

    def windows(self, x: Inputs) -> Inputs:
        """R windows without a context -> (K, N, L, D) and (K, N, H, F), as `truths`."""
        return Inputs(self.truths(x.past), self.truths(x.future))

    def back(self, values: Tensor) -> Tensor:
        """(K, N, ...) -> (R, ...), in the order of the batch."""
        if self.even:
            return values.flatten(0, 1)
        found = values.new_empty(int(self.there.sum()), *values.shape[2:])
        found[self.rows[self.there]] = values[self.there]
        return found

    def mean(self, values: Tensor, where: Tensor | None = None) -> Tensor:
        """(K, N, ...) -> (K, ...) the means over the windows that are there and where `where` is true; 0 over none."""
        shown = self._shown(values.dim())
        shown = shown if where is None else shown & where
        return torch.where(shown, values, 0.0).sum(1) / shown.sum(1).clamp(min=1)

    def counted(self, found: Tensor) -> list[int]:
        """How many windows of each series are found, (R,)."""
        return (found[self.rows] & self.there).sum(1).tolist()

    def _shown(self, axes: int) -> Tensor:
        """`there` with this many axes."""
        return self.there.view(*self.there.shape, *[1] * (axes - 2))


class Stacked(Declared):
    """The states of many models, each tensor with a leading axis of series; Stateful.

    Args:
        fresh: of one before any data.
        symmetric: names of matrices of which a checkpoint has the lower triangles, row by row.
        derived: names of what follows from the rest, which a checkpoint does not have.

    Attributes:
        size: S, series that there are.
    """

    def __init__(
        self, fresh: Mapping[str, Tensor], symmetric: Collection[str] = (), derived: Collection[str] = ()
    ) -> None:
        self.fresh, self._symmetric, self._derived = dict(fresh), symmetric, derived
        self.size = 0
        self._held = {name: part.new_zeros(0, *part.shape) for name, part in self.fresh.items()}
        self._lent = False

    @property
    def bytes(self) -> int:
        """Of one series."""
        return sum(part.nbytes for part in self.fresh.values())

    def __deepcopy__(self, _: object) -> Stacked:
        """Both share their tensors until one of them learns."""
        found = copy.copy(self)
        found._held = dict(self._held)
        self._lent = found._lent = True
        return found

    def reserve(self, codes: Tensor) -> None:
        """Room for these series. It doubles; what no series has takes no memory, as nothing is written there."""
        self._own()
        before, have = self.size, len(next(iter(self._held.values())))
        self.size = max(self.size, int(codes.max()) + 1 if len(codes) else 0)
        for name, part in self.fresh.items() if self.size > before else ():
            if self.size > have:
                room = part.new_empty(max(self.size, 2 * have), *part.shape)
                room[:before] = self._held[name][:before]
                self._held[name] = room
            self._held[name][before : self.size] = part

    def take(self, codes: Tensor, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Copies of the states of these series, or of some tensors of them, (K, ...) each; fresh ones where there are
        none."""
        new, names = codes >= self.size, self.fresh if names is None else names
        if bool(new.all()):
            return {name: self.fresh[name].expand(len(codes), *self.fresh[name].shape).clone() for name in names}
        at = _together(codes) if not bool(new.any()) else codes.clamp(max=self.size - 1)
        found = {name: self._held[name][at] for name in names}
        if isinstance(at, slice):
            found = {name: part.clone() for name, part in found.items()}
        if bool(new.any()):
            for name, part in found.items():
                part[new] = self.fresh[name]
        return found

    def put(self, codes: Tensor, state: Mapping[str, Tensor]) -> None:
        """New states of series that have room."""
        self._own()
        at = _together(codes)
        for name, part in state.items():
            self._held[name][at] = part

    def write(self, name: str, at: tuple[Tensor, Tensor], values: Tensor) -> None:
        """Change a tensor of the states at these series and places."""
        self._own()
        self._held[name][at] = values

    def _own(self) -> None:
        """Share no tensor with a copy."""
        if self._lent:
            self._held = {name: part[: self.size].clone() for name, part in self._held.items()}
            self._lent = False

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """All of them, shared with this until one of them learns."""
        self._lent = True
        found = {name: part[: self.size] for name, part in self._held.items() if name not in self._derived}
        return found | {name: halved(found[name]) for name in self._symmetric}, {}

    def restoring(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> Callable[[], None]:
        """See `Declared`; what is derived is as before any data."""
        kept = dict[str, Tensor]()
        first = next((tensors[name] for name in self.fresh if name in tensors), torch.empty(0))
        size = len(first) if first.dim() else 0
        for name, part in self.fresh.items():
            if name in self._derived:
                kept[name] = part.expand(size, *part.shape)
                continue
            like = part[None]
            found = fitting(name, tensors.get(name), halved(like) if name in self._symmetric else like, (0,))
            if len(found) != size:
                raise ValueError(f"{name} is of {len(found)} series, not {size}")
            kept[name] = whole(found, len(part)) if name in self._symmetric else found
        for unknown in (*(tensors.keys() - (self.fresh.keys() - set(self._derived))), *rest):
            raise ValueError(f"{unknown} is not known")

        def put() -> None:
            self._held = {name: part.to(self.fresh[name]).clone() for name, part in kept.items()}
            self.size, self._lent = size, False

        return put


def _together(codes: Tensor) -> Tensor | slice:
    """Codes (K,) that follow one another as a slice: what they are of is then copied in one piece."""
    if not len(codes) or not bool((codes.diff() == 1).all()):
        return codes
    return slice(int(codes[0]), int(codes[0]) + len(codes))


def chosen(codes: Tensor, state: Mapping[str, Tensor], where: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Some of the series (K,) and their states; the same ones where that is all."""
    return (codes, state) if bool(where.all()) else (codes[where], {name: part[where] for name, part in state.items()})


def wide(values: Tensor, like: Tensor) -> Tensor:
    """(K,) -> (K, 1, ...), with as many axes as another tensor."""
    return values.view(-1, *[1] * (like.dim() - 1))
