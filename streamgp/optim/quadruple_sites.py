"""QSGP with a log-concave likelihood: stochastic ascent of the bound of Theorem 3, corrected (Evans & Nair 2020).

q(w_t) = N(μ_t, CCᵀ), C a chevron with k dense columns. A step draws rows and whole cells of the features, without
repetition, and descends on

    −(n/ñ) Σ_ℓ E log g(f̂_ℓ) + (B/cells) Σ_{drawn} KL,     KL = ½ Σ_t [sμ_t² + s(c² + ‖C_off‖²) − 1 − log s c²]

where f̂ is a sampled estimate of f, linear in the draws, so that Jensen makes it a lower bound of the ELBO
(`objectives.site_bounds`). Weights μ, log c and C_off have one AdaGrad rate each; nothing costs O(m) in a step.

What Jensen takes is the curvature of log g times the variance that drawing features adds, about (v‖μ‖²/m̃)(1 − m̃/m).
It holds C and μ down. Take cells that make up a fifth of the features or more: on scikit-learn's digits, odd or even,
m = 4000, v = 100, the log loss by quadrature was 0.056, 0.042, 0.037, 0.069 at m̃/m = 1, ½, ⅕, 1/20, and with the drawn
form 0.036, 0.058 at ½, ⅕. Means and variances were fitted together, so that probabilities are to be made of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.features import Features
from streamgp.likelihoods import Likelihood
from streamgp.objectives import site_bounds
from streamgp.optim._block_weights import BlockWeights, reserved
from streamgp.optim._slow_adam import SlowAdam
from streamgp.optim.adagrad import SparseAdaGrad
from streamgp.optim.sparse_chevron import SparseChevron

SMOOTH = 0.02
"""Weight of a new draw in the running mean of the loss, once 50 were taken."""


class SiteConfig(BaseModel):
    """Options of stochastic steps with a log-concave likelihood."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    form: Literal["tight", "drawn"] = Field(
        "tight", description="tight: one draw of cells, columns of C whole; drawn: Theorem 3, cells i, j and r apart"
    )
    cells: int = Field(4, ge=1, description="blocks of features drawn for a step")
    batch: int = Field(200, ge=1, description="rows of a mini-batch")
    rate: float = Field(0.1, gt=0, le=10, description="first step on a weight, in units of its prior sd")
    start: float = Field(0.1, gt=0, description="c at the start, in units of the prior sd of a weight")
    dense_columns: int = Field(0, ge=0, description="k, dense columns of the covariance's factor")
    likelihood_rate: float = Field(
        0.01, ge=0, le=1, description="step size of the likelihood's parameters, which are logarithms; 0: frozen"
    )
    hyper_rate: float = Field(
        0.0, ge=0, le=1, description="step size of the kernel's parameters, logarithms; 0: frozen"
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="of weights and features while learning")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of the draws")


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


class SiteDescent(BlockWeights):
    """Means and a chevron covariance of weights under any likelihood with a concave log p(y | f).

    Columns of `weights` are T means, log(c/start), then k dense columns. Start likelihoods (`Likelihood.start`) before.

    Args:
        features: with a diagonal S.
        likelihood: whose parameters are learned too.

    Attributes:
        sums: (capacity, T + 1 + k) float32 of squared gradients.
        bound: () running mean of −ELBO, a row and column.

    Raises:
        UsageError: S is not diagonal, or there are more dense columns than features.

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> from streamgp.likelihoods import logistic
        >>> kernel = squared_exponential.build(squared_exponential.Config(outputscale=10.0), dims=1)
        >>> features = fourier.build(fourier.Config(size=80, width=20), kernel)
        >>> likelihood = logistic.build(logistic.Config(), columns=1)
        >>> engine = SiteDescent(features, likelihood)
        >>> x = torch.linspace(-2, 2, 100).double()[:, None]
        >>> for _ in range(100):
        ...     engine.step(x, (x > 0).double())
        >>> p = likelihood.predictive(engine.mean(x), engine.covariance().variance(features, x)[:, None]).mean
        >>> bool((p[:40] < 0.3).all()), bool((p[60:] > 0.7).all())
        (True, True)
    """

    def __init__(self, features: Features, likelihood: Likelihood, config: SiteConfig | None = None) -> None:
        config = config or SiteConfig()
        if not features.diagonal_precision:
            raise UsageError("sites need features with independent weights", hint="use random Fourier features")
        if config.dense_columns > features.capacity:
            raise UsageError(f"dense_columns={config.dense_columns} of {features.capacity} features", hint="set fewer")
        dtype = torch.float32 if config.dtype == "float32" else torch.float64
        super().__init__(features, likelihood.columns, 1 + config.dense_columns, dtype, config.seed)
        self.config, self.likelihood = config, likelihood
        self.sums: Tensor
        self.bound: Tensor
        self.register_buffer("sums", reserved(self.weights.shape, torch.float32))
        self.register_buffer("bound", torch.zeros((), dtype=FLOAT))
        self.optimiser = SparseAdaGrad({}, {})
        self.likelihood_adam, self.hyper_adam = SlowAdam(self._learned()[0]), SlowAdam(self._learned()[1])

    def _learned(self) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters of the likelihood and of the features that are not frozen."""
        likelihood = self.likelihood.parameters() if self.config.likelihood_rate else ()
        return list(likelihood), list(self.features.parameters()) if self.config.hyper_rate else []

    def forget(self) -> None:
        """Back to the start, but for parameters that others own; O(touched)."""
        for block in self.touched():
            self.sums[self.features.span(block)] = 0.0
        self.bound.zero_()
        self.likelihood_adam.forget()
        self.hyper_adam.forget()
        super().forget()

    def current(self, block: int) -> Tensor:
        return self.weights[self.features.span(block)].clone()

    @property
    def loss(self) -> float:
        """−ELBO, a row and column, what Jensen takes included; a running mean of the draws."""
        return float(self.bound)

    @property
    def healthy(self) -> bool:
        """Whether all that steps have seen is finite."""
        return bool(torch.isfinite(self.bound))

    def step(self, x: Tensor, y: Tensor, weight: Tensor | None = None, decay: float = 1.0) -> None:
        """One step on rows and cells that are drawn here; its cost depends neither on R nor on m.

        Args:
            x: (R, W) all rows.
            y: (R, T), NaN = not observed.
            weight: (R,) how many rows each stands for; 1 if left out.
            decay: factor on the step sizes.
        """
        self.step_on(x, lambda some: (y[some], torch.ones_like(some) if weight is None else weight[some]), decay)

    def step_on(self, x: Tensor, look: Callable[[Tensor], tuple[Tensor, Tensor]], decay: float = 1.0) -> None:
        """One step, where targets and weights of all rows are not at hand.

        Args:
            x: (R, W) all rows.
            look: (ñ,) places of rows -> (ñ, T) their y and (ñ,) how many rows each stands for.
            decay: factor on the step sizes.
        """
        generator, count = self.generator(), self.config.cells
        draws = [distinct(count, self.features.blocks, generator)]
        draws = [draws[0], draws[0]] if self.config.form == "tight" else draws
        while len(draws) < 2 + (self.config.form == "drawn"):
            draws.append(distinct(count, self.features.blocks, generator))
        some = torch.randint(len(x), (self.config.batch,), generator=generator).to(x.device)
        self.keep(generator)
        y, weight = look(some)
        stands = weight.to(FLOAT) * (len(x) / len(some))
        likelihood, theta = self._learned()
        for parameter in (*likelihood, *theta):
            parameter.requires_grad_(True)
        leaves = {b: self.current(b).requires_grad_(True) for draw in draws for b in draw}
        value = self.objective(x[some].to(self.dtype), y, stands, draws, leaves)
        wanted = [*leaves.values(), *likelihood, *theta]
        gradients = torch.autograd.grad(value, wanted, allow_unused=True)
        whole = [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, gradients, strict=True)]
        rows = float(stands.sum()) * self.columns
        self.bound.lerp_(value.detach() / rows, max(SMOOTH, 1.0 / (int(self.steps) + 1)))
        self.steps += 1
        self._descend(leaves, whole, decay)
        slopes = [gradient / rows for gradient in whole[len(leaves) :]]
        parts = (
            (likelihood, self.likelihood_adam, self.config.likelihood_rate),
            (theta, self.hyper_adam, self.config.hyper_rate),
        )
        for parameters, adam, rate in parts:
            own, slopes = slopes[: len(parameters)], slopes[len(parameters) :]
            if parameters:
                adam.step(parameters, own, decay * rate)
        for parameter in theta:
            parameter.requires_grad_(False)

    def objective(
        self, x: Tensor, y: Tensor, stands: Tensor, draws: list[list[int]], leaves: dict[int, Tensor]
    ) -> Tensor:
        """The estimate of an upper bound of −ELBO from given draws; ().

        Args:
            x, y: (ñ, W), (ñ, T) the mini-batch.
            stands: (ñ,) rows that each stands for.
            draws: cells i and j of the tight form, j = i allowed; i, j and r of the drawn one.
            leaves: block -> (|b|, T + 1 + k) its weights.
        """
        with torch.set_grad_enabled(bool(self._learned()[1])):
            phi = {b: self.features.block(x, b) for b in dict.fromkeys((*draws[0], *draws[1]))}
        i, j = draws[0], draws[1]
        each = self.features.blocks / len(i)
        mu = torch.cat([leaves[b][:, : self.columns] for b in i])
        dense = torch.cat([self._dense(b, leaves[b]) for b in j])
        phi_i, phi_j = (torch.cat([phi[b] for b in draw], 1) for draw in (i, j))
        if self.config.form == "tight":
            own = torch.cat([self._diagonal(b, leaves[b]) for b in j])
            site = site_bounds.tight(phi_i, mu, phi_j, dense, phi_j, own, each)
        else:
            site = site_bounds.drawn(phi_i, mu, phi_j, self._meeting(j, draws[2], dense, leaves), each)
        mean, variance = site.mean.to(FLOAT), site.variance.to(FLOAT)
        fit = (stands[:, None] * self.likelihood.expected_log_prob(y, mean, variance)).sum()
        energy = torch.cat([self.prior(b) for b in i]) @ mu.to(FLOAT).square().sum(1)
        entropy = sum((self._divergence(b, leaves[b]) for b in j), mean.new_zeros(()))
        return each * 0.5 * (energy + self.columns * entropy) - fit

    def _scale(self, own: Tensor) -> Tensor:
        """(|b|,) c_rr, of a block's weights."""
        return self.config.start * own[:, self.columns].exp()

    def _diagonal(self, block: int, own: Tensor) -> Tensor:
        """(|b|,) c_rr, 0 for the dense columns."""
        first = max(self.config.dense_columns - block * self.features.width, 0)
        return torch.cat((torch.zeros_like(own[:first, 0]), self._scale(own)[first:]))

    def _dense(self, block: int, own: Tensor) -> Tensor:
        """(|b|, k) rows of the dense columns, their diagonal entries included."""
        columns, k = own[:, self.columns + 1 :], self.config.dense_columns
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
        own = torch.cat([self._diagonal(b, leaves[b]) for b in j])
        meeting = torch.where(rows[:, None] == columns, own[:, None], 0.0)
        k = self.config.dense_columns
        return (
            meeting + dense @ (torch.arange(k, device=dense.device)[:, None] == columns).to(dense.dtype)
            if k
            else meeting
        )

    def _divergence(self, block: int, own: Tensor) -> Tensor:
        """() Σ_r [s(c² + ‖C_off‖²) − 1 − log s c²] over the block's rows."""
        prior, scale = self.prior(block), self._scale(own).to(FLOAT)
        squares = self._diagonal(block, own).to(FLOAT).square() + self._dense(block, own).to(FLOAT).square().sum(1)
        return (prior * squares - 1.0 - prior.log() - 2.0 * scale.log()).sum()

    @torch.no_grad()
    def _descend(self, leaves: dict[int, Tensor], gradients: list[Tensor], decay: float) -> None:
        """AdaGrad on the drawn blocks, every weight with a rate of its own."""
        names = [str(column) for column in range(self.weights.shape[1])]
        self.optimiser.parameters = dict(zip(names, self.weights.unbind(1), strict=True))
        self.optimiser.sums = dict(zip(names, self.sums.unbind(1), strict=True))
        self.optimiser.rates = dict.fromkeys(names, 1.0)
        for block, gradient in zip(leaves, gradients, strict=False):
            slopes = {n: (self.features.span(block), g) for n, g in zip(names, gradient.unbind(1), strict=True)}
            self.optimiser.step(slopes, decay * self.config.rate)
            self.last[block] = self.steps

    @torch.no_grad()
    def covariance(self) -> SparseChevron:
        """C as learned. Blocks that were never drawn have the prior's variance, most of them by E φ_r² = k(x, x)/m."""
        k, width, drawn = self.config.dense_columns, self.features.width, set(self.touched())
        held = self.held(k)
        diagonal, dense = self.weights.new_zeros(len(held), width), self.weights.new_zeros(len(held), width, k)
        used = 0
        for place, block in enumerate(held):
            own = self.current(block)
            if block not in drawn:
                own[:, self.columns] = -0.5 * self.prior(block).log() - math.log(self.config.start)
            used += len(own)
            diagonal[place, : len(own)], dense[place, : len(own)] = self._diagonal(block, own), self._dense(block, own)
        rest = torch.tensor(1.0 - used / max(self.features.size, 1), dtype=FLOAT)
        return SparseChevron(torch.tensor(held, dtype=torch.int64), diagonal, dense, rest)
