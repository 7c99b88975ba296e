"""The laws of a covariance function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.kernels._base import Kernel


def check_kernel(build: Callable[[int], Kernel], dims: Sequence[int] = (1, 3)) -> None:
    """The laws of `kernels._base.Kernel`: symmetric, positive semi-definite, its diagonal, its gradients.

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
        names, values = zip(*((n, p.detach().clone()) for n, p in kernel.named_parameters()), strict=True)

        def covariance(x: Tensor, z: Tensor, *values: Tensor, kernel: Kernel = kernel, names: Any = names) -> Any:
            return torch.func.functional_call(kernel, dict(zip(names, values, strict=True)), (x, z))

        free = tuple(value.requires_grad_() for value in (x[:3].clone(), z[:2].clone(), *values))
        assert torch.autograd.gradcheck(covariance, free, raise_exception=False), (
            "gradients differ from finite differences"
        )
