"""The sum of kernels: a function that is a sum of independent ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.kernels import locally_periodic, squared_exponential
from streamgp.kernels._base import Frequencies
from streamgp.kernels._composite import Composite, Parts


class Config(BaseModel):
    """A sum of kernels; by default a trend and a pattern that drifts (Xu et al. 2019, equation (21)).

    Example:
        >>> config = Config.model_validate({"parts": ["linear", {"name": "matern", "nu": 0.5}]})
        >>> config.parts[1].nu, config == Config.model_validate(config.model_dump())
        (0.5, True)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    parts: Parts = Field(
        (squared_exponential.Config(), locally_periodic.Config()),
        min_length=1,
        description="the kernels, each a name or a mapping of its name and options",
    )


class Sum(Composite):
    """k(x, z) = Σ_p k_p(x, z).

    Attributes:
        parts: the kernels k_p; their hyper-parameters are all there are.

    Example:
        >>> kernel = build(Config(parts=("linear", "squared_exponential")), dims=1)
        >>> kernel(torch.zeros(1, 1).double(), torch.zeros(1, 1).double()).item()
        2.0
    """

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M)"""
        return reduce(torch.add, self.covariances(x, z))

    def diagonal(self, x: Tensor) -> Tensor:
        """(N, D) -> (N,)"""
        return reduce(torch.add, self.diagonals(x))

    def grid_terms(self, axes: Sequence[Tensor]) -> list[list[Tensor]]:
        """The terms of all parts; see `Kernel.grid_terms`.

        Raises:
            UsageError: a part has none.
        """
        return [term for kernel in self.kernels for term in kernel.grid_terms(axes)]

    @property
    def normals(self) -> int:
        needed = [kernel.normals for kernel in self.kernels]
        return max(needed) if all(needed) else 0

    @property
    def strata(self) -> int:
        return len(self.kernels) * math.lcm(*(kernel.strata for kernel in self.kernels))

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        """Those of part (place mod parts), with the number of parts as a factor; see `Kernel.frequencies`.

        Raises:
            UsageError: a part has none.
        """
        for kernel in self.kernels:
            if not kernel.normals:
                return kernel.frequencies(normals, place)  # it says why not
        count = len(self.kernels)
        drawn, order = list[Frequencies](), list[Tensor]()
        for part, kernel in enumerate(self.kernels):
            own = (place % count == part).nonzero()[:, 0]
            drawn.append(kernel.frequencies(normals[own, : kernel.normals], place[own] // count))
            order.append(own)
        back = torch.cat(order).argsort()
        rates, weights = zip(*drawn, strict=True)
        return Frequencies(torch.cat(rates)[back], count * torch.cat(weights)[back])


def build(config: Config, dims: int) -> Sum:
    """The kernel for inputs of `dims` columns."""
    return Sum(config.parts, dims)
