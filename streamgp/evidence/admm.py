"""Hyper-parameters by cross-validation with ADMM (cv-admm; Xu et al. 2019): products only, O(n²) a step.

Hold-out minimises ‖y_V − K_VT z‖² subject to C(θ)z = y_T by the augmented Lagrangian

    L_ρ(θ, z, λ) = ‖y_V − K_VT z‖² + λᵀ(Cz − y_T) + (ρ/2)‖Cz − y_T‖²

summed over columns, one z and λ each. Algorithm 1, an iteration:

    θ   a step of Adam on ∇_θ L_ρ (12)
    z   conjugate gradients on Σz = −b/2, Σ = K_VTᵀK_VT + (ρ/2)C², b = Cλ − ρCy_T − 2K_VTᵀy_V (13), from the last z
    λ   + ρ(Cz − y_T) (11c)

K folds, naive: one run of Algorithm 1 a fold, and the mean of their θ. Principled (16): a copy θ_k a fold, pulled to
their consensus θ̄; L_ρ^k gets u_kᵀ(θ_k − θ̄) + (ρ_c/2)‖θ_k − θ̄‖², then θ̄ = mean(θ_k + u_k/ρ_c), u_k += ρ_c(θ_k − θ̄).

Departures from the paper, the first four because the printed settings do not converge (20 times the optimum after 400
iterations):
    - λ starts at 0, not at 1; z at C⁻¹y_T of the first θ, not of a perturbed one;
    - z takes some tens of steps of conjugate gradients an iteration, not one, and the direction is not carried over
      (14): Σ has changed, so that it would not be conjugate. They are preconditioned by (ρ/2)P², P near C;
    - θ is in logarithms and moved by Adam, all elements together, not by coordinates with plain gradients; the step
      size falls from 0.1, where a constant 0.05 leaves feasibility at 1e-5 to 1e-3;
    - a mean of θ is one of logarithms;
    - ∂L_ρ/∂σ² is λᵀz + ρzᵀ(Cz − y_T): (17) and (18) leave out λᵀz + ρzᵀ(σ²z − y_T), since σ² is held there;
    - the consensus has its own ρ_c, since θ and z have nothing to do with each other's units, and is weighed element by
      element in the metric of Adam (`AdmmRun`);
    - ADMM is slow to the last per cents, and the mean of naive folds is where none of them ends: `polish` evaluations
      of the reduced gradient (`implicit`) follow, from where it ended, on the error held out itself;
    - variances are rescaled afterwards (`streamgp.objectives.cross_validation`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from streamgp.evidence import implicit
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
from streamgp.evidence.implicit import CrossValidatedProblem, ImplicitConfig
from streamgp.evidence.minimise import HUGE, Minimum
from streamgp.evidence.tuned import Each, Tuned
from streamgp.kernels import Tied
from streamgp.objectives.cross_validation import Partition
from streamgp.objectives.fold import Fold, solve_from
from streamgp.training.adam import EPSILON

DECAYS = (0.9, 0.99)
"""Of Adam's moments: the first gradients are far larger than those near the end, and 0.999 would not forget them."""
SOLVES = 1000
"""Steps of conjugate gradients of the solves that are not part of an iteration: the first z, and the final loss."""


CG_TOLERANCE, CG_STEPS = 1e-8, 30
"""Of a solve by conjugate gradients: residual relative to the right-hand side, and steps on z in an iteration."""
RATE, LAST = 0.1, 0.01
"""Adam's first step size, in logarithms of the hyper-parameters; the part of it that half a cosine leaves."""
CONSENSUS = 2.0
"""ρ_c: weight of (θ_k − mean)²/2 in units of the gradient's root mean square."""
MOVED, FEASIBLE, PATIENCE = 1e-4, 1e-5, 5
"""It ends once no logarithm changes by more, and |Cz − y|/|y| is no more, in PATIENCE iterations on end."""


class AdmmConfig(CrossValidationConfig):
    """Cross-validation by ADMM."""

    scheme: Literal["naive", "principled"] = Field(
        "principled",
        description="naive: folds apart, and the mean of what they found; principled: folds pulled to a consensus",
    )
    iterations: int = Field(400, ge=1, le=100_000, description="of Algorithm 1, at most; each is a step of Adam")
    rho: float = Field(
        5.0, gt=0, le=1e6, description="weight of (Cz − y)²/2 beside the squared error of rows held out; no unit"
    )
    polish: int = Field(
        20,
        ge=0,
        le=100_000,
        description="evaluations of the reduced gradient of cv-implicit that follow, at most; 0: ADMM alone",
    )


def cv_admm(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: AdmmConfig, each: Each = map) -> Tuned:
    """See the module, and `tuned` for arguments and result.

    The loss is the mean squared error of rows held out, a row and column, with C z = y_T solved at the final θ; the
    history is ‖y_V − K_VT z‖² a value, with z as the iterations have it.

    Raises:
        NumericalError: no start has a finite loss.
        UsageError: too few rows, or a kernel that does not say what its variances are.

    Example:
        >>> from streamgp.base import FLOAT
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = Tied(squared_exponential.Config(lengthscale=0.1), torch.zeros(1, dtype=torch.int64))
        >>> x = torch.linspace(-3, 3, 40, dtype=FLOAT)[:, None]
        >>> found = cv_admm(kernel, torch.tensor([-2.0]).double(), x, x.sin(), AdmmConfig(folds=1, iterations=100))
        >>> found.loss < 1e-2, 0.3 < found.kernel["log_lengthscale"].exp().item() < 4
        (True, True)
    """
    begun = time.process_time()
    check(kernel, x)
    run = AdmmRun(kernel, log_noise.to(x), x, y, config)

    def descend(start: Tensor, iterations: int) -> tuple[Minimum, int]:
        own = AdmmRun(kernel, log_noise.to(x), x, y, config)
        one = own.descend(start, iterations)
        loss, _ = own.loss(one.at)
        return Minimum(one.at, loss if math.isfinite(loss) else HUGE, one.history, one.capped), one.iterations

    searched = search(descend, starts(kernel, log_noise, x, config), config.iterations, each)
    found, evaluations = searched.found, searched.evaluations
    if config.polish:
        shared = {name: getattr(config, name) for name in CrossValidationConfig.model_fields}
        problem = CrossValidatedProblem(kernel, log_noise.to(x), x, y, ImplicitConfig(**shared))
        polished = implicit.descend(problem, found.at, config.polish)
        evaluations += problem.evaluations
        capped = found.capped and polished.capped
        if polished.value < found.value:
            found = polished._replace(history=[*found.history, *polished.history])
        found = found._replace(capped=capped)
    loss, fitted = run.loss(found.at)
    result = scaled(run.learned, run.folds, fitted)
    loss = loss if result.same else run.loss(run.learned.read())[0]
    seconds, history = time.process_time() - begun + searched.elsewhere, tuple(found.history)
    ways = evaluations, searched.failures, found.capped
    return Tuned(result.kernel, result.noise, loss, history, seconds, *ways)


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

    def __init__(
        self, learned: KernelVector, x: Tensor, y: Tensor, split: Partition, memory: int, config: AdmmConfig
    ) -> None:
        self.learned, self.config = learned, config
        self.at = learned.read()
        self.fold = Fold(learned.kernel, learned.noise, x, y, split, memory=memory, rank=config.rank)
        self.values = self.fold.y_held.numel()
        self.adam = _AdamMoments(self.at)
        self.fitted = self.fold.solve(self.fold.y_fitted, tolerance=CG_TOLERANCE, iterations=SOLVES).value
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
        found = solve_from(sigma, right, self.fitted, precondition, CG_TOLERANCE, CG_STEPS)
        fold.served(found.iterations)
        self.fitted = found.value


class _AdamMoments:
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


class Descended(NamedTuple):
    """Where ADMM ended.

    Attributes:
        at: (P + T,) logarithms: of the fold, the mean of the folds, or the consensus.
        history: the squared error a value held out, after each iteration.
        feasibility: the largest ‖Cz − y_T‖/‖y_T‖ of all folds and columns at the end.
        apart: the largest distance of a fold's θ_k from the mean, in logarithms.
        iterations: of the fold that took the most.
        capped: whether that was the limit, for any fold.
    """

    at: Tensor
    history: list[float]
    feasibility: float
    apart: float
    iterations: int
    capped: bool


class AdmmRun:
    """ADMM over the folds of a table, from any start.

    Args:
        kernel: copied.
        log_noise: (T,)
        x: (n, W)
        y: (n, T)
        config: see there.
    """

    def __init__(self, kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: AdmmConfig) -> None:
        self.kernel, self.x, self.y, self.config = kernel, x, y, config
        self.splits = parts(x, config)
        self.learned = KernelVector(kernel, log_noise, config.floor)
        self.folds: list[Fold] = []

    def descend(self, start: Tensor, iterations: int) -> Descended:
        """From a start (P + T,), by the scheme that the options name."""
        self.folds = []  # their memory goes to the iterations
        if self.config.scheme == "principled" and len(self.splits) > 1:
            return self._consensus(start, iterations)
        found = [self.alone(start, split, iterations) for split in self.splits]
        mean = torch.stack([one.at for one in found]).mean(0)
        longest = max(len(one.history) for one in found)
        last = [one.history + one.history[-1:] * (longest - len(one.history)) for one in found]
        return Descended(
            at=mean,
            history=[sum(values) / len(values) for values in zip(*last, strict=True)],
            feasibility=max(one.feasibility for one in found),
            apart=max(float((one.at - mean).abs().max()) for one in found),
            iterations=longest,
            capped=any(one.capped for one in found),
        )

    def loss(self, at: Tensor) -> tuple[float, list[Tensor]]:
        """(P + T,) -> the error a value held out with Cz = y_T solved, and (n_T, T) z of each fold."""
        self.learned.write(at)
        memory, total, fitted = self._memory(len(self.splits)), 0.0, list[Tensor]()
        own = self.learned
        self.folds = [
            Fold(own.kernel, own.noise, self.x, self.y, split, memory=memory, rank=self.config.rank)
            for split in self.splits
        ]
        for fold in self.folds:
            z = fold.solve(fold.y_fitted, tolerance=CG_TOLERANCE, iterations=SOLVES).value
            fitted.append(z)
            total += float(fold.error(z).square().sum())
        return total / sum(fold.y_held.numel() for fold in self.folds), fitted

    def _memory(self, sharing: int) -> int:
        return int(self.config.memory * GIB / sharing)

    def _fold(self, start: Tensor, split: Partition, sharing: int) -> Augmented:
        """A fold with its own copy of θ."""
        learned = KernelVector(self.kernel, self.learned.noise.log(), self.config.floor)
        learned.write(start)
        return Augmented(learned, self.x, self.y, split, self._memory(sharing), self.config)

    def alone(self, start: Tensor, split: Partition, iterations: int) -> Descended:
        """Algorithm 1."""
        fold, history, quiet = self._fold(start, split, 1), list[float](), 0
        for done in range(iterations):
            fold.step(self._rate(done, iterations))
            history.append(fold.error)
            quiet = quiet + 1 if self._ended([fold], 0.0) else 0
            if quiet >= PATIENCE or not fold.finite:
                return Descended(fold.at.clone(), history, fold.feasibility, 0.0, len(history), False)
        return Descended(fold.at.clone(), history, fold.feasibility, 0.0, len(history), True)

    def _consensus(self, start: Tensor, iterations: int) -> Descended:
        """One step of every fold, then of the consensus and its duals, all in the metric of Adam.

        With m_k and s_k Adam's moments of ∇L_ρ^k, s² = mean s_k² and S = diag s, a fold goes to

            argmin (m_k + u_k)ᵀθ + ½ ρ_c ‖θ − θ̄‖²_S + ‖θ − θ_k‖²_S/(2 rate).

        The pull is taken implicitly because Adam's steps are bounded: fed to Adam as a part of the gradient, u_k winds
        up while θ_k cannot follow, and all of it diverges.
        """
        folds = [self._fold(start, split, len(self.splits)) for split in self.splits]
        weight, history, quiet = CONSENSUS, list[float](), 0
        mean, duals = folds[0].at.clone(), torch.zeros(len(folds), len(start)).to(start)
        apart, capped = 0.0, True
        for done in range(iterations):
            rate = self._rate(done, iterations)
            moments = [fold.adam(fold.gradient()) for fold in folds]
            metric = torch.stack([root for _, root in moments]).square().mean(0).sqrt()
            for fold, dual, (slope, _) in zip(folds, duals, moments, strict=True):
                force = slope + dual + weight * metric * (fold.at - mean)
                fold.move(fold.at - rate * force / (metric * (1.0 + rate * weight)))
            each = torch.stack([fold.at for fold in folds])
            mean = (each + duals / (weight * metric)).mean(0)
            duals += weight * metric * (each - mean)
            apart = float((each - mean).abs().max())
            history.append(sum(fold.error for fold in folds) / len(folds))
            quiet = quiet + 1 if self._ended(folds, apart) else 0
            if quiet >= PATIENCE or not all(fold.finite for fold in folds):
                capped = False
                break
        return Descended(mean, history, max(fold.feasibility for fold in folds), apart, len(history), capped)

    def _rate(self, done: int, iterations: int) -> float:
        """Half a cosine over the iterations."""
        fallen = 0.5 * (1.0 + math.cos(math.pi * done / iterations))
        return RATE * (LAST + (1.0 - LAST) * fallen)

    def _ended(self, folds: Sequence[Augmented], apart: float) -> bool:
        moved = max(max(fold.moved for fold in folds), apart)
        return moved <= MOVED and all(fold.feasibility <= FEASIBLE for fold in folds)
