"""The decoupled parametrisation, all of it learned by Adam (Cheng & Boots 2017, equations 7 to 9), and the
preconditioners of appendix A.1.

    m̂(x) = k(x, α)a,    k̂(x, x') = k(x, x') − k(x, β)(B⁻¹ + K_β)⁻¹k(β, x'),    B = LLᵀ
    KL[q ‖ p] = ½aᵀK_αa + ½ log|I + K_βB| − ½ tr(K_β(B⁻¹ + K_β)⁻¹)

With H = I + LᵀK_βL: (B⁻¹ + K_β)⁻¹ = LH⁻¹Lᵀ and log|I + K_βB| = log|H|. L = 0 is a saddle, its gradient is exactly zero:
new rows start at B = c²ρ²/σ² I, of which c = 1 is the exact posterior of rows just seen.

What Adam sees are a_0 and L_0, in units where K has no ρ:

    none      a = a_0,              L = L_0
    jacobi    a = a_0/ρ,            L = L_0 ρ/σ       diag(K) = 1, but a step on ρ or σ leaves q as it is
    full      a = K̂_α⁻¹a_0/ρ,       L = L_k⁻ᵀL_0      K_β = L_kL_kᵀ, so that H = I + L_0ᵀL_0

with K̂_α = K_{α,β}K_β⁻¹K_{β,α} + Λ, the Nyström approximation with its diagonal put right, solved in O(M_α M_β²): a_0
then are ρ times the mean at α's points, near enough, as in the canonical parametrisation. (The paper writes
L = K_β⁻¹L_0; the root of K_β⁻¹ has the same effect without squaring the condition.)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import cholesky, log_determinant, whiten
from streamgp.objectives import elbo
from streamgp.papers.svdgp.partly_shared import PartlyShared
from streamgp.training.decoupled import GrowingBasis, Hyper, Parametrisation, Prepared

START = 0.5
"""c."""
DIAGONAL = 0.01
"""Least diagonal of Λ: where α's points are β's the Nyström approximation is exact, and K_α near singular."""

Preconditioner = Literal["none", "jacobi", "full"]

RATES: dict[Preconditioner, float] = {"none": 0.01, "jacobi": 0.01, "full": 1e-4}
"""Step sizes of Adam. The paper's 0.1 is for 2,000 steps on 1,024 rows; a stream has a step for some dozens of rows,
and the full preconditioner makes one on a_0 up to 1/`DIAGONAL` times as large on a."""


def covariance_factor(gram: Tensor, root: Tensor) -> Tensor:
    """The Cholesky factor (M, M) of H = I + LᵀK_βL. gram: (M, M) K_β, root: (M, M) L. O(M³)."""
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return cholesky(eye + root.T @ gram @ root, first=0.0).lower


def covariance_kl(factor: Tensor) -> Tensor:
    """½ log|I + K_βB| − ½ tr(K_β(B⁻¹ + K_β)⁻¹), from `covariance_factor`: the trace is M − tr H⁻¹. O(M³)."""
    eye = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
    return 0.5 * (log_determinant(factor) - len(factor) + whiten(factor, eye).square().sum())


def reduction(cross: Tensor, root: Tensor, factor: Tensor) -> Tensor:
    """diag k(x, β)(B⁻¹ + K_β)⁻¹k(β, x), (N,): what data took from the prior variance. cross: (N, M); O(N M²)."""
    return whiten(factor, root.T @ cross.T).square().sum(0)


class Nystrom:
    """K̂_α = WᵀW + Λ, W = L_k⁻¹K_{β,α}, and its inverse by Woodbury's identity. O(M_α M_β²).

    Args:
        lower: (M_β, M_β) L_k.
        across: (M_α, M_β) K_{α,β}; K_α has a diagonal of ones.
    """

    def __init__(self, lower: Tensor, across: Tensor) -> None:
        self.half = whiten(lower, across.T)
        self.rest = (1.0 - self.half.square().sum(0)).clamp(min=DIAGONAL)
        self.scaled = self.half / self.rest
        eye = torch.eye(len(lower), dtype=FLOAT, device=lower.device)
        self.inner = cholesky(eye + self.scaled @ self.half.T, first=0.0).lower

    def times(self, a: Tensor) -> Tensor:
        """K̂_αa. (M_α, T) -> (M_α, T)"""
        return self.half.T @ (self.half @ a) + self.rest[:, None] * a

    def solve(self, b: Tensor) -> Tensor:
        """K̂_α⁻¹b. (M_α, T) -> (M_α, T)"""
        inside = torch.cholesky_solve(self.scaled @ b, self.inner)
        return b / self.rest[:, None] - self.scaled.T @ inside


class Decoupled(Parametrisation):
    """See the module.

    Args:
        alpha, beta, columns: of `Parametrisation`.
        preconditioner: of a and L.

    Attributes:
        root: (M_β, M_β) lower triangle of L_0.
    """

    def __init__(
        self, alpha: GrowingBasis, beta: GrowingBasis, columns: int, preconditioner: Preconditioner = "jacobi"
    ) -> None:
        super().__init__(alpha, beta, columns)
        self.preconditioner = preconditioner
        self.rate = RATES[preconditioner]
        self.root = nn.Parameter(torch.zeros(beta.capacity, beta.capacity, dtype=FLOAT))

    def prepare(self, hyper: Hyper) -> Prepared:
        """The factor of H, L (M_β, M_β) and a (M_α, T). O(M_β³), and O(M_α M_β²) with the full preconditioner."""
        m = self.beta.size
        gram, root = self.beta.gram(hyper.lengthscale), self.root[:m, :m].tril()
        if self.preconditioner == "full":
            lower = cholesky(gram).lower
            root = torch.linalg.solve_triangular(lower.T, root, upper=True)
            a = Nystrom(lower, self.alpha.between(self.beta, hyper.lengthscale)).solve(self.a / hyper.rho)
        elif self.preconditioner == "jacobi":
            root, a = root * (hyper.rho / hyper.sigma), self.a / hyper.rho
        else:
            a = self.a
        return Prepared(covariance_factor(gram, root), root, a)

    def moments(self, x: Tensor, hyper: Hyper, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """Equation 8."""
        mean = hyper.rho * (self.alpha.cross(x, hyper.lengthscale) @ prepared.image)
        across = hyper.rho * self.beta.cross(x, hyper.lengthscale)
        return mean, (hyper.rho.square() - reduction(across, prepared.across, prepared.factor))[:, None]

    def kl(self, hyper: Hyper, prepared: Prepared, index: Tensor) -> Tensor:
        """Equation 9."""
        columns = self.alpha.gram(hyper.lengthscale, index)
        own = elbo.quadratic_sampled(prepared.image, columns, index)
        return own + self.coefficients.shape[1] * covariance_kl(prepared.factor)

    def _start(self, hyper: Hyper) -> Tensor:
        """() the diagonal of L_0 where rows are new, unless the preconditioner is full."""
        return START * (hyper.rho / hyper.sigma if self.preconditioner == "none" else torch.ones_like(hyper.rho))

    @torch.no_grad()
    def add(self, x: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        """Both bases take the same rows, as the paper advises (A.2), unless they share them; the mean stays."""
        before, shared = self.prepare(hyper), isinstance(self.alpha, PartlyShared)
        covariances = self.beta.add(x)
        means = self.alpha.add(x[len(covariances) :] if shared else x)
        means = torch.cat((covariances, means)) if shared else means
        if self.preconditioner == "full":
            a = nn.functional.pad(before.image, (0, 0, 0, self.alpha.size - len(before.image)))
            new = self.beta.size - len(before.across)
            b = nn.functional.pad(before.across @ before.across.T, (0, new, 0, new))
            return self._write(a, b, means, covariances, hyper)
        self.root[covariances, covariances] = self._start(hyper)
        return {**self.fresh(means, covariances), "root": covariances}

    @torch.no_grad()
    def replace(self, x: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        """The mean and the covariance lose the given-up functions' share, and nothing else."""
        before = self.prepare(hyper)
        gone = self.alpha.least(x.shape[0], self.coefficients.square().sum(1))
        self.alpha.put(gone, x[: len(gone)])
        lost = self.beta.least(x.shape[0])
        self.beta.put(lost, x[: len(lost)])
        gone = torch.cat((lost, gone)) if isinstance(self.alpha, PartlyShared) else gone
        if self.preconditioner == "full":
            a, b = before.image.clone(), before.across @ before.across.T
            a[gone], b[lost], b[:, lost] = 0.0, 0.0, 0.0
            return self._write(a, b, gone, lost, hyper)
        self.coefficients[gone] = 0.0
        self.root[lost], self.root[:, lost] = 0.0, 0.0
        self.root[lost, lost] = self._start(hyper)
        return {**self.fresh(gone, lost), "root": torch.arange(self.beta.size, device=x.device)}

    def _write(self, a: Tensor, b: Tensor, means: Tensor, covariances: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        """The a_0 and L_0 of a (M_α, T) and B (M_β, M_β) at the points of now, with c²ρ²/σ² for these of B."""
        b[covariances, covariances] = (START * hyper.rho / hyper.sigma).square()
        lower = cholesky(self.beta.gram(hyper.lengthscale)).lower
        return {**self.fresh(means, covariances), **self._put(a, cholesky(b).lower, lower, hyper)}

    def _put(self, a: Tensor, root: Tensor, lower: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        """The a_0 and L_0 of a (M_α, T) and any root (M_β, M_β) of B. lower: L_k."""
        m = len(root)
        if self.preconditioner == "full":
            inner = lower.T @ root
            scale, own = torch.ones_like(hyper.rho), Nystrom(lower, self.alpha.between(self.beta, hyper.lengthscale))
            a = own.times(a) * hyper.rho
        elif self.preconditioner == "jacobi":
            inner, scale, a = root, hyper.rho / hyper.sigma, a * hyper.rho
        else:
            inner, scale = root, torch.ones_like(hyper.rho)
        self.root[:m, :m] = torch.linalg.qr(inner.T).R.T / scale  # lower, and of the same B
        self.coefficients[: len(a)] = a
        device = a.device
        return {"coefficients": torch.arange(len(a), device=device), "root": torch.arange(m, device=device)}
