"""What an encoder steps on between two refreshes of the kernel: three estimates of ∂NLML/∂W from a mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from streamgp.errors import UsageError
from streamgp.objectives import majoriser
from streamgp.objectives.evidence import (
    HasJointLikelihood,
    HasPairGradient,
    HasRowGradients,
    pair_surrogate,
    row_gradients,
    row_surrogate,
)
from streamgp.solvers import Data, Solver

Scheme: TypeAlias = Literal["majoriser", "rows", "submatrix"]

Estimate: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(|b|, d) latents with graph, (|b|,) the numbers of their rows -> () loss per row, of which at the stale weights the
gradient's mean over mini-batches is ∂NLML/∂W / N."""


def estimate(scheme: Scheme, solver: Solver, data: Data, h: Tensor, y: Tensor) -> Estimate:
    """The loss of mini-batches, with everything that needs a kernel solve computed once.

    Args:
        scheme: see `alternating.AlternatingConfig`.
        solver: its θ and σ² must stay as they are while the estimate is used.
        data: the N rows at h.
        h: (N, d) stale latents, without graph.
        y: (N, T)

    Raises:
        UsageError: the sub-matrix form with a solver that has no pair gradients.
    """
    n = len(y)
    if scheme == "submatrix":
        pairs = _with_pairs(solver).pair_gradient(data)
        return lambda latent, rows: pair_surrogate(pairs[rows][:, rows], solver.kernel(latent, latent), n) / n
    if scheme == "rows":
        gradients = solver_row_gradients(solver, data, h, y)
        return lambda latent, rows: row_surrogate(gradients[rows], latent, n) / n
    posterior = solver.condition(data)
    return lambda latent, rows: majoriser.rows(posterior, latent, y[rows]).mean()


def solver_row_gradients(solver: Solver, data: Data, h: Tensor, y: Tensor) -> Tensor:
    """(N, d) ∂NLML/∂h_i at the stale latents: the solver's own where it has a cheaper way, else by its posterior."""
    if isinstance(solver, HasRowGradients):
        return solver.row_gradients(h, y)
    return row_gradients(solver.condition(data), h, y)


def joint(solver: Solver, data: Data, h: Tensor, y: Tensor, *, wanted: bool) -> tuple[Tensor, Tensor | None]:
    """NLML with a graph in θ and σ², and (N, d) its row gradients where they are wanted.

    One factorisation serves both where the solver is differentiable in the latents.
    """
    if not wanted:
        return solver.nlml(data), None
    if isinstance(solver, HasJointLikelihood):
        leaf = h.detach().requires_grad_()
        value = solver.nlml_at(leaf, y)
        (rows,) = torch.autograd.grad(value, leaf, retain_graph=True)
        return value, rows
    return solver.nlml(data), solver_row_gradients(solver, data, h, y)


def check(scheme: str, solver: Solver) -> None:
    """Raises UsageError where the scheme and the solver do not go together."""
    if scheme == "submatrix":
        _with_pairs(solver)


def _with_pairs(solver: Solver) -> HasPairGradient:
    if not isinstance(solver, HasPairGradient):
        raise UsageError(
            f"the sub-matrix form needs the gradients of pairs of rows, which {type(solver).__name__} does not have",
            hint="use solver=exact, or scheme=majoriser",
        )
    return solver
