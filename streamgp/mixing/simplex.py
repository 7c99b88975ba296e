"""Quadratic programs on the probability simplex, many at once."""

from __future__ import annotations

import torch
from torch import Tensor

ITERATIONS = 50
"""Weights that enter or leave the mix, one after the other, at most; with weights to start from they are few."""
TOLERANCE = 1e-9
"""Slope, over the largest of A, by which a weight must promise to lessen the sum before it enters the mix."""


def minimise(a: Tensor, start: Tensor, allowed: Tensor | None = None, b: Tensor | None = None) -> Tensor:
    """The weights w on the simplex that minimise ½ wᵀAw − bᵀw, by the primal active-set method.

    (Nocedal & Wright 2006, algorithm 16.3.) The minimum over the weights that are not 0 is one linear system. On the
    way there the first weight that would become negative leaves; at the minimum the one that helps most enters.

    Args:
        a: (B, K, K) positive definite.
        start: (B, K) on the simplex.
        allowed: (B, K) which weights may be more than 0, at least one in each row; all where None.
        b: (B, K); 0 where None.

    Example:
        >>> a, start = torch.diag(torch.tensor([1.0, 3.0]).double()), torch.full((1, 2), 0.5).double()
        >>> [round(value, 4) for value in minimise(a[None], start)[0].tolist()]
        [0.75, 0.25]
    """
    b = torch.zeros_like(start) if b is None else b
    allowed = torch.ones_like(start, dtype=torch.bool) if allowed is None else allowed
    w = torch.where(allowed, start, 0.0)
    total = w.sum(1, keepdim=True)
    w = torch.where(total > 0, w / total, allowed / allowed.sum(1, keepdim=True))
    free, least = w > 0, -TOLERANCE * a.abs().amax((1, 2))[:, None]
    for _ in range(ITERATIONS):
        own = free.to(a.dtype)
        system = a * own[:, :, None] * own[:, None, :] + torch.diag_embed(1.0 - own)
        part, unit = torch.linalg.solve(system, torch.stack([b * own, own], 2)).unbind(2)
        level = (1.0 - part.sum(1, keepdim=True)) / unit.sum(1, keepdim=True)
        aim = part + level * unit
        reach, first = torch.where(free & (aim < 0), w / (w - aim), torch.inf).min(1, keepdim=True)
        leaves = reach < 1.0
        w = torch.where(leaves, w + reach * (aim - w), aim).clamp_(min=0.0)
        slope = (a @ w[..., None])[..., 0] - b - level
        slope, best = torch.where(allowed & ~free, slope, 0.0).min(1, keepdim=True)
        enters = ~leaves & (slope < least)
        if not bool((leaves | enters).any()):
            break
        w.scatter_(1, first, torch.where(leaves, 0.0, w.gather(1, first)))
        free = free.scatter(1, first, free.gather(1, first) & ~leaves)
        free = free.scatter(1, best, free.gather(1, best) | enters)
    return w
