"""The shape of errors: their scale beyond the volatility, and the histograms of error/scale. See `bands`.

There may be two of them: one of all truths, and, where an output has masses, one of the truths outside of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Json, Shape
from streamgp.errors import NumericalError
from streamgp.forecasting.streams import blocks, longer
from streamgp.linalg.batched import product
from streamgp.state import Arrays, Declared

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

SHAPE_CYCLES, SCALE_CYCLES = 0.7 * 84, 0.7 * 112
"""Half-lives in cycles of the histograms and of the regression θ."""
RIDGE = 2.0
"""Cycles of rows that the prior θ = 0 counts for: the errors of one cycle are alike."""
FLOOR = 0.15
"""Share of e^b that is added to an absolute error before its logarithm is taken."""
LARGEST = 1.5
"""|θ·φ| is at most this."""
CENTRE = 0.22
"""−E log(|e| + FLOOR) of Laplace errors of mean size 1: with θ = 0, s is the mean absolute error."""
TO_PHASE, TO_ALL, TO_PRIOR = 8.0, 20.0, 10.0
"""Cycles that a cell's own histogram must have seen to count half beside its phase, and so on."""
KEPT_MEDIAN = 0.5
"""Share that is kept of the distance between the median of a cell and that of all."""
BINS = 240
EDGES = np.sinh(np.linspace(-3.6, 3.6, BINS + 1))
"""(BINS + 1,) borders of the histogram of error/s. What is beyond, a glitch, says nothing of the shape."""
LOGISTIC = np.diff(np.concatenate([[0.0], 1 / (1 + np.exp(-2 * np.log(2) * EDGES[1:-1])), [1.0]]))
"""(BINS,) of the logistic distribution with mean |x| = 1: the prior of histograms."""
BESIDE = np.array([-1.0, -0.3, 0.3, 1.0])
"""Borders of the blocks of (y₀ − point)/s in the second histograms."""
AT_MASS = len(BESIDE) + 1
"""The block of origins at a mass."""
TO_BLOCKS = 200.0
"""Rows that a block must have seen to count half beside all."""
FARTHEST = 5.0
"""Most scales that the centre is moved by."""
MARGIN = 10.0
"""Log likelihood, of the last rows, that the second histograms must be ahead by."""
STEADY = 0.3
"""Scales that a target moves until the step at its present slope, where the centre is half-way to y₀."""
_STATE = ("gram", "moment", "theta", "counts", "beside", "ahead")


class View(NamedTuple):
    """What a shape makes of forecasts. Arrays of one shape, that of the forecasts.

    Attributes:
        log_scale: log s, target units.
        beside: block beside y₀.
        centre: of the second histograms, less the point, in s.
    """

    log_scale: Floats
    beside: Ints
    centre: Floats

    def rows(self, *index: Ints | Bools) -> View:
        """Of the forecasts at `index`."""
        return View(self.log_scale[index], self.beside[index], self.centre[index])


class Truths(NamedTuple):
    """R truths and what is the same of them for every shape.

    Attributes:
        units: (V,) the units that learn: the outputs of each stream that has truths.
        unit, block, group: (R,) which of these, block of the cycle, group of steps.
        error: (R,) truth − point.
        phi: (R, W) φ.
        wanted: (R,) log(|error| + FLOOR · e^b) − b, and CENTRE.
        beside: (V,) whether the last values are known, so that the second histograms learn.
        passed: (V,) cycles.
    """

    units: Ints
    unit: Ints
    block: Ints
    group: Ints
    error: Floats
    phi: Floats
    wanted: Floats
    beside: Bools
    passed: Floats

    def of(self, there: Bools) -> tuple[Truths, Bools]:
        """The truths of the units where `there` (V,) is true, and which of the R they are."""
        rows = there[self.unit]
        unit = (np.cumsum(there) - 1)[self.unit[rows]]
        block, group, error = self.block[rows], self.group[rows], self.error[rows]
        rest = self.phi[rows], self.wanted[rows], self.beside[there], self.passed[there]
        return Truths(self.units[there], unit, block, group, error, *rest), rows


class ErrorShape(Declared):
    """θ and the histograms of one set of truths, of each unit: an output of a stream; Stateful.

    Args:
        shape: what the model is built for.
        units: U.
        cycle: rows of a cycle.
        phases: blocks of a cycle that have histograms of their own.
        groups: of steps.
        width: W, of φ.
    """

    STATE = (Arrays(*_STATE),)

    def __init__(self, shape: Shape, units: int, cycle: float, phases: int, groups: int, width: int) -> None:
        self.shape, self.cycle, self._phases = shape, cycle, phases
        self._ridge = np.full(width, RIDGE * cycle)
        self._ridge[0] = 1e-2
        self._gram = np.zeros((units, width, width))
        self._moment = np.zeros((units, width))
        self._theta = np.zeros((units, width))
        self._counts = np.zeros((units, phases, groups, BINS))
        self._beside = np.zeros((units, AT_MASS + 1, groups, BINS if phases == 1 else 0))  # without a cycle alone
        self._ahead = np.zeros(units)  # log likelihood of the second histograms over that of the first

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        if not self._beside.shape[-1] and bool((tensors["ahead"] > MARGIN).any()):
            raise ValueError("ahead says that the second histograms are, and there are none")

    def reserve(self, units: int) -> None:
        """Room for this many more units."""
        for name in _STATE:
            setattr(self, f"_{name}", longer(getattr(self, f"_{name}"), units))

    def take(self, other: ErrorShape, units: Ints) -> None:
        """Know of these units what another shape does."""
        for name in _STATE:
            getattr(self, f"_{name}")[units] = getattr(other, f"_{name}")[units]

    def view(
        self, unit: Ints, phi: Floats, base: Floats, mean: Floats, last: Floats, slope: Floats, at_mass: Bools
    ) -> View:
        """unit: (N, O); phi: (N, O, H, W); all others (N, O, H), b, point, y₀, its slope and whether y₀ is a mass."""
        log_scale = base + np.einsum("nohw,now->noh", phi, self._theta[unit]).clip(-LARGEST, LARGEST)
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.exp(log_scale)
            away = np.nan_to_num((last - mean) / scale, posinf=0.0, neginf=0.0).clip(-FARTHEST, FARTHEST)
            beside = np.where(at_mass, AT_MASS, np.searchsorted(BESIDE, away))
            moving = np.nan_to_num(slope * np.arange(1, self.shape.horizon + 1) / scale)
            return View(log_scale, beside, away / (1 + (moving / STEADY) ** 2))

    def quantiles(
        self, units: Ints, view: View, mean: Floats, at: tuple[Ints, Ints, Ints], p: Floats, median: Floats
    ) -> Floats:
        """(..., H, Q) quantiles of forecasts.

        Args:
            units: (V,) that are forecast.
            view: of the forecasts, (..., H).
            mean: (..., H) the points.
            at: (..., 1) which of the units each is of, (..., H) row of p, (H,) group of steps.
            p: (V, K, Q) probabilities, for each block of the cycle; without one, for y₀ elsewhere and at a mass.
            median: (V, K) the probability that stands for ½.
        """
        unit, block, group = at
        scale, second = np.exp(view.log_scale), self._ahead[units] > MARGIN
        table, point = np.empty((*mean.shape, p.shape[-1])), np.zeros(mean.shape)
        for which in (False, True):
            some = np.flatnonzero(second == which)
            own = np.broadcast_to((second == which)[unit], mean.shape)
            if not len(some):
                continue
            place = np.zeros(len(units), np.int64)
            place[some] = np.arange(len(some))
            if which:
                cells = self._cells_beside(self._beside[units[some]])
                near, mass = (cells[:, :AT_MASS], p[some, None, :1]), (cells[:, AT_MASS:], p[some, None, -1:])
                found = np.concatenate([_quantiles(*near), _quantiles(*mass)], 1)
                point = np.where(own, view.centre, point)
                rows = found[place[unit], view.beside, group]
            else:
                held = self._table(units[some], p[some], median[some])  # (V, K, groups, Q)
                flat = np.ravel_multi_index(np.broadcast_arrays(place[unit], block, group), held.shape[:3])
                rows = held.reshape(-1, held.shape[3]).take(flat, 0)
            table = rows if len(some) == len(units) else np.where(own[..., None], rows, table)
        found = np.empty((p.shape[-1], *mean.shape))  # as they are kept, and nothing is turned around later
        np.multiply(np.moveaxis(table, -1, 0), scale, out=found)
        found += mean + point * scale
        return np.moveaxis(found, 0, -1)

    def learn(self, truths: Truths, view: View, fair: Bools) -> None:
        """Learn from the truths where `fair` (R,) is true; view: as it was issued, (R,) each."""
        units, unit, horizon, count = truths.units, truths.unit, self.shape.horizon, len(truths.units)
        kept = 0.5 ** (truths.passed / SHAPE_CYCLES)
        scaled = self.scaled(truths, view)
        counts = self._counts[units] * kept[:, None, None, None]
        if truths.beside.any():
            moved = scaled - view.centre
            own = fair & truths.beside[unit]
            ratio, second = np.zeros(len(scaled)), self._beside[units]
            for sign, values, cells, at in (
                (-1, scaled, self._cells(counts), (unit, truths.block, truths.group)),
                (1, moved, self._cells_beside(second), (unit, view.beside, truths.group)),
            ):
                bins = np.clip(np.searchsorted(EDGES, values) - 1, 0, BINS - 1)
                ratio += sign * np.log(cells[(*at, bins)] / np.diff(EDGES)[bins])
            still = np.where(truths.beside, kept, 1.0)
            self._ahead[units] = still * self._ahead[units] + np.bincount(unit[own], ratio[own], count) / horizon
            second *= still[:, None, None, None]
            self._add(second, moved, (unit, view.beside, truths.group), own)
            self._beside[units] = second
        self._add(counts, scaled, (unit, truths.block, truths.group), fair)
        self._counts[units] = counts
        kept = 0.5 ** (truths.passed / SCALE_CYCLES)
        learned = unit, truths.phi, truths.wanted
        if not fair.all():
            learned = unit[fair], truths.phi[fair], truths.wanted[fair]
        gram, moment = _products(*learned, count)
        self._gram[units] = kept[:, None, None] * self._gram[units] + gram / horizon
        self._moment[units] = kept[:, None] * self._moment[units] + moment / horizon
        precision = self._gram[units] + np.diag(self._ridge)
        try:
            self._theta[units] = np.linalg.solve(precision, self._moment[units][..., None])[..., 0]
        except np.linalg.LinAlgError:
            hint = "is the checkpoint damaged? begin again with --fresh"
            raise NumericalError("the calibration has sums that cannot be solved", hint=hint) from None

    def scaled(self, truths: Truths, view: View) -> Floats:
        """(R,) error/s; beyond the last of `EDGES` an error is a glitch."""
        with np.errstate(over="ignore"):
            return np.asarray(truths.error / np.exp(view.log_scale))

    def _of_all(self, counts: Floats) -> Floats:
        """(V, 1, 1, BINS) the histogram of all phases or blocks and groups, shrunk to the logistic distribution."""
        prior, total = TO_PRIOR * self.cycle, counts.sum(1, keepdims=True).sum(2, keepdims=True)
        return np.asarray((total + prior * LOGISTIC) / (total.sum(-1, keepdims=True) + prior))

    def _cells(self, counts: Floats) -> Floats:
        """(V, phases, groups, BINS) the first histograms."""
        smooth = max(TO_ALL * self.cycle / self._phases, 60.0), max(TO_PHASE * self.cycle / self._phases, 30.0)
        phase = counts.sum(2, keepdims=True) if counts.shape[2] > 1 else counts  # (V, phases, 1, BINS)
        if self._phases >= 4:  # neighbours are alike
            around = np.empty_like(phase)
            np.add(phase[:, :-2], phase[:, 2:], out=around[:, 1:-1])
            np.add(phase[:, -1], phase[:, 1], out=around[:, 0])
            np.add(phase[:, -2], phase[:, 0], out=around[:, -1])
            around *= 0.5
            around += phase
            phase = around
        shrunk = phase + smooth[0] * self._of_all(counts)
        shrunk *= smooth[1] / (phase.sum(-1, keepdims=True) + smooth[0])
        found = counts + shrunk
        found /= counts.sum(-1, keepdims=True) + smooth[1]
        return np.asarray(found)

    def _cells_beside(self, counts: Floats) -> Floats:
        """(V, blocks, groups, BINS) the second histograms."""
        block = counts.sum(2, keepdims=True)
        block = (block + TO_BLOCKS * self._of_all(counts)) / (block.sum(-1, keepdims=True) + TO_BLOCKS)
        return np.asarray((counts + TO_BLOCKS * block) / (counts.sum(-1, keepdims=True) + TO_BLOCKS))

    def _table(self, units: Ints, p: Floats, median: Floats) -> Floats:
        """(V, K, groups, Q) quantiles of error/s. p: (V, K, Q); median: (V, K)."""
        counts = self._counts[units]
        cells = self._cells(counts)
        if p.shape[1] != self._phases:
            cells = cells[:, np.minimum(np.arange(p.shape[1]), self._phases - 1)]
        usual = located(self._of_all(counts)[:, 0, 0], median)  # (V, K)
        wanted = np.concatenate([median[..., None], p], -1)[:, :, None]  # (V, K, 1, 1 + Q)
        wanted = np.broadcast_to(wanted, (*cells.shape[:3], wanted.shape[-1])).reshape(-1, wanted.shape[-1])
        found = located(cells.reshape(-1, BINS), wanted).reshape(*cells.shape[:3], -1)
        away = (1 - KEPT_MEDIAN) * (found[..., :1] - usual[:, :, None, None])
        return np.asarray(np.maximum.accumulate(found[..., 1:], -1) - away)

    def _add(self, counts: Floats, scaled: Floats, at: tuple[Ints, Ints, Ints], fair: Bools) -> None:
        """Count errors in their histograms."""
        left = np.searchsorted(EDGES, scaled)
        between = scaled == EDGES[np.minimum(left, BINS)]  # an error of 0 counts half in each of two bins
        sides = (left, left + between) if between.any() else (left,)
        for side in sides:
            cell = np.ravel_multi_index((*at, np.clip(side - 1, 0, BINS - 1)), counts.shape)
            np.add.at(counts.reshape(-1), cell if fair.all() else cell[fair], 1 / len(sides) / self.shape.horizon)


def _quantiles(cells: Floats, p: Floats) -> Floats:
    """(..., Q) quantiles of histograms (..., BINS), at probabilities (..., Q) of each; linear within a bin."""
    shape = np.broadcast_shapes(cells.shape[:-1], p.shape[:-1])
    wide = (np.broadcast_to(part, (*shape, part.shape[-1])).reshape(-1, part.shape[-1]) for part in (cells, p))
    return np.maximum.accumulate(located(*wide), -1).reshape(*shape, -1)


def located(cells: Floats, p: Floats) -> Floats:
    """Quantiles as of `_quantiles` of (R, BINS) and (R, Q), which rounding may put out of order."""
    below, wanted = np.zeros((len(cells), BINS + 1)), np.array(p, order="C")
    np.cumsum(cells, -1, out=below[:, 1:])
    bins = torch.searchsorted(torch.from_numpy(below), torch.from_numpy(wanted), right=True).numpy() - 1
    bins = bins.clip(0, BINS - 1)
    low, high = (np.take_along_axis(below, bins + more, 1) for more in (0, 1))
    slope = (EDGES[bins + 1] - EDGES[bins]) / np.maximum(high - low, 1e-300)
    return np.asarray(np.where(wanted < high, slope * (wanted - low) + EDGES[bins], EDGES[bins + 1]))


def _products(unit: Ints, phi: Floats, wanted: Floats, count: int) -> tuple[Floats, Floats]:
    """(V, W, W) Σ φφᵀ and (V, W) Σ φ·wanted of the rows (R,) of each unit: padded, and one batched product."""
    both = np.concatenate([phi, wanted[:, None]], 1)
    found = np.zeros((count, phi.shape[1], both.shape[1]))
    for block in blocks(unit, count):
        whole = torch.from_numpy(block.laid(both, 0.0))
        found[block.own] = product(whole.mT[:, :-1], whole).numpy()
    return found[..., :-1], found[..., -1]
