"""The product of kernels: covariance where all of them see it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.kernels import periodic, squared_exponential
from streamgp.kernels._base import Frequencies, Unit
from streamgp.kernels._composite import Composite, Parts


class Config(BaseModel):
    """A product of kernels; by default a squared exponential times a periodic one.

    Example:
        >>> config = Config.model_validate({"parts": ["linear", {"name": "matern", "nu": 0.5}]})
        >>> config.parts[1].nu, config == Config.model_validate(config.model_dump())
        (0.5, True)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    parts: Parts = Field(
        (squared_exponential.Config(), periodic.Config()),
        min_length=1,
        description="the kernels, each a name or a mapping of its name and options",
    )


class Product(Composite):
    """k(x, z) = Π_p k_p(x, z).

    Only the product of the parts' outputscales is determined by data; all of them are learned.

    Attributes:
        parts: the kernels k_p; their hyper-parameters are all there are.

    Example:
        >>> kernel = build(Config(parts=("linear", {"name": "matern", "outputscale": 3.0})), dims=1)
        >>> round(kernel(torch.zeros(1, 1).double(), torch.zeros(1, 1).double()).item(), 12)
        3.0
    """

    @property
    def units(self) -> dict[str, Unit | None]:
        """The first part has the covariances' unit."""
        return {
            name: unit if unit is None or name.startswith("parts.0.") else unit._replace(output=0)
            for name, unit in super().units.items()
        }

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, D), (M, D) -> (N, M)"""
        return reduce(torch.mul, self.covariances(x, z))

    def diagonal(self, x: Tensor) -> Tensor:
        """(N, D) -> (N,)"""
        return reduce(torch.mul, self.diagonals(x))

    def grid_terms(self, axes: Sequence[Tensor]) -> list[list[Tensor]]:
        """One term for every choice of a term from each part; see `Kernel.grid_terms`.

        (A ⊗ B) ∘ (C ⊗ D) = (A ∘ C) ⊗ (B ∘ D), and ∘ of Toeplitz matrices is ∘ of their first columns.

        Raises:
            UsageError: a part has none.
        """
        return [
            [reduce(torch.mul, columns) for columns in zip(*terms, strict=True)]
            for terms in itertools.product(*(kernel.grid_terms(axes) for kernel in self.kernels))
        ]

    @property
    def normals(self) -> int:
        needed = [kernel.normals for kernel in self.kernels]
        return sum(needed) if all(needed) else 0

    @property
    def strata(self) -> int:
        return math.prod(kernel.strata for kernel in self.kernels)

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        """Sums of the parts' frequencies, products of their weights; see `Kernel.frequencies`.

        The parts' strata are the digits of a place, so that every combination has its turn. ω of every part is
        symmetric about 0 and independent of the others', so that E cos(Σ a_p) = Π E cos a_p.

        Raises:
            UsageError: a part has none.
        """
        for kernel in self.kernels:
            if not kernel.normals:
                return kernel.frequencies(normals, place)  # it says why not
        rate, weight, used = normals.new_zeros(()), normals.new_ones(()), 0
        for kernel in self.kernels:
            needed = kernel.normals
            part = kernel.frequencies(normals[:, used : used + needed], place)
            rate, weight, used = rate + part.rate, weight * part.weight, used + needed
            place = place // kernel.strata
        return Frequencies(rate, weight)


def build(config: Config, dims: int) -> Product:
    """The kernel for inputs of `dims` columns."""
    return Product(config.parts, dims)
