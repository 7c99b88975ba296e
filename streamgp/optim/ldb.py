"""LDB: log|F| by its variational form, whose mini-batch gradients are unbiased.

    log|F| = min over P ≻ 0 of ⟨P, F⟩ − log|P| − d,   at P = F⁻¹

With it l + TN log 2π is −2·ELBO of q(w_t) = N(w_t, σ_t²P), the weight-space bound of Evans & Nair (2020; see
`streamgp.objectives.quadruple`) with prior precision κ/σ_t², for every column the same P. It is linear in F, thus
(N/|b|) Σ_b F_i in its place leaves all gradients unbiased; convex in P; and its joint stationary points are those of
the marginal likelihood.

Here P = L₀TTᵀL₀ᵀ with L₀L₀ᵀ = F⁻¹ at an epoch's beginning and T lower triangular, T = I then: gradients in T are in
coordinates in which F begins as I. The diagonal of T is exp of free numbers, so that P ≻ 0 without an
eigendecomposition or a projection. T takes Adam's steps (Kingma & Ba 2015).
"""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.base import FLOAT, Json
from streamgp.linalg.cholesky import cholesky
from streamgp.objectives.finite_evidence import Determinant, Statistics, regularised, ridge
from streamgp.optim._fused_steps import FusedAdam
from streamgp.optim.finite_head import Estimator, FiniteHead


class LdbConfig(BaseModel):
    """Steps on P of LDB."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rate: float = Field(
        1e-3,
        ge=0,
        le=1,
        description="Adam's step size for T; 0 leaves P as it was at the epoch's beginning, and a step at O(|b|d^2)",
    )


class Ldb(Estimator):
    """LDB's part for log|F|. O(d³ + |b|d²) a step, O(d²) memory.

    Args:
        config: see there.

    Attributes:
        root: (d, d) L₀, upper triangular.
        inner: (d, d) T with the logarithms of its diagonal on the diagonal.

    Example:
        >>> from streamgp.objectives.finite_evidence import statistics
        >>> phi, head = torch.eye(4, 2, dtype=FLOAT), FiniteHead(2, 1, noise=0.5, floor=0.0)
        >>> method = Ldb(LdbConfig())
        >>> method.begin(statistics([(phi, torch.zeros(4, 1))]), head)
        >>> part = method.determinant(phi, torch.tensor(0.5, dtype=FLOAT), total=4)
        >>> round(float(part.value.exp()), 9), round(float(part.trace), 9)
        (2.25, 1.333333333)
    """

    looks = True

    def __init__(self, config: LdbConfig) -> None:
        self.config = config
        self.root = self.inner = self.shared = torch.zeros(0, 0, dtype=FLOAT)
        self.steps = FusedAdam([self.inner])

    def begin(self, data: Statistics, head: FiniteHead) -> None:
        """L₀ from all rows, T = I.

        Raises:
            NotPositiveDefinite: F could not be factorised.
        """
        with torch.no_grad():
            lower = cholesky(regularised(data.gram, ridge(head.noise)), first=0.0).lower
            eye = torch.eye(len(lower), dtype=FLOAT, device=lower.device)
            self._take(torch.linalg.solve_triangular(lower, eye, upper=False).T.contiguous(), torch.zeros_like(lower))

    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        """⟨P, (N/|b|) Σ_b F_i⟩ − log|P| − d and its parts, then a step on T with the same rows."""
        scale = total / len(phi)
        if not self.config.rate:
            return self._held(phi, kappa, scale)
        inner = self.inner.tril(-1)
        inner.diagonal().copy_(self.inner.diagonal().exp())
        white = phi.to(FLOAT) @ self.root
        product = white @ inner
        ridged = self.shared @ inner  # L₀ᵀL₀ T
        trace = (inner * ridged).sum()
        log_p = 2.0 * (self.root.diagonal().log().sum() + self.inner.diagonal().sum())
        value = scale * product.square().sum() + kappa * trace - log_p - len(inner)
        rows = product @ inner.T @ self.root.T
        step = torch.addmm(kappa * ridged, white.T, product, alpha=scale).mul_(2.0).tril_()
        step.diagonal().mul_(inner.diagonal()).sub_(2.0)
        self.steps.step([step], self.config.rate)
        return Determinant(value, rows.to(phi.dtype), trace)

    def _held(self, phi: Tensor, kappa: Tensor, scale: float) -> Determinant:
        """The same at T = I, which stays."""
        rows = phi @ self.held.to(phi.dtype)
        value = kappa * self.trace + (self.log_f - len(self.held)) + scale * (rows * phi).sum()
        return Determinant(value, rows, self.trace)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = self.steps.state()
        return tensors | {"root": self.root.clone(), "inner": self.inner.clone()}, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._take(tensors["root"].clone(), tensors["inner"].clone())
        self.steps.restore(tensors, rest)

    def _take(self, root: Tensor, inner: Tensor) -> None:
        self.root, self.inner, self.shared = root, inner, root.T @ root
        self.steps = FusedAdam([inner])
        if not self.config.rate:
            self.held, self.trace = root @ root.T, self.shared.trace()
            self.log_f = -2.0 * root.diagonal().log().sum()
