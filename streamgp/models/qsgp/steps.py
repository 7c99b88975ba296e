"""Stochastic steps for a basis too large to sweep: the cost of one depends neither on rows nor on functions.

The rows of a stream that are kept have their residuals and dual weights cached (`regression.dual_descent`), and
steps look at these. A table that has more rows than the reservoir goes by in portions, drawn anew at every epoch, so
that an epoch looks at every row. A portion stands for all while steps are taken on it, and of the change that it asks
for 1/v is kept, v being the number of the visit: what is learned is the mean of what the portions say (Zhang, Duchi &
Wainwright 2015), each from where the others have come to.

What costs O(m_touched) is a prediction, a portion, and nothing else: a row enters the kept ones with what was computed
to forecast it. The variance is recomputed after a batch's epoch and after a rebuild, and when the rows have become a
tenth more.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.models.qsgp.config import MANY
from streamgp.models.qsgp.engine import Engine, TrainingRows
from streamgp.models.qsgp.features import Basis
from streamgp.models.qsgp.sites import GaussianSites
from streamgp.regression.dual_descent import DualDescent, PartialDiagonal, SupportRows, distinct

EPOCHS = 4
"""Over a batch."""
LEAST = 60
"""Steps on a portion of a table, at least."""
ROWS = 512
"""New rows of a stream for which an epoch's steps are taken."""
MORE = 1.1
"""Growth of the rows after which the variance is recomputed."""


class Portions(TrainingRows):
    """More rows than steps look at. `rows`, `y` and `share` are those of the present portion, which stands for all.

    Rows without a share, held out to estimate the noise, are in every portion: as many as a quarter of it has room for.

    Args:
        descent: whose weights the residuals are of.
        z, y, share: (N, W), (N, T), (N,) all rows.
        most: rows of a portion.

    Attributes:
        number: of portions.
        rows: as steps see them.
    """

    rows: SupportRows

    def __init__(self, descent: DualDescent, z: Tensor, y: Tensor, share: Tensor, most: int) -> None:
        self.descent, self._all = descent, (z, y, share)
        self._held = (share == 0).nonzero()[:, 0][: most // 4]
        self._learned = share.nonzero()[:, 0]
        self.number = -(-len(self._learned) // (most - len(self._held)))
        self.take(0, 0)

    def take(self, epoch: int, place: int) -> None:
        """Turn to one of the portions of an epoch; O(rows of it · m_touched)."""
        z, y, share = self._all
        draws = torch.Generator().manual_seed(epoch)
        mixed = self._learned[torch.randperm(len(self._learned), generator=draws).to(z.device)]
        some = torch.cat((mixed[place :: self.number], self._held)).sort().values
        part = share[some] * (share.sum() / share[some].sum())
        self.rows, self.y, self.share = self.descent.rows(z[some], y[some], part), y[some], part


class StepsEngine(Engine):
    """Gaussian noise, random features.

    Args:
        capacity: C, rows kept of a stream, and of a portion of a table.
        steps: of an epoch, and for 512 new rows of a stream.
        seed: of the draws.

    Attributes:
        member: (P,) int64 blocks whose weights have variances of their own, −1 where there are fewer.
        deviation: (P, m̃) standard deviations of the weights in these.
        rest: () what all other blocks add to the variance, in units of the prior's.
        counted: () rows that these were computed from.
    """

    def __init__(self, basis: Basis, columns: int, sites: GaussianSites, capacity: int, steps: int, seed: int) -> None:
        super().__init__(basis, sites)
        self.capacity, self.steps = capacity, steps
        self.descent = DualDescent(basis.inner, columns, seed)
        blank = torch.full((capacity, columns), torch.nan, dtype=FLOAT)
        zeros = torch.zeros(capacity, basis.kernel.dims, dtype=FLOAT)
        self.kept = self.descent.rows(zeros, blank, torch.zeros(capacity, dtype=FLOAT))
        held = distinct(basis.inner)
        self.deviation: Tensor
        self.member: Tensor
        self.rest: Tensor
        self.counted: Tensor
        self.register_buffer("deviation", torch.zeros(held, basis.inner.width, dtype=self.descent.dtype))
        self.register_buffer("member", torch.full((held,), -1))
        self.register_buffer("rest", torch.ones((), dtype=FLOAT))
        self.register_buffer("counted", torch.zeros((), dtype=FLOAT))

    @property
    def epochs(self) -> int:
        return EPOCHS

    @property
    def healthy(self) -> bool:
        return self.descent.healthy

    @property
    def precision(self) -> torch.dtype:
        """Of forecasts: of very many features half of the time, and six digits, are enough."""
        return FLOAT if self.basis.inner.capacity <= MANY else self.descent.dtype

    @property
    def current(self) -> TrainingRows:
        rows = self.kept
        return TrainingRows(rows, torch.where(rows.observed, rows.target, torch.nan), rows.weight)

    def mean(self, z: Tensor) -> Tensor:
        return self.descent.mean(z.to(self.precision)).to(z.dtype)

    def variance(self, z: Tensor) -> Tensor:
        held = int((self.member >= 0).sum())
        known = PartialDiagonal(self.member[:held], self.deviation[:held], self.rest)
        return known.variance(self.basis.inner, z.to(self.precision)).to(z.dtype)[:, None]

    def begin(self, noise: Tensor, y: Tensor) -> None:
        self.descent.begin(self.sites.begin(noise, y))
        self.member.fill_(-1)
        self.rest.fill_(1.0)
        self.counted.zero_()

    def training_rows(self, z: Tensor, y: Tensor, share: Tensor) -> TrainingRows:
        """All rows, if there are at most C, or else portions."""
        if len(z) > self.capacity:
            return Portions(self.descent, z, y, share, self.capacity)
        return TrainingRows(self.descent.rows(z, y, share), y, share)

    def epoch(self, training: TrainingRows, place: int, of: int) -> None:
        if not isinstance(training, Portions):
            self._move(training, self.steps)
            return
        for part in range(training.number):
            training.take(place, part)
            rows, visit = training.rows, place * training.number + part + 1
            keep, before = self.descent.watch("visit"), rows.residual.clone()
            self._move(training, max(LEAST, self.steps // training.number))
            if visit > 1:
                keep(1.0 / visit)
                rows.residual.copy_(torch.lerp(before, rows.residual, 1.0 / visit))
        self.descent.forget("visit")

    def learn(self, new: int) -> None:
        self._move(self.current, max(1, round(self.steps * new / ROWS)))

    def _move(self, training: TrainingRows, steps: int) -> None:
        assert isinstance(training.rows, SupportRows)
        for _ in range(steps):
            self.descent.step(training.rows)

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
        self.member.fill_(-1)
        self.member[: len(found.blocks)] = found.blocks
        self.deviation[: len(found.blocks)] = found.deviation

    def loss(self, training: TrainingRows) -> float:
        assert isinstance(training.rows, SupportRows)
        return self.descent.loss(training.rows)

    def keep(self, z: Tensor, y: Tensor, share: Tensor, places: Tensor, fitted: Tensor | None = None) -> None:
        self.descent.put(self.kept, places, z, y, share[places], fitted)
        self.kept.reweigh(share)

    def adopt(self, training: TrainingRows, places: Tensor, share: Tensor) -> None:
        rows = training.rows
        assert isinstance(rows, SupportRows)
        self.keep(rows.x, training.y, share, places, rows.fitted)
        self.kept.dual[places] = rows.dual

    def attach(self, z: Tensor) -> None:
        self.kept.attach(z)

    def snapshot(self) -> Callable[[], None]:
        """Keep the weights that steps change from now on, and not all; calling the result puts these back. They are
        the buffer `large`."""
        keep = self.descent.watch("snapshot")
        return lambda: keep(0.0)

    large = "descent.weights"
