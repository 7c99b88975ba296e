"""Marginal likelihood or cross-validation: by the evidence of rows that neither has seen.

Xu et al. (2019) set cross-validation against ML-II and leave the choice to the reader. Here a part V of the rows is
kept back, every way w finds θ_w on the rest T, and the least

    −(1/|V|) Σ_t log N(y_V,t; K_VT C⁻¹ y_T,t, K_VV − K_VT C⁻¹ K_TV + σ_t² I)    (nlpd, jointly: the held-out evidence)
    (1/|V|) Σ_t ‖y_V,t − K_VT C⁻¹ y_T,t‖²                                        (mse)

wins, C = K_TT + σ_t² I. The winner then goes on from θ_w on all rows. Where the model is right the marginal likelihood
wants fewer rows; where the kernel or the noise is not, it need not choose what predicts best.

Cost: every way on |T| rows, the winner on all n, and O(n³) for the scores, of at most `MOST` rows. O(n²) memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import NumericalError, UsageError
from streamgp.kernels import Tied
from streamgp.linalg.cholesky import cholesky, log_determinant
from streamgp.optim.tuned import Tuned

MOST = 3000
"""Rows that are factorised for a score: the last ones of those that were learned from."""
FEWEST = 5
"""Rows kept back, at least."""

Score: TypeAlias = Literal["nlpd", "mse"]
Way: TypeAlias = Callable[[Tied, Tensor, Tensor, Tensor], Tuned]
"""kernel, log_noise (T,), x (n, W), y (n, T) -> what it finds; see `streamgp.optim.tuned`."""


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


def choose(
    ways: Mapping[str, Way],
    kernel: Tied,
    log_noise: Tensor,
    x: Tensor,
    y: Tensor,
    part: float = 0.25,
    of: Score = "nlpd",
    arrangement: Literal["random", "contiguous"] = "random",
    seed: int = 0,
) -> Tuned:
    """See the module.

    Args:
        ways: by name.
        kernel, log_noise: (T,) where to start.
        x, y: (n, W), (n, T) standardised, none missing.
        part: of the rows that is kept back.
        of: how they are scored.
        arrangement: rows kept back are anywhere, which asks for interpolation, or the last, for forecasts.
        seed: of the rows kept back.

    Returns:
        what the best way found on all rows, with the work of all, and their scores as `judged`.

    Raises:
        UsageError: too few rows.
        NumericalError: no way found anything.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> from streamgp.optim.marginal_likelihood import MarginalLikelihoodConfig, maximise
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
    count = round(part * len(x))
    if count < FEWEST or len(x) - count < FEWEST:
        raise UsageError(
            f"{count} of {len(x)} rows would be kept back to choose by", hint="use more rows, or another auto.part"
        )
    order = torch.arange(len(x) - 1, -1, -1)
    if arrangement == "random":
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    held = torch.zeros(len(x), dtype=torch.bool)
    held[order[:count]] = True
    held = held.to(x.device)
    found, scores, failures = dict[str, Tuned](), dict[str, float](), list[str]()
    for name, way in ways.items():
        try:
            found[name] = way(kernel, log_noise, x[~held], y[~held])
            scores[name] = score(_with(kernel, found[name]), found[name].noise, x, y, held, of)
        except NumericalError as error:
            failures.append(f"{name}: {error.message}")
            scores[name] = math.inf
    best = min(scores, key=lambda name: scores[name])
    if not math.isfinite(scores[best]):
        raise NumericalError("no way of tuning found anything", hint="look for constant or huge columns")
    last = ways[best](_with(kernel, found[best]), found[best].noise.log(), x, y)
    return last._replace(
        seconds=last.seconds + sum(one.seconds for one in found.values()),
        evaluations=last.evaluations + sum(one.evaluations for one in found.values()),
        failures=(*failures, *last.failures),
        judged=tuple(sorted(scores.items(), key=lambda one: one[1])),
    )


def _with(kernel: Tied, tuned: Tuned) -> Tied:
    """A copy with these hyper-parameters."""
    made = Tied(kernel.config, kernel.groups, kernel.unit)
    made.load_state_dict(tuned.kernel)
    return made
