"""Marginal likelihood of a GP whose kernel is φ(x)ᵀφ(x') with φ in R^d, from sums over rows or from a mini-batch.

    y_t | w_t ~ N(Z w_t, σ_t² I),   w_t ~ N(0, (σ_t²/κ) I),   Z = φ(X) (N, d),   F = ZᵀZ + κI for every column t

    l(θ) = Σ_t [ ‖Z w_t − y_t‖²/σ_t² + κ‖w_t‖²/σ_t² + log|F| − d log κ + N log σ_t² ]

(Shoham & Avron, section 2.2, whose l this is for one column, where κ = σ²). At the best w it is 2·NLML − TN log 2π:
their Theorem B.1 with the residual squared, bᵀ(VVᵀ + λI)⁻¹b = min_w ‖Vw − b‖²/λ + ‖w‖².

Ours: several columns share one F, so κ = exp(mean_t log σ_t²) is the one ridge of all of them.

log|F| does not decompose over rows, its linearisations do: every method of `streamgp.training.finite_descent` puts
⟨P, (N/|b|) Σ_b φ_iφ_iᵀ + κI⟩ in its place, and they differ in P alone (`Determinant`). With P given all gradients are
in closed form (`gradients`). N rows, |b| of a mini-batch, d features, T columns; everything is float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import cholesky, solve


class Statistics(NamedTuple):
    """Sums over rows, without any regulariser: all that l and NLML need of them.

    Attributes:
        gram: (d, d) ZᵀZ
        cross: (d, T) ZᵀY
        squares: (T,) diagonal of YᵀY
        rows: N
    """

    gram: Tensor
    cross: Tensor
    squares: Tensor
    rows: int


class Determinant(NamedTuple):
    """What a method puts in the place of log|F|, on the rows of a mini-batch.

    Attributes:
        value: () its estimate of log|F|.
        rows: (|b|, d) Pφ_i with P = ∂/∂F, held: the part's gradient in φ_i is 2Pφ_i.
        trace: () tr P, its gradient in κ.
    """

    value: Tensor
    rows: Tensor
    trace: Tensor


class Gradients(NamedTuple):
    """Of l̂/N, an estimate of l per row.

    Attributes:
        value: () l̂/N
        phi: (|b|, d) in the features of the mini-batch's rows.
        weights: (d, T) in w.
        log_noise: (T,) in log σ_t².
    """

    value: Tensor
    phi: Tensor
    weights: Tensor
    log_noise: Tensor


def statistics(parts: Iterable[tuple[Tensor, Tensor]]) -> Statistics:
    """Sums over chunks of rows, in float64.

    Args:
        parts: at least one (φ (n, d), y (n, T)).

    Example:
        >>> phi, y = torch.ones(3, 2), torch.full((3, 1), 2.0)
        >>> found = statistics([(phi, y), (phi, y)])
        >>> found.gram.tolist(), found.cross.tolist(), found.squares.tolist(), found.rows
        ([[6.0, 6.0], [6.0, 6.0]], [[12.0], [12.0]], [24.0], 6)
    """
    total: Statistics | None = None
    for rows, targets in parts:
        phi, y = rows.to(FLOAT), targets.to(FLOAT)
        some = Statistics(phi.T @ phi, phi.T @ y, y.square().sum(0), len(y))
        if total is None:
            total = some
        else:
            total = Statistics(
                total.gram + some.gram, total.cross + some.cross, total.squares + some.squares, total.rows + some.rows
            )
    assert total is not None, "statistics of no chunks"
    return total


def ridge(noise: Tensor) -> Tensor:
    """(T,) σ_t² -> () κ = exp(mean_t log σ_t²): σ² itself for one column."""
    return noise.log().mean().exp()


def factorised(matrix: Tensor) -> Tensor:
    """(d, d) -> (d, d) lower factor of a matrix that is positive definite but for rounding; jitter only if it is not.

    Raises:
        NotPositiveDefinite: it could not be factorised.
    """
    lower, failed = torch.linalg.cholesky_ex(matrix)
    return cholesky(matrix).lower if bool(failed) else lower


def regularised(gram: Tensor, kappa: Tensor) -> Tensor:
    """(d, d) ZᵀZ -> (d, d) F = ZᵀZ + κI."""
    out = gram.clone()
    out.diagonal().add_(kappa)
    return out


def best_weights(data: Statistics, noise: Tensor) -> Tensor:
    """(d, T) F⁻¹ZᵀY, the minimum of l in w; the same κ serves all columns.

    Raises:
        NotPositiveDefinite: F could not be factorised.
    """
    return solve(cholesky(regularised(data.gram, ridge(noise)), first=0.0).lower, data.cross)


def gradients(
    phi: Tensor, y: Tensor, weights: Tensor, noise: Tensor, determinant: Determinant, total: float
) -> Gradients:
    """Closed-form gradients of l̂/N = (1/|b|) Σ_b g_i + (T/N) · (what stands in for log|F|), with P held.

        in φ_i      (2/|b|) [Σ_t r_it w_t/σ_t² + T Pφ_i],   r = Φw − y
        in w_t      (2/|b|) Φᵀr_t/σ_t² + 2κ w_t/(Nσ_t²)
        in log σ_t² 1 − (1/|b|) Σ_b r_it²/σ_t² − v_t + mean_t v_t + (κ tr P − d)/N,   v_t = κ‖w_t‖²/(Nσ_t²)

    The paper's θ-step omits N/|b|, so that its rates change with the batch; here it is in.

    Args:
        phi, y: (|b|, d), (|b|, T) without graph, of one dtype: that of all products.
        weights, noise: (d, T), (T,) float64; so are their gradients.
        determinant: of these rows.
        total: N
    """
    count, columns = y.shape
    part = phi.shape[1] / total
    log_noise = noise.log()
    kappa = log_noise.mean().exp()
    narrow = weights.to(phi.dtype)
    residual = torch.addmm(y, phi, narrow, beta=-1.0)
    scaled = residual / noise.to(phi.dtype)
    pull = weights * (kappa / noise)
    fit = (scaled * residual).sum(0) / count
    size = (weights * pull).sum(0) / total
    value = torch.add(fit + size, log_noise, alpha=1.0 - part).sum()
    return Gradients(
        torch.add(value, determinant.value, alpha=columns / total),
        torch.addmm(determinant.rows, scaled, narrow.T, alpha=2.0 / count, beta=2.0 * columns / count),
        pull.mul_(2.0 / total).add_(phi.T @ scaled, alpha=2.0 / count),
        (kappa * determinant.trace / total + (1.0 - part) + size.mean()) - fit - size,
    )
