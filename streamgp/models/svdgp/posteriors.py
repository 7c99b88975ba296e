"""The two parametrisations of a decoupled Gaussian process posterior, as modules that grow (Cheng & Boots 2017).

Both share one covariance among the T target columns; the means are their own. `Hyper` holds what is learned beside.
Jacobi preconditioning (appendix A.1) appears as the factors 1/ρ on the mean coefficients and ρ/σ on L: a = a_0/ρ and
L = (ρ/σ) L_0, so that a step on ρ or σ leaves the mean, and the posterior of the rows just seen, as they are. On the
Gram matrices themselves it would do nothing, since their diagonals are one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from streamgp.linalg.cholesky import cholesky, solve, whiten
from streamgp.models.svdgp.basis import GrowingBasis
from streamgp.models.svdgp.decoupled import Basis, cross, gram
from streamgp.objectives import elbo


class Hyper(NamedTuple):
    """Hyper-parameters of one evaluation.

    Attributes:
        lengthscale: (d,) s.
        rho: () ρ; the prior variance is ρ².
        sigma: () noise scale that stands for all columns: their geometric mean.
    """

    lengthscale: Tensor
    rho: Tensor
    sigma: Tensor


class Prepared(NamedTuple):
    """What `moments` and `kl` both need.

    Attributes:
        factor: (M_β, M_β) of H (decoupled) or of K_β (hybrid).
        across: (M_α, M_β) K_{α,β} (hybrid); without rows in decoupled.
        image: (M_β, T) L_k⁻¹K_{β,α}a (hybrid); without rows in decoupled.
    """

    factor: Tensor
    across: Tensor
    image: Tensor


class Posterior(nn.Module, ABC):
    """q(f) of T columns: a mean on the basis α, and a covariance on the basis β.

    Attributes:
        alpha: basis of the mean.
        beta: basis of the covariance.
        coefficients: (M_α, T) a_0.
    """

    def __init__(self, mean_basis: int, covariance_basis: int, width: int, columns: int, own_widths: bool) -> None:
        super().__init__()
        self.alpha = GrowingBasis(mean_basis, width, own_widths)
        self.beta = GrowingBasis(covariance_basis, width, own_widths)
        self.coefficients = nn.Parameter(torch.zeros(mean_basis, columns, dtype=torch.float64))

    @abstractmethod
    def prepare(self, hyper: Hyper) -> Prepared:
        """What does not depend on rows; O(M_β³ + M_α M_β)."""

    @abstractmethod
    def moments(self, x: Tensor, hyper: Hyper, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """(N, d) -> mean (N, T), latent variance (N,); O(N M_α + N M_β²)."""

    @abstractmethod
    def kl(self, hyper: Hyper, prepared: Prepared, index: Tensor) -> Tensor:
        """KL[q ‖ p], its quadratic term in a from the columns `index` (|J|,) of the Gram matrix; unbiased."""

    @abstractmethod
    def add(self, x: Tensor, start: float) -> dict[str, Tensor]:
        """Take rows as new points of both bases, as far as there is room. start: c, where L_0 starts, in (0, 1].

        Returns parameter name -> rows that begin afresh.
        """

    @abstractmethod
    def replace(self, x: Tensor, hyper: Hyper, start: float) -> dict[str, Tensor]:
        """Give the least used places of both bases to rows. Returns parameter name -> rows that begin afresh."""

    def fresh(self, means: Tensor, covariances: Tensor) -> dict[str, Tensor]:
        """Rows of the bases and of the coefficients that new points took."""
        names = {"alpha.points": means, "coefficients": means, "beta.points": covariances}
        if self.alpha.log_widths is not None:
            names |= {"alpha.log_widths": means, "beta.log_widths": covariances}
        return names

    def give_up(self, basis: GrowingBasis, places: int, weight: Tensor | None = None) -> Tensor:
        """The least used places of a basis, (k,); with a weight (M,), the least of use · weight."""
        worth = basis.use[: basis.size] if weight is None else basis.use[: basis.size] * weight[: basis.size]
        return torch.argsort(worth, stable=True)[: min(places, basis.size)]


class Decoupled(Posterior):
    """Mean k(x, α) a, covariance k(x, x') − k(x, β)(B⁻¹ + K_β)⁻¹k(β, x'), B = LLᵀ (eq. 8)."""

    def __init__(self, mean_basis: int, covariance_basis: int, width: int, columns: int, own_widths: bool) -> None:
        super().__init__(mean_basis, covariance_basis, width, columns, own_widths)
        self.root = nn.Parameter(torch.zeros(covariance_basis, covariance_basis, dtype=torch.float64))

    def _root(self, hyper: Hyper) -> Tensor:
        m = self.beta.size
        return self.root[:m, :m].tril() * (hyper.rho / hyper.sigma)

    def prepare(self, hyper: Hyper) -> Prepared:
        """The factor of H = I + LᵀK_βL."""
        k = gram(self.beta.active, self.beta.active, hyper.lengthscale)
        none = self.coefficients[:0]
        return Prepared(elbo.decoupled_factor(k, self._root(hyper)), none, none)

    def moments(self, x: Tensor, hyper: Hyper, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """Equation (8)."""
        mean = cross(x, self.alpha.active, hyper.lengthscale) @ self.coefficients[: self.alpha.size]
        across = hyper.rho * cross(x, self.beta.active, hyper.lengthscale)
        return mean, hyper.rho.square() - elbo.decoupled_reduction(across, self._root(hyper), prepared.factor)

    def kl(self, hyper: Hyper, prepared: Prepared, index: Tensor) -> Tensor:
        """Equation (9)."""
        a, alpha = self.coefficients[: self.alpha.size] / hyper.rho, self.alpha.active
        columns = gram(alpha, alpha.rows(index), hyper.lengthscale)
        covariance = elbo.decoupled_covariance_kl(prepared.factor)
        return elbo.quadratic_sampled(a, columns, index) + self.coefficients.shape[1] * covariance

    @torch.no_grad()
    def add(self, x: Tensor, start: float) -> dict[str, Tensor]:
        """New means start at 0, new rows of L_0 at the diagonal `start`; both bases take the same rows."""
        means, covariances = self.alpha.add(x), self.beta.add(x)
        self.root[covariances, covariances] = start
        return {**self.fresh(means, covariances), "root": covariances}

    @torch.no_grad()
    def replace(self, x: Tensor, hyper: Hyper, start: float) -> dict[str, Tensor]:
        """The mean and the covariance lose the given-up functions' share, and nothing else."""
        gone = self.give_up(self.alpha, x.shape[0], self.coefficients.square().sum(1))
        self.alpha.put(gone, x[: gone.numel()])
        self.coefficients[gone] = 0.0
        lost = self.give_up(self.beta, x.shape[0])
        self.beta.put(lost, x[: lost.numel()])
        self.root[lost] = 0.0
        self.root[:, lost] = 0.0
        self.root[lost, lost] = start
        return {**self.fresh(gone, lost), "root": torch.arange(self.beta.size, device=x.device)}


class Hybrid(Posterior):
    """Canonical mean and covariance on X̃ = β, whitened, plus residual functions α in the mean (appendix A.3).

    Departure: the mean parameter is not m' but μ = m' + L_k⁻¹K_{X̃,α}a, the whitened mean of all of q at X̃. That is one
    substitution, costs nothing, and takes the directions that X̃ spans out of the residual's gradient, whose stiffness
    they are.

    Attributes:
        mean: (M_β, T) μ.
        root: (M_β, M_β) lower triangle of the root of S', its diagonal in logs, so that zeros are the prior.
    """

    def __init__(self, mean_basis: int, covariance_basis: int, width: int, columns: int, own_widths: bool) -> None:
        super().__init__(mean_basis, covariance_basis, width, columns, own_widths)
        self.mean = nn.Parameter(torch.zeros(covariance_basis, columns, dtype=torch.float64))
        self.root = nn.Parameter(torch.zeros(covariance_basis, covariance_basis, dtype=torch.float64))

    def _root(self) -> Tensor:
        m = self.beta.size
        return self.root[:m, :m].tril(-1) + torch.diag(self.root[:m, :m].diagonal().exp())

    def prepare(self, hyper: Hyper) -> Prepared:
        """The factor of K_β, and the residual functions' whitened mean there."""
        lower = cholesky(gram(self.beta.active, self.beta.active, hyper.lengthscale)).lower
        a = self.coefficients[: self.alpha.size] / hyper.rho
        across = gram(self.alpha.active, self.beta.active, hyper.lengthscale)
        return Prepared(lower, across, whiten(lower, across.T @ a))

    def moments(self, x: Tensor, hyper: Hyper, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """m̂ = ρ (L_k⁻¹ψ_βᵀφ)ᵀm' + φᵀψ_α a_0, and the latent variance of the whitened S'."""
        half = whiten(prepared.factor, hyper.rho * cross(x, self.beta.active, hyper.lengthscale).T)
        residual = cross(x, self.alpha.active, hyper.lengthscale) @ self.coefficients[: self.alpha.size]
        mean = half.T @ (self.mean[: self.beta.size] - prepared.image) + residual
        return mean, elbo.hybrid_variance(hyper.rho.square(), half, self._root())

    def kl(self, hyper: Hyper, prepared: Prepared, index: Tensor) -> Tensor:
        """Appendix A.3, whitened: with Q = K_{α,β}K_β⁻¹K_{β,α} its mean terms are ½‖μ‖² + ½aᵀ(K_α − Q)a.

        Only the last is sampled, by columns of K_α − Q: sampling K_α alone would leave −½aᵀQa to be cancelled by noise.
        """
        a, alpha = self.coefficients[: self.alpha.size] / hyper.rho, self.alpha.active
        explained = prepared.across @ solve(prepared.factor, prepared.across[index].T)
        columns = gram(alpha, alpha.rows(index), hyper.lengthscale) - explained
        own = elbo.hybrid_whitened_kl(self.mean[: self.beta.size], self._root(), torch.zeros_like(prepared.image))
        return own + elbo.quadratic_sampled(a, columns, index)

    @torch.no_grad()
    def add(self, x: Tensor, start: float) -> dict[str, Tensor]:
        """X̃ is filled first, and the residual functions are later rows: q stays what it was (m' = 0, S' = I)."""
        covariances = self.beta.add(x)
        return self.fresh(self.alpha.add(x[covariances.numel() :]), covariances)

    @torch.no_grad()
    def replace(self, x: Tensor, hyper: Hyper, start: float) -> dict[str, Tensor]:
        """X̃ is changed, and (μ, S') become what q itself says of the new X̃: a projection, not a loss of the old."""
        prepared, m = self.prepare(hyper), self.beta.size
        active = self.beta.active
        old = Basis(active.points.clone(), None if active.log_widths is None else active.log_widths.clone())
        lost = self.give_up(self.beta, x.shape[0])
        self.beta.put(lost, x[: lost.numel()])
        half = whiten(prepared.factor, gram(old, self.beta.active, hyper.lengthscale))  # (m, m)
        here = gram(self.beta.active, self.beta.active, hyper.lengthscale)
        residual = gram(self.beta.active, self.alpha.active, hyper.lengthscale) @ self.coefficients[: self.alpha.size]
        mean = half.T @ (self.mean[:m] - prepared.image) + residual / hyper.rho
        covariance = here - half.T @ half + (self._root().T @ half).T @ (self._root().T @ half)
        lower = cholesky(here).lower
        inner = whiten(lower, whiten(lower, covariance).T)
        root = cholesky(0.5 * (inner + inner.T)).lower
        self.mean[:m] = whiten(lower, mean)
        self.root[:m, :m] = root.tril(-1) + torch.diag(root.diagonal().log())
        gone = self.give_up(self.alpha, x.shape[0], self.coefficients.square().sum(1))
        self.alpha.put(gone, x[: gone.numel()])
        self.coefficients[gone] = 0.0
        everything = torch.arange(m, device=x.device)
        return {**self.fresh(gone, lost), "mean": everything, "root": everything}
