"""AdaGrad that touches nothing but the rows it is given: a step costs the same for ten rows as for ten million."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from streamgp.state import Declared, Members

EPSILON = 1e-10


def decay(initial: float, step: int, halving: float) -> float:
    """γ_t = γ_0 2^(−t/halving), the exponential decay of Evans & Nair (2020, appendix I.1), who do not print its rate.

    Example:
        >>> decay(0.5, 0, 100.0), decay(0.5, 200, 100.0)
        (0.5, 0.125)
    """
    return initial * math.exp2(-step / halving)


class SparseAdaGrad(Declared):
    """AdaGrad (Duchi et al. 2011) on slices: w ← w − γ g/√(Σ g²), the sum over the steps that touched the row.

    A row keeps **one** number, the running sum of its mean squared gradient: m numbers beside (m, k) parameters, where
    one an entry would double the largest tensors there are. The entries of a row share a feature, so they want the
    same rate up to the units of their columns. Where columns differ in units (targets with very different noise), give
    one tensor a column, for instance views `mu[:, t]`; a tensor of one axis has one number an entry.

    No momentum: it would move rows that were not drawn. Parameters may be float32; the arithmetic of a step is in the
    gradient's dtype, and the sums are kept in float32 (a stalled sum at 2²⁴ steps' worth of gradient is a rate that no
    longer falls).

    Args:
        parameters: name -> tensor (m,) or (m, k), updated in place; rows are the first axis.
        rates: name -> factor on the step size; 1 where not named.

    Example:
        >>> mu = torch.zeros(10_000_000)
        >>> optimiser = SparseAdaGrad({"mu": mu}, {})
        >>> optimiser.step({"mu": (slice(5, 7), torch.tensor([3.0, -0.1]))}, rate=0.5)
        >>> mu[4:8].tolist()
        [0.0, -0.5, 0.5, 0.0]
    """

    STATE = (Members("sums"),)
    NOT_STATE: ClassVar[Mapping[str, str]] = {"parameters": "they belong to their owner"}

    def __init__(self, parameters: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        self.parameters = dict(parameters)
        self.rates = {name: rates.get(name, 1.0) for name in parameters}
        self.sums = {name: _zeros(p) for name, p in parameters.items()}

    @torch.no_grad()
    def step(self, gradients: Mapping[str, tuple[slice | Tensor, Tensor]], rate: float) -> None:
        """Descend on the rows given.

        Args:
            gradients: name -> (where, gradient of what is minimised there (|where|, ...)). `where` is a slice, such as
                a cell, or row numbers; the gradients of a repeated row are added up first. Names may be missing.
            rate: step size γ.
        """
        for name, (where, gradient) in gradients.items():
            rows, total = _distinct(where, gradient)
            squares = total.square()
            mean = squares.mean(tuple(range(1, squares.ndim))) if squares.ndim > 1 else squares
            sums = self.sums[name][rows] + mean.to(torch.float32)
            self.sums[name][rows] = sums
            root = sums.to(total.dtype).sqrt_().add_(EPSILON).reshape(-1, *[1] * (total.ndim - 1))
            change = total / root * (rate * self.rates[name])
            parameter = self.parameters[name]
            parameter[rows] = (parameter[rows] - change).to(parameter.dtype)

    def forget(self, name: str, where: slice | Tensor) -> None:
        """Start rows afresh, for instance those of a feature that stands for something else from now on."""
        self.sums[name][where] = 0.0


def _zeros(parameter: Tensor) -> Tensor:
    return torch.zeros(parameter.shape[:1], dtype=torch.float32, device=parameter.device)


def _distinct(where: slice | Tensor, gradient: Tensor) -> tuple[slice | Tensor, Tensor]:
    """Rows without repetition, and the sums of their gradients."""
    if isinstance(where, slice):
        return where, gradient
    rows, place = where.unique(return_inverse=True)
    if len(rows) == len(where):
        return where, gradient
    return rows, gradient.new_zeros(len(rows), *gradient.shape[1:]).index_add_(0, place, gradient)
