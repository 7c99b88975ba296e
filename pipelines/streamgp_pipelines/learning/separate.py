"""A model of its own for each series, of any kind, and how a checkpoint holds thousands of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from streamgp.base import Assesses, Inputs, Json, Model, Step


class Separate:
    """A `Fleet` of separate models, each made when its series first learns; Stateful. A panel is one of one model.

    A checkpoint holds the tensors of equal name and shape stacked: few large tensors, however many series.

    Args:
        make: a fresh model.
        fresh: such a one, which learns nothing.
        held: models that there are, by the code of their series.

    Example:
        >>> from streamgp.base import Shape
        >>> from streamgp.models.linear import Config, build
        >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
        >>> fleet = Separate(lambda: build(Config(), shape), build(Config(), shape))
        >>> u = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None]
        >>> _ = [*fleet.fit(Inputs(u.new_zeros(200, 0, 2), u[:, None]), 3 * u, 4 + 3 * (torch.arange(200) % 2))]
        >>> tensors, rest = fleet.state()
        >>> rest["codes"], tensors["weights.0"].shape[0]
        ([4, 7], 2)
    """

    def __init__(self, make: Callable[[], Model], fresh: Model, held: Mapping[int, Model] | None = None) -> None:
        self._make, self._fresh, self._held = make, fresh, dict(held or {})

    def _of(self, code: int) -> Model:
        if code not in self._held:
            self._held[code] = self._make()
        return self._held[code]

    def predict(self, x: Inputs, series: Tensor, batch: int = 1) -> Tensor:
        """See `Fleet.predict`."""
        found = None
        for code, rows in groups(series):
            model = self._held.get(code, self._fresh)
            padding = rows[-1:].expand(-len(rows) % batch)
            own = model.predict(x.rows(torch.cat([rows, padding]))).parameters()[:, : len(rows)]
            found = own.new_empty(len(own), len(series), own.shape[2]) if found is None else found
            found[:, rows] = own
        return self._fresh.predict(x).parameters() if found is None else found

    def update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor) -> list[Step]:
        """See `Fleet.update`."""
        family = self._fresh.family
        return [
            self._of(code).update(x.rows(rows), y[rows], family.from_parameters(issued[:, rows]))
            for code, rows in groups(series)
        ]

    def assess(self, issued: Tensor, y: Tensor, series: Tensor) -> None:
        """Each model learns from its truths, as `Assesses.assess`; issued: (P, N, T) parameters."""
        for code, rows in groups(series):
            if isinstance(model := self._of(code), Assesses):
                model.assess(model.family.from_parameters(issued[:, rows]), y[rows])

    def fit(self, x: Inputs, y: Tensor, series: Tensor) -> Iterator[Step]:
        """See `Fleet.fit`; a step an epoch."""
        for code, rows in groups(series):
            model = self._of(code)
            yield from model.fit(x.rows(rows), y[rows], model.warmup_epochs(len(rows)))

    def shares(self) -> dict[str, Tensor]:
        """`Model.shares`, the means over the models."""
        own = [model.shares() for model in self._held.values()]
        return {name: torch.stack([shares[name] for shares in own]).mean(0) for name in (own[0] if own else {})}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        alike: dict[tuple[str, tuple[int, ...], torch.dtype], dict[int, Tensor]] = {}
        rests: list[Json] = []
        for code, model in self._held.items():
            tensors, rest = model.state()
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
            self._of(code).restore(given, left)


def groups(series: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each series, and the indices of its rows (R,), in their order.

    Example:
        >>> [(code, rows.tolist()) for code, rows in groups(torch.tensor([5, 2, 5]))]
        [(2, [1]), (5, [0, 2])]
    """
    codes, counts = series.unique(return_counts=True)
    yield from zip(codes.tolist(), series.argsort(stable=True).split(counts.tolist()), strict=True)
