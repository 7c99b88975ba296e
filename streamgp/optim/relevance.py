"""Relevance vector machines: which of m functions a sum needs, by the evidence for the precisions of their weights.

y_t = Φw_t + noise, w_jt ~ N(0, 1/s_j), noise of variance σ² (Tipping 2001). Where the evidence is highest most s_j are
infinite: their functions are not in the model. Here s_j ≥ `FINITE` is infinite (Evans & Nair 2020, appendix I.3).

T target columns share the precisions and the noise, as in Thayananthan et al. (2006), and so A = ΦᵀΦ/σ² + diag(s) and
its Cholesky factor: the evidence is that of one average column. With S_j, Q_jt the sparsity and quality of function j
(Tipping & Faul 2003, equations (23) to (25)), that changes their q_j² into its mean over t, and nothing else.

Everything is a function of sums over rows, so that rows may carry weights, and of Gram columns of the functions that
are, or come, into the model.

Shapes: m functions of a dictionary, k of them kept, T columns, n rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.linalg.cholesky import cholesky, whiten

FINITE = 1e4
"""Precision from which a weight counts as zero; for functions of height about 1 and targets of variance 1."""
LEAST = 1e-8
"""Of σ², against rows that the functions explain to the last digit."""


class Sums(NamedTuple):
    """What n weighted rows say of m functions.

    Attributes:
        squares: (m,) φ_jᵀφ_j.
        moment: (m, T) Φᵀy.
        total: (T,) yᵀy.
        rows: n, the sum of the rows' weights.
        columns: (k,) places -> (m, k), those columns of ΦᵀΦ; float64.
    """

    squares: Tensor
    moment: Tensor
    total: Tensor
    rows: float
    columns: Callable[[Tensor], Tensor]


class Kept(NamedTuple):
    """A selection.

    Attributes:
        places: (k,) int64 of the m functions, in ascending order.
        precision: (k,) s of each.
        noise: σ².
        rounds: how often something was changed.
    """

    places: Tensor
    precision: Tensor
    noise: float
    rounds: int


class Posterior(NamedTuple):
    """N(μ_t, A⁻¹) of the weights of k functions, and what it says of all m.

    Attributes:
        lower: (k, k) with A = LLᵀ.
        mean: (k, T) μ.
        determined: (k,) γ_j = 1 − s_j (A⁻¹)_jj: how far the rows determine a weight, 0 to 1.
        residual: (T,) |y_t − Φμ_t|².
    """

    lower: Tensor
    mean: Tensor
    determined: Tensor
    residual: Tensor


def posterior(gram: Tensor, moment: Tensor, total: Tensor, precision: Tensor, noise: float) -> Posterior:
    """The posterior for given hyper-parameters.

    |y − Φμ|² is (yᵀy − μᵀΦᵀy) − σ² μᵀdiag(s)μ, since (ΦᵀΦ + σ² diag(s))μ = Φᵀy: less cancels than in the square.

    Args:
        gram: (k, k) ΦᵀΦ.
        moment: (k, T) Φᵀy.
        total: (T,) yᵀy.
        precision: (k,)
        noise: σ².

    Raises:
        NotPositiveDefinite: the sums are not finite.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = posterior(3.0 * one, 3.0 * one, 3.0 * one[0], one[0], noise=1.0)  # the target 1 at three rows
        >>> found.mean.item(), found.determined.item(), found.residual.item()
        (0.75, 0.75, 0.1875)
    """
    lower = cholesky(gram / noise + torch.diag(precision), first=0.0).lower
    mean = torch.cholesky_solve(moment / noise, lower)
    inverse = whiten(lower, torch.eye(len(lower), dtype=lower.dtype, device=lower.device))
    determined = (1.0 - precision * inverse.square().sum(0)).clamp(1e-12, 1.0)
    left = total - (mean * moment).sum(0) - noise * (precision[:, None] * mean.square()).sum(0)
    return Posterior(lower, mean, determined, left.clamp(min=0.0))


def new_noise(found: Posterior, rows: float) -> float:
    """σ² = Σ_t |y_t − Φμ_t|² / T(n − Σγ) (Tipping 2001, equation (18)); γ takes at most half of the rows."""
    free = max(rows - float(found.determined.sum()), 0.5 * rows)
    return max(float(found.residual.mean()) / max(free, 1e-12), LEAST)


def log_evidence(sums: Sums, kept: Kept) -> float:
    """log p(y | s, σ²) of the average column (Tipping & Faul 2003, equation (5)):
    −½ [n log 2πσ² + log|A| − Σ log s_j + (yᵀy − yᵀΦμ)/σ²].

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> sums = Sums(one[0], one, one[0], 1.0, lambda places: one[:, places])  # one row, one function
        >>> kept = Kept(torch.tensor([0]), one[0], 1.0, 0)
        >>> round(log_evidence(sums, kept), 6) == round(-0.5 * (math.log(2 * math.pi * 2) + 0.5), 6)  # y = 1 ~ N(0, 2)
        True
    """
    moment = sums.moment[kept.places]
    found = posterior(sums.columns(kept.places)[kept.places], moment, sums.total, kept.precision, kept.noise)
    misfit = float((sums.total - (found.mean * moment).sum(0)).mean()) / kept.noise
    determinant = 2.0 * float(found.lower.diagonal().log().sum()) - float(kept.precision.log().sum())
    return -0.5 * (sums.rows * math.log(2.0 * math.pi * kept.noise) + determinant + misfit)


def qualities(sums: Sums, cross: Tensor, found: Posterior, noise: float) -> tuple[Tensor, Tensor]:
    """S_j = φ_jᵀC⁻¹φ_j and the mean over t of Q_jt² = (φ_jᵀC⁻¹y_t)² for all m functions, C = σ²I + Φ diag(s)⁻¹Φᵀ.

    Args:
        sums: of all m.
        cross: (m, k) Gram columns of the kept.
        found: of the kept.
        noise: σ².

    Returns:
        (m,), (m, T): S and Q.
    """
    half = whiten(found.lower, cross.T / noise)
    return sums.squares / noise - half.square().sum(0), (sums.moment - cross @ found.mean) / noise


def best_precision(sparsity: Tensor, quality: Tensor) -> Tensor:
    """(m,) s² / (q² − s), where the evidence for one precision has its maximum; infinite where q² ≤ s
    (Tipping & Faul 2003, equations (20) and (21)), q² the mean over columns.
    """
    over = quality - sparsity
    return torch.where(over > 0.0, sparsity.square() / over.clamp(min=1e-300), torch.inf)


def gain_of_adding(sparsity: Tensor, quality: Tensor) -> Tensor:
    """(m,) twice the rise of the log evidence when a function comes in at its best precision, 0 where it has none:
    (Q² − S)/S + log(S/Q²) (Tipping & Faul 2003, equation (27)).
    """
    good = (quality > sparsity) & (sparsity > 0.0)
    ratio = torch.where(good, quality / sparsity.clamp(min=1e-300), 1.0)
    return ratio - 1.0 - ratio.log()
