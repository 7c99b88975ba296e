"""One fold of cross-validation by matrix-vector products: its operators, its loss, the reduced gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.kernels import Kernel
from streamgp.linalg.blockwise import Blockwise, storage
from streamgp.linalg.krylov import LowRank, Product, conjugate_gradients, pivoted_cholesky
from streamgp.objectives.cross_validation import Partition

STALE = 2.0
"""Times the steps of the first solve with a preconditioner, plus `SLACK`, above which it is made again."""
SLACK = 4
REMAINDER = 0.1
"""Variance, relative to the least noise, that the preconditioner may leave out of a row."""

TRUSTED = 0.1
"""Part of the loss that a correction for unfinished solves may take away."""


class Solved(NamedTuple):
    """value (n, T); iterations, the most that a column took; residual, the largest relative one."""

    value: Tensor
    iterations: int
    residual: float


class Reduced(NamedTuple):
    """The reduced gradient of a fold.

    Attributes:
        loss: Σ_t ‖y_V − K_VT z‖² + M_tᵀ(C_t z_t − y_t), which is l(θ) to second order in what the solves leave.
        kernel: ∂l/∂θ, one tensor for each of the kernel's parameters that asks for one.
        log_noise: (T,) ∂l/∂ log σ_t².
        fitted: (n_T, T) z = C⁻¹y_T.
        adjoint: (n_T, T) M = −2 C⁻¹K_VTᵀ(K_VT z − y_V).
        iterations: of conjugate gradients, the most of a column, both solves.
        residual: the largest of both solves.
    """

    loss: float
    kernel: list[Tensor]
    log_noise: Tensor
    fitted: Tensor
    adjoint: Tensor
    iterations: int
    residual: float


class Fold:
    """C = K_TT + σ²I and K_VT of a split, at the hyper-parameters of the last `refresh`, by their products.

    Args:
        kernel: its hyper-parameters may be changed; call `refresh` then.
        noise: (T,) σ_t².
        x: (n, D)
        y: (n, T)
        split: of the n rows.
        memory: bytes that kept covariances may take; float64 where all fit, float32 where only that fits, and what
            does not fit is recomputed for each product.
        rank: most columns of the preconditioner of C; 0: none.

    Attributes:
        x_fitted, y_fitted, x_held, y_held: (n_T, D), (n_T, T), (n_V, D), (n_V, T).
        noise: (T,).

    Example:
        >>> from streamgp.base import FLOAT
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), 1)
        >>> x = torch.tensor([[0.0], [0.0]], dtype=FLOAT)  # the same place twice: a mean of y/(1 + σ²)
        >>> fold = Fold(kernel, torch.ones(1), x, 2.0 + x, Partition(torch.tensor([0]), torch.tensor([1])))
        >>> reduced(fold).loss
        1.0
    """

    def __init__(
        self,
        kernel: Kernel,
        noise: Tensor,
        x: Tensor,
        y: Tensor,
        split: Partition,
        *,
        memory: int = 2**30,
        rank: int = 100,
    ) -> None:
        self.kernel, self.noise, self.rank = kernel, noise.detach().clone(), rank
        self.x_fitted, self.y_fitted = x[split.train].contiguous(), y[split.train].contiguous()
        self.x_held, self.y_held = x[split.validation].contiguous(), y[split.validation].contiguous()
        fitted, held = len(self.x_fitted), len(self.x_held)
        dtype = storage((fitted + held) * fitted, memory)
        first = min(memory, dtype.itemsize * fitted * fitted)  # products with C are the more frequent ones
        self.gram = Blockwise(kernel, self.x_fitted, self.x_fitted, limit=first, dtype=dtype)
        self.cross = Blockwise(kernel, self.x_held, self.x_fitted, limit=memory - first, dtype=dtype)
        self._low_rank: LowRank | None = None
        self._first: int | None = None
        self._stale = False
        self._prepare()

    def refresh(self, noise: Tensor) -> None:
        """Take the kernel's present hyper-parameters and this noise (T,)."""
        self.noise = noise.detach().clone()
        self.gram.refresh()
        self.cross.refresh()
        if self._stale:
            self._prepare()

    def product(self, v: Tensor) -> Tensor:
        """(n_T, T) -> (n_T, T): C_t v_t."""
        return self.gram.product(v) + self.noise * v

    def error(self, z: Tensor) -> Tensor:
        """(n_T, T) -> (n_V, T): K_VT z − y_V."""
        return self.cross.product(z) - self.y_held

    def precondition(self, v: Tensor) -> Tensor:
        """(n_T, T) -> (n_T, T): P⁻¹v, P near C."""
        return v.clone() if self._low_rank is None else self._low_rank.solve(v)

    def solve(self, right: Tensor, start: Tensor | None = None, *, tolerance: float, iterations: int) -> Solved:
        """C z = right, from a start; see `solve_from`."""
        found = solve_from(self.product, right, start, self.precondition, tolerance, iterations)
        self.served(found.iterations)
        return found

    def served(self, steps: int) -> None:
        """Take note of the steps of a solve with the preconditioner: any one is valid, but a stale one is slow."""
        if self._first is None:
            self._first = steps
        self._stale = self._stale or steps > STALE * self._first + SLACK

    def _prepare(self) -> None:
        """A preconditioner of C from a few of its columns."""
        self._first, self._stale = None, False
        if not self.rank:
            return
        with torch.no_grad():
            diagonal = self.kernel.diagonal(self.x_fitted).detach().contiguous()
            least = float(self.noise.min())
            factor = pivoted_cholesky(self.gram.row, diagonal, self.rank, tolerance=REMAINDER * least)
            finite = bool(torch.isfinite(factor).all())  # it is not where a line search has left all bounds
            self._low_rank = LowRank.of(factor, self.noise) if finite else None


def solve_from(
    product: Product,
    right: Tensor,
    start: Tensor | None,
    precondition: Product | None,
    tolerance: float,
    iterations: int,
) -> Solved:
    """A X = B by conjugate gradients from a start, to a residual relative to B.

    Args:
        product: A.
        right: (n, T), B.
        start: (n, T); none is 0.
        precondition, iterations: see `conjugate_gradients`.
        tolerance: on ‖B − AX‖ of each column, relative to ‖B‖.
    """
    begin = torch.zeros_like(right) if start is None else start
    left = right if start is None else right - product(start)
    goal = tolerance * right.norm(dim=0) / left.norm(dim=0).clamp(min=1e-300)
    found = conjugate_gradients(
        product, left, precondition=precondition, tolerance=float(goal.min()), iterations=iterations
    )
    relative = found.residual * left.norm(dim=0) / right.norm(dim=0).clamp(min=1e-300)
    return Solved(begin + found.value, int(found.iterations.max()), float(relative.max()))


def reduced(
    fold: Fold,
    fitted: Tensor | None = None,
    adjoint: Tensor | None = None,
    *,
    tolerance: float = 1e-8,
    iterations: int = 1000,
) -> Reduced:
    """l(θ) and its gradient by two solves with C and products alone, O(n²) a product: ours, not of Xu et al. (2019).

    With C z = y_T and C M = −2 K_VTᵀ(K_VT z − y_V), ∇l is the gradient in θ of ‖y_V − K_VT(θ)z‖² + tr Mᵀ(C(θ)z − y_T)
    with z and M held: the adjoint method.

    Args:
        fold: refreshed.
        fitted, adjoint: (n_T, T) where the solves start, from hyper-parameters nearby; none is 0.
        tolerance, iterations: of the solves.
    """
    z = fold.solve(fold.y_fitted, fitted, tolerance=tolerance, iterations=iterations)
    error = fold.error(z.value)
    m = fold.solve(-2.0 * fold.cross.transposed(error), adjoint, tolerance=tolerance, iterations=iterations)
    outer = fold.cross.gradient(2.0 * error, z.value)
    inner = fold.gram.gradient(m.value, z.value)
    plain = float(error.square().sum())
    correction = float((m.value * (fold.product(z.value) - fold.y_fitted)).sum())
    if abs(correction) > TRUSTED * plain:
        correction = abs(correction)  # solves that did not end: a fall of the loss by them would be none
    return Reduced(
        loss=plain + correction,
        kernel=[a + b for a, b in zip(outer, inner, strict=True)],
        log_noise=fold.noise * (m.value * z.value).sum(0),
        fitted=z.value,
        adjoint=m.value,
        iterations=max(z.iterations, m.iterations),
        residual=max(z.residual, m.residual),
    )
