"""Adam for the few hyper-parameters beside millions of weights, with its moments in buffers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT

DECAYS = (0.9, 0.999)
EPSILON = 1e-12


class SlowAdam(nn.Module):
    """Adam (Kingma & Ba 2015) on tensors that others own; the buffers are the state.

    Args:
        size: numbers in all.

    Example:
        >>> w = torch.zeros(2, dtype=torch.float64)
        >>> SlowAdam(2).step([w], [torch.tensor([3.0, -0.1]).double()], rate=0.1)
        >>> [round(v, 6) for v in w.tolist()]
        [-0.1, 0.1]
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first: Tensor
        self.second: Tensor
        self.age: Tensor
        self.register_buffer("first", torch.zeros(size, dtype=FLOAT))
        self.register_buffer("second", torch.zeros(size, dtype=FLOAT))
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))

    def forget(self) -> None:
        """Empty moments."""
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], rate: float) -> None:
        """Descend; parameters are changed in place."""
        flat = torch.cat([gradient.flatten().to(FLOAT) for gradient in gradients])
        self.age += 1
        self.first.lerp_(flat, 1.0 - DECAYS[0])
        self.second.lerp_(flat.square(), 1.0 - DECAYS[1])
        mean, square = self.first / (1.0 - DECAYS[0] ** int(self.age)), self.second / (1.0 - DECAYS[1] ** int(self.age))
        change = rate * mean / (square.sqrt() + EPSILON)
        for parameter, part in zip(parameters, change.split([p.numel() for p in parameters]), strict=True):
            parameter.sub_(part.view_as(parameter).to(parameter.dtype))
