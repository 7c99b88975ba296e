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
from typing import TypeAlias

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.linalg.batched import decayed
from streamgp.linalg.cholesky import solve
from streamgp.recalled import Recalls

FLOOR = 0.05
"""Of a column's largest value, what its standard deviation counts as at least."""
FREE = 1e-3
"""Penalty of the constant column."""
OFTEN = 20.0
"""Times a memory is solved in one of its half-lives, at most."""
CLIP = 8.0
"""Standard deviations that a value of a column counts for at most: a glitch among the references bends nothing."""
HUGE = 1e140
"""Values below which no sum of products overflows."""
YOUNG = 4
"""Rows a column until which the regressions are solved with every batch."""
OVERFLOW = "the sums of the regressions overflow"
INDEFINITE = "a Gram matrix is not positive definite"
HINTS = {OVERFLOW: "scale the columns", INDEFINITE: "raise ridge"}
SUMS = ("gram", "cross", "count")
GIVEN = ("penalties", "near")
LOOKED = ("gram", "count", "largest", "weights")

Held: TypeAlias = "dict[str, Tensor]"
"""Of K models: the buffers of `Sums` but for penalties and near, with a leading axis K."""


class Sums(Recalls, nn.Module):
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
    def held(self) -> Held:
        """The state, as that of one model of several: views of the buffers."""
        return {name: part[None] for name, part in self._buffers.items() if part is not None and name not in GIVEN}

    @property
    def shown(self) -> Held:
        """Of `held` what forecasts depend on."""
        return {name: part[None] for name, part in self._buffers.items() if part is not None and name in LOOKED}

    def add(self, x: Tensor, z: Tensor, weight: Tensor, passed: float, due: bool) -> None:
        """Learn N rows of one model: `added`, at once.

        Raises:
            NotPositiveDefinite: see `added`; nothing is changed.
        """
        (why,), keep = self.added(self.held, x[None], z[None], weight[None], [passed], [due])
        refuse(why)
        keep()

    # K models at once: `held` has the state of each, with a leading axis K.

    def young(self, held: Held) -> list[bool]:
        """(K,) whether there are so few rows that every one of them matters."""
        found: list[bool] = (held["count"][:, -1] + held["new_count"] < YOUNG * self.width).any(-1).tolist()
        return found

    def added(
        self,
        held: Held,
        x: Tensor,
        z: Tensor,
        weight: Tensor,
        passed: Sequence[float],
        due: Sequence[bool],
        copied: bool = False,
    ) -> tuple[list[str], Callable[[], set[str]]]:
        """Learn N rows when the result is called, so that a failure changes nothing. O(T N d²) a model, and O(M G d³)
        to solve it.

        Args:
            held: of K models.
            x: (K, T, N, d).
            z: (K, T, N) what is regressed.
            weight: (K, T, N), 0 where it is missing.
            passed: (K,) steps in time that the rows span.
            due: (K,) whether the regressions are solved.
            copied: `held` is a copy, of which a failure may change anything: sums move while they are near.

        Returns:
            (K,) why a model cannot learn, `OVERFLOW` or `INDEFINITE`, or ""; and what writes into `held`, and returns
            the names of what it leaves as it is.
        """
        if self.recalled is not None and not any(due) and (seen := unsolved(self.runs, x, z, weight)) is not None:
            largest = torch.maximum(seen, held["largest"])

            def look() -> set[str]:
                held["largest"].copy_(largest)
                return set()

            return [""] * len(due), look
        addition = _Addition(self, held, products(self.runs, x, z, weight), passed, due, copied)
        addition.solve()
        return addition.why, addition.keep

    def bounds(self, held: Held, shared: int = 1) -> Tensor:
        """(K, G, d) what a column counts for at most: `CLIP` standard deviations; infinite before any row.

        Args:
            held: of K models.
            shared: neighbouring groups that have their bounds in common.
        """
        gram, count, largest = held["gram"][:, -1], held["count"][:, -1], held["largest"]
        squares, total, rows = gram.diagonal(dim1=-2, dim2=-1), gram[..., -1, :], count
        if shared > 1:
            squares, total = (part.unflatten(-2, (-1, shared)).sum(-2) for part in (squares, total))
            rows, largest = rows.unflatten(-1, (-1, shared)).sum(-1), largest.unflatten(-2, (-1, shared)).amax(-2)
        found = CLIP * _deviation(squares, total, rows, largest)
        # what has always been 0 has no coefficient either
        found = torch.where((largest > 0) & count.any(1)[:, None, None], found, torch.inf)
        return found.repeat_interleave(shared, -2) if shared > 1 else found

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


class _Addition:
    """Rows on their way into the sums: what `Sums.added` does, of whose arguments it is made. found: what they add."""

    def __init__(
        self, sums: Sums, held: Held, found: Products, passed: Sequence[float], due: Sequence[bool], copied: bool
    ) -> None:
        self.sums, self.held, self.due, self.copied = sums, held, due, copied
        before = held["passed"].tolist()
        self.elapsed = [one + more for one, more in zip(before, passed, strict=True)]
        self.waiting = any(before)
        self.learned = [k for k, own in enumerate(due) if own]
        self.new = {name: getattr(found, name) for name in SUMS}
        for name, part in self.new.items() if self.waiting else ():
            part.add_(held[f"new_{name}"])
        self.largest = torch.maximum(found.largest, held["largest"])
        self.why = ["" if well else OVERFLOW for well in found.finite().tolist()]
        self.age, self.since = list[float](), list[list[float]]()
        self.solved = list[tuple[int, int, Tensor]]()

    def solve(self) -> None:
        """Solve each memory of the models that are due, where it is time; of a copy the sums move on the way."""
        if not self.learned:
            return
        held, sums, elapsed = self.held, self.sums, self.elapsed
        early, self.age, self.since = sums.young(held), held["age"].tolist(), held["since"].tolist()
        for k in self.learned:
            self.age[k] += elapsed[k]
            self.since[k] = [one + elapsed[k] for one in self.since[k]]
        for m, (half, ridge) in enumerate(zip(sums.halves, sums.ridges, strict=True)):
            if self.copied:
                self._move(m)
            late = [early[k] or self.since[k][m] >= min(half, self.age[k]) / OFTEN for k in self.learned]
            some = [k for k, own in zip(self.learned, late, strict=True) if own and not self.why[k]]
            if not some:
                continue
            kept = [_kept(elapsed[k], half) for k in some]
            gram, cross, count = (
                lent(sums.near, held[name][some, m] if self.copied else decayed(held[name][:, m], kept, part, some))
                for name, part in self.new.items()
            )
            weights, failed = solution(gram, cross, count, _of(self.largest, some), sums.penalties, ridge)
            for k, own, bad in zip(some, weights, failed.tolist(), strict=True):
                self.solved.append((k, m, own))
                self.why[k] = INDEFINITE if bad else self.why[k]

    def _move(self, m: int) -> None:
        """Bring the sums of a memory to now."""
        for name, part in self.new.items():
            for k in self.learned:
                total = self.held[name][k, m]
                torch.add(part[k], total, alpha=_kept(self.elapsed[k], self.sums.halves[m]), out=total)

    def keep(self) -> set[str]:
        """Write what was learned; the names of what stays as it is."""
        held, due = self.held, self.due
        held["largest"].copy_(self.largest)
        for m in range(0 if self.copied else len(self.sums.halves)):
            self._move(m)
        for k, m, weights in self.solved:
            held["weights"][k, m] = weights
            self.since[k][m] = 0.0
        left = [0.0 if own else more for own, more in zip(due, self.elapsed, strict=True)]
        more = (("since", self.since), ("age", self.age)) if self.learned else ()
        for name, values in (("passed", left), *more):
            held[name].copy_(self.largest.new_tensor(values))
        if not self.waiting and len(self.learned) == len(due):
            return {f"new_{name}" for name in self.new}
        for name, part in self.new.items():
            for k, own in enumerate(due):
                pending = held[f"new_{name}"][k]
                pending.zero_() if own else pending.copy_(part[k])
        return set()


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
        parts.append((cross, share[..., 0].sum(-1), _largest(own, share)))
    cross, total, largest = (
        torch.cat(found, len(lead)) if len(found) > 1 else found[0] for found in zip(*parts, strict=True)
    )
    return Products(gram, cross, total, largest)


def unsolved(runs: Sequence[tuple[int, int, int, int]], x: Tensor, z: Tensor, weight: Tensor) -> Tensor | None:
    """Of `products` only the largest values, which bounds depend on at once; None where sums might overflow."""
    lead, (rows, width) = x.shape[:-3], x.shape[-2:]
    parts = []
    for start, size, _, count in runs:
        taken, steps = slice(start, start + size * count), size * rows
        own = x[..., taken, :, :].reshape(*lead, count, steps, width)
        parts.append(_largest(own, weight[..., taken, :].reshape(*lead, count, steps, 1)))
    largest = torch.cat(parts, len(lead)) if len(parts) > 1 else parts[0]
    most = max(float(largest.max()), float(z.abs().max()))
    return largest if most < HUGE else None


def _largest(rows: Tensor, weight: Tensor) -> Tensor:
    """(..., N, d), (..., N, 1) -> (..., d) the largest absolute value of the rows that count."""
    return (rows * (weight > 0)).abs_().amax(-2)


def lent(near: Tensor | None, sums: Tensor) -> Tensor:
    """(K, G, ...) sums with what the other groups lend."""
    return sums if near is None else (near @ sums.reshape(*sums.shape[:2], -1)).view_as(sums)


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
    """What is left of a row after `passed` steps."""
    return float(0.5 ** (passed / half))


def _of(values: Tensor, some: list[int]) -> Tensor:
    """(K', ...) those of some models."""
    return values if len(some) == len(values) else values[some]


def refuse(why: str) -> None:
    """Raise what `Sums.added` says of a model, if anything.

    Raises:
        NotPositiveDefinite: numbers overflow, or a factorisation failed.
    """
    if why:
        raise NotPositiveDefinite(why, hint=HINTS[why])


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


def under(prefix: str, held: Held) -> Held:
    """Those whose names begin so, by the rest of their names.

    Example:
        >>> list(under("sums.", {"sums.gram": torch.zeros(1), "levels": torch.zeros(1)}))
        ['gram']
    """
    return {name.removeprefix(prefix): part for name, part in held.items() if name.startswith(prefix)}
