"""A Gaussian process posterior with bases of its own for mean and covariance, as a module that grows (Cheng & Boots
2017): what every parametrisation has in common, and the orthogonal one (Salimbeni et al. 2018).

The T target columns have their own means, and share one covariance where a parametrisation does not say otherwise.
`Hyper` holds what is learned beside. Jacobi preconditioning (appendix A.1) appears as the factor 1/ρ on the mean
coefficients, a = a_0/ρ, so that a step on ρ leaves the mean as it is.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.kernels.squared_exponential import correlation
from streamgp.likelihoods import Likelihood
from streamgp.linalg.cholesky import FIRST, cholesky, log_determinant, solve, whiten
from streamgp.objectives import elbo
from streamgp.training.natural_gradient import Site, sites, weighted_gram

SETTLED = 1e-3
"""Change of the whitened mean below which no further natural-gradient step is taken."""
HALVINGS = 8
"""Times a natural-gradient step is halved where the bound would fall: under Laplace noise rows far from the function
have no curvature, and a whole step goes far beyond it."""


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
        factor: (M_β, M_β) of K_β, or of what else the parametrisation factorises.
        across: (M_α, M_β) K_{α,β}, or what else the mean needs.
        image: (M_β, T) L_k⁻¹K_{β,α}a
    """

    factor: Tensor
    across: Tensor
    image: Tensor


class SettledRows(NamedTuple):
    """Rows that a posterior settles on.

    Attributes:
        x: (N, d) latents.
        y: (N, T) targets, NaN = not observed.
        weight: (N,) how many rows each stands for.
    """

    x: Tensor
    y: Tensor
    weight: Tensor


class GrowingBasis(nn.Module):
    """Up to M basis points, allocated at M with a count: it grows to its maximum, and then gives places to newer ones.

    Basis functions are those of the kernel, ψ_m = φ(z_m). A basis with other functions overrides `stored`, `made`,
    `cross_of` and `gram_of`.

    Attributes:
        points: (M, d), or (M, `stored(d)`), learned; the rows from `count` on are not in use.
        count: () int64, points in use.
        use: (M,) running mean of the squared correlation with the rows that were learned; what it names least is
            given up first.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.zeros(size, self.stored(width), dtype=FLOAT))
        self.count: Tensor
        self.use: Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("use", torch.zeros(size, dtype=FLOAT))

    @staticmethod
    def stored(width: int) -> int:
        """Numbers that a point on latents of `width` has."""
        return width

    @staticmethod
    def made(x: Tensor) -> Tensor:
        """(k, d) rows -> (k, stored) points of which their functions are those of the kernel."""
        return x

    @staticmethod
    def cross_of(x: Tensor, points: Tensor, lengthscale: Tensor) -> Tensor:
        """φ_xᵀψ_m, free of ρ. x: (N, d), points: (M, stored), lengthscale: (d,). Returns (N, M); O(N M d)."""
        return scaled(x, points, lengthscale)

    @staticmethod
    def gram_of(points: Tensor, others: Tensor, lengthscale: Tensor) -> Tensor:
        """ψ_mᵀψ_n: (M, stored), (K, stored) -> (M, K); 1 where they are the same."""
        return scaled(points, others, lengthscale)

    @property
    def capacity(self) -> int:
        """M."""
        return len(self.use)

    @property
    def size(self) -> int:
        """Points in use."""
        return int(self.count)

    @property
    def room(self) -> int:
        """Points that may still be added."""
        return self.capacity - self.size

    @property
    def active(self) -> Tensor:
        """(count, stored) the points in use."""
        return self.points[: self.size]

    def cross(self, x: Tensor, lengthscale: Tensor) -> Tensor:
        """(N, d) rows -> (N, count): `cross_of` the points in use."""
        return self.cross_of(x, self.active, lengthscale)

    def gram(self, lengthscale: Tensor, index: Tensor | None = None) -> Tensor:
        """(count, count) of the points in use, or (count, k) of these and those at `index` (k,)."""
        return self.gram_of(self.active, self.active if index is None else self.active[index], lengthscale)

    def between(self, other: GrowingBasis, lengthscale: Tensor) -> Tensor:
        """(count, other's count) of two bases with functions of one kind."""
        return self.gram_of(self.active, other.active, lengthscale)

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
        self.points[places] = self.made(x)
        self.use[places] = self.use[: self.size].mean() if self.size else 0.0

    @torch.no_grad()
    def observe(self, x: Tensor, lengthscale: Tensor, decay: float) -> None:
        """Follow which points rows make use of. x: (N, d)."""
        if self.size:
            self.use[: self.size].lerp_(self.cross(x, lengthscale).square().mean(0), 1.0 - decay)

    def rows(self, places: Tensor) -> Tensor:
        """Rows of the parameters where the points at `places` stand."""
        return places

    def least(self, places: int, weight: Tensor | None = None) -> Tensor:
        """The least used places, (k,); with a weight (M,), the least of use · weight."""
        worth = self.use[: self.size] if weight is None else self.use[: self.size] * weight[: self.size]
        return torch.argsort(worth, stable=True)[: min(places, self.size)]


class Parametrisation(nn.Module, ABC):
    """q(f) of T columns: a mean on the basis α, and a covariance on the basis β.

    Attributes:
        alpha: basis of the mean.
        beta: basis of the covariance.
        coefficients: (M_α, T) a_0.
        rate: of Adam, where none is set.
        natural: whether `settle` continues while Adam learns the rest; else it has the starts alone.
    """

    rate: float = 0.01
    natural: bool = False

    def __init__(self, alpha: GrowingBasis, beta: GrowingBasis, columns: int) -> None:
        super().__init__()
        self.alpha, self.beta = alpha, beta
        self.coefficients = nn.Parameter(torch.zeros(alpha.capacity, columns, dtype=FLOAT))

    @property
    def healthy(self) -> bool:
        """Whether all that a prediction is made of is finite."""
        return all(bool(own.isfinite().all()) for own in self.state_dict().values() if own.is_floating_point())

    @property
    def a(self) -> Tensor:
        """(count, T) a_0 of the points in use."""
        return self.coefficients[: self.alpha.size]

    @abstractmethod
    def prepare(self, hyper: Hyper) -> Prepared:
        """What does not depend on rows; O(M_β³ + M_α M_β)."""

    @abstractmethod
    def moments(self, x: Tensor, hyper: Hyper, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """(N, d) -> mean (N, T), latent variance (N, 1) or (N, T); O(N M_α + N M_β²)."""

    @abstractmethod
    def kl(self, hyper: Hyper, prepared: Prepared, index: Tensor) -> Tensor:
        """KL[q ‖ p], its quadratic term in a from the columns `index` (|J|,) of the Gram matrix; unbiased."""

    @abstractmethod
    def add(self, x: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        """Take rows as new points of both bases, as far as there is room: parameter name -> rows that begin afresh."""

    @abstractmethod
    def replace(self, x: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        """Give the least used places of both bases to rows: parameter name -> rows that begin afresh."""

    def settle(
        self, rows: SettledRows, hyper: Hyper, likelihood: Likelihood, offset: Tensor | None, size: float, steps: int
    ) -> dict[str, Tensor]:
        """Move q at β's points by natural-gradient steps on rows, at the kernel, noise and mean basis of now.

        Args:
            rows: all rows of the stream, or some that stand for them.
            hyper, likelihood: of now.
            offset: (T,) of the function, if any.
            size: of each step; 1 forgets what q was.
            steps: at most.

        Returns:
            parameter name -> rows that begin afresh. By default nothing moves: all is Adam's.
        """
        return {}

    def fresh(self, means: Tensor, covariances: Tensor) -> dict[str, Tensor]:
        """Rows of the bases and of the coefficients that new points took."""
        names = {f"alpha.{name}": self.alpha.rows(means) for name, _ in self.alpha.named_parameters()}
        names |= {f"beta.{name}": covariances for name, _ in self.beta.named_parameters()}
        return {**names, "coefficients": means}


class Orthogonal(Parametrisation):
    """Canonical mean and covariance on X̃ = β, whitened, and functions α in the mean that are orthogonal to X̃'s
    (Salimbeni, Cheng, Boots & Deisenroth 2018, equations 12–14):

        m̂(x) = k(x, X̃)L_k⁻ᵀμ + (k(x, α) − k(x, X̃)K⁻¹K_{X̃,α}) a,    v̂(x) = k(x, x) − k(x, X̃)L_k⁻ᵀ(I − S')L_k⁻¹k(X̃, x)
        KL = ½(‖μ‖² + tr S' − M − log|S'|) + ½aᵀ(K_α − K_{α,X̃}K⁻¹K_{X̃,α})a

    The two parts of the KL share no parameter, so that (μ, S') are learned by natural gradients (`settle`), as in their
    paper, and a, the points and the hyper-parameters by Adam. Departure: all T columns have one S'.

    Attributes:
        mean: (M_β, T) μ, the whitened mean of all of q at X̃.
        root: (M_β, M_β) lower triangle of the root of S', its diagonal in logs, so that zeros are the prior.
    """

    natural = True
    first = FIRST  # jitter of S', relative to its mean diagonal
    mean: Tensor
    root: Tensor

    def __init__(self, alpha: GrowingBasis, beta: GrowingBasis, columns: int) -> None:
        super().__init__(alpha, beta, columns)
        size = beta.capacity
        self.hold(torch.zeros(size, columns, dtype=FLOAT), torch.zeros(size, size, dtype=FLOAT))

    def hold(self, mean: Tensor, root: Tensor) -> None:
        """Keep these as μ and S'; here Adam does not know them."""
        self.register_buffer("mean", mean)
        self.register_buffer("root", root)

    def _root(self) -> Tensor:
        m = self.beta.size
        return self.root[:m, :m].tril(-1) + torch.diag(self.root[:m, :m].diagonal().exp())

    def prepare(self, hyper: Hyper) -> Prepared:
        """The factor of K_β, and the residual functions' whitened mean there."""
        lower = cholesky(self.beta.gram(hyper.lengthscale)).lower
        across = self.alpha.between(self.beta, hyper.lengthscale)
        return Prepared(lower, across, whiten(lower, across.T @ (self.a / hyper.rho)))

    def moments(self, x: Tensor, hyper: Hyper, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """m̂ = ρ (L_k⁻¹ψ_βᵀφ)ᵀ(μ − L_k⁻¹K_{X̃,α}a) + φᵀψ_α a_0, and the latent variance of the whitened S'."""
        half = whiten(prepared.factor, hyper.rho * self.beta.cross(x, hyper.lengthscale).T)
        residual = self.alpha.cross(x, hyper.lengthscale) @ self.a
        mean = half.T @ (self.mean[: self.beta.size] - prepared.image) + residual
        return mean, elbo.hybrid_variance(hyper.rho.square(), half, self._root())[:, None]

    def kl(self, hyper: Hyper, prepared: Prepared, index: Tensor) -> Tensor:
        """½aᵀ(K_α − Q)a, Q = K_{α,β}K_β⁻¹K_{β,α}, comes from columns of K_α − Q: sampling K_α alone would leave −½aᵀQa
        to be cancelled by noise."""
        own = elbo.hybrid_whitened_kl(self.mean[: self.beta.size], self._root(), torch.zeros_like(prepared.image))
        explained = prepared.across @ solve(prepared.factor, prepared.across[index].T)
        columns = self.alpha.gram(hyper.lengthscale, index) - explained
        return own + elbo.quadratic_sampled(self.a / hyper.rho, columns, index)

    @torch.no_grad()
    def add(self, x: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        """X̃ is filled first, and the residual functions are later rows: q stays what it was."""
        covariances = self.beta.add(x)
        return self.fresh(self.alpha.add(x[covariances.numel() :]), covariances)

    @torch.no_grad()
    def replace(self, x: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        """X̃ is changed, and (μ, S') become what q itself says of the new X̃: a projection, not a loss of the old."""
        old, before = copy.deepcopy(self.beta), self.prepare(hyper)
        m, root = self.beta.size, self._root()
        lost = self.beta.least(x.shape[0])
        self.beta.put(lost, x[: lost.numel()])
        here = cholesky(self.beta.gram(hyper.lengthscale)).lower
        half = whiten(before.factor, old.between(self.beta, hyper.lengthscale))  # (m, m)
        residual = self.beta.between(self.alpha, hyper.lengthscale) @ (self.a / hyper.rho)
        mean = whiten(here, half.T @ (self.mean[:m] - before.image) + residual)
        carry = whiten(here, half.T)
        rest = torch.eye(m, dtype=FLOAT, device=here.device) - carry @ carry.T
        self.take(mean, rest + (carry @ root) @ (carry @ root).T)
        gone = self.alpha.least(x.shape[0], self.coefficients.square().sum(1))
        self.alpha.put(gone, x[: gone.numel()])
        self.coefficients[gone] = 0.0
        return {**self.fresh(gone, lost), **self.renewed()}

    def take(self, mean: Tensor, spread: Tensor) -> None:
        """Make these (m, T) and (m, m) the μ and S' of the points in use.

        Raises:
            NotPositiveDefinite: S' is not.
        """
        m = len(mean)
        root = cholesky(0.5 * (spread + spread.T), first=self.first).lower
        self.mean.data[:m] = mean
        self.root.data[:m, :m] = root.tril(-1) + torch.diag(root.diagonal().log())

    def renewed(self) -> dict[str, Tensor]:
        """Parameters that `take` wrote, and their rows."""
        return {}

    @torch.no_grad()
    def settle(
        self, rows: SettledRows, hyper: Hyper, likelihood: Likelihood, offset: Tensor | None, size: float, steps: int
    ) -> dict[str, Tensor]:
        """With S'⁻¹ = I + Λ, S'⁻¹μ = b, and λ, g of `natural_gradient.sites` (λ the mean over columns, as S' is):

            Λ ← (1 − r)Λ + r Σ w λ φφᵀ,    b ← (1 − r)b + r Σ w (g + λ φᵀμ) φ,    φ = L_k⁻¹k(X̃, x)

        Gaussian noise of one size has its optimum after one step of size r = 1. r is made smaller by how much more
        precise a column's rows are than the mean's. O(N M_β² + M_β³) a step."""
        prepared = self.prepare(hyper)
        half = whiten(prepared.factor, hyper.rho * self.beta.cross(rows.x, hyper.lengthscale).T)
        rest = self.alpha.cross(rows.x, hyper.lengthscale) @ self.a - half.T @ prepared.image
        rest = rest if offset is None else rest + offset
        began = self.mean[: self.beta.size].clone(), torch.cholesky_inverse(self._root())
        mean, precision = settled(half, rest, hyper.rho.square(), rows, likelihood, began, size, steps)
        self.take(mean, torch.cholesky_inverse(cholesky(precision, first=0.0).lower))
        return self.renewed()


def settled(
    half: Tensor,
    rest: Tensor,
    prior: Tensor,
    rows: SettledRows,
    likelihood: Likelihood,
    began: tuple[Tensor, Tensor],
    size: float,
    steps: int,
    before: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Natural-gradient steps on whitened q(v) = N(μ, S'), f = φᵀv + rest; see `Orthogonal.settle`. The bound on these
    rows never falls.

    Args:
        half: (M, N) φ of the rows.
        rest: (N, T) part of the mean that is not v's.
        prior: () prior variance of f.
        rows: N rows.
        likelihood: of them.
        began: μ (M, T) and S'⁻¹ (M, M) of now.
        size, steps: of `Parametrisation.settle`.
        before: Λ (M, M) and b (M, T) of a Gaussian likelihood of v, exp(bᵀv − ½vᵀΛv), beside the rows.

    Returns:
        μ (M, T) and S'⁻¹ (M, M).
    """
    unknown = (prior - half.square().sum(0)).clamp(min=0.0)
    eye = torch.eye(len(half), dtype=FLOAT, device=half.device)

    def judged(mean: Tensor, inverse: Tensor) -> tuple[float, Site, Tensor]:
        """The bound on these rows, what they say there, and their means φᵀμ."""
        root = cholesky(inverse, first=0.0).lower
        function, spread = half.T @ mean, whiten(root, eye).square().sum()
        variance = (unknown + whiten(root, half).square().sum(0)).clamp(min=1e-12)[:, None]
        found = sites(likelihood, rows.y, function + rest, variance.expand_as(function), rows.weight)
        kl = 0.5 * (mean.square().sum() + mean.shape[1] * (spread - len(root) + log_determinant(root)))
        if before is not None:
            curve = (mean * (before[0] @ mean)).sum() + mean.shape[1] * (before[0] * torch.cholesky_inverse(root)).sum()
            kl = kl - (before[1] * mean).sum() + 0.5 * curve
        return float(found.value - kl), found, function

    mean, inverse = began
    precision, moment = inverse - eye, inverse @ mean
    bound, found, function = judged(mean, inverse)
    for _ in range(steps):
        shared, most = found.precision.mean(1), found.precision.sum(0).max()
        towards = weighted_gram(half.T, shared), half @ (found.slope + shared[:, None] * function)
        if before is not None:
            towards = towards[0] + before[0], towards[1] + before[1]
        step, last = min(size, float(shared.sum() / most.clamp(min=1e-300))), mean
        for _ in range(HALVINGS):
            some, other = torch.lerp(precision, towards[0], step), torch.lerp(moment, towards[1], step)
            tried = solve(cholesky(eye + some, first=0.0).lower, other)
            higher = judged(tried, eye + some)
            if higher[0] >= bound:
                precision, moment, mean, (bound, found, function) = some, other, tried, higher
                break
            step *= 0.5
        if float((mean - last).abs().max()) < SETTLED:
            break
    return mean, eye + precision


def scaled(x: Tensor, z: Tensor, lengthscale: Tensor) -> Tensor:
    """(N, d), (M, d) -> (N, M): correlations of the squared exponential, without ρ. lengthscale: (d,)."""
    return correlation(x / lengthscale, z / lengthscale)
