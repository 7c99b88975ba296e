"""Hyper-parameters by cross-validation with the reduced gradient (cv-implicit): matrix-vector products only.

Ours, beside the ADMM of Xu et al. (2019). The constraint C(θ)z = y_T is solved, not approached: z and its adjoint M by
conjugate gradients that start where the last iteration ended, then the gradient in θ with both held
(`streamgp.objectives.fold.reduced`). So there are neither ρ nor duals, K folds are a sum, and what is minimised is an
ordinary function, to which an ordinary optimiser is applied. An iteration is O(n²) a step of conjugate gradients.

The kernel's variances are rescaled afterwards (`streamgp.objectives.cross_validation`).
"""

from __future__ import annotations

import math
import time
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import minimize
from torch import Tensor

from streamgp.kernels import Tied
from streamgp.objectives.fold import Fold, reduced
from streamgp.optim._slow_adam import SlowAdam
from streamgp.optim.cross_validated import (
    BOUND,
    GIB,
    CrossValidationConfig,
    Learned,
    check,
    none_led,
    parts,
    scaled,
    starts,
)
from streamgp.optim.tuned import Tuned

HUGE = 1e10
"""Loss where it is not finite."""
TINY = 1e-100
"""Loss whose logarithm is taken where there is none."""

Vector: TypeAlias = NDArray[np.float64]


class ImplicitConfig(CrossValidationConfig):
    """Cross-validation by the reduced gradient."""

    method: Literal["lbfgs", "adam"] = Field(
        "lbfgs", description="lbfgs: few iterations, each with a line search; adam: more and smaller ones"
    )
    iterations: int = Field(60, ge=1, le=100_000, description="evaluations of loss and gradient, at most")
    rate: float = Field(0.1, gt=0, le=10, description="adam: step size, in logarithms of the hyper-parameters")
    improvement: float = Field(
        1e-4, ge=0, le=1, description="relative fall of the loss that counts; lbfgs ends with the first smaller one"
    )
    patience: int = Field(20, ge=1, le=100_000, description="adam: iterations without such a fall, after which it ends")
    cg_steps: int = Field(200, ge=1, le=100_000, description="steps of conjugate gradients a solve, at most")


def cv_implicit(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: ImplicitConfig) -> Tuned:
    """See the module, and `_tuned` for arguments and result.

    The loss is the mean squared error of rows held out, a row and column, in squared standardised units.

    Raises:
        NumericalError: no start has a finite loss.
        UsageError: too few rows, or a kernel that does not say what its variances are.

    Example:
        >>> from streamgp.base import FLOAT
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = Tied(squared_exponential.Config(lengthscale=0.1), torch.zeros(1, dtype=torch.int64))
        >>> x = torch.linspace(-3, 3, 40, dtype=FLOAT)[:, None]
        >>> found = cv_implicit(kernel, torch.tensor([-2.0]).double(), x, x.sin(), ImplicitConfig())
        >>> found.loss < 1e-3, 1 < found.kernel["log_lengthscale"].exp().item() < 4
        (True, True)
    """
    begun = time.process_time()
    check(kernel, x)
    problem = Problem(kernel, log_noise.to(x), x, y, config)
    descend = lbfgs if config.method == "lbfgs" else _adam
    offered, failures, before = starts(kernel, log_noise, x, config), list[str](), list[float]()
    if len(offered) > 1:
        scouted = list[_Found]()
        for number, start in enumerate(offered):
            one = descend(problem, start, config, min(config.scouting, config.iterations))
            if one.loss < HUGE:
                scouted.append(one)
            else:
                failures.append(f"start {number}: {problem.failure}")
        if not scouted:
            raise none_led(len(offered), failures[0])
        leading = min(scouted, key=lambda one: one.loss)
        offered, before = [leading.at], leading.history
    best = descend(problem, offered[0], config, config.iterations)
    if best.loss >= HUGE:
        raise none_led(1, problem.failure)
    _, fitted = problem.loss(best.at)
    result = scaled(problem.learned, problem.folds, fitted)
    loss = best.loss if result.same else problem.loss(problem.learned.read())[0]
    seconds, history = time.process_time() - begun, (*before, *best.history)
    told = tuple(failures)
    return Tuned(result.kernel, result.noise, loss, history, seconds, problem.evaluations, told, best.capped)


class Problem:
    """The cross-validated error as a function of one vector, with its gradient; solves start where the last ones ended.

    Args:
        kernel: copied.
        log_noise: (T,)
        x: (n, W)
        y: (n, T)
        config: see there.

    Attributes:
        learned: what the folds were last refreshed with.
        folds: the memory is shared by them.
        evaluations: so far.
        failure: why the last evaluation was not finite.
    """

    def __init__(self, kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: ImplicitConfig) -> None:
        self.config, self.learned = config, Learned(kernel, log_noise, config.floor)
        own, found = self.learned, parts(x, config)
        memory = int(config.memory * GIB / len(found))
        self.folds = [Fold(own.kernel, own.noise, x, y, split, memory=memory, rank=config.rank) for split in found]
        self.values = sum(fold.y_held.numel() for fold in self.folds)
        self.starts: list[tuple[Tensor | None, Tensor | None]] = [(None, None)] * len(self.folds)
        self.evaluations, self.failure = 0, ""

    def __call__(self, at: Tensor) -> tuple[float, Tensor]:
        """(P + T,) -> the loss a value held out, and its gradient; `HUGE` and zeros where it is not finite."""
        self.evaluations += 1
        self._put(at)
        loss, gradient = 0.0, torch.zeros_like(at)
        for place, (fold, start) in enumerate(zip(self.folds, self.starts, strict=True)):
            found = reduced(fold, *start, tolerance=self.config.cg_tolerance, iterations=self.config.cg_steps)
            loss += found.loss / self.values
            flat = [part.flatten() for part in found.kernel]
            gradient += torch.cat([*flat, found.log_noise]) / self.values
            finite = bool(torch.isfinite(found.fitted).all() and torch.isfinite(found.adjoint).all())
            self.starts[place] = (found.fitted, found.adjoint) if finite else (None, None)
        if not (math.isfinite(loss) and bool(torch.isfinite(gradient).all())):
            self.failure = "the error of rows held out is not finite"
            return HUGE, torch.zeros_like(at)
        return loss, gradient

    def loss(self, at: Tensor) -> tuple[float, list[Tensor]]:
        """(P + T,) -> the loss a value held out, and (n_T, T) z = C⁻¹y of each fold."""
        self._put(at)
        tolerance, steps = self.config.cg_tolerance, self.config.cg_steps
        fitted = [
            fold.solve(fold.y_fitted, start, tolerance=tolerance, iterations=steps).value
            for fold, (start, _) in zip(self.folds, self.starts, strict=True)
        ]
        errors = [float(fold.error(z).square().sum()) for fold, z in zip(self.folds, fitted, strict=True)]
        return sum(errors) / self.values, fitted

    def _put(self, at: Tensor) -> None:
        self.learned.write(at)
        for fold in self.folds:
            fold.refresh(self.learned.noise)


class _Found(NamedTuple):
    at: Tensor
    loss: float
    history: list[float]
    capped: bool  # whether it came to its limit before its rule for stopping was met


class _Best:
    """The problem, with the best that was seen of it."""

    def __init__(self, problem: Problem, start: Tensor) -> None:
        self.problem, self.at, self.loss = problem, start.clone(), HUGE

    def __call__(self, at: Tensor) -> tuple[float, Tensor]:
        loss, gradient = self.problem(at)
        if loss < self.loss:
            self.at, self.loss = at.clone(), loss
        return loss, gradient


def lbfgs(problem: Problem, start: Tensor, config: ImplicitConfig, iterations: int) -> _Found:
    """SciPy's L-BFGS-B (Byrd et al. 1995) on the logarithm of the loss, as it takes falls below 1 for absolute ones."""
    best, history = _Best(problem, start), list[float]()

    def evaluate(at: Vector) -> tuple[float, Vector]:
        lowest = best.loss
        loss, gradient = best(torch.from_numpy(at.copy()).to(start))
        if best.loss < lowest < HUGE:  # a line search that fails has led somewhere all the same
            history.append(best.loss)
        loss = max(loss, TINY)
        return math.log(loss), (gradient / loss).cpu().numpy()

    noises = len(problem.learned.noise)
    bounds = [(-BOUND, BOUND)] * (len(start) - noises) + [(problem.learned.least, BOUND)] * noises
    begin = problem.learned.clamped(start).cpu().numpy()
    options = {"maxiter": iterations, "maxfun": iterations, "maxcor": 20, "ftol": config.improvement, "gtol": 1e-7}
    ended = minimize(evaluate, begin, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return _Found(best.at, best.loss, history, ended.status == 1)


def _adam(problem: Problem, start: Tensor, config: ImplicitConfig, iterations: int) -> _Found:
    """Adam (Kingma & Ba 2015) until the loss has not fallen for a while."""
    best, history, at = _Best(problem, start), list[float](), problem.learned.clamped(start)
    adam, lowest, since, capped = SlowAdam([at]).to(at.device), math.inf, 0, True
    for _ in range(iterations):
        loss, gradient = best(at)
        if loss == HUGE:
            capped = False
            break
        history.append(loss)
        since = 0 if loss < (1.0 - config.improvement) * lowest else since + 1
        lowest = min(lowest, loss)
        if since >= config.patience:
            capped = False
            break
        adam.step([at], [gradient], config.rate)
        at = problem.learned.clamped(at)
    return _Found(best.at, best.loss, history, capped)
