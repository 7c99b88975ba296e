"""A matrix of covariances known by its products, in row blocks of bounded memory.

K = k(x, z) is (N, M). As many of its row blocks as fit into a stated number of bytes are kept, in float64 or float32;
the others are recomputed for every product, which costs a kernel evaluation an entry where a kept one costs a
multiplication. Gradients of bilinear forms Σ_c u_cᵀ K v_c in the kernel's hyper-parameters are summed block by block,
so that no graph ever holds more than a block.

Products with blocks kept in float32 are off by about 6e-8 of |K| |v|: enough for hyper-parameters while the noise is
not below 1e-6 of the largest covariance times N.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.kernels import Kernel

BLOCK = 16 * 2**20
"""Bytes of a block in float64. A graph through a block holds some five times as much."""


class Blockwise:
    """K(x, z) of a kernel, by its products. What is kept is of the hyper-parameters at the last `refresh`.

    Args:
        kernel: its hyper-parameters may be changed at any time; call `refresh` afterwards.
        x: (N, D)
        z: (M, D)
        limit: bytes that kept blocks may take; 0 keeps none, and products follow the hyper-parameters by themselves.
        dtype: of kept blocks; products return the dtype of what they are given.
        block: bytes of a block while it is computed, in float64.

    Attributes:
        shape: (N, M).
        kept: rows whose blocks are kept.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), 1)
        >>> x = torch.linspace(0, 1, 5, dtype=FLOAT)[:, None]
        >>> k = Blockwise(kernel, x, x[:2], limit=2**20)
        >>> torch.equal(k.product(torch.eye(2, dtype=FLOAT)), kernel(x, x[:2]).detach())
        True
    """

    def __init__(
        self, kernel: Kernel, x: Tensor, z: Tensor, *, limit: int, dtype: torch.dtype = FLOAT, block: int = BLOCK
    ) -> None:
        self.kernel, self.x, self.z, self.dtype = kernel, x, z, dtype
        self.shape = (len(x), len(z))
        self.step = max(1, block // (8 * max(len(z), 1)))
        self.kept = min(len(x), limit // (dtype.itemsize * max(len(z), 1)))
        self._values = torch.empty(self.kept, len(z), dtype=dtype, device=x.device)
        self._graph: Tensor | None = None
        self.refresh()

    @property
    def _whole(self) -> bool:
        """Whether K is one block that is kept as it was computed: then its graph is kept for the gradient, too."""
        return self.kept == len(self.x) <= self.step and self.dtype == self.x.dtype

    def refresh(self) -> None:
        """Compute what is kept from the kernel's present hyper-parameters."""
        self._graph = None
        if self._whole:
            with torch.enable_grad():
                self._graph = self.kernel(self.x, self.z)
            self._values = self._graph.detach()
            return
        with torch.no_grad():
            for start in range(0, self.kept, self.step):
                rows = slice(start, min(start + self.step, self.kept))
                self._values[rows] = self.kernel(self.x[rows], self.z)

    @torch.no_grad()
    def product(self, v: Tensor) -> Tensor:
        """(M, k) -> (N, k): K v."""
        if self.kept == len(self.x):
            return (self._values @ v.to(self.dtype)).to(v.dtype)
        out = v.new_empty(len(self.x), v.shape[1])
        for rows, values in self._blocks():
            out[rows] = (values @ v.to(values.dtype)).to(v.dtype)
        return out

    @torch.no_grad()
    def transposed(self, u: Tensor) -> Tensor:
        """(N, k) -> (M, k): Kᵀu."""
        if self.kept == len(self.x):
            return (self._values.T @ u.to(self.dtype)).to(u.dtype)
        out = u.new_zeros(len(self.z), u.shape[1])
        for rows, values in self._blocks():
            out += (values.T @ u[rows].to(values.dtype)).to(u.dtype)
        return out

    @torch.no_grad()
    def row(self, index: int) -> Tensor:
        """(M,) row `index` of K, float64."""
        if index < self.kept:
            return self._values[index].to(FLOAT)
        out: Tensor = self.kernel(self.x[index : index + 1], self.z)[0]
        return out

    def gradient(self, left: Tensor, right: Tensor) -> list[Tensor]:
        """∂/∂θ Σ_c u_cᵀ K(x, z) v_c with u and v held, one tensor for each of the kernel's parameters that asks
        for one. The hyper-parameters are those at the last `refresh`.

        Args:
            left: (N, k), u.
            right: (M, k), v.
        """
        parameters = [parameter for parameter in self.kernel.parameters() if parameter.requires_grad]
        totals = [torch.zeros_like(parameter) for parameter in parameters]
        for start in range(0, len(self.x), self.step):
            rows = slice(start, start + self.step)
            values, self._graph = self._graph, None
            if values is None:
                with torch.enable_grad():
                    values = self.kernel(self.x[rows], self.z)
            weight = left[rows] @ right.T
            found = torch.autograd.grad(values, parameters, weight, allow_unused=True)
            for total, part in zip(totals, found, strict=True):
                if part is not None:
                    total += part
        return totals

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Rows and their block: those that are kept at once, then the others as they are computed."""
        if self.kept:
            yield slice(0, self.kept), self._values
        for start in range(self.kept, len(self.x), self.step):
            rows = slice(start, min(start + self.step, len(self.x)))
            yield rows, self.kernel(self.x[rows], self.z)


def storage(entries: int, limit: int) -> torch.dtype:
    """The dtype to keep matrices of `entries` in: float64 if all fit into `limit` bytes, else float32.

    Example:
        >>> storage(1000, 8000), storage(1001, 8000)
        (torch.float64, torch.float32)
    """
    return FLOAT if FLOAT.itemsize * entries <= limit else torch.float32
