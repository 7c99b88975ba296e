"""How far the means of a block solver are from where they belong, and steps on all of them at once that lead there.

With a factor of all features a sweep is a step of conjugate gradients preconditioned by very nearly the system itself:
its gain is the squared distance from the solution, in the precision of the posterior, and √gain bounds what any
prediction is off by, in its own standard deviations. Sweeps end when that would be `CLOSE`.

Outcomes are learned by Newton's method: a few sweeps on the curvature at the present f, of which so much is taken that
the objective falls.

Shapes: R rows, T target columns.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from streamgp.models.qsgp.engine import Engine, TrainingRows
from streamgp.models.qsgp.features import Basis
from streamgp.models.qsgp.head import Head
from streamgp.models.qsgp.sites import WorkingSites
from streamgp.optim.block_solver import BlockSolver

CLOSE = 0.01
"""Distance from the solution that ends sweeps: over all directions, in standard deviations of the posterior."""
NATS = 1e-4
"""Gain a row of the sweep that is the last where blocks are visited one by one: they approach it ever more slowly."""
TINY = 1e-300
MOST = 20
"""Sweeps over all features at once that may be taken for that."""
INNER, PART = 8, 0.01
"""Sweeps of a Newton step, and the part of its first gain at which they end."""
HALVINGS = 30
"""Of a Newton step that does not go down."""


class Solution(Engine):
    """The part of an engine that knows where its means belong.

    Args:
        solver: of the means, on a `Basis`.
        basis: the same.
        head: of the same basis; the whole of it gives the steps on all features.
        sites: of the likelihood.
        temper: likelihood tempering: rows of a stream enter with weight 1/temper.
    """

    def __init__(self, solver: BlockSolver, basis: Basis, head: Head, sites: WorkingSites, temper: float) -> None:
        super().__init__(basis, sites)
        self.solver, self.head, self.working = solver, head, sites.working
        self.information = sites.information
        self.amount = 0.0  # rows of the last epoch
        self.temper = temper if sites.moving else 1.0  # else it is in σ²

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
        mu, bent, fitted, value = solver.mu.clone(), solver.bent.clone(), training.fitted, self._objective(training)
        self._set(training)
        sweeps()
        for _ in range(HALVINGS):
            worse = ~(self._objective(training) <= value)
            if not bool(worse.any()):
                return
            solver.mu[:, worse] = 0.5 * (solver.mu + mu)[:, worse]
            if len(bent):
                solver.bent[:, worse] = 0.5 * (solver.bent + bent)[:, worse]
            rows.residual[:, worse] = (rows.target - 0.5 * (training.fitted + fitted))[:, worse]
            rows.changed()

    def _objective(self, training: TrainingRows) -> Tensor:
        """(T,) Σ −w log p(y | f) + ½ μᵀSμ."""
        misfit = self.sites.misfit(training.y, training.fitted, training.weight / self.temper)
        return misfit + 0.5 * self._energy()

    def _energy(self) -> Tensor:
        """(T,) μᵀSμ"""
        mu, prior = self.solver.mu[: self.basis.size], self.solver.prior
        bent = self.solver.bent[: self.basis.size] if prior.dense else prior.times(mu)
        return (mu * bent).sum(0)

    def _informing(self, y: Tensor, f: Tensor, share: Tensor) -> Tensor:
        """(R, T) information of rows on f. y: (R, T), NaN = not observed; f: (R, T), share: (R,)."""
        return share[:, None] * torch.isfinite(y) * (self.information(f) / self.temper)

    def _set(self, training: TrainingRows) -> None:
        """Working targets and weights at the present means."""
        if self.sites.moving:
            target, curvature = self.working(training.y, training.fitted)
            training.rows.retarget(target, training.share[:, None] * curvature / self.temper)
