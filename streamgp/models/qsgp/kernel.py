"""The kernel of a QSGP: one of several radial ones, with the hyper-parameters that they share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from streamgp import choice
from streamgp.errors import UsageError
from streamgp.kernels import Frequencies, Stationary, matern, squared_exponential

AUTO: tuple[BaseModel, ...] = (squared_exponential.Config(), *(matern.Config(nu=nu) for nu in (2.5, 1.5, 0.5)))
"""What is chosen from where nothing is named: ever rougher functions."""


class Candidates(Stationary):
    """One of several radial kernels; lengthscales and outputscale are the same tensors for all of them.

    Args:
        kernels: of the same columns.
        configs: theirs.

    Attributes:
        configs: as given.
        index: () int64, the one in use.

    Example:
        >>> kernel = candidates(AUTO, dims=1)
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> smooth = kernel(0.0 * one, one).item()
        >>> kernel.take(3).index.item(), round(smooth, 4), round(kernel(0.0 * one, one).item(), 4)
        (3, 0.6065, 0.3679)
    """

    def __init__(self, kernels: Sequence[Stationary], configs: Sequence[BaseModel] = ()) -> None:
        super().__init__(kernels[0].dims, 1.0, 1.0)
        self.configs = tuple(configs)
        for kernel in kernels:
            kernel.log_lengthscale, kernel.log_outputscale = self.log_lengthscale, self.log_outputscale
        self.kernels = nn.ModuleList(kernels)
        self.index: Tensor
        self.register_buffer("index", torch.zeros((), dtype=torch.int64))

    @property
    def radial(self) -> list[Stationary]:
        """The kernels to choose from."""
        return [kernel for kernel in self.kernels if isinstance(kernel, Stationary)]

    @property
    def own(self) -> Stationary:
        """The one in use."""
        return self.radial[int(self.index)]

    def take(self, index: int) -> Candidates:
        """Use another."""
        self.index.fill_(index)
        return self

    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M)"""
        return self.own.correlation(x, z)

    def profile(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """See `Stationary.profile`."""
        return self.own.profile(squares)

    @property
    def normals(self) -> int:
        return max(kernel.normals for kernel in self.radial)

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        """Those of the kernel in use, from the first of the normals; see `Kernel.frequencies`."""
        return self.own.frequencies(normals[:, : self.own.normals], place)


def candidates(configs: Sequence[BaseModel], dims: int) -> Candidates:
    """The kernels of these Configs for inputs of `dims` columns.

    Raises:
        UsageError: one of them is no function of one distance, or has hyper-parameters set, which evidence would undo.
    """
    kernels = []
    for config in configs:
        name = choice.part_name(config)
        kernel = choice.build("kernels", config, dims)
        if not isinstance(kernel, Stationary):
            raise UsageError(
                f"kernel={name} is no function of one distance, so that qsgp cannot estimate its lengthscales",
                hint="use kernel=auto, squared_exponential, matern or rational_quadratic",
            )
        kernel.profile(torch.zeros(1, dtype=torch.float64))  # refuses what is not radial
        for field in ("lengthscale", "outputscale"):
            if getattr(config, field) != type(config).model_fields[field].default:
                raise UsageError(
                    f"kernel.{field} is estimated by evidence, and what is set would be lost",
                    hint=f"leave out --set kernel.{field}",
                )
        kernels.append(kernel)
    return Candidates(kernels, configs)
