"""MINIMAX: log|F| by a matrix A that a penalty ties to F (Shoham & Avron, section 3.1).

    Ψ(θ, A, B) = g(θ) + log|A| + μ⟨B, A − F(θ)⟩/‖A‖,   A ⪰ κI,   ‖B‖ ≤ 1 (Frobenius)
    min over θ and A, max over B, by mini-batches of F that are independent for descent and ascent

In θ this is ⟨P, F⟩ with P = −μB/‖A‖. The gradients in A and B, with F̂ = (N/|b|) Σ_b F_i (their appendix A.1):

    A⁻¹ + μ[B/‖A‖ − ⟨B, A − F̂⟩A/‖A‖³],   μ(A − F̂)/‖A‖

A = F is stationary only if F⁻¹ = −μB/‖F‖, so that ‖B‖ ≤ 1 asks for μ ≥ ‖F‖‖F⁻¹‖ ≥ d. The paper's μ = 1 never lets A
track F: the penalty is then a bounded pull on θ.

Departures. A and F are per row, A/N, which leaves the penalty as it is and log|A| up to a constant, so that steps do
not follow N. A takes Adam's steps where the paper has AdaDelta. The projection on A ⪰ κI needs an eigendecomposition,
O(d³), only where A − κI has no Cholesky factor.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from streamgp.base import FLOAT, Json
from streamgp.errors import NotPositiveDefinite
from streamgp.linalg.cholesky import log_determinant
from streamgp.objectives.finite_evidence import Determinant, Statistics, factorised, regularised, ridge
from streamgp.optim.adam import Adam
from streamgp.optim.finite_head import EVERY, Estimator, FiniteHead

PENALTY = 1.0
"""μ, the paper's."""
DESCENT_RATE, ASCENT_RATE = 1e-3, 2e-2
"""Step sizes: Adam's for A, relative to the mean diagonal of F at first; of plain ascent on B, over μ."""


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
    """MINIMAX's part for log|F|, by descent on A and ascent on B. O(d³) every `EVERY`-th step, O(d²) memory.

    Attributes:
        rows: N at the beginning: A and F are per row.
        primal, dual: (d, d) A/N and B, symmetric.
    """

    ascends = True

    def __init__(self) -> None:
        self.unit, self.age, self.rows = 1.0, 0, 0
        self.primal = self.dual = torch.zeros(0, 0, dtype=FLOAT)
        self.steps = Adam([self.primal])

    @property
    def looks(self) -> bool:  # type: ignore[override]
        """Before the first epoch, to begin with A = F."""
        return not self.rows

    def begin(self, data: Statistics, head: FiniteHead) -> None:
        """A = F of all rows, B = 0.

        Raises:
            NotPositiveDefinite: F could not be factorised.
        """
        with torch.no_grad():
            full = regularised(data.gram, ridge(head.noise)) / data.rows
            self.rows = data.rows
            self._take(full, torch.zeros_like(full))
            self.unit = float(self.primal.diagonal().mean())

    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        """log|A| + μ⟨B, A − F̂⟩/‖A‖ and its parts, then a step on A with the same rows."""
        pulled = phi.to(FLOAT) @ self.dual
        pull = -PENALTY / self.primal.norm()
        trace = self.dual.trace() / self.rows
        spread = total / len(phi) / self.rows * (pulled * phi).sum()
        gap = (self.dual * self.primal).sum() - spread - kappa * trace
        part = Determinant(self.log_determinant - pull * gap, (pull / self.rows * pulled).to(phi.dtype), pull * trace)
        self.age += 1
        if self.age % EVERY == 0:
            self._descend(gap, kappa)
        return part

    def ascend(self, phi: Tensor, head: FiniteHead, total: int) -> None:
        """A step on B along its gradient over μ, and the projection on ‖B‖ ≤ 1."""
        with torch.no_grad():
            rows = phi.to(FLOAT)
            gap = torch.addmm(self.primal, rows.T, rows, alpha=-total / len(rows) / self.rows)
            gap.diagonal().sub_(ridge(head.noise) / self.rows)
            self.dual = project_ball(self.dual + ASCENT_RATE * (gap / self.primal.norm()))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = self.steps.state()
        own = {"primal": self.primal.clone(), "dual": self.dual.clone()}
        return tensors | own, rest | {"unit": self.unit, "mini-batches": self.age, "rows": self.rows}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.unit, self.age, self.rows = (
            float(str(rest["unit"])),
            int(str(rest["mini-batches"])),
            int(str(rest["rows"])),
        )
        if self.rows:
            self._take(tensors["primal"].clone(), tensors["dual"].clone())
            self.steps.restore(tensors, rest)

    def _take(self, primal: Tensor, dual: Tensor) -> None:
        self.primal, self.dual, self.steps = primal, dual, Adam([primal])
        self._note()

    def _descend(self, gap: Tensor, kappa: Tensor) -> None:
        """A step on A, which is symmetric and ⪰ κI afterwards: most are anyway, as a Cholesky factorisation shows."""
        self.steps.step([primal_gradient(self.primal, self.dual, gap, PENALTY)], DESCENT_RATE * self.unit)
        primal = 0.5 * (self.primal + self.primal.T)
        least = kappa / self.rows * torch.eye(len(primal), dtype=FLOAT, device=primal.device)
        _, failed = torch.linalg.cholesky_ex(primal - least)
        self.primal.copy_(project_above(primal, least.sqrt()) if bool(failed) else primal)
        self._note()

    def _note(self) -> None:
        """log|A| in coordinates of the features."""
        width = len(self.primal)
        self.log_determinant = log_determinant(factorised(self.primal)) + width * math.log(max(self.rows, 1))
