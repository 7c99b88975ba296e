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

import torch
from torch import Tensor

from streamgp.evidence.cross_validated import (
    GIB,
    CrossValidationConfig,
    KernelVector,
    check,
    parts,
    scaled,
    search,
    starts,
)
from streamgp.evidence.minimise import BOUND, HUGE, Minimum, lbfgs
from streamgp.evidence.tuned import Each, Tuned
from streamgp.kernels import Tied
from streamgp.objectives.fold import Fold, reduced

IMPROVEMENT = 1e-4
"""Relative fall of the loss that ends a search."""
CG_TOLERANCE, CG_STEPS = 1e-4, 200
"""Of a solve by conjugate gradients: residual relative to the right-hand side, and steps at most."""


class ImplicitConfig(CrossValidationConfig):
    """Cross-validation by the reduced gradient; an iteration is an evaluation of loss and gradient."""


def cv_implicit(
    kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: ImplicitConfig, each: Each = map
) -> Tuned:
    """See the module, and `tuned` for arguments and result.

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

    def begin() -> CrossValidatedProblem:
        return CrossValidatedProblem(kernel, log_noise.to(x), x, y, config)

    def descent(start: Tensor, iterations: int) -> tuple[Minimum, int]:
        own = begin()
        return descend(own, start, iterations), own.evaluations

    searched = search(descent, starts(kernel, log_noise, x, config), config.iterations, each)
    best, problem = searched.found, begin()
    _, fitted = problem.loss(best.at)
    result = scaled(problem.learned, problem.folds, fitted)
    loss = best.value if result.same else problem.loss(problem.learned.read())[0]
    better = [
        loss for loss in best.history if loss < min(searched.before, default=HUGE)
    ]  # solves end within a tolerance
    seconds, history = time.process_time() - begun + searched.elsewhere, (*searched.before, *better)
    ways = searched.evaluations, searched.failures, best.capped
    return Tuned(result.kernel, result.noise, loss, history, seconds, *ways)


class CrossValidatedProblem:
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
    """

    def __init__(self, kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: ImplicitConfig) -> None:
        self.learned = KernelVector(kernel, log_noise, config.floor)
        own, found = self.learned, parts(x, config)
        memory = int(config.memory * GIB / len(found))
        self.folds = [Fold(own.kernel, own.noise, x, y, split, memory=memory, rank=config.rank) for split in found]
        self.values = sum(fold.y_held.numel() for fold in self.folds)
        self.starts: list[tuple[Tensor | None, Tensor | None]] = [(None, None)] * len(self.folds)
        self.evaluations = 0

    def __call__(self, at: Tensor) -> tuple[float, Tensor]:
        """(P + T,) -> the loss a value held out, and its gradient; `HUGE` and zeros where it is not finite."""
        self.evaluations += 1
        self._put(at)
        loss, gradient = 0.0, torch.zeros_like(at)
        for place, (fold, start) in enumerate(zip(self.folds, self.starts, strict=True)):
            found = reduced(fold, *start, tolerance=CG_TOLERANCE, iterations=CG_STEPS)
            loss += found.loss / self.values
            flat = [part.flatten() for part in found.kernel]
            gradient += torch.cat([*flat, found.log_noise]) / self.values
            finite = bool(torch.isfinite(found.fitted).all() and torch.isfinite(found.adjoint).all())
            self.starts[place] = (found.fitted, found.adjoint) if finite else (None, None)
        if not (math.isfinite(loss) and bool(torch.isfinite(gradient).all())):
            return HUGE, torch.zeros_like(at)
        return loss, gradient

    def loss(self, at: Tensor) -> tuple[float, list[Tensor]]:
        """(P + T,) -> the loss a value held out, and (n_T, T) z = C⁻¹y of each fold."""
        self._put(at)
        fitted = [
            fold.solve(fold.y_fitted, start, tolerance=CG_TOLERANCE, iterations=CG_STEPS).value
            for fold, (start, _) in zip(self.folds, self.starts, strict=True)
        ]
        errors = [float(fold.error(z).square().sum()) for fold, z in zip(self.folds, fitted, strict=True)]
        return sum(errors) / self.values, fitted

    def _put(self, at: Tensor) -> None:
        self.learned.write(at)
        for fold in self.folds:
            fold.refresh(self.learned.noise)


def descend(problem: CrossValidatedProblem, start: Tensor, iterations: int) -> Minimum:
    """L-BFGS on the logarithm of the loss."""
    learned = problem.learned
    noises = len(learned.noise)
    bounds = [(-BOUND, BOUND)] * (len(start) - noises) + [(learned.least, BOUND)] * noises
    return lbfgs(problem, learned.clamped(start), iterations, bounds=bounds, ftol=IMPROVEMENT, log=True)
