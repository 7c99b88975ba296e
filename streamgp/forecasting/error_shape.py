"""The shape of errors: their scale beyond the volatility, and the histograms of error/scale. See `bands`.

There may be two of them: one of all truths, and, where an output has masses, one of the truths outside of them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Json, Shape

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

SHAPE_CYCLES, SCALE_CYCLES = 0.7 * 84, 0.7 * 112
"""Half-lives in cycles of the histograms and of the regression θ."""
RIDGE = 2.0
"""Cycles of rows that stand behind θ = 0: the errors of one cycle are alike."""
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


class Truths(NamedTuple):
    """R truths and what is the same of them for every shape.

    Attributes:
        output, block, group: (R,) output, block of the cycle, group of steps.
        error: (R,) truth − point.
        phi: (R, W) φ.
        wanted: (R,) log(|error| + FLOOR · e^b) − b, and CENTRE.
        beside: whether the last values are known, so that the second histograms learn.
        passed: cycles.
    """

    output: Ints
    block: Ints
    group: Ints
    error: Floats
    phi: Floats
    wanted: Floats
    beside: bool
    passed: float


class ErrorShape:
    """θ and the histograms of one set of truths; Stateful.

    Args:
        shape: what the model is built for.
        cycle: rows of a cycle.
        phases: blocks of a cycle that have histograms of their own.
        groups: of steps.
        width: W, of φ.
    """

    def __init__(self, shape: Shape, cycle: float, phases: int, groups: int, width: int) -> None:
        self.shape, self.cycle, self._phases = shape, cycle, phases
        cumulative = 1 / (1 + np.exp(-2 * np.log(2) * EDGES))  # the logistic distribution with mean |x| = 1
        cumulative[[0, -1]] = 0.0, 1.0
        self._prior = np.diff(cumulative)  # (BINS,)
        self._ridge = np.full(width, RIDGE * cycle)
        self._ridge[0] = 1e-2
        outputs = shape.outputs
        self._gram = np.zeros((outputs, width, width))
        self._moment = np.zeros((outputs, width))
        self._theta = np.zeros((outputs, width))
        self._counts = np.zeros((outputs, phases, groups, BINS))
        self._beside = np.zeros((outputs, AT_MASS + 1, groups, BINS))
        self._ahead = np.zeros(outputs)  # log likelihood of the second histograms over that of the first

    def view(self, phi: Floats, base: Floats, mean: Floats, last: Floats, slope: Floats, at_mass: Bools) -> View:
        """phi: (N, O, H, W); all others (N, O, H), b, point, y₀, its slope and whether y₀ is a mass."""
        log_scale = base + np.einsum("nohw,ow->noh", phi, self._theta).clip(-LARGEST, LARGEST)
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.exp(log_scale)
            away = np.nan_to_num((last - mean) / scale, posinf=0.0, neginf=0.0).clip(-FARTHEST, FARTHEST)
            beside = np.where(at_mass, AT_MASS, np.searchsorted(BESIDE, away))
            moving = np.nan_to_num(slope * np.arange(1, self.shape.horizon + 1) / scale)
            return View(log_scale, beside, away / (1 + (moving / STEADY) ** 2))

    def quantiles(
        self, output: int, view: View, mean: Floats, at: tuple[Ints, Ints], p: Floats, median: Floats
    ) -> Floats:
        """(N, H, Q) quantiles of an output.

        Args:
            view: of all outputs.
            mean: (N, O, H) the points.
            at: (N, H) row of p, (H,) group of steps.
            p: (K, Q) probabilities, for each block of the cycle; without one, for y₀ elsewhere and at a mass.
            median: (K,) the probability that stands for ½.
        """
        block, group = at
        scale, mean = np.exp(view.log_scale[:, output]), mean[:, output]
        if self._ahead[output] > MARGIN:
            cells = self._cells_beside()[output]
            table = np.concatenate([_quantiles(cells[:AT_MASS], p[0]), _quantiles(cells[AT_MASS:], p[-1])])
            table = table[view.beside[:, output], group]
            point = view.centre[:, output]
        else:
            table, point = self._table(p, output, median)[block, group], np.zeros(mean.shape)
        return np.asarray((mean + point * scale)[..., None] + scale[..., None] * table)

    def learn(self, truths: Truths, view: View, fair: Bools) -> None:
        """Learn from the truths where `fair` (R,) is true; view: as it was issued, (R,) each."""
        output, horizon = truths.output, self.shape.horizon
        kept = 0.5 ** (truths.passed / SHAPE_CYCLES)
        scaled = self.scaled(truths, view)
        self._counts *= kept
        if truths.beside:
            moved = scaled - view.centre
            ratio = np.zeros(len(scaled))
            for sign, values, cells, at in (
                (-1, scaled, self._cells(), (output, truths.block, truths.group)),
                (1, moved, self._cells_beside(), (output, view.beside, truths.group)),
            ):
                bins = np.clip(np.searchsorted(EDGES, values) - 1, 0, BINS - 1)
                ratio += sign * np.log(cells[(*at, bins)] / np.diff(EDGES)[bins])
            self._ahead = kept * self._ahead + np.bincount(output[fair], ratio[fair], self.shape.outputs) / horizon
            self._beside *= kept
            self._add(self._beside, moved, (output, view.beside, truths.group), fair)
        self._add(self._counts, scaled, (output, truths.block, truths.group), fair)
        kept = 0.5 ** (truths.passed / SCALE_CYCLES)
        for o in range(self.shape.outputs):
            own = (output == o) & fair
            rows = torch.from_numpy(truths.phi[own])  # NumPy's BLAS would wake all cores for so small a product
            self._gram[o] = kept * self._gram[o] + (rows.T @ rows).numpy() / horizon
            wanted = torch.from_numpy(truths.wanted[own])
            self._moment[o] = kept * self._moment[o] + (rows.T @ wanted).numpy() / horizon
            self._theta[o] = np.linalg.solve(self._gram[o] + np.diag(self._ridge), self._moment[o])

    def scaled(self, truths: Truths, view: View) -> Floats:
        """(R,) error/s; beyond the last of `EDGES` an error is a glitch."""
        with np.errstate(over="ignore"):
            return np.asarray(truths.error / np.exp(view.log_scale))

    def _of_all(self, counts: Floats) -> Floats:
        """(O, 1, 1, BINS) the histogram of all phases or blocks and groups, shrunk to the logistic distribution."""
        prior, total = TO_PRIOR * self.cycle, counts.sum((1, 2), keepdims=True)
        return np.asarray((total + prior * self._prior) / (total.sum(-1, keepdims=True) + prior))

    def _cells(self) -> Floats:
        """(O, phases, groups, BINS) the first histograms."""
        smooth = max(TO_ALL * self.cycle / self._phases, 60.0), max(TO_PHASE * self.cycle / self._phases, 30.0)
        phase = self._counts.sum(2, keepdims=True)  # (O, phases, 1, BINS)
        if self._phases >= 4:  # neighbours are alike
            phase = phase + 0.5 * (np.roll(phase, 1, 1) + np.roll(phase, -1, 1))
        phase = (phase + smooth[0] * self._of_all(self._counts)) / (phase.sum(-1, keepdims=True) + smooth[0])
        return np.asarray((self._counts + smooth[1] * phase) / (self._counts.sum(-1, keepdims=True) + smooth[1]))

    def _cells_beside(self) -> Floats:
        """(O, blocks, groups, BINS) the second histograms."""
        block = self._beside.sum(2, keepdims=True)
        block = (block + TO_BLOCKS * self._of_all(self._beside)) / (block.sum(-1, keepdims=True) + TO_BLOCKS)
        return np.asarray((self._beside + TO_BLOCKS * block) / (self._beside.sum(-1, keepdims=True) + TO_BLOCKS))

    def _table(self, p: Floats, output: int, median: Floats) -> Floats:
        """(K, groups, Q) quantiles of error/s. p: (K, Q)."""
        cells, of_all = self._cells()[output], self._of_all(self._counts)[output, 0]
        found = np.empty((len(p), cells.shape[1], p.shape[-1]))
        for b, centre in enumerate(median[:, None]):
            cell = cells[min(b, len(cells) - 1)]
            usual, own = _quantiles(of_all, centre), _quantiles(cell, centre)
            found[b] = _quantiles(cell, p[b]) - (1 - KEPT_MEDIAN) * (own - usual)
        return found

    def _add(self, counts: Floats, scaled: Floats, at: tuple[Ints, Ints, Ints], fair: Bools) -> None:
        """Count errors in their histograms."""
        for side in ("left", "right"):  # an error of 0 is between two bins, and counts half in each
            bins = np.clip(np.searchsorted(EDGES, scaled, side) - 1, 0, BINS - 1)
            cell = np.ravel_multi_index((*at, bins), counts.shape)[fair]
            counts += 0.5 * np.bincount(cell, minlength=counts.size).reshape(counts.shape) / self.shape.horizon

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {name: torch.from_numpy(getattr(self, f"_{name}").copy()) for name in _STATE}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        for name in _STATE:
            setattr(self, f"_{name}", tensors[name].numpy().copy())


def _quantiles(cells: Floats, p: Floats) -> Floats:
    """(..., Q) quantiles of histograms (..., BINS)."""
    cumulative = np.concatenate([np.zeros((*cells.shape[:-1], 1)), np.cumsum(cells, -1)], -1)
    found = [np.interp(p, one, EDGES) for one in cumulative.reshape(-1, BINS + 1)]
    return np.maximum.accumulate(np.stack(found), -1).reshape(*cells.shape[:-1], len(p))
