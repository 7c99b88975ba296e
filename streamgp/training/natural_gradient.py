"""Natural gradients for a whitened Gaussian q(v) = N(m, S) with prior N(0, I), by its natural parameters.

In expectation parameters the gradient of the ELBO is that of the natural ones' own coordinates, so that a step of size
r is a convex combination of what the natural parameters are and what the batch says that they should be (Hensman et
al. 2013; conjugate-computation variational inference, Khan & Lin 2017):

    S⁻¹ = I + Λ,   Λ ← (1 − r) Λ + r Σ_n w_n λ_n φ_nφ_nᵀ,   S⁻¹m = b ← (1 − r) b + r Σ_n w_n (g_n + λ_n f̂_n) φ_n

with f̂_n, v_n mean and variance of f_n under q, g_n = ∂E log p(y_n | f)/∂f̂, λ_n = −2 ∂E log p(y_n | f)/∂v and w_n the
rows that row n stands for. A Gaussian likelihood has λ = 1/σ² and g + λf̂ = y/σ² whatever q is: one step of size 1 on
all rows is the optimal q (Titsias 2009). Its σ² is kept out of Λ and b, as a factor that they are multiplied by when q
is asked for, so that a step on σ² leaves them up to date.

λ < 0 (a Student-t far from its observation) is taken for 0: S then stays a covariance whatever the step size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.likelihoods import Likelihood
from streamgp.linalg.cholesky import cholesky, log_determinant
from streamgp.objectives.sparse import Belief

BLOCK = 256
"""Sums of outer products are made in block rows of this height, up to the diagonal, and mirrored."""


class Site(NamedTuple):
    """What rows say of f, as Gaussian observations would; every term is weighted, and 0 where nothing was observed.

    Attributes:
        precision: (b, T) w λ.
        pull: (b, T) w (g + λ f̂).
        slope: (b, T) w g.
        curve: (b, T) w ∂E/∂v, as it is.
        value: () Σ w E log p(y | f).
        own: its gradients in the likelihood's parameters, by name.
    """

    precision: Tensor
    pull: Tensor
    slope: Tensor
    curve: Tensor
    value: Tensor
    own: dict[str, Tensor]


def sites(likelihood: Likelihood, y: Tensor, mean: Tensor, variance: Tensor, weight: Tensor) -> Site:
    """λ and g + λf̂ of any likelihood, from the gradients of its expected log probability.

    Args:
        likelihood: whose parameters get their gradients too.
        y: (b, T), NaN = not observed.
        mean, variance: (b, T) of f.
        weight: (b,) w.

    Example:
        >>> from streamgp.likelihoods import logistic
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = sites(logistic.build(logistic.Config(), 1), one, 0.0 * one, 1e-9 * one, one[0])
        >>> round(found.precision.item(), 3), round(found.pull.item(), 3)  # σ(1 − σ), y − σ
        (0.25, 0.5)
    """
    with torch.enable_grad():
        mean, variance = mean.detach().requires_grad_(), variance.detach().requires_grad_()
        value = (weight[:, None] * likelihood.expected_log_prob(y, mean, variance)).sum()
        names = dict(likelihood.named_parameters())
        slope, curve, *own = torch.autograd.grad(value, [mean, variance, *names.values()])
    precision = (-2.0 * curve).clamp(min=0.0)
    pull = slope + precision * mean.detach()
    return Site(precision, pull, slope, curve, value.detach(), dict(zip(names, own, strict=True)))


def weighted_gram(phi: Tensor, weight: Tensor) -> Tensor:
    """Σ_n w_n φ_nφ_nᵀ, in float64 symmetric to the last bit. phi: (b, M), weight: (b,). Returns (M, M).

    Example:
        >>> weighted_gram(torch.tensor([[1.0, 2.0]]), torch.tensor([0.5])).tolist()
        [[0.5, 1.0], [1.0, 2.0]]
    """
    size = phi.shape[1]
    weighted = phi * weight[:, None].to(phi.dtype)
    if phi.dtype != FLOAT:
        return weighted.T @ phi
    out, used = phi.new_zeros(size, size), leading(phi != 0)
    for start in range(0, used, BLOCK):
        stop = min(start + BLOCK, used)
        out[start:stop, :stop] = weighted[:, start:stop].T @ phi[:, :stop]
    lower = out[:used, :used]
    lower.copy_(lower.tril() + lower.tril(-1).T)
    return out


def leading(said: Tensor) -> int:
    """(b, M) true or false -> up to which column there is a true one.

    Example:
        >>> leading(torch.tensor([[False, True, False], [True, False, False]])), leading(torch.zeros(2, 3).bool())
        (2, 0)
    """
    some = said.any(0)
    return int((some * torch.arange(1, len(some) + 1, device=some.device)).max()) if len(some) else 0


class Natural(nn.Module):
    """Λ and b of T columns on M functions; the buffers are the state.

    Args:
        functions: M.
        columns: T.
        shared: whether all columns have one Λ (P = 1), as rows under Gaussian noise have; else P = T.

    Attributes:
        precision: (P, M, M) Λ without the factor.
        moment: (M, T) b without the factor.

    Example:
        >>> natural = Natural(1, 1, shared=True)
        >>> phi, y = torch.ones(4, 1, dtype=FLOAT), torch.full((4, 1), 3.0, dtype=FLOAT)
        >>> natural.step(weighted_gram(phi, y.new_ones(4))[None], phi.T @ y, rate=1.0)
        >>> belief = natural.belief(torch.tensor(2.0, dtype=FLOAT))  # σ² = ½
        >>> round(belief.mean.item(), 4), round(1.0 + belief.excess.item(), 4)  # 24/9, 1/9
        (2.6667, 0.1111)
    """

    def __init__(self, functions: int, columns: int, shared: bool) -> None:
        super().__init__()
        self.precision: Tensor
        self.moment: Tensor
        self.register_buffer("precision", torch.zeros(1 if shared else columns, functions, functions, dtype=FLOAT))
        self.register_buffer("moment", torch.zeros(functions, columns, dtype=FLOAT))

    @torch.no_grad()
    def step(self, outer: Tensor, moment: Tensor, rate: float, kept: float | None = None) -> None:
        """Move by `rate` towards what rows say; with `kept`, scale by that instead of 1 − rate.

        Args:
            outer: (P, m, m) Σ w λ φφᵀ of the leading m <= M functions; 0 of the others.
            moment: (m, T) Σ w (g + λf̂) φ.
        """
        kept, m = 1.0 - rate if kept is None else kept, len(moment)
        self.precision.mul_(kept)[:, :m, :m].add_(outer, alpha=rate)
        self.moment.mul_(kept)[:m].add_(moment, alpha=rate)

    @property
    def used(self) -> int:
        """The leading functions, one at least, that rows say something of; the others are as in the prior."""
        return max(leading(self.precision.diagonal(dim1=1, dim2=2) != 0), leading(self.moment.T != 0), 1)

    @torch.no_grad()
    def belief(self, factor: Tensor | None = None) -> Belief:
        """q: S = (I + factor · Λ)⁻¹, m = S b factor; O(P m³) where rows say something of the leading m functions.

        Raises:
            NotPositiveDefinite: Λ is not finite.
        """
        root = self.root(factor)
        m = root.shape[-1]
        moment = self.moment[:m] if factor is None else factor * self.moment[:m]
        mean, excess = torch.zeros_like(self.moment), torch.zeros_like(self.precision)
        if len(root) == 1:
            mean[:m] = torch.cholesky_solve(moment, root[0])
        else:
            mean[:m] = torch.cholesky_solve(moment.T[..., None], root)[..., 0].T
        excess[:, :m, :m] = torch.cholesky_inverse(root)
        excess[:, :m, :m].diagonal(dim1=1, dim2=2).sub_(1.0)
        return Belief(mean, excess, -log_determinant(root))

    def root(self, factor: Tensor | None = None) -> Tensor:
        """(P, m, m) chol(I + factor · Λ) of the functions that rows say something of."""
        m = self.used
        matrix = self.precision[:, :m, :m] * (1.0 if factor is None else factor)
        matrix.diagonal(dim1=1, dim2=2).add_(1.0)
        return cholesky(matrix, first=0.0).lower
