"""Functions drawn from an exact posterior, point by point: every value is conditioned on those given out before."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from streamgp.errors import NotPositiveDefinite
from streamgp.kernels._base import Kernel
from streamgp.linalg.cholesky import FIRST, LAST, whiten


class ExactDraw:
    """P functions of T columns, each one function wherever it is asked.

    With the points X asked so far, their posterior covariance Σ = k(X, X) − VᵀV = LLᵀ and ε of f(X) = m(X) + Lε, new
    points X' have C = L⁻¹Σ(X, X'), R = chol(Σ(X', X') − CᵀC), and f(X') = m(X') + Cᵀε + Rε' with fresh ε': L grows by
    [Cᵀ, R]. The diagonal of Σ carries the jitter of the house (1e-8 of the prior variance, more while the
    factorisation fails), so that a point asked again gives its value up to about 1e-4 prior standard deviations.

    Kept: the points, V (P, T, N, M) and L (P, T, M, M) for N rows of data and M points asked.

    Args:
        kernel: the prior covariance, frozen.
        mean: (N', d) -> (N', T), of the posterior.
        half: (N', d) -> (T, N, N'), V.
        columns: T.
        paths: P.
        generator: one seed is drawn from it, so that its later use elsewhere does not change the functions.
    """

    def __init__(
        self,
        kernel: Kernel,
        mean: Callable[[Tensor], Tensor],
        half: Callable[[Tensor], Tensor],
        columns: int,
        paths: int,
        generator: Generator,
    ) -> None:
        self._kernel, self._mean, self._half, self._columns, self._paths = kernel, mean, half, columns, paths
        seed = int(torch.randint(2**62, (), generator=generator))
        self._generator = torch.Generator().manual_seed(seed)
        self._points: Tensor | None = None  # (P, M, d)
        self._v = self._lower = self._noise = torch.empty(0)  # (P, T, N, M), (P, T, M, M), (P, T, M)

    @torch.no_grad()
    def __call__(self, h: Tensor) -> Tensor:
        """(P, S, d) -> (P, S, T)"""
        paths, size, width = h.shape
        flat = h.reshape(paths * size, width)
        v = self._half(flat).unflatten(2, (paths, size)).permute(2, 0, 1, 3)  # (P, T, N, S)
        fresh = torch.randn(paths, self._columns, size, generator=self._generator, dtype=h.dtype).to(h.device)
        corner = self._covariance(h, h, v, v)
        scale = self._kernel.diagonal(flat).mean()
        mean: Tensor = self._mean(flat).unflatten(0, (paths, size))  # (P, S, T)
        if self._points is None:
            lower = _root(corner, scale)
            self._points, self._v, self._lower, self._noise = h, v, lower, fresh
            return mean + _times(lower, fresh)
        cross = whiten(self._lower, self._covariance(self._points, h, self._v, v))  # (P, T, M, S)
        lower = _root(corner - cross.mT @ cross, scale)
        value = mean + _times(cross.mT, self._noise) + _times(lower, fresh)
        above = torch.cat([self._lower, torch.zeros_like(cross)], -1)
        self._lower = torch.cat([above, torch.cat([cross.mT, lower], -1)], -2)
        self._points, self._v = torch.cat([self._points, h], 1), torch.cat([self._v, v], -1)
        self._noise = torch.cat([self._noise, fresh], -1)
        return value

    def _covariance(self, x: Tensor, z: Tensor, v: Tensor, w: Tensor) -> Tensor:
        """(P, M, d), (P, S, d) and their V -> (P, T, M, S), each path with itself."""
        prior: Tensor = torch.func.vmap(self._kernel)(x, z)[:, None]
        return prior - v.mT @ w


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """(P, T, S, M), (P, T, M) -> (P, S, T)"""
    out: Tensor = torch.einsum("ptsm,ptm->pst", matrix, vector)
    return out


def _root(matrix: Tensor, scale: Tensor) -> Tensor:
    """(P, T, S, S) lower factors of matrix + jitter · I, the jitter relative to the prior variance `scale`.

    What is left of a point's variance may be nothing (it was asked before): its own diagonal is no scale.
    """
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    relative = FIRST
    while True:
        lower: Tensor
        lower, failed = torch.linalg.cholesky_ex(matrix + relative * scale * eye)
        if not bool(failed.any()):
            return lower
        if relative > 0.5 * LAST:
            raise NotPositiveDefinite(
                f"{matrix.shape[-1]} points of a drawn function depend on each other beyond a jitter of {LAST:g}",
                hint="ask at fewer or more distinct points, or use solver=kiss",
            )
        relative *= 10.0
