"""What the stationary kernels with one outputscale share: ρ² c(x, z), c a correlation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels._base import Kernel, Unit


def logs(value: float, *shape: int) -> nn.Parameter:
    """A parameter full of log `value`.

    Example:
        >>> logs(1.0, 2).tolist()
        [0.0, 0.0]
    """
    return nn.Parameter(torch.full(shape, value, dtype=FLOAT).log())


def toeplitz_columns(
    correlation: Callable[[Tensor, Tensor], Tensor], axes: Sequence[Tensor], scale: Tensor
) -> list[Tensor]:
    """The Toeplitz factors of scale · c on a regular grid, where c(x, z) = Π_d c_d(x_d − z_d) and c_d(0) = 1.

    Such a c at lags along one axis alone is that dimension's c_d.

    Args:
        correlation: (N, D), (M, D) -> (N, M).
        axes: one (m_d,) a dimension, evenly spaced.
        scale: () goes into the first factor.

    Returns:
        the first columns (m_d,) of the D factors.
    """
    columns = []
    for d, axis in enumerate(axes):
        lags = axis.new_zeros(len(axis), len(axes))
        lags[:, d] = axis - axis[0]
        columns.append(correlation(lags, lags[:1])[:, 0])
    return [scale * columns[0], *columns[1:]]


class Stationary(Kernel):
    """k(x, z) = ρ² c(x, z) with c(x, x) = 1, and lengthscales s_d.

    Attributes:
        log_lengthscale: (D,) log s.
        log_outputscale: () log ρ².
        separable: whether c is a product over dimensions, so that it has Toeplitz structure on a grid.
        spatial: whether lengthscales are in units of the input.
    """

    separable: bool = True
    spatial: bool = True

    def __init__(self, dims: int, lengthscale: float, outputscale: float) -> None:
        super().__init__()
        self.dims = dims
        self.log_lengthscale = logs(lengthscale, dims)
        self.log_outputscale = logs(outputscale)

    @property
    def units(self) -> dict[str, Unit | None]:
        return {"log_lengthscale": Unit(input=int(self.spatial)), "log_outputscale": Unit(output=1)}

    @property
    def lengthscale(self) -> Tensor:
        """(D,) s."""
        return self.log_lengthscale.exp()

    @property
    def outputscale(self) -> Tensor:
        """() ρ²."""
        return self.log_outputscale.exp()

    @abstractmethod
    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M): c."""

    def profile(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """A radial c as a function of s = Σ_d (x_d − z_d)²/s_d²: c(s) and −2 c'(s), without graph.

        The derivative in a lengthscale is ∂c/∂log s_d = −2 c'(s) (x_d − z_d)²/s_d². Where c' has a pole at s = 0
        (Matérn-½) it is cut off, since it is multiplied by a distance that is 0 there.

        Args:
            squares: any shape, not negative.

        Raises:
            UsageError: c is not radial.
        """
        raise UsageError(
            f"{type(self).__name__} is no function of one distance",
            hint="use squared_exponential, or a kernel such as matern without separable=true",
        )

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M)"""
        return self.outputscale * self.correlation(x, z)

    def diagonal(self, x: Tensor) -> Tensor:
        """(N, D) -> (N,): ρ² everywhere."""
        return self.outputscale.expand(x.shape[0])

    def grid_terms(self, axes: Sequence[Tensor]) -> list[list[Tensor]]:
        """One term, where c is a product over dimensions; see `Kernel.grid_terms`.

        Raises:
            UsageError: c is radial, and no product over dimensions.
        """
        if not self.separable:
            raise UsageError(
                f"a radial {type(self).__name__} kernel has no Toeplitz structure on a grid of {self.dims} dimensions",
                hint="set separable=true for the kernel that is a product over dimensions, or use solver=exact",
            )
        return [toeplitz_columns(self.correlation, axes, self.outputscale)]
