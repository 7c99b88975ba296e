"""Hyper-parameters and the kernel itself by the evidence of some hundred rows, in few evaluations.

The objective is that of `thinned`: ½ tr(YᵀA⁻¹Y)/T + ½ log|A| and a prior of the
lengthscales, A = ρ²c + σ²I, c radial, one lengthscale a group of columns. L-BFGS (Liu & Nocedal 1989) on the gradient
in closed form comes in 20 evaluations to where Adam is after 60, which matters because an evaluation is O(n³). Since c
depends on one distance, its derivatives in all lengthscales are two matrix products, O(n² W).

The noise has a floor. Without it, it goes to nothing on data that a rough kernel interpolates, and a solver that is
given such a noise does not converge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.evidence.thinned import JITTER, LENGTHSCALE, START_NOISE, Estimate, Hyper, Profile, smooth
from streamgp.kernels import Stationary
from streamgp.linalg.cholesky import cholesky

FLOOR = 1e-3
"""Least σ², in units of the standardised target's variance."""
HUGE = 1e10
"""Value where A cannot be factorised."""


class Found(NamedTuple):
    """What `choose` chose.

    Attributes:
        kernel: its place among those offered.
        hyper: on all the rows.
        value: penalised negative log evidence a row, on all the rows.
    """

    kernel: int
    hyper: Hyper
    value: float


class Evidence:
    """The penalised negative log evidence of n rows, and its gradient.

    Args:
        x: (n, W) standardised rows, float64.
        y: (n, T) standardised targets, none missing.
        groups: (W,) the group of each column, 0 … G − 1.
        profile: c and −2 c' of the squared scaled distance.
        spread: prior standard deviation of log ℓ_g around their mean, which is free (a hierarchical prior, for many
            columns of one kind); None: log ℓ_g ~ N(1, 1) independently.
        floor: least σ².
    """

    def __init__(
        self, x: Tensor, y: Tensor, groups: Tensor, profile: Profile, spread: float | None = None, floor: float = FLOOR
    ) -> None:
        self.x, self.y, self.groups, self.profile = x, y, groups, profile
        self.spread, self.floor = spread, floor
        self.sizes = torch.bincount(groups).to(x.dtype)
        self._squares = x.new_empty(len(x), len(x))

    def pack(self, hyper: Hyper) -> Tensor:
        """(G + 2,) log ℓ, log ρ², log(σ² − floor); a noise that is at the floor is lifted by a tenth of it."""
        rest = (hyper.noise.exp() - self.floor).clamp(min=0.1 * self.floor)
        return torch.cat((hyper.lengthscale, torch.stack((hyper.outputscale, rest.log())))).to(self.x)

    def unpack(self, packed: Tensor) -> Hyper:
        """The inverse of `pack`."""
        return Hyper(packed[:-2], packed[-2], (packed[-1].exp() + self.floor).log())

    def __call__(self, packed: Tensor) -> tuple[float, Tensor]:
        """The value and its gradient, (G + 2,)."""
        length, scale, rest = packed[:-2], packed[-2].exp(), packed[-1].exp()
        columns, rows = self.y.shape[1], len(self.x)
        z = self.x * (torch.exp(-length) / self.sizes.sqrt())[self.groups]
        size = z.square().sum(1)
        squares = torch.mm(z, z.mT, out=self._squares).mul_(-2.0).add_(size).add_(size[:, None]).clamp_(min=0.0)
        squares.fill_diagonal_(0.0)  # matrix products are off by 1e-16 ‖z‖², which a root makes 1e-8
        correlation, fall = self.profile(squares)
        a = torch.mul(correlation, scale, out=self._squares)
        a.diagonal().add_(rest + self.floor + JITTER)
        try:
            lower = cholesky(a, first=0.0).lower
        except NotPositiveDefinite:
            return HUGE, torch.zeros_like(packed)
        alpha = torch.cholesky_solve(self.y, lower)
        fit = (self.y * alpha).sum() / columns
        off = length - (LENGTHSCALE if self.spread is None else length.mean())
        tight = 1.0 if self.spread is None else self.spread**-2
        value = 0.5 * fit + lower.diagonal().log().sum() + 0.5 * tight * off.square().sum()
        inverse = torch.cholesky_inverse(lower, out=self._squares)
        trace = inverse.diagonal().sum() - alpha.square().sum() / columns  # of 2Q = A⁻¹ − αα′/T
        signal = rows - fit - (rest + self.floor + JITTER) * trace  # ⟨2Q, ρ²c⟩, from ⟨2Q, A⟩ = n − fit
        twice = inverse.addmm_(alpha, alpha.mT, alpha=-1.0 / columns).mul_(fall).mul_(scale)
        each = (twice.sum(1)[:, None] * z.square()).sum(0) - ((twice @ z) * z).sum(0)
        slope = torch.zeros_like(length).index_add_(0, self.groups, each) + tight * off
        return float(value), torch.cat((slope, torch.stack((0.5 * signal, 0.5 * rest * trace))))


def start(groups: int) -> Hyper:
    """ℓ = √G, so that rows at a typical distance correlate; ρ² = 1."""
    length = torch.full((groups,), float(groups), dtype=FLOAT).sqrt().log()
    return Hyper(length, torch.zeros((), dtype=FLOAT), torch.tensor(START_NOISE, dtype=FLOAT))


def descend(evidence: Evidence, begin: Hyper, evaluations: int) -> tuple[Hyper, float]:
    """The best of about `evaluations` evaluations of L-BFGS.

    SciPy's, as torch's loads its compiler first, which takes longer than all evaluations. An iteration that has begun
    is finished, so that there may be a few evaluations more.

    Returns:
        the hyper-parameters, and the value there.

    Example:
        >>> x = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None]
        >>> from streamgp.evidence.thinned import smooth
        >>> evidence = Evidence(x, x.sin(), torch.zeros(1, dtype=torch.int64), smooth)
        >>> hyper, value = descend(evidence, start(1), evaluations=20)
        >>> value < evidence(evidence.pack(start(1)))[0], bool(0.5 < hyper.lengthscale.exp() < 3)
        (True, True)
    """
    packed = evidence.pack(begin)
    best, lowest = packed.clone(), math.inf

    def evaluate(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal best, lowest
        place = torch.from_numpy(at.copy()).to(packed.device)
        value, gradient = evidence(place)
        if value < lowest:
            best, lowest = place, value
        return value, gradient.cpu().numpy()

    minimize(
        evaluate,
        packed.cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": evaluations, "maxfun": evaluations, "maxcor": 20},
    )
    return evidence.unpack(best), lowest


def best(
    x: Tensor, y: Tensor, groups: Tensor, starts: Sequence[tuple[Hyper, int]], *, profile: Profile = smooth
) -> Estimate:
    """The best of several descents; arguments as of `thinned.best`, with the evaluations of each start.

    Raises:
        NotPositiveDefinite: nowhere can the covariance be factorised, such as where rows are not finite.
    """
    evidence = Evidence(x, y, groups, profile)
    found = min((Estimate(*descend(evidence, *one)) for one in starts), key=lambda one: one.value)
    if not found.value < HUGE:
        raise NotPositiveDefinite("the evidence of the rows has no value", hint="look for huge values in the inputs")
    return found


def choose(
    x: Tensor,
    y: Tensor,
    groups: Tensor,
    kernels: Sequence[Stationary],
    begin: Hyper | None = None,
    *,
    few: int = 400,
    evaluations: int = 20,
    refine: int = 10,
    spread: float | None = None,
    floor: float = FLOOR,
) -> Found:
    """The radial kernel with the best evidence on few rows, and its hyper-parameters on all of them.

    Four kernels and 8 columns take 0.5 s on 400 rows and 0.6 s more on 1000, on one thread. On the sets of Evans & Nair
    (2020) that were tried, 400 rows choose as 1000 do.

    Args:
        x: (n, W) standardised rows, about 1000 of them.
        y: (n, T) standardised targets, none missing.
        groups: (W,) the group of each column.
        kernels: their `profile` is asked for; their own hyper-parameters are not looked at.
        begin: from where; by default `start`.
        few: rows on which kernels are compared, evenly spread over x.
        evaluations, refine: of each kernel on the few rows, and of the chosen one on all.
        spread, floor: see `Evidence`.

    Raises:
        UsageError: a kernel is not radial.

    Example:
        >>> from streamgp.kernels import matern
        >>> from streamgp.kernels.squared_exponential import Config, build
        >>> x = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None]
        >>> offered = [matern.build(matern.Config(nu=0.5), 1), build(Config(), 1)]
        >>> choose(x, x.sin(), torch.zeros(1, dtype=torch.int64), offered).kernel
        1
    """
    begin = start(int(groups.max()) + 1) if begin is None else begin
    some = torch.linspace(0, len(x) - 1, min(few, len(x)), device=x.device).round().long()
    tried = [
        descend(Evidence(x[some], y[some], groups, kernel.profile, spread, floor), begin, evaluations)
        for kernel in kernels
    ]
    index = min(range(len(tried)), key=lambda i: tried[i][1])
    hyper, value = descend(Evidence(x, y, groups, kernels[index].profile, spread, floor), tried[index][0], refine)
    return Found(index, hyper, value / len(x))
