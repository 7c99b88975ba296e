"""Ridge regressions of many groups of steps at once, each with several memories: sums, and their solutions.

For the memory m of a group, with the forgetting factor c_m = 0.5^(steps passed / half_m),

    G ← c G + Σ v x xᵀ,   b ← c b + Σ v x z,   w = (G + λ S)⁻¹ b,   S = diag(penalty² · sd²)

where v is 1 over the group's size, so that λ counts rows. sd is that of the column within the memory, and at least 5 %
of its largest value, so that one which has hardly moved yet has no great coefficient. The last column is 1 and as good
as free. What is new waits in sums of its own until the regressions are solved again; so a failure changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.linalg.cholesky import solve

FLOOR = 0.05
"""Of a column's largest value, what its standard deviation counts as at least."""
FREE = 1e-3
"""Penalty of the constant column."""
OFTEN = 20.0
"""Times a memory is solved in one of its half-lives, at most."""
CLIP = 8.0
"""Standard deviations that a value of a column counts for at most: a glitch among the references bends nothing."""
YOUNG = 4
"""Rows a column until which the regressions are solved with every batch."""
OVERFLOW = "the sums of the regressions overflow"
INDEFINITE = "a Gram matrix is not positive definite"


class Sums(nn.Module):
    """M memories of G groups on d columns, the constant among them: (M + 1) G d² numbers.

    Args:
        sizes: (G,) steps of each group, T in all.
        penalties: (d − 1,) of the columns.
        halves: M half-lives in steps, the longest last.
        ridges: M values of λ, in rows.
        near: (G, G) what share of its sums each group lends to each other one; none where None.

    Attributes:
        weights: (M, G, d) the solutions.

    Example:
        >>> x = torch.tensor([[[1.0, 1.0], [2.0, 1.0], [4.0, 1.0]]]).double()
        >>> z = torch.tensor([[3.0, 5.0, 9.0]]).double()
        >>> sums = Sums([1], torch.ones(1).double(), halves=[1e6], ridges=[1e-6])
        >>> sums.add(x, z, torch.ones_like(z), passed=3, due=True)
        >>> sums.weights.round(decimals=2).tolist()  # z = 2 x + 1
        [[[2.0, 1.0]]]
    """

    def __init__(
        self,
        sizes: Sequence[int],
        penalties: Tensor,
        halves: Sequence[float],
        ridges: Sequence[float],
        near: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.halves, self.ridges = tuple(halves), tuple(ridges)
        runs, start, first = list[tuple[int, int, int, int]](), 0, 0
        for size, same in groupby(sizes):
            count = len(list(same))
            runs.append((start, size, first, count))
            start, first = start + size * count, first + count
        self.runs = runs
        """First column, size, first group and number of the groups of equal size that follow each other."""
        memories, groups, width = len(self.halves), len(sizes), len(penalties) + 1
        for name, size_of in {
            "gram": (memories, groups, width, width),
            "cross": (memories, groups, width),
            "count": (memories, groups),
            "weights": (memories, groups, width),
            "new_gram": (groups, width, width),
            "new_cross": (groups, width),
            "new_count": (groups,),
            "passed": (),
            "since": (memories,),
            "age": (),
            "largest": (groups, width),
        }.items():
            self.register_buffer(name, torch.zeros(size_of, dtype=FLOAT))
        self.register_buffer("penalties", penalties.clone())
        self.register_buffer("near", near, persistent=False)
        self.near: Tensor | None
        self.gram: Tensor
        self.cross: Tensor
        self.count: Tensor  # (M, G) rows, after forgetting
        self.weights: Tensor
        self.new_gram: Tensor
        self.new_cross: Tensor
        self.new_count: Tensor
        self.passed: Tensor  # () steps that the new sums span
        self.since: Tensor  # (M,) steps since each memory was solved
        self.age: Tensor  # () steps in all
        self.largest: Tensor  # (G, d) absolute values seen
        self.penalties: Tensor

    @property
    def width(self) -> int:
        """d"""
        return len(self.penalties) + 1

    @property
    def young(self) -> bool:
        """Whether there are so few rows that every one of them matters."""
        return bool(young(self.count, self.new_count, self.width))

    def add(self, x: Tensor, z: Tensor, weight: Tensor, passed: int, due: bool) -> None:
        """Learn N rows: `added`, at once."""
        self.added(x, z, weight, passed, due)()

    def added(self, x: Tensor, z: Tensor, weight: Tensor, passed: int, due: bool) -> Callable[[], None]:
        """Learn N rows when the result is called, so that a failure changes nothing. O(T N d²), and O(M G d³) to solve.

        Args:
            x: (T, N, d).
            z: (T, N) what is regressed.
            weight: (T, N), 0 where it is missing.
            passed: steps in time that the rows span.
            due: whether the regressions are solved.

        Raises:
            NotPositiveDefinite: numbers overflow, or a factorisation failed.
        """
        found = products(self.runs, x, z, weight)
        elapsed = float(self.passed) + passed
        pending = [self.new_gram, self.new_cross, self.new_count]
        new = [found.gram, found.cross, found.count]
        if self.passed:
            new = [part.add_(waiting) for part, waiting in zip(new, pending, strict=True)]
        largest = torch.maximum(found.largest, self.largest)
        if not bool(found.finite()):
            raise NotPositiveDefinite(OVERFLOW, hint="scale the columns")
        solved = self._solved(new, largest, elapsed) if due else []

        def keep() -> None:
            self.largest.copy_(largest)
            if not due:
                for waiting, part in zip(pending, new, strict=True):
                    waiting.copy_(part)
                self.passed.fill_(elapsed)
                return
            for m, (half, weights) in enumerate(zip(self.halves, solved, strict=True)):
                for total, part in zip((self.gram[m], self.cross[m], self.count[m]), new, strict=True):
                    torch.add(part, total, alpha=_kept(elapsed, half), out=total)
                self.since[m] += elapsed
                if weights is not None:
                    self.weights[m] = weights
                    self.since[m] = 0.0
            self.age += elapsed
            if self.passed:
                for waiting in (*pending, self.passed):
                    waiting.zero_()

        return keep

    def _solved(self, new: Sequence[Tensor], largest: Tensor, elapsed: float) -> list[Tensor | None]:
        """(G, d) the solution of every memory with the new sums; None where it is not due yet."""
        found, all_of_them, age = list[Tensor | None](), self.young, float(self.age) + elapsed
        for m, (half, ridge) in enumerate(zip(self.halves, self.ridges, strict=True)):
            if not all_of_them and float(self.since[m]) + elapsed < min(half, age) / OFTEN:
                found.append(None)
                continue
            old, kept = (self.gram[m], self.cross[m], self.count[m]), _kept(elapsed, half)
            gram, cross, count = (
                lent(self.near, torch.add(part, own, alpha=kept)) for part, own in zip(new, old, strict=True)
            )
            weights, failed = solution(gram, cross, count, largest, self.penalties, ridge)
            if bool(failed):
                raise NotPositiveDefinite(INDEFINITE, hint="raise ridge")
            found.append(weights)
        return found

    def bounds(self, shared: int = 1) -> Tensor | None:
        """(G, d) what a column counts for at most: `CLIP` standard deviations; None before any row.

        Args:
            shared: neighbouring groups that have their bounds in common.
        """
        if not bool(self.count[-1].any()):
            return None
        return bounds(self.gram[-1], self.count[-1], self.largest, shared)

    def deviation(self) -> Tensor:
        """(G, d) of the columns in the longest memory."""
        return deviation(self.gram[-1], self.count[-1], self.largest)

    def root(self) -> Tensor:
        """(G, d, d) lower Cholesky factors L of the longest memory's (G + λS), for draws of coefficients.

        Raises:
            NotPositiveDefinite: a factorisation failed.
        """
        unit = self.deviation().reciprocal()
        factor, failed = _factor(_scaled(self.gram[-1].clone(), unit), self.penalties, self.ridges[-1])
        if bool(failed):
            raise NotPositiveDefinite(INDEFINITE, hint="raise ridge")
        return factor / unit[:, :, None]


@dataclass(frozen=True)
class Products:
    """What rows add to the sums. gram: (..., G, d, d) Σ v x xᵀ, of whose upper right quarter nothing is read; cross:
    (..., G, d) Σ v x z; count: (..., G) Σ v; largest: (..., G, d) max |x|."""

    gram: Tensor
    cross: Tensor
    count: Tensor
    largest: Tensor

    def finite(self) -> Tensor:
        """(...) whether nothing overflowed."""
        diagonal = self.gram.diagonal(dim1=-2, dim2=-1)
        return torch.isfinite(self.cross).all(-1).all(-1) & torch.isfinite(diagonal).all(-1).all(-1)


def products(runs: Sequence[tuple[int, int, int, int]], x: Tensor, z: Tensor, weight: Tensor) -> Products:
    """What rows add to the sums; leading axes are separate models.

    Args:
        runs: of `Sums`.
        x: (..., T, N, d).
        z, weight: (..., T, N).
    """
    lead, (rows, width) = x.shape[:-3], x.shape[-2:]
    gram, half, parts = x.new_empty(*lead, runs[-1][2] + runs[-1][3], width, width), width // 2, []
    for start, size, first, count in runs:
        taken, steps = slice(start, start + size * count), size * rows
        own = x[..., taken, :, :].reshape(*lead, count, steps, width)  # neighbours in memory: no copy
        share = (weight[..., taken, :] / size).reshape(*lead, count, steps, 1)
        weighted = own * share
        found = gram[..., first : first + count, :, :]
        found[..., :half, :half] = weighted[..., :half].mT @ own[..., :half]
        found[..., :half, half:] = 0.0
        found[..., half:, :] = weighted[..., half:].mT @ own
        cross = (own * (share * z[..., taken, :].reshape(*lead, count, steps, 1))).sum(-2)
        parts.append((cross, share[..., 0].sum(-1), weighted.abs_().amax(-2) * size))
    cross, total, largest = (
        torch.cat(found, len(lead)) if len(found) > 1 else found[0] for found in zip(*parts, strict=True)
    )
    return Products(gram, cross, total, largest)


def young(count: Tensor, waiting: Tensor, width: int) -> Tensor:
    """(...) whether there are so few rows that every one of them matters.

    Args:
        count: (..., M, G) rows of the memories.
        waiting: (..., G) rows that are not among them yet.
        width: d.
    """
    return (count[..., -1, :] + waiting < YOUNG * width).any(-1)


def lent(near: Tensor | None, sums: Tensor, at: int = 0) -> Tensor:
    """Sums with what the other groups lend; the groups are the axis `at`, what is before are separate models."""
    return sums if near is None else (near @ sums.reshape(*sums.shape[: at + 1], -1)).view_as(sums)


def solution(
    total: Tensor, against: Tensor, rows: Tensor, largest: Tensor, penalties: Tensor, ridge: float
) -> tuple[Tensor, Tensor]:
    """(..., G, d) coefficients, and (...) whether a matrix has no factor.

    Args:
        total: (..., G, d, d), changed in place.
        against: (..., G, d).
        rows: (..., G).
        largest: (..., G, d).
        penalties: (d − 1,).
        ridge: λ.
    """
    unit = deviation(total, rows, largest).reciprocal()  # solved in columns of unit spread: better numbers
    factor, failed = _factor(_scaled(total, unit), penalties, ridge)
    return solve(factor, (against * unit)[..., None])[..., 0] * unit, failed


def _scaled(total: Tensor, unit: Tensor) -> Tensor:
    """(..., G, d, d) in columns divided by their spread, in place."""
    return total.mul_(unit[..., :, None]).mul_(unit[..., None, :])


def _factor(scaled: Tensor, penalties: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """(..., G, d, d) lower Cholesky factors of scaled Gram matrices and the ridge, and (...) whether one has none."""
    diagonal = scaled.diagonal(dim1=-2, dim2=-1)
    diagonal[..., :-1] += ridge * penalties.square()
    diagonal[..., -1] += FREE
    factor, failed = torch.linalg.cholesky_ex(scaled)
    return torch.as_tensor(factor), (failed != 0).any(-1)


def _kept(passed: float, half: float) -> float:
    """What is left of a row after so many steps."""
    return float(0.5 ** (passed / half))


def bounds(gram: Tensor, count: Tensor, largest: Tensor, shared: int = 1) -> Tensor:
    """(..., G, d) what a column counts for at most; see `Sums.bounds`.

    Args:
        gram, count: (..., G, d, d) and (..., G) of the longest memory.
        largest: (..., G, d).
        shared: neighbouring groups that have their bounds in common.
    """
    parts = gram.diagonal(dim1=-2, dim2=-1), gram[..., -1, :], count[..., None]
    squares, total, rows = (part.unflatten(-2, (-1, shared)).sum(-2) for part in parts)
    largest = largest.unflatten(-2, (-1, shared)).amax(-2)
    found = CLIP * _deviation(squares, total, rows[..., 0], largest)
    found = torch.where(largest > 0, found, torch.inf)  # what has always been 0 has no coefficient either
    return found.repeat_interleave(shared, -2)


def deviation(gram: Tensor, count: Tensor, largest: Tensor) -> Tensor:
    """(..., G, d) standard deviations of columns, at least `FLOOR` of the largest value; 1 where one is always 0.

    Args:
        gram: (..., G, d, d), with the constant last.
        count: (..., G) rows.
        largest: (..., G, d).
    """
    return _deviation(gram.diagonal(dim1=-2, dim2=-1), gram[..., -1, :], count, largest)


def _deviation(squares: Tensor, total: Tensor, count: Tensor, largest: Tensor) -> Tensor:
    """See `deviation`; squares, total: (..., G, d) sums of x² and x."""
    rows = count[..., None].clamp(min=1e-12)
    spread = (squares / rows - (total / rows).square()).clamp(min=0.0).sqrt()
    spread = torch.maximum(spread, FLOOR * largest)
    spread[..., -1] = 1.0
    return torch.where(spread > 0, spread, 1.0)
