"""Distances between the rows of two matrices, with gradients that stay finite where rows coincide."""

from __future__ import annotations

import torch
from torch import Tensor

_EXACT_UP_TO = 8
"""Columns up to which differences cost no more than the matrix product, with gradients, on one thread."""


def squared_distance(x: Tensor, z: Tensor) -> Tensor:
    """‖x − z‖² with one matrix product, never negative.

    Both are moved by the mean of z first, because the cancellation costs about 1e-16 (‖x‖² + ‖z‖²) of absolute
    precision. A pair that rounds below 0 gets 0 and no gradient; its true gradient is as small as that.

    Args:
        x: (N, D)
        z: (M, D)

    Returns:
        (N, M)

    Example:
        >>> x = torch.tensor([[0.0], [3.0]], dtype=torch.float64)
        >>> squared_distance(x, x[:1]).tolist()
        [[0.0], [9.0]]
    """
    centre = z.detach().mean(0)
    x, z = x - centre, z - centre
    left = torch.cat((-2.0 * x, x.square().sum(1, keepdim=True), torch.ones_like(x[:, :1])), 1)
    right = torch.cat((z, torch.ones_like(z[:, :1]), z.square().sum(1, keepdim=True)), 1)
    return (left @ right.T).clamp(min=0.0)


def distance(x: Tensor, z: Tensor, *, exact: bool = False) -> Tensor:
    """‖x − z‖, with gradient 0 where two rows coincide.

    The root turns the 1e-16 ‖x‖² of the matrix product into 1e-8 ‖x‖ for rows that coincide. So differences are used
    where they are as fast, or asked for; a pair then has the same bits in any batch. Differences have first derivatives
    only: torch has no second ones of `cdist`.

    Args:
        x: (N, D)
        z: (M, D)
        exact: from differences, whatever D is.

    Returns:
        (N, M)

    Example:
        >>> x = torch.tensor([[1e8, 0.1]], dtype=torch.float64, requires_grad=True)
        >>> r = distance(x, x)
        >>> r.backward()
        >>> r.item(), x.grad.tolist()
        (0.0, [[0.0, 0.0]])
    """
    if exact or x.shape[1] <= _EXACT_UP_TO:
        return torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")
    squared = squared_distance(x, z)
    zero = squared == 0.0
    # twice, because the gradient of the branch not taken is 0 · ∞ otherwise
    return torch.where(zero, 0.0, torch.where(zero, 1.0, squared).sqrt())
