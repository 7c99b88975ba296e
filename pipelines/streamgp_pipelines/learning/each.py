"""Parts of which every series has one of its own: models and calibrations, and how a checkpoint holds thousands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from streamgp.base import Inputs, Json, Model, Stateful, Step

P = TypeVar("P", bound=Stateful)


class Each(Generic[P]):
    """One part a series, made when the series first needs it; Stateful.

    A checkpoint holds the tensors of equal name and shape stacked: few large tensors, however many series.

    Args:
        make: a fresh part.

    Example:
        >>> from streamgp.forecasting.masses import Masses
        >>> each = Each(lambda: Masses(1, 1))
        >>> _ = each[4], each[7]
        >>> tensors, rest = each.state()
        >>> rest["codes"], tensors["value.0"].shape[0]
        ([4, 7], 2)
    """

    def __init__(self, make: Callable[[], P]) -> None:
        self._make = make
        self._held: dict[int, P] = {}

    def __getitem__(self, code: int) -> P:
        if code not in self._held:
            self._held[code] = self._make()
        return self._held[code]

    def __len__(self) -> int:
        return len(self._held)

    def values(self) -> Iterator[P]:
        """The parts there are."""
        return iter(self._held.values())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        alike: dict[tuple[str, tuple[int, ...], torch.dtype], dict[int, Tensor]] = {}
        rests: list[Json] = []
        for code, part in self._held.items():
            tensors, rest = part.state()
            rests.append(rest)
            for name, tensor in tensors.items():
                alike.setdefault((name, tuple(tensor.shape), tensor.dtype), {})[code] = tensor.detach().cpu()
        found, owners, number = dict[str, Tensor](), dict[str, Json](), dict[str, int]()
        for (name, _, _), held in alike.items():
            at = number[name] = number.get(name, -1) + 1
            found[f"{name}.{at}"], owners[f"{name}.{at}"] = torch.stack(list(held.values())), list(held)
        return found, {"codes": list(self._held), "rests": rests, "owners": owners}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        about: Any = rest
        own: dict[int, dict[str, Tensor]] = {code: {} for code in about["codes"]}
        for key, stacked in tensors.items():
            name = key.rpartition(".")[0]
            for code, tensor in zip(about["owners"][key], stacked, strict=True):
                own[code][name] = tensor.clone()  # a generator takes no view as its state
        self._held = {}
        for (code, given), left in zip(own.items(), about["rests"], strict=True):
            self[code].restore(given, left)


class Group(NamedTuple):
    """Rows of one series. code: of the series; rows: (R,) indices, in their order."""

    code: int
    rows: Tensor


def groups(series: Tensor) -> list[Group]:
    """The rows (R,) of each series.

    Example:
        >>> [(code, rows.tolist()) for code, rows in groups(torch.tensor([5, 2, 5]))]
        [(2, [1]), (5, [0, 2])]
    """
    order = series.argsort(stable=True)
    codes, counts = series[order].unique_consecutive(return_counts=True)
    return [Group(code, rows) for code, rows in zip(codes.tolist(), order.split(counts.tolist()), strict=True)]


class Separate(Each[Model]):
    """A `Fleet` of separate models of any kind.

    Args:
        make: a fresh model.
    """

    def __init__(self, make: Callable[[], Model]) -> None:
        super().__init__(make)
        self._fresh = make()

    def predict(self, x: Inputs, series: Tensor, batch: int = 1) -> Tensor:
        """See `Fleet.predict`."""
        found = None
        for code, rows in groups(series):
            model = self._held.get(code, self._fresh)
            padding = rows[-1:].expand(-len(rows) % batch)
            own = model.predict(x.rows(torch.cat([rows, padding]))).parameters()[:, : len(rows)]
            found = own.new_empty(len(own), len(series), own.shape[2]) if found is None else found
            found[:, rows] = own
        assert found is not None, "there are windows"
        return found

    def update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor) -> list[Step]:
        """See `Fleet.update`."""
        family = self._fresh.family
        return [
            self[code].update(x.rows(rows), y[rows], family.from_parameters(issued[:, rows]))
            for code, rows in groups(series)
        ]

    def fit(self, x: Inputs, y: Tensor, series: Tensor) -> list[Step]:
        """See `Fleet.fit`."""
        found = []
        for code, rows in groups(series):
            steps = list(self[code].fit(x.rows(rows), y[rows], self[code].warmup_epochs(len(rows))))
            found += steps
        return found
