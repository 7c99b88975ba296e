"""Stochastic steps for a basis too large to sweep: their cost depends neither on rows nor on functions.

Of the rows of a batch at most as many as the reservoir has are kept, and stand for all. Their residuals and velocities
are cached (`streamgp.optim.momentum_descent`): what costs O(m_touched) is a prediction, a row that enters the kept
ones, and the variance, which is recomputed after a batch's epoch and after a rebuild, and when the rows have become a
tenth more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.models.qsgp.engine import Engine, TrainingRows
from streamgp.models.qsgp.features import Basis
from streamgp.models.qsgp.sites import GaussianSites
from streamgp.optim.momentum_descent import MomentumDescent, PartialDiagonal, SupportRows, decay

EPOCHS = 4
"""Over a batch; the step size falls over the last half of all steps."""
ROWS = 512
"""New rows of a stream for which an epoch's steps are taken."""
MORE = 1.1
"""Growth of the rows after which the variance is recomputed."""


class StepsEngine(Engine):
    """Gaussian noise, random features.

    Args:
        capacity: C, rows kept of a stream.
        steps: of an epoch, and for 512 new rows of a stream.
        seed: of the draws.

    Attributes:
        deviation: (m,) standard deviations of the weights in the blocks of `member`.
        member: (B,) bool.
        rest: () what all other blocks add to the variance, in units of the prior's.
        counted: () rows that these were computed from.
    """

    def __init__(self, basis: Basis, columns: int, sites: GaussianSites, capacity: int, steps: int, seed: int) -> None:
        super().__init__(basis, sites)
        self.capacity, self.steps = capacity, steps
        self.descent = MomentumDescent(basis.inner, columns, seed)
        blank = torch.zeros(capacity, columns, dtype=FLOAT)
        self.kept = self.descent.rows(torch.zeros(capacity, basis.kernel.dims, dtype=FLOAT), blank, blank[:, 0])
        self.deviation: Tensor
        self.member: Tensor
        self.rest: Tensor
        self.counted: Tensor
        self.register_buffer("deviation", torch.zeros(basis.inner.capacity, dtype=self.descent.dtype))
        self.register_buffer("member", torch.zeros(len(self.descent.last), dtype=torch.bool))
        self.register_buffer("rest", torch.ones((), dtype=FLOAT))
        self.register_buffer("counted", torch.zeros((), dtype=FLOAT))

    @property
    def epochs(self) -> int:
        return EPOCHS

    @property
    def healthy(self) -> bool:
        return self.descent.healthy

    @property
    def current(self) -> TrainingRows:
        rows = self.kept
        return TrainingRows(rows, torch.where(rows.observed, rows.target, torch.nan), rows.weight)

    def mean(self, z: Tensor) -> Tensor:
        return self.descent.mean(z)

    def variance(self, z: Tensor) -> Tensor:
        features = self.basis.inner
        blocks = self.member.nonzero()[:, 0]
        deviation = self.deviation.new_zeros(len(blocks), features.width)
        for place, b in enumerate(blocks.tolist()):
            span = features.span(b)
            deviation[place, : span.stop - span.start] = self.deviation[span]
        return PartialDiagonal(blocks, deviation, self.rest).variance(features, z)

    def begin(self, noise: Tensor, y: Tensor) -> None:
        self.descent.begin(self.sites.begin(noise, y))
        self.member.zero_()
        self.rest.fill_(1.0)
        self.counted.zero_()

    def training_rows(self, z: Tensor, y: Tensor, share: Tensor) -> TrainingRows:
        """At most C rows, which stand for all."""
        if len(z) > self.capacity:
            some = torch.randperm(len(z), generator=torch.Generator().manual_seed(len(z)))[: self.capacity].to(z.device)
            part = share[some]
            z, y, share = z[some], y[some], part * (share.sum() / part.sum())
        return TrainingRows(self.descent.rows(z, y, share), y, share)

    def epoch(self, training: TrainingRows, place: int, of: int) -> None:
        for step in range(place * self.steps, (place + 1) * self.steps):
            self._move(training, decay(step, of * self.steps))

    def learn(self, new: int) -> None:
        kept = self.current
        for _ in range(max(1, round(self.steps * new / ROWS))):
            self._move(kept, 1.0)

    def _move(self, training: TrainingRows, factor: float) -> None:
        assert isinstance(training.rows, SupportRows)
        self.descent.step(training.rows, factor)

    def refresh_noise(self, training: TrainingRows, least: float) -> None:
        assert isinstance(training.rows, SupportRows)
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
            self.deviation[span] = found.deviation[place, : span.stop - span.start]

    def loss(self, training: TrainingRows) -> float:
        assert isinstance(training.rows, SupportRows)
        return self.descent.loss(training.rows)

    def keep(self, z: Tensor, y: Tensor, share: Tensor, places: Tensor, fitted: Tensor | None = None) -> None:
        self.descent.put(self.kept, places, z, y, share[places])
        self.kept.reweigh(share)

    def attach(self, z: Tensor) -> None:
        self.kept.attach(z)
