"""Selection from thousands of functions: many changes at once, between estimates of everything that is kept.

A round estimates precisions and noise of the kept functions by a few of MacKay's fixed-point steps, s_j = γ_j / mean
μ_jt² (Tipping 2001, equation (16)), leaves out those that are not finite, and lets in the functions outside that would
raise the evidence most, each as if it came alone (Tipping & Faul 2003). That is no ascent: functions that come in
together may share what they explain, and the next rounds leave the superfluous out.
"""

from __future__ import annotations

import torch

from streamgp.optim.relevance import FINITE, Kept, Sums, best_precision, gain_of_adding, new_noise, posterior, qualities
from streamgp.optim.relevance_sequential import sequential

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


def batched(
    sums: Sums, noise: float, most: int, add: int, rounds: int, start: Kept | None = None, finite: float = FINITE
) -> Kept:
    """Select in rounds until nothing is worth letting in.

    Args:
        sums: of all m functions.
        noise: σ² at the start; it is learned.
        most: functions to keep at most.
        add: functions let in at most in a round.
        rounds: at most.
        start: a selection to begin with.
        finite: precision from which a function is left out.

    Raises:
        NotPositiveDefinite: the sums are not finite.

    Example:
        >>> phi = torch.eye(3, dtype=torch.float64).repeat(40, 1)  # three functions that do not overlap
        >>> y = phi[:, :1] + 0.1 * torch.linspace(-1, 1, 120, dtype=torch.float64)[:, None]
        >>> gram = phi.T @ phi
        >>> sums = Sums(gram.diagonal(), phi.T @ y, (y * y).sum(0), 120.0, lambda places: gram[:, places])
        >>> batched(sums, 0.1, most=3, add=2, rounds=10).places.tolist()
        [0]
    """
    places = sums.squares.new_zeros(0, dtype=torch.int64) if start is None else start.places
    precision = sums.squares.new_zeros(0) if start is None else start.precision
    noise = noise if start is None else start.noise
    cross = sums.columns(places) if len(places) else sums.squares.new_zeros(len(sums.squares), 0)
    done = 0
    while done < rounds:
        done += 1
        for _ in range(SWEEPS):
            places, precision, noise, cross = _estimate(sums, places, precision, noise, cross, finite)
        found = posterior(cross[places], sums.moment[places], sums.total, precision, noise)
        sparsity, quality = qualities(sums, cross, found, noise)
        squared = quality.square().mean(1)
        gain, wanted = gain_of_adding(sparsity, squared), best_precision(sparsity, squared)
        gain[wanted >= finite] = 0.0
        gain[places] = 0.0
        best = gain.topk(min(add, max(most - len(places), 0), len(gain)))
        fresh = best.indices[best.values > WORTH]
        if not len(fresh):
            break
        places, precision = torch.cat((places, fresh)), torch.cat((precision, wanted[fresh]))
        cross = torch.cat((cross, sums.columns(fresh)), 1)
    kept = settle(sums, Kept(places, precision, noise, done), finite)
    if len(kept.places) > FEW // 2:
        return kept
    return sequential(sums, noise, most, STEPS, finite, start=kept, worth=FINE)._replace(rounds=done)


def settle(sums: Sums, kept: Kept, finite: float = FINITE) -> Kept:
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
            return Kept(places[found.places], found.precision, found.noise, kept.rounds)
        places, precision, noise, cross = _estimate(sums, places, precision, noise, cross, finite)
    return Kept(places, precision, noise, kept.rounds)


def _estimate(
    sums: Sums, places: torch.Tensor, precision: torch.Tensor, noise: float, cross: torch.Tensor, finite: float
) -> tuple[torch.Tensor, torch.Tensor, float, torch.Tensor]:
    """One fixed-point step of precisions and noise, without the functions that are not finite after it."""
    found = posterior(cross[places], sums.moment[places], sums.total, precision, noise)
    noise = new_noise(found, sums.rows)
    precision = found.determined / found.mean.square().mean(1).clamp(min=1e-300)
    stays = precision < finite
    if bool(stays.all()):
        return places, precision, noise, cross
    return places[stays], precision[stays], noise, cross[:, stays]


def _among(sums: Sums, places: torch.Tensor, gram: torch.Tensor) -> Sums:
    """The sums of some functions alone."""
    return Sums(gram.diagonal(), sums.moment[places], sums.total, sums.rows, lambda some: gram[:, some])
