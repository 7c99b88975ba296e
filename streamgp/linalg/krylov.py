"""Linear algebra with a matrix that is known by its products: conjugate gradients, Lanczos, log-determinants.

A is symmetric positive definite, N × N; `product` maps (N, k) to A times it. Columns are worked on side by side, and a
product may treat each column by a matrix of its own (another σ² a column, say); a preconditioner likewise.
Everything here runs without a graph. Where a run does not end well it says so in what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.linalg.preconditioner import LowRank

Product: TypeAlias = Callable[[Tensor], Tensor]
"""(N, k) -> (N, k)"""

_EXHAUSTED = 1e-10
"""Entry next to the diagonal, relative to ‖A‖, that counts as 0."""
_SETTLED = 1e-10
"""Change of a log-determinant by one more step, a row, that counts as none."""


class Solution(NamedTuple):
    """What conjugate gradients found.

    Attributes:
        value: (N, k)
        iterations: (k,) until the column was within the tolerance, or the most allowed.
        residual: (k,) ‖b − Ax‖/‖b‖ by the recurrence; 0 for a right-hand side of 0.
        converged: whether every column is within the tolerance.
    """

    value: Tensor
    iterations: Tensor
    residual: Tensor
    converged: bool


@torch.no_grad()
def conjugate_gradients(
    product: Product,
    right: Tensor,
    *,
    precondition: Product | None = None,
    tolerance: float = 1e-8,
    iterations: int = 1000,
) -> Solution:
    """Solve A X = B by preconditioned conjugate gradients (Golub & Van Loan 2013, algorithm 11.5.1), columns apart.

    A column stops by itself; its later steps have length 0. In exact arithmetic at most N steps are needed.

    Args:
        product: A.
        right: (N, k), B.
        precondition: P⁻¹ for a P near A; none is the identity.
        tolerance: on the residual, relative to the norm of the right-hand side.
        iterations: the most steps; where they do not suffice, `converged` is False.

    Example:
        >>> a, b = torch.tensor([[4.0, 1.0], [1.0, 3.0]]).double(), torch.tensor([[1.0], [2.0]]).double()
        >>> found = conjugate_gradients(lambda v: a @ v, b)
        >>> found.value.T.round(decimals=6).tolist(), found.iterations.tolist(), found.converged
        ([[0.090909, 0.636364]], [2], True)
    """
    solve = precondition or torch.clone
    x, residual = torch.zeros_like(right), right.clone()
    norm = right.norm(dim=0)  # (k,)
    scale = torch.where(norm > 0, norm, 1.0)
    count = torch.zeros(right.shape[1], dtype=torch.int64)
    z = solve(residual)
    direction, rho = z.clone(), (residual * z).sum(0)
    relative = residual.norm(dim=0) / scale
    for _ in range(iterations):
        active = relative > tolerance
        if not bool(active.any()):
            break
        moved = product(direction)
        curvature = (direction * moved).sum(0)
        length = torch.where(active & (curvature > 0), rho / curvature, 0.0)
        x += length * direction
        residual -= length * moved
        z = solve(residual)
        fresh = (residual * z).sum(0)
        direction = z + torch.where(active & (rho > 0), fresh / rho, 0.0) * direction
        rho = torch.where(active, fresh, rho)
        relative = residual.norm(dim=0) / scale
        count += active.cpu()
    return Solution(x, count, relative, bool((relative <= tolerance).all()))


class Tridiagonal(NamedTuple):
    """QᵀAQ for k starts.

    Attributes:
        diagonal: (k, s)
        off: (k, s − 1), next to the diagonal; 0 from where the Krylov space was exhausted.
        basis: (k, s, N), the rows of Qᵀ; (k, 0, N) where it was not kept. Rows past an exhausted space are 0.
        norm: (k,), of the starts.
    """

    diagonal: Tensor
    off: Tensor
    basis: Tensor
    norm: Tensor

    def matrices(self) -> Tensor:
        """(k, s, s)"""
        return torch.diag_embed(self.diagonal) + torch.diag_embed(self.off, 1) + torch.diag_embed(self.off, -1)


@torch.no_grad()
def lanczos(
    product: Product,
    start: Tensor,
    steps: int,
    *,
    reorthogonalise: bool = True,
    enough: Callable[[Tridiagonal], bool] | None = None,
) -> Tridiagonal:
    """Reduce A to tridiagonal form on the Krylov spaces of k starts (Golub & Van Loan 2013, algorithms 10.1.1, 10.1.3).

    Where a space is exhausted (a residual of 1e-10 of ‖A‖) its matrix goes on as a decoupled identity, which gets no
    weight in any function of A applied to the start.

    Args:
        product: A.
        start: (N, k), none of the columns 0.
        steps: s; at most N are taken.
        reorthogonalise: against all earlier vectors, twice: O(N s²) a start, and N s numbers each are kept. Without,
            Ritz values repeat after the first has converged, which hurts bases but hardly quadrature.
        enough: asked after every step; True ends the run.

    Example:
        >>> a = torch.diag(torch.tensor([1.0, 2.0, 5.0])).double()
        >>> torch.linalg.eigvalsh(lanczos(lambda v: a @ v, torch.ones(3, 1).double(), 3).matrices()).round(decimals=9)
        tensor([[1., 2., 5.]], dtype=torch.float64)
    """
    rows, columns = start.shape
    steps = min(steps, rows)
    norm = start.norm(dim=0)
    basis = start.new_zeros(columns, steps if reorthogonalise else 0, rows)
    diagonal, off = start.new_ones(columns, steps), start.new_zeros(columns, max(steps - 1, 0))
    before, now = torch.zeros_like(start), start / norm
    beta, alive, size = torch.zeros_like(norm), torch.ones_like(norm, dtype=torch.bool), torch.zeros_like(norm)
    for step in range(steps):
        if reorthogonalise:
            basis[:, step] = now.T
        after = product(now) - beta * before
        alpha = (after * now).sum(0)
        after -= alpha * now
        if reorthogonalise:
            kept = basis[:, : step + 1]
            for _ in range(2):
                after -= (kept.transpose(1, 2) @ (kept @ after.T[:, :, None]))[:, :, 0].T
        diagonal[:, step] = torch.where(alive, alpha, 1.0)
        beta = after.norm(dim=0)
        size = torch.maximum(size, alpha.abs() + beta)
        alive = alive & (beta > _EXHAUSTED * size)
        done = step + 1
        if enough is not None and enough(Tridiagonal(diagonal[:, :done], off[:, :step], basis[:, :done], norm)):
            return Tridiagonal(diagonal[:, :done], off[:, :step], basis[:, :done], norm)
        if done == steps or not bool(alive.any()):
            break
        beta = torch.where(alive, beta, 0.0)
        off[:, step] = beta
        before, now = now, torch.where(alive, after / beta, 0.0)
    return Tridiagonal(diagonal, off, basis, norm)


def rademacher(rows: int, probes: int, generator: Generator) -> Tensor:
    """Draw signs: (rows, probes) of −1 and 1, independent, each as likely.

    Example:
        >>> rademacher(2, 3, torch.Generator().manual_seed(0)).square().sum().item()
        6.0
    """
    return torch.randint(0, 2, (rows, probes), generator=generator).to(FLOAT) * 2 - 1


@torch.no_grad()
def stochastic_log_determinant(
    product: Product,
    probes: Tensor,
    steps: int,
    *,
    preconditioner: LowRank | None = None,
    reorthogonalise: bool = True,
) -> Tensor:
    """log|A| by stochastic Lanczos quadrature (Ubaru, Chen & Saad 2017, algorithm 1), one estimate a probe.

    log|A| = log|P| + E zᵀ log(P^−½ A P^−½) z for probes z with covariance I. The Gaussian quadrature of each quadratic
    form is exact after as many steps as there are distinct eigenvalues. The nearer P to A, the smaller the variance:
    with E = log(P^−½ A P^−½) and Rademacher probes it is 2(‖E‖_F² − Σ_i E_ii²) a probe.

    Args:
        product: A.
        probes: (N, p).
        steps: of Lanczos, at most; fewer where one more changes no estimate by 1e-10 a row.
        preconditioner: P; none is the identity.
        reorthogonalise: see `lanczos`.

    Returns:
        (p,), unbiased but for the quadrature's error: their mean is the estimate, their spread its error.

    Example:
        >>> a = torch.diag(torch.tensor([1.0, 2.0, 5.0])).double()
        >>> stochastic_log_determinant(lambda v: a @ v, torch.ones(3, 1).double(), 3).exp().round(decimals=9)
        tensor([10.], dtype=torch.float64)
    """
    root = torch.clone if preconditioner is None else preconditioner.inverse_root
    estimates = [torch.full_like(probes[0], torch.inf)]

    def settled(found: Tridiagonal) -> bool:
        nodes, vectors = torch.linalg.eigh(found.matrices())  # (p, s), (p, s, s)
        logs = nodes.clamp(min=1e-16).log()
        estimates.append(found.norm.square() * (vectors[:, 0].square() * logs).sum(1))
        return bool((estimates[-1] - estimates[-2]).abs().max() <= _SETTLED * len(probes))

    lanczos(lambda v: root(product(root(v))), probes, steps, reorthogonalise=reorthogonalise, enough=settled)
    estimate = estimates[-1]
    return estimate if preconditioner is None else estimate + preconditioner.log_determinant()
