"""Units and references of many series at once, each estimated from its own rows; see `scaling` and `reference`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.online.glitches import bridged
from streamgp.online.inputs import KernelInputs
from streamgp.online.reference import Kind, LearnedReference, reference
from streamgp.online.reservoir import State
from streamgp.online.scaling import moments
from streamgp.online.stacked import Packed
from streamgp.online.winsorise import FAR, LASTING, SETTLED


class StackedRows(NamedTuple):
    """Windows of K series, which they learn from the beginning.

    Attributes:
        x: K · N windows, series by series.
        y: (K, N, T) truths, NaN = not observed.
        weight: (K, N) what each counts for, 0 where there is none.
    """

    x: Inputs
    y: Tensor
    weight: Tensor


class StackedUnits:
    """What standardises the windows and truths of K series.

    Args:
        inputs: the layout of a standardised window.
        kind: of the reference, see `reference`.
        decay: likewise.
        shape: of the windows.
    """

    def __init__(self, inputs: KernelInputs, kind: Kind, decay: float, shape: Shape) -> None:
        self.inputs, self.shape = inputs, shape
        self.reference = reference(kind, shape, decay)

    def fresh(self) -> State:
        """Of a series before any data."""
        channels, columns = self.inputs.count - len(self.inputs.turning), self.shape.columns
        found = {f"input.{name}": of(channels) for name, of in (("location", torch.zeros), ("scale", torch.ones))}
        found |= {f"output.{name}": of(columns) for name, of in (("location", torch.zeros), ("scale", torch.ones))}
        learned = self.reference.named_buffers() if isinstance(self.reference, LearnedReference) else ()
        return {name: part.to(FLOAT) for name, part in found.items()} | dict(learned)

    def bridged(self, packed: Packed, held: State, x: Inputs) -> Inputs:
        """Windows in which a glitch is replaced by the value next to it; see `Winsoriser.doubts`."""
        certain = (held["far"] <= LASTING) & (held["weight"] >= SETTLED)
        rows, limit = packed.rows[packed.there], torch.where(certain, FAR, torch.inf).repeat_interleave(packed.counts)
        location, scale = (
            held[f"input.{name}"].repeat_interleave(packed.counts, 0)[:, None] for name in ("location", "scale")
        )
        channels, parts = self.inputs.channels, dict[str, Tensor]()
        for name, part, own in (("past", x.past, slice(channels)), ("future", x.future, slice(channels, None))):
            if part.shape[1]:
                given = part[rows]
                found = bridged(given, location[..., own], scale[..., own], limit[:, None, None])
                parts |= {} if found is given else {name: part.index_put((rows,), found)}
        return x._replace(**parts) if parts else x

    def standardised(self, held: State, x: Inputs) -> Tensor:
        """K · N windows, series by series -> (K, N, W)."""
        flat = x.flat().unflatten(0, (len(held["seen"]), -1))
        return self.inputs.standardised(flat, held["input.location"], held["input.scale"])

    def shift(self, held: State, x: Inputs) -> Tensor:
        """(K, N, T) the references of K · N windows, and the location of what they leave."""
        of, x = self.reference, _apart(x, len(held["seen"]))
        found: Tensor = of.learned(x, held) if isinstance(of, LearnedReference) else of(x)
        return found + held["output.location"][:, None]

    def fit(self, held: State, rows: StackedRows) -> Tensor:
        """Reference and units of the rows, in place; (K, N, T) the standardised truths. See `StreamModel._rows`."""
        x, y, weight = rows
        there, apart = weight > 0, _apart(x, len(weight))
        if isinstance(self.reference, LearnedReference):
            held |= self.reference.fitted(apart, y, weight)
        parts = [
            moments(torch.where(there[..., None, None], part, torch.nan).flatten(1, 2))
            for part in ((apart.past, apart.future) if self.shape.lags else (apart.future,))
        ]
        held["input.location"], held["input.scale"] = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        held["output.location"] = torch.zeros_like(held["output.location"])
        rest = y - self.shift(held, x)
        held["output.location"], held["output.scale"] = moments(torch.where(there[..., None], rest, torch.nan), y)
        return (rest - held["output.location"][:, None]) / held["output.scale"][:, None]


def _apart(x: Inputs, series: int) -> Inputs:
    """K · N windows -> (K, N, ...)"""
    return Inputs(x.past.unflatten(0, (series, -1)), x.future.unflatten(0, (series, -1)))
