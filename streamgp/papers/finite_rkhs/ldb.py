"""LDB: log|F| by its variational form, whose mini-batch gradients are unbiased.

    log|F| = min over P ≻ 0 of ⟨P, F⟩ − log|P| − d,   at P = F⁻¹

Ours, beside the paper's two. With it l + TN log 2π is −2·ELBO of q(w_t) = N(w_t, σ_t²P), the weight-space bound of
Evans & Nair (2020) with prior precision κ/σ_t², for every column the same P. It is linear in F, thus (N/|b|) Σ_b F_i
in its place leaves all gradients unbiased; convex in P; and its joint stationary points are those of the marginal
likelihood.

Here P = L₀TTᵀL₀ᵀ with L₀L₀ᵀ = F⁻¹ at an epoch's beginning and T lower triangular, T = I then: gradients in T are in
coordinates in which F begins as I. The diagonal of T is exp of free numbers, so that P ≻ 0 without an
eigendecomposition or a projection. T takes Adam's steps (Kingma & Ba 2015), one for `EVERY` mini-batches: between them
P is held, and a mini-batch costs O(|b|d²).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from streamgp.base import FLOAT, Json
from streamgp.linalg.cholesky import cholesky, inverse_root
from streamgp.objectives.finite_evidence import Determinant, Statistics, regularised, ridge
from streamgp.state import Tensors, Value, Whole
from streamgp.training.adam import Adam, resized
from streamgp.training.finite_head import EVERY, Estimator, FiniteHead

RATE = 1e-3
"""Adam's step size for T, one step for `EVERY` mini-batches."""


class Ldb(Estimator):
    """LDB's part for log|F|. O(|b|d²) a step, O(d³) every `EVERY`-th; O(d²) memory.

    Args:
        rate: step size for T; 0 leaves P as it was when the epoch began, which is `finite_head.HeldInverse`.

    Attributes:
        root: (d, d) L₀, upper triangular.
        inner: (d, d) T with the logarithms of its diagonal on the diagonal.

    Example:
        >>> from streamgp.objectives.finite_evidence import statistics
        >>> phi, head = torch.eye(4, 2, dtype=FLOAT), FiniteHead(2, 1, noise=0.5, floor=0.0)
        >>> method = Ldb()
        >>> method.begin(statistics([(phi, torch.zeros(4, 1))]), head)
        >>> part = method.determinant(phi, torch.tensor(0.5, dtype=FLOAT), total=4)
        >>> round(float(part.value.exp()), 9), round(float(part.trace), 9)
        (2.25, 1.333333333)
    """

    STATE = (
        Value("age", int, key="mini-batches"),
        Tensors("root", "inner", grows=(0, 1)),
        Whole("steps"),
    )

    looks = True

    def __init__(self, rate: float = RATE) -> None:
        self.rate, self.age = rate, 0
        self.root = self.inner = self.shared = torch.zeros(0, 0, dtype=FLOAT)
        self.steps = Adam([self.inner])

    def begin(self, data: Statistics, head: FiniteHead) -> None:
        """L₀ from all rows, T = I.

        Raises:
            NotPositiveDefinite: F could not be factorised.
        """
        with torch.no_grad():
            root = inverse_root(cholesky(regularised(data.gram, ridge(head.noise)), first=0.0).lower)
            self._take(root, torch.zeros_like(root))

    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        """⟨P, (N/|b|) Σ_b F_i⟩ − log|P| − d and its parts, then a step on T with the same rows."""
        scale = total / len(phi)
        rows = phi @ self.held.to(phi.dtype)
        value = kappa * self.trace - self.log_p - len(self.held) + scale * (rows * phi).sum()
        part = Determinant(value, rows, self.trace)
        self.age += 1
        if self.rate and self.age % EVERY == 0:
            self._step(phi.to(FLOAT) @ self.root, kappa, scale)
        return part

    def _step(self, white: Tensor, kappa: Tensor, scale: float) -> None:
        """Along 2 tril((L₀ᵀF̂L₀ − (TTᵀ)⁻¹) T), from rows ΦL₀."""
        inner = self._triangle()
        step = torch.addmm(kappa * (self.shared @ inner), white.T, white @ inner, alpha=scale).mul_(2.0).tril_()
        step.diagonal().mul_(inner.diagonal()).sub_(2.0)
        self.steps.step([step], self.rate)
        self._hold()

    def _triangle(self) -> Tensor:
        """(d, d) T"""
        out = self.inner.tril(-1)
        out.diagonal().copy_(self.inner.diagonal().exp())
        return out

    def _hold(self) -> None:
        """P, tr P and log|P| for the steps to come."""
        half = self.root @ self._triangle()
        self.held, self.trace = half @ half.T, half.square().sum()
        self.log_p = 2.0 * (self.root.diagonal().log().sum() + self.inner.diagonal().sum())

    def _take(self, root: Tensor, inner: Tensor) -> None:
        self.root, self.inner, self.shared = root, inner, root.T @ root
        self.steps = Adam([inner])
        self._hold()

    def restoring(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> Callable[[], None]:
        """The moments have the size of T, which is that of the features once there are some."""
        self.steps = resized(self.steps, tensors.get("inner"))
        return super().restoring(tensors, rest)

    def restored(self) -> None:
        self.shared = self.root.T @ self.root
        self.steps.parameters = [self.inner]
        self._hold()
