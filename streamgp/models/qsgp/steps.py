"""Engines that learn by stochastic steps, whose cost is independent of the rows and of the basis.

A step moves one block or two that are drawn (`streamgp.optim.quadruple_descent` for the Gaussian likelihood,
`streamgp.optim.quadruple_sites` for others). Blocks that were never drawn are 0 and cost nothing in a prediction. What
does cost O(m) of those drawn is a prediction, a row that enters the kept ones, and the variance, which is recomputed
after a batch's epoch and after a rebuild, and when the rows have become a tenth more.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from streamgp.base import FLOAT, Predictive
from streamgp.likelihoods import Likelihood
from streamgp.models.qsgp.engine import Engine, TrainingRows
from streamgp.models.qsgp.features import Basis
from streamgp.models.qsgp.sites import GaussianSites, Sites
from streamgp.optim.block_rows import Rows
from streamgp.optim.quadruple_descent import Descent, DescentConfig, MomentumDescent, decay, descent
from streamgp.optim.quadruple_sites import SiteConfig, SiteDescent
from streamgp.optim.sparse_chevron import SparseChevron

EPOCHS = 4
"""Over a batch; the step size falls over the last half of all steps."""
LOOK = 500
"""Rows whose means are computed to see how well rows are explained, where no residuals are kept."""
ROWS = 512
"""New rows of a stream for which an epoch's steps are taken."""
MORE = 1.1
"""Growth of the rows after which the variance is recomputed."""


class Looked(TrainingRows):
    """Rows of which the solver keeps no residual: some of them are looked at.

    Args:
        mean: (N, W) -> (N, T).
        some: (P,) places of those.
    """

    def __init__(self, rows: Rows, y: Tensor, share: Tensor, mean: Callable[[Tensor], Tensor], some: Tensor) -> None:
        super().__init__(rows, y[some], share[some])
        self._mean, self._some = mean, some

    @property
    def x(self) -> Tensor:
        return self.rows.x[self._some]

    @property
    def fitted(self) -> Tensor:
        return self._mean(self.x).to(FLOAT)


class StepsEngine(Engine):
    """What both ways of steps have in common: rows kept, and how many steps.

    Args:
        steps: of an epoch, and for 512 new rows of a stream.
        capacity: C.
    """

    def __init__(self, basis: Basis, sites: Sites, capacity: int, steps: int) -> None:
        super().__init__(basis, sites)
        self.capacity, self.steps = capacity, steps
        self.kept: Rows

    @property
    def epochs(self) -> int:
        return EPOCHS

    def few(self, z: Tensor, y: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """At most C rows, which stand for all."""
        if len(z) <= self.capacity:
            return z, y, share
        some = torch.randperm(len(z), generator=torch.Generator().manual_seed(len(z)))[: self.capacity].to(z.device)
        part = share[some]
        return z[some], y[some], part * (share.sum() / part.sum())

    @property
    def current(self) -> TrainingRows:
        rows = self.kept
        return self.taken(rows, torch.where(rows.observed, rows.target, torch.nan), rows.weight)

    def taken(self, rows: Rows, y: Tensor, share: Tensor) -> TrainingRows:
        """A training of such rows."""
        there = (share > 0).nonzero()[:, 0] if rows is self.kept else torch.arange(len(share), device=share.device)
        some = torch.linspace(0, max(len(there) - 1, 0), min(LOOK, len(there)), device=share.device).round().long()
        return Looked(rows, y, share, self.mean, there[some])

    def epoch(self, training: TrainingRows, place: int, of: int) -> None:
        for step in range(place * self.steps, (place + 1) * self.steps):
            self.move(training.rows, decay(step, of * self.steps))

    def learn(self, new: int) -> None:
        for _ in range(max(1, round(self.steps * new / ROWS))):
            self.move(self.kept, 1.0)

    @abstractmethod
    def move(self, rows: Rows, decay: float) -> None:
        """One step."""

    def attach(self, z: Tensor) -> None:
        self.kept.attach(z)


class DescentEngine(StepsEngine):
    """A Gaussian likelihood.

    Attributes:
        deviation, dense: (m,), (m, k) rows of the covariance's factor in the blocks of `member`.
        member: (B,) bool.
        rest: () what all other blocks add to the variance, in units of the prior's.
        counted: () rows that these were computed from.
    """

    def __init__(
        self, basis: Basis, columns: int, sites: GaussianSites, config: DescentConfig, capacity: int, steps: int
    ) -> None:
        super().__init__(basis, sites, capacity, steps)
        self.descent: Descent[Any] = descent(basis.inner, columns, config)
        blank = torch.zeros(capacity, columns, dtype=FLOAT)
        self.kept = self.descent.rows(torch.zeros(capacity, basis.kernel.dims, dtype=FLOAT), blank, blank[:, 0])
        self.deviation: Tensor
        self.dense: Tensor
        self.member: Tensor
        self.rest: Tensor
        self.counted: Tensor
        size, count = basis.inner.capacity, len(self.descent.last)
        self.register_buffer("deviation", torch.zeros(size, dtype=self.descent.dtype))
        self.register_buffer("dense", torch.zeros(size, config.dense_columns, dtype=self.descent.dtype))
        self.register_buffer("member", torch.zeros(count, dtype=torch.bool))
        self.register_buffer("rest", torch.ones((), dtype=FLOAT))
        self.register_buffer("counted", torch.zeros((), dtype=FLOAT))

    @property
    def healthy(self) -> bool:
        return self.descent.healthy

    def mean(self, z: Tensor) -> Tensor:
        return self.descent.mean(z)

    def variance(self, z: Tensor) -> Tensor:
        features = self.basis.inner
        blocks = self.member.nonzero()[:, 0]
        spans = [features.span(b) for b in blocks.tolist()]
        diagonal = self.deviation.new_zeros(len(spans), features.width)
        dense = self.dense.new_zeros(len(spans), features.width, self.dense.shape[1])
        for place, span in enumerate(spans):
            diagonal[place, : span.stop - span.start] = self.deviation[span]
            dense[place, : span.stop - span.start] = self.dense[span]
        return SparseChevron(blocks, diagonal, dense, self.rest).variance(features, z)

    def begin(self, noise: Tensor, y: Tensor) -> None:
        self.descent.begin(self.sites.begin(noise, y))
        self.member.zero_()
        self.rest.fill_(1.0)
        self.counted.zero_()

    def training_rows(self, z: Tensor, y: Tensor, share: Tensor) -> TrainingRows:
        z, y, share = self.few(z, y, share)
        return self.taken(self.descent.rows(z, y, share), y, share)

    def taken(self, rows: Rows, y: Tensor, share: Tensor) -> TrainingRows:
        if isinstance(self.descent, MomentumDescent):
            return TrainingRows(rows, y, share)
        return super().taken(rows, y, share)

    def move(self, rows: Rows, decay: float) -> None:
        self.descent.step(rows, decay)

    def refresh_noise(self, training: TrainingRows, least: float) -> None:
        error = torch.nan_to_num(training.y - training.fitted)
        self.sites.refresh_noise(error, training.weight, least)
        count = training.rows.total().mean()
        if training.rows is self.kept and bool(count < MORE * self.counted):
            return
        found = self.descent.covariance(training.rows)
        self.counted.copy_(count)
        self.rest.copy_(found.rest)
        self.member.zero_()
        self.member[found.blocks] = True
        for place, block in enumerate(found.blocks.tolist()):
            span = self.basis.inner.span(block)
            self.deviation[span] = found.diagonal[place, : span.stop - span.start]
            self.dense[span] = found.dense[place, : span.stop - span.start]

    def loss(self, training: TrainingRows) -> float:
        return self.descent.loss(training.rows)

    def keep(self, z: Tensor, y: Tensor, share: Tensor, places: Tensor, fitted: Tensor | None = None) -> None:
        self.descent.put(self.kept, places, z, y, share[places])
        self.kept.reweigh(share)


class LikelihoodSites(Sites):
    """A likelihood whose parameters are learned by whoever takes the steps."""

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__(likelihood.columns)
        self.likelihood, self.family = likelihood, likelihood.family

    def begin(self, noise: Tensor, y: Tensor) -> Tensor:
        self.likelihood.start(torch.ones_like(self.noise))
        self.offset.copy_(self.likelihood.origin(y))
        return super().begin(noise, y)

    def misfit(self, y: Tensor, f: Tensor, weight: Tensor) -> Tensor:
        return (-weight * self.likelihood.expected_log_prob(y, f + self.offset, torch.zeros_like(f))).detach().sum(0)

    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        with torch.no_grad():
            return self.likelihood.predictive(mean + self.offset, variance)


class Shifted(Likelihood):
    """A likelihood around the offset of its sites."""

    def __init__(self, sites: LikelihoodSites) -> None:
        super().__init__()
        self.columns, self.family, self.sites = sites.likelihood.columns, sites.family, sites

    def start(self, variance: Tensor) -> None:
        self.sites.likelihood.start(variance)

    @property
    def scale(self) -> Tensor:
        return self.sites.likelihood.scale

    def expected_log_prob(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return self.sites.likelihood.expected_log_prob(y, mean + self.sites.offset, variance)

    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        return self.sites.predictive(mean, variance)


class SitesEngine(StepsEngine):
    """Any likelihood with a concave log p(y | f), by the bound of Theorem 3; its variances are learned along.

    Args:
        temper: likelihood tempering: rows of a stream enter with weight 1/temper.
    """

    def __init__(
        self, basis: Basis, sites: LikelihoodSites, config: SiteConfig, capacity: int, steps: int, temper: float
    ) -> None:
        super().__init__(basis, sites, capacity, steps)
        self.descent = SiteDescent(basis.inner, Shifted(sites), config)
        self.temper = temper
        blank = torch.zeros(capacity, sites.likelihood.columns, dtype=FLOAT)
        z = torch.zeros(capacity, basis.kernel.dims, dtype=FLOAT)
        self.kept = Rows(z, blank, blank[:, 0], self.descent.dtype)

    @property
    def healthy(self) -> bool:
        return self.descent.healthy and math.isfinite(self.descent.loss)

    def mean(self, z: Tensor) -> Tensor:
        return self.descent.mean(z)

    def variance(self, z: Tensor) -> Tensor:
        if not int(self.descent.steps):
            return self.basis.inner.prior_variance(z)
        return self.descent.covariance().variance(self.basis.inner, z)

    def begin(self, noise: Tensor, y: Tensor) -> None:
        self.sites.begin(noise, y)
        self.descent.forget()

    def training_rows(self, z: Tensor, y: Tensor, share: Tensor) -> TrainingRows:
        return self.taken(Rows(z, y, share, self.descent.dtype), y, share)

    def move(self, rows: Rows, decay: float) -> None:
        def look(some: Tensor) -> tuple[Tensor, Tensor]:
            y = torch.where(rows.observed[some], rows.target[some], torch.nan)
            return y, rows.weight[some] / self.temper

        self.descent.step_on(rows.x, look, decay)

    def refresh_noise(self, training: TrainingRows, least: float) -> None:
        """Nothing: every step updates it."""

    def loss(self, training: TrainingRows) -> float:
        return self.descent.loss

    def keep(self, z: Tensor, y: Tensor, share: Tensor, places: Tensor, fitted: Tensor | None = None) -> None:
        self.kept.replace(places, z, y, share[places], torch.zeros_like(y))
        self.kept.reweigh(share)
