"""MINIMAX: log|F| by a matrix A that a penalty ties to F (Shoham & Avron, section 3.1).

    Ψ(θ, A, B) = g(θ) + log|A| + μ_k⟨B, A − F(θ)⟩/‖A‖,   A ⪰ κI,   ‖B‖ ≤ 1 (Frobenius),   μ_k → ∞
    min over θ and A, max over B, by mini-batches of F that are independent for descent and ascent

In θ this is ⟨P, F⟩ with P = −μB/‖A‖. The gradients in A and B, with F̂ = (N/|b|) Σ_b F_i (their appendix A.1):

    A⁻¹ + μ[B/‖A‖ − ⟨B, A − F̂⟩A/‖A‖³],   μ(A − F̂)/‖A‖

A = F is stationary only if F⁻¹ = −μB/‖F‖, so that ‖B‖ ≤ 1 asks for μ ≥ ‖F‖‖F⁻¹‖ ≥ d. With the μ = 1 of the paper's
experiments A never tracks F: the penalty is a bounded pull on θ. Two ways out:

    growth    μ_k = μ_0 growth^k in epoch k, the outer loop of the paper's theory
    whitened  (ours) A and B in coordinates in which F was I when an epoch began, A = LÂLᵀ, F = LLᵀ, where μ ≥ d is
              enough; A = I and B = −(√d/μ) I then, which is the saddle, P = F⁻¹

log|A| is concave, so that the saddle is a stable one for no step sizes: B must be quick against A, and both circle
around it. In the paper's coordinates A follows F as μ grows, but P is as noisy as μ is large.

Departures. A and F are per row, A/N, which leaves the penalty as it is and log|A| up to a constant, so that steps do
not follow N; B's rate is over μ. A takes Adam's steps where the paper has AdaDelta (raw), or plain ones (whitened). The
projection on A ⪰ κI needs an eigendecomposition, O(d³), only where A − κI has no Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from streamgp.base import FLOAT, Json
from streamgp.errors import NotPositiveDefinite
from streamgp.linalg.cholesky import cholesky, inverse_root, log_determinant
from streamgp.objectives.finite_evidence import Determinant, Statistics, factorised, regularised, ridge
from streamgp.state import Tensors, Value, Whole
from streamgp.training.adam import Adam, resized
from streamgp.training.descent import batches_of
from streamgp.training.finite_head import EVERY, Estimator, FiniteHead

RAW, SHARE = 1.0, 2.0
"""μ_0: of the paper's experiments in the coordinates of the features; over d where whitened."""
GROWTH = 1.15
"""Of μ from epoch to epoch in the coordinates of the features; whitened, μ_0 is enough."""
MOST = 1e12
"""μ at most: ‖F‖‖F⁻¹‖ of a factor in float64 is no more."""
DESCENT_RATE, ASCENT_RATE = 1e-3, 2e-2
"""Step sizes: for A, Adam's, relative to the mean diagonal of F at first, or plain where whitened; for B, over μ."""


def primal_gradient(primal: Tensor, dual: Tensor, along: Tensor, penalty: float) -> Tensor:
    """A⁻¹ + μ[B/‖A‖ − ⟨B, A − F̂⟩A/‖A‖³], closed form of appendix A.1.

    Args:
        primal: (d, d) A ≻ 0.
        dual: (d, d) B.
        along: () ⟨B, A − F̂⟩
        penalty: μ

    Example:
        >>> eye = torch.eye(3, dtype=FLOAT)
        >>> at = primal_gradient(eye, -(3**0.5 / 6) * eye, torch.zeros(()), penalty=6.0)  # the saddle, where A = F
        >>> bool(at.abs().max() < 1e-12)
        True
    """
    norm = primal.norm()
    inverse = torch.cholesky_inverse(factorised(primal))
    out: Tensor = inverse + (penalty / norm) * (dual - (along / norm.square()) * primal)
    return out


def project_above(matrix: Tensor, lower: Tensor) -> Tensor:
    """The nearest symmetric matrix ⪰ CCᵀ, in the Frobenius norm of the coordinates in which CCᵀ is I.

    Args:
        matrix: (d, d)
        lower: (d, d) C, lower triangular, regular.

    Raises:
        NotPositiveDefinite: the matrix is not finite.

    Example:
        >>> project_above(torch.diag(torch.tensor([3.0, -1.0])), torch.eye(2)).tolist()
        [[3.0, 0.0], [0.0, 1.0]]
    """
    _, failed = torch.linalg.cholesky_ex(matrix - lower @ lower.T)
    if not bool(failed):
        return matrix
    if not bool(torch.isfinite(matrix).all()):
        raise NotPositiveDefinite("A of MINIMAX holds NaN or infinity", hint="lower its step sizes, or the penalty")
    half = torch.linalg.solve_triangular(lower, matrix, upper=False)
    inside = torch.linalg.solve_triangular(lower, half.T, upper=False)
    values, vectors = torch.linalg.eigh(0.5 * (inside + inside.T))
    spread = lower @ vectors
    out: Tensor = (spread * values.clamp(min=1.0)) @ spread.T
    return out


def project_ball(matrix: Tensor) -> Tensor:
    """The nearest B with ‖B‖ ≤ 1."""
    out: Tensor = matrix / matrix.norm().clamp(min=1.0)
    return out


class Minimax(Estimator):
    """MINIMAX's part for log|F|. O(|b|d²) a step, O(d³) every `EVERY`-th; O(d²) memory.

    Args:
        penalty: μ_0; None: 1, or twice the features where whitened.
        growth: of μ from epoch to epoch; None: 1.15, or 1 where whitened.
        whitened: coordinates in which F is I as an epoch begins.

    Attributes:
        root: (d, d) R with F̂ → RᵀF̂R: L⁻ᵀ where whitened, else I/√N.
        primal, dual: (d, d) A and B in those coordinates, symmetric.
        penalty: μ_k
    """

    STATE = (
        Value("unit", float),
        Value("penalty", float),
        Value("age", int, key="mini-batches"),
        Tensors("root", "primal", "dual", grows=(0, 1)),
        Whole("steps"),
    )

    ascends = True

    def __init__(self, penalty: float | None = None, growth: float | None = None, whitened: bool = True) -> None:
        self.first, self.whitened = penalty, whitened
        self.growth = growth if growth is not None else 1.0 if whitened else GROWTH
        self.unit, self.age, self.penalty = 1.0, 0, penalty or RAW
        self.root = self.primal = self.dual = self.shared = torch.zeros(0, 0, dtype=FLOAT)
        self.steps = Adam([self.primal])

    @property
    def looks(self) -> bool:  # type: ignore[override]
        """Every epoch where whitened, else before the first alone, to begin with A = F."""
        return self.whitened or not len(self.root)

    def begin(self, data: Statistics, head: FiniteHead) -> None:
        """A = F of all rows, with B at the saddle where whitened, and B = 0 in the features' own coordinates.

        Raises:
            NotPositiveDefinite: F could not be factorised.
        """
        with torch.no_grad():
            full = regularised(data.gram, ridge(head.noise))
            eye = torch.eye(len(full), dtype=FLOAT, device=full.device)
            if not len(self.root):
                self.penalty = self.first or (SHARE * len(eye) if self.whitened else RAW)
            if self.whitened:
                root = inverse_root(cholesky(full, first=0.0).lower)
                self._take(root, eye.clone(), project_ball(eye * -(len(eye) ** 0.5 / self.penalty)))
            else:
                self._take(eye * data.rows**-0.5, full / data.rows, torch.zeros_like(eye))
                self.unit = float(self.primal.diagonal().mean())

    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        """log|A| + μ⟨B, A − F̂⟩/‖A‖ and its parts, then a step on A with the same rows."""
        white = phi.to(FLOAT) @ self.root
        pulled = white @ self.dual
        pull = -self.penalty / self.primal.norm()
        trace = (self.dual * self.shared).sum()
        gap = (self.dual * self.primal).sum() - total / len(phi) * (pulled * white).sum() - kappa * trace
        part = Determinant(
            self.log_determinant - pull * gap, (pull * (pulled @ self.root.T)).to(phi.dtype), pull * trace
        )
        self.age += 1
        if self.age % EVERY == 0:
            self._descend(gap, kappa)
        if self.growth != 1.0 and self.age % batches_of(total, len(phi)) == 0:
            self.penalty = min(self.penalty * self.growth, MOST)
        return part

    def ascend(self, phi: Tensor, head: FiniteHead, total: int) -> None:
        """A step on B along its gradient over μ, and the projection on ‖B‖ ≤ 1."""
        with torch.no_grad():
            white, kappa = phi.to(FLOAT) @ self.root, ridge(head.noise)
            estimate = torch.addmm(kappa * self.shared, white.T, white, alpha=total / len(white))  # RᵀF̂R
            gap = (self.primal - estimate) / self.primal.norm()
            self.dual = project_ball(self.dual + ASCENT_RATE * gap)

    def _take(self, root: Tensor, primal: Tensor, dual: Tensor) -> None:
        self.root, self.primal, self.dual, self.shared = root, primal, dual, root.T @ root
        self.steps = Adam([self.primal])
        if len(root):
            self._note()

    def restoring(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> Callable[[], None]:
        """The moments have the size of A, which is that of the features once there are some."""
        self.steps = resized(self.steps, tensors.get("primal"))
        return super().restoring(tensors, rest)

    def restored(self) -> None:
        self.shared = self.root.T @ self.root
        self.steps.parameters = [self.primal]
        if len(self.root):
            self._note()

    def _descend(self, gap: Tensor, kappa: Tensor) -> None:
        """A step on A, which is symmetric and ⪰ κI afterwards: most are anyway, as a Cholesky factorisation shows."""
        found = primal_gradient(self.primal, self.dual, gap, self.penalty)
        if self.whitened:
            self.primal.sub_(found, alpha=DESCENT_RATE)
        else:
            self.steps.step([found], DESCENT_RATE * self.unit)
        primal = 0.5 * (self.primal + self.primal.T)
        _, failed = torch.linalg.cholesky_ex(primal - kappa * self.shared)
        self.primal.copy_(project_above(primal, kappa.sqrt() * self.root.T) if bool(failed) else primal)
        self._note()

    def _note(self) -> None:
        """log|A| in coordinates of the features."""
        self.log_determinant = log_determinant(factorised(self.primal)) - 2.0 * self.root.diagonal().log().sum()
