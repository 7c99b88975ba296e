"""Stochastic ascent of the bound of Theorem 3, corrected, under a log-concave likelihood (Evans & Nair 2020).

q(w_t) = N(μ_t, CCᵀ), C a chevron with k dense columns, S = I. A step draws ñ of n rows and whole blocks of the
features, without repetition, and descends on an estimate of what is never below −ELBO:

    −(n/ñ) Σ_ℓ E log g(f̂_ℓ) + (B/cells) Σ_{drawn} KL,     KL = ½ Σ_t [μ_t² + c² + ‖C_off‖² − 1 − 2 log c]

where f̂ is a sampled estimate of f, linear in the draws, so that Jensen makes it a bound (`site_bounds`). Rows and KL
are unbiased; what is lost is the curvature of log g times the variance that drawing features adds, about
(v‖μ‖²/m̃)(1 − m̃/m). It holds C and μ down: take blocks that make up a fifth of the features or more, where there are
few of them, and some thousand features where there are many. Means and variances are fitted together, so that
forecasts are to be made of both.

**Steps**: `adagrad` is the paper's, a rate for every weight. `preconditioned` (ours) multiplies the gradient of a
block's μ and C_off by (Σ_ℓ κ_ℓ φ_ℓφ_ℓᵀ + I)⁻¹ on the rows of the step. κ_ℓ = −E ∂² log g(f̂_ℓ)/∂f² needs no second
derivative: it is −2 times the derivative of E log g(f̂_ℓ) for the variance of f̂_ℓ. Along log c the curvature of
the KL at its balance is 2, whatever the likelihood. As the gradient is noisy, no step is longer than (Σ_s ν_s²)^−½ of
a whole one, ν_s² the mean square of the change of f that step s would have made (AdaGrad's rule for a single rate).

A step takes O(cells m̃ ñ (W + K + 101)), preconditioned O(cells m̃² (ñ + m̃)) more, whatever n and m are.

Shapes: R rows, W columns of an input, m features in B blocks, T target columns, K = T + 1 + k columns of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.features import Features
from streamgp.linalg.cholesky import cholesky
from streamgp.papers.qsgp import site_bounds
from streamgp.papers.qsgp.adagrad import SparseAdaGrad
from streamgp.papers.qsgp.rows import SampledRows
from streamgp.papers.qsgp.steps import Image, SiteSteps
from streamgp.papers.qsgp.weights import SampledWeights
from streamgp.regression.dual_descent import reserved

Expectation = Callable[[Tensor, Tensor, Tensor], Tensor]
"""y (ñ, T), NaN = not observed, mean (ñ, T) and variance (ñ, 1) of f -> E log p(y | f) (ñ, T), 0 where y is NaN."""

SMOOTH = 0.02
"""Weight of a new draw in the running mean of the loss, once 50 were taken."""
FURTHEST = 0.5
"""Change of log c in a preconditioned step, at most."""
TINY = 1e-300


def distinct(count: int, of: int, generator: Generator) -> list[int]:
    """min(count, of) different numbers below `of`, uniformly; O(count) (Bentley & Floyd 1987).

    Example:
        >>> sorted(distinct(3, 3, torch.Generator())), len(set(distinct(5, 10**9, torch.Generator())))
        ([0, 1, 2], 5)
    """
    found: dict[int, None] = {}
    for top in range(max(of - count, 0), of):
        drawn = int(torch.randint(top + 1, (1,), generator=generator))
        found[top if drawn in found else drawn] = None
    return list(found)


class SiteDescent(SampledWeights):
    """Means and a chevron covariance of weights under a concave log p(y | f). The buffers are the state.

    Columns of `weights` are T means, log(c/start), then k dense columns.

    Args:
        features: with S = I.
        columns: T.
        expectation: of the log likelihood.
        options: what steps are.
        seed: of all draws.
        dtype: of the weights, and of features while learning.

    Attributes:
        sums: (capacity, K) of squared gradients (AdaGrad).
        bound: () running mean of −ELBO, a row and column.
        noisy: (1 + k,) Σ ν², of the means together and of each dense column (preconditioned).

    Raises:
        UsageError: S is not I, or there are more dense columns than features.

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(outputscale=10.0), dims=1)
        >>> features = fourier.build(fourier.Config(size=80, width=20), kernel)
        >>> made = SiteDescent(features, 1, site_bounds.logistic, SiteSteps("preconditioned", 0.5, batch=100))
        >>> x = torch.linspace(-2, 2, 100).double()[:, None]
        >>> rows = made.rows(x, (x > 0).double())
        >>> for _ in range(60):
        ...     made.step(rows)
        >>> found = made.image(x)
        >>> p = torch.sigmoid(found.mean[:, 0] / (1.0 + 0.4 * found.variance).sqrt())
        >>> bool((p[:40] < 0.3).all()), bool((p[60:] > 0.7).all())
        (True, True)
    """

    def __init__(
        self,
        features: Features,
        columns: int,
        expectation: Expectation,
        options: SiteSteps | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        options = options or SiteSteps()
        if not features.diagonal_precision:
            raise UsageError(
                "this likelihood needs features with independent weights", hint="use random Fourier features"
            )
        if options.columns > features.capacity:
            raise UsageError(f"{options.columns} dense columns of {features.capacity} features", hint="set fewer")
        total = columns + 1 + options.columns
        super().__init__(features, columns, total, columns, options.support, seed, dtype)
        self.options, self.expectation = options, expectation
        self.sums: Tensor
        self.bound: Tensor
        self.noisy: Tensor
        if options.optimiser == "adagrad":
            self.register_buffer("sums", reserved((features.capacity, total), torch.float32))
        self.register_buffer("bound", torch.zeros((), dtype=FLOAT))
        self.register_buffer("noisy", torch.zeros(1 + options.columns, dtype=FLOAT))
        self.optimiser = SparseAdaGrad({}, {})

    def begin(self) -> Self:
        """Back to the start, under whatever the features' hyper-parameters now are; O(touched)."""
        self.forget(*([self.sums] if hasattr(self, "sums") else []))
        self.bound.zero_()
        self.noisy.zero_()
        return self

    @property
    def loss(self) -> float:
        """−ELBO a row and column, what Jensen takes included: a running mean of the draws."""
        return float(self.bound)

    @property
    def healthy(self) -> bool:
        """Whether all that steps have seen is finite."""
        return bool(torch.isfinite(self.bound))

    def step(self, rows: SampledRows, decay: float = 1.0) -> None:
        """One step; its cost depends neither on R nor on m. decay: factor on the step sizes."""
        of, count = len(rows.places()), self.options.cells
        if not of:
            return  # nothing to learn from yet
        generator, blocks = self._generator(), self.features.blocks
        draws = [distinct(count, blocks, generator)]
        if self.options.form == "theorem":
            draws += [distinct(count, blocks, generator) for _ in range(2)]
        some = rows.draw(self.options.batch, generator)
        self.stream.copy_(generator.get_state())
        x, y = rows.x[some], torch.where(rows.observed[some], rows.target[some], torch.nan)
        stands = rows.weight[some] * (of / len(some) / self.options.temper)
        leaves = {b: self.weights[self.features.span(b)].clone().requires_grad_() for draw in draws for b in draw}
        with torch.no_grad():
            phi = {b: self.features.block(x, b) for b in leaves}
        value, variance = self.objective(phi, y, stands, draws, leaves)
        wanted = [*leaves.values(), variance]
        found = torch.autograd.grad(value, wanted, allow_unused=True)
        whole = [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, found, strict=True)]
        total = float((stands[:, None] * ~y.isnan()).sum())
        self.bound.lerp_(value.detach() / max(total, TINY), max(SMOOTH, 1.0 / (int(self.steps) + 1)))
        self.steps += 1
        gradients = dict(zip(leaves, whole[:-1], strict=True))
        before = {b: leaf.detach() for b, leaf in leaves.items()}
        with torch.no_grad():
            if self.options.optimiser == "adagrad":
                self._adagrad(gradients, decay)
            else:
                curvature = (2.0 / self.columns * whole[-1][:, 0]).clamp(min=0.0)
                self._newton(phi, curvature, rows, gradients, before, decay)
            for block in leaves:
                self.last[block] = self.steps
            self._follow(rows, before)

    def objective(
        self, phi: dict[int, Tensor], y: Tensor, stands: Tensor, draws: list[list[int]], leaves: dict[int, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The estimate of an upper bound of −ELBO from given draws, (), and the variance of f̂ in it, (ñ, 1).

        Args:
            phi: block -> (ñ, |b|) its features on the mini-batch.
            y: (ñ, T), NaN = not observed.
            stands: (ñ,) rows that each stands for.
            draws: blocks i, which are j and r too, of the tight form; i, j and r of the theorem's.
            leaves: block -> (|b|, K) its weights.
        """
        i, j = draws[0], draws[1 % len(draws)]
        each = self.features.blocks / len(i)
        mu = torch.cat([leaves[b][:, : self.columns] for b in i])
        dense = torch.cat([self.dense(b, leaves[b]) for b in j])
        phi_i, phi_j = (torch.cat([phi[b] for b in draw], 1) for draw in (i, j))
        if len(draws) == 1:
            own = torch.cat([self.diagonal(b, leaves[b]) for b in j])
            site = site_bounds.tight(phi_i, mu, phi_j, dense, phi_j, own, each)
        else:
            site = site_bounds.theorem(phi_i, mu, phi_j, self._meeting(j, draws[2], dense, leaves), each)
        mean, variance = site.mean.to(FLOAT), site.variance.to(FLOAT)
        fit = (stands[:, None] * self.expectation(y, mean, variance)).sum()
        energy = mu.to(FLOAT).square().sum()
        entropy = sum((self._divergence(b, leaves[b]) for b in j), mean.new_zeros(()))
        return each * 0.5 * (energy + self.columns * entropy) - fit, variance

    def _scale(self, own: Tensor) -> Tensor:
        """(|b|,) c_rr, of a block's weights."""
        return self.options.start * own[:, self.columns].exp()

    def diagonal(self, block: int, own: Tensor) -> Tensor:
        """(|b|,) c_rr, 0 for the dense columns. own: (|b|, K) the block's weights."""
        first = max(self.options.columns - self.features.span(block).start, 0)
        return torch.cat((torch.zeros_like(own[:first, 0]), self._scale(own)[first:]))

    def dense(self, block: int, own: Tensor) -> Tensor:
        """(|b|, k) rows of the dense columns, their diagonal entries included. own: (|b|, K) the block's weights."""
        columns, k = own[:, self.columns + 1 :], self.options.columns
        below = self.below(block, k)
        if below is None:
            return columns
        span = self.features.span(block)
        unit = torch.eye(span.stop, k, dtype=own.dtype, device=own.device)[span.start :]
        return columns * below + unit * self._scale(own)[:, None]

    def _meeting(self, j: list[int], r: list[int], dense: Tensor, leaves: dict[int, Tensor]) -> Tensor:
        """(|j|, |r|) the block C_jr."""
        rows, columns = (torch.cat([torch.arange(s.start, s.stop) for s in map(self.features.span, c)]) for c in (j, r))
        rows, columns = rows.to(dense.device), columns.to(dense.device)
        own = torch.cat([self.diagonal(b, leaves[b]) for b in j])
        meeting = torch.where(rows[:, None] == columns, own[:, None], 0.0)
        first = torch.arange(self.options.columns, device=dense.device)
        return meeting + dense @ (first[:, None] == columns).to(dense.dtype)

    def _divergence(self, block: int, own: Tensor) -> Tensor:
        """() Σ_r [c² + ‖C_off‖² − 1 − 2 log c] over the block's rows."""
        squares = self.diagonal(block, own).to(FLOAT).square() + self.dense(block, own).to(FLOAT).square().sum(1)
        return (squares - 1.0 - 2.0 * self._scale(own).to(FLOAT).log()).sum()

    def _adagrad(self, gradients: dict[int, Tensor], decay: float) -> None:
        """Every weight of the drawn blocks with a rate of its own."""
        names = [str(column) for column in range(self.total)]
        self.optimiser.parameters = dict(zip(names, self.weights.unbind(1), strict=True))
        self.optimiser.sums = dict(zip(names, self.sums.unbind(1), strict=True))
        self.optimiser.rates = dict.fromkeys(names, 1.0)
        for block, gradient in gradients.items():
            slopes = {n: (self.features.span(block), g) for n, g in zip(names, gradient.unbind(1), strict=True)}
            self.optimiser.step(slopes, decay * self.options.rate)

    def _newton(
        self,
        phi: dict[int, Tensor],
        curvature: Tensor,
        rows: SampledRows,
        gradients: dict[int, Tensor],
        before: dict[int, Tensor],
        decay: float,
    ) -> None:
        """A part of a Newton step in every drawn block; they share what all of them would correct."""
        t, k, rate = self.columns, self.options.columns, decay * self.options.rate
        each = self.features.blocks / min(self.options.cells, self.features.blocks)
        changes, images = dict[int, Tensor](), list[Tensor]()
        for block, gradient in gradients.items():
            here = phi[block]
            half = here * curvature.sqrt().to(here.dtype)[:, None]
            part = here.shape[1] / (here.shape[1] + len(here))  # ñ rows know little of |b| directions
            matrix = half.mT @ half
            diagonal = matrix.diagonal().clone()
            matrix.mul_(1.0 - part).diagonal().copy_(diagonal + 1.0)
            slope = torch.cat((gradient[:, :t], gradient[:, t + 1 :] / t), 1) / (each * len(gradients))
            below = self.below(block, k)
            if below is not None:
                slope[:, t:] *= below
            change = torch.cholesky_solve(slope.to(matrix.dtype), cholesky(matrix).lower)
            changes[block] = change
            images.append((here @ change).to(FLOAT))
        moved = torch.stack(images).sum(0).square().mean(0)
        self.noisy[0] += moved[:t].mean()
        if k:
            self.noisy[1:] += moved[t:] / self._heights(rows).clamp(min=TINY)
        length = self.noisy.clamp(min=rate**-2).rsqrt().to(self.dtype)
        for block, change in changes.items():
            span, gradient = self.features.span(block), gradients[block]
            after = before[block].clone()
            after[:, :t] -= length[0] * change[:, :t]
            after[:, t + 1 :] -= length[1:] * change[:, t:]
            after[:, t] -= (rate / (2.0 * each * t) * gradient[:, t]).clamp(-FURTHEST, FURTHEST)
            self.weights[span] = after

    def _heights(self, rows: SampledRows) -> Tensor:
        """(k,) mean squares of φ_r c_rr of the dense columns, on some rows."""
        k = self.options.columns
        own = torch.cat([self._scale(self.weights[self.features.span(b)]) for b in range(-(-k // self.features.width))])
        return self.heads(rows.x[rows.places()[:100]], k).to(FLOAT).square().mean(0) * own[:k].to(FLOAT).square()

    def _follow(self, rows: SampledRows, before: dict[int, Tensor]) -> None:
        """Φμ of the support rows after a step."""
        if not len(rows.held):
            return
        x, held = rows.x[rows.held], rows.support >= 0
        for block, old in before.items():
            change = (self.weights[self.features.span(block)] - old)[:, : self.columns]
            rows.fit[held] += (self.features.block(x, block) @ change).to(FLOAT)

    @torch.no_grad()
    def image(self, x: Tensor) -> Image:
        """Means and variances of inputs (N, W); O(N (W + K)) a touched feature, and no other.

        The variance is ‖Cᵀφ‖². Features of blocks that were never drawn have that of their prior on average: their
        share of the prior variance of f(x).
        """
        t, k = self.columns, self.options.columns
        total, own = x.new_zeros(len(x), t + k), x.new_zeros(len(x))
        used = 0
        for block in self.touched():
            here = self.weights[self.features.span(block)]
            phi = self.features.block(x, block)
            total.addmm_(phi, torch.cat((here[:, :t], self.dense(block, here)), 1).to(phi.dtype))
            own.addmv_(phi.square(), self.diagonal(block, here).square().to(phi.dtype))
            used += phi.shape[1]
        own += total[:, t:].square().sum(1)
        share = 1.0 - used / max(self.features.size, 1)
        if share > 0.0:
            own += share * self.features.prior_variance(x)
        return Image(total[:, :t], own)
