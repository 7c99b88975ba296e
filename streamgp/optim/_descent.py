"""What the two ways of descent on μ have in common: what can be set, the system's noise, its covariance, its loss."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Generic, Literal, Self, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.features import Features
from streamgp.objectives.quadruple import diagonal_optimum
from streamgp.optim._block_weights import BlockWeights
from streamgp.optim.block_rows import Rows
from streamgp.optim.sparse_chevron import SparseChevron

TINY = 1e-300
SQUARES = 2000
"""Rows at most that the squares of features are summed over, each standing for its share."""

R = TypeVar("R", bound=Rows)


class DescentConfig(BaseModel):
    """Options of stochastic steps."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    optimiser: Literal["momentum", "adagrad"] = Field(
        "momentum",
        description="momentum: exact gradients of a drawn block from the cached residual of all rows given; adagrad: "
        "Theorem 1 with mini-batches of the rows, pairs of blocks and a control variate",
    )
    momentum: float = Field(0.97, ge=0, lt=1, description="part of a velocity that is left after a step (momentum)")
    rate: float = Field(
        0.5, gt=0, lt=2, description="step size, in units of the inverse of the largest curvature (momentum)"
    )
    adagrad_rate: float = Field(
        0.05, gt=0, le=10, description="first step on a weight, in units of targets over prior sd (adagrad)"
    )
    batch: int = Field(500, ge=1, description="rows of a mini-batch (adagrad)")
    support: int = Field(500, ge=0, description="rows of the control variate; 0: without one (adagrad)")
    dense_columns: int = Field(0, ge=0, description="k, dense columns of the covariance's factor")
    hyper_rate: float = Field(
        0.0, ge=0, le=1, description="step size of the logarithms of hyper-parameters and noise; 0: frozen (adagrad)"
    )
    restart: int = Field(
        500, ge=1, description="steps between restarts of the control variate, where hyper-parameters learn (adagrad)"
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="of weights and features while learning")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of the draws")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.hyper_rate and (self.optimiser != "adagrad" or self.dense_columns):
            raise ValueError("hyper_rate needs optimiser=adagrad and dense_columns=0")
        if self.optimiser == "adagrad" and self.dense_columns and not self.support:
            raise ValueError("dense_columns needs support rows")
        return self


class Descent(BlockWeights, Generic[R]):
    """μ of T columns under σ_t², and k dense columns of one covariance, by steps on drawn blocks.

    Args:
        features: Φ and S.
        columns: T.
        config: what can be set.

    Raises:
        UsageError: there are more dense columns than features.

    Attributes:
        noise: (T,) σ_t².
        beyond: (T,) running mean of the stochastic part of −2 ELBO.
    """

    def __init__(self, features: Features, columns: int, config: DescentConfig) -> None:
        if config.dense_columns > features.capacity:
            raise UsageError(f"dense_columns={config.dense_columns} of {features.capacity} features", hint="set fewer")
        dtype = torch.float32 if config.dtype == "float32" else torch.float64
        super().__init__(features, columns, config.dense_columns, dtype, config.seed)
        self.config = config
        self.noise: Tensor
        self.beyond: Tensor
        self.register_buffer("noise", torch.ones(columns, dtype=FLOAT))
        self.register_buffer("beyond", torch.zeros(columns, dtype=FLOAT))

    @property
    def variance(self) -> Tensor:
        """() σ² = 1/mean_t(1/σ_t²), that of the covariance."""
        return 1.0 / (1.0 / self.noise).mean()

    @property
    def noises(self) -> Tensor:
        """(K,) σ_t² of the means, then σ² of the dense columns."""
        return torch.cat((self.noise, self.variance.expand(self.config.dense_columns)))

    @torch.no_grad()
    def begin(self, noise: Tensor | float) -> Self:
        """μ = 0 under a new σ², (T,) or one number, and whatever the features' hyper-parameters now are; O(touched)."""
        self.forget()
        self.noise.copy_(torch.as_tensor(noise))
        self.beyond.zero_()
        return self

    @abstractmethod
    def rows(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> R:
        """Take up rows; O(R) before the first step, O(R m_touched) after.

        Args:
            x: (R, W)
            y: (R, T), NaN = not observed.
            weight: (R,) or (R, T) rows that each stands for: N/R each where R of N rows are given; 1 if left out.
        """

    @abstractmethod
    def put(self, rows: R, places: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> None:
        """Replace rows in place; O(|places| m_touched).

        Args:
            places: (P,) which.
            x, y: (P, W), (P, T), NaN = not observed.
            weight: (P,) or (P, T), as the rows have it.
        """

    @abstractmethod
    def renew(self, rows: R) -> None:
        """What is cached of the rows from scratch, O(R m_touched), against rounding that added up."""

    @abstractmethod
    def step(self, rows: R, decay: float = 1.0) -> None:
        """One step. Its cost depends neither on m nor, with a given number of rows per step, on n.

        Args:
            decay: factor on the step size (`decay`).
        """

    @abstractmethod
    def loss(self, rows: R) -> float:
        """−ELBO, a row and column, at the best diagonal covariance: an estimate that a few draws back go into.

        With m much larger than what n rows can tell, means that predict well are far from the bound's maximum, and its
        value says little of their quality: select by rows that are kept out.
        """

    @property
    def healthy(self) -> bool:
        """Whether all that steps have seen is finite."""
        return bool(torch.isfinite(self.beyond).all())

    def heads(self, x: Tensor) -> Tensor:
        """(N, W) -> (N, k): the features of the dense columns, in the dtype of x."""
        k = self.config.dense_columns
        blocks = range(-(-k // self.features.width))
        return torch.cat([x.new_zeros(len(x), 0), *(self.features.block(x, b) for b in blocks)], 1)[:, :k]

    def freeze(self, block: int, change: Tensor) -> Tensor:
        """(|b|, K) a change of weights, 0 where column r of the factor is not free: rows ≤ r."""
        free = self.below(block, self.config.dense_columns)
        if free is None:
            return change
        return torch.cat((change[:, : self.columns], change[:, self.columns :] * free.to(change.dtype)), 1)

    @abstractmethod
    def columns_fit(self, rows: R) -> Tensor:
        """(k,) Σ_ℓ w_ℓ (φ_ℓr + φ_ℓᵀu_r)² over all rows, from what is cached."""

    @torch.no_grad()
    def covariance(self, rows: R) -> SparseChevron:
        """The best diagonal (proposition 1), from at most 2000 of the rows, and the dense columns as they are learned.

        Column r is c_r = c_rr (e_r + u_r). In u_r the bound is a ridge regression of −φ_r on the features after it,
        which is one more column of weights; in c_rr the optimum is Q^−½ with
        Q = Σ_ℓ w_ℓ (φ_ℓr + φ_ℓᵀu_r)²/σ² + s_rr + u_rᵀSu_r.

        O(q m_touched). Blocks that were not stepped enter by E φ_r² = k(x, x)/m.
        """
        k, width = self.config.dense_columns, self.features.width
        held = self.held(k)
        diagonal = self.weights.new_zeros(len(held), width)
        dense = self.weights.new_zeros(len(held), width, k)
        some = drawn(len(rows.target), SQUARES)
        shared = rows.shared(self.noise)
        weight = shared[some] * (shared.sum() / shared[some].sum().clamp(min=TINY))
        precision, norm = 1.0 / float(self.variance), torch.zeros(k, dtype=FLOAT)
        for place, block in enumerate(held):
            squares = (weight.to(self.dtype) @ self.features.block(rows.x[some], block).square()).to(FLOAT)
            prior, u = self.prior(block), self.current(block)[:, self.columns :].to(FLOAT)
            entries = diagonal_optimum(squares, prior, precision)
            start = block * width
            entries[: max(k - start, 0)] = 0.0
            diagonal[place, : len(entries)] = entries.to(self.dtype)
            norm += (prior[:, None] * u.square()).sum(0)
            own = range(max(0, k - start) if start < k else 0)
            for r in own[:width]:
                u[r, start + r] = 1.0
                norm[start + r] += prior[r]
            dense[place, : len(u)] = u.to(self.dtype)
        dense *= torch.rsqrt(self.columns_fit(rows) * precision + norm).to(self.dtype)
        used = sum(self.features.span(b).stop - self.features.span(b).start for b in held)
        share = 1.0 - used / max(self.features.size, 1)
        rest = 0.0
        if share > 0.0:
            typical = (weight @ self.features.prior_variance(rows.x[some]).to(FLOAT)) * precision / self.features.size
            rest = share / (1.0 + float(typical))
        return SparseChevron(torch.tensor(held, dtype=torch.int64), diagonal, dense, torch.tensor(rest, dtype=FLOAT))


def decay(step: int, steps: int) -> float:
    """Factor on the step size: 1 over the first half of the steps, then linearly to 0.

    Example:
        >>> decay(0, 100), decay(50, 100), decay(75, 100)
        (1.0, 1.0, 0.5)
    """
    return min(1.0, 2.0 * (1.0 - step / steps))


def drawn(of: int, count: int) -> Tensor:
    """(min(of, count),) numbers below `of`, ascending, always the same ones.

    Example:
        >>> drawn(3, 5), len(drawn(5, 3))
        (tensor([0, 1, 2]), 3)
    """
    if count >= of:
        return torch.arange(of)
    return torch.randperm(of, generator=torch.Generator().manual_seed(of))[:count].sort().values


def per_row(fit: Tensor, beyond: Tensor, noise: Tensor, total: Tensor) -> float:
    """½ mean_t [(fit_t/σ_t² + beyond_t)/n_t + log 2πσ_t²]; all (T,)."""
    each = (fit / noise + beyond) / total.clamp(min=TINY) + (2.0 * math.pi * noise).log()
    return float(0.5 * each.mean())
