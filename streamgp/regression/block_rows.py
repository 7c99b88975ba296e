"""The rows that a linear system is made of: their features in blocks, what they stand for, and their residual.

Sweeps are made conjugate: the way of a sweep becomes a direction, and the error is minimised over the last of them.

A sweep of block Gauss–Seidel is one step of a linear iteration. Its increments D, made A-orthogonal to those before
with A = ΦᵀWΦ + σ²I, are the directions of a flexible conjugate gradient method (Notay 2000) whose preconditioner is the
sweep. All that is needed of A is free: ΦD is what the sweep changed in the residual.

ΦD has to be the image of D to many digits: along a direction where it is not, the minimum is anywhere, and μ and the
residual part for good. Hence both are summed up over the visits (differences of μ and of r before and after are
rounding, once sweeps have nearly converged), and what is lost in orthogonalising, which adds up from one direction to
the next, is accounted for. A column that has lost too much starts again from its latest sweep.

Columns have their own W_t, σ_t² and directions. Shapes: m features, R rows, T columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.features import Features

STRIP = 256
"""Columns of a Gram matrix that are computed at a time, from the diagonal down: 10/16 of the work at 1000 columns."""

CHUNK = 4096
"""Rows whose features are made at a time: what they are made from then stays small."""

TINY = 1e-300
ROUNDINGS = 64.0
"""Error of a sweep's ΦD relative to its size, in roundings of the dtype of the features."""


def gram(phi: Tensor, weight: Tensor) -> Tensor:
    """ΦᵀWΦ: its lower triangle, and 0 or values above it; summed in the dtype of Φ.

    Args:
        phi: (R, k)
        weight: (R,)

    Returns:
        (k, k) float64

    Example:
        >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([1.0, 3.0])).tril().tolist()
        [[1.0, 0.0], [2.0, 7.0]]
    """
    half = phi * weight.to(phi.dtype).sqrt()[:, None]
    out = torch.zeros(phi.shape[1], phi.shape[1], dtype=FLOAT, device=phi.device)
    for start in range(0, phi.shape[1], STRIP):
        stop = start + STRIP
        out[start:, start:stop] = half[:, start:].mT @ half[:, start:stop]
    return out


def thin(phi: Tensor, right: Tensor) -> Tensor:
    """Φ @ right for few columns, in the order of axes that BLAS is fast in: 7 times faster with 2 to 8 of them.

    Args:
        phi: (N, k)
        right: (k, T)

    Returns:
        (N, T)
    """
    return (right.mT.contiguous() @ phi.mT).mT


class BlockRows(nn.Module):
    """R rows with a residual r = y − Φμ that whoever moves μ keeps true.

    The buffers are the state. The inputs, cached features and factors are not: after loading, give `attach` the inputs.

    Args:
        x: (R, W), kept in `dtype`.
        y: (R, T), NaN = not observed, which then has no weight in its column.
        weight: (R,) or (R, T), not negative: how many rows each stands for, or the curvatures of a likelihood.
        dtype: of features.

    Attributes:
        target: (R, T) float64, 0 where not observed.
        residual: (R, T) float64.
        weight: (R,) or (R, T) float64, as given.
        observed: (R, T) bool.
        factors: block -> what is kept from one visit to the next.
        moves: directions of earlier sweeps, void when the rows change.
        sweeps: since the residual was computed from scratch; parts of a sweep count too.
    """

    NOT_STATE: ClassVar[Mapping[str, str]] = {"_held_for": "version of the features that are cached, and made again"}

    def __init__(self, x: Tensor, y: Tensor, weight: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.target: Tensor
        self.residual: Tensor
        self.weight: Tensor
        self.observed: Tensor
        seen = torch.isfinite(y)
        target = torch.where(seen, y, 0.0).to(FLOAT)
        self.register_buffer("target", target)
        self.register_buffer("residual", target.clone())
        self.register_buffer("weight", weight.to(FLOAT).clone())
        self.register_buffer("observed", seen)
        self.x: Tensor
        self.register_buffer("x", x.to(dtype), persistent=False)
        self.attach(x)

    def attach(self, x: Tensor) -> None:
        """Take these as the inputs, (R, W); what was cached is void."""
        self.x = x.to(self.dtype)
        self._held_for: tuple[int, ...] = ()
        self.follow(())

    def follow(self, version: tuple[int, ...]) -> None:
        """Drop what was cached of other features than those of this version."""
        if version and version == self._held_for:
            return
        self._held_for = version
        self.phi: dict[int, Tensor] = {}
        self._asked: set[int] = set()
        self._in_scratch = -1
        self.factors: dict[int, Tensor] = {}
        self._scratch: Tensor | None = None
        self.changed()

    def changed(self) -> None:
        """Forget what depends on weights and targets, but not factors: those only have to be near."""
        self._effective: Tensor | None = None
        self.moves: list[Move] = []
        self.sweeps = 0

    @property
    def inputs(self) -> Tensor:
        """(R, W) those that features are made of."""
        return self.x

    @property
    def fitted(self) -> Tensor:
        """(R, T) Φμ."""
        return self.target - self.residual

    @property
    def effective(self) -> Tensor:
        """(R,) the weights where every target is observed; else (R, T), 0 where not."""
        if self._effective is None:
            whole = bool(self.observed.all())
            own = self.weight if self.weight.ndim == 2 or whole else self.weight[:, None]
            self._effective = own if whole else own * self.observed
        return self._effective

    def weigh(self, values: Tensor) -> Tensor:
        """(R, T) -> (R, T): W_t v_t."""
        own = self.effective
        return values * (own if own.ndim == 2 else own[:, None])

    def total(self) -> Tensor:
        """(T,) n_t, the number of rows that each column stands for."""
        own = self.effective
        return own.sum(0) if own.ndim == 2 else own.sum().expand(self.target.shape[1])

    def shared(self, noise: Tensor) -> Tensor:
        """(R,) weights for the one factor of all columns: mean_t(W_t/σ_t²) / mean_t(1/σ_t²). noise: (T,) σ_t²."""
        own = self.effective
        return own if own.ndim == 1 else (own / noise).mean(1) / (1.0 / noise).mean()

    def features(self, features: Features, block: int, cached: int, *, keep: bool = False) -> Tensor:
        """(R, |b|) Φ_b; one of the first `cached` blocks is kept when it is asked for again, or at once with `keep`.

        Others are good until the next is asked for: touching new memory may cost more than the features.
        """
        if block in self.phi:
            return self.phi[block]
        if self._scratch is not None and self._in_scratch == block and not keep:
            return self._scratch
        x = self.inputs
        size = features.span(block).stop - features.span(block).start
        if keep or (block in self._asked and block < cached):
            phi = x.new_empty(len(x), size)
        else:
            self._in_scratch = -1
            if self._scratch is None or self._scratch.shape != (len(x), size):
                self._scratch = x.new_empty(len(x), size)
            phi = self._scratch
        for start in range(0, len(x), CHUNK):
            phi[start : start + CHUNK] = features.block(x[start : start + CHUNK], block)
        self._asked.add(block)
        if phi is self._scratch:
            self._in_scratch = block
        else:
            self.phi[block] = phi
        return phi

    def gram(self, phi: Tensor, weight: Tensor, limit: int) -> Tensor:
        """(|b|, |b|) ΦᵀWΦ, lower triangle, from `limit` of the rows that have weight, always the same ones.

        A quarter of them are those farthest from the middle, which stand for themselves; the others are drawn, and
        stand for all others. Few far rows have features that no drawn row has: without them, steps along these would
        be far too long.

        Args:
            phi: (R, |b|)
            weight: (R,)
        """
        used = (weight > 0).nonzero()[:, 0]
        if len(used) == len(phi) and len(phi) <= limit:
            return gram(phi, weight)
        if len(used) > limit:
            used, weight = self.some(used, weight, limit)
        return gram(phi[used], weight[used])

    def some(self, used: Tensor, weight: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        """`limit` of the rows `used`, and (R,) weights with which they stand for all of them."""
        x = self.x[used]
        order = (x - x.mean(0)).square().sum(1).argsort(descending=True, stable=True)
        far, near = used[order[: limit // 4]], used[order[limit // 4 :]]
        draws = torch.randperm(len(near), generator=torch.Generator().manual_seed(len(near)))
        drawn = near[draws[: limit - len(far)].to(near.device)]
        weight = weight.clone()
        weight[drawn] *= weight[near].sum() / weight[drawn].sum().clamp(min=TINY)
        return torch.cat((far, drawn)).sort().values, weight

    def replace(self, places: Tensor, x: Tensor, y: Tensor, weight: Tensor, fitted: Tensor) -> None:
        """Other rows in these places, with what μ says of them.

        Args:
            places: (B,) which.
            x: (B, W)
            y: (B, T), NaN = not observed.
            weight: (B,) or (B, T), as the rows have it.
            fitted: (B, T) Φμ.
        """
        seen = torch.isfinite(y)
        self.x = self.x.index_copy(0, places, x.to(self.dtype))  # a copy: the tensor was the caller's
        self.target[places] = torch.where(seen, y, 0.0).to(FLOAT)
        self.residual[places] = self.target[places] - fitted.to(FLOAT)
        self.weight[places], self.observed[places] = weight.to(FLOAT), seen
        self._asked.clear()
        self._in_scratch = -1
        self.phi.clear()  # not patched: a block of few rows may round differently, and a restored copy has to agree
        self.changed()

    def reweigh(self, weight: Tensor) -> None:
        """Other weights, in the shape of the old ones."""
        self.weight.copy_(weight)
        self.changed()

    def retarget(self, y: Tensor, weight: Tensor) -> None:
        """Working targets and weights, as a Newton or majorisation step sets them; Φμ stays what it is.

        Args:
            y: (R, T), NaN = not observed.
            weight: in the shape of the old ones.
        """
        fitted = self.fitted
        self.observed.copy_(torch.isfinite(y))
        self.target.copy_(torch.where(self.observed, y, 0.0))
        self.residual.copy_(self.target - fitted)
        self.reweigh(weight)


@dataclass
class Move:
    """A change of μ and what goes with it.

    Attributes:
        mu: (m, T) D.
        image: (R, T) ΦD.
        weighted: (R, T) WΦD.
        square: (T,) DᵀAD.
        error: (T,) of ΦD, at most, in the units of the square's root.
    """

    mu: Tensor
    image: Tensor
    weighted: Tensor
    square: Tensor = field(init=False)
    error: Tensor = field(init=False)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.mu, self.image, self.weighted

    def inner(self, other: Move, noise: Tensor) -> Tensor:
        """(T,) DᵀAD'. noise: (T,) σ_t²."""
        return (self.weighted * other.image).sum(0) + noise * (self.mu * other.mu).sum(0)

    def slope(self, residual: Tensor, mu: Tensor, noise: Tensor) -> Tensor:
        """(T,) Dᵀ(ΦᵀWr − σ²μ)."""
        return (self.weighted * residual).sum(0) - noise * (self.mu * mu).sum(0)

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
        >>> first = Move(*torch.tensor([[[1.0], [0.0]]] * 3).double())  # Φ is the identity, σ² = 1
        >>> second = Move(*torch.tensor([[[1.0], [1.0]]] * 3).double())
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
