"""Dense twins for deep kernels: the evidence by SciPy's definition, and small problems."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from streamgp.kernels import Kernel
from streamgp.objectives import majoriser
from streamgp.registry import load
from streamgp.solvers import Conditional
from streamgp.solvers.exact import Config, Exact


class Problem(NamedTuple):
    """N rows at latents h with T columns."""

    solver: Exact
    h: Tensor
    y: Tensor

    def data(self, h: Tensor | None = None) -> Any:
        data = self.solver.data()
        data.add(self.h if h is None else h, self.y)
        return data


def problem(n: int, columns: int, kernel: str = "squared_exponential", seed: int = 0, width: int = 2) -> Problem:
    """Latents and targets of order 1, one noise a column."""
    generator = torch.Generator().manual_seed(seed)
    module = load("kernels", kernel)
    solver = Exact(Config(), module.build(module.Config(), width), columns)
    with torch.no_grad():
        solver.log_noise.copy_(torch.empty(columns, dtype=torch.float64).uniform_(-3, 0, generator=generator))
    h = torch.randn(n, width, dtype=torch.float64, generator=generator)
    y = torch.sin(2 * h[:, :1]) + 0.3 * torch.randn(n, columns, dtype=torch.float64, generator=generator)
    return Problem(solver, h, y)


def dense_nlml(kernel: Kernel, noise: Tensor, h: Tensor, y: Tensor) -> Tensor:
    """-log N(y_t; 0, k(h, h) + σ_t² I), summed over columns; differentiable by torch in everything."""
    gram, eye = kernel(h, h), torch.eye(len(h), dtype=h.dtype)
    columns = [
        torch.distributions.MultivariateNormal(torch.zeros_like(target), gram + own * eye).log_prob(target)
        for own, target in zip(noise, y.T, strict=True)
    ]
    return -torch.stack(columns).sum()


def dense_row_gradients(at: Problem) -> Tensor:
    """(N, d) by autograd through the Cholesky factor."""
    leaf = at.h.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(dense_nlml(at.solver.kernel, at.solver.noise.detach(), leaf, at.y), leaf)
    return gradient


def constant(posterior: Conditional, n: int) -> Tensor:
    """Σ_t [ (N/2) log 2πσ_t² + KL₀_t ], what does not depend on the latents.

    Args:
        posterior: given N rows.
        n: N.

    Returns:
        () in nats.
    """
    return (0.5 * n * (2 * math.pi * posterior.noise).log() + posterior.divergence()).sum()


def bound(posterior: Conditional, h: Tensor, y: Tensor) -> Tensor:
    """The whole of E, comparable with the NLML of the same rows.

    Args:
        posterior: frozen, given the same N rows at their stale latents.
        h: (N, d)
        y: (N, T)

    Returns:
        () in nats.
    """
    return majoriser.rows(posterior, h, y).sum() + constant(posterior, len(y))
