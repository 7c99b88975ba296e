"""Hyper-parameters of a grouped radial kernel, and the kernel itself, by the evidence of thinned rows.

k(x, x') = ρ² c(Σ_g d_g/ℓ_g²), with d_g the mean squared difference of the columns in group g of a standardised window:
one lengthscale for all lags (or steps ahead) of a channel. c is a kernel's `profile`, by default e^−s/2.

Minimised is ½ tr(YᵀA⁻¹Y)/T + ½ log|A| + ½ Σ_g (log ℓ_g − 1)², A = ρ²c + σ²I: the evidence of one average column, with a
lengthscale prior. Rows that overlap in time would let it explain each row by its neighbours and the noise collapse:
thin them. The gradient is in closed form; since c depends on one distance, its derivatives in all lengthscales are two
matrix products, O(n² W). Where the groups are few beside the columns, the d_g are kept instead: O(n² G).

L-BFGS comes in 20 evaluations to where Adam is after 60, which matters as an evaluation is O(n³). It is given a floor
of the noise: without it, it goes to nothing on data that a rough kernel interpolates, and a solver that is given such a
noise does not converge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.evidence import minimise
from streamgp.evidence.minimise import HUGE
from streamgp.kernels import Stationary
from streamgp.linalg.cholesky import cholesky, solve

Profile: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""`Stationary.profile` of a radial kernel: s -> c(s), −2 c'(s)."""

LENGTHSCALE = 1.0
"""Mean of the prior of log ℓ_g; its standard deviation is 1."""
START_NOISE = -2.3
"""Where log σ² starts, for targets of unit variance; from σ² = 1 the function's own variance would collapse."""
JITTER = 1e-6
FLOOR = 1e-3
"""Least σ² of a search by L-BFGS, in units of the standardised target's variance."""
FEW = 400
"""Rows on which kernels and noises are compared, evenly spread."""
LEFT = 30
"""Rows that show noises."""
STEP, LOWEST, HIGHEST = 4.0, -9, 3
"""A target's own noise is the common one times a power of `STEP` between these."""
GROUPED = 8
"""Columns a group, on average, from which on distances are kept by group."""
BOUND = 12.0
"""Of the logarithms in a search by Adam."""
CLEAR = 1.0
"""ρ²/σ² from which on Adam tries no further start."""


class LogHyper(NamedTuple):
    """Logarithms of the hyper-parameters.

    Attributes:
        lengthscale: (G,) log ℓ.
        outputscale: () log ρ², in units of the standardised target's variance.
        noise: () log σ².
    """

    lengthscale: Tensor
    outputscale: Tensor
    noise: Tensor

    @property
    def signal(self) -> float:
        """ρ²/σ²."""
        return float((self.outputscale - self.noise).exp())

    def pack(self) -> Tensor:
        """(G + 2,)"""
        return torch.cat((self.lengthscale, torch.stack((self.outputscale, self.noise))))

    @classmethod
    def unpack(cls, packed: Tensor) -> LogHyper:
        """The inverse of `pack`."""
        return cls(packed[:-2], packed[-2], packed[-1])

    @classmethod
    def start(cls, groups: int, length: float = LENGTHSCALE) -> LogHyper:
        """Where an estimation starts, with this log ℓ and ρ² = 1."""
        scalars = torch.tensor([0.0, START_NOISE], dtype=FLOAT)
        return cls.unpack(torch.cat((torch.full((groups,), length, dtype=FLOAT), scalars)))


class Evaluation(NamedTuple):
    """Hyper-parameters, and the penalised negative log evidence there."""

    hyper: LogHyper
    value: float


class ChosenHyper(NamedTuple):
    """What `choose` chose.

    Attributes:
        kernel: its place among those offered.
        hyper: on all the rows.
        value: penalised negative log evidence a row, on all the rows.
    """

    kernel: int
    hyper: LogHyper
    value: float


def smooth(squares: Tensor) -> tuple[Tensor, Tensor]:
    """The profile of the squared exponential kernel."""
    correlation = (-0.5 * squares).exp_()
    return correlation, correlation


class Evidence:
    """The penalised negative log evidence of n rows, and its gradient.

    Args:
        x: (n, W) standardised rows, float64.
        y: (n, T) standardised targets, none missing.
        groups: (W,) the group of each column, 0 … G − 1.
        profile: c and −2 c' of the squared scaled distance.
        spread: prior standard deviation of log ℓ_g around their mean, which is free (a hierarchical prior, for many
            columns of one kind); None: log ℓ_g ~ N(1, 1) independently.
        floor: least σ²; 0: none.
    """

    def __init__(
        self, x: Tensor, y: Tensor, groups: Tensor, profile: Profile, spread: float | None = None, floor: float = FLOOR
    ) -> None:
        self.x, self.y, self.groups, self.profile = x, y, groups, profile
        self.spread, self.floor = spread, floor
        self.sizes = torch.bincount(groups).to(x.dtype)
        self._squares = x.new_empty(len(x), len(x))
        self._apart = self._by_group() if GROUPED * len(self.sizes) <= x.shape[1] else None

    def _by_group(self) -> Tensor:
        """(G, n²) d_g of all pairs."""
        found = self.x.new_zeros(len(self.sizes), len(self.x), len(self.x))
        for g, squares in enumerate(found):
            own = self.x[:, self.groups == g]
            _squared(own / self.sizes[g].sqrt(), squares)
        return found.flatten(1)

    def pack(self, hyper: LogHyper) -> Tensor:
        """(G + 2,) log ℓ, log ρ², log(σ² − floor); a noise that is at the floor is lifted by a tenth of it."""
        rest = (hyper.noise.exp() - self.floor).clamp(min=0.1 * self.floor)
        return torch.cat((hyper.lengthscale, torch.stack((hyper.outputscale, rest.log())))).to(self.x)

    def unpack(self, packed: Tensor) -> LogHyper:
        """The inverse of `pack`."""
        return LogHyper(packed[:-2], packed[-2], (packed[-1].exp() + self.floor).log())

    def __call__(self, packed: Tensor) -> tuple[float, Tensor]:
        """The value and its gradient, (G + 2,)."""
        length, scale, rest = packed[:-2], packed[-2].exp(), packed[-1].exp()
        columns, rows = self.y.shape[1], len(self.x)
        z, weight = self.x, torch.exp(-2.0 * length)
        if self._apart is None:
            z = self.x * (torch.exp(-length) / self.sizes.sqrt())[self.groups]
            squares = _squared(z, self._squares)
        else:
            torch.mm(weight[None], self._apart, out=self._squares.view(1, -1))
            squares = self._squares
        correlation, fall = self.profile(squares)
        a = torch.mul(correlation, scale, out=self._squares)
        a.diagonal().add_(rest + self.floor + JITTER)
        try:
            lower = cholesky(a, first=0.0).lower
        except NotPositiveDefinite:
            return HUGE, torch.zeros_like(packed)
        alpha = solve(lower, self.y)
        fit = (self.y * alpha).sum() / columns
        off = length - (LENGTHSCALE if self.spread is None else length.mean())
        tight = 1.0 if self.spread is None else self.spread**-2
        value = 0.5 * fit + lower.diagonal().log().sum() + 0.5 * tight * off.square().sum()
        inverse = torch.cholesky_inverse(lower, out=self._squares)
        trace = inverse.diagonal().sum() - alpha.square().sum() / columns  # of 2Q = A⁻¹ − αα′/T
        signal = rows - fit - (rest + self.floor + JITTER) * trace  # ⟨2Q, ρ²c⟩, from ⟨2Q, A⟩ = n − fit
        twice = inverse.addmm_(alpha, alpha.mT, alpha=-1.0 / columns).mul_(fall).mul_(scale)
        if self._apart is None:
            each = (twice.sum(1)[:, None] * z.square()).sum(0) - ((twice @ z) * z).sum(0)
            slope = torch.zeros_like(length).index_add_(0, self.groups, each)
        else:
            slope = 0.5 * weight * (self._apart @ twice.flatten())
        slope = slope + tight * off
        return float(value), torch.cat((slope, torch.stack((0.5 * signal, 0.5 * rest * trace))))


def _squared(z: Tensor, out: Tensor) -> Tensor:
    """(n, W) -> (n, n) squared distances, in `out`."""
    size = z.square().sum(1)
    torch.mm(z, z.mT, out=out).mul_(-2.0).add_(size).add_(size[:, None]).clamp_(min=0.0)
    return out.fill_diagonal_(0.0)  # matrix products are off by 1e-16 ‖z‖², which a root makes 1e-8


def start(groups: int) -> LogHyper:
    """ℓ = √G, so that rows at a typical distance correlate."""
    return LogHyper.start(groups, 0.5 * math.log(groups))


def noises(
    x: Tensor,
    y: Tensor,
    groups: Tensor,
    hyper: LogHyper,
    outputs: int,
    *,
    profile: Profile = smooth,
    least: float = 0.0,
) -> Tensor:
    """σ² of each column where targets are unlike: the common one times the power of `STEP` with the best evidence.

    With the eigenvalues d and vectors U of ρ²c the evidence of a column costs O(n) a noise: ½ Σ (Uᵀy)²/(d + σ²) +
    ½ Σ log(d + σ²). The columns of a target, its steps ahead, have one noise. Few levels are few factorisations: alike
    targets have one in common, and a factor of 2 in the noise hardly moves a posterior.

    Args:
        x, y, groups: of `by_lbfgs`; the columns of a target are side by side. Rows where y is NaN are left out, if
            `LEFT` remain; else NaN counts as the mean.
        hyper: common to all columns.
        outputs: targets.
        profile: of the kernel.
        least: of σ².

    Returns:
        (T,), or () of one target, the common noise as it is.

    Example:
        >>> x = torch.linspace(-3, 3, 60, dtype=torch.float64)[:, None]
        >>> y = torch.cat((x.sin(), torch.randn(60, 1, generator=torch.Generator().manual_seed(0)).double()), 1)
        >>> groups = torch.zeros(1, dtype=torch.int64)
        >>> (noises(x, y, groups, start(1), 2) / start(1).noise.exp()).log2().tolist()
        [-18.0, 4.0]
    """
    common = hyper.noise.exp()
    if outputs == 1:
        return common
    whole = y.isfinite().all(1)
    x, y = (x[whole], y[whole]) if int(whole.sum()) >= LEFT else (x, torch.nan_to_num(y))
    some = torch.linspace(0, len(x) - 1, min(FEW, len(x)), device=x.device).round().long()
    sizes = torch.bincount(groups).to(x)
    z = x[some] * (torch.exp(-hyper.lengthscale) / sizes.sqrt())[groups]
    correlation, _ = profile(_squared(z, z.new_empty(len(z), len(z))))
    values, vectors = torch.linalg.eigh(hyper.outputscale.exp() * correlation)
    squares = (vectors.mT @ y[some]).square()

    def nats(noise: Tensor) -> Tensor:
        total = values.clamp(min=0.0) + noise + JITTER
        found: Tensor = (squares / total[:, None]).sum(0) + total.log().sum()
        return found

    return by_evidence(common, nats, outputs).clamp(min=least)


def by_evidence(common: Tensor, nats: Callable[[Tensor], Tensor], outputs: int) -> Tensor:
    """(T,) σ² of each column, the common one times the power of `STEP` with the best evidence, one a target.

    Args:
        common: () σ².
        nats: function () σ² -> (T,) negative log evidence of every column.
        outputs: targets, whose columns are side by side.
    """
    powers = STEP ** torch.arange(LOWEST, HIGHEST + 1, dtype=common.dtype, device=common.device)
    found = torch.stack([nats(common * power) for power in powers])  # (S, T)
    best = found.unflatten(1, (outputs, -1)).mean(2).argmin(0)
    return (common * powers[best]).repeat_interleave(found.shape[1] // outputs)


def descend(evidence: Evidence, begin: LogHyper, evaluations: int) -> Evaluation:
    """The best of about `evaluations` evaluations of L-BFGS.

    Example:
        >>> x = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None]
        >>> evidence = Evidence(x, x.sin(), torch.zeros(1, dtype=torch.int64), smooth)
        >>> hyper, value = descend(evidence, start(1), evaluations=20)
        >>> value < evidence(evidence.pack(start(1)))[0], bool(0.5 < hyper.lengthscale.exp() < 3)
        (True, True)
    """
    found = minimise.lbfgs(evidence, evidence.pack(begin), evaluations)
    return Evaluation(evidence.unpack(found.at), found.value)


def by_lbfgs(
    x: Tensor, y: Tensor, groups: Tensor, starts: Sequence[tuple[LogHyper, int]], *, profile: Profile = smooth
) -> Evaluation:
    """The best of several searches by L-BFGS.

    Args:
        x: (n, W) standardised rows.
        y: (n, T) standardised targets, none missing.
        groups: (W,) the group of each column.
        starts: from where, with the evaluations of each.
        profile: of the kernel.

    Raises:
        NotPositiveDefinite: nowhere can the covariance be factorised, such as where rows are not finite.
    """
    evidence = Evidence(x, y, groups, profile)
    return _least([descend(evidence, *one) for one in starts])


def by_adam(
    x: Tensor, y: Tensor, groups: Tensor, starts: Sequence[tuple[LogHyper, int]], *, profile: Profile = smooth
) -> Evaluation:
    """The best of several searches by Adam, without a floor; otherwise as `by_lbfgs`.

    A start is tried where those before found little signal: after a clear one, no search on the streams of the
    benchmarks ended lower from the default than from the last hyper-parameters.
    """
    evidence, tried = Evidence(x, y, groups, profile, floor=0.0), list[Evaluation]()
    for begin, steps in starts:
        found = minimise.adam(evidence, evidence.pack(begin), steps, bound=BOUND)
        tried.append(Evaluation(evidence.unpack(found.at), found.value))
        if found.value < HUGE and tried[-1].hyper.signal >= CLEAR:
            break
    return _least(tried)


def _least(tried: list[Evaluation]) -> Evaluation:
    found = min(tried, key=lambda one: one.value)
    if not found.value < HUGE:
        raise NotPositiveDefinite("the evidence of the rows has no value", hint="look for huge values in the inputs")
    return found


def choose(
    x: Tensor,
    y: Tensor,
    groups: Tensor,
    kernels: Sequence[Stationary],
    starts: Sequence[tuple[LogHyper, int]],
    *,
    spread: float | None = None,
) -> ChosenHyper:
    """The radial kernel with the best evidence on few rows, and its hyper-parameters on all of them, by L-BFGS.

    Four kernels and 8 columns take 0.5 s on 400 rows and 0.6 s more on 1000, on one thread. On the sets of Evans & Nair
    (2020) that were tried, 400 rows choose as 1000 do.

    Args:
        x: (n, W) standardised rows, about 1000 of them.
        y: (n, T) standardised targets, none missing.
        groups: (W,) the group of each column.
        kernels: their `profile` is asked for; their own hyper-parameters are not looked at.
        starts: from where, with the evaluations of each kernel on the few rows; of the chosen one on all half of them.
        spread: see `Evidence`.

    Raises:
        UsageError: a kernel is not radial.

    Example:
        >>> from streamgp.kernels import matern
        >>> from streamgp.kernels.squared_exponential import Config, build
        >>> x = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None]
        >>> offered = [matern.build(matern.Config(nu=0.5), 1), build(Config(), 1)]
        >>> choose(x, x.sin(), torch.zeros(1, dtype=torch.int64), offered, [(start(1), 20)]).kernel
        1
    """
    some = torch.linspace(0, len(x) - 1, min(FEW, len(x)), device=x.device).round().long()
    found = list[ChosenHyper]()
    for begin, count in starts:
        tried = [
            descend(Evidence(x[some], y[some], groups, kernel.profile, spread), begin, count) for kernel in kernels
        ]
        index = min(range(len(tried)), key=lambda i: tried[i].value)
        evidence = Evidence(x, y, groups, kernels[index].profile, spread)
        hyper, value = descend(evidence, tried[index].hyper, count // 2)
        found.append(ChosenHyper(index, hyper, value / len(x)))
    return min(found, key=lambda one: one.value)
