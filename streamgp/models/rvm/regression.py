"""Bayesian linear regression on a fixed set of functions with their own precisions: exact, additive, forgetting.

y_t = Φw_t + noise, w_jt ~ N(0, 1/s_j):  A = ΦᵀΦ/σ² + diag(s),  μ_t = A⁻¹Φᵀy_t/σ²,  latent variance = φᵀA⁻¹φ. ΦᵀΦ, Φᵀy,
yᵀy and n are sums over rows, so a batch is learned exactly in O(N k² + k³), and forgetting scales the sums.

The columns share ΦᵀΦ. Where targets are missing, column t's own is ΦᵀMΦ, M its rows that are seen; a batch is then
learned by conjugate gradients on all columns at once, with the shared A as preconditioner (`learn`), O(N k T) a step.
On a stream the missing is taken as predicted, which moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Json
from streamgp.linalg.cholesky import whiten
from streamgp.optim.relevance import posterior

Rows: TypeAlias = Callable[[], Iterable[tuple[Tensor, Tensor, Tensor]]]
"""Parts of a batch, (φ, y, weight) each, as `Regression.absorb` takes them; called more than once."""
PASSES = 50
"""Steps at most of the conjugate gradients where targets are missing."""
CLOSE = 1e-6
"""Norm of what they leave, relative to where they began."""


class Regression(nn.Module):
    """Sums and posterior of T columns on k functions.

    Args:
        columns: T.
        capacity: the largest k, which the state has room for.

    Attributes:
        precision: (k,) s.
        noise: () σ² of the posterior; tempered.
        weight: () n, Σ of the weights of the rows learned, after forgetting.
        count: (T,) n_t, of the rows in which the column was observed.
        coefficients: (k, T) μ.
        residual: (T,) σ_t² of the predictions.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> regression = Regression(columns=1, capacity=4)
        >>> regression.begin(one[0], 1.0)
        >>> regression.absorb(one.expand(3, 1), one.expand(3, 1), torch.ones(3).double())
        >>> regression.solve()
        >>> regression.mean(one).item(), regression.variance(one).item()
        (0.75, 0.25)
    """

    def __init__(self, columns: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.precision: Tensor
        self.noise: Tensor
        self.outer: Tensor
        self.moment: Tensor
        self.square: Tensor
        self.weight: Tensor
        self.count: Tensor
        self.root: Tensor
        self.coefficients: Tensor
        self.residual: Tensor
        for name, value in {
            "precision": torch.zeros(0, dtype=FLOAT),
            "noise": torch.ones((), dtype=FLOAT),
            "outer": torch.zeros(0, 0, dtype=FLOAT),  # ΦᵀΦ
            "moment": torch.zeros(0, columns, dtype=FLOAT),  # Φᵀy
            "square": torch.zeros(columns, dtype=FLOAT),  # yᵀy
            "weight": torch.zeros((), dtype=FLOAT),
            "count": torch.zeros(columns, dtype=FLOAT),
            "root": torch.zeros(0, 0, dtype=FLOAT),  # chol A
            "coefficients": torch.zeros(0, columns, dtype=FLOAT),
            "residual": torch.ones(columns, dtype=FLOAT),
        }.items():
            self.register_buffer(name, value)

    def begin(self, precision: Tensor, noise: float) -> None:
        """Forget everything, and start with other functions. precision: (k,); noise: σ² of the posterior."""
        size, columns = len(precision), self.moment.shape[1]
        self.precision, self.noise = precision, precision.new_full((), noise)
        self.outer, self.moment = precision.new_zeros(size, size), precision.new_zeros(size, columns)
        self.square, self.weight = precision.new_zeros(columns), precision.new_zeros(())
        self.count = precision.new_zeros(columns)
        self.root, self.coefficients = torch.diag(precision.sqrt()), precision.new_zeros(size, columns)
        self.residual = precision.new_full((columns,), noise)

    def holding(self) -> Callable[[], None]:
        """Hold on to all tensors as they are: no method changes one in place. Calling the result puts them back."""
        held = list(self.named_buffers())

        def put_back() -> None:
            for name, value in held:
                setattr(self, name, value)

        return put_back

    def mean(self, phi: Tensor) -> Tensor:
        """(N, k) -> (N, T)"""
        return phi @ self.coefficients

    def variance(self, phi: Tensor) -> Tensor:
        """(N, k) -> (N,): φᵀA⁻¹φ, the same for all columns."""
        return whiten(self.root, phi.T).square().sum(0)

    def absorb(self, phi: Tensor, y: Tensor, weight: Tensor, kept: float = 1.0) -> None:
        """Add rows to the sums, after scaling these by `kept`. `solve` makes them count.

        A missing target of a row that has others is replaced by its present prediction: this leaves the column's mean
        as it is. The row then weighs as much as its observed share, in what all columns have in common.

        Args:
            phi: (N, k)
            y: (N, T), NaN = not observed.
            weight: (N,) how many rows each stands for.
            kept: part of the old sums that is kept.
        """
        seen = torch.isfinite(y)
        if not bool(seen.all()):
            y = torch.where(seen, y, self.mean(phi))
            weight = weight * seen.to(FLOAT).mean(1)
        self.count = self.count * kept + weight @ seen.to(FLOAT)
        weighted = phi * weight[:, None]
        self.outer = torch.addmm(self.outer, weighted.T, phi, beta=kept)
        self.moment = torch.addmm(self.moment, weighted.T, y, beta=kept)
        self.square = self.square * kept + (weight[:, None] * y.square()).sum(0)
        self.weight = self.weight * kept + weight.sum()

    def sums(self) -> tuple[Tensor, ...]:
        """See `streamgp.online.summing.Additive`."""
        return self.outer, self.moment, self.square, self.weight, self.count

    def put(self, sums: tuple[Tensor, ...]) -> None:
        self.outer, self.moment, self.square, self.weight, self.count = sums

    def zero(self) -> None:
        self.put(tuple(torch.zeros_like(part) for part in self.sums()))

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
        noise = float(self.noise)
        found = posterior(self.outer, self.moment, self.square, self.precision, noise)
        self.root, self.coefficients = found.lower, found.mean.contiguous()
        free = (1.0 - found.determined.sum() / self.weight.clamp(min=1e-9)).clamp(min=0.5) * self.count
        known = self.count > 1e-9
        self.residual = torch.where(known, found.residual / free.clamp(min=1e-9), self.residual).clamp(min=1e-9)

    def loss(self) -> float:
        """Negative log evidence a row and column, at the noise of the posterior (Tipping & Faul 2003, equation (5))."""
        noise, rows = float(self.noise), max(float(self.weight), 1.0)
        misfit = float((self.square - (self.coefficients * self.moment).sum(0)).mean()) / noise
        determinant = 2.0 * float(self.root.diagonal().log().sum()) - float(self.precision.log().sum())
        return 0.5 * ((misfit + determinant) / rows + math.log(2.0 * math.pi * noise))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """Everything at its largest shape, and how many functions are in use; `root` follows from the rest."""
        tensors = {}
        for name, shape in self._shapes(self.capacity).items():
            value = getattr(self, name)
            tensors[name] = value.new_zeros(shape)
            tensors[name][tuple(slice(n) for n in value.shape)] = value
        return tensors, {"functions": len(self.precision)}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        for name, shape in self._shapes(int(str(rest["functions"]))).items():
            setattr(self, name, tensors[name][tuple(slice(n) for n in shape)].clone().to(self.noise.device))
        self.root = posterior(self.outer, self.moment, self.square, self.precision, float(self.noise)).lower

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        columns = self.moment.shape[1]
        return {
            "precision": (size,),
            "noise": (),
            "outer": (size, size),
            "moment": (size, columns),
            "square": (columns,),
            "weight": (),
            "count": (columns,),
            "coefficients": (size, columns),
            "residual": (columns,),
        }
