"""The laws of a covariance function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels import Kernel, Stationary


def check_kernel(build: Callable[[int], Kernel], dims: Sequence[int] = (1, 3)) -> None:
    """The laws of `kernels.Kernel`: symmetric, positive semi-definite, its diagonal, its gradients, its grid, its
    spectral density.

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
            assert bool(torch.isfinite(gram).all()), "not finite, perhaps of a row with itself"
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
        _check_frequencies(kernel, x[:4], z[:3])
        _check_profile(kernel, x, z)
        _check_units(kernel, x, z)


def _check_coincident(kernel: Kernel, x: Tensor) -> None:
    """A row beside itself is where the root of a distance has no derivative."""
    left, right = (torch.cat((x, x[:1])).requires_grad_() for _ in range(2))
    free = (left, right, *kernel.parameters())
    found = torch.autograd.grad(kernel(left, right).sum(), free, allow_unused=True)
    assert all(bool(torch.isfinite(g).all()) for g in found if g is not None), (
        "gradients are not finite where inputs coincide"
    )


class _Look(nn.Module):
    """What a kernel says as a module's forward, so that it can be called with other hyper-parameters."""

    def __init__(self, kernel: Kernel, look: Callable[[Kernel], Iterable[Tensor]]) -> None:
        super().__init__()
        self.kernel, self.look = kernel, look

    def forward(self) -> tuple[Tensor, ...]:
        return tuple(self.look(self.kernel))


def _differentiates(kernel: Kernel, look: Callable[[Kernel], Iterable[Tensor]]) -> bool:
    """Whether gradients in the hyper-parameters are those of finite differences."""
    module = _Look(kernel, look)
    named = {name: value.detach().clone().requires_grad_() for name, value in module.named_parameters()}

    def call(*values: Tensor) -> Any:
        return torch.func.functional_call(module, dict(zip(named, values, strict=True)), ())

    return torch.autograd.gradcheck(call, tuple(named.values()), raise_exception=False)


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
    assert _differentiates(kernel, lambda one: (column for term in one.grid_terms(axes) for column in term)), (
        "law 4: gradients of grid_terms differ from finite differences"
    )


def _check_profile(kernel: Kernel, x: Tensor, z: Tensor) -> None:
    """Law 6: c as a function of the scaled distance, and its derivative by a central difference."""
    if not isinstance(kernel, Stationary):
        return
    with torch.no_grad():
        squares = ((x[:, None] - z) / kernel.lengthscale).square().sum(2)
        try:
            correlation, slope = kernel.profile(squares)
        except UsageError as error:
            assert error.hint, "profile refuses without a hint"
            return
        step = 1e-4 * squares
        wanted = -(kernel.profile(squares + step)[0] - kernel.profile(squares - step)[0]) / step
        assert torch.allclose(correlation, kernel.correlation(x, z), rtol=0, atol=1e-12), "law 6: profile is not c"
        assert torch.allclose(slope, wanted, rtol=1e-5, atol=1e-7), "law 6: the slope of profile is not −2 c'"


def _check_units(kernel: Kernel, x: Tensor, z: Tensor) -> None:
    """Law 7, in inputs of half the unit and covariances of a third of it."""
    named, units = dict(kernel.named_parameters()), kernel.units
    assert units.keys() == named.keys(), "law 7: units are not those of the hyper-parameters"
    known = {name: unit for name, unit in units.items() if unit is not None}
    if len(known) < len(units):
        return
    r, c = 2.0, 3.0
    moved = {name: named[name] + unit.input * math.log(r) + unit.output * math.log(c) for name, unit in known.items()}
    with torch.no_grad():
        found = torch.func.functional_call(kernel, moved, (r * x, r * z))
        assert torch.allclose(found, c * kernel(x, z), rtol=1e-9, atol=1e-12), "law 7: units"


def _check_frequencies(kernel: Kernel, x: Tensor, z: Tensor) -> None:
    """Law 5, to the Monte Carlo error of 20,000 strata, and the reparametrisation's gradients."""
    place = torch.arange(20_000 * kernel.strata)
    normals = torch.randn(len(place), kernel.normals, dtype=FLOAT, generator=torch.Generator().manual_seed(1))
    try:
        rate, weight = kernel.frequencies(normals, place)
    except UsageError as error:
        assert error.hint and kernel.normals == 0, "frequencies are refused without a hint, or normals are promised"
        return
    with torch.no_grad():
        assert rate.shape == (len(place), x.shape[1]) and weight.shape == (len(place),), "shapes of frequencies"
        lag = (x[:, None] - z).flatten(0, 1)  # (12, D)
        drawn = (weight * (lag @ rate.T).cos()).unflatten(1, (-1, kernel.strata)).mean(2)
        score = (drawn.mean(1) - kernel(x, z).flatten()) / (drawn.std(1) / drawn.shape[1] ** 0.5)
        assert float(score.abs().max()) < 5.0, "law 5: v cos(ωᵀ(x − z)) is not the kernel on average"
        assert torch.allclose(weight[: kernel.strata].mean(), kernel.diagonal(x)[0]), (
            "law 5: v is not k(x, x) on average"
        )
    few = 2 * kernel.strata
    assert _differentiates(kernel, lambda one: one.frequencies(normals[:few], place[:few])), (
        "law 5: gradients of frequencies differ from finite differences"
    )


def toeplitz(column: Tensor) -> Tensor:
    """The dense symmetric Toeplitz matrix of a first column.

    Example:
        >>> toeplitz(torch.tensor([2.0, 1.0, 0.0])).tolist()
        [[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]]
    """
    index = torch.arange(len(column))
    return column[(index[:, None] - index).abs()]
