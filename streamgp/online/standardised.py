"""Standardisation of windows and truths, apart from the model that it belongs to.

Of K models at once all of it has a leading axis K: windows (K, N, ...), truths (K, N, T), locations and scales (K, C).
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from streamgp.base import Inputs
from streamgp.online.inputs import KernelInputs
from streamgp.online.reference import LearnedReference, Reference
from streamgp.online.scaling import Standardiser


class Standardised(NamedTuple):
    """What standardises, small enough to be sent to another process.

    Attributes:
        inputs: of windows.
        reference: r, of which targets are departures.
        outputs: of these departures.
    """

    inputs: KernelInputs
    reference: Reference | LearnedReference
    outputs: Standardiser

    def __call__(self, x: Inputs, y: Tensor) -> tuple[Tensor, Tensor]:
        """(..., N, W) and (..., N, T), NaN = not observed."""
        return self.inputs(x), self.truths(y, self.reference(x))

    def truths(self, y: Tensor, shift: Tensor) -> Tensor:
        """(..., N, T) standardised. shift: the reference at their windows."""
        location, scale = (part.to(y).unsqueeze(-2) for part in (self.outputs.location, self.outputs.scale))
        return (y - shift - location) / scale

    def fit(self, x: Inputs, y: Tensor, weight: Tensor) -> None:
        """Estimate all of it. y: (..., N, T), NaN = not observed; weight: (..., N) of the rows in the reference."""
        if isinstance(self.reference, LearnedReference):
            self.reference.fit(x, y, weight)
        self.inputs.scaling.fit(x)
        self.outputs.fit(y - self.reference(x), y)
