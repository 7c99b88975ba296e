"""One linear regression of all series of a panel, and how much of it a series should believe.

Each series enters in its own units: z its standardised window with a 1 appended, t its truth beyond the reference over
the standard deviation of its target channel. The sums are ridge regression of the stacked panel,

    c = (I + Σ z zᵀ)⁻¹ Σ z tᵀ,

in which rows fade as they do in a series. c is the prior mean of the linear part of each series, whose own
coefficients are c + δ, δ ~ N(0, σ²G⁻¹/κ), G = Σ z zᵀ/N + ridge (Zellner's g-prior): κ rows of the series itself count
as much as the panel. 1/κ is the departure of a series, with the largest marginal likelihood of a sample of series, each
a linear regression with its own noise (empirical Bayes), plus 1/N, as c is no better known than from N rows.

No forecast rests on what came later in another series. Rows that are read at a time are learned some series after
others: their sums wait until the next rows are read, and before that serve only series that have come as far.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from streamgp.base import FLOAT, Json
from streamgp.linalg.cholesky import cholesky
from streamgp.regression.additive import Regression

Sums: TypeAlias = "tuple[Tensor, ...]"
"""Of `Regression.SUMS`."""

WITHIN = 10.0
"""Standard deviations: rows beyond are left out, so that no series whose units are off decides for all."""
STRENGTHS = 4.0 ** torch.arange(11, dtype=FLOAT)
"""Values of κ that are tried, rows."""
RIDGE = 1e-4
"""In G, of its mean diagonal."""
WAITING = 64
"""Sums that wait, at most; then two neighbours are added up, as of the later time."""
BEGUN = 1 - 2**63
"""Time that sums have which all series may use: before all others, and what a checkpoint may hold."""


class PendingSums(NamedTuple):
    """Sums of rows up to a time. kept: part of what was there before that is left beside them."""

    until: int
    sums: Sums
    kept: float


class PooledRegression:
    """Ridge regression of T columns on the rows of all series; Stateful.

    Args:
        width: W, columns of a standardised window.
        columns: T.
        device: where the sums live.

    Example:
        >>> pooled = PooledRegression(width=1, columns=1)
        >>> z = torch.linspace(-1, 1, 50).double()[:, None]
        >>> pooled.add(z, 3 * z + 1, z.new_ones(50), kept=1.0, until=7)
        >>> pooled.reach(6)
        >>> pooled.coefficients  # who has come to time 6 does not know of time 7
        >>> pooled.reach(7)
        >>> [round(value, 1) for value in pooled.coefficients[:, 0].tolist()]
        [2.8, 1.0]
    """

    def __init__(self, width: int, columns: int, device: torch.device | None = None) -> None:
        self._found = Regression(columns, width + 1, width + 1).to(device)  # of the last `reach`
        self._pending = [PendingSums(BEGUN, self._found.sums(), 1.0)]  # the first may be used by all, the others wait

    @property
    def coefficients(self) -> Tensor | None:
        """(W + 1, T) c, that of the constant last, as of the last `reach`; None before any row."""
        return self._found.coefficients if self._found.weight > 0 else None

    def add(self, z: Tensor, t: Tensor, weight: Tensor, kept: float, until: int) -> None:
        """Let the rows of some series wait; see `additive.absorb`.

        Args:
            z: (N, W) standardised windows.
            t: (N, T) truths in the units of c, NaN = not observed.
            weight: (N,) of each row.
            kept: part of the sums before that is left.
            until: time of the last truth among them.
        """
        z, before = with_one(z), self._found.sums()
        fair = (z.abs() <= WITHIN).all(1) & ((t.abs() <= WITHIN) | t.isnan()).all(1)
        self._found.zero()
        self._found.absorb(z[fair], t[fair], weight[fair])
        self._pending.append(PendingSums(until, self._found.sums(), kept))
        self._found.put(before)
        self._pending.sort(key=lambda one: one.until)
        if len(self._pending) > WAITING + 1:
            self._pending[-2:] = [total(self._pending[-2:])]

    def begin(self) -> None:
        """From here on all that was added may be used: the rows that follow are later in the stream."""
        self._pending = [total(self._pending)._replace(until=BEGUN)]

    def reach(self, time: int) -> None:
        """Find the coefficients of series that have come to this time."""
        self._found.put(total([one for one in self._pending if one.until <= time]).sums)
        self._found.solve()

    def spread(self) -> tuple[Tensor, float]:
        """(W + 1, W + 1) lower Cholesky factor of G, and N, of all rows that were added."""
        gram, *_, weight = total(self._pending).sums
        rows = max(float(weight), 1.0)
        mean = gram / rows
        identity = torch.eye(len(gram), dtype=FLOAT, device=gram.device)
        return cholesky(mean + RIDGE * mean.diagonal().mean().clamp(min=RIDGE) * identity, first=0.0).lower, rows

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = self._found.state()
        parts = zip(*(one.sums for one in self._pending), strict=True)
        tensors |= {f"pending.{name}": torch.stack(part) for name, part in zip(Regression.SUMS, parts, strict=True)}
        return tensors, rest | {"pending": [[one.until, one.kept] for one in self._pending]}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        about: Any = rest["pending"]
        self._found.restore({name: tensors[name] for name in self._found.shapes(0)}, {"used": rest["used"]})
        sums = zip(*(tensors[f"pending.{name}"].to(self._found.noise) for name in Regression.SUMS), strict=True)
        self._pending = [PendingSums(int(at), own, float(kept)) for (at, kept), own in zip(about, sums, strict=True)]


def total(pending: list[PendingSums]) -> PendingSums:
    """All sums as one, as of the last."""
    first, *more = pending
    for one in more:
        sums = tuple(old * one.kept + new for old, new in zip(first.sums, one.sums, strict=True))
        first = PendingSums(one.until, sums, first.kept * one.kept)
    return first


def with_one(z: Tensor) -> Tensor:
    """(..., W) -> (..., W + 1)"""
    return torch.cat((z, torch.ones_like(z[..., :1])), -1)


def strength(rests: list[tuple[Tensor, Tensor]], root: Tensor) -> float:
    """κ of the largest marginal likelihood of what the regression of all leaves of some series.

    With r = zᵀδ + ε, δ ~ N(0, σ²I/κ) after z ← L⁻¹z, ε ~ N(0, σ²) and the best σ² of each series and column, columns
    averaged:

        log p(r | κ) = −n/2 log(rᵀ(I + ZZᵀ/κ)⁻¹r / n) − ½ log|I + ZZᵀ/κ| + const

    Args:
        rests: of each series windows (n, W) and what is left of the truths (n, T), thinned until rows are about
            independent; NaN = not observed.
        root: (W + 1, W + 1) L, the lower Cholesky factor of G.

    Example:
        >>> z = torch.linspace(-1, 1, 50).double()[:, None]
        >>> noise = 0.1 * torch.sin(1e3 * z)
        >>> root = torch.eye(2).double()
        >>> strength([(z, noise), (z, -noise)], root), strength([(z, 3 * z + noise), (z, noise - 3 * z)], root)
        (1048576.0, 1.0)
    """
    total = torch.zeros_like(STRENGTHS)
    for z, r in rests:
        z, r = whitened(root, with_one(z)), torch.nan_to_num(r)
        values, vectors = torch.linalg.eigh(z.T @ z)
        values, energy = values.clamp(min=0.0), (vectors.T @ (z.T @ r)).square()  # (E,), (E, T)
        kappa = STRENGTHS.to(z)[:, None]  # (K, 1)
        square = r.square().sum(0)
        left = square - (1.0 / (values + kappa)) @ energy  # (K, T)
        fit = torch.log(torch.maximum(left, 1e-12 * square) / len(r) + 1e-300).mean(1)
        total += (-0.5 * len(r) * fit - 0.5 * torch.log1p(values / kappa).sum(1)).to(total)
    return float(STRENGTHS[total.argmax()])


def whitened(root: Tensor, z: Tensor) -> Tensor:
    """(N, W + 1) L⁻¹z"""
    found: Tensor = torch.linalg.solve_triangular(root, z.T, upper=False)
    return found.T
