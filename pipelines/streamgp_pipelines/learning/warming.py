"""Windows of the first rows, and the places from which the model of their series is fitted, and scored."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import Inputs, Json
from streamgp.state import fitting

NEVER = 2**62
"""A place in the stream that no row has."""
MOST = 2**31
"""Series of a panel."""


class WarmUp:
    """Windows kept until their model is fitted on them, and the places of K models in the stream; Stateful.

    Args:
        models: K; None: as many as `reserve` says.
        scored: place in the stream from which on each is scored.
        named: whether the windows of a panel are kept with their series, as those of a fleet are.

    Attributes:
        done_at: rows seen when the first model was fitted; None before.
    """

    def __init__(self, models: int | None = 1, scored: int = NEVER, named: bool = False) -> None:
        self._apart, self._scored, self._named = models is None, scored, named or models is None
        self._x, self._y, self._of = list[Inputs](), list[Tensor](), list[Tensor]()
        self._begun = torch.tensor([NEVER, scored])[:, None].repeat(1, models or 0)
        self.done_at: int | None = None

    def add(self, x: Inputs, y: Tensor, of: Tensor | None = None) -> None:
        """Keep N windows, their truths (N, T) and their series (N,); by default the first."""
        if len(y):
            self._x.append(x)
            self._y.append(y)
            self._of.append(torch.zeros(len(y), dtype=torch.int64) if of is None else of)

    def windows(self) -> tuple[Inputs, Tensor, Tensor] | None:
        """All that were kept, or None."""
        return (Inputs.cat(self._x), torch.cat(self._y), torch.cat(self._of)) if self._y else None

    def of(self, ready: Tensor) -> tuple[Inputs, Tensor, Tensor] | None:
        """The windows of the models that are ready, (K,), as `windows`; None where they have none.

        A model without a window waits for one: nothing could be forecast from it.
        """
        leaves = ready[self._models(torch.cat(self._of))] if self._of else torch.zeros(0)
        kept = self.windows() if bool(leaves.any()) else None
        return None if kept is None else (kept[0].rows(leaves), kept[1][leaves], kept[2][leaves])

    def fit(self, models: Tensor, place: int) -> None:
        """These models have learned their windows, and are fitted from this place on."""
        kept = self.windows()
        assert kept is not None, "they had windows"
        x, y, of = kept
        rest = ~torch.isin(self._models(of), models)
        self.finish(place if self.done_at is None else self.done_at)
        self._begun[0, models] = place
        self.add(x.rows(rest), y[rest], of[rest])

    def _models(self, series: Tensor) -> Tensor:
        """(N,) those that learn these series."""
        return series if self._apart else torch.zeros_like(series)

    def finish(self, rows: int | None) -> None:
        """Forget the windows: the first model has them, since these rows."""
        self._x, self._y, self._of, self.done_at = [], [], [], rows
        if not self._apart:
            self._begun[0] = NEVER if rows is None else rows

    def score(self, models: Tensor, place: Tensor) -> None:
        """These models are scored from these places on."""
        self._begun[1, models] = place

    def fitted(self, models: Tensor) -> Tensor:
        """(N,) the places from which on these models are fitted."""
        return self._begun[0].index_select(0, models)

    def scored(self, models: Tensor) -> Tensor:
        """(N,) the places from which on these models are scored."""
        return self._begun[1].index_select(0, models)

    def reserve(self, models: int) -> None:
        """Room for this number of models."""
        grown = models - self._begun.shape[1]
        if grown > 0:
            self._begun = torch.cat([self._begun, torch.tensor([NEVER, self._scored])[:, None].repeat(1, grown)], 1)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        kept, tensors, of = self.windows(), dict[str, Tensor](), torch.zeros(0, dtype=torch.int64)
        if kept is not None:
            x, y, of = kept
            tensors = {name: part for name, part in x._asdict().items() if part is not None} | {"y": y}
        tensors |= {"series": of} if self._named else {}
        return tensors | ({"begun": self._begun} if self._apart else {}), {"done_at": self.done_at}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: the windows are not those of models that there are.
        """
        done, of, begun = rest["done_at"], None, self._begun
        if done is not None and (not isinstance(done, int) or isinstance(done, bool) or done < 0):
            raise ValueError(f"done_at is {done!r}, and no number of rows")
        rows = {len(part) for name, part in tensors.items() if name in (*Inputs._fields, "y")}
        if len(rows) > 1:
            raise ValueError("the windows and their truths are not as many")
        if self._apart:
            begun = fitting("begun", tensors.get("begun"), begun, (1,)).clone()
        if self._named:
            of = fitting("series", tensors.get("series"), torch.zeros(0, dtype=torch.int64), (0,))
            most = begun.shape[1] if self._apart else MOST
            if len(of) != len(tensors.get("y", of[:0])) or not bool(((of >= 0) & (of < most)).all()):
                raise ValueError("series are not those of the windows")
        self._begun = begun
        self.finish(done)
        if "y" in tensors:
            self.add(Inputs(tensors["past"], tensors["future"], tensors.get("context")), tensors["y"], of)
