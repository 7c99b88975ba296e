"""Regression on the functions that relevance selected, each with its own precision s (`regression.additive`).

The columns share ΦᵀΦ. Where targets are missing, column t's own is ΦᵀMΦ, M its rows that are seen; a batch is then
learned by conjugate gradients on all columns at once, with the shared A as preconditioner (`learn`), O(N k T) a step.
On a stream the missing is taken as predicted, which moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.evidence.thinned import by_evidence
from streamgp.regression.additive import LEAST, Regression

Rows: TypeAlias = Callable[[], Iterable[tuple[Tensor, Tensor, Tensor]]]
"""Parts of a batch, (φ, y, weight) each, as `RelevanceRegression.absorb` takes them; called more than once."""
PASSES = 50
"""Steps at most of the conjugate gradients where targets are missing."""
CLOSE = 1e-6
"""Norm of what they leave, relative to where they began."""


class RelevanceRegression(Regression):
    """Sums and posterior of T columns on k functions.

    Args:
        columns: T.
        capacity: the largest k, which the state has room for.
        apart: of `Regression`.

    Attributes:
        precision: (k,) s.
        count: (T,) n_t, of the rows in which the column was observed.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> regression = RelevanceRegression(columns=1, capacity=4)
        >>> regression.begin(one[0], 1.0)
        >>> regression.absorb(one.expand(3, 1), one.expand(3, 1), torch.ones(3).double())
        >>> regression.solve()
        >>> round(regression.mean(one).item(), 6), round(regression.known(one).item(), 6)
        (0.75, 0.25)
    """

    SUMS: ClassVar[tuple[str, ...]] = (*Regression.SUMS, "count")

    def __init__(self, columns: int, capacity: int, apart: bool = False) -> None:
        super().__init__(columns, 0, capacity, apart)
        self.precision: Tensor
        self.count: Tensor
        self.register_buffer("precision", torch.zeros(0, dtype=FLOAT))
        self.register_buffer("count", torch.zeros(columns, dtype=FLOAT))

    @property
    def prior(self) -> Tensor:
        return self.precision

    def begin(self, precision: Tensor, noise: float) -> None:
        """Forget everything, and start with other functions. precision: (k,); noise: σ² of the posterior."""
        self.precision, self.count = precision, precision.new_zeros(self.moment.shape[1])
        self.empty(len(precision), precision.new_full(self.noise.shape, noise))

    def learn(self, absorb: Callable[[], None], rows: Rows | None) -> None:
        """A whole batch after `begin`, and `solve`: with the missing as the posterior of the others predicts it.

        Args:
            absorb: takes the sums of the whole batch, and of nothing else.
            rows: the batch, where targets are missing in it.
        """
        absorb()
        self.solve()
        if rows is not None:
            self.coefficients = self._of_seen(rows)
            absorb()
            self.solve()

    def part(self, temper: float, outputs: int) -> None:
        """Give unlike targets a noise each, after `learn`: that of `by_evidence`, from the sums; O(k³).

        Args:
            temper: of the likelihood.
            outputs: targets, whose columns are side by side.
        """
        if outputs == 1 or not len(self.precision):
            return
        root, weight = self.precision.rsqrt(), self.weight / temper
        outer = (self.outer.tril() + self.outer.tril(-1).mT) * root * root[:, None] / temper
        values, vectors = torch.linalg.eigh(outer)
        squares = (vectors.mT @ (root[:, None] * self.moment / temper)).square()
        values = values.clamp(min=0.0)[:, None]

        def nats(noise: Tensor) -> Tensor:
            """() σ² -> (T,) twice the negative log evidence."""
            fit = self.square / temper - (squares / (values + noise)).sum(0)
            found: Tensor = weight * noise.log() + torch.log1p(values / noise).sum() + fit / noise
            return found

        self.noise = temper * by_evidence(self.noise[0] / temper, nats, outputs)
        self.solve()

    def _of_seen(self, rows: Rows) -> Tensor:
        """(k, T) μ with (ΦᵀMΦ/σ² + diag(s)) μ = ΦᵀMy/σ², the rows weighted as `absorb` does."""
        if not len(self.precision):
            return self.coefficients

        def image(mean: Tensor | None) -> Tensor:
            """ΦᵀMΦμ, or ΦᵀMy."""
            total = torch.zeros_like(self.moment)
            for phi, y, weight in rows():
                seen = torch.isfinite(y)
                value = torch.nan_to_num(y) if mean is None else phi @ mean * seen
                total += phi.T @ (value * (weight * seen.to(FLOAT).mean(1))[:, None])
            return total / self.noise

        mean = torch.zeros_like(self.moment)
        left = image(None)
        step = torch.cholesky_solve(left, self.root)
        size = begun = (left * step).sum(0)
        for _ in range(PASSES):
            if bool((size <= CLOSE**2 * begun).all()):
                break
            moved = image(step) + self.precision[:, None] * step
            length = size / (step * moved).sum(0).clamp(min=1e-300)
            mean, left = mean + length * step, left - length * moved
            solved = torch.cholesky_solve(left, self.root)
            before, size = size, (left * solved).sum(0)
            step = solved + size / before.clamp(min=1e-300) * step
        return mean

    def solve(self) -> None:
        """The posterior of the sums, and each column's noise Σ_n (y_t − φᵀμ_t)²/n_t(1 − Σγ/n) (Tipping 2001, (18)):
        what is missing is as predicted, and leaves nothing.
        """
        before, rows = self.residual, self.weight.clamp(min=LEAST)
        super().solve()
        free = (1.0 - self.determined() / rows).clamp(min=0.5) * self.count
        known = self.count > LEAST
        squares = self.residual * self.weight.clamp(min=1.0)
        self.residual = torch.where(known, squares / free.clamp(min=LEAST), before).clamp(min=LEAST)

    def shapes(self, used: int) -> dict[str, tuple[int, ...]]:
        return super().shapes(used) | {"precision": (used,), "count": (self.moment.shape[1],)}
