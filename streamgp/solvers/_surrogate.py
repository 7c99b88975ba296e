"""Values whose gradients are known in closed form, for autograd."""

from __future__ import annotations

import torch
from torch import Tensor


def attach(value: Tensor, tensor: Tensor, gradient: Tensor) -> Tensor:
    """`value`, bit for bit, with d value/d tensor = `gradient` on the graph of `tensor`.

    ⟨gradient, tensor − stop(tensor)⟩ is 0, and its derivative is the gradient: no factorisation has to be
    differentiated. Once only: there are no second derivatives.

    Args:
        value: () without graph, or what `attach` returned.
        tensor: any shape, with a graph.
        gradient: the shape of `tensor`, without graph.

    Example:
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> attach(x.detach() ** 2, x, 2 * x.detach()).backward()
        >>> x.grad.item()
        6.0
    """
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return value
    return value + (gradient * (tensor - tensor.detach())).sum()
