"""What the tests of kernels share: points, hyper-parameters that are all different, and GPyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT

with warnings.catch_warnings():  # it still uses torch.jit
    warnings.simplefilter("ignore")
    import gpytorch

gpytorch_kernels = gpytorch.kernels


def points(rows: int, seed: int, dims: int = 3) -> Tensor:
    return torch.randn(rows, dims, dtype=FLOAT, generator=torch.Generator().manual_seed(seed))


def spread(kernel: Any, seed: int = 7) -> Any:
    """The kernel with every hyper-parameter moved by its own amount, about a factor of 1.5."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in kernel.parameters():
            value.add_(0.4 * torch.randn(value.shape, dtype=FLOAT, generator=generator))
    return kernel


def made(name: str, dims: int = 3, **options: Any) -> Any:
    """A kernel with hyper-parameters that are all different."""
    return spread(choice.build("kernels", choice.read("kernels", {"name": name, **options}), dims))


def theirs(base: Any, outputscale: Tensor | float, **values: Tensor) -> Any:
    """GPyTorch's kernel with these values, times an outputscale."""
    twin = gpytorch.kernels.ScaleKernel(base).double()
    base.initialize(**{name: value.detach() for name, value in values.items()})
    twin.outputscale = outputscale
    return twin


def same(ours: Any, twin: Any, dims: int = 3) -> None:
    """Equal to 1e-10 between different points, and on the diagonal."""
    x, z = points(6, 0, dims), points(5, 1, dims)
    with torch.no_grad(), gpytorch.settings.lazily_evaluate_kernels(False):
        torch.testing.assert_close(ours(x, z), twin(x, z).to_dense(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(ours.diagonal(x), twin(x, diag=True), rtol=1e-10, atol=1e-10)
