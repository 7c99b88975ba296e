"""Sweeps made conjugate: the way of a sweep becomes a direction, and the error is minimised over the last of them.

A sweep of block Gauss–Seidel is one step of a linear iteration. Its increments D, made A-orthogonal to those before
with A = ΦᵀWΦ + σ²S, are the directions of a flexible conjugate gradient method (Notay 2000) whose preconditioner is the
sweep. All that is needed of A is free: ΦD is what the sweep changed in the residual.

ΦD has to be the image of D to many digits: along a direction where it is not, the minimum is anywhere, and μ and the
residual part for good. Hence both are summed up over the visits (differences of μ and of r before and after are
rounding, once sweeps have nearly converged), and what is lost in orthogonalising, which adds up from one direction to
the next, is accounted for. A column that has lost too much starts again from its latest sweep.

Columns have their own W_t, σ_t² and directions. Shapes: m features, R rows, T columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

TINY = 1e-300
ROUNDINGS = 64.0
"""Error of a sweep's ΦD relative to its size, in roundings of the dtype of the features."""


@dataclass
class Move:
    """A change of μ and what goes with it.

    Attributes:
        mu: (m, T) D.
        bent: (m, T) SD.
        image: (R, T) ΦD.
        weighted: (R, T) WΦD.
        square: (T,) DᵀAD.
        error: (T,) of ΦD, at most, in the units of the square's root.
    """

    mu: Tensor
    bent: Tensor
    image: Tensor
    weighted: Tensor
    square: Tensor = field(init=False)
    error: Tensor = field(init=False)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.mu, self.bent, self.image, self.weighted

    def inner(self, other: Move, noise: Tensor) -> Tensor:
        """(T,) DᵀAD'. noise: (T,) σ_t²."""
        return (self.weighted * other.image).sum(0) + noise * (self.bent * other.mu).sum(0)

    def slope(self, residual: Tensor, mu: Tensor, noise: Tensor) -> Tensor:
        """(T,) Dᵀ(ΦᵀWr − σ²Sμ)."""
        return (self.weighted * residual).sum(0) - noise * (self.bent * mu).sum(0)

    def plus(self, other: Move, length: Tensor) -> Move:
        """D + length D'. length: (T,)."""
        return Move(*(here + length * there for here, there in zip(self.parts, other.parts, strict=True)))

    def keep(self, columns: Tensor) -> None:
        """Make the other columns 0, in place. columns: (T,) bool."""
        for part in self.parts:
            part.mul_(columns)
        self.square, self.error = self.square * columns, self.error * columns


def conjugate(sweep: Move, before: list[Move], noise: Tensor, dtype: torch.dtype) -> Move:
    """The part of a sweep that is A-orthogonal to the moves before, which are to one another.

    In columns where that part is not known well enough, it is the whole sweep, and the moves before become 0.

    Args:
        dtype: of the features.

    Example:
        >>> one = torch.ones(1)
        >>> first = Move(*torch.tensor([[[1.0], [0.0]]] * 4).double())  # S and Φ are the identity, σ² = 1
        >>> second = Move(*torch.tensor([[[1.0], [1.0]]] * 4).double())
        >>> first = conjugate(first, [], one, torch.float64)
        >>> conjugate(second, [first], one, torch.float64).mu.T.tolist(), first.mu.T.tolist()
        ([[0.0, 1.0]], [[1.0, 0.0]])
        >>> conjugate(second, [first, conjugate(second, [first], one, torch.float64)], one, torch.float64).mu.T.tolist()
        [[1.0, 1.0]]
    """
    rounding = torch.finfo(dtype).eps
    sweep.square = sweep.inner(sweep, noise)
    sweep.error = ROUNDINGS * rounding * sweep.square.sqrt()
    move, error = sweep, sweep.error
    for other in before:
        length = other.inner(move, noise) / other.square.clamp(min=TINY)
        move, error = move.plus(other, -length), error + length.abs() * other.error
    square = move.inner(move, noise)
    good = error <= rounding**0.5 * square.sqrt()
    for other in before:
        other.keep(good)
    move = Move(*(torch.where(good, new, raw) for new, raw in zip(move.parts, sweep.parts, strict=True)))
    move.square, move.error = torch.where(good, square, sweep.square), torch.where(good, error, sweep.error)
    return move
