"""Functions drawn from an exact posterior, point by point: every value is conditioned on those given out before."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from streamgp.errors import NotPositiveDefinite
from streamgp.kernels import Kernel
from streamgp.linalg.cholesky import FIRST, LAST, whiten


class ExactDraw:
    """P functions of T columns, each one function wherever it is asked.

    With the points X asked so far, their posterior covariance Σ = k(X, X) − VᵀV = LLᵀ and ε of f(X) = m(X) + Lε, new
    points X' have C = L⁻¹Σ(X, X'), R = chol(Σ(X', X') − CᵀC), and f(X') = m(X') + Cᵀε + Rε' with fresh ε': L grows by
    [Cᵀ, R]. The diagonal of Σ carries the jitter of the house (1e-8 of the prior variance, more while the
    factorisation fails), so that a point asked again gives its value up to about 1e-4 prior standard deviations.

    Kept: the points, Vᵀ (P, R, M, N) and L (P, R, M, M) for N rows of data and M points asked, in up to twice the room;
    R is T, or 1 where all columns have the same covariance.

    Args:
        kernel: the prior covariance, frozen.
        mean: (N', d) -> (N', T), of the posterior.
        half: (N', d) -> (R, N, N'), V.
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
        self._asked = 0  # M; room for more is made by doubling, so that growing costs no more than the sums over M
        self._points = self._v = self._lower = self._noise = torch.empty(0)  # (P, M, d), (P, R, M, N), (P, R, M, M), …

    @torch.no_grad()
    def __call__(self, h: Tensor) -> Tensor:
        """(P, S, d) -> (P, S, T)"""
        paths, size, width = h.shape
        flat = h.reshape(paths * size, width)
        v = self._half(flat).unflatten(2, (paths, size)).permute(2, 0, 3, 1)  # (P, R, S, N)
        fresh = torch.randn(paths, self._columns, size, generator=self._generator, dtype=h.dtype).to(h.device)
        corner = self._covariance(h, h, v, v)
        scale = self._kernel.diagonal(flat).mean()
        mean: Tensor = self._mean(flat).unflatten(0, (paths, size))  # (P, S, T)
        before, after = self._asked, self._asked + size
        self._reserve(after, h, v)
        past = self._covariance(self._points[:, :before], h, self._v[:, :, :before], v)
        cross = whiten(self._lower[..., :before, :before], past) if before else past  # (P, R, M, S)
        lower = _root(corner - cross.mT @ cross, scale)
        value = mean + _times(cross.mT, self._noise[..., :before]) + _times(lower, fresh)
        self._points[:, before:after], self._v[:, :, before:after] = h, v
        self._lower[..., before:after, :before], self._lower[..., before:after, before:after] = cross.mT, lower
        self._noise[..., before:after] = fresh
        self._asked = after
        return value

    def _reserve(self, points: int, h: Tensor, v: Tensor) -> None:
        """Room for this many points."""
        room = self._noise.shape[-1]
        if points <= room:
            return
        room, done = max(points, 2 * room), self._asked
        shape = v.shape[:2]
        wanted = (h.new_zeros(self._paths, room, h.shape[2]), v.new_zeros(*shape, room, v.shape[3]))
        square, noise = v.new_zeros(*shape, room, room), v.new_zeros(self._paths, self._columns, room)
        if done:
            wanted[0][:, :done], wanted[1][:, :, :done] = self._points[:, :done], self._v[:, :, :done]
            square[..., :done, :done], noise[..., :done] = self._lower[..., :done, :done], self._noise[..., :done]
        self._points, self._v, self._lower, self._noise = *wanted, square, noise

    def _covariance(self, x: Tensor, z: Tensor, v: Tensor, w: Tensor) -> Tensor:
        """(P, M, d), (P, S, d) and their V -> (P, R, M, S), each path with itself."""
        prior: Tensor = torch.func.vmap(self._kernel)(x, z)[:, None]
        return prior - v @ w.mT


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """(P, R, S, M), (P, T, M) -> (P, S, T)"""
    if matrix.shape[1] == vector.shape[1]:
        out: Tensor = torch.einsum("ptsm,ptm->pst", matrix, vector)
        return out
    return matrix[:, 0] @ vector.mT


def _root(matrix: Tensor, scale: Tensor) -> Tensor:
    """(P, R, S, S) lower factors of matrix + jitter · I, the jitter relative to the prior variance `scale`.

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
