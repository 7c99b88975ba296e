"""What sums and products of kernels share: the parts, from their Configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias, cast

from pydantic import BaseModel
from torch import Tensor, nn

from streamgp import choice
from streamgp.kernels._base import Kernel, Unit

Parts: TypeAlias = tuple[Annotated[BaseModel, choice.OneOf("kernels")], ...]
"""Kernels by name, by name and options, or by Config; a tuple of their Configs once read."""


class Composite(Kernel):
    """A kernel made of kernels over the same inputs.

    Attributes:
        parts: the kernels; their hyper-parameters are all there are.
    """

    def __init__(self, parts: Sequence[BaseModel], dims: int) -> None:
        super().__init__()
        self.dims = dims
        self.parts = nn.ModuleList(choice.build("kernels", part, dims) for part in parts)

    @property
    def kernels(self) -> list[Kernel]:
        """The parts as what they are."""
        return [cast(Kernel, part) for part in self.parts]

    @property
    def units(self) -> dict[str, Unit | None]:
        return {f"parts.{p}.{name}": unit for p, part in enumerate(self.kernels) for name, unit in part.units.items()}

    def covariances(self, x: Tensor, z: Tensor) -> list[Tensor]:
        """(N, D), (M, D) -> the parts' (N, M)."""
        return [kernel.forward(x, z) for kernel in self.kernels]

    def diagonals(self, x: Tensor) -> list[Tensor]:
        """(N, D) -> the parts' (N,)."""
        return [kernel.diagonal(x) for kernel in self.kernels]
