"""Gradients of the negative log marginal likelihood with respect to latents, and their mini-batch estimates.

With α_t = K_t⁻¹y_t and G = Σ_t ½ (K_t⁻¹ − α_tα_tᵀ) = ∂NLML/∂k(H, H), the gradient of the loss is

    ∂NLML/∂W = Σ_i ⟨g_i, ∂φ_W(x_i)/∂W⟩,   g_i = ∂NLML/∂h_i = Σ_j G_ij ∂k(h_i, h_j)/∂h_i + Σ_j G_ji ∂k(h_j, h_i)/∂h_i

(Al-Shedivat et al. 2017, eqs. 9 and 10; their bracket K⁻¹yyᵀK⁻¹ − K⁻¹ is the gradient of the log likelihood, so that
the sign is turned here, and their eqs. 6 and 8 lack the factor ½ that eqs. 9 and 10 have).

G and g are held while the encoder takes its steps. N rows, T columns, d latent width, |b| rows of a mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from streamgp.errors import UsageError
from streamgp.objectives import majoriser
from streamgp.solvers import Conditional, Data, Solver
from streamgp.solvers.exact import Exact

Scheme: TypeAlias = Literal["rows", "submatrix"]

Estimate: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(|b|, d) latents with graph, (|b|,) the numbers of their rows -> () loss per row, of which at the stale weights the
gradient's mean over mini-batches is ∂NLML/∂W / N."""

CHUNK = 4096
"""Rows that are worked on at a time, so that memory does not follow N."""


def row_gradients(posterior: Conditional, h: Tensor, y: Tensor) -> Tensor:
    """g_i = ∂NLML/∂h_i for every row at once, by way of bound E, whose gradient at the posterior's own latents it is.

    Any solver's posterior will do; nothing of size N × N is needed. Exact where mean and variance of the posterior are.

    Args:
        posterior: given the N rows.
        h: (N, d) the latents that it was given.
        y: (N, T)

    Returns:
        (N, d) without graph, in nats per unit of the latents.
    """
    found = []
    for some, targets in zip(h.detach().split(CHUNK), y.split(CHUNK), strict=True):
        with torch.enable_grad():
            leaf = some.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(majoriser.rows(posterior, leaf, targets).sum(), leaf)
        found.append(gradient)
    return torch.cat(found)


def row_surrogate(gradients: Tensor, h: Tensor, total: int) -> Tensor:
    """(N/|b|) Σ_b ⟨g_i, φ(x_i)⟩, whose gradient in W estimates Σ_i ⟨g_i, ∂φ(x_i)/∂W⟩ without bias.

    Once W has moved away from where g was taken it estimates the linearisation of NLML, which has no lower bound.

    Args:
        gradients: (|b|, d) g of the mini-batch's rows.
        h: (|b|, d) their latents, with graph.
        total: N.

    Returns:
        () whose value means nothing, only its gradient does.

    Example:
        >>> h = torch.tensor([[1.0], [2.0]], requires_grad=True)
        >>> row_surrogate(torch.tensor([[3.0], [5.0]]), h, total=4).backward()
        >>> h.grad.flatten().tolist()
        [6.0, 10.0]
    """
    return (total / len(h)) * (gradients * h).sum()


def pair_surrogate(gradients: Tensor, covariance: Tensor, total: int) -> Tensor:
    """Σ_{i,j ∈ b} c_ij G_ij k(h_i, h_j): the sub-matrix estimate (Al-Shedivat et al. 2017, eqs. C.15 and C.21).

    Departure: C.15 and C.21 scale the sum over all pairs by 1/|b|, which is biased: a pair is in a mini-batch less
    often than a row is. With c_ij = N(N−1)/(|b|(|b|−1)) off the diagonal and N/|b| on it, the estimate is unbiased. A
    mini-batch holds few of a row's pairs, so that it varies far more than `row_surrogate`.

    Args:
        gradients: (|b|, |b|) G of the mini-batch's pairs.
        covariance: (|b|, |b|) k(h_b, h_b), noise-free, with graph.
        total: N.

    Returns:
        () whose value means nothing, only its gradient does.

    Example:
        >>> k = torch.eye(2, requires_grad=True)
        >>> pair_surrogate(torch.ones(2, 2), k, total=4).backward()
        >>> k.grad.tolist()
        [[2.0, 6.0], [6.0, 2.0]]
    """
    size = len(covariance)
    products = gradients * covariance
    on = products.diagonal().sum()
    off = total * (total - 1) / max(size * (size - 1), 1)
    return off * (products.sum() - on) + (total / size) * on


def estimate(scheme: Scheme, solver: Solver, data: Data, h: Tensor, y: Tensor) -> Estimate:
    """The loss of mini-batches, with everything that needs a kernel solve computed once.

    Args:
        scheme: see `streamgp.models.deep.alternating.AlternatingConfig`.
        solver: its θ and σ² must stay as they are while the estimate is used.
        data: the N rows at h.
        h: (N, d) stale latents, without graph.
        y: (N, T)

    Raises:
        UsageError: the sub-matrix form with a solver that is not exact.
    """
    n = len(y)
    if scheme == "submatrix":
        pairs = with_pairs(solver).pair_gradient(data)
        return lambda latent, rows: pair_surrogate(pairs[rows][:, rows], solver.kernel(latent, latent), n) / n
    gradients = _stale(solver, data, h, y)
    return lambda latent, rows: row_surrogate(gradients[rows], latent, n) / n


def joint(solver: Solver, data: Data, h: Tensor, y: Tensor, *, wanted: bool) -> tuple[Tensor, Tensor | None]:
    """NLML with a graph in θ and σ², and (N, d) its row gradients where they are wanted.

    One factorisation serves both where the solver is exact.
    """
    if not wanted:
        return solver.nlml(data), None
    if isinstance(solver, Exact):
        leaf = h.detach().requires_grad_()
        value = solver.nlml_at(leaf, y)
        (rows,) = torch.autograd.grad(value, leaf, retain_graph=True)
        return value, rows
    return solver.nlml(data), _stale(solver, data, h, y)


def with_pairs(solver: Solver) -> Exact:
    """A solver that has ∂NLML/∂k(H, H).

    Raises:
        UsageError: this one has not.
    """
    if not isinstance(solver, Exact):
        raise UsageError(
            f"the sub-matrix form needs the gradients of pairs of rows, which {type(solver).__name__} does not have",
            hint="use solver=exact, or scheme=majoriser",
        )
    return solver


def _stale(solver: Solver, data: Data, h: Tensor, y: Tensor) -> Tensor:
    """(N, d) ∂NLML/∂h_i at the stale latents: in a cheaper way than by the posterior, where the solver is exact."""
    return solver.row_gradients(h, y) if isinstance(solver, Exact) else row_gradients(solver.condition(data), h, y)
