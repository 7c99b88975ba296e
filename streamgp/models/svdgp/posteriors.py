"""A decoupled Gaussian process posterior as a module that grows (Cheng & Boots 2017), in the hybrid parametrisation.

The T target columns share one covariance; the means are their own. `Hyper` holds what is learned beside.
Jacobi preconditioning (appendix A.1) appears as the factor 1/ρ on the mean coefficients, a = a_0/ρ, so that a step on ρ
leaves the mean as it is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from streamgp.kernels.squared_exponential import correlation
from streamgp.linalg.cholesky import cholesky, solve, whiten
from streamgp.objectives import elbo


class Hyper(NamedTuple):
    """Hyper-parameters of one evaluation.

    Attributes:
        lengthscale: (d,) s.
        rho: () ρ; the prior variance is ρ².
    """

    lengthscale: Tensor
    rho: Tensor


class Prepared(NamedTuple):
    """What `moments` and `kl` both need.

    Attributes:
        factor: (M_β, M_β) of K_β.
        across: (M_α, M_β) K_{α,β}
        image: (M_β, T) L_k⁻¹K_{β,α}a
    """

    factor: Tensor
    across: Tensor
    image: Tensor


class GrowingBasis(nn.Module):
    """Up to M basis points, allocated at M with a count: it grows to its maximum, and then gives places to newer ones.

    Attributes:
        points: (M, d) learned; the rows from `count` on are not in use.
        count: () int64, points in use.
        use: (M,) running mean of the squared correlation with the rows that were learned; what it names least is
            given up first.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.zeros(size, width, dtype=torch.float64))
        self.count: Tensor
        self.use: Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("use", torch.zeros(size, dtype=torch.float64))

    @property
    def size(self) -> int:
        """Points in use."""
        return int(self.count)

    @property
    def room(self) -> int:
        """Points that may still be added."""
        return self.points.shape[0] - self.size

    @property
    def active(self) -> Tensor:
        """(count, d) the points in use."""
        return self.points[: self.size]

    @torch.no_grad()
    def add(self, x: Tensor) -> Tensor:
        """Append rows, as many as there is room for. x: (k, d). Returns the new places, (<= k,)."""
        places = torch.arange(self.size, self.size + min(x.shape[0], self.room), device=x.device)
        self.count += places.numel()
        self.put(places, x[: places.numel()])
        return places

    @torch.no_grad()
    def put(self, places: Tensor, x: Tensor) -> None:
        """Write rows over the points at `places`."""
        self.points[places] = x
        self.use[places] = self.use[: self.size].mean() if self.size else 0.0

    @torch.no_grad()
    def observe(self, correlations: Tensor, decay: float) -> None:
        """Follow which points the rows make use of. correlations: (N, count)."""
        self.use[: self.size].lerp_(correlations.square().mean(0), 1.0 - decay)


class Hybrid(nn.Module):
    """q(f) of T columns: canonical mean and covariance on X̃ = β, whitened, and residual functions α in the mean (A.3).

    Departure: the mean parameter is not m' but μ = m' + L_k⁻¹K_{X̃,α}a, the whitened mean of all of q at X̃. That is one
    substitution, costs nothing, and takes the directions that X̃ spans out of the residual's gradient, whose stiffness
    they are.

    Attributes:
        alpha: basis of the mean.
        beta: basis of the covariance.
        coefficients: (M_α, T) a_0.
        mean: (M_β, T) μ.
        root: (M_β, M_β) lower triangle of the root of S', its diagonal in logs, so that zeros are the prior.
    """

    def __init__(self, mean_basis: int, covariance_basis: int, width: int, columns: int) -> None:
        super().__init__()
        self.alpha = GrowingBasis(mean_basis, width)
        self.beta = GrowingBasis(covariance_basis, width)
        self.coefficients = nn.Parameter(torch.zeros(mean_basis, columns, dtype=torch.float64))
        self.mean = nn.Parameter(torch.zeros(covariance_basis, columns, dtype=torch.float64))
        self.root = nn.Parameter(torch.zeros(covariance_basis, covariance_basis, dtype=torch.float64))

    def _root(self) -> Tensor:
        m = self.beta.size
        return self.root[:m, :m].tril(-1) + torch.diag(self.root[:m, :m].diagonal().exp())

    def prepare(self, hyper: Hyper) -> Prepared:
        """What does not depend on rows: the factor of K_β, and the residual functions' whitened mean there.

        O(M_β³ + M_α M_β).
        """
        lower = cholesky(scaled(self.beta.active, self.beta.active, hyper.lengthscale)).lower
        a = self.coefficients[: self.alpha.size] / hyper.rho
        across = scaled(self.alpha.active, self.beta.active, hyper.lengthscale)
        return Prepared(lower, across, whiten(lower, across.T @ a))

    def moments(self, x: Tensor, hyper: Hyper, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """(N, d) -> mean (N, T), latent variance (N,); O(N M_α + N M_β²).

        m̂ = ρ (L_k⁻¹ψ_βᵀφ)ᵀm' + φᵀψ_α a_0, and the latent variance of the whitened S'.
        """
        half = whiten(prepared.factor, hyper.rho * scaled(x, self.beta.active, hyper.lengthscale).T)
        residual = scaled(x, self.alpha.active, hyper.lengthscale) @ self.coefficients[: self.alpha.size]
        mean = half.T @ (self.mean[: self.beta.size] - prepared.image) + residual
        return mean, elbo.hybrid_variance(hyper.rho.square(), half, self._root())

    def kl(self, hyper: Hyper, prepared: Prepared, index: Tensor) -> Tensor:
        """KL[q ‖ p], its quadratic term in a from the columns `index` (|J|,) of the Gram matrix; unbiased.

        Appendix A.3, whitened: with Q = K_{α,β}K_β⁻¹K_{β,α} its mean terms are ½‖μ‖² + ½aᵀ(K_α − Q)a.

        Only the last is sampled, by columns of K_α − Q: sampling K_α alone would leave −½aᵀQa to be cancelled by noise.
        """
        a, alpha = self.coefficients[: self.alpha.size] / hyper.rho, self.alpha.active
        explained = prepared.across @ solve(prepared.factor, prepared.across[index].T)
        columns = scaled(alpha, alpha[index], hyper.lengthscale) - explained
        own = elbo.hybrid_whitened_kl(self.mean[: self.beta.size], self._root(), torch.zeros_like(prepared.image))
        return own + elbo.quadratic_sampled(a, columns, index)

    @torch.no_grad()
    def add(self, x: Tensor) -> dict[str, Tensor]:
        """Take rows as new points of both bases, as far as there is room: parameter name -> rows that begin afresh.

        X̃ is filled first, and the residual functions are later rows: q stays what it was (m' = 0, S' = I).
        """
        covariances = self.beta.add(x)
        return self.fresh(self.alpha.add(x[covariances.numel() :]), covariances)

    @torch.no_grad()
    def replace(self, x: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        """Give the least used places of both bases to rows: parameter name -> rows that begin afresh.

        X̃ is changed, and (μ, S') become what q itself says of the new X̃: a projection, not a loss of the old.
        """
        prepared, m = self.prepare(hyper), self.beta.size
        old = self.beta.active.clone()
        lost = self.give_up(self.beta, x.shape[0])
        self.beta.put(lost, x[: lost.numel()])
        half = whiten(prepared.factor, scaled(old, self.beta.active, hyper.lengthscale))  # (m, m)
        here = scaled(self.beta.active, self.beta.active, hyper.lengthscale)
        residual = scaled(self.beta.active, self.alpha.active, hyper.lengthscale) @ self.coefficients[: self.alpha.size]
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

    def fresh(self, means: Tensor, covariances: Tensor) -> dict[str, Tensor]:
        """Rows of the bases and of the coefficients that new points took."""
        return {"alpha.points": means, "coefficients": means, "beta.points": covariances}

    def give_up(self, basis: GrowingBasis, places: int, weight: Tensor | None = None) -> Tensor:
        """The least used places of a basis, (k,); with a weight (M,), the least of use · weight."""
        worth = basis.use[: basis.size] if weight is None else basis.use[: basis.size] * weight[: basis.size]
        return torch.argsort(worth, stable=True)[: min(places, basis.size)]


def scaled(x: Tensor, z: Tensor, lengthscale: Tensor) -> Tensor:
    """(N, d), (M, d) -> (N, M): correlations of the squared exponential, without ρ. lengthscale: (d,)."""
    return correlation(x / lengthscale, z / lengthscale)
