"""Standardisation of windows and truths, apart from the model that it belongs to."""

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
        """(N, W) and (N, T), NaN = not observed."""
        scaled = (y - self.reference(x) - self.outputs.location.to(y)) / self.outputs.scale.to(y)
        return self.inputs(x), scaled
