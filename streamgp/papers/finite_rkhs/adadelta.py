"""AdaDelta (Zeiler 2012), the optimiser of Shoham & Avron's experiments; its constants are PyTorch's.

    s ← 0.9 s + 0.1 g²,   Δ = g √((u + ε)/(s + ε)),   u ← 0.9 u + 0.1 Δ²,   θ ← θ − γ Δ

elementwise, γ = 200 times the rate that a step is given: 5e-3, Adam's, is Zeiler's γ = 1. Twice the parameters in
memory, a few operations each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from streamgp.state import Declared, Members

DECAY, EPSILON, UNIT = 0.9, 1e-6, 200.0


class AdaDelta(Declared):
    """Steps on tensors that others own. Stateful.

    Args:
        parameters: updated in place; their number and sizes are fixed from now on, and the state follows them to where
            they go.

    Example:
        >>> w = torch.zeros(1)
        >>> AdaDelta([w]).step([torch.ones(1)], rate=5e-3)
        >>> round(float(w), 6)
        -0.003162
    """

    STATE = (Members("squares", "changes"),)
    NOT_STATE: ClassVar[Mapping[str, str]] = {"parameters": "they belong to their owner"}

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.squares = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.changes = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        """Descend, all tensors by γ = 200 rate."""
        if (device := self.parameters[0].device) != self.squares[0].device:
            self.squares, self.changes = ([t.to(device) for t in own] for own in (self.squares, self.changes))
        for parameter, gradient, squares, changes in zip(
            self.parameters, gradients, self.squares, self.changes, strict=True
        ):
            squares.mul_(DECAY).addcmul_(gradient, gradient, value=1.0 - DECAY)
            change = (changes + EPSILON).div_(squares + EPSILON).sqrt_().mul_(gradient)
            changes.mul_(DECAY).addcmul_(change, change, value=1.0 - DECAY)
            parameter.sub_(change, alpha=UNIT * rate)
