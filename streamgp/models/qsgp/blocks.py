"""What learns the standardised rows of a QSGP: all blocks of its features in turn, from rows that are kept.

A solver keeps the residual r = y − Φμ of its rows true, so that one block is learned without looking at the others:
block Gauss–Seidel with a best step length (`regression.block_solver`). Between rebuilds a stream visits the head,
with the Gram matrix of all rows so far, and the blocks whose turn it is, with Gram matrices of the kept rows as they
are now weighted. Where the head is the whole basis its factor takes the place of all visits, and sweeps end when the
means are settled. Likelihoods other than the Gaussian set new working targets and weights before
every visit, or every step of Newton's method.

With a factor of all features a sweep is a step of conjugate gradients preconditioned by very nearly the system itself:
its gain is the squared distance from the solution, in the precision of the posterior, and √gain bounds what any
prediction is off by, in its own standard deviations. Sweeps end when that would be `CLOSE`.

Outcomes are learned by Newton's method: a few sweeps on the curvature at the present f, of which so much is taken that
the objective falls.

Shapes: R rows, W columns of an input, T target columns, B new rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import cholesky
from streamgp.models.qsgp.engine import Engine, EngineLook, TrainingRows
from streamgp.models.qsgp.features import Basis
from streamgp.models.qsgp.head import Head
from streamgp.models.qsgp.sites import Sites
from streamgp.online.summing import Summing
from streamgp.regression.block_rows import CHUNK, TINY, gram, thin
from streamgp.regression.block_solver import BlockSolver

VISITS = 2
"""Blocks visited at an update, beside the first: each takes O(R m̃² + m̃³), whatever the number of new rows is."""
SWEEPS, BOUNDED = 30, 12
"""Over a batch, at most; of a bound on the likelihood, whose sweeps approach the mode ever more slowly."""
TRIAL = 6
"""Sweeps of a trial: the order of hyper-parameters is settled long before the means are."""
STEPS = 4
"""Further ones of Newton's method at an update."""
QUARTERS = 4
"""Epochs that the first sweep of a long fit is cut into."""
CLOSE = 0.01
"""Distance from the solution that ends sweeps: over all directions, in standard deviations of the posterior."""
NATS = 1e-4
"""Gain a row of the sweep that is the last where blocks are visited one by one: they approach it ever more slowly."""
MOST = 20
"""Sweeps over all features at once that may be taken for that."""
INNER, PART = 8, 0.01
"""Sweeps of a Newton step, and the part of its first gain at which they end."""
HALVINGS = 30
"""Of a Newton step that does not go down."""


class BlockEngine(Engine):
    """All blocks in turn.

    Args:
        solver: of the means, on a `Basis`.
        basis: the same.
        head: of the same basis.
        sites: of the likelihood.
        capacity: C, rows kept of a stream.
        temper: likelihood tempering: rows of a stream enter with weight 1/temper.
        point: a point estimate: once anything is learned there is no latent variance.

    Attributes:
        count: () rows learned, Σν times the information of each on f.
    """

    NOT_STATE: ClassVar[Mapping[str, str]] = {"amount": "rows of the last epoch; who looks at it has done one"}

    def __init__(
        self,
        solver: BlockSolver,
        basis: Basis,
        head: Head,
        sites: Sites,
        capacity: int,
        temper: float,
        point: bool = False,
    ) -> None:
        super().__init__(basis, sites)
        self.solver, self.head, self.point = solver, head, point
        self.amount = 0.0  # rows of the last epoch
        self.temper = temper if sites.moving else 1.0  # else it is in σ²
        columns = solver.mu.shape[1]
        weight = torch.zeros(capacity, columns, dtype=FLOAT) if sites.moving else torch.zeros(capacity, dtype=FLOAT)
        blank = torch.zeros(capacity, columns, dtype=FLOAT)
        self.kept = solver.rows(torch.zeros(capacity, basis.kernel.dims, dtype=FLOAT), blank, weight)
        self.count: Tensor
        self.truth: Tensor
        self.share: Tensor
        self.register_buffer("count", torch.zeros((), dtype=FLOAT))
        self.register_buffer("truth", blank if sites.moving else blank[:0])  # targets, where those of rows are others
        self.register_buffer("share", torch.zeros(capacity, dtype=FLOAT))

    def mean(self, z: Tensor) -> Tensor:
        return self.solver.mean(z)

    def variance(self, z: Tensor) -> Tensor:
        if not self.point:
            return self.head.variance(z)
        return z.new_zeros(len(z), 1) if bool(self.count > 0) else self.basis.prior_variance(z)[:, None]

    def covariance(self, z: Tensor) -> Tensor | None:
        return None if self.point or not self.head.size else self.head.covariance(z)

    def see(self, z: Tensor) -> EngineLook:
        if not self.head.whole or not self.head.size:
            return super().see(z)
        phi = self.head.features(z)
        mean = thin(phi, self.solver.mu[: self.head.size].to(phi.dtype))
        return EngineLook(mean, self.head.variance(z, phi), phi)

    def begin(self, noise: Tensor, y: Tensor) -> None:
        system = self.sites.begin(noise, y)
        slopes = system
        if self.apart:  # as much as the largest noise, unless that is beyond the kernel: float32 cannot span both
            height = self.kernel.log_outputscale.exp() / max(self.basis.extra, 1)
            slopes = torch.minimum(torch.maximum(height, system.min()), system.max())
        self.basis.scale.copy_(slopes.sqrt())
        self.solver.begin(system)
        self.head.begin(system)
        self.count.zero_()
        self.turn = 1

    def training_rows(self, z: Tensor, y: Tensor, share: Tensor) -> TrainingRows:
        weight = share[:, None].expand_as(y) if self.sites.moving else share
        return TrainingRows(self.solver.rows(z, torch.nan_to_num(y) if self.sites.moving else y, weight), y, share)

    @property
    def current(self) -> TrainingRows:
        y = self.truth
        if not self.sites.moving:
            y = torch.where(self.kept.observed, self.kept.target, torch.nan)
        return TrainingRows(self.kept, y, self.share)

    def keep(self, z: Tensor, y: Tensor, share: Tensor, places: Tensor, fitted: Tensor | None = None) -> None:
        weight = self.kept.weight.new_zeros(len(places), *self.kept.weight.shape[1:])
        fitted = self.solver.mean(z.to(self.solver.dtype)) if fitted is None else fitted
        self.kept.replace(places, z, torch.nan_to_num(y) if self.sites.moving else y, weight, fitted)
        if self.sites.moving:
            self.truth[places] = y
        self.weigh(share)

    def adopt(self, training: TrainingRows, places: Tensor, share: Tensor) -> None:
        rows, weight = training.rows, self.kept.weight.new_zeros(len(places), *self.kept.weight.shape[1:])
        target = torch.where(rows.observed, rows.target, torch.nan)
        self.kept.replace(places, rows.x, target, weight, rows.fitted)
        if self.sites.moving:
            self.truth[places] = training.y
        self.weigh(share)

    def weigh(self, share: Tensor) -> None:
        """The weights of the kept rows now. share: (C,)"""
        self.share.copy_(share)
        if not self.sites.moving:
            self.kept.reweigh(share)

    def accumulate(self, z: Tensor, y: Tensor, share: Tensor, kept: float, phi: Tensor | None = None) -> None:
        if not self.basis.blocks:
            return
        for start in range(0, max(len(z), 1), CHUNK):
            part = slice(start, start + CHUNK)
            x = z[part].to(self.solver.dtype)
            f = self.solver.mean(x).to(FLOAT) if self.sites.varies else y[part]
            weight = self._informing(y[part], f, share[part]).mean(1)
            own = self.head.features(x) if phi is None else phi[part].to(x.dtype)
            self.head.absorb(own, weight, 1.0 if start else kept)

    def sum_up(self, z: Tensor, y: Tensor, share: Tensor, summing: Summing) -> None:
        if not self.basis.blocks or not len(z):
            self.accumulate(z, y, share, 0.0)
            return
        weights = []
        for x, truth, part in zip(z.split(CHUNK), y.split(CHUNK), share.split(CHUNK), strict=True):
            f = self.solver.mean(x.to(self.solver.dtype)).to(FLOAT) if self.sites.varies else truth
            weights.append(self._informing(truth, f, part).mean(1))
        summing(self.head, _absorb, (z.to(self.solver.dtype), torch.cat(weights)), CHUNK)

    def learn(self, new: int) -> None:
        """See the module."""
        training, others = self.current, self.basis.blocks - 1
        if self.solved:
            self._solve(training)
            if self.sites.newton:
                self._follow_curvature(training)
            return
        turns = [0] if self.basis.blocks else []
        for _ in range(min(VISITS, others)):
            self.turn = self.turn if self.turn <= others else 1
            turns.append(self.turn)
            self.turn = self.turn % others + 1
        full = bool((self.share > 0).all())
        for b in turns:
            self._set(training)
            factor = None
            if not b and self.sites.lasting and not self.head.whole:
                factor = self.head.root.to(self.solver.dtype)
            elif not full:
                factor = self._exact(b)
            self.solver.visit(b, training.rows, factor=factor, refresh=True)

    def _follow_curvature(self, training: TrainingRows) -> None:
        """The rest of Newton's steps, and the sums at the curvature there: rows came in at that of a forecast."""
        for _ in range(STEPS):
            if self.converged:
                break
            self._solve(training)
        there = self.share > 0
        self.accumulate(self.kept.x[there], training.y[there], self.share[there], 0.0)

    def epoch(self, training: TrainingRows, place: int, of: int) -> None:
        """A sweep over all blocks, or a quarter of the first one: it takes as long as many later ones."""
        self.amount = float(training.share.sum())
        if self.solved:
            self._solve(training)
            return
        blocks = self.basis.blocks
        order = list(range(blocks))
        if self.sites.newton:
            self._newton(training, lambda: self._few(training, None))
            return
        if of >= 2 * QUARTERS and blocks >= QUARTERS and place < QUARTERS:
            order = order[place * blocks // QUARTERS : (place + 1) * blocks // QUARTERS]
        if self.sites.moving:
            for b in order:
                self._set(training)
                self.solver.visit(b, training.rows, refresh=not self.sites.lasting)
        else:
            self.solver.sweep(training.rows, order)

    def refresh_noise(self, training: TrainingRows, least: float) -> None:
        weight = training.weight
        self.sites.refresh_noise(torch.nan_to_num(training.y - training.fitted - self.sites.offset), weight, least)
        informing = self._informing(training.y, training.fitted, training.share)
        self.count.copy_(informing.mean(1).sum())
        if training.rows is not self.kept and self.sites.moving:
            training.rows.reweigh(informing)

    def loss(self, training: TrainingRows) -> float:
        """[Σ −w log p(y | f) + ½ μᵀμ + ½ log|G/σ² + I|]/n, of a point estimate without the last term."""
        weight = training.weight / self.temper
        misfit = self.sites.misfit(training.y, training.fitted, weight)
        own = 0.0 if self.point else self.head.log_determinant()
        total = (misfit + 0.5 * self._energy()).mean() + 0.5 * torch.as_tensor(own).mean()
        return float(total / weight.mean(1).sum().clamp(min=1e-300))

    def attach(self, z: Tensor) -> None:
        self.kept.attach(z)
        self.head.changed()

    def _exact(self, block: int) -> Tensor:
        """chol(Φ_bᵀWΦ_b + σ²I) of all rows that are there."""
        phi = self.solver.features_of(self.kept, block)
        there = self.share > 0
        weight = self.kept.shared(self.solver.noise)[there]
        matrix = gram(phi[there], weight)
        matrix.diagonal().add_(self.solver.variance)
        return cholesky(matrix, first=0.0).lower.to(phi.dtype)

    @property
    def epochs(self) -> int:
        bounded = self.sites.moving and not self.sites.newton
        return (BOUNDED if bounded else SWEEPS) + QUARTERS - 1

    @property
    def apart(self) -> bool:
        return self.head.noise.dim() > 0

    @property
    def trial(self) -> int:
        return TRIAL

    @property
    def summed(self) -> bool:
        return not self.point

    @property
    def healthy(self) -> bool:
        return math.isfinite(float(self.solver.mu.sum()))

    @property
    def whole(self) -> bool:
        return self.head.whole

    @property
    def solved(self) -> bool:
        """Whether there is a factor of all features, and of the curvature that means are learned with."""
        usable = self.sites.newton or not self.sites.moving
        return self.head.whole and usable and bool(self.head.rows > 0)

    @property
    def converged(self) -> bool:
        """Whether the last sweep found nothing to do; the gain of a majoriser is no measure of it."""
        if self.sites.moving and not self.sites.newton:
            return True
        far = CLOSE**2 if self.solved else NATS * self.amount
        return bool((self.solver.gain <= far).all())

    def _solve(self, training: TrainingRows) -> None:
        """Sweeps over all features at once until nothing is left to do, or, of a Newton step, little."""
        if self.sites.newton:
            self._newton(training, lambda: self._few(training, self.head.root.to(self.solver.dtype)))
            return
        root, before = self.head.root.to(self.solver.dtype), torch.zeros_like(self.solver.gain)
        for _ in range(MOST):
            self.solver.sweep(training.rows, whole=root)
            gain = self.solver.gain
            if bool((gain * torch.clamp(gain / before.clamp(min=TINY), max=1.0) <= CLOSE**2).all()):
                return  # the next would gain no more than that
            before = gain

    def _few(self, training: TrainingRows, whole: Tensor | None) -> None:
        """Sweeps of a Newton step; factors that were of too different a curvature are not used for the next."""
        gain = self.solver.gain
        for sweep in range(INNER):
            self.solver.sweep(training.rows, whole=whole)
            gain = gain if sweep else self.solver.gain
            if bool((self.solver.gain <= torch.clamp(PART * gain, min=CLOSE**2)).all()):
                break
        else:
            training.rows.factors.clear()
        self.solver.gain = gain

    def _newton(self, training: TrainingRows, sweeps: Callable[[], None]) -> None:
        """Take of what sweeps on the present curvature do as much as lowers the objective, column by column."""
        solver, rows = self.solver, training.rows
        mu, fitted, value = solver.mu.clone(), training.fitted, self._objective(training)
        self._set(training)
        sweeps()
        for _ in range(HALVINGS):
            worse = ~(self._objective(training) <= value)
            if not bool(worse.any()):
                return
            solver.mu[:, worse] = 0.5 * (solver.mu + mu)[:, worse]
            rows.residual[:, worse] = (rows.target - 0.5 * (training.fitted + fitted))[:, worse]
            rows.changed()

    def _objective(self, training: TrainingRows) -> Tensor:
        """(T,) Σ −w log p(y | f) + ½ μᵀμ."""
        misfit = self.sites.misfit(training.y, training.fitted, training.weight / self.temper)
        return misfit + 0.5 * self._energy()

    def _energy(self) -> Tensor:
        """(T,) μᵀμ"""
        return self.solver.mu[: self.basis.size].square().sum(0)

    def _informing(self, y: Tensor, f: Tensor, share: Tensor) -> Tensor:
        """(R, T) information of rows on f. y: (R, T), NaN = not observed; f: (R, T), share: (R,)."""
        return share[:, None] * torch.isfinite(y) * (self.sites.information(f) / self.temper)

    def _set(self, training: TrainingRows) -> None:
        """Working targets and weights at the present means."""
        if self.sites.moving:
            target, curvature = self.sites.working(training.y, training.fitted)
            training.rows.retarget(target, training.share[:, None] * curvature / self.temper)


def _absorb(head: Head, x: Tensor, weight: Tensor) -> None:
    """Inputs (N, W) and their information (N,) into the sums."""
    head.absorb(head.features(x), weight, 1.0)
