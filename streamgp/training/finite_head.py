"""The head that the optimisers of a finite-dimensional GP step on, and estimates of log|F| from mini-batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import cholesky, inverse_root, log_determinant
from streamgp.objectives.finite_evidence import (
    Determinant,
    Gradients,
    Statistics,
    factorised,
    gradients,
    regularised,
    ridge,
)
from streamgp.state import Declared, Tensors, Value

EVERY = 8
"""Mini-batches that use one factorisation: it costs O(d³), a mini-batch O(|b|d²), and F̃ forgets a tenth at a time."""


class FiniteHead(nn.Module):
    """Weights and noise of T columns on d features, float64. The features are no part of it.

    Without a floor on the noise the likelihood of a network that fits its rows has no bound.

    Args:
        width, columns: d, T.
        noise: σ² to begin with, in squared units of y; one for all columns.
        floor: below which σ² cannot fall, less than `noise`.

    Attributes:
        weights: (d, T), zeros at first.
        log_noise: (T,) σ² = floor + exp(log_noise).

    Example:
        >>> head = FiniteHead(3, 2, noise=0.5, floor=0.1)
        >>> head.noise.tolist(), head(torch.ones(4, 3, dtype=FLOAT)).shape
        ([0.5, 0.5], torch.Size([4, 2]))
    """

    def __init__(self, width: int, columns: int, noise: float = 0.1, floor: float = 1e-3) -> None:
        super().__init__()
        self.floor = floor
        self.weights = nn.Parameter(torch.zeros(width, columns, dtype=FLOAT))
        self.log_noise = nn.Parameter(torch.full((columns,), noise - floor, dtype=FLOAT).log())

    @property
    def noise(self) -> Tensor:
        """(T,) σ_t², squared units of y."""
        return self.log_noise.exp() + self.floor

    def forward(self, phi: Tensor) -> Tensor:
        """(n, d) -> (n, T) φᵀw."""
        out: Tensor = phi.to(FLOAT) @ self.weights
        return out


class Estimate(NamedTuple):
    """Of l per row from a mini-batch, with its gradients; all without graph.

    Attributes:
        value: () l̂/N, twice nats a row.
        phi: (|b|, d) gradient in the rows' features.
        weights, log_noise: (d, T), (T,) gradients in the head's parameters of these names.
    """

    value: Tensor
    phi: Tensor
    weights: Tensor
    log_noise: Tensor


class Estimator(Declared, ABC):
    """A mini-batch estimate of l, of one method; Stateful.

    Attributes:
        looks: whether it asks for all rows once an epoch (`begin`).
        ascends: whether it asks for independent mini-batches beside the others (`ascend`).
    """

    looks = False
    ascends = False

    def begin(self, data: Statistics, head: FiniteHead) -> None:
        """All rows at the present features, before an epoch."""
        del data, head

    @abstractmethod
    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        """What stands in for log|F| on these rows, and a step of what is kept of F.

        Args:
            phi: (|b|, d) finite, without graph; `rows` are of its dtype, factorisations float64.
            kappa: () κ
            total: N

        Raises:
            NotPositiveDefinite: what is kept of F could not be factorised.
        """

    def estimate(self, phi: Tensor, y: Tensor, head: FiniteHead, total: int) -> Estimate:
        """l̂/N and its gradients from a mini-batch, and a step of what is kept of F.

        Args:
            phi: (|b|, d) finite, without graph; factorisations are in float64.
            y: (|b|, T) finite.
            head: w and σ².
            total: N

        Raises:
            NotPositiveDefinite: what is kept of F could not be factorised.
        """
        with torch.no_grad():
            noise = head.noise
            part = self.determinant(phi, ridge(noise), total)
            found = gradients(phi, y.to(phi.dtype), head.weights, noise, part, total)
            return through_floor(found, noise, head)

    def ascend(self, phi: Tensor, head: FiniteHead, total: int) -> None:
        """A step on dual variables with a mini-batch (|b|, d) that is independent of the last estimate's."""
        del phi, head, total


def through_floor(found: Gradients, noise: Tensor, head: FiniteHead) -> Estimate:
    """An estimate from gradients in log σ², by the chain rule through σ² = floor + exp(log_noise)."""
    return Estimate(found.value, found.phi, found.weights, found.log_noise * (1.0 - head.floor / noise))


class HeldInverse(Estimator):
    """P = F⁻¹ as it was when the epoch began: exact over a partition of the rows as long as nothing moves.

    log|F| = min over P ≻ 0 of ⟨P, F⟩ − log|P| − d, at P = F⁻¹. It is linear in F, thus (N/|b|) Σ_b F_i in its place
    leaves all gradients unbiased. O(|b|d²) a step, O(d²) memory.

    Attributes:
        held: (d, d) P

    Example:
        >>> from streamgp.objectives.finite_evidence import statistics
        >>> phi, head = torch.eye(4, 2, dtype=FLOAT), FiniteHead(2, 1, noise=0.5, floor=0.0)
        >>> method = HeldInverse()
        >>> method.begin(statistics([(phi, torch.zeros(4, 1))]), head)
        >>> part = method.determinant(phi, torch.tensor(0.5, dtype=FLOAT), total=4)
        >>> round(float(part.value.exp()), 9), round(float(part.trace), 9)
        (2.25, 1.333333333)
    """

    STATE = (Tensors("held", grows=(0, 1)), Tensors("trace", "log_p"))

    looks = True

    def __init__(self) -> None:
        self.held = torch.zeros(0, 0, dtype=FLOAT)
        self.trace = self.log_p = torch.zeros((), dtype=FLOAT)

    def begin(self, data: Statistics, head: FiniteHead) -> None:
        """F⁻¹ of all rows.

        Raises:
            NotPositiveDefinite: F could not be factorised.
        """
        with torch.no_grad():
            root = inverse_root(cholesky(regularised(data.gram, ridge(head.noise)), first=0.0).lower)
            self.held, self.trace = root @ root.T, root.square().sum()
            self.log_p = 2.0 * root.diagonal().log().sum()

    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        """⟨P, (N/|b|) Σ_b F_i⟩ − log|P| − d and its parts."""
        rows = phi @ self.held.to(phi.dtype)
        value = kappa * self.trace - self.log_p - len(self.held) + total / len(phi) * (rows * phi).sum()
        return Determinant(value, rows, self.trace)


class Scgd(Estimator):
    """SCGD: log|F| by the gradient at a moving average F̃ of its mini-batch estimates (Shoham & Avron, section 3.2).

        F̃ ← (1 − b) F̃ + b (N/|b|) Σ_b F_i,   F_i = φ_iφ_iᵀ + (κ/N) I,   P = F̃⁻¹ held

    The estimate of the gradient is biased at any finite b, and exact as b → 0 with features that stand still. With b
    near 1 F̃ is κI and a few mini-batches. O(d²) memory; O(|b|d²) a step, and O(d³) every `EVERY`-th.

    Departures. κ is kept apart: F̃ = G̃ + κI with the present κ and the moving average G̃ of (N/|b|) ΦᵀΦ, so that steps
    on the noise are not lagged. The average begins as a plain mean, b_t = max(b, 1/t): no step sees a start that was
    made up. The paper prints the step on θ before F̃ takes in its mini-batch; here it is taken in first, so that a row
    never meets an F̃ without it, which at b = 0.9 has rank |b|/d only.

    Args:
        b: weight of a mini-batch in the moving average.

    Attributes:
        seen: mini-batches so far.
        gram: (d, d) G̃

    Example:
        >>> method, phi = Scgd(0.1), torch.eye(4, 2, dtype=FLOAT)
        >>> part = method.determinant(phi, torch.tensor(0.5, dtype=FLOAT), total=4)
        >>> round(float(part.value.exp()), 9), round(float(part.trace), 9)
        (2.25, 1.333333333)
    """

    STATE = (Value("seen", int), Tensors("gram", "inverse", grows=(0, 1)), Tensors("log_determinant"))

    def __init__(self, b: float) -> None:
        self.b, self.seen = b, 0
        self.gram = self.inverse = torch.zeros(0, 0, dtype=FLOAT)
        self.log_determinant = self.trace = torch.zeros((), dtype=FLOAT)

    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        """log|F̃|, F̃⁻¹φ_i and tr F̃⁻¹."""
        if not len(self.gram):
            self.gram = torch.zeros(phi.shape[1], phi.shape[1], dtype=FLOAT, device=phi.device)
        b, rows = max(self.b, 1.0 / (self.seen + 1)), phi.to(FLOAT)
        self.gram.addmm_(rows.T, rows, beta=1.0 - b, alpha=b * total / len(phi))
        if self.seen % EVERY == 0:
            lower = factorised(regularised(self.gram, kappa))
            # contiguous, as a checkpoint gives it back: BLAS may round otherwise for another layout
            self.inverse = torch.cholesky_inverse(lower).contiguous()
            self.log_determinant, self.trace = log_determinant(lower), self.inverse.trace()
        self.seen += 1
        return Determinant(self.log_determinant, phi @ self.inverse.to(phi.dtype), self.trace)

    def restored(self) -> None:
        self.trace = self.inverse.trace()
