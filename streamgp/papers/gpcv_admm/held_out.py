"""Marginal likelihood or cross-validation: by the density of rows that forecasts have not seen.

Xu et al. (2019) set cross-validation against ML-II and leave the choice to the reader. Here every way w finds θ_w, and
the least of these wins:

    loo    θ_w from all n rows; each row t is forecast from the n − 1 others (Rasmussen & Williams 2006, 5.10-5.12):
           −(1/n) Σ_i log N(y_i; μ_i, σ_i²),  μ_i = y_i − [C⁻¹y]_i/[C⁻¹]_ii,  σ_i² = 1/[C⁻¹]_ii        (nlpd)
           (1/n) Σ_i (y_i − μ_i)²                                                                     (mse)
    part   θ_w from the rows T, a part V is kept back:
           −(1/|V|) log N(y_V; K_VT C⁻¹ y_T, K_VV − K_VT C⁻¹ K_TV + σ² I), jointly                   (nlpd)
           (1/|V|) ‖y_V − K_VT C⁻¹ y_T‖²                                                              (mse)
           and the winner continues from θ_w on all rows.

C = K + σ_t² I, a score is the mean over targets t. `part` judges what the ways find on fewer rows, and that is not what
they find on all: on steps, with 120 rows, both have the same density on 30 rows kept back, to a hundredth, where their
final θ differ by a tenth. `loo` judges the final θ. Each row was seen by a search for a few hyper-parameters; and the
rows should be independent given the function: windows of a stream that overlap are not, so that `tune` keeps a part of
those back. Rows kept back at the end (`contiguous`) ask for forecasts, which neither other does.

Cost: loo: every way on all rows; part: every way on |T| rows, the winner on all; and O(n³) for the scores, of at most
`MOST` rows. O(n²) memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence.tuned import Tuned
from streamgp.kernels import Tied
from streamgp.linalg.cholesky import cholesky, log_determinant

MOST = 3000
"""Rows that are factorised for a score: the last ones of those that were learned from."""
FEWEST = 5
"""Rows kept back, or that a row is forecast from, at least."""

Score: TypeAlias = Literal["nlpd", "mse"]
Scheme: TypeAlias = Literal["loo", "part"]
Way: TypeAlias = Callable[[Tied, Tensor, Tensor, Tensor], Tuned]
"""kernel, log_noise (T,), x (n, W), y (n, T) -> what it finds; see `streamgp.evidence.tuned`."""


@torch.no_grad()
def score(kernel: Tied, noise: Tensor, x: Tensor, y: Tensor, held: Tensor, of: Score) -> float:
    """A row and column kept back.

    Args:
        kernel: with its hyper-parameters.
        noise: (T,) σ_t².
        x, y: (n, W), (n, T) of all rows.
        held: (n,) bool.
        of: which score.

    Raises:
        NotPositiveDefinite: a covariance could not be factorised.
    """
    fitted = (~held).nonzero()[:, 0][-MOST:]
    kept, total = held.nonzero()[:, 0], 0.0
    gram, cross, own = kernel(x[fitted], x[fitted]), kernel(x[kept], x[fitted]), kernel(x[kept], x[kept])
    eye, other = torch.eye(len(fitted), dtype=FLOAT).to(x), torch.eye(len(kept), dtype=FLOAT).to(x)
    for target, variance in zip(y.T, noise, strict=True):
        lower = cholesky(gram + variance * eye, first=0.0).lower
        half = torch.linalg.solve_triangular(lower, cross.T, upper=False)  # (n_T, n_V)
        mean = half.T @ torch.linalg.solve_triangular(lower, target[fitted, None], upper=False)
        error = target[kept, None] - mean
        if of == "mse":
            total += float(error.square().mean())
            continue
        spread = cholesky(own - half.T @ half + variance * other, first=0.0).lower
        white = torch.linalg.solve_triangular(spread, error, upper=False)
        total += 0.5 * float(white.square().sum() + log_determinant(spread)) / len(kept) + 0.5 * math.log(2 * math.pi)
    return total / y.shape[1]


@torch.no_grad()
def left_out(kernel: Tied, noise: Tensor, x: Tensor, y: Tensor, of: Score) -> float:
    """A row and column, each row forecast from all others; of the last `MOST` rows.

    Args:
        kernel: with its hyper-parameters.
        noise: (T,) σ_t².
        x, y: (n, W), (n, T).
        of: which score.

    Raises:
        NotPositiveDefinite: a covariance could not be factorised.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = Tied(squared_exponential.Config(), torch.zeros(1, dtype=torch.int64))
        >>> x = torch.tensor([[0.0], [50.0]], dtype=FLOAT)  # independent: N(0, 1 + 0.5) each
        >>> round(left_out(kernel, torch.tensor([0.5]).double(), x, torch.ones(2, 1).double(), "mse"), 6)
        1.0
    """
    x, y, total = x[-MOST:], y[-MOST:], 0.0
    gram, eye = kernel(x, x), torch.eye(len(x), dtype=FLOAT).to(x)
    for target, variance in zip(y.T, noise, strict=True):
        inverse = torch.cholesky_inverse(cholesky(gram + variance * eye, first=0.0).lower)
        spread = 1.0 / inverse.diagonal()
        squares = (inverse @ target * spread).square()
        found = squares if of == "mse" else 0.5 * (squares / spread + (2.0 * math.pi * spread).log())
        total += float(found.mean())
    return total / y.shape[1]


def choose(
    ways: Mapping[str, Way],
    kernel: Tied,
    log_noise: Tensor,
    x: Tensor,
    y: Tensor,
    of: Score = "nlpd",
    scheme: Scheme = "loo",
    part: float = 0.25,
    arrangement: Literal["random", "contiguous"] = "random",
    seed: int = 0,
) -> Tuned:
    """See the module.

    Args:
        ways: by name.
        kernel, log_noise: (T,) where to start.
        x, y: (n, W), (n, T) standardised, none missing.
        of: how rows are scored.
        scheme: which rows.
        part: of the rows that is kept back.
        arrangement: rows kept back are anywhere, which asks for interpolation, or the last, for forecasts.
        seed: of the rows kept back.

    Returns:
        what the best way found on all rows, with the work of all, and their scores as `judged`.

    Raises:
        UsageError: too few rows.
        NumericalError: no way found anything.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> from streamgp.evidence.marginal_likelihood import MarginalLikelihoodConfig, maximise
        >>> kernel = Tied(squared_exponential.Config(), torch.zeros(1, dtype=torch.int64))
        >>> x = torch.linspace(-3, 3, 40, dtype=FLOAT)[:, None]
        >>> def few(*given):
        ...     return maximise(*given, MarginalLikelihoodConfig(evaluations=2))
        >>> def many(*given):
        ...     return maximise(*given, MarginalLikelihoodConfig(evaluations=40))
        >>> start = torch.tensor([-2.0], dtype=FLOAT)
        >>> choose({"few": few, "many": many}, kernel, start, x, (2 * x).sin()).judged[0][0]
        'many'
    """
    whole = scheme == "loo"
    count = 1 if whole else round(part * len(x))
    if (not whole and count < FEWEST) or len(x) - count < FEWEST:
        raise UsageError(
            f"{count} of {len(x)} rows would be kept back to choose by", hint="use more rows, or another auto.part"
        )
    order = torch.arange(len(x) - 1, -1, -1)
    if arrangement == "random":
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    held = torch.zeros(len(x), dtype=torch.bool)
    held[order[: 0 if whole else count]] = True
    held = held.to(x.device)
    found, scores, failures = dict[str, Tuned](), dict[str, float](), list[str]()
    for name, way in ways.items():
        try:
            found[name] = way(kernel, log_noise, x[~held], y[~held])
            own, noise = _with(kernel, found[name]), found[name].noise
            scores[name] = left_out(own, noise, x, y, of) if whole else score(own, noise, x, y, held, of)
        except NumericalError as error:
            failures.append(f"{name}: {error.message}")
            scores[name] = math.inf
    best = min(scores, key=lambda name: scores[name])
    if not math.isfinite(scores[best]):
        raise NumericalError("no way of tuning found anything", hint="look for constant or huge columns")
    last, others = found[best], [one for name, one in found.items() if name != best]
    if not whole:
        last, others = ways[best](_with(kernel, last), last.noise.log(), x, y), list(found.values())
    return last._replace(
        seconds=last.seconds + sum(one.seconds for one in others),
        evaluations=last.evaluations + sum(one.evaluations for one in others),
        failures=(*failures, *last.failures),
        judged=tuple(sorted(scores.items(), key=lambda one: one[1])),
    )


def _with(kernel: Tied, tuned: Tuned) -> Tied:
    """A copy with these hyper-parameters."""
    made = Tied(kernel.config, kernel.groups, kernel.unit)
    made.load_state_dict(tuned.kernel)
    return made
