"""Calibrated distributions: the distribution of the model's recent errors, by phase of the season and steps ahead.

The calibrated quantile of level p is point + s · q(p), inside the bounds of the target, with

    log s   b + θ·φ, and b = log v + d min(1, max(0, d/JUMP − 1)) + log a_h with d = log v₁/v. v, v₁ are weighted means
            of the known |errors| of the series (half-lives 3 cycles and 1 cycle) over the profile a of the steps;
            b is v₁'s where d shows a jump. φ are the features of `_phi`; θ is a ridge regression of
            log(|error| + FLOOR · e^b) − b on them, with a memory of 16 weeks of days.
    q(p)    the quantile of the histogram of error/s: that of the phase and group of steps, shrunk to that of the phase,
            shrunk to that of all, shrunk to a logistic distribution. Half of the distance of its median to that of all
            is taken out, as most of that is noise; p itself is moved by two leaky trackers of how often the truth was
            below the quantile, one of all phases and one a phase (the P term of conformal PID control, Angelopoulos,
            Candès & Tibshirani 2023).

Without a season an output may have masses (`masses`): the distribution is then a mixture, and the histograms are of
truths outside of them.
Where there is no cycle, there is a second set of histograms, used while its density of the truths is higher. They go by
where the last value y₀ lies beside the point, origins at a mass apart, and their errors have another centre, point +
(y₀ − point)/(1 + (h·slope/(STEADY·s))²): the last value, the less the target is moving.

A cycle is the period of the phases (`Bands`, argument `period`), or, without one, the longest of 24 rows and the
horizon. v follows the truths row by row: a question sees every truth that is known at its row. θ, a, q and the
trackers move once a micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import FLOAT, Due, Json, Predictive, Shape
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.masses import Course, Masses
from streamgp.forecasting.volatility import JUMP, TINY, Errors, Volatility

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

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
PHASES, HARMONICS = 12, 4
"""Blocks of a cycle that have histograms of their own; pairs of sine and cosine in φ."""
TO_PHASE, TO_ALL, TO_PRIOR = 8.0, 20.0, 10.0
"""Cycles that a cell's own histogram must have seen to count half beside its phase, and so on."""
KEPT_MEDIAN = 0.5
"""Share that is kept of the distance between the median of a cell and that of all."""
SMALL_SAMPLE = 0.005
"""Probabilities are moved outwards by this share of their distance from ½, as for 200 independent errors."""
PHASE_RATE, PHASE_LEAK, RATE, LEAK = 0.0025, 0.99, 0.01, 0.95
"""A cycle: step and decay of the tracker of each phase, and of that of all."""
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
SLOPE_ROWS = 3
"""Rows that the slope is of."""
GRID = np.concatenate([[0.001, 0.0025, 0.005], np.linspace(0.01, 0.99, 50), [0.995, 0.9975, 0.999]])
"""Probabilities at which the part outside of the masses is computed."""
FEATURES = 15
"""Numbers a forecast that are kept until its truth comes: see `Issued`."""


class Questions(NamedTuple):
    """What forecasts are issued for. N questions, H steps ahead, T = O · H columns.

    Attributes:
        series: (N,) codes.
        at: (N,) index in `Errors.series` of the row that is asked at; not looked at where there are no errors.
        phase: (N, H) place in the cycle of each row that is asked about, 0 to period − 1.
        issued: the raw distributions, (N, T).
        reference: (N, T) a naive forecast; NaN where there is none.
        past: (N, L, O) the newest values of the targets; where it is None, masses are not looked for.
    """

    series: Tensor
    at: Tensor
    phase: Tensor
    issued: Predictive
    reference: Tensor
    past: Tensor | None = None


class Issued(NamedTuple):
    """What is kept of a forecast until its truths come.

    Attributes:
        quantiles: (Q, N, T) of the calibrated distribution, increasing.
        features: (F, N, T) log s, b, what φ is computed from but the phase, block beside y₀, centre of the
            second histograms less the point, in s, last value, run and slope of `Course`, phase. Only
            `Bands` reads them.
    """

    quantiles: Tensor
    features: Tensor


def features(calibration: Calibration) -> int:
    """F, numbers beside its quantiles that are kept of a forecast."""
    return FEATURES if calibration.probabilities else 0


class Bands(Volatility):
    """The calibrated distribution of a model's forecasts; Stateful. One calibration for all series, but the volatility,
    which each has of its own.

    Args:
        shape: what the model is built for.
        calibration: which quantiles are issued; where there are none, nothing is learned.
        period: rows of a cycle, such as those of a day; 1 is none.

    Example:
        >>> from streamgp.predictives.gaussian import Gaussian
        >>> shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
        >>> bands = Bands(shape, Calibration((95.0,)))
        >>> one, none = torch.ones(1, 1, dtype=torch.float64), torch.full((1, 1), torch.nan, dtype=torch.float64)
        >>> nil = torch.zeros(1, dtype=torch.int64)
        >>> asked = Questions(nil, nil, nil[:, None], Gaussian(0 * one, 0 * one, one), none)
        >>> issued = bands.issue(asked, Errors(nil[:0], nil[:0], nil[:0], one[:0, 0]))
        >>> [round(q, 1) for q in issued.quantiles[[0, -1], 0, 0].tolist()]  # before any truth: those of the model
        [-2.2, 2.2]
    """

    def __init__(self, shape: Shape, calibration: Calibration, period: int = 1) -> None:
        self.period = max(period, 1)
        super().__init__(shape, float(max(self.period, 24, shape.horizon)))
        self.probabilities = np.array(calibration.probabilities, dtype=np.float64)
        self.lower = -np.inf if calibration.lower is None else calibration.lower
        self.upper = np.inf if calibration.upper is None else calibration.upper
        outputs, horizon = shape.outputs, shape.horizon
        steps = np.arange(1, horizon + 1)
        borders = np.unique([1, max(2, horizon // 12), max(1, horizon // 4), max(1, horizon // 2)])
        self._group = np.unique(np.searchsorted(borders, steps), return_inverse=True)[1]  # (H,) group of each step
        self._log_step = np.log((steps + 0.1) / horizon) + 1 if horizon > 1 else np.zeros(1)
        self._share = steps / horizon if horizon > 1 else np.zeros(1)
        self._phases = min(PHASES, self.period)
        cumulative = 1 / (1 + np.exp(-2 * np.log(2) * EDGES))  # the logistic distribution with mean |x| = 1
        cumulative[[0, -1]] = 0.0, 1.0
        self._prior = np.diff(cumulative)  # (BINS,)
        width = 3 + 2 * HARMONICS + 8
        self._ridge = np.full(width, RIDGE * self.cycle)
        self._ridge[0] = 1e-2
        self._gram = np.zeros((outputs, width, width))
        self._moment = np.zeros((outputs, width))
        self._theta = np.zeros((outputs, width))
        self._counts = np.zeros((outputs, self._phases, self._group[-1] + 1, BINS))
        self._beside = np.zeros((outputs, AT_MASS + 1, self._group[-1] + 1, BINS))
        self._ahead = np.zeros(outputs)  # log likelihood of the second histograms over that of the first
        self._off = np.zeros((outputs, self._phases + 1, len(self.probabilities)))  # trackers; the last is that of all
        self._masses = Masses(outputs, horizon)

    def issue(self, asked: Questions, errors: Errors) -> Issued:
        """Learn the volatility from errors that are known now, row by row, and issue: a question sees the errors of
        rows up to its own."""
        if not len(self.probabilities):
            count, columns = asked.issued.mean.shape
            return Issued(*torch.zeros(2, 0, count, columns, dtype=FLOAT))
        series, mean, deviation = asked.series.numpy(), self._by_step(asked.issued.mean), self._deviation(asked)
        self._reserve(series, errors.series.numpy())
        profile = self._profile(deviation)
        self._meet(series, deviation, profile)
        volatility = self._follow(errors, profile)
        seen = self._errors[series] if volatility is None else volatility[asked.at.numpy()]
        return self._issued(asked, mean, deviation, seen, profile, self.probabilities)

    def quantiles(self, asked: Questions, probabilities: Sequence[float]) -> Tensor:
        """(P, N, T) the quantiles of any probabilities, as the calibration stands; nothing is learned."""
        series, mean, deviation = asked.series.numpy(), self._by_step(asked.issued.mean), self._deviation(asked)
        kept = self._errors, self._raw, self._latest, self._steps.copy()
        self._reserve(series, series)
        profile = self._profile(deviation)
        self._meet(series, deviation, profile)
        wanted = np.array(probabilities, dtype=np.float64)
        issued = self._issued(asked, mean, deviation, self._errors[series], profile, wanted)
        self._errors, self._raw, self._latest, self._steps = kept
        return issued.quantiles

    def update(self, due: Due) -> None:
        """Learn scale and shape from truths that have arrived."""
        if not len(due.y) or not len(self.probabilities):
            return
        outputs, horizon = self.shape.outputs, self.shape.horizon
        column, features = due.column.numpy(), due.features.numpy()
        output, step = column // horizon, column % horizon
        error = (due.y[:, None] - due.predictive.mean)[:, 0].numpy()
        series = len(np.unique(due.series.numpy()))
        passed = float(np.bincount(column).max()) / series / self.cycle  # cycles
        log_scale, base, block = features[0], features[1], self._block(features[-1])
        with np.errstate(over="ignore"):
            scaled = error / np.exp(log_scale)
        fair = np.abs(scaled) <= EDGES[-1]
        fair = self._learn_masses(due, fair, passed)
        self._counts *= 0.5 ** (passed / SHAPE_CYCLES)
        group = self._group[step]
        if self.period == 1 and not np.isnan(features[11]).any():
            moved, beside = scaled - features[10], features[9].astype(np.int64)
            ratio = np.zeros(len(scaled))
            for sign, values, cells, at in (
                (-1, scaled, self._cells(), (output, block, group)),
                (1, moved, self._cells_beside(), (output, beside, group)),
            ):
                bins = np.clip(np.searchsorted(EDGES, values) - 1, 0, BINS - 1)
                ratio += sign * np.log(cells[(*at, bins)] / np.diff(EDGES)[bins])
            kept = 0.5 ** (passed / SHAPE_CYCLES)
            self._ahead = kept * self._ahead + np.bincount(output[fair], ratio[fair], outputs) / horizon
            self._beside *= kept
            self._add(self._beside, moved, (output, beside, group), fair)
        self._add(self._counts, scaled, (output, block, group), fair)
        self._track(_below(self.probabilities, due.quantiles.numpy(), due.y.numpy()), output, block, passed)
        size = np.abs(error)
        with np.errstate(over="ignore", divide="ignore"):
            wanted = np.clip(np.log(size + FLOOR * np.exp(base) + TINY) - base, -3.0, 4.0) + CENTRE
        phi = self._phi(features[[*range(2, 9), -1]], step)  # (R, W)
        for o in range(outputs):
            own = (output == o) & fair
            kept = 0.5 ** (passed / SCALE_CYCLES)
            rows = torch.from_numpy(phi[own])  # NumPy's BLAS would wake all cores for so small a product
            self._gram[o] = kept * self._gram[o] + (rows.T @ rows).numpy() / horizon
            self._moment[o] = kept * self._moment[o] + (rows.T @ torch.from_numpy(wanted[own])).numpy() / horizon
            self._theta[o] = np.linalg.solve(self._gram[o] + np.diag(self._ridge), self._moment[o])
        self._shape_of_steps(size, base, column, passed, series)

    def _issued(
        self, asked: Questions, mean: Floats, deviation: Floats, seen: Floats, profile: Floats, wanted: Floats
    ) -> Issued:
        """mean, deviation: (N, O, H). seen: (N, O, 3, 2) volatility sums. wanted: (Q,) probabilities."""
        outputs, horizon = self.shape.outputs, self.shape.horizon
        log = self._volatility(seen, self._raw[asked.series.numpy()])  # (N, O, 3)
        risen = log[..., 1] - log[..., 2]
        level = log[..., 2] + risen * ((risen - JUMP) / JUMP).clip(0.0, 1.0)
        base = level[..., None] + profile  # (N, O, H)
        unit: Floats = np.exp(base)

        def relative(distance: Floats, share: float) -> Floats:
            """log of a distance in units of the base, with a floor; 0 where it is not known."""
            return np.asarray(np.nan_to_num(np.log(distance + share * unit + TINY) - base).clip(-8.0, 8.0))

        none = np.zeros_like(base)
        spread = getattr(asked.issued, "spread", None)
        reference = np.abs(mean - self._by_step(asked.reference))
        phase = none + asked.phase.numpy()[:, None, :]
        parts = [
            none + (log[..., 0] - level)[..., None],
            none + (log[..., 1] - level)[..., None],
            relative(deviation, 0.0),
            np.where(np.isnan(reference), 0.0, relative(reference, 0.3)),
            none if spread is None else relative(self._by_step(spread), 0.1),
            none if self.lower == -np.inf else np.minimum(relative((mean - self.lower).clip(0), 0.3), 1.0),
            none if self.upper == np.inf else np.minimum(relative((self.upper - mean).clip(0), 0.3), 1.0),
            phase,
        ]
        found = np.stack(parts)  # (8, N, O, H)
        phi = self._phi(found, np.arange(horizon))
        fitted = np.einsum("nohw,ow->noh", phi, self._theta).clip(-LARGEST, LARGEST)
        log_scale = base + fitted
        scale = np.exp(log_scale)
        with np.errstate(over="ignore", invalid="ignore"):
            last, run, slope = self._course(asked.past, none)
            slots, beside, centre = self._blocks(mean, scale, last, slope)
        block, group = self._block(phase), self._group[np.arange(horizon)]

        def values(p: Floats, o: int) -> Floats:
            """(N, H, Q) quantiles of an output outside of its masses. p: (phases, Q)."""
            if self._ahead[o] > MARGIN:
                table, point = self._quantiles(self._cells_beside()[o], p[0])[beside[:, o], group], centre[:, o]
            else:
                table, point = self._table(p, o)[block[:, o], group], np.zeros(mean[:, o].shape)
            return np.asarray((mean[:, o] + point * scale[:, o])[..., None] + scale[:, o, :, None] * table)

        quantiles = np.empty((*mean.shape, len(wanted)))
        for o in range(outputs):
            moved = self._moved(wanted, o)
            if slots[o]:
                now = (part[:, o] for part in (mean, scale, last, run, slope))
                course = Course(np.arange(horizon), *now)
                p, other = self._masses.probability(o, slots[o], course), values(np.tile(GRID, (self._phases, 1)), o)
                quantiles[:, o] = self._masses.mixture(o, slots[o], p, GRID, other, moved[block[:, o]])
            else:
                quantiles[:, o] = values(moved, o)
        quantiles = quantiles.clip(self.lower, self.upper)
        features = np.stack([log_scale, base, *found[:-1], beside, centre, last, run, slope, phase])  # (F, N, O, H)
        columns = self.shape.columns
        return Issued(
            torch.from_numpy(np.moveaxis(quantiles, -1, 0).reshape(len(wanted), -1, columns)),
            torch.from_numpy(features.reshape(FEATURES, -1, columns)),
        )

    def _phi(self, found: Floats, step: Ints) -> Floats:
        """(8, ...) kept features and the steps they are of (...) -> (..., W) φ."""
        fast, daily, raw, reference, spread, low, high, phase = found
        one = np.ones_like(fast)
        angle = 2 * np.pi * (phase + 0.5) / self.period
        waves = [wave(k * angle) for k in range(1, HARMONICS + 1) for wave in (np.sin, np.cos)]
        if self.period == 1:
            waves = [0 * one] * len(waves)
        log_step = self._log_step[step]
        rest = [fast, fast * log_step, daily, raw, reference, spread, low, high]
        return np.stack([one, log_step * one, self._share[step] * one, *waves, *rest], -1)

    def _moved(self, wanted: Floats, output: int) -> Floats:
        """(phases, Q) the probabilities that are wanted, moved by the trackers."""
        known = np.concatenate([[0.0], self.probabilities, [1.0]])
        moved = np.empty((self._phases, len(wanted)))
        for b in range(self._phases):
            off = self._off[output, b] + self._off[output, -1]
            by = np.interp(wanted, known, np.concatenate([[0.0], off, [0.0]]))
            p = 0.5 + (wanted + by - 0.5) * (1 + SMALL_SAMPLE)
            moved[b] = p.clip(wanted / 6, 1 - (1 - wanted) / 6)
        return moved

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

    def _quantiles(self, cells: Floats, p: Floats) -> Floats:
        """(..., Q) quantiles of histograms (..., BINS)."""
        cumulative = np.concatenate([np.zeros((*cells.shape[:-1], 1)), np.cumsum(cells, -1)], -1)
        found = [np.interp(p, one, EDGES) for one in cumulative.reshape(-1, BINS + 1)]
        return np.maximum.accumulate(np.stack(found), -1).reshape(*cells.shape[:-1], len(p))

    def _table(self, p: Floats, output: int) -> Floats:
        """(phases, groups, Q) quantiles of error/s. p: (phases, Q)."""
        cells, of_all = self._cells()[output], self._of_all(self._counts)[output, 0]
        found = np.empty((*cells.shape[:-1], p.shape[-1]))
        for b in range(self._phases):
            off = self._off[output, b] + self._off[output, -1]
            centre = np.array([0.5 + float(np.interp(0.5, self.probabilities, off))])
            usual, own = self._quantiles(of_all, centre), self._quantiles(cells[b], centre)
            found[b] = self._quantiles(cells[b], p[b]) - (1 - KEPT_MEDIAN) * (own - usual)
        return found

    def _add(self, counts: Floats, scaled: Floats, at: tuple[Ints, Ints, Ints], fair: NDArray[np.bool_]) -> None:
        """Count errors in their histograms."""
        for side in ("left", "right"):  # an error of 0 is between two bins, and counts half in each
            bins = np.clip(np.searchsorted(EDGES, scaled, side) - 1, 0, BINS - 1)
            cell = np.ravel_multi_index((*at, bins), counts.shape)[fair]
            counts += 0.5 * np.bincount(cell, minlength=counts.size).reshape(counts.shape) / self.shape.horizon

    def _course(self, past: Tensor | None, none: Floats) -> tuple[Floats, Floats, Floats]:
        """(N, O, H) last value, run and slope of `Course`; NaN, 0 and 0 where the past is not known."""
        if past is None or not past.shape[1]:
            return none + np.nan, none, none
        values = past.numpy()  # (N, L, O)
        last, back = values[:, -1], min(SLOPE_ROWS, values.shape[1] - 1)
        near = np.array([self._masses.near(o) for o in range(values.shape[2])])
        run = np.cumprod(np.abs(values - last[:, None])[:, ::-1] <= near, 1).sum(1)
        slope = (last - values[:, -1 - back]) / max(back, 1)
        found = [none + part[..., None] for part in (last, run, slope)]
        return found[0], found[1], found[2]

    def _blocks(self, mean: Floats, scale: Floats, last: Floats, slope: Floats) -> tuple[list[list[int]], Ints, Floats]:
        """The masses of each output; (N, O, H) blocks beside y₀, and centres less the point, in s."""
        known = [bool(np.isfinite(last[:, o]).all()) for o in range(mean.shape[1])]
        slots = [self._masses.active(o) if known[o] and not self.shape.seasonal else [] for o in range(len(known))]
        away = np.nan_to_num((last - mean) / scale, posinf=0.0, neginf=0.0).clip(-FARTHEST, FARTHEST)
        beside = np.searchsorted(BESIDE, away)
        for o, own in enumerate(slots):
            for slot in own:
                beside[:, o][self._masses.at(o, slot, last[:, o])] = AT_MASS
        moving = np.nan_to_num(slope * np.arange(1, self.shape.horizon + 1) / scale)
        return slots, beside, away / (1 + (moving / STEADY) ** 2)

    def _learn_masses(self, due: Due, fair: NDArray[np.bool_], passed: float) -> NDArray[np.bool_]:
        """Count truths, and learn the probabilities of masses; (R,) whether a truth is fair and outside of all.

        Where the model knows a season there are none: it knows better than the gate when a value comes again.
        """
        if self.shape.seasonal:
            return fair
        output, step = due.column.numpy() // self.shape.horizon, due.column.numpy() % self.shape.horizon
        features, y, mean = due.features.numpy(), due.y.numpy(), due.predictive.mean[:, 0].numpy()
        known = fair & np.isfinite(features[11])
        other = fair.copy()
        for o in range(self.shape.outputs):
            own = known & (output == o)
            self._masses.count(o, y[own & (step == 0)])
            for slot in self._masses.active(o):
                other &= ~(own & self._masses.at(o, slot, y))
            course = Course(step[own], mean[own], np.exp(features[0][own]), *features[11:14][:, own])
            self._masses.learn(o, y[own], course, 0.5 ** (passed / SCALE_CYCLES))
        return other

    def _track(self, below: Floats, output: Ints, phase: Ints, passed: float) -> None:
        """below: (Q, R) how much of the truth was below the quantile as issued."""
        outputs, phases = self.shape.outputs, self._phases
        wide = np.bincount(output * phases + phase, minlength=outputs * phases).reshape(outputs, phases)
        counts = np.concatenate([wide, wide.sum(1, keepdims=True)], 1)  # (O, phases + 1)
        rate = np.append(np.full(phases, PHASE_RATE), RATE)
        kept = np.append(np.full(phases, PHASE_LEAK), LEAK) ** passed
        for k, p in enumerate(self.probabilities):
            hits = np.bincount(output * phases + phase, below[k], outputs * phases).reshape(outputs, phases)
            share = np.concatenate([hits, hits.sum(1, keepdims=True)], 1) / np.maximum(counts, 1)
            moved = kept * self._off[..., k] + rate * min(passed, 10.0) * (p - share)
            self._off[..., k] = np.where(counts > 0, moved, self._off[..., k])

    def _block(self, phase: Floats) -> Ints:
        """The block of the cycle that a phase lies in."""
        return np.asarray((phase * self._phases / self.period).astype(np.int64).clip(0, self._phases - 1))

    def _by_step(self, values: Tensor) -> Floats:
        """(N, T) -> (N, O, H)"""
        array = values.detach().to("cpu", torch.float64).numpy()
        return np.asarray(array.reshape(len(array), self.shape.outputs, self.shape.horizon))

    def _deviation(self, asked: Questions) -> Floats:
        """(N, O, H) raw standard deviations; what is infinite counts as large."""
        return np.nan_to_num(self._by_step(asked.issued.variance.sqrt()), nan=0.0, posinf=1e150)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        names = ("errors", "raw", "latest", "steps", "gram", "moment", "theta", "counts", "beside", "ahead", "off")
        own = {name: torch.from_numpy(getattr(self, f"_{name}").copy()) for name in names}
        return own | {f"masses.{name}": part for name, part in self._masses.state()[0].items()}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._masses.restore({name[7:]: part for name, part in tensors.items() if name.startswith("masses.")}, {})
        for name, tensor in tensors.items():
            if not name.startswith("masses."):
                setattr(self, f"_{name}", tensor.numpy().copy())


def _below(probabilities: Floats, quantiles: Floats, y: Floats) -> Floats:
    """(Q, R) how much of a truth lies below each quantile: 0 or 1, or a share where the quantile is the truth itself.

    Args:
        quantiles: (Q, R).
        y: (R,).
    """
    below: Floats = (y <= quantiles).astype(np.float64)
    row, k = np.nonzero((quantiles == y).T)
    if len(row):
        ends = np.concatenate([[0.0], probabilities, [1.0]])
        low, high = ends[(quantiles < y).sum(0)], ends[(quantiles <= y).sum(0) + 1]
        below[k, row] = (probabilities[k] - low[row]) / (high - low)[row]
    return below
