"""Lanczos runs and log-determinants by their quadrature, of a matrix that is known by its products.

A is symmetric positive definite, N × N; `product` maps (N, k) to A times it. Columns are worked on side by side, and a
product may treat each column by a matrix of its own (another σ² a column, say). Everything here runs without a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.linalg.krylov import LowRank, Product

_EXHAUSTED = 1e-10
"""Entry next to the diagonal, relative to ‖A‖, that counts as 0."""
_SETTLED = 1e-10
"""Change of a log-determinant by one more step, a row, that counts as none."""


def power(p: LowRank, v: Tensor, exponent: float) -> Tensor:
    """(N, k) -> (N, k): P^a v = s^a v + U [(λ + s)^a − s^a] Uᵀv, s the shift; P^½ and P^−½ are symmetric roots.

    Example:
        >>> p = LowRank.of(torch.tensor([[2.0], [0.0]]).double(), torch.tensor(4.0).double())  # P = diag(8, 4)
        >>> power(p, torch.ones(2, 1).double(), 2.0).T
        tensor([[64., 16.]], dtype=torch.float64)
    """
    rest = p.shift.reshape(1, -1) ** exponent  # (1, k or 1)
    scale = (p.values[:, None] + p.shift.reshape(1, -1)) ** exponent - rest  # (r, k or 1)
    return rest * v + p.vectors @ (scale * (p.vectors.T @ v))


def log_determinant(p: LowRank) -> Tensor:
    """() or (k,): log|P|.

    Example:
        >>> p = LowRank.of(torch.tensor([[2.0], [0.0]]).double(), torch.tensor(1.0).double())  # P = diag(5, 1)
        >>> log_determinant(p).exp().round(decimals=9)
        tensor(5., dtype=torch.float64)
    """
    rows, rank = p.vectors.shape
    shifted = p.values[:, None] + p.shift.reshape(1, -1)  # (r, k)
    return (shifted.log().sum(0) + (rows - rank) * p.shift.reshape(-1).log()).reshape(p.shift.shape)


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

    Where a space is exhausted (a residual of 1e-10 of ‖A‖) its matrix continues as a decoupled identity, which gets no
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

    def root(v: Tensor) -> Tensor:
        return v if preconditioner is None else power(preconditioner, v, -0.5)

    estimates = [torch.full_like(probes[0], torch.inf)]

    def settled(found: Tridiagonal) -> bool:
        nodes, vectors = torch.linalg.eigh(found.matrices())  # (p, s), (p, s, s)
        logs = nodes.clamp(min=1e-16).log()
        estimates.append(found.norm.square() * (vectors[:, 0].square() * logs).sum(1))
        return bool((estimates[-1] - estimates[-2]).abs().max() <= _SETTLED * len(probes))

    lanczos(lambda v: root(product(root(v))), probes, steps, reorthogonalise=reorthogonalise, enough=settled)
    estimate = estimates[-1]
    return estimate if preconditioner is None else estimate + log_determinant(preconditioner)
