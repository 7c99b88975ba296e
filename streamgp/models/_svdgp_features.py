"""From windows to kernel inputs: standardised, flattened, and divided by one lengthscale a channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Inputs, Json, Shape
from streamgp.models._scaling import InputScaling


class KernelInputs(nn.Module):
    """x ↦ z (N, W), W = L·D + H·F, such that the kernel is exp(−½‖z − z'‖²).

    A channel's lags (or its steps ahead) are a group g of size s_g: they share a location, a scale and a lengthscale,
    and are divided by ℓ_g √s_g, so that ℓ = 1 means that two windows a standard deviation apart in every lag of that
    channel, and equal otherwise, correlate by e^−½ however many lags there are.

    Args:
        shape: of the windows.

    Example:
        >>> shape = Shape(targets=("y",), horizon=2, lags=3, past=("y", "u"), future=("u",))
        >>> KernelInputs(shape).groups.tolist()
        [0, 1, 0, 1, 0, 1, 2, 2]
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        past = torch.arange(len(shape.past) if shape.lags else 0).repeat(shape.lags)
        ahead = torch.arange(len(shape.future)).repeat(shape.horizon) + (len(shape.past) if shape.lags else 0)
        groups = torch.cat((past, ahead))
        self.scaling = InputScaling(shape)
        self.groups: Tensor
        self.inverse: Tensor
        self.register_buffer("groups", groups)  # (W,)
        self.register_buffer("inverse", torch.ones(len(groups), dtype=FLOAT))  # (W,) 1/(ℓ_g √s_g)

    @property
    def count(self) -> int:
        """G, the number of groups."""
        return int(self.groups.max()) + 1

    def set_lengthscales(self, log_lengthscale: Tensor) -> None:
        """(G,) log ℓ."""
        sizes = torch.bincount(self.groups).to(FLOAT)
        per_group = torch.exp(-log_lengthscale.to(sizes.device)) / sizes.sqrt()
        self.inverse = per_group[self.groups]

    def forward(self, x: Inputs) -> Tensor:
        """(N, W)"""
        flat: Tensor = self.scaling.flat(x)
        return flat * self.inverse

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = self.scaling.state()
        return tensors | {"inverse": self.inverse}, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.inverse = tensors["inverse"].clone().to(self.groups.device)
        self.scaling.restore(tensors, rest)
