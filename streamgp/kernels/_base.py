"""What a kernel is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Kernel(nn.Module, ABC):
    """A covariance function k(x, z) with learnable hyper-parameters.

    A kernel's module has a frozen pydantic `Config` and `build(config, dims) -> Kernel` for inputs of `dims` columns.

    Laws (streamgp.testing.check_kernel asserts them for every registered kernel):
        1. `kernel(x, x)` is symmetric and positive semi-definite.
        2. `kernel.diagonal(x)` is its diagonal.
        3. Everything is differentiable in x, z and the hyper-parameters.

    Attributes:
        dims: columns of an input.
    """

    dims: int

    @abstractmethod
    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, dims), (M, dims) -> (N, M) covariances."""

    @abstractmethod
    def diagonal(self, x: Tensor) -> Tensor:
        """(N, dims) -> (N,): k(x_n, x_n)."""
