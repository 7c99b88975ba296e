"""Tipping & Faul's sequential selection: at every step the one change that raises the evidence most.

A function comes in, gets another precision, or goes out (Tipping & Faul 2003, section 4). Every change has its best
precision and its rise of the evidence in closed form. Steps cost O(m k); every fifth step begins again from the Gram
columns, with another noise, for O(m k²).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from streamgp.optim.relevance import (
    FINITE,
    Kept,
    Sums,
    best_precision,
    gain_of_adding,
    new_noise,
    posterior,
    qualities,
)

EVERY = 5
"""Steps from one estimate of the noise to the next."""
SETTLED = 1e-3
"""Rise of twice the log evidence, and change of log σ², below which the selection is done."""


def sequential(
    sums: Sums,
    noise: float,
    most: int,
    steps: int,
    finite: float = FINITE,
    start: Kept | None = None,
    worth: float = SETTLED,
) -> Kept:
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
        >>> sums = Sums(gram.diagonal(), phi.T @ y, (y * y).sum(0), 120.0, lambda places: gram[:, places])
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
    return Kept(chosen, sums.squares.new_tensor([precision[at] for at in order]), noise, step)


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
