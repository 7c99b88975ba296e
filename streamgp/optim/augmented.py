"""One fold under Algorithm 1 of Xu et al. (2019): its θ, z and λ, and the options of the iteration.

See `admm` for the method and its departures.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from streamgp.objectives.cross_validation import Split
from streamgp.objectives.fold import Fold, solve_from
from streamgp.optim._slow_adam import EPSILON
from streamgp.optim.cross_validated import CrossValidationConfig, Learned

DECAYS = (0.9, 0.99)
"""Of Adam's moments: the first gradients are far larger than those near the end, and 0.999 would not forget them."""
SOLVES = 1000
"""Steps of conjugate gradients of the solves that are not part of an iteration: the first z, and the final loss."""


class AdmmConfig(CrossValidationConfig):
    """Cross-validation by ADMM."""

    scheme: Literal["naive", "principled"] = Field(
        "principled",
        description="naive: folds apart, and the mean of what they found; principled: folds pulled to a consensus",
    )
    iterations: int = Field(400, ge=1, le=100_000, description="of Algorithm 1, at most; each is a step of Adam")
    rate: float = Field(0.1, gt=0, le=10, description="Adam's first step size, in logarithms of the hyper-parameters")
    last: float = Field(
        0.01, ge=0, le=1, description="part of the step size that is left at the end; half a cosine on the way"
    )
    rho: float = Field(
        5.0, gt=0, le=1e6, description="weight of (Cz − y)²/2 beside the squared error of rows held out; no unit"
    )
    consensus: float = Field(
        2.0,
        gt=0,
        le=1e6,
        description="principled folds: weight of (θ_k − mean)²/2 in units of the gradient's root mean square; ρ_c",
    )
    cg_tolerance: float = Field(
        1e-8, gt=0, le=0.1, description="residual of a solve by conjugate gradients, relative to its right-hand side"
    )
    cg_steps: int = Field(30, ge=1, le=100_000, description="steps of conjugate gradients on z an iteration, at most")
    settled: float = Field(1e-4, ge=0, le=1, description="largest change of a log hyper-parameter that counts as none")
    feasible: float = Field(1e-5, ge=0, le=1, description="|Cz − y|/|y| that is small enough to end")
    patience: int = Field(
        5, ge=1, le=100_000, description="iterations that must be settled and feasible before it ends"
    )
    polish: int = Field(
        20,
        ge=0,
        le=100_000,
        description="evaluations of the reduced gradient of cv-implicit that follow, at most; 0: ADMM alone",
    )


class Augmented:
    """One fold's θ, z and λ under Algorithm 1.

    Args:
        learned: θ, moved in place.
        x: (n, W)
        y: (n, T)
        split: of the n rows.
        memory: bytes for kept covariances.
        config: see there.

    Attributes:
        at: (P + T,) θ.
        fitted: (n_T, T) z.
        dual: (n_T, T) λ.
        moved: the largest change of θ in the last step.
        feasibility: the largest ‖Cz − y_T‖/‖y_T‖ of a column.
        finite: whether the last θ was; one that was not is not taken.
    """

    def __init__(self, learned: Learned, x: Tensor, y: Tensor, split: Split, memory: int, config: AdmmConfig) -> None:
        self.learned, self.config = learned, config
        self.at = learned.read()
        self.fold = Fold(learned.kernel, learned.noise, x, y, split, memory=memory, rank=config.rank)
        self.values = self.fold.y_held.numel()
        self.adam = _Moments(self.at)
        tolerance = config.cg_tolerance
        self.fitted = self.fold.solve(self.fold.y_fitted, tolerance=tolerance, iterations=SOLVES).value
        self.dual = torch.zeros_like(self.fitted)
        self.moved, self.feasibility, self.finite = math.inf, math.inf, True
        self._look()

    def _look(self) -> None:
        """What the present θ and z make of the constraint and of the rows held out."""
        self._off = self.fold.product(self.fitted) - self.fold.y_fitted  # (n_T, T)
        self._error = self.fold.error(self.fitted)  # (n_V, T)
        scale = self.fold.y_fitted.norm(dim=0).clamp(min=1e-300)
        self.feasibility = float((self._off.norm(dim=0) / scale).max())

    @property
    def error(self) -> float:
        """‖y_V − K_VT z‖² a value."""
        return float(self._error.square().mean())

    def gradient(self) -> Tensor:
        """(P + T,) ∇_θ L_ρ a value held out."""
        z, pull = self.fitted, self.dual + self.config.rho * self._off
        outer, inner = self.fold.cross.gradient(2.0 * self._error, z), self.fold.gram.gradient(pull, z)
        flat = [(a + b).flatten() for a, b in zip(outer, inner, strict=True)]
        return torch.cat([*flat, self.fold.noise * (pull * z).sum(0)]) / self.values

    def step(self, rate: float) -> None:
        """One iteration of Algorithm 1."""
        mean, root = self.adam(self.gradient())
        self.move(self.at - rate * mean / root)

    def move(self, to: Tensor) -> None:
        """Take θ (P + T,), then z and λ as they follow from it."""
        self.finite = bool(torch.isfinite(to).all())
        if not self.finite:
            return
        before, self.at = self.at, self.learned.clamped(to)
        self.moved = float((self.at - before).abs().max())
        self.learned.write(self.at)
        self.fold.refresh(self.learned.noise)
        self.fit()
        self._look()
        self.dual += self.config.rho * self._off

    def fit(self) -> None:
        """z by conjugate gradients on Σ, from where it is."""
        fold, half = self.fold, 0.5 * self.config.rho

        def sigma(v: Tensor) -> Tensor:
            return fold.cross.transposed(fold.cross.product(v)) + half * fold.product(fold.product(v))

        def precondition(v: Tensor) -> Tensor:
            return fold.precondition(fold.precondition(v)) / half

        right = fold.product(half * fold.y_fitted - 0.5 * self.dual) + fold.cross.transposed(fold.y_held)
        found = solve_from(sigma, right, self.fitted, precondition, self.config.cg_tolerance, self.config.cg_steps)
        fold.served(found.iterations)
        self.fitted = found.value


class _Moments:
    """Adam's moments of a gradient, without their bias (Kingma & Ba 2015)."""

    def __init__(self, like: Tensor) -> None:
        self.first, self.second, self.age = torch.zeros_like(like), torch.zeros_like(like), 0

    def __call__(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The mean, and the root of the mean square."""
        self.age += 1
        self.first.lerp_(gradient, 1.0 - DECAYS[0])
        self.second.lerp_(gradient.square(), 1.0 - DECAYS[1])
        root = (self.second / (1.0 - DECAYS[1] ** self.age)).sqrt() + EPSILON
        return self.first / (1.0 - DECAYS[0] ** self.age), root
