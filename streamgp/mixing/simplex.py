"""Quadratic programs on the probability simplex, many at once."""

from __future__ import annotations

import torch
from torch import Tensor

ITERATIONS = 50
"""Steps at most; with weights to start from far fewer are taken."""
TOLERANCE = 1e-7
"""What a step changes in every weight when the search ends."""
_NEVER = -1e30
"""Is projected to 0 beside anything else."""


def project(v: Tensor) -> Tensor:
    """The nearest point w of the simplex, w ≥ 0, Σ w = 1, to each row (Duchi et al. 2008, figure 1).

    Args:
        v: (..., K).

    Example:
        >>> project(torch.tensor([[0.5, 0.5], [2.0, 0.0], [0.9, 0.3]], dtype=torch.float64)).tolist()
        [[0.5, 0.5], [1.0, 0.0], [0.8, 0.2]]
    """
    sorted_v = v.sort(-1, descending=True).values
    count = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    threshold = (sorted_v.cumsum(-1) - 1.0) / count
    support = (sorted_v > threshold).sum(-1, keepdim=True)
    return (v - threshold.gather(-1, support - 1)).clamp(min=0.0)


def minimise(a: Tensor, start: Tensor, allowed: Tensor | None = None, b: Tensor | None = None) -> Tensor:
    """The weights w on the simplex that minimise ½ wᵀAw − bᵀw: accelerated projected gradients with restarts.

    (Beck & Teboulle 2009, section 4; O'Donoghue & Candès 2015, section 3.2.) The step is 1/‖A‖_F.

    Args:
        a: (..., K, K) positive semidefinite, not 0.
        start: (..., K) on the simplex.
        allowed: (..., K) which weights may be more than 0, at least one in each row; all where None.
        b: (..., K); 0 where None.

    Example:
        >>> a, start = torch.diag(torch.tensor([1.0, 3.0]).double()), torch.full((2,), 0.5).double()
        >>> [round(value, 4) for value in minimise(a, start).tolist()]
        [0.75, 0.25]
    """
    if allowed is not None:
        a = a * (allowed[..., None] & allowed[..., None, :])
        start = project(start.masked_fill(~allowed, _NEVER))
    rate = 1.0 / a.flatten(-2).norm(dim=-1)[..., None]
    w = point = start
    momentum = torch.ones_like(rate)
    for _ in range(ITERATIONS):
        gradient = (a @ point[..., None])[..., 0]
        gradient = gradient if b is None else gradient - b
        new = point - rate * gradient
        new = project(new if allowed is None else new.masked_fill(~allowed, _NEVER))
        change, moved = new - point, new - w  # only a point that its own step leaves where it is is the minimum
        again = (gradient * moved).sum(-1, keepdim=True) > 0  # the momentum goes uphill
        momentum = torch.where(again, 1.0, momentum)
        grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum.square()).sqrt())
        point = new + (momentum - 1.0) / grown * moved
        w, momentum = new, grown
        if float(change.abs().max()) < TOLERANCE:
            break
    return w
