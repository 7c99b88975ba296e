"""Small problems for stochastic steps, and a mode that notices tensors of size m."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from streamgp.features import Features, fourier
from streamgp.kernels import squared_exponential


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def fourier_of(size: int, width: int, dims: int = 2) -> Features:
    kernel = squared_exponential.build(squared_exponential.Config(lengthscale=0.8, outputscale=1.5), dims)
    return fourier.build(fourier.Config(size=size, width=width), kernel, seed=1)


def data(rows: int, *, missing: bool = False) -> tuple[Tensor, Tensor]:
    """(R, 2) inputs, (R, 2) targets."""
    x = normal(rows, 2, seed=2)
    y = torch.stack((torch.sin(2 * x[:, 0]), x[:, 1].cos()), 1) + 0.1 * normal(rows, 2, seed=3)
    if missing:
        y[::7, 0], y[3::5, 1] = torch.nan, torch.nan
    return x, y


def everything(features: Features, x: Tensor) -> Tensor:
    """(R, m) Φ."""
    with torch.no_grad():
        return torch.cat([features.block(x, b) for b in range(features.blocks)], 1)


class Largest(TorchDispatchMode):
    """Notes the largest tensor that an operation reads, writes or makes; views are free, and so is what is indexed.

    Attributes:
        size: entries of the largest.
    """

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            seen = (args[1:] if func is torch.ops.aten.index.Tensor else args, kwargs, out)
            sizes = [t.numel() for t in tree_leaves(seen) if isinstance(t, Tensor)]
            self.size = max([self.size, *sizes])
        return out
