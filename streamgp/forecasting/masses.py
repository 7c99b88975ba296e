"""Point masses: values that a target repeats exactly (a parked car, a closed valve), and their probability.

A value v is a mass of an output where a share SHARE of its truths lie within ε = NEAR standard deviations of it, many
of these exactly at v, and no more around, within RING standard deviations. The distribution h steps ahead is then

    F(y) = Σ_j p_j F_j(y) + (1 − Σ_j p_j) F_c(y),    p_j = 1/(1 + exp(−w·φ)).

F_j is the histogram of the truths inside the mass, most of them exactly v; F_c is learned from all other truths. φ has
two sets of weights. Where the last value is at v: how long it has been there, and the step. Elsewhere: the distances
to v of the last value, of the forecast, and of the last value moved on at its present slope. w is found by Newton's
method, with the curvature of all truths before as a normal prior (Spiegelhalter & Lauritzen 1990), a truth counting
1/H as the H forecasts of a row are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.forecasting.streams import extended
from streamgp.state import Arrays, Declared

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

SLOTS = 6
"""Values of an output that are counted: the most frequent ones."""
NEAR, RING = 0.01, 0.25
"""Half-width of a mass, and of its surroundings, in standard deviations of the target."""
SHARE, LEAST, YOUNGEST = 0.05, 20.0, 200.0
"""Share of the truths, and truths, that make a mass; truths before which there is none."""
EXACT = 0.25
"""Share of the truths in a mass that must be v itself."""
ROUNDING = 1e-13
"""Variance over mean square that rounding may leave of truths that are all the same."""
HALF_LIFE = 20_000.0
"""Truths after which one counts half in the counts."""
BINS = 16
"""Of the histogram inside a mass, on each side of v."""
RIDGE = 4.0 * np.array([0.01, 1.0, 1.0, 1.0, 1.0, 1.0])
"""Precision of the normal prior of w."""
AWAY = -4.0
"""Mean of the prior of the constant, where the last value is elsewhere; all other means are 0."""
WIDTH = len(RIDGE)
INSIDE = 0
"""Place of the counts of truths in a mass; those around it follow."""
ELSEWHERE, HERE = range(2)
"""Places of the weights where the last value is elsewhere, and where it is in the mass."""
CONSTANT = 0
"""The constant among the features φ of a mass."""
_ROUNDS = 6
_LARGEST = 12.0
_STATE = ("value", "_counts", "_sums", "_inside", "_weights", "_precision")


class AtOrigin(NamedTuple):
    """Where a target is at the origin of a forecast, and how it got there. Arrays of one shape, that of the forecasts.

    Attributes:
        step: 0 to H − 1.
        mean, scale: of the forecast.
        last: the newest value.
        run: how many values up to it, itself included, are the same.
        slope: mean change a row of the newest rows.
    """

    step: Ints
    mean: Floats
    scale: Floats
    last: Floats
    run: Floats
    slope: Floats


class Masses(Declared):
    """The masses of each output and their probabilities; Stateful.

    Args:
        outputs: O.
        horizon: H.

    Example:
        >>> masses = Masses(1, 1)
        >>> masses.count(0, np.where(np.arange(400) % 4 > 0, np.linspace(1.0, 9.0, 400), 0.0))
        >>> [float(masses.value[0, j]) for j in masses.active(0)]
        [0.0]
    """

    STATE = (Arrays(*_STATE, prefix=""),)

    def __init__(self, outputs: int, horizon: int) -> None:
        self.value = np.full((outputs, SLOTS), np.inf)
        self._horizon = horizon
        self._counts = np.zeros((outputs, SLOTS, 2))  # truths in the mass, and around it
        self._sums = np.zeros((outputs, 3))  # truths, their sum and that of their squares
        self._inside = np.zeros((outputs, SLOTS, 2 * BINS + 1))
        self._weights = np.zeros((outputs, SLOTS, 2, WIDTH))
        self._weights[:, :, ELSEWHERE, CONSTANT] = AWAY
        self._precision = np.zeros((outputs, SLOTS, 2, WIDTH, WIDTH))

    def reserve(self, outputs: int) -> None:
        """Room for this many more outputs; it doubles."""
        fresh = Masses(outputs, self._horizon)
        for name in _STATE:
            setattr(self, name, extended(getattr(self, name), getattr(fresh, name)))

    @property
    def met(self) -> Bools:
        """(O,) whether any value came again, so that there may be masses."""
        return np.asarray(np.isfinite(self.value).any(1))

    def near(self, output: int) -> float:
        """ε, target units; 0 where nothing is known."""
        return float(self.widths(np.array([output]))[0])

    def widths(self, outputs: Ints) -> Floats:
        """(V,) ε of several outputs; 0 where the truths are one value, as far as their sums tell."""
        count, total, square = self._sums[outputs].T
        known = np.maximum(count, 1e-300)
        variance = square / known - (total / known) ** 2
        return np.asarray(NEAR * np.where(variance > ROUNDING * square / known, variance, 0.0) ** 0.5)

    def at(self, output: int, slot: int, values: Floats) -> Bools:
        """Whether values are in the mass."""
        return np.asarray(np.abs(values - self.value[output, slot]) <= self.near(output))

    def active(self, output: int, share: float = SHARE) -> list[int]:
        """Slots of the values that are masses, the lowest first."""
        inside, around = self._counts[output].T
        total, _, _ = self._sums[output]
        exact = self._inside[output, :, BINS] >= EXACT * inside
        found = exact & (inside >= max(share * total, LEAST)) & (inside >= around) & (total >= YOUNGEST)
        return [int(j) for j in np.argsort(self.value[output]) if found[j]]

    def count(self, output: int, y: Floats) -> None:
        """Take in truths of an output, each once."""
        self.count_each(np.array([output]), np.array([len(y)]), y)

    def count_each(self, outputs: Ints, lengths: Ints, y: Floats) -> None:
        """Take in truths of outputs, (R,), output after output; Python runs only for outputs of which
        a value came twice. outputs, lengths: (V,), the truths of each."""
        ends = lengths.cumsum()
        for length in np.unique(lengths[lengths > 0]).tolist():
            own = np.flatnonzero(lengths == length)
            units, rows = outputs[own], y[(ends[own] - length)[:, None] + np.arange(length)]
            kept = 0.5 ** (length / HALF_LIFE)
            with np.errstate(over="ignore"):
                new = np.stack([np.full(len(own), float(length)), rows.sum(1), (rows * rows).sum(1)], 1)
                self._sums[units] = kept * self._sums[units] + new
            self._counts[units] *= kept
            self._inside[units] *= kept
            ordered = np.sort(rows, 1)
            again = (ordered[:, 1:] == ordered[:, :-1]).any(1) | self.met[units]
            for k in np.flatnonzero(again).tolist():
                self._find(int(units[k]), rows[k])

    def _find(self, output: int, y: Floats) -> None:
        """Count truths in the masses that there are, and in those that begin with them."""
        width = self.near(output)
        if not 0 < width < np.inf:
            return
        values, counts = np.unique(y, return_counts=True)
        for k in np.argsort(-counts, kind="stable")[:SLOTS]:
            new = counts[k] > 1 and not (np.abs(self.value[output] - values[k]) <= 2 * width).any()
            free = int(np.where(np.isinf(self.value[output]), -1.0, self._counts[output, :, INSIDE]).argmin())
            if new and (np.abs(y - values[k]) <= width).sum() > self._counts[output, free, INSIDE]:
                self.value[output, free] = values[k]
                for part in (self._counts, self._inside, self._weights, self._precision):
                    part[output, free] = 0.0
                self._weights[output, free, ELSEWHERE, CONSTANT] = AWAY
        for slot in np.flatnonzero(~np.isinf(self.value[output])):
            away = (y - self.value[output, slot]) / width
            inside = np.abs(away) <= 1
            around = np.abs(away) <= RING / NEAR
            self._counts[output, slot] += inside.sum(), around.sum() - inside.sum()
            place = BINS + np.trunc(away[inside] * BINS) + np.sign(away[inside])
            self._inside[output, slot] += np.bincount(place.astype(np.int64).clip(0, 2 * BINS), minlength=2 * BINS + 1)

    def probability(self, output: int, slots: Sequence[int], course: AtOrigin) -> Floats:
        """(J, ...) p_j of these masses; their sum stays below 1."""
        found = []
        for slot in slots:
            here, phi = self._phi(output, slot, course)
            eta = (phi * self._weights[output, slot][here.astype(np.int64)]).sum(-1)
            found.append(1 / (1 + np.exp(-eta.clip(-_LARGEST, _LARGEST))))
        p = np.stack(found)
        return np.asarray(p / np.maximum(p.sum(0) / 0.999, 1.0))

    def learn(self, output: int, y: Floats, course: AtOrigin, kept: float) -> None:
        """Learn the probabilities from truths (R,). kept: what a truth of before counts."""
        for slot in self.active(output, SHARE / 2):
            hit = self.at(output, slot, y)
            here, phi = self._phi(output, slot, course)
            for side in (ELSEWHERE, HERE):
                own = here == (side == HERE)
                if own.any():
                    self._newton(output, slot, side, phi[own], hit[own].astype(np.float64), kept)

    def quantile(self, output: int, slot: int, p: Floats) -> Floats:
        """The quantiles of F_j, target units."""
        share = np.cumsum(self._inside[output, slot] + 1e-9)
        half = np.linspace(0.0, 1.0, BINS + 1)
        edges = np.concatenate([half - 1, half])  # the bin of v itself has no width
        place = np.interp(p, np.append(0.0, share / share[-1]), edges)
        return np.asarray(self.value[output, slot] + self.near(output) * place)

    def mixture(
        self, output: int, slots: Sequence[int], p: Floats, grid: Floats, values: Floats, wanted: Floats
    ) -> Floats:
        """(..., Q) quantiles of F.

        Args:
            slots: of J masses, the lowest first.
            p: (J, ...) their probabilities.
            grid: (D,) probabilities, increasing.
            values: (..., D) the quantiles of F_c at them.
            wanted: (..., Q) probabilities.

        Example:
            >>> masses, p, grid = Masses(1, 1), np.array([[0.5]]), np.linspace(0.005, 0.995, 100)
            >>> masses.count(0, np.where(np.arange(400) % 4 > 0, np.linspace(1.0, 9.0, 400), 0.0))
            >>> masses.mixture(0, masses.active(0), p, grid, 10 * grid[None], np.array([[0.2, 0.4, 0.75]])).round(2)
            array([[0., 0., 5.]])
        """
        rest = 1 - p.sum(0)
        found, inside = np.zeros(wanted.shape), np.zeros(wanted.shape, bool)
        below, passed = np.zeros(wanted.shape), np.zeros_like(rest)
        ends = np.concatenate([[0.0], grid, [1.0]])
        for slot, own in zip(slots, p, strict=True):
            v = self.value[output, slot]
            count = (values < v).sum(-1)
            low, high = (
                np.take_along_axis(values, at.clip(0, len(grid) - 1)[..., None], -1)[..., 0]
                for at in (count - 1, count)
            )
            part = np.where(high > low, (v - low) / np.where(high > low, high - low, 1.0), 0.0)
            part = np.where((count > 0) & (count < len(grid)), part, 0.0)
            first = np.where(count < len(grid), count, count + 1)
            cdf = ends[first] + part * (ends[(first + 1).clip(max=len(grid) + 1)] - ends[first])
            place = (wanted - (rest * cdf + passed)[..., None]) / np.maximum(own, 1e-12)[..., None]
            hit = (place >= 0) & (place <= 1)
            found = np.where(hit, self.quantile(output, slot, place.clip(0, 1)), found)
            inside |= hit
            below += np.where(place > 1, own[..., None], 0.0)
            passed = passed + own
        other = ((wanted - below) / np.maximum(rest, 1e-9)[..., None]).clip(grid[0], grid[-1])
        at = np.searchsorted(grid, other).clip(1, len(grid) - 1)
        low, high = np.take_along_axis(values, at - 1, -1), np.take_along_axis(values, at, -1)
        between = low + (other - grid[at - 1]) / (grid[at] - grid[at - 1]) * (high - low)
        return np.asarray(np.maximum.accumulate(np.where(inside, found, between), -1))

    def _phi(self, output: int, slot: int, course: AtOrigin) -> tuple[Bools, Floats]:
        """Whether the last value is in the mass, and (..., W) φ."""
        step, mean, scale, last, run, slope = course
        v, spread = self.value[output, slot], self.near(output) / NEAR
        here = self.at(output, slot, last)

        def log(distance: Floats) -> Floats:
            return np.asarray(np.log((np.abs(distance) / scale).clip(0.0, 50.0) + 0.1))

        one, stay = np.ones_like(mean), np.log(run + 1)
        ahead = one * np.log((step + 1) / self._horizon)
        there = [one, stay, ahead, ahead * stay, log(mean - v), 0 * one]
        away = [one, log(mean - v), log(last - v), log(last + slope * (step + 1) - v), ahead]
        distance = np.abs(last - v)
        relative = distance / spread if spread else np.where(distance > 0, 1 / NEAR, 0.0)
        away.append(np.log(relative + 0.01))
        return here, np.where(here[..., None], np.stack(there, -1), np.stack(away, -1))

    def _newton(self, output: int, slot: int, side: int, phi: Floats, hit: Floats, kept: float) -> None:
        """At most six steps, each halved until the loss falls."""
        x, t = torch.from_numpy(phi), torch.from_numpy(hit)  # NumPy's BLAS would wake all cores for so small a product
        ridge, before = torch.from_numpy(RIDGE), kept * torch.from_numpy(self._precision[output, slot, side])
        prior = torch.tensor([AWAY if side == ELSEWHERE else 0.0, *[0.0] * (WIDTH - 1)], dtype=FLOAT)
        old = torch.from_numpy(self._weights[output, slot, side].copy())

        def loss(w: Tensor) -> float:
            eta, moved = x @ w, w - old
            fit = (torch.nn.functional.softplus(eta) - t * eta).sum() / self._horizon
            return float(fit + 0.5 * (moved @ before @ moved + (ridge * (w - prior)) @ (w - prior)))

        def curvature(p: Tensor) -> Tensor:
            return (x * (p * (1 - p) / self._horizon)[:, None]).T @ x

        w, now = old, loss(old)
        for _ in range(_ROUNDS):
            p = torch.sigmoid(x @ w)
            slope = x.T @ (t - p) / self._horizon - before @ (w - old) - ridge * (w - prior)
            step = torch.linalg.solve(before + torch.diag(ridge) + curvature(p), slope)
            tried = next((one for f in (1.0, 0.5, 0.25, 0.1, 0.02) if loss(one := w + f * step) < now), None)
            if tried is None:
                break
            w, now = tried, loss(tried)
        self._weights[output, slot, side] = w.numpy()
        self._precision[output, slot, side] = (before + curvature(torch.sigmoid(x @ w))).numpy()
