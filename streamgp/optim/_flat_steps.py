"""Adam and AdaDelta on one tensor: a gradient goes in, a direction comes out, and nothing waits for the device."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from streamgp.base import Json

DECAYS = (0.9, 0.999)
EPSILON = 1e-12


class FlatSteps(Protocol):
    """Steps along `direction`, times a rate. Stateful."""

    def direction(self, gradient: Tensor) -> Tensor:
        """What the parameters go down by at rate 1; a tensor of its own."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]: ...

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None: ...


class FlatAdam:
    """Adam (Kingma & Ba 2015) on one tensor.

    Departure: epsilon is 1e-12, since losses are per row and gradients small.

    Args:
        like: of the parameters' shape, type and device.

    Example:
        >>> FlatAdam(torch.zeros(2)).direction(torch.tensor([3.0, -0.1])).round(decimals=6)
        tensor([ 1., -1.])
    """

    def __init__(self, like: Tensor) -> None:
        self.first, self.second, self.age = torch.zeros_like(like), torch.zeros_like(like), 0

    @torch.no_grad()
    def direction(self, gradient: Tensor) -> Tensor:
        self.age += 1
        self.first.lerp_(gradient, 1.0 - DECAYS[0])
        self.second.mul_(DECAYS[1]).addcmul_(gradient, gradient, value=1.0 - DECAYS[1])
        root = self.second.sqrt().mul_((1.0 - DECAYS[1] ** self.age) ** -0.5).add_(EPSILON)
        return torch.div(self.first, root, out=root).mul_(1.0 / (1.0 - DECAYS[0] ** self.age))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {"first": self.first.clone(), "second": self.second.clone()}, {"age": self.age}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.first.copy_(tensors["first"])
        self.second.copy_(tensors["second"])
        self.age = int(str(rest["age"]))


class FlatAdaDelta:
    """AdaDelta (Zeiler 2012) on one tensor, the optimiser of Shoham & Avron; its constants are PyTorch's.

    Example:
        >>> round(float(FlatAdaDelta(torch.zeros(1)).direction(torch.ones(1))), 6)
        0.003162
    """

    decay, epsilon = 0.9, 1e-6

    def __init__(self, like: Tensor) -> None:
        self.gradients, self.changes = torch.zeros_like(like), torch.zeros_like(like)

    @torch.no_grad()
    def direction(self, gradient: Tensor) -> Tensor:
        self.gradients.mul_(self.decay).addcmul_(gradient, gradient, value=1.0 - self.decay)
        change = (self.changes + self.epsilon).div_(self.gradients + self.epsilon).sqrt_().mul_(gradient)
        self.changes.mul_(self.decay).addcmul_(change, change, value=1.0 - self.decay)
        return change

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {"gradients": self.gradients.clone(), "changes": self.changes.clone()}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.gradients.copy_(tensors["gradients"])
        self.changes.copy_(tensors["changes"])
