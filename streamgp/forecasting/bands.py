"""Calibrated distributions: the distribution of the model's recent errors, by phase of the season and steps ahead.

The calibrated quantile of level p is point + s · q(p), inside the bounds of the target, with

    log s   b + θ·φ, and b = log v + max_k d_k min(1, max(0, d_k/JUMPS_k − 1)) + log a_h with d_k = log v_k/v. v, v₁, v₀
            are weighted means of the known |errors| of the series (half-lives 3 cycles, 1 cycle and a quarter) over
            the profile a of the steps, and a fourth v_k is SHARE of the median error of the last AT_ONCE rows; b is
            that of one whose d shows a jump, v₁'s of targets that are often 0.
            φ are computed from `issued.ScaleFeatures`; θ is a ridge regression of log(|error| + FLOOR · e^b) − b on
            them, with a memory of 16 weeks of days.
    q(p)    the quantile of the histogram of error/s: that of the phase and group of steps, shrunk to that of the phase,
            shrunk to that of all, shrunk to a logistic distribution. Half of the distance of its median to that of all
            is taken out, as most of that is noise; p itself is moved by how often the truth was below the quantile
            (`trackers`).

Without a season an output may have masses (`masses`). From then on there is a second θ, with histograms of its own, of
the truths outside of them, and a second distribution, its mixture with the masses. A forecast keeps JUDGED quantiles of
both until its truth comes. The second is issued where it has earned it: where its CRPS, a discounted mean by output,
group of steps and state of y₀ (steady, rising, falling, at a mass), is less by the share EARNED. The trackers then are
one of each state in place of one a phase. Without masses nothing is computed or kept for them.

Where there is no cycle, there is a second set of histograms, used while its density of the truths is higher. They go by
where the last value y₀ lies beside the point, origins at a mass apart, and their errors have another centre, point +
(y₀ − point)/(1 + (h·slope/(STEADY·s))²): the last value, the less the target is moving.

Upper quantiles of targets that are often 0 have caps (`caps`). Where no lower bound is given, one that the truths
respect is found (`bounds`). No quantile lies farther beyond all values of a series than these have come (`reach`).

A forecast from targets that were last known some rows ago is wider (`outages`), and nothing is learned from it. Where
known inputs are not known, the variance of what stands in for them is added to that of the errors, (π/2) s².

A cycle is the period of the phases (`Bands`, argument `period`) up to LONGEST rows, and at least the longest of 24 rows
and the horizon. v follows the truths row by row: a question sees every truth that is known at its row. θ, a, q, the
trackers and how far values reach move once a micro-batch; the values of a question's window are within reach at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import FLOAT, Due, Json, Predictive, Shape
from streamgp.forecasting.bounds import Bounds, Change
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.caps import Caps
from streamgp.forecasting.error_shape import (
    CENTRE,
    EDGES,
    FLOOR,
    SCALE_CYCLES,
    SHAPE_CYCLES,
    ErrorShape,
    Truths,
    View,
)
from streamgp.forecasting.issued import JUDGED, AtIssue, Issued, MassesAtIssue, ScaleFeatures
from streamgp.forecasting.masses import AtOrigin, Masses
from streamgp.forecasting.origins import STATES, course, states
from streamgp.forecasting.outages import Outages
from streamgp.forecasting.quantiles import below, crps
from streamgp.forecasting.reach import Reach
from streamgp.forecasting.streams import StreamIndex, longer, whole
from streamgp.forecasting.trackers import Trackers
from streamgp.forecasting.volatility import JUMPS, START, TINY, Errors, KnownErrors, Volatility
from streamgp.predictives.gaussian import NORMAL
from streamgp.state import Arrays, Declared, Nested, Parts

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

LONGEST = 96
"""Rows of a cycle at most: a day of minutes has phases, but calibration does not wait for days to learn."""
PHASES, HARMONICS = 12, 4
"""Blocks of a cycle that have histograms of their own; pairs of sine and cosine in φ."""
GRID = np.concatenate([[0.001, 0.0025, 0.005], np.linspace(0.01, 0.99, 50), [0.995, 0.9975, 0.999]])
"""Probabilities at which the part outside of the masses is computed."""
EARNED, PROVEN = 0.003, 100.0
"""Share of the CRPS that masses must save, and the rows of a cell that must say so."""
MOST = 2.0
"""What the volatility at once adds to b at most, as φ sees it: θ was learned where it added little."""


class Questions(NamedTuple):
    """What forecasts are issued for. N questions, H steps ahead, T = O · H columns.

    Attributes:
        series: (N,) codes.
        at: (N,) index in `Errors.series` of the row that is asked at; not looked at where there are no errors.
        phase: (N, H) place in the cycle of each row that is asked about, 0 to period − 1.
        issued: the raw distributions, (N, T).
        reference: (N, T) a naive forecast; NaN where there is none.
        past: (N, L, O) the newest values of the targets; where it is None, masses are not looked for.
        age: (N, O) steps since each target was last known; None: they all are.
        blur: (N, T) standard deviations of the means for inputs that are not known; None: 0.
    """

    series: Tensor
    at: Tensor
    phase: Tensor
    issued: Predictive
    reference: Tensor
    past: Tensor | None = None
    age: Tensor | None = None
    blur: Tensor | None = None


class Bands(Declared, Volatility):
    """The calibrated distribution of a model's forecasts; Stateful. One calibration for all series, but the volatility,
    which each has of its own; or one for each, as if it were alone.

    What is learned has a leading axis of units: the outputs of a stream, which is all series, or each. Silent streams
    cost nothing.

    Args:
        shape: what the model is built for.
        calibration: which quantiles are issued; where there are none, nothing is learned.
        period: rows of a cycle, such as those of a day; 1 is none.
        apart: whether each series is a stream of its own.
        start: of `Volatility`.

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

    STATE = (
        Arrays("errors", "newest", "raw", "latest", "limited", later=("limited",)),
        Arrays("steps"),
        Arrays("split", "lost"),
        Nested(of="_parts", made={"outside": "_another"}, bare=True),
    )

    def __init__(
        self, shape: Shape, calibration: Calibration, period: int = 1, apart: bool = False, start: float = START
    ) -> None:
        self.period = max(period, 1)
        super().__init__(shape, float(max(min(self.period, LONGEST), 24, shape.horizon)), apart, start)
        self.probabilities = np.array(calibration.probabilities, dtype=np.float64)
        self.lower = -np.inf if calibration.lower is None else calibration.lower
        self._finds = calibration.finds and calibration.lower is None and len(self.probabilities) > 0
        self.upper = np.inf if calibration.upper is None else calibration.upper
        outputs, horizon = shape.outputs, shape.horizon
        steps = np.arange(1, horizon + 1)
        borders = np.unique([1, max(2, horizon // 12), max(1, horizon // 4), max(1, horizon // 2)])
        self._group = np.unique(np.searchsorted(borders, steps), return_inverse=True)[1]  # (H,) group of each step
        self._log_step = np.log((steps + 0.1) / horizon) + 1 if horizon > 1 else np.zeros(1)
        self._share = steps / horizon if horizon > 1 else np.zeros(1)
        self._phases = min(PHASES, self.period)
        angle = 2 * np.pi * (np.arange(self.period) + 0.5) / self.period
        waves = [wave(k * angle) for k in range(1, HARMONICS + 1) for wave in (np.sin, np.cos)]
        self._waves = np.stack(waves, -1) if self.period > 1 else np.zeros((1, 2 * HARMONICS))
        units = 0 if apart else outputs
        arguments = shape, units, self.cycle, self._phases, int(self._group[-1]) + 1, 3 + 2 * HARMONICS + 8
        self._all = ErrorShape(*arguments)  # of all truths
        self.outside: ErrorShape | None = None  # once there are masses, of those outside of them too
        self._split = np.zeros(units, bool)  # (U,) which have the second
        self._lost = np.zeros((units, self._group[-1] + 1, STATES, 3))  # rows, CRPS without and with masses
        self._tracked = STATES if self.period == 1 else self._phases
        self._trackers = Trackers(units, self._tracked, self.probabilities)
        self._masses = Masses(units, horizon)
        self._bounds = Bounds(units)
        self._caps = Caps(units, self._phases, int(self._group[-1]) + 1, horizon)
        self._reach = Reach(outputs, horizon)
        self.outages = Outages(shape, apart)

    def issue(self, asked: Questions, errors: Errors) -> Issued:
        """Learn the volatility from errors that are known now, row by row, and issue: a question sees the errors of
        rows up to its own."""
        if not len(self.probabilities):
            count, columns = asked.issued.mean.shape
            return Issued(*torch.zeros(2, 0, count, columns, dtype=FLOAT))
        series, mean, deviation = asked.series.numpy(), self._by_step(asked.issued.mean), self._deviation(asked)
        answered = errors.series.numpy()
        self._reserve(series, answered)
        streams = self._begun(series, deviation)
        of_errors = self._streams(answered)
        followed = self._follow(errors, self._profile(of_errors.own), of_errors.at)
        seen = self._seen(series) if followed is None else followed.rows(asked.at.numpy())
        return self._issued(asked, streams, mean, deviation, seen, self.probabilities)

    def quantiles(self, asked: Questions, probabilities: Sequence[float]) -> Tensor:
        """(P, N, T) the quantiles of any probabilities, as the calibration stands; nothing is learned."""
        series, mean, deviation = asked.series.numpy(), self._by_step(asked.issued.mean), self._deviation(asked)
        if self.apart:
            self._reserve(series)
        kept = self._errors, self._newest, self._raw, self._latest, self._limited
        steps, reach = self._steps.copy(), copy.copy(self._reach)
        self._reserve(series)
        streams = self._begun(series, deviation)
        wanted = np.array(probabilities, dtype=np.float64)
        issued = self._issued(asked, streams, mean, deviation, self._seen(series), wanted)
        self._errors, self._newest, self._raw, self._latest, self._limited = kept
        self._steps, self._reach = steps, reach
        return issued.quantiles

    def wider(self, series: Tensor, age: Tensor) -> Tensor:
        """(N, T) what the spreads of forecasts of these series (N,) are multiplied by; age: (N, O), see `outages`."""
        codes = series.numpy()
        if not bool((age > 0).any()):
            return torch.ones(len(age), self.shape.columns, dtype=FLOAT)
        self._reserve(codes)
        streams = self._streams(codes)
        return self.outages.wider(series, age, self._profile(streams.own)[streams.at])

    def follow(self, series: Tensor, y: Tensor, seasonal: Tensor) -> None:
        """Learn what the last season is worth: truths (R, O) of these series, and those a season before."""
        if len(self.probabilities):
            self.outages.follow(series, y, seasonal)

    def note(self, series: Tensor, y: Tensor) -> Change:
        """Learn whether truths (R, O) of these series are 0 or more: outputs that are bounded from here on, and outputs
        that no longer are."""
        if not len(y) or not len(self.probabilities):
            return Change(*np.zeros((2, 0), np.int64))
        codes, outputs = series.numpy(), self.shape.outputs
        self._reserve(codes)
        unit = (codes[:, None] * outputs * self.apart + np.arange(outputs)).reshape(-1)
        found, ended = self._bounds.follow(unit, y.numpy().reshape(-1))
        return Change(*(np.unique(part[: len(part) * self._finds] % outputs) for part in (found, ended)))

    def see(self, series: Tensor, y: Tensor) -> None:
        """Learn how far values reach: those (R, O) of the next rows of these series, as models learn them."""
        if len(y) and len(self.probabilities):
            codes = series.numpy()
            self._reserve(codes)
            self._reach.follow(codes, y.numpy())

    def zeros(self, output: int) -> float:
        """The largest share of zeros among the truths of an output of a stream."""
        units = np.arange(output, len(self._split), self.shape.outputs)
        return float(self._bounds.shares(units).max(initial=0.0))

    def update(self, due: Due) -> None:
        """Learn scale and shape from truths that have arrived."""
        if not len(due.y) or not len(self.probabilities):
            return
        self.outages.learn(due)
        outputs, horizon, columns = self.shape.outputs, self.shape.horizon, self.shape.columns
        column, features, series = due.column.numpy(), due.features.numpy(), due.series.numpy()
        issued, of_masses = AtIssue.of(features), MassesAtIssue.of(features)
        streams = self._streams(series)
        count, units = len(streams.own), streams.units(outputs)
        step, unit = column % horizon, streams.at * outputs + column // horizon
        error = (due.y[:, None] - due.predictive.mean)[:, 0].numpy()
        own = np.ones(count, np.int64) if self.apart else np.full(1, np.count_nonzero(np.bincount(series)))
        rows = np.bincount(streams.at * columns + column, minlength=count * columns).reshape(count, columns)
        passed = rows.max(1) / own / self.cycle  # (K,) cycles
        base, block, group = issued.base, self._block(issued.phase), self._group[step]
        size = np.abs(error)
        with np.errstate(over="ignore", divide="ignore"):
            wanted = np.clip(np.log(size + FLOOR * np.exp(base) + TINY) - base, -3.0, 4.0) + CENTRE
        phi = self._phi(issued.scale, step)  # (R, W)
        beside = (np.bincount(streams.at, np.isnan(issued.last), count) == 0) & (self.period == 1)
        of_unit = np.repeat(passed, outputs)
        truths = Truths(units, unit, block, group, error, phi, wanted, np.repeat(beside, outputs), of_unit)
        views = [issued.view]
        if len(self._shapes) > 1:
            views.append(views[0] if of_masses is None else of_masses.view(views[0]))
            if of_masses is not None:
                self._judge(due.y, of_masses, truths)
        state = 0 * block if of_masses is None else whole(of_masses.state)
        fair = [np.abs(own.scaled(truths, view)) <= EDGES[-1] for own, view in zip(self._shapes, views, strict=True)]
        fair.append(self._learn_masses(due, issued, truths, fair[-1], views[-1]))
        left = np.bincount(streams.at, fair[0] != fair[-1], count) > 0
        self._divide(units[np.repeat(left, outputs)])
        self._shapes[0].learn(truths, views[0], fair[0])
        if len(self._shapes) > 1:
            self._learn_outside(truths, views[-1], fair[-1])
        self._learn_caps(due, issued, truths)
        tracked = state if self.period == 1 else block
        self._trackers.learn(below(self.probabilities, due.quantiles.numpy(), due.y.numpy()), truths, tracked)
        self._shape_of_steps(size, base, column, streams, passed, own)

    def _begun(self, series: Ints, deviation: Floats) -> StreamIndex:
        """The streams of forecasts (N, O, H), with a profile and a volatility to begin with."""
        streams = self._streams(series)
        if len(series):
            self._begin_profile(streams, deviation)
            self._meet(series, deviation, self._profile(streams.own)[streams.at])
        return streams

    def _reserve(self, *codes: Ints) -> None:
        super()._reserve(*codes)
        if len(self._raw) > len(self._reach):
            self._reach.reserve(len(self._raw) - len(self._reach))
        grown = len(self._raw) * self.shape.outputs - len(self._split)
        if self.apart and grown > 0:
            self._lost, self._split = longer(self._lost, grown), longer(self._split, grown)
            self._trackers.reserve(grown)
            self._masses.reserve(grown)
            self._bounds.reserve(grown)
            self._caps.reserve(grown)
            for shape in self._shapes:
                shape.reserve(grown)

    @property
    def _shapes(self) -> list[ErrorShape]:
        return [self._all] if self.outside is None else [self._all, self.outside]

    def _another(self) -> ErrorShape:
        return copy.deepcopy(self._all)

    def _parts(self) -> Parts:
        own: Parts = {"all": self._all, "masses": self._masses, "trackers": self._trackers}
        return {**own, "outages": self.outages, "bounds": self._bounds, "caps": self._caps, "reach": self._reach}

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        if len(tensors["reach.rows"]) != len(tensors["raw"]):
            raise ValueError("reach.rows has another number of series than raw")
        if bool(tensors["split"].any()) and "outside.theta" not in tensors:
            raise ValueError("outside.theta is missing, and split says that there are units with masses")
        if any(
            len(tensors[key]) != len(tensors["split"])
            for key in ("all.theta", "masses.value", "caps.lost", "trackers.off")
        ):
            raise ValueError("split has another number of rows than what it is of")

    def _divide(self, units: Ints) -> None:
        """These units have masses: from here on the truths outside of them have a shape of their own."""
        new = units[~self._split[units]]
        if not len(new):
            return
        if self.outside is None:
            self.outside = self._another()
        self.outside.take(self._all, new)
        self._split[new] = True

    def _learn_outside(self, truths: Truths, view: View, fair: NDArray[np.bool_]) -> None:
        """The units that have masses learn from the truths outside of them."""
        some, rows = truths.of(self._split[truths.units])
        if len(some.units):
            self._shapes[1].learn(some, view.rows(rows), fair[rows])

    def _issued(
        self, asked: Questions, streams: StreamIndex, mean: Floats, deviation: Floats, seen: KnownErrors, wanted: Floats
    ) -> Issued:
        """mean, deviation: (N, O, H). seen: the errors known. wanted: (Q,) probabilities."""
        outputs, horizon = self.shape.outputs, self.shape.horizon
        units, unit = streams.units(outputs), streams.at[:, None] * outputs + np.arange(outputs)  # (V,), (N, O)
        lower = self._lower(units)[unit][..., None]  # (N, O, 1)
        usual, more, *faster = self._base(asked, streams, seen, units, unit)
        known, base = more.clip(max=MOST), usual + more
        measured = self._measured(asked, mean, deviation, usual + known, [one - known for one in faster], lower)
        last, run, slope = course(self._masses, asked.past, np.zeros_like(base), units, unit)
        slots, state = dict[int, list[int]](), np.zeros(mean.shape, np.int64)
        if not self.shape.seasonal:
            slots, state = states(self._masses, last, slope, base, units, unit)
        phi, at_mass = self._phi(measured, np.arange(horizon)), state == STATES - 1
        views = [shape.view(units[unit], phi, base, mean, last, slope, at_mass) for shape in self._shapes]
        block = state if self.period == 1 else self._block(measured.phase)
        moved, median = self._trackers.moved(wanted, units), 0.5 + self._trackers.moves(np.array([0.5]), units)[..., 0]
        low, high = self._ends(asked, mean, lower)
        quantiles = self._shapes[0].quantiles(
            units, views[0], mean, (unit[..., None], block, self._group), moved, median
        )
        compared = np.full((2, JUDGED, *mean.shape), np.nan)  # without masses, and with them
        judged = np.linspace(0, len(wanted) - 1, JUDGED).round().astype(np.int64)
        for v in (v for v, own in slots.items() if own and self._split[units[v]]):
            n, o = np.nonzero(unit == v)
            parts = mean, np.exp(views[1].log_scale), last, run, slope
            now = AtOrigin(np.arange(horizon), *(part[n, o] for part in parts))
            plain, view = quantiles[n, o], views[1].rows(n, o)
            mixed = self._mixed(units[v], slots[v], now, view, block[n, o], moved[v], median[v])
            both = np.stack([plain[..., judged], mixed[..., judged]])
            compared[:, :, n, o] = np.moveaxis(both, -1, 1).clip(low[n, o], high[n, o])
            quantiles[n, o] = np.where(self._earned(units[v])[self._group, state[n, o], None], mixed, plain)
        ends, quantiles = self._capped(quantiles, mean, deviation, units, unit, block, wanted)
        quantiles = self._widened(quantiles, mean, views[0].log_scale, asked, streams)
        quantiles, ends = quantiles.clip(low[..., None], high[..., None]), [end.clip(low, high) for end in ends]
        if self._finds:  # a point below a bound that was found is at it, and the lowest quantile says so
            quantiles[..., 0] = np.where(mean < lower, lower, quantiles[..., 0])
        own = views[0]._asdict() | measured._asdict()
        kept = AtIssue(**own, base=base, last=last, run=run, slope=slope, uncapped=ends[0], capped=ends[1])
        features = list(kept)
        if len(views) > 1:
            alone = ~self._split[units][unit][..., None]
            of_masses = MassesAtIssue._make(np.where(alone, np.nan, part) for part in (state, *views[1], *compared))
            features += of_masses.columns()
        columns = self.shape.columns
        return Issued(
            torch.from_numpy(np.moveaxis(quantiles, -1, 0).reshape(len(wanted), -1, columns)),
            torch.from_numpy(np.stack(features).reshape(len(features), -1, columns)),
        )

    def _base(self, asked: Questions, streams: StreamIndex, seen: KnownErrors, units: Ints, unit: Ints) -> list[Floats]:
        """b but for the volatility at once, (N, O, H); then (N, O, 1) each: what that adds, and log v₀ and log v₁ less
        the part of b that all steps share.

        Args:
            asked: N questions.
            streams: their streams.
            seen: the errors known.
            units: (V,) of the streams.
            unit: (N, O) which of these.
        """
        at_once, fast, daily, slow = self._logs(seen, self._raw[asked.series.numpy()])
        risen = np.stack([at_once, fast, daily]) - slow
        risen = risen * (risen / JUMPS[:, None, None] - 1.0).clip(0.0, 1.0)
        bounded = self._bounds.bounded(units)[unit]  # few large values among zeros are no new noise
        risen_at_once, risen_fast, risen_daily = (*np.where(bounded, 0.0, risen[:2]), risen[2])
        level = slow + np.maximum(risen_fast, risen_daily)
        more = (slow + risen_at_once - level).clip(0.0)
        shared = [part[..., None] for part in (level, more, fast - level, daily - level)]
        return [shared[0] + self._profile(streams.own)[streams.at], *shared[1:]]

    def _measured(
        self, asked: Questions, mean: Floats, deviation: Floats, base: Floats, faster: Sequence[Floats], lower: Floats
    ) -> ScaleFeatures:
        """What φ is computed from, (N, O, H) each.

        Args:
            asked: N questions.
            mean: (N, O, H) the points.
            deviation: (N, O, H) raw standard deviations.
            base: (N, O, H) b, with at most MOST of what the volatility at once adds.
            faster: log v₀ and log v₁ of `_base`, (N, O, 1) each.
            lower: (N, O, 1) lower bounds; -inf: none.
        """
        unit_scale: Floats = np.exp(base)

        def relative(distance: Floats, share: float) -> Floats:
            """log of a distance in units of the base, with a floor; 0 where it is not known."""
            return np.asarray(np.nan_to_num(np.log(distance + share * unit_scale + TINY) - base).clip(-8.0, 8.0))

        none, spread = np.zeros_like(base), getattr(asked.issued, "spread", None)
        reference = np.abs(mean - self._by_step(asked.reference))
        return ScaleFeatures(
            fast=none + faster[0],
            daily=none + faster[1],
            deviation=relative(deviation, 0.0),
            reference=np.where(np.isnan(reference), 0.0, relative(reference, 0.3)),
            spread=none if spread is None else relative(self._by_step(spread), 0.1),
            low=none if not np.isfinite(lower).any() else self._above(lower, mean, relative),
            high=none if self.upper == np.inf else np.minimum(relative((self.upper - mean).clip(0), 0.3), 1.0),
            phase=none + asked.phase.numpy()[:, None, :],
        )

    def _mixed(
        self, unit: int, slots: list[int], now: AtOrigin, view: View, block: Ints, moved: Floats, median: Floats
    ) -> Floats:
        """(R, H, Q) quantiles of the mixture with the masses of a unit.

        Args:
            unit: that they are of.
            slots: of its masses.
            now: where its R forecasts begin, (R, H).
            view: of them, outside of the masses.
            block: (R, H) of the cycle, or states of y₀.
            moved: (K, Q) probabilities, for each block.
            median: (K,) the probability that stands for ½.
        """
        p = self._masses.probability(unit, slots, now)
        grid, alone = np.tile(GRID, (1, self._tracked, 1)), np.zeros((len(block), 1), np.int64)
        at = alone, block, self._group
        other = self._shapes[1].quantiles(np.array([unit]), view, now.mean, at, grid, median[None])
        return self._masses.mixture(unit, slots, p, GRID, other, moved[block])

    def _widened(
        self, quantiles: Floats, mean: Floats, log_scale: Floats, asked: Questions, streams: StreamIndex
    ) -> Floats:
        """Quantiles (N, O, H, Q), farther from the points where targets were last known some rows ago, or where known
        inputs are not known; mean, log_scale: (N, O, H) points and log s."""
        if asked.age is not None and bool((asked.age > 0).any()):
            wider = self.outages.wider(asked.series, asked.age, self._profile(streams.own)[streams.at])
            quantiles = mean[..., None] + (quantiles - mean[..., None]) * wider.numpy().reshape(*mean.shape, 1)
        if asked.blur is not None and bool((asked.blur > 0).any()):
            usual = NORMAL * np.exp(log_scale) + TINY
            more = np.sqrt(1.0 + np.square(self._by_step(asked.blur) / usual))
            quantiles = mean[..., None] + (quantiles - mean[..., None]) * more[..., None]
        return quantiles

    def _ends(self, asked: Questions, mean: Floats, lower: Floats) -> Floats:
        """(2, N, O, H) what no quantile is below, and none above: bounds, and how far values `reach`.

        mean: (N, O, H) the points; lower: (N, O, 1) lower bounds.
        """
        past = None if asked.past is None else asked.past.numpy()
        low, high = np.moveaxis(self._reach.limits(asked.series.numpy(), past), 2, 0)[..., None]  # (N, O, 1) each
        found = np.stack([np.where(mean < low, -np.inf, low), np.where(mean > high, np.inf, high)])
        return found.clip(lower, self.upper)

    def _capped(
        self, quantiles: Floats, mean: Floats, deviation: Floats, units: Ints, unit: Ints, block: Ints, wanted: Floats
    ) -> tuple[list[Floats], Floats]:
        """The highest quantile (N, O, H) without and with caps, NaN where there are none; and quantiles (N, O, H, Q),
        with caps where these cost next to nothing."""
        often = self._bounds.bounded(units)  # (V,)
        above = np.flatnonzero(wanted > 0.5)
        if not often.any() or not len(above):
            return [np.full_like(mean, np.nan)] * 2, quantiles
        phase = block if self.period > 1 else np.zeros_like(block)
        table = self._caps.table(units, wanted[above])[unit[..., None], phase, self._group]
        caps = mean[..., None] + deviation[..., None] * table
        middle = quantiles[..., wanted <= 0.5].max(-1, initial=-np.inf, keepdims=True)
        nearer = np.maximum(np.minimum(quantiles[..., above], caps), middle)  # no cap is below a lower quantile
        there = often[unit][..., None]  # (N, O, 1)
        ends = [np.where(there, part[..., -1], np.nan) for part in (quantiles, nearer)]
        used = there & self._caps.earned(units)[unit][..., None]
        found = quantiles.copy()
        found[..., above] = np.where(used[..., None], nearer, quantiles[..., above])
        return ends, found

    def _learn_caps(self, due: Due, issued: AtIssue, truths: Truths) -> None:
        """Count errors over raw standard deviations, and what caps would have saved.

        Those are exp(b) times a feature, but where the volatility at once added more than MOST to b: it adds nothing
        to bounded outputs, and so only in forecasts that waited while a bound was found.
        """
        some, rows = truths.of(self._bounds.bounded(truths.units))
        if not len(some.units):
            return
        p, off = self.probabilities[-1], due.y.numpy()[rows] - np.stack([issued.uncapped, issued.capped])[:, rows]
        phase = some.block if self.period > 1 else np.zeros_like(some.block)
        with np.errstate(over="ignore"):
            scaled = np.nan_to_num(some.error / np.exp(issued.base + issued.deviation)[rows])
        self._caps.learn(
            some.units,
            (some.unit, phase, some.group),
            scaled,
            np.maximum(p * off, (p - 1) * off).T,
            some.passed,
        )

    def _lower(self, units: Ints) -> Floats:
        """(V,) lower bounds of the outputs of units; -inf: none."""
        return self._bounds.lower(units) if self._finds else np.full(len(units), self.lower)

    def _above(self, lower: Floats, mean: Floats, relative: Callable[[Floats, float], Floats]) -> Floats:
        """How far points (N, O, H) are above the bounds (N, O, 1), as a feature; 0 where there is none."""
        away = np.where(np.isfinite(lower), mean - lower, 0.0).clip(0)
        return np.where(np.isfinite(lower), np.minimum(relative(away, 0.3), 1.0), 0.0)

    def _phi(self, of: ScaleFeatures, step: Ints) -> Floats:
        """(..., W) φ; step: (...) the steps of the forecasts."""
        one = np.ones_like(of.fast)
        log_step = self._log_step[step]
        rest = [of.fast, of.fast * log_step, of.daily, of.deviation, of.reference, of.spread, of.low, of.high]
        own = [one, log_step * one, self._share[step] * one]
        phi = np.empty((*one.shape, len(own) + 2 * HARMONICS + len(rest)))
        phi[..., len(own) : -len(rest)] = self._waves[whole(of.phase).clip(0, len(self._waves) - 1)]
        for at, column in zip((*range(len(own)), *range(-len(rest), 0)), own + rest, strict=True):
            phi[..., at] = column
        return phi

    def _learn_masses(
        self, due: Due, issued: AtIssue, truths: Truths, fair: NDArray[np.bool_], view: View
    ) -> NDArray[np.bool_]:
        """Count truths, and learn the probabilities of masses; (R,) whether a truth is fair and outside of all.

        Where the model knows a season there are none: it knows better than the gate when a value comes again.
        """
        if self.shape.seasonal:
            return fair
        step = due.column.numpy() % self.shape.horizon
        y, mean = due.y.numpy(), due.predictive.mean[:, 0].numpy()
        known = np.flatnonzero(fair & np.isfinite(issued.last))
        other = fair.copy()
        order = known[np.argsort(truths.unit[known], kind="stable")]
        ends = np.searchsorted(truths.unit[order], np.arange(len(truths.units) + 1))
        first = order[step[order] == 0]
        lengths = np.bincount(truths.unit[first], minlength=len(truths.units))
        self._masses.count_each(truths.units, lengths, y[first])
        for v in np.flatnonzero(self._masses.met[truths.units]).tolist():
            unit, own = truths.units[v], order[ends[v] : ends[v + 1]]
            for slot in self._masses.active(unit):
                other[own] &= ~self._masses.at(unit, slot, y[own])
            came = (part[own] for part in (issued.last, issued.run, issued.slope))
            begun = AtOrigin(step[own], mean[own], np.exp(view.log_scale[own]), *came)
            self._masses.learn(unit, y[own], begun, 0.5 ** (truths.passed[v] / SCALE_CYCLES))
        return other

    def _judge(self, y: Tensor, issued: MassesAtIssue, truths: Truths) -> None:
        """Compare the quantiles without and with masses."""
        judged = self.probabilities[np.linspace(0, len(self.probabilities) - 1, JUDGED).round().astype(np.int64)]
        lost = [crps(judged.tolist(), torch.from_numpy(own), y).numpy() for own in (issued.without, issued.mixed)]
        self._lost[truths.units] *= (0.5 ** (truths.passed / SHAPE_CYCLES))[:, None, None, None]
        new = np.stack([np.ones(len(y)), *lost], -1) / np.bincount(self._group)[truths.group, None]
        known = ~np.isnan(lost[0])
        at = truths.units[truths.unit[known]], truths.group[known], whole(issued.state[known])
        np.add.at(self._lost, at, new[known])

    def _earned(self, unit: int) -> NDArray[np.bool_]:
        """(groups, STATES) whether masses have won."""
        rows, without, masses = np.moveaxis(self._lost[unit], -1, 0)
        return np.asarray((rows >= PROVEN) & (masses < (1 - EARNED) * without))

    def _block(self, phase: Floats) -> Ints:
        """The block of the cycle that a phase lies in."""
        return np.asarray(whole(phase * self._phases / self.period).clip(0, self._phases - 1))

    def _by_step(self, values: Tensor) -> Floats:
        """(N, T) -> (N, O, H)"""
        array = values.detach().to("cpu", torch.float64).numpy()
        return np.asarray(array.reshape(len(array), self.shape.outputs, self.shape.horizon))

    def _deviation(self, asked: Questions) -> Floats:
        """(N, O, H) raw standard deviations; what is infinite counts as large."""
        return np.nan_to_num(self._by_step(asked.issued.variance.sqrt()), nan=0.0, posinf=1e150)
