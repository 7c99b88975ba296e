"""Bayesian linear regression on features, of one model or of K models at once: exact, additive, forgetting.

    y_t = φᵀw_t + ε,  w_t ~ N(m_t, S⁻¹) with S = diag(s),  ε ~ N(0, σ²)

Rows of weight v give the sums G = Σ v φφᵀ, b_t = Σ v φ y_t, Σ v y_t² and n = Σ v, and these the posterior of all T
columns (Bishop 2006, section 3.3):

    A = G/σ² + S,  w_t = A⁻¹(b_t/σ² + S m_t),  f(x) ~ N(φᵀw_t, φᵀA⁻¹φ)
    Σ v (y_t − φᵀw_t)² = Σ v y_t² − w_tᵀb_t − σ² w_tᵀS(w_t − m_t),  as Gw_t = b_t − σ²S(w_t − m_t)

So a batch of N rows is learned exactly in O(NP² + P³) a model, one Cholesky factor serves all columns, and forgetting
scales the sums and leaves the prior alone. s is 1 and m is 0 unless they are given. Unlike columns may have a σ² each,
and a factor for each value. What φ is, and how much of a function it misses, is the affair of a family: a basis of
inducing points (`models.svdgp.conjugate`), relevance vectors (`models.rvm.regression`), one basis that many series
share (`models.svdgp.shared_posterior`).

The functions here take `Held`, the tensors of K models with a leading axis K, and write into it; `Regression` is the
module of one model, and calls them with K = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Json
from streamgp.linalg.batched import add_gram
from streamgp.linalg.cholesky import cholesky, solve, whiten
from streamgp.linalg.levels import beside, factors, levels, parted
from streamgp.state import Declared, Field, fitting, pop

Held: TypeAlias = "dict[str, Tensor]"
"""Of K models: outer (K, P, P) G, of which the lower triangle counts; moment (K, P, T) b; square (K, T) Σ v y²; weight
(K,) n; root (K, P, P) the lower Cholesky factor of A; coefficients (K, P, T) w; residual (K, T) σ_t². The variance σ_t²
of the predictions is a column's own, σ² of the updates is common."""

LEAST = 1e-9
"""The least variance of a residual."""


def fresh(size: int, columns: int) -> Held:
    """Of one model with P = size features before any row, s = 1."""
    found = {name: torch.zeros(size, columns, dtype=FLOAT) for name in ("moment", "coefficients")}
    found |= {"outer": torch.zeros(size, size, dtype=FLOAT), "root": torch.eye(size, dtype=FLOAT)}
    found |= {"square": torch.zeros(columns, dtype=FLOAT), "residual": torch.ones(columns, dtype=FLOAT)}
    return found | {"weight": torch.zeros((), dtype=FLOAT)}


def absorb(held: Held, phi: Tensor, y: Tensor, weight: Tensor, kept: Tensor | None = None) -> None:
    """Add rows to the sums, after scaling these; O(NP²) a model.

    A missing target of a row that has others is replaced by its present prediction: this leaves the column's mean as it
    is. The row then weighs as much as its observed share, in the covariance that all columns have in common.

    Args:
        held: of K models; its sums are written in place. Where it has a count (K, T), Σ v of the rows in which a column
            was observed, that too.
        phi: (K, N, P)
        y: (K, N, T), NaN = not observed.
        weight: (K, N) how many rows each stands for.
        kept: (K,) part of the old sums that is kept; None is all.
    """
    sums = [held[name] for name in ("outer", "moment", "square", "weight", "count") if name in held]
    if kept is not None and not bool((kept == 1.0).all()):
        for part in sums:
            part.mul_(kept.view(-1, *[1] * (part.dim() - 1)))
    seen = torch.isfinite(y)
    y, weight = filled(y, weight, seen, lambda: phi @ held["coefficients"])
    share = weight[..., None]
    weighted = phi * share
    add_gram(held["outer"], weighted, phi)
    held["moment"].add_((y.mT @ weighted).mT)
    held["square"].add_((share * y.square()).sum(1))
    held["weight"].add_(share.sum((1, 2)))
    if "count" in held:
        held["count"].add_((share * seen).sum(1))


def filled(y: Tensor, weight: Tensor, seen: Tensor, mean: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Targets and weights of rows: what is missing is as predicted, and the row weighs as much as its observed share.

    Args:
        y: (..., N, T).
        weight: (..., N).
        seen: (..., N, T) where y is observed.
        mean: (..., N, T) the prediction; asked for where something is missing.
    """
    if bool(seen.all()):
        return y, weight
    return torch.where(seen, y, mean()), weight * seen.to(FLOAT).mean(-1)


def precision(outer: Tensor, noise: Tensor, prior: Tensor | None = None) -> Tensor:
    """(K, P, P) -> (K, P, P): A, of which the lower triangle counts.

    Args:
        outer: G.
        noise: () σ².
        prior: (P,) s; None is 1.
    """
    found = outer / noise
    found.diagonal(dim1=-2, dim2=-1).add_(1.0 if prior is None else prior)
    return found


def root(outer: Tensor, noise: Tensor, prior: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The lower Cholesky factors of A, (K, P, P), and (K,) 0 where there is one; O(P³) a model.

    Where P is a multiple of 8 they have the same bits whatever the other models are: LAPACK may round by where a matrix
    begins. Arguments as of `precision`.
    """
    upper, failed = torch.linalg.cholesky_ex(precision(outer, noise, prior).mT, upper=True)  # LAPACK's is column-major
    return upper.mT.contiguous(), failed


def settle(held: Held, noise: Tensor, prior: Tensor | None = None, mean: Tensor | None = None) -> None:
    """Coefficients and residual variances of the sums, given `root`; O(P²T) a model.

    Args:
        held: of K models; the two are replaced.
        noise: () σ².
        prior: (P,) s; None is 1.
        mean: (K, P, T) m; None is 0.
    """
    factor, moment = held["root"], held["moment"]
    right = moment / noise
    if mean is not None:
        right = right + _times(prior, mean)
    found = solve(factor, right).contiguous()
    moved = found if mean is None else found - mean
    fitted = (found * (moment + noise * _times(prior, moved))).sum(1)
    residual = (held["square"] - fitted) / held["weight"].clamp(min=1.0)[:, None]
    held["coefficients"], held["residual"] = found, residual.clamp(min=LEAST)


def finite(held: Held) -> Tensor:
    """(K,) whether the coefficients and the residual variances are."""
    return torch.isfinite(held["coefficients"]).flatten(1).all(1) & torch.isfinite(held["residual"]).all(1)


def loss(held: Held, noise: Tensor, prior: Tensor | None = None, mean: Tensor | None = None) -> Tensor:
    """(K,) negative log evidence a row and column, at σ² of the updates; O(P²T) a model. Arguments as of `settle`.

    ½ [(Σ v y² − mᵀb − wᵀ(b − Gm))/σ² + log|A| − log|S| + n log 2πσ²]/n, averaged over columns.
    """
    square, moment = held["square"], held["moment"]
    if mean is not None:
        gram = noise * (held["root"] @ (held["root"].mT @ mean) - _times(prior, mean))
        square, moment = square - (mean * moment).sum(1), moment - gram
    misfit = (square - (held["coefficients"] * moment).sum(1)).mean(1) / noise
    determinant = 2.0 * held["root"].diagonal(dim1=1, dim2=2).log().sum(1)
    if prior is not None:
        determinant = determinant - prior.log().sum()
    rows = held["weight"].clamp(min=1.0)
    return 0.5 * ((misfit + determinant) / rows + torch.log(2.0 * torch.pi * noise))


class AtLargest:
    """The field of a declaration for tensors that a checkpoint has at their largest shapes, with zeros after what is in
    use, and how many features that are; its key is "used". The tensors are replaced."""

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        own = self._of(owner)
        used = own.used
        for name, shape in own.shapes(max(own.capacity, used)).items():
            value = getattr(own, name)
            tensors[name] = value.new_zeros(shape)
            tensors[name][tuple(slice(n) for n in value.shape)] = value
        rest["used"] = used

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        own, used, found = self._of(owner), pop(rest, "used"), dict[str, Tensor]()
        if type(used) is not int or used < 0:
            raise ValueError(f"used is {used!r}, not a number of features")
        largest = own.shapes(max(own.capacity, used))
        for name, shape in own.shapes(used).items():
            whole = fitting(name, tensors.pop(name, None), getattr(own, name).new_empty(largest[name]))
            found[name] = whole[tuple(slice(n) for n in shape)].clone().to(own.noise.device)

        def put() -> None:
            for name, tensor in found.items():
                setattr(own, name, tensor)

        return put

    def _of(self, owner: object) -> Regression:
        assert isinstance(owner, Regression)
        return owner


class Regression(Declared, nn.Module):
    """Sums and posterior of T columns on P features of one model; Stateful. A family says what the features are.

    Args:
        columns: T.
        size: P at first.
        capacity: the largest P, which the state has room for.
        apart: whether columns have a noise each in the updates.

    Attributes:
        noise: () σ² of the updates, tempered; (T,) of columns with one each.
        root: (P, P) the lower Cholesky factor of A; (L, P, P) of the L levels of the noise.
        weight: () n, Σ of the weights of the rows learned, after forgetting.
        coefficients: (P, T) w.
        residual: (T,) σ_t² of the predictions.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> regression = Regression(columns=1, size=1, capacity=1)
        >>> regression.absorb(one.expand(3, 1), one.expand(3, 1), torch.ones(3).double())
        >>> regression.solve()
        >>> round(regression.mean(one).item(), 6), round(regression.known(one).item(), 6)
        (0.75, 0.25)
    """

    STATE: ClassVar[tuple[Field, ...]] = (AtLargest(),)
    SUMS: ClassVar[tuple[str, ...]] = ("outer", "moment", "square", "weight")
    replaces: ClassVar[bool] = True
    """No method changes a tensor in place: see `streamgp.fork`."""

    def __init__(self, columns: int, size: int, capacity: int, apart: bool = False) -> None:
        super().__init__()
        self.capacity = capacity
        self.outer: Tensor
        self.moment: Tensor
        self.square: Tensor
        self.weight: Tensor
        self.noise: Tensor
        self.root: Tensor
        self.coefficients: Tensor
        self.residual: Tensor
        for name, value in fresh(size, columns).items():
            self.register_buffer(name, value)
        self.register_buffer("noise", torch.ones((columns,) if apart else (), dtype=FLOAT))

    @property
    def prior(self) -> Tensor | None:
        """(P,) s, the precisions of the coefficients before any row; None is 1."""
        return None

    def empty(self, size: int, noise: Tensor) -> None:
        """Forget everything, and start with P = size features. noise: σ² of the updates, as the attribute."""
        columns, prior = self.moment.shape[1], self.prior
        for name, value in fresh(size, columns).items():
            setattr(self, name, value.to(noise.device))
        root = self.root if prior is None else torch.diag(prior.sqrt())
        self.root, self.noise = factors([root] * len(levels(noise))), noise
        self.residual = noise.expand(columns).clone()

    def holding(self) -> Callable[[], None]:
        """Hold on to all tensors as they are: no method changes one in place. Calling the result puts them back."""
        held = list(self.named_buffers())

        def put_back() -> None:
            for name, value in held:
                setattr(self, name, value)

        return put_back

    def sums(self) -> tuple[Tensor, ...]:
        """See `streamgp.online.summing.Additive`."""
        return tuple(getattr(self, name) for name in self.SUMS)

    def put(self, sums: tuple[Tensor, ...]) -> None:
        for name, value in zip(self.SUMS, sums, strict=True):
            setattr(self, name, value)

    def zero(self) -> None:
        self.put(tuple(torch.zeros_like(part) for part in self.sums()))

    def mean(self, phi: Tensor) -> Tensor:
        """(N, P) -> (N, T)"""
        return phi @ self.coefficients

    def known(self, phi: Tensor) -> Tensor:
        """(N, P) -> (N, 1), or (N, T) of columns with a noise each: φᵀA⁻¹φ, the variance of what the features span;
        O(NP²) a level."""
        return beside(self.noise, [whiten(root, phi.T).square().sum(0) for _, _, root in self.parts()])

    def absorb(self, phi: Tensor, y: Tensor, weight: Tensor, kept: float = 1.0) -> None:
        """Add rows to the sums, after scaling these by `kept`; `solve` makes them count. See the function `absorb`.

        Args:
            phi: (N, P)
            y: (N, T), NaN = not observed.
            weight: (N,) how many rows each stands for.
            kept: part of the old sums that is kept.
        """
        sums = dict(zip(self.SUMS, (part * kept for part in self.sums()), strict=True))  # `holding` has the old ones
        held = {name: part[None] for name, part in sums.items()}
        absorb(held | {"coefficients": self.coefficients[None]}, phi[None], y[None], weight[None])
        self.put(tuple(sums.values()))

    def solve(self) -> None:
        """The posterior of the sums, and each column's noise; O(P³ + P²T).

        Raises:
            NotPositiveDefinite: the sums are not finite.
        """
        self._factorise()
        coefficients, residual = torch.zeros_like(self.moment), torch.zeros_like(self.square)
        for noise, columns, root in self.parts():
            held = self._held(columns, root)
            settle(held, noise, self.prior)
            coefficients[:, columns], residual[columns] = held["coefficients"][0], held["residual"][0]
        self.coefficients, self.residual = coefficients, residual

    def loss(self) -> float:
        """Negative log evidence a row and column; see the function `loss`."""
        parts = [(loss(self._held(c, root), noise, self.prior), len(self.square[c])) for noise, c, root in self.parts()]
        return float(sum(value * count for value, count in parts)) / len(self.square)

    def determined(self) -> Tensor:
        """(T,) Σ_j (1 − s_j (A⁻¹)_jj), the effective degrees of freedom; O(P³) a level."""
        found = torch.zeros_like(self.square)
        for _, columns, root in self.parts():
            inverse = whiten(root, torch.eye(len(root), dtype=FLOAT, device=root.device)).square()
            share = inverse.sum(0) if self.prior is None else self.prior * inverse.sum(0)
            found[columns] = (1.0 - share).sum()
        return found

    def parts(self) -> list[tuple[Tensor, Tensor | slice, Tensor]]:
        """Of every level: () its noise, its columns, and (P, P) its factor."""
        return parted(self.noise, self.root)

    def restored(self) -> None:
        self._factorise()

    @property
    def used(self) -> int:
        """What `shapes` is asked with: features, or those of them that are not always there."""
        return len(self.coefficients)

    def shapes(self, used: int) -> dict[str, tuple[int, ...]]:
        """Of the tensors that a checkpoint has; `root` follows from them."""
        columns = self.moment.shape[1]
        return {
            "outer": (used, used),
            "moment": (used, columns),
            "square": (columns,),
            "weight": (),
            "noise": tuple(self.noise.shape),
            "coefficients": (used, columns),
            "residual": (columns,),
        }

    def _factorise(self) -> None:
        found = [cholesky(precision(self.outer, noise, self.prior), first=0.0).lower for noise, _ in levels(self.noise)]
        self.root = factors(found)

    def _held(self, columns: Tensor | slice, root: Tensor) -> Held:
        """Of these columns, as one model."""
        held = {"outer": self.outer, "weight": self.weight, "root": root, "square": self.square[columns]}
        held |= {"moment": self.moment[:, columns], "coefficients": self.coefficients[:, columns]}
        return {name: part[None] for name, part in held.items()}


def _times(prior: Tensor | None, values: Tensor) -> Tensor:
    """S values, (K, P, T)."""
    return values if prior is None else prior[:, None] * values
