"""Bayesian linear regression on fixed features, learned row by row: exact, additive, at a cost that stays what it is.

With features Z (N, d), targets Y (N, T), and row i of age a_i weighted by λ^a_i,

    G = ZᵀZ,  c = ZᵀY,  q = diag YᵀY,  n = Σ λ^a_i                           kept without the prior
    F = G + κI,  posterior mean F⁻¹c,  a = a₀ + n/2,  b = b₀ + ½ (q − diag cᵀF⁻¹c)
    y* ~ t_2a( φᵀF⁻¹c, (b/a) (1 + φᵀF⁻¹φ) )

the normal-inverse-gamma posterior of w_t | s_t² ~ N(0, s_t² I/κ), s_t² ~ IG(a₀, b₀) (Bishop 2006, exercise 3.12; Murphy
2012, section 7.6.3), in which all columns share F. With κ = s² the prior of the weights is N(0, I), and with φ the
features of a finite-dimensional kernel this is its GP posterior.

λ is a factor a row, also within a batch, so that how the rows are cut into batches changes nothing. Only data is
forgotten: where F itself is scaled, its prior decays too, and directions unseen for long lose all bounds.

What is kept is one of three:

    gram    G and c; F is factorised afresh when it is asked for: O(b d²) a batch, O(d³) a forecast
    root    the triangular root of [Z Y], whose condition number is that of Z and not its square; F's root is that of
            [Z; √κ I], by another triangular factorisation: the same orders, a small factor more
    factor  the triangular root of [√κ I 0; Z Y]: F's own, and nothing is left to factorise: O(b d²) a batch and nothing
            a forecast. It cannot forget
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.linalg import triangular
from streamgp.linalg.cholesky import cholesky, log_determinant, whiten
from streamgp.state import Declared, Parameters

Form: TypeAlias = Literal["gram", "root", "factor"]

A0 = 2.0
"""Shape of the noise prior: it counts for four rows, the fewest for which the variance of a forecast is finite."""


class RecursivePosterior(NamedTuple):
    """Of all columns, for unit noise.

    Attributes:
        lower: (d, d) triangular root of F.
        weights: (d, T) F⁻¹c.
        residual: (T,) q − diag cᵀF⁻¹c.
    """

    lower: Tensor
    weights: Tensor
    residual: Tensor


class RecursiveRegression(Declared, nn.Module):
    """See the module. Stateful; a forecast is a pure function of the state.

    Args:
        width: d.
        columns: T.
        form: what is kept.
        forgetting: λ, 0 < λ ≤ 1: the weight of a row one row later.

    Attributes:
        kappa: () κ.
        shape, rate: (T,) a₀ and b₀.
        count: (T,) n of each column: Σ λ^a over the rows in which it was observed.
        rows: () Σ λ^a over all rows.
        version: counts changes; nothing else.

    Raises:
        UsageError: λ out of range, or below 1 with form=factor.

    Example:
        >>> one = torch.ones(1, 1, dtype=FLOAT)
        >>> regression = RecursiveRegression(width=1, columns=1)
        >>> regression.begin(kappa=1.0)
        >>> regression.add(one.expand(3, 1), one.expand(3, 1))
        >>> regression.mean(one).item(), regression.leverage(one).item()
        (0.75, 0.25)
    """

    STATE = (Parameters(),)
    NOT_STATE: ClassVar = dict.fromkeys(("version", "_found"), "what was computed from the sums")

    kappa: Tensor
    shape: Tensor
    rate: Tensor
    count: Tensor
    rows: Tensor
    gram: Tensor  # (d, d) G
    cross: Tensor  # (d, T) c
    square: Tensor  # (T,) q
    root: Tensor  # (d + T, d + T) lower triangular root of what `form` says

    def __init__(self, width: int, columns: int, form: Form = "gram", forgetting: float = 1.0) -> None:
        super().__init__()
        if not 0.0 < forgetting <= 1.0:
            raise UsageError(f"a forgetting factor of {forgetting:g}", hint="use more than 0, and at most 1")
        if form == "factor" and forgetting < 1.0:
            raise UsageError("form=factor keeps the prior among the rows and cannot forget", hint="use gram or root")
        self.width, self.columns, self.form, self.forgetting = width, columns, form, forgetting
        sums = {"gram": (width, width), "cross": (width, columns), "square": (columns,)}
        own = sums if form == "gram" else {"root": (width + columns, width + columns)}
        prior = {"kappa": (), "shape": (columns,), "rate": (columns,)}
        for name, size in {**prior, "count": (columns,), "rows": (), **own}.items():
            self.register_buffer(name, torch.zeros(size, dtype=FLOAT))
        self.version = 0
        self._found: dict[float, RecursivePosterior] = {}
        self.begin(1.0)

    def begin(self, kappa: float, shape: float = A0, noise: Tensor | float = 1.0) -> None:
        """Forget everything, and start with another prior.

        Args:
            kappa: κ > 0.
            shape: a₀ > 1.
            noise: (T,) or a number, the prior mean of s², which sets b₀ = (a₀ − 1) s².
        """
        for buffer in self.buffers():
            buffer.zero_()
        self.kappa.fill_(kappa)
        self.shape.fill_(shape)
        self.rate.copy_((shape - 1.0) * torch.as_tensor(noise, dtype=FLOAT))
        if self.form == "factor":
            self.root[: self.width, : self.width].diagonal().fill_(kappa**0.5)
        self._changed()

    def sums(self) -> tuple[Tensor, ...]:
        """See `streamgp.online.summing.Additive`: of form=gram."""
        return tuple(part.clone() for part in self._sums())

    def put(self, sums: tuple[Tensor, ...]) -> None:
        for own, part in zip(self._sums(), sums, strict=True):
            own.copy_(part)
        self._changed()

    def zero(self) -> None:
        self.put(tuple(torch.zeros_like(part) for part in self._sums()))

    def _sums(self) -> tuple[Tensor, ...]:
        return self.gram, self.cross, self.square, self.count, self.rows

    def add(self, phi: Tensor, y: Tensor, weight: Tensor | None = None, *, together: bool = False) -> None:
        """Learn rows, in the order of their arrival. One without any target is left out.

        A missing target is taken as the mean says it is, before these rows: alone that leaves the column's weights and
        its residual sum of squares as they are, beside other rows it does so to first order. The row does not count
        in the column's n, while F, which the columns share, has it in full: the latent variance of such a column is a
        little small (T separate Gram matrices would avoid it).

        Args:
            phi: (N, d) finite.
            y: (N, T), NaN = not observed.
            weight: (N,) at least 0, how many rows each stands for; one without.
            together: nothing ages by these rows, neither what was before nor they by each other.
        """
        weights = phi.new_ones(len(phi)) if weight is None else weight.to(phi)
        seen = torch.isfinite(y)
        if not bool(seen.all()):
            some = seen.any(1)
            phi, y, weights, seen = phi[some], y[some], weights[some], seen[some]
            y = torch.where(seen, y, self.mean(phi))
        if not len(phi):
            return
        if self.forgetting < 1.0 and not together:
            self.forget(self.forgetting ** len(phi))
            ages = torch.arange(len(phi) - 1, -1, -1, dtype=FLOAT, device=phi.device)
            weights = weights * self.forgetting**ages
        self.count += weights @ seen.to(phi)
        self.rows += weights.sum()
        if self.form == "gram":
            weighted = phi * weights[:, None]
            self.gram.addmm_(weighted.T, phi)
            self.cross.addmm_(weighted.T, y)
            self.square += weights @ y.square()
        else:
            triangular.absorb(self.root, torch.cat((phi, y), 1) * weights.sqrt()[:, None], in_place=True)
        self._changed()

    def forget(self, factor: float) -> None:
        """Every row so far counts this part of what it did.

        Raises:
            UsageError: form=factor.
        """
        if factor == 1.0:
            return
        if self.form == "factor":
            raise UsageError("form=factor keeps the prior among the rows and cannot forget", hint="use gram or root")
        for value in (self.count, self.rows, *((self.gram, self.cross, self.square) if self.form == "gram" else ())):
            value *= factor
        if self.form == "root":
            self.root *= factor**0.5
        self._changed()

    @property
    def posterior(self) -> RecursivePosterior:
        """Of the rows so far; computed when it is first asked for.

        Raises:
            NotPositiveDefinite: form=gram, and F is not positive definite even with a jitter of 1e-4 of its diagonal.
        """
        return self.under(1.0)

    def under(self, times: float) -> RecursivePosterior:
        """The posterior under a prior precision of `times` · κ; see `posterior`.

        Raises:
            UsageError: form=factor, which has the prior among the rows, and times is not 1.
        """
        if times not in self._found:
            if times != 1.0 and self.form == "factor":
                raise UsageError("form=factor has one prior, among the rows", hint="use gram or root")
            kappa = times * float(self.kappa)
            self._found[times] = self._from_gram(kappa) if self.form == "gram" else self._from_root(kappa)
        return self._found[times]

    def _from_gram(self, kappa: float) -> RecursivePosterior:
        gram = self.gram.clone()
        gram.diagonal().add_(kappa)
        lower = cholesky(gram, first=0.0).lower
        half = whiten(lower, self.cross)
        weights = torch.linalg.solve_triangular(lower.T, half, upper=True)
        return RecursivePosterior(lower, weights, (self.square - half.square().sum(0)).clamp(min=0.0))

    def _from_root(self, kappa: float) -> RecursivePosterior:
        d = self.width
        root = self.root if self.form == "factor" else triangular.shifted(self.root, kappa, d)
        lower = root[:d, :d].contiguous()
        weights = torch.linalg.solve_triangular(lower.T, root[d:, :d].T, upper=True)
        return RecursivePosterior(lower, weights, root[d:, d:].square().sum(1))

    def mean(self, phi: Tensor) -> Tensor:
        """(N, d) -> (N, T)"""
        return phi @ self.posterior.weights

    def leverage(self, phi: Tensor) -> Tensor:
        """(N, d) -> (N,): φᵀF⁻¹φ, the latent variance over the noise; the same for all columns."""
        return whiten(self.posterior.lower, phi.T).square().sum(0)

    @property
    def freedom(self) -> Tensor:
        """(T,) 2a, degrees of freedom of the predictive."""
        return 2.0 * self.shape + self.count

    @property
    def noise(self) -> Tensor:
        """(T,) posterior mean of s², b/(a − 1): the variance of a forecast is `noise` (1 + leverage)."""
        return (2.0 * self.rate + self.posterior.residual) / (self.freedom - 2.0)

    def nlml(self, noise: Tensor | None = None) -> float:
        """Negative log marginal likelihood of the weighted rows, in nats, summed over columns; n is Σ λ^a.

        Known noise: ½ [(q − cᵀF⁻¹c)/s² + log|F| − d log κ + n log s² + n log 2π], which with κ = s² is the NLML of
        the kernel φ(x)ᵀφ(x'). (The number of rows in place of n would drive s² to nothing.) Without, s² is integrated
        out: ½ [log|F| − d log κ + n log 2π] + a log b − a₀ log b₀ + log Γ(a₀) − log Γ(a).

        Args:
            noise: (T,) s²; None where it is not known.
        """
        lower, _, residual = self.posterior
        common = log_determinant(lower) - self.width * self.kappa.log()
        n = self.count
        if noise is not None:
            parts = common + residual / noise + n * (noise.log() + math.log(2.0 * math.pi))
            return 0.5 * float(parts.sum())
        rate, shape = self.rate + 0.5 * residual, self.shape + 0.5 * n
        gamma = torch.lgamma(self.shape) - torch.lgamma(shape)
        known = shape * rate.log() - self.shape * self.rate.log() + gamma
        return float((0.5 * (common + n * math.log(2.0 * math.pi)) + known).sum())

    def draw(self, paths: int, generator: Generator, *, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Weights from the posterior, one set a path.

        Args:
            paths: P.
            generator: nothing else is random.
            noise: (T,) s², where it is known; otherwise each path has a draw of its own from IG(a, b).

        Returns:
            weights (P, d, T), and s² (P, T), the variance of the noise of each path.
        """
        lower, weights, residual = self.posterior
        size = (paths, *weights.shape)
        z = torch.randn(size, generator=generator, dtype=FLOAT, device=generator.device).to(weights.device)
        if noise is None:  # torch draws no gamma from a generator
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
            shape = (0.5 * self.freedom).cpu().numpy()
            gamma = np.random.default_rng(seed).gamma(shape, size=(paths, self.columns))
            variance = (self.rate + 0.5 * residual) / torch.from_numpy(gamma).to(residual.device)
        else:
            variance = noise.to(weights).expand(paths, self.columns)
        spread = torch.linalg.solve_triangular(lower.T, z, upper=True)
        return weights + variance.sqrt()[:, None] * spread, variance

    def restored(self) -> None:
        self._changed()

    def _changed(self) -> None:
        """What was computed is void."""
        self.version += 1
        self._found = {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._changed()
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call,no-any-return]
