"""Units and references of many series at once, each estimated from its own rows; see `scaling` and `reference`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.online.glitches import bridged
from streamgp.online.inputs import KernelInputs
from streamgp.online.reference import Kind, LearnedReference, reference, ridge
from streamgp.online.reservoir import State
from streamgp.online.scaling import moments, standardised
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
        groups, columns = self.inputs.count, self.shape.columns
        found = {
            "input.location": torch.zeros(groups),
            "input.scale": torch.ones(groups),
            "output.location": torch.zeros(columns),
            "output.scale": torch.ones(columns),
        }
        if isinstance(self.reference, LearnedReference):
            regressors = self.reference.regressors
            found |= {name: torch.zeros(columns, regressors) for name in ("slope", "center")}
            found["offset"] = torch.zeros(columns)
        return {name: part.to(FLOAT) for name, part in found.items()}

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
        own = (held[f"input.{name}"][:, None, self.inputs.groups] for name in ("location", "scale"))
        return standardised(flat, *own)

    def shift(self, held: State, x: Inputs) -> Tensor:
        """(K, N, T) the references of K · N windows, and the location of what they leave."""
        of, series = self.reference, len(held["seen"])
        base: Tensor = of.base(x) if isinstance(of, LearnedReference) else of(x)
        found: Tensor = base.unflatten(0, (series, -1)) + held["output.location"][:, None]
        if isinstance(of, LearnedReference) and of.regressors:
            centred = of.regressed(x).unflatten(0, (series, -1)) - held["center"][:, None]
            found = found + (centred * held["slope"][:, None]).sum(3) + held["offset"][:, None]
        return found

    def fit(self, held: State, rows: StackedRows) -> Tensor:
        """Reference and units of the rows, in place; (K, N, T) the standardised truths. See `StreamModel._rows`."""
        x, y, weight = rows
        there, series = weight > 0, len(weight)
        of = self.reference
        if isinstance(of, LearnedReference) and of.regressors:
            base, regressors = (part.unflatten(0, (series, -1)) for part in (of.base(x), of.regressed(x)))
            held["center"], held["offset"], held["slope"] = ridge(y - base, regressors, weight, self.shape.horizon)
        past, future = (part.unflatten(0, (series, -1)) for part in (x.past, x.future))
        parts = [
            moments(torch.where(there[..., None, None], part, torch.nan).flatten(1, 2))
            for part in ((past, future) if self.shape.lags else (future,))
        ]
        held["input.location"], held["input.scale"] = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        held["output.location"] = torch.zeros_like(held["output.location"])
        rest = y - self.shift(held, x)
        held["output.location"], held["output.scale"] = moments(torch.where(there[..., None], rest, torch.nan), y)
        return (rest - held["output.location"][:, None]) / held["output.scale"][:, None]
