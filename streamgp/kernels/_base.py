"""What a kernel is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from streamgp.errors import UsageError


class Frequencies(NamedTuple):
    """P draws from a spectral density.

    Attributes:
        rate: (P, dims) ω, radians per unit of the input.
        weight: (P,) v, in squared units of the output.
    """

    rate: Tensor
    weight: Tensor


class Unit(NamedTuple):
    """What a hyper-parameter is measured in: a power of the inputs' unit times a power of the covariances' unit."""

    input: int = 0
    output: int = 0


class Kernel(nn.Module, ABC):
    """A covariance function k(x, z) with learnable hyper-parameters.

    A kernel's module has a frozen pydantic `Config` and `build(config, dims) -> Kernel` for inputs of `dims` columns.

    Laws (streamgp.testing.check_kernel asserts them for every registered kernel):
        1. `kernel(x, x)` is symmetric and positive semi-definite.
        2. `kernel.diagonal(x)` is its diagonal.
        3. Everything is differentiable in x, z and the hyper-parameters; gradients are finite where rows coincide.
        4. Where `grid_terms` answers, its sum of Kronecker products of Toeplitz matrices is the kernel on the grid.
        5. Where `frequencies` answers, the mean of v cos(ωᵀ(x − z)) is the kernel.
        6. Where a stationary kernel's `profile` answers, it is the correlation as a function of the scaled distance.
        7. Where `units` names them all, c · k(x, z) is the kernel of rx and rz whose hyper-parameters are those
           times r and c to the powers that `units` says.

    Attributes:
        dims: columns of an input.
    """

    dims: int

    @property
    def units(self) -> dict[str, Unit | None]:
        """The unit of every hyper-parameter, whose logarithm is the parameter of that name; None: no one unit."""
        return dict.fromkeys(name for name, _ in self.named_parameters())

    @property
    def fixed(self) -> dict[str, float]:
        """What its shape hangs on and is not learned, such as nu of `matern`."""
        return {}

    @property
    def normals(self) -> int:
        """Standard normals that one draw of `frequencies` is made of; 0 where there is no spectral density to draw."""
        return 0

    @property
    def strata(self) -> int:
        """Components of the spectral density that successive places go through in turn."""
        return 1

    @abstractmethod
    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, dims), (M, dims) -> (N, M) covariances."""

    @abstractmethod
    def diagonal(self, x: Tensor) -> Tensor:
        """(N, dims) -> (N,): k(x_n, x_n)."""

    def grid_terms(self, axes: Sequence[Tensor]) -> list[list[Tensor]]:
        """The kernel on a regular grid: K_UU = Σ_p T_p1 ⊗ … ⊗ T_pd, T symmetric Toeplitz (Wilson & Nickisch 2015).

        Args:
            axes: one (m_d,) a dimension, ascending, evenly spaced.

        Returns:
            the terms p, each a list of the first columns (m_d,) of its d Toeplitz factors, differentiable in the
            hyper-parameters; scales are in the first factor. Row order: the last dimension runs fastest.

        Raises:
            UsageError: the kernel is not stationary, or does not factorise over the dimensions.
        """
        raise UsageError(
            f"{type(self).__name__} has no Toeplitz structure on a grid of {len(axes)} dimensions",
            hint="use solver=exact, or a stationary kernel that is a product over dimensions",
        )

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        """Draws from the spectral density (Bochner's theorem; Rahimi & Recht 2007), differentiable reparametrisations.

        k(x, z) = E v cos(ωᵀ(x − z)), over the normals and over any `strata` successive places. Neither the draws nor
        their number depend on hyper-parameters, so that a frequency moves smoothly with them.

        Args:
            normals: (P, `normals`) independent standard normals.
            place: (P,) int64, the number of each draw; a mixture takes its component from it.

        Raises:
            UsageError: the kernel has no spectral density, or none that standard normals reach.
        """
        from streamgp.kernels._facts import drawn, names_where  # they import this

        raise UsageError(
            f"{type(self).__name__} has no random frequencies",
            hint=f"use {names_where(drawn)}, or sums and products of these",
        )
