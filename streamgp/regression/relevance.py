"""Relevance vector machines: which of m functions a sum needs, by the evidence for the precisions of their weights.

y_t = Φw_t + noise, w_jt ~ N(0, 1/s_j), noise of variance σ² (Tipping 2001). Where the evidence is highest most s_j are
infinite: their functions are not in the model. Here s_j ≥ `FINITE` is infinite (Evans & Nair 2020, appendix I.3).

T target columns share the precisions and the noise, as in Thayananthan et al. (2006), and so A = ΦᵀΦ/σ² + diag(s) and
its Cholesky factor: the evidence is that of one average column. With S_j, Q_jt the sparsity and quality of function j
(Tipping & Faul 2003, equations (23) to (25)), that changes their q_j² into its mean over t, and nothing else.

`sequential` makes at every step the one change that raises the evidence most: a function comes in, gets another
precision, or goes out (Tipping & Faul 2003, section 4). Every change has its best precision and its rise of the
evidence in closed form. Steps cost O(m k); every fifth step begins again from the Gram columns, with another noise, for
O(m k²).

`batched` is for thousands of functions. A round estimates precisions and noise of the kept functions by a few of
MacKay's fixed-point steps, s_j = γ_j / mean μ_jt² (Tipping 2001, equation (16)), leaves out those that are not finite,
and lets in the functions outside that would raise the evidence most, each as if it came alone. That is no ascent:
functions that come in together may share what they explain, and the next rounds leave the superfluous out.

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
EVERY = 5
"""Steps from one estimate of the noise to the next."""
SETTLED = 1e-3
"""Rise of twice the log evidence, and change of log σ², below which the selection is done."""
WORTH = 0.5
"""Rise of twice the log evidence from which a function may come in."""
SWEEPS = 3
"""Fixed-point steps in a round."""
LAST = 20
"""Fixed-point steps at the end, where many are kept."""
FEW = 300
"""Functions up to which the end is another selection among them."""
FINE = 1e-2
"""Rise of twice the log evidence that a last change must be worth."""
STEPS = 500
"""Changes at most in that selection."""


class RelevanceSums(NamedTuple):
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


class Selection(NamedTuple):
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


class WeightPosterior(NamedTuple):
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


def posterior(gram: Tensor, moment: Tensor, total: Tensor, precision: Tensor, noise: float) -> WeightPosterior:
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
    return WeightPosterior(lower, mean, determined, left.clamp(min=0.0))


def new_noise(found: WeightPosterior, rows: float) -> float:
    """σ² = Σ_t |y_t − Φμ_t|² / T(n − Σγ) (Tipping 2001, equation (18)); γ takes at most half of the rows."""
    free = max(rows - float(found.determined.sum()), 0.5 * rows)
    return max(float(found.residual.mean()) / max(free, 1e-12), LEAST)


def qualities(sums: RelevanceSums, cross: Tensor, found: WeightPosterior, noise: float) -> tuple[Tensor, Tensor]:
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


def sequential(
    sums: RelevanceSums,
    noise: float,
    most: int,
    steps: int,
    finite: float = FINITE,
    start: Selection | None = None,
    worth: float = SETTLED,
) -> Selection:
    """Select until no change is worth it.

    Args:
        sums: of all m functions.
        noise: σ² at the start; it is learned.
        most: functions to keep at most.
        steps: at most.
        finite: precision from which a function is left out.
        start: a selection to begin with.
        worth: least rise of twice the log evidence.

    Returns:
        none at all where no function is worth anything.

    Raises:
        NotPositiveDefinite: the sums are not finite.

    Example:
        >>> phi = torch.eye(3, dtype=torch.float64).repeat(40, 1)  # three functions that do not overlap
        >>> y = phi[:, :1] + 0.1 * torch.linspace(-1, 1, 120, dtype=torch.float64)[:, None]
        >>> gram = phi.T @ phi
        >>> sums = RelevanceSums(gram.diagonal(), phi.T @ y, (y * y).sum(0), 120.0, lambda places: gram[:, places])
        >>> sequential(sums, 0.1, most=3, steps=100).places.tolist()
        [0]
    """
    size = len(sums.squares)
    places = [] if start is None else start.places.tolist()
    precision = [] if start is None else start.precision.tolist()
    noise = noise if start is None else start.noise
    cross = sums.squares.new_zeros(size, 0) if start is None else sums.columns(start.places)
    idle, step = False, 0
    for step in range(1, steps + 1):
        index = torch.tensor(places, dtype=torch.int64, device=cross.device)
        inside = sums.squares.new_tensor(precision)
        found = posterior(cross[index], sums.moment[index], sums.total, inside, noise)
        if idle or step % EVERY == 0:
            before, noise = noise, new_noise(found, sums.rows)
            if idle and abs(math.log(noise / before)) < SETTLED:
                break
            found = posterior(cross[index], sums.moment[index], sums.total, inside, noise)
        sparsity, quality = qualities(sums, cross, found, noise)
        gain, wanted = _changes(sparsity, quality, index, inside, finite)
        if len(places) >= most:
            outside = torch.ones_like(gain, dtype=torch.bool)
            outside[index] = False
            gain[outside] = 0.0
        best = int(gain.argmax())
        idle = float(gain[best]) < worth
        if idle:
            continue
        if best not in places:
            places.append(best)
            precision.append(float(wanted[best]))
            cross = torch.cat((cross, sums.columns(torch.tensor([best], device=cross.device))), 1)
        elif math.isinf(float(wanted[best])):
            at = places.index(best)
            del places[at], precision[at]
            cross = torch.cat((cross[:, :at], cross[:, at + 1 :]), 1)
        else:
            precision[places.index(best)] = float(wanted[best])
    order = sorted(range(len(places)), key=places.__getitem__)
    chosen = torch.tensor([places[at] for at in order], dtype=torch.int64, device=cross.device)
    return Selection(chosen, sums.squares.new_tensor([precision[at] for at in order]), noise, step)


def _changes(sparsity: Tensor, quality: Tensor, index: Tensor, inside: Tensor, finite: float) -> tuple[Tensor, Tensor]:
    """What the best change of every function is worth, and the precision that it then has; infinite: it goes out.

    Args:
        sparsity: (m,) S.
        quality: (m, T) Q.
        index: (k,) the kept.
        inside: (k,) their precisions.
        finite: precision from which a function is left out.

    Returns:
        (m,), (m,): twice the rise of the log evidence of the average column.
    """
    squared = quality.square().mean(1)
    gain = gain_of_adding(sparsity, squared)
    wanted = best_precision(sparsity, squared)
    gain[wanted >= finite] = 0.0
    if not len(index):
        return gain, wanted
    own, mine = sparsity[index], squared[index]
    left = (inside - own).clamp(min=1e-300)
    alone, its = inside * own / left, (inside / left).square() * mine  # s and q² of the model without it
    target = best_precision(alone, its)
    target = torch.where(target < finite, target, torch.inf)
    shift = 1.0 / target - 1.0 / inside  # −1/s where it goes out
    again = mine / (own + 1.0 / shift) - torch.log1p(own * shift)
    gain[index] = torch.nan_to_num(torch.where(shift == 0.0, 0.0, again), nan=0.0, posinf=0.0, neginf=0.0)
    wanted[index] = target
    return gain, wanted


def batched(sums: RelevanceSums, noise: float, most: int, add: int, rounds: int) -> Selection:
    """Select in rounds until nothing is worth letting in.

    Args:
        sums: of all m functions.
        noise: σ² at the start; it is learned.
        most: functions to keep at most.
        add: functions let in at most in a round.
        rounds: at most.

    Raises:
        NotPositiveDefinite: the sums are not finite.

    Example:
        >>> phi = torch.eye(3, dtype=torch.float64).repeat(40, 1)  # three functions that do not overlap
        >>> y = phi[:, :1] + 0.1 * torch.linspace(-1, 1, 120, dtype=torch.float64)[:, None]
        >>> gram = phi.T @ phi
        >>> sums = RelevanceSums(gram.diagonal(), phi.T @ y, (y * y).sum(0), 120.0, lambda places: gram[:, places])
        >>> batched(sums, 0.1, most=3, add=2, rounds=10).places.tolist()
        [0]
    """
    places, precision = sums.squares.new_zeros(0, dtype=torch.int64), sums.squares.new_zeros(0)
    cross = sums.squares.new_zeros(len(sums.squares), 0)
    done = 0
    while done < rounds:
        done += 1
        for _ in range(SWEEPS):
            places, precision, noise, cross = _estimate(sums, places, precision, noise, cross, FINITE)
        found = posterior(cross[places], sums.moment[places], sums.total, precision, noise)
        sparsity, quality = qualities(sums, cross, found, noise)
        squared = quality.square().mean(1)
        gain, wanted = gain_of_adding(sparsity, squared), best_precision(sparsity, squared)
        gain[wanted >= FINITE] = 0.0
        gain[places] = 0.0
        best = gain.topk(min(add, max(most - len(places), 0), len(gain)))
        fresh = best.indices[best.values > WORTH]
        if not len(fresh):
            break
        places, precision = torch.cat((places, fresh)), torch.cat((precision, wanted[fresh]))
        cross = torch.cat((cross, sums.columns(fresh)), 1)
    kept = settle(sums, Selection(places, precision, noise, done))
    if len(kept.places) > FEW // 2:
        return kept
    return sequential(sums, noise, most, STEPS, FINITE, start=kept, worth=FINE)._replace(rounds=done)


def settle(sums: RelevanceSums, kept: Selection, finite: float = FINITE) -> Selection:
    """The precisions and the noise of a selection where its evidence has a maximum, without functions it does not need.

    Up to `FEW` functions that is one more selection, among these alone (Tipping & Faul 2003); more take a few
    fixed-point steps, which are slow to leave out functions that share what they explain.
    """
    order = torch.argsort(kept.places)
    places, precision, noise = kept.places[order], kept.precision[order], kept.noise
    cross = sums.columns(places)
    for _ in range(LAST):
        if not len(places):
            break
        if len(places) <= FEW:
            among = _among(sums, places, cross[places])
            found = sequential(among, noise, len(places), STEPS, finite)
            return Selection(places[found.places], found.precision, found.noise, kept.rounds)
        places, precision, noise, cross = _estimate(sums, places, precision, noise, cross, finite)
    return Selection(places, precision, noise, kept.rounds)


def _estimate(
    sums: RelevanceSums, places: Tensor, precision: Tensor, noise: float, cross: Tensor, finite: float
) -> tuple[Tensor, Tensor, float, Tensor]:
    """One fixed-point step of precisions and noise, without the functions that are not finite after it."""
    found = posterior(cross[places], sums.moment[places], sums.total, precision, noise)
    noise = new_noise(found, sums.rows)
    precision = found.determined / found.mean.square().mean(1).clamp(min=1e-300)
    stays = precision < finite
    if bool(stays.all()):
        return places, precision, noise, cross
    return places[stays], precision[stays], noise, cross[:, stays]


def _among(sums: RelevanceSums, places: Tensor, gram: Tensor) -> RelevanceSums:
    """The sums of some functions alone."""
    return RelevanceSums(gram.diagonal(), sums.moment[places], sums.total, sums.rows, lambda some: gram[:, some])
