"""κI plus a moving average of mini-batches, as a dense matrix or as the few rows that still count in it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from streamgp.base import FLOAT, Json
from streamgp.linalg.cholesky import log_determinant
from streamgp.objectives.finite_evidence import Determinant, factorised, regularised


class Dense:
    """G̃ (d, d), the moving average of (N/|b|) ΦᵀΦ. O(d³ + |b|d²) a step, O(d²) memory.

    The factor of F̃ = G̃ + κI is kept for `every` steps, which then cost O(|b|d²).

    Args:
        width: d
        every: steps that use one factor.
    """

    def __init__(self, width: int, every: int, device: torch.device) -> None:
        self.every, self.age = every, 0
        self.gram = torch.zeros(width, width, dtype=FLOAT, device=device)
        self.inverse = torch.zeros(width, width, dtype=FLOAT, device=device)
        self.log_determinant = self.trace = torch.zeros((), dtype=FLOAT, device=device)

    def add(self, phi: Tensor, kept: float, weight: float) -> None:
        """G̃ ← kept · G̃ + weight · ΦᵀΦ."""
        rows = phi.to(FLOAT)
        self.gram.addmm_(rows.T, rows, beta=kept, alpha=weight)

    def determinant(self, phi: Tensor, kappa: Tensor) -> Determinant:
        """log|F̃|, F̃⁻¹φ_i of any rows, tr F̃⁻¹."""
        if self.age % self.every == 0:
            lower = factorised(regularised(self.gram, kappa))
            # contiguous, as a checkpoint gives it back: BLAS may round otherwise for another layout
            self.inverse = torch.cholesky_inverse(lower).contiguous()
            self.log_determinant, self.trace = log_determinant(lower), self.inverse.trace()
        self.age += 1
        return Determinant(self.log_determinant, phi @ self.inverse.to(phi.dtype), self.trace)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors = {"gram": self.gram.clone()}
        if self.every > 1:
            tensors |= {"inverse": self.inverse.clone(), "log_determinant": self.log_determinant.clone()}
        return tensors, {"age": self.age}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.age = int(str(rest["age"]))
        for name, tensor in tensors.items():
            setattr(self, name, tensor.to(self.gram.device).clone())
        self.trace = self.inverse.trace()


class Recent:
    """The same F̃ = κI + RᵀR from its newest mini-batches, in slots of rows R = √c Φ (r, d), r < d.

    With M = κI + RRᵀ (r, r), Woodbury's formula is F̃⁻¹Rᵀ = RᵀM⁻¹ for rows that R holds, which loses no digits, and
    F̃⁻¹φ = (φ − RᵀM⁻¹Rφ)/κ for others; log|F̃| = (d − r) log κ + log|M| and tr F̃⁻¹ = (d − r)/κ + tr M⁻¹. ΦΦᵀ is kept as
    rows are, so that a step costs O(r³ + r|b|d) and memory is O(rd).

    What is left out is mini-batches that older ones have pushed out, of weight ∏(1 − b_t) together: `truncated`.

    Args:
        width: d
        slots: mini-batches that are held.
        batch: rows of a slot; smaller mini-batches leave zeros, which change nothing.
    """

    def __init__(self, width: int, slots: int, batch: int, device: torch.device) -> None:
        self.slots, self.batch, self.age = slots, batch, 0
        self.rows = torch.zeros(slots * batch, width, dtype=FLOAT, device=device)
        self.products = torch.zeros(slots * batch, slots * batch, dtype=FLOAT, device=device)
        self.weights = torch.zeros(slots, dtype=FLOAT)
        self.newest = slice(0, 0)

    def add(self, phi: Tensor, kept: float, weight: float) -> None:
        """F̃ − κI ← kept · (F̃ − κI) + weight · ΦᵀΦ, without the mini-batch that must go."""
        slot = self.age % self.slots
        self.age += 1
        self.weights *= kept
        self.weights[slot] = weight
        start = slot * self.batch
        self.newest, place = slice(start, start + len(phi)), slice(start, start + self.batch)
        self.rows[place] = 0.0
        self.rows[self.newest] = phi
        products = self.rows @ self.rows[place].T
        self.products[:, place] = products
        self.products[place] = products.T

    def determinant(self, phi: Tensor, kappa: Tensor, *, newest: bool) -> Determinant:
        """log|F̃|, F̃⁻¹φ_i, tr F̃⁻¹.

        Args:
            newest: whether φ are the rows that were added last.
        """
        roots = self.weights.sqrt().repeat_interleave(self.batch).to(phi.device)
        inner = regularised(self.products * roots * roots[:, None], kappa)
        lower = factorised(inner)
        inverse = torch.cholesky_inverse(lower)
        rest = self.rows.shape[1] - len(inner)
        if newest:
            root = math.sqrt(float(self.weights[(self.age - 1) % self.slots]))
            solved = (inverse[self.newest] * roots) @ self.rows / root
        else:
            along = (phi.to(FLOAT) @ self.rows.T) * roots
            solved = (phi - ((along @ inverse) * roots) @ self.rows) / kappa
        value = rest * kappa.log() + log_determinant(lower)
        return Determinant(value, solved.to(phi.dtype), rest / kappa + inverse.trace())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors = {"rows": self.rows.clone(), "products": self.products.clone(), "weights": self.weights.clone()}
        return tensors, {"age": self.age, "newest": [self.newest.start, self.newest.stop]}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.age = int(str(rest["age"]))
        newest = rest["newest"]
        assert isinstance(newest, list)
        self.newest = slice(int(str(newest[0])), int(str(newest[1])))
        self.rows.copy_(tensors["rows"])
        self.products.copy_(tensors["products"])
        self.weights.copy_(tensors["weights"])
