"""The least value of a smooth function of one vector, by L-BFGS or by Adam; the best place seen is what counts.

A function returns `HUGE` and zeros where it has no value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.training.adam import Adam

Objective: TypeAlias = Callable[[Tensor], tuple[float, Tensor]]
"""(P,) -> value, and gradient (P,)."""

HUGE = 1e10
"""Value where there is none."""
BOUND = 20.0
"""Logarithms stay within this of 0, so that their exponentials are numbers that can be multiplied."""
TINY = 1e-100
"""Value whose logarithm is taken where there is none."""


class Minimum(NamedTuple):
    """The best place that was seen.

    Attributes:
        at: (P,); where the search started, if there is no value anywhere.
        value: there, or `HUGE`.
        history: every value that was better than those before it.
        capped: whether the search came to its limit before its rule for stopping was met.
    """

    at: Tensor
    value: float
    history: list[float]
    capped: bool


class _Best:
    def __init__(self, objective: Objective, start: Tensor) -> None:
        self.objective, self.at, self.value, self.history = objective, start.clone(), HUGE, list[float]()

    def __call__(self, at: Tensor) -> tuple[float, Tensor]:
        value, gradient = self.objective(at)
        if value < self.value:
            if self.value < HUGE:
                self.history.append(value)
            self.at, self.value = at.clone(), value
        return value, gradient

    def found(self, capped: bool) -> Minimum:
        return Minimum(self.at, self.value, self.history, capped)


def lbfgs(
    objective: Objective,
    start: Tensor,
    evaluations: int,
    *,
    bounds: Sequence[tuple[float, float]] | None = None,
    ftol: float = 1e-8,
    log: bool = False,
) -> Minimum:
    """About `evaluations` evaluations of L-BFGS-B (Byrd et al. 1995): an iteration that has begun is finished.

    SciPy's, as PyTorch's loads its compiler first, which takes three seconds.

    Args:
        objective: to be minimised.
        start: (P,)
        evaluations: about how many.
        bounds: of each element.
        ftol: relative fall of the value that ends the search.
        log: minimise the logarithm of a positive value, since SciPy takes falls below 1 for absolute ones.

    Example:
        >>> found = lbfgs(lambda at: (float(at.square().sum()), 2.0 * at), torch.ones(3).double(), 20)
        >>> found.value < 1e-12, found.capped
        (True, False)
    """
    best = _Best(objective, start)

    def evaluate(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = best(torch.from_numpy(at.copy()).to(start))
        if log:
            value = max(value, TINY)
            value, gradient = math.log(value), gradient / value
        return value, gradient.cpu().numpy()

    options = {"maxiter": evaluations, "maxfun": evaluations, "maxcor": 20, "ftol": ftol, "gtol": 1e-7}
    begin = start.cpu().numpy()
    from scipy.optimize import minimize  # here, as most models never search

    ended = minimize(evaluate, begin, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return best.found(ended.status == 1)


def adam(objective: Objective, start: Tensor, steps: int, *, rate: float = 0.1, bound: float = BOUND) -> Minimum:
    """`steps` steps of Adam, with every element within `bound` of 0; it ends where there is no value.

    Example:
        >>> found = adam(lambda at: (float(at.square().sum()), 2.0 * at), torch.ones(3).double(), 100)
        >>> found.value < 1e-3
        True
    """
    best, at = _Best(objective, start), start.clone()
    mover = Adam([at])
    for _ in range(steps):
        value, gradient = best(at)
        if value >= HUGE:
            return best.found(False)
        mover.step([gradient], rate)
        at.clamp_(-bound, bound)
    return best.found(True)
