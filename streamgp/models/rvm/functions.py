"""Functions of a window that a relevance vector machine sums: correlations with windows seen, columns, a constant.

φ(x) = (columns of z(x) and 1 that are in use, k(z(x), z_j) for every window j in use), z(x) the kernel input and k of
height 1. Windows are remembered in raw units, because a new scaling moves z.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.kernels import Kernel
from streamgp.kernels.squared_exponential import SquaredExponential
from streamgp.state import Declared, Padded


class Functions(Declared, nn.Module):
    """At most `capacity` functions.

    Args:
        shape: of the windows.
        kernel: k, of height 1; shared, not copied.
        capacity: of columns and windows together.

    Attributes:
        columns: (a,) int64, columns of z in use; W is the constant.
        past, future: of the b windows in use, raw units.
        points: (b, W) their kernel inputs.
    """

    STATE = (
        Padded("columns", most="capacity", key="columns"),
        Padded("past", "future", "points", most="capacity", key="windows"),
    )

    def __init__(self, shape: Shape, kernel: SquaredExponential, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.kernel = kernel
        self.points: Tensor
        self.register_buffer("points", torch.zeros(0, kernel.dims, dtype=FLOAT))
        self.columns = torch.zeros(0, dtype=torch.int64)
        self.past = torch.zeros(0, shape.lags, len(shape.past), dtype=FLOAT)
        self.future = torch.zeros(0, shape.horizon, len(shape.future), dtype=FLOAT)

    @property
    def x(self) -> Inputs:
        """The b windows in use, raw units."""
        return Inputs(self.past, self.future)

    def __len__(self) -> int:
        return len(self.columns) + len(self.points)

    def put(self, columns: Tensor, x: Inputs, z: Tensor) -> None:
        """These, and no others. columns: (a,); x: b windows; z: (b, W) their kernel inputs."""
        self.columns, self.past, self.future, self.points = columns, x.past.clone(), x.future.clone(), z.clone()

    def holding(self) -> Callable[[], None]:
        """Hold on to the functions as they are: `put` changes no tensor in place. Calling the result puts them back."""
        columns, (past, future, _), points = self.columns, self.x, self.points

        def put_back() -> None:
            self.columns, self.past, self.future, self.points = columns, past, future, points

        return put_back

    def forward(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, a + b)"""
        parts = [linear(z, self.columns.to(z.device))]
        if len(self.points):
            parts.append(self.kernel(z, self.points))
        return torch.cat(parts, 1)

    def at(self, z: Tensor, places: Tensor) -> Tensor:
        """(N, W), (k,) places -> (N, k): these functions alone; O(N k W)."""
        out = z.new_empty(len(z), len(places))
        first = places < len(self.columns)
        out[:, first] = linear(z, self.columns.to(z.device)[places[first]])
        if not bool(first.all()):
            out[:, ~first] = self.kernel(z, self.points[places[~first] - len(self.columns)])
        return out


class Relevance(Kernel):
    """Σ_i φ_i(x) φ_i(z)/s_i, the covariance of a sum of functions whose weights are N(0, 1/s_i).

    Args:
        functions: φ.
        precision: (a + b,) s.
    """

    def __init__(self, functions: Functions, precision: Tensor) -> None:
        super().__init__()
        self.dims, self.functions, self.precision = functions.kernel.dims, functions, precision

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, W), (M, W) -> (N, M)"""
        out: Tensor = (self.functions(x) / self.precision) @ self.functions(z).T
        return out

    def diagonal(self, x: Tensor) -> Tensor:
        """(N, W) -> (N,)"""
        out: Tensor = (self.functions(x).square() / self.precision).sum(1)
        return out


def linear(z: Tensor, columns: Tensor) -> Tensor:
    """(N, W) -> (N, a): columns of (z, 1).

    Example:
        >>> linear(torch.tensor([[3.0, 4.0]]), torch.tensor([2, 0])).tolist()
        [[1.0, 3.0]]
    """
    return torch.cat((z, torch.ones_like(z[:, :1])), 1)[:, columns] if len(columns) else z[:, :0]
