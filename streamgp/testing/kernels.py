"""The laws of a covariance function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels._base import Kernel


def check_kernel(build: Callable[[int], Kernel], dims: Sequence[int] = (1, 3)) -> None:
    """The laws of `kernels._base.Kernel`: symmetric, positive semi-definite, its diagonal, its gradients, its grid.

    Raises:
        AssertionError: a law is broken; the message names it.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> check_kernel(lambda dims: squared_exponential.build(squared_exponential.Config(), dims))
    """
    for width in dims:
        kernel = build(width)
        generator = torch.Generator().manual_seed(width)
        x = torch.randn(12, width, generator=generator, dtype=FLOAT)
        z = torch.randn(5, width, generator=generator, dtype=FLOAT)
        with torch.no_grad():
            gram = kernel(torch.cat([x, z]), torch.cat([x, z]))
            size = gram.abs().max()
            assert gram.dtype == FLOAT and gram.shape == (17, 17), "a (N, dims), (M, dims) pair gives float64 (N, M)"
            assert torch.allclose(gram, gram.T, rtol=0, atol=1e-12 * size), "not symmetric"
            assert torch.linalg.eigvalsh(gram)[0] > -1e-10 * size, "not positive semi-definite"
            assert torch.allclose(kernel(x, z), gram[:12, 12:], rtol=0, atol=1e-12 * size), "rows depend on each other"
            assert torch.allclose(kernel.diagonal(x), gram.diagonal()[:12], rtol=0, atol=1e-12 * size), "diagonal"
        named = {name: value.detach().clone() for name, value in kernel.named_parameters()}
        for name, value in named.items():
            assert value.dtype == FLOAT and bool(torch.isfinite(value).all()), f"{name} is not finite float64 at first"
        names = tuple(named)

        def covariance(x: Tensor, z: Tensor, *values: Tensor, kernel: Kernel = kernel, names: Any = names) -> Any:
            return torch.func.functional_call(kernel, dict(zip(names, values, strict=True)), (x, z))

        free = tuple(value.requires_grad_() for value in (x[:3].clone(), z[:2].clone(), *named.values()))
        assert torch.autograd.gradcheck(covariance, free, raise_exception=False), (
            "gradients differ from finite differences"
        )
        _check_coincident(kernel, x[:3])
        _check_grid(kernel, width)


def _check_coincident(kernel: Kernel, x: Tensor) -> None:
    """A row beside itself is where the root of a distance has no derivative."""
    left, right = (torch.cat((x, x[:1])).requires_grad_() for _ in range(2))
    free = (left, right, *kernel.parameters())
    found = torch.autograd.grad(kernel(left, right).sum(), free, allow_unused=True)
    assert all(bool(torch.isfinite(g).all()) for g in found if g is not None), (
        "gradients are not finite where inputs coincide"
    )


class _OnGrid(nn.Module):
    """`grid_terms` as a module's forward, so that it can be called with other hyper-parameters."""

    def __init__(self, kernel: Kernel, axes: Sequence[Tensor]) -> None:
        super().__init__()
        self.kernel, self.axes = kernel, axes

    def forward(self) -> tuple[Tensor, ...]:
        return tuple(column for term in self.kernel.grid_terms(self.axes) for column in term)


def _check_grid(kernel: Kernel, width: int) -> None:
    """Law 4, with other sizes and another spacing in every dimension."""
    axes = [torch.linspace(-1.0, 0.4 * d, 4 + d, dtype=FLOAT) for d in range(width)]
    try:
        terms = kernel.grid_terms(axes)
    except UsageError as error:
        assert error.hint, "grid_terms refuses without a hint"
        return
    with torch.no_grad():
        dense = reduce(torch.add, (reduce(torch.kron, map(toeplitz, term)) for term in terms))
        u = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
        gram = kernel(u, u)
        assert torch.allclose(dense, gram, rtol=0, atol=1e-12 * gram.abs().max()), (
            "law 4: grid_terms is not the kernel on the grid"
        )
    grid = _OnGrid(kernel, axes)
    named = {name: value.detach().clone().requires_grad_() for name, value in grid.named_parameters()}

    def columns(*values: Tensor) -> Any:
        return torch.func.functional_call(grid, dict(zip(named, values, strict=True)), ())

    assert torch.autograd.gradcheck(columns, tuple(named.values()), raise_exception=False), (
        "law 4: gradients of grid_terms differ from finite differences"
    )


def toeplitz(column: Tensor) -> Tensor:
    """The dense symmetric Toeplitz matrix of a first column.

    Example:
        >>> toeplitz(torch.tensor([2.0, 1.0, 0.0])).tolist()
        [[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]]
    """
    index = torch.arange(len(column))
    return column[(index[:, None] - index).abs()]
