"""What batched forms of many models share: which windows of a batch are learned, and the step reported for each
series."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from streamgp.base import Inputs, Step
from streamgp.online.glitches import plausible_rows
from streamgp.online.inputs import epoch, reporting, usable_rows
from streamgp.online.stacked import Packed
from streamgp.state import Declared

NEAR = 2**24
"""Bytes of the states of series that are learned together: more would leave the processor's cache."""


class StackedFleet(Declared, ABC):
    """Many models of one family, each with a series of its own; a `Fleet`. A series without windows in a batch costs
    nothing."""

    def update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor | None = None) -> list[Step]:
        """Each model learns its windows, as its `update` does alone; a step for each, in the order of the codes.

        issued: (P, R, T) what was issued; None: what is forecast now.
        """
        whole = Packed.of(series)
        y, taken, why = usable_rows(x, y, whole)
        if not bool(taken.all()):
            x, y, series = x.rows(taken), y[taken], series[taken]
            issued = None if issued is None else issued[:, taken]
        steps = self._update(x, y, series, issued) if len(y) else {}
        return self._reported(whole.codes, steps, why)

    def fit(self, x: Inputs, y: Tensor, series: Tensor) -> list[Step]:
        """Each model starts over from its windows, as its `fit` does alone; a step for each, in the order of the
        codes."""
        whole = Packed.of(series)
        self._forget(whole.codes)
        y, taken, why = usable_rows(x, y, whole)
        x, y, series = x.rows(taken), y[taken], series[taken]
        packed = Packed.of(series)
        y, within, glitches = plausible_rows(x, y, packed)
        found = dict(zip(packed.codes.tolist(), glitches, strict=True))
        why = [
            "; ".join(part for part in (text, found.get(code, "")) if part)
            for code, text in zip(whole.codes.tolist(), why, strict=True)
        ]
        return self._reported(whole.codes, self._fit(x.rows(within), y[within], series[within], whole.codes), why)

    @abstractmethod
    def _update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor | None) -> dict[int, Step]:
        """Learn windows that are usable; the step of each of their series."""

    @abstractmethod
    def _fit(self, x: Inputs, y: Tensor, series: Tensor, codes: Tensor) -> dict[int, Step]:
        """Learn windows that are usable and plausible from the beginning; as `_update`. codes: (K,) of all series that
        were asked for, some of which may have no such window."""

    @abstractmethod
    def _forget(self, codes: Tensor) -> None:
        """Make room for series, and let each be as before any data."""

    @abstractmethod
    def _size(self, code: int) -> int:
        """Basis functions of a series."""

    def _in_chunks(
        self, packed: Packed, codes: Tensor, rows: int, learn: Callable[[Packed], list[Step]]
    ) -> dict[int, Step]:
        """A fit by `rows` of each series at a time; `learn` has a step for each of these series."""
        steps = {code: list[tuple[int, Step]]() for code in codes.tolist()}
        for start in range(0, packed.there.shape[1], rows):
            some = packed.some(packed.there[:, start], slice(start, start + rows))
            for code, count, step in zip(some.codes.tolist(), some.counts.tolist(), learn(some), strict=True):
                steps[code].append((count, step))
        return {code: epoch(own, self._size(code)) for code, own in steps.items()}

    def _reported(self, codes: Tensor, steps: dict[int, Step], why: list[str]) -> list[Step]:
        """The steps of these series, with what was left out of each."""
        found = []
        for code, text in zip(codes.tolist(), why, strict=True):
            step = steps[code] if code in steps else Step(math.nan, self._size(code), True, "nothing observed")
            found.append(reporting(step, text))
        return found
