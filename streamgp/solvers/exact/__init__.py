"""The exact Gaussian process by Cholesky factorisations: O(T N³) time, O(N² + T N²) memory.

A row of weight w enters as a row of noise σ²/w (the likelihood N(y; f, σ²)^w is that, up to a factor free of f).
With D = diag(w), B_t = D^½ K D^½ + σ_t² I, ỹ = D^½ y and β = B_t⁻¹ ỹ

    NLML_t = ½ [ ỹᵀβ + log|B_t| − N log σ_t² + Σ_i w_i log 2πσ_t² ]
    ∂NLML_t/∂K = G_t = ½ D^½ (B_t⁻¹ − ββᵀ) D^½,    ∂NLML_t/∂σ_t² = ½ [ tr B_t⁻¹ − βᵀβ + (Σ w − N)/σ_t² ]

which for w = 1 is the usual one (Rasmussen & Williams 2006, eqs. 2.30 and 5.9; Al-Shedivat et al. 2017, eqs. 8 and
9, with the ½ that these drop). B_t stays well conditioned as weights go to 0. Row gradients are ∂NLML/∂h_i = Σ_t
⟨G_t, ∂K/∂h_i⟩: one backward pass through the kernel, with G held.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Generator, Tensor

from streamgp import solvers
from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels import Kernel
from streamgp.linalg.cholesky import cholesky, log_determinant, solve, whiten
from streamgp.solvers import attach
from streamgp.solvers.exact.draw import ExactDraw
from streamgp.state import Tensors

_BYTES = 1 << 29
"""Factors that are made at a time: 512 MB, or one column where one is larger."""
_ENTRIES = 1 << 24
"""Entries of L⁻¹k(H, h) that are made at a time: 128 MB."""


class Config(BaseModel):
    """The exact solver: keeps every row that it learns, so that the model must bound them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noise: float = Field(
        0.1, ge=1e-12, le=1e6, description="initial noise variance of every column, in squared standardised units"
    )
    floor: float = Field(1e-4, ge=1e-12, le=1, description="least noise variance, in squared standardised units")
    limit: int = Field(
        5000, ge=1, description="rows at most: memory is their square, time their cube, a column; a stream keeps half"
    )


class DenseRows(solvers.Data):
    """All rows, with their weights.

    Attributes:
        h: (N, d)
        y: (N, T)
        weight: (N,)
    """

    STATE = (Tensors("h", "y", "weight", grows=(0,)),)

    def __init__(self, dims: int, columns: int, limit: int, device: torch.device | None = None) -> None:
        self.limit = limit
        self.h = torch.zeros(0, dims, dtype=FLOAT, device=device)
        self.y = torch.zeros(0, columns, dtype=FLOAT, device=device)
        self.weight = torch.zeros(0, dtype=FLOAT, device=device)

    @property
    def rows(self) -> int:
        """N"""
        return len(self.weight)

    @property
    def count(self) -> float:  # type: ignore[override]
        """n, the sum of the weights."""
        return float(self.weight.sum())

    def add(self, h: Tensor, y: Tensor) -> None:
        """Keep N rows; O(N) and the copying of those kept.

        Raises:
            UsageError: there are more than `limit` then.
        """
        if (rows := self.rows + len(h)) > self.limit:
            raise UsageError(
                f"solver exact is asked to factorise {rows:,} rows, and takes {self.limit:,} at most",
                hint="use solver=kiss, train on fewer rows, or raise solver.limit if memory and patience allow",
            )
        self.h, self.y = torch.cat([self.h.to(h.device), h.detach()]), torch.cat([self.y.to(y.device), y])
        self.weight = torch.cat([self.weight.to(h.device), torch.ones(len(h), dtype=FLOAT, device=h.device)])

    def forget(self, kept: float) -> None:
        """Scale the weights."""
        self.weight = self.weight * kept


class DenseConditional(solvers.Conditional):
    """f given weighted rows; keeps T factors of N × N. See `solvers.Conditional`.

    The mean costs O(N (d + T)) a row, the variance O(T N²).
    """

    def __init__(self, kernel: Kernel, noise: Tensor, data: DenseRows) -> None:
        self._kernel = copy.deepcopy(kernel).requires_grad_(False)
        self.noise = self._noise = noise.detach().clone()
        self._h, self._root = data.h, data.weight.sqrt()
        gram = self._kernel(data.h, data.h)
        parts = list(_factorise(gram, data.y, self._root, self.noise))
        self._lower = torch.cat([part.lower for part in parts])  # (T, N, N)
        beta = torch.cat([part.beta for part in parts])  # (T, N)
        self._alpha = (beta * self._root).T  # (N, T) C⁻¹y
        fit = torch.cat([part.fit for part in parts])  # (T,) ỹᵀβ
        self._quadratic = fit - self.noise * beta.square().sum(1)  # (T,) αᵀK₀α

    @property
    def basis(self) -> int:
        """N"""
        return len(self._alpha)

    def mean(self, h: Tensor) -> Tensor:
        """k(h, H) α."""
        out: Tensor = self._kernel(h, self._h) @ self._alpha
        return out

    def variance(self, h: Tensor) -> Tensor:
        """k(h, h) − ‖L_t⁻¹ D^½ k(H, h)‖², not below 0; rows go in chunks of bounded memory."""
        chunk = max(1, _ENTRIES // max(1, self._lower.shape[0] * len(self._h)))
        return torch.cat([self._variance(part) for part in h.split(chunk)])

    def divergence(self) -> Tensor:
        """With K₀ = B − σ²I in the weighted rows: αᵀK₀α = ỹᵀβ − σ²βᵀβ, tr(C⁻¹K₀) = N − σ² tr B⁻¹; O(T N³)."""
        rows = len(self._h)
        inverse_trace = torch.stack([_inverse_trace(lower) for lower in self._lower])  # (T,) tr B⁻¹
        spread = log_determinant(self._lower) - rows * self._noise.log() - (rows - self._noise * inverse_trace)
        return 0.5 * (self._quadratic + spread)

    def draw(self, paths: int, generator: Generator) -> ExactDraw:
        """Functions by sequential conditioning: each keeps the points and values that it was asked for.

        A call costs, for each path and column, O(S N²) and O(S M²) after M points, and memory M (N + M).
        """
        return ExactDraw(self._kernel, self.mean, self.half, self.noise.shape[0], paths, generator)

    def half(self, h: Tensor) -> Tensor:
        """(N', d) -> (T, N, N'): V_t = L_t⁻¹ D^½ k(H, h), so that the posterior covariance is k(h, h') − V_tᵀV_t'."""
        cross = self._root[:, None] * self._kernel(self._h, h)
        return whiten(self._lower, cross.expand(self._lower.shape[0], *cross.shape))

    def _variance(self, h: Tensor) -> Tensor:
        """(N, d) -> (N, T)"""
        return (self._kernel.diagonal(h)[:, None] - self.half(h).square().sum(1).T).clamp(min=0.0)


class Exact(solvers.Solver):
    """See the module; `build` makes one.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> solver = build(Config(noise=0.5), squared_exponential.build(squared_exponential.Config(), 1), columns=1)
        >>> data = solver.data()
        >>> data.add(torch.zeros(1, 1, dtype=FLOAT), torch.ones(1, 1, dtype=FLOAT))
        >>> posterior = solver.condition(data)
        >>> at = torch.zeros(1, 1, dtype=FLOAT)
        >>> round(posterior.mean(at).item(), 6), round(posterior.variance(at).item(), 6)  # 1/(1 + ½), 1 − 1/(1 + ½)
        (0.666667, 0.333333)
    """

    def __init__(self, config: Config, kernel: Kernel, columns: int) -> None:
        super().__init__(kernel, columns, config.noise, config.floor)
        self.limit: int = config.limit

    def data(self) -> DenseRows:
        return DenseRows(self.kernel.dims, self.log_noise.shape[0], self.limit, self.log_noise.device)

    def nlml(self, data: solvers.Data) -> Tensor:
        """() by one factorisation a column; the gradient adds one inverse a column and no backward through it."""
        rows = _rows(data)
        return self.nlml_at(rows.h, rows.y, rows.weight)

    def nlml_at(self, h: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """() The NLML of N rows, differentiable in h as well as in θ and σ²: the joint full-batch objective.

        Args:
            h: (N, d), with a graph or without.
            y: (N, T)
            weight: (N,), 1 where left out.
        """
        gram, noise = self.kernel(h, h), self.noise
        found = self._evaluate(gram.detach(), y, _weights(h, weight), noise.detach())
        return attach(attach(found.value, gram, found.gram), noise, found.noise)

    def pair_gradient(self, data: solvers.Data) -> Tensor:
        """(N, N) G = Σ_t ∂NLML_t/∂K, entry by entry: what sub-matrix estimates sample; without graph."""
        rows = _rows(data)
        with torch.no_grad():
            gram = self.kernel(rows.h, rows.h)
        return self._evaluate(gram, rows.y, rows.weight, self.noise.detach(), gradient=True).gram

    def row_gradients(self, h: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """(N, d) ∂NLML/∂h_i at fixed θ and σ², all rows at once: the stale gradients of Algorithm 2."""
        with torch.enable_grad():
            at = h.detach().requires_grad_()
            gram = self.kernel(at, at)
            fixed = gram.detach()
            held = self._evaluate(fixed, y, _weights(at, weight).detach(), self.noise.detach(), gradient=True).gram
            (out,) = torch.autograd.grad(gram, at, held)
        return out

    def condition(self, data: solvers.Data) -> DenseConditional:
        with torch.no_grad():
            return DenseConditional(self.kernel, self.noise, _rows(data))

    def _evaluate(
        self, gram: Tensor, y: Tensor, weight: Tensor, noise: Tensor, *, gradient: bool | None = None
    ) -> _Evaluated:
        """Value and derivatives for a noise-free Gram matrix (N, N); the latter only where a graph wants them."""
        wanted = torch.is_grad_enabled() if gradient is None else gradient
        with torch.no_grad():
            root, rows, count = weight.sqrt(), len(y), weight.sum()
            total, slopes = torch.zeros((), dtype=gram.dtype, device=gram.device), []
            pairs = torch.zeros_like(gram) if wanted else gram
            for part in _factorise(gram, y, root, noise):
                own = part.noise
                constant = count * (math.log(2 * math.pi) + own.log()) - rows * own.log()
                total += 0.5 * (part.fit + log_determinant(part.lower) + constant).sum()
                if not wanted:
                    continue
                inverse = torch.cholesky_inverse(part.lower) if rows else part.lower  # (C, N, N)
                pairs += inverse.sum(0) - part.beta.T @ part.beta
                trace = inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
                slopes.append(0.5 * (trace - part.beta.square().sum(1) + (count - rows) / own))
            if wanted:
                pairs *= 0.5 * root[:, None] * root
            return _Evaluated(total, pairs, torch.cat(slopes) if wanted else noise)


def build(config: Config, kernel: Kernel, columns: int) -> Exact:
    """The solver of `columns` Gaussian processes that share `kernel`."""
    return Exact(config, kernel, columns)


class _Evaluated(NamedTuple):
    """() value, (N, N) and (T,) derivatives in K and in σ²."""

    value: Tensor
    gram: Tensor
    noise: Tensor


class _Part(NamedTuple):
    """C columns: (C, N, N) factors of B, (C, N) β, (C,) ỹᵀβ, (C,) σ²."""

    lower: Tensor
    beta: Tensor
    fit: Tensor
    noise: Tensor


def _factorise(gram: Tensor, y: Tensor, root: Tensor, noise: Tensor) -> Iterator[_Part]:
    """The factors of B_t = D^½ K D^½ + σ_t² I, as many columns at a time as memory allows."""
    eye = torch.eye(len(y), dtype=gram.dtype, device=gram.device)
    scaled, target = root[:, None] * gram * root, (root[:, None] * y).T  # (N, N), (T, N)
    chunk = max(1, _BYTES // max(1, gram.numel() * gram.element_size()))
    for own, right in zip(noise.split(chunk), target.split(chunk), strict=True):
        lower = cholesky(scaled + own[:, None, None] * eye, first=0.0).lower
        beta = solve(lower, right[:, :, None])[:, :, 0]
        yield _Part(lower, beta, (right * beta).sum(1), own)


def _inverse_trace(lower: Tensor) -> Tensor:
    """(N, N) -> (): tr (LLᵀ)⁻¹."""
    return whiten(lower, torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)).square().sum()


def _weights(h: Tensor, weight: Tensor | None) -> Tensor:
    return torch.ones(len(h), dtype=h.dtype, device=h.device) if weight is None else weight


def _rows(data: solvers.Data) -> DenseRows:
    """What this solver's `data` made."""
    assert isinstance(data, DenseRows), "data of another solver"
    return data
