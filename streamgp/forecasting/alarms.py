"""Alarms at a chosen false-alarm rate: how improbable each truth was under its forecast one step ahead.

A row. With the median m and the ends of the widest band, all as issued, the score is a = |y − m|/w, w the distance from
m to the end on the side of y. S(a), the share of scores above a, comes from a histogram of log a with half-life
MEMORY/α; beyond its highest scores it is a Pareto tail with Hill's exponent (Hill 1975). p is exp(−g(−log S)), where g
is the identity up to a third of log 1/α, and from there the line that maps a threshold c to log 1/α. A row is an
anomaly where p ≤ α. c follows

    c ← c + η (1[anomaly] − α)                                            (Angelopoulos, Candès & Tibshirani 2023),

so that |share of anomalies − α| ≤ (range of c + η)/(η · rows), however the errors are distributed.

A stretch. Each row bets against uniform p-values, and against values that repeat; the bets e ≥ 0 have mean at most 1
where the forecasts are right. M ← max(M, 1)·e is an e-detector (Shin, Ramdas & Rinaldo 2023): the mean time until the
first M ≥ 1/α is at least 1/α, and rows that say nothing, e = 1, raise no alarm. Bets on p-values are κ p^(κ−1) (Vovk,
Nouretdinov & Gammerman 2003) on p, 1 − p and both sides of the signed p-value; the M of each are averaged: `change`.
These p-values are conditional, from histograms by side and by how many of the PAST rows before were calm, p > ½: spells
that are natural to a stream, such as a vehicle that stands, are no change. Scores in one bin of a histogram have the
mean of the bets in it: where all are alike, e = 1. Bets on repeated values are 1/q where a value comes again, else 0;
q is how often it did so after a run as long, at a mass (`masses`) or elsewhere: `stuck`. They begin when YOUNGEST
truths have shown how often values repeat. Each has half of α and starts again after its alarm.
Errors of real models depend on one another still, so the threshold of log M also rises by a share RISE at an alarm, and
sinks as much in 2/α rows, to Ville's at the lowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Due, Json, Shape
from streamgp.forecasting.issued import LOG_SCALE
from streamgp.forecasting.masses import YOUNGEST, Masses
from streamgp.forecasting.streams import extended
from streamgp.state import Arrays, Declared, Nested, Value

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

KINDS = ("anomaly", "change", "stuck")
"""What a row may raise; `Verdicts.kind` has a bit for each: 1, 2 and 4."""
ANOMALY, CHANGE, STUCK = range(len(KINDS))
"""Places of the same in thresholds and counts."""
VALUE, RUN = range(2)
"""Places of the newest value, and of the run up to it, in what is kept of a series."""
BINS = 280
EDGES = np.linspace(np.log(1e-3), np.log(1e3), BINS + 1)
"""Borders of the histogram of log a; what is beyond is in the last bin."""
MEMORY = 10.0
"""Half-life of the histogram and of the counts of repeats, in rows per α."""
PRIOR = 50.0
"""Rows that the prior S(a) = 0.05^a counts as: the band covers 95 %."""
TAIL, SHARE = 50.0, 0.1
"""Scores that the tail is fitted to, at most this share of all."""
SHRUNK_BY, SHRUNK_TO = 10.0, 0.3
"""Scores that Hill's estimate of the slope is shrunk by, and what to."""
FLOOR = 0.5
"""Least half-width of a band, in scales of the calibration: a band may be empty where a value comes again and again."""
EXACT = 1e-6
"""Deviations of the model within which a truth is its forecast: the constant of a target that never changes."""
STEP, RISE = 0.5, 1.0
"""η, and the share that log M must be higher by after the alarm of a stretch."""
HIGHEST = 4.0
"""Most that the threshold of a row is above log 1/α."""
ON_P, ON_REST, ON_SIGNED = (0.5, 0.8), (0.6,), (0.7, 0.7)
"""κ of the bets on p, on 1 − p, and on both signed p-values."""
POWERS = ON_P + ON_REST + ON_SIGNED
PAST = 4
"""Rows before one that its bets depend on."""
LEAST = 0.005
"""A p-value in a bet is at least this, so that one row is no stretch."""
GLITCH = np.log(20.0)
"""Values whose score is more say nothing of what usual values are."""
RUNS = 16
"""Classes of runs: of 1 to 4 rows, up to 8, 16, ..."""
RARE = 0.05
"""Least q: a single repeated value is then no alarm."""


class Verdicts(NamedTuple):
    """What each of R forecasts says of its truth.

    Attributes:
        p: (R,) tail probability of the truth; NaN more than one step ahead.
        kind: (R,) int64, a bit for each of KINDS. A stretch is reported at the row at which it is noticed.
    """

    p: Tensor
    kind: Tensor


class Alarms(Declared):
    """Tail probabilities and alarms of arrived values; Stateful. One estimate for all series, stretches for each; or
    estimates for each, as if it were alone.

    What is estimated has a leading axis of units: the outputs of a stream, which is all series, or each.

    Args:
        shape: what the model is built for.
        probabilities: of the issued quantiles.
        rate: α, the nominal share of rows that are anomalies; stretches have as much again.
        apart: whether each series is a stream of its own.

    Example:
        >>> from streamgp.base import Inputs
        >>> from streamgp.predictives.gaussian import Gaussian
        >>> shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
        >>> alarms = Alarms(shape, (0.025, 0.5, 0.975), rate=0.01)
        >>> row, one = torch.arange(2000), torch.ones(2000, 1, dtype=torch.float64)
        >>> y = torch.randn(2000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> y[-1] = 9.0
        >>> bands = torch.tensor([[-1.96], [0.0], [1.96]]).double().expand(3, 2000)
        >>> rest = Inputs(one[:0], one[:0]), one[:0], one[None]
        >>> found = alarms.judge(Due(0 * row, row, row, row, 0 * row, y, Gaussian(0 * one, one, one), bands,
        ...                          0 * one.T, *rest))
        >>> bool(found.p[-1] < 0.001), int(found.kind[-1]) & 1
        (True, 1)
    """

    STATE = (
        Arrays("counts", "level", "repeats"),
        Arrays("last", "bets", "calm"),
        Arrays("raised", prefix="", grows=False),
        Value("rows", int),
        Nested(of="_parts", bare=True),
    )

    def __init__(self, shape: Shape, probabilities: tuple[float, ...], rate: float, apart: bool = False) -> None:
        self.shape, self.rate, self.apart = shape, rate, apart
        self._at = [probabilities.index(0.5), 0, len(probabilities) - 1]
        outputs = shape.outputs
        self._counts, self._level, self._repeats = self._fresh(units := 0 if apart else outputs)
        self._masses = Masses(units, 1)
        self._bets = np.zeros((0, outputs, len(POWERS) + 1))  # (S, O, K) log M; -inf at the start
        self._calm = np.zeros((0, outputs, PAST))  # (S, O, PAST) whether the newest rows, oldest first, were calm
        self._last = np.zeros((0, outputs, 2))  # (S, O, 2) newest value, and the run up to it
        self.rows = 0
        """Values that were judged and count."""
        self.raised = np.zeros(len(KINDS), np.int64)
        """How many of them raised each kind of alarm."""

    def judge(self, due: Due, counts: Tensor | None = None) -> Verdicts:
        """Judge truths that have arrived, in the order in which they came, and learn from them.

        Args:
            due: R forecasts; those of the warm-up, whose quantiles are NaN, and those of more than one step are passed
                over.
            counts: (R,) which of them are counted; None is all.
        """
        outputs, series = self.shape.outputs, due.series.numpy()
        self.reserve(int(series.max(initial=-1)) + 1)
        unit = due.column.numpy() // self.shape.horizon + series * outputs * self.apart
        middle, low, high = due.quantiles.numpy()[self._at]
        first = (due.column.numpy() % self.shape.horizon == 0) & ~np.isnan(middle)
        scale, y = np.exp(due.features[LOG_SCALE].numpy()), due.y.numpy()
        p, kind = np.full(len(y), np.nan), np.zeros(len(y), np.int64)
        width = np.maximum(np.where(y > middle, high - middle, middle - low), FLOOR * scale + 1e-300)
        with np.errstate(over="ignore", divide="ignore"):
            mean, deviation = due.predictive.mean[:, 0].numpy(), due.predictive.variance[:, 0].sqrt().numpy()
            exact = np.abs(y - mean) <= EXACT * deviation
            score = np.where(exact, -np.inf, np.log(np.abs(y - middle) / width))
        side = np.where(exact, 0.0, np.sign(y - middle))
        judged = np.flatnonzero(first)
        judged = judged[np.argsort(unit[judged], kind="stable")]
        units, begins = np.unique(unit[judged], return_index=True)
        for u, own in zip(units.tolist(), np.split(judged, begins[1:]), strict=False):
            p[own], kind[own] = self._row(u, score[own])
            repeats, run, again, at = self._repeated(u, series[own], y[own])
            before = self._before(u, series[own], p[own])
            known = self._counts[u].sum() >= YOUNGEST  # before, nobody knows what a mass is
            bets = self._bets_on(u, score[own], side[own], before)
            bets = np.concatenate([bets, repeats[:, None]], 1) if known else np.zeros((len(own), len(POWERS) + 1))
            change, stuck = self._stretches(u, series[own], bets)
            kind[own] += (1 << CHANGE) * change + (1 << STUCK) * stuck
            kept = 0.5 ** (len(own) * self.rate / MEMORY)
            self._repeats[u] *= kept
            for place in (at,) if known else (0 * at, 0 * at + 1):
                np.add.at(self._repeats[u], (place, run), np.stack([np.ones(len(own)), again], 1))
            bins = (np.searchsorted(EDGES, score[own], "right") - 1).clip(0, BINS - 1)
            self._counts[u] *= kept
            for above, share in ((0, (1 - side[own]) / 2), (1, (1 + side[own]) / 2)):
                np.add.at(self._counts[u][:, above], (before, bins), share)
            self._masses.count(u, y[own][score[own] < GLITCH])
        counted = first if counts is None else first & counts.numpy()
        self.rows += int(counted.sum())
        self.raised += (kind[counted, None] >> np.arange(len(KINDS)) & 1).sum(0)
        return Verdicts(torch.from_numpy(p), torch.from_numpy(kind))

    def _survival(self, u: int) -> tuple[Floats, float, float]:
        """−log S at the borders (BINS + 1,), the border that the tail begins at, and its slope ξ."""
        counts = self._counts[u].sum((0, 1))
        total, above = counts.sum(), np.append(counts[::-1].cumsum()[::-1], 0.0)
        above = above + PRIOR * 0.05 ** np.exp(EDGES)
        start = int(np.flatnonzero(above >= min(TAIL, SHARE * (total + PRIOR)))[-1])
        excess = above[start + 1 :].sum() * (EDGES[1] - EDGES[0]) + 0.5 * (EDGES[1] - EDGES[0]) * above[start]
        slope = (excess + SHRUNK_BY * SHRUNK_TO) / (above[start] + SHRUNK_BY)
        with np.errstate(divide="ignore"):
            found = -np.log(above / (total + PRIOR))
        found[start:] = found[start] + (EDGES[start:] - EDGES[start]) / slope
        return found, EDGES[start], slope

    def _row(self, u: int, score: Floats) -> tuple[Floats, Ints]:
        """p (R,), and which rows are anomalies."""
        table, start, slope = self._survival(u)
        e = np.interp(score, EDGES, table)
        e = np.where(score > start, np.interp(start, EDGES, table) + (score - start) / slope, e)
        least = -np.log(self.rate)
        knee = least / 3
        c, anomaly = self._tracked(e, self._level[u, ANOMALY], self.rate, STEP, 1.2 * knee, least + HIGHEST)
        self._level[u, ANOMALY] = c[-1]
        bent = np.where(e > knee, knee + (e - knee) * (least - knee) / (c[:-1] - knee), e)
        return np.exp(-bent), anomaly.astype(np.int64)

    def _tracked(
        self, e: Floats, c: float, rate: float, step: float, lowest: float, highest: float
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """(R + 1,) the threshold at each row and after, and where it is reached; loops over candidates alone."""
        rows, sunk = np.arange(len(e) + 1), step * rate
        level = np.maximum(c - sunk * rows, lowest)
        over = np.zeros(len(e), bool)
        for i in np.flatnonzero(e >= level[:-1]).tolist():
            if e[i] >= level[i]:
                over[i] = True
                level[i + 1 :] = np.maximum(min(level[i] + step, highest) - sunk * (rows[i + 1 :] - i), lowest)
        return level, over

    def _before(self, u: int, series: Ints, p: Floats) -> Ints:
        """(R,) how many of the PAST rows before each, in its series, were calm: their p was above a half."""
        o = u % self.shape.outputs
        order = np.argsort(series, kind="stable")
        codes, start, count = np.unique(series[order], return_index=True, return_counts=True)
        begin = start + PAST * np.arange(len(codes))  # of each series, after its PAST rows that came before
        calm = np.empty(len(series) + PAST * len(codes))
        old = (begin[:, None] + np.arange(PAST)).ravel()
        new = np.arange(len(series)) + PAST * (np.repeat(np.arange(len(codes)), count) + 1)
        calm[old], calm[new] = self._calm[codes, o].ravel(), p[order] > 0.5
        found = np.empty(len(series), np.int64)
        found[order] = calm[new[:, None] - np.arange(1, PAST + 1)].sum(1)
        self._calm[codes, o] = calm[(begin + count)[:, None] + np.arange(PAST)]
        return found

    def _bets_on(self, u: int, score: Floats, side: Floats, before: Ints) -> Floats:
        """(R, K) logarithms of the bets on p-values: means over the bins of their scores.

        side: (R,) −1 for a truth below the median, 1 above, 0 at it, which counts as half of each.
        before: (R,) the class of the rows before.
        """
        s = np.append(self._counts[u][..., ::-1].cumsum(2)[..., ::-1], np.zeros((PAST + 1, 2, 1)), 2)
        whole = s.sum(0) + PRIOR / 2 * np.append([1.0, *(0.05 ** np.exp(EDGES[1:-1]))], 0.0)
        s += PRIOR * whole / whole[:, 0].sum()  # of a class that is seldom seen, what holds of all
        s /= s[..., 0].sum(1)[:, None, None]  # share of a class on this side and beyond each border
        bins = (np.searchsorted(EDGES, score, "right") - 1).clip(0, BINS - 1)

        def bets(share: Floats, *powers: float) -> list[Floats]:
            """(R,) each, from the shares (PAST + 1, BINS + 1) of the classes."""
            low, high = share[before, bins], share[before, bins + 1]
            return [_mean_bet(np.minimum(low, high), np.maximum(low, high), power) for power in powers]

        p, below, above = s.sum(1), s[:, 0], s[:, 1]
        signed = [
            0.5 * ((1 - side) * one + (1 + side) * other)
            for pair, power in zip(((below, 1 - above), (1 - below, above)), ON_SIGNED, strict=True)
            for one, other in [[bets(share, power)[0] for share in pair]]
        ]
        return np.log(np.stack([*bets(p, *ON_P), *bets(1 - p, *ON_REST), *signed], 1))

    def _repeated(self, u: int, series: Ints, y: Floats) -> tuple[Floats, Ints, Floats, Ints]:
        """(R,) log bets on values that come again; class of the run before each, whether it continues, and at a
        mass."""
        o, order = u % self.shape.outputs, np.argsort(series, kind="stable")
        held, value = series[order], y[order]
        first = np.append(True, held[1:] != held[:-1])
        before = np.append(np.nan, value[:-1])
        before[first] = self._last[held[first], o, VALUE]
        again = value == before
        index = np.arange(len(value))
        broken = np.maximum.accumulate(np.where(~again | first, index, -1))  # where each run began
        carried = np.where(again & first, self._last[held, o, RUN], 0.0)
        run = index - broken + 1 + np.where(again[broken], carried[broken], 0.0)
        previous = np.append(0.0, run[:-1])
        previous[first] = self._last[held[first], o, RUN]
        kind = np.minimum(
            np.where(previous <= 4, previous - 1, np.ceil(np.log2(np.maximum(previous, 1))) + 1), RUNS - 1
        )
        kind = kind.astype(np.int64).clip(0)
        at = np.zeros(len(value), np.int64)
        for slot in self._masses.active(u):
            at |= self._masses.at(u, slot, before)
        last = np.append(first[1:], True)
        self._last[held[last], o] = np.stack([value[last], run[last]], 1)
        q, below = np.zeros((2, RUNS)), [0.2, 0.2]
        for j in range(RUNS):
            for at_mass, (trials, repeats) in enumerate(self._repeats[u, :, j]):
                prior = max(below[at_mass], q[0, j] if at_mass else 0.0)  # at a mass no less likely than elsewhere
                q[at_mass, j] = below[at_mass] = (repeats + 5 * prior) / (trials + 5)
        with np.errstate(divide="ignore"):
            bets = np.where(again, -np.log(q.clip(RARE, 1.0)[at, kind]), -np.inf)
        back = np.empty(len(order), np.int64)
        back[order] = index
        return bets[back], kind[back], again[back].astype(np.float64), at[back]

    def _stretches(self, u: int, series: Ints, bets: Floats) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which rows end a stretch that is a change, and which one that is stuck."""
        o, found = u % self.shape.outputs, []
        for kind, part in ((CHANGE, slice(0, len(POWERS))), (STUCK, slice(len(POWERS), None))):
            rate, rows = self.rate / 2, np.arange(len(series) + 1)
            least, fall = -np.log(rate), (1 + RISE) ** -(rate * rows)
            alarm = np.zeros(len(series), bool)
            sunk = np.maximum(self._level[u, kind] * fall, least)
            while True:
                known = e_detectors(series, bets[:, part], self._bets[:, o, part], alarm)
                total = np.logaddexp.reduce(known, 1) - np.log(known.shape[1])
                over = np.flatnonzero((total >= sunk[:-1]) & ~alarm)
                if not len(over):
                    break
                i = int(over[0])
                alarm[i] = True
                sunk[i + 1 :] = np.maximum(sunk[i] * (1 + RISE) * fall[1 : len(rows) - i], least)
            self._level[u, kind] = sunk[-1]
            codes, last = np.unique(series[::-1], return_index=True)
            last = len(series) - 1 - last
            self._bets[codes, o, part] = np.where(alarm[last, None], -np.inf, known[last])
            found.append(alarm)
        change, stuck = found
        return change, stuck

    def summary(self) -> dict[str, Json]:
        """rate, rows that were judged, how many raised each kind of alarm, and the share of anomalies."""
        raised: dict[str, Json] = dict(zip(KINDS, self.raised.tolist(), strict=True))
        share = int(self.raised[ANOMALY]) / self.rows if self.rows else None
        return {"rate": self.rate, "rows": self.rows, **raised, "share": share}

    def _parts(self) -> dict[str, Masses]:
        return {"masses": self._masses}

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        outputs = self.shape.outputs
        units, series = len(tensors["counts"]), len(tensors["last"])
        if units != outputs * (series if self.apart else 1):
            raise ValueError(f"counts are of {units} units, with {series} series and {outputs} targets")

    def _fresh(self, units: int) -> tuple[Floats, Floats, Floats]:
        """Counts by class of the rows before, below and above the median; (U, 3) thresholds; trials, and repeats."""
        level = np.tile([-np.log(self.rate), *(2 * [-np.log(self.rate / 2)])], (units, 1))
        return np.zeros((units, PAST + 1, 2, BINS)), level, np.zeros((units, 2, RUNS, 2))

    def reserve(self, series: int) -> None:
        """Room for this number of series; it doubles."""
        grown = series - len(self._last)
        if grown > 0:
            outputs = self.shape.outputs
            if self.apart:
                held, fresh = (self._counts, self._level, self._repeats), self._fresh(grown * outputs)
                self._counts, self._level, self._repeats = map(extended, held, fresh)
                self._masses.reserve(grown * outputs)
            self._bets = extended(self._bets, np.full((grown, outputs, len(POWERS) + 1), -np.inf))
            new = np.full((grown, outputs, 2), np.nan)
            new[..., RUN] = 0.0
            self._last = extended(self._last, new)
            calm = np.broadcast_to(np.arange(PAST) % 2.0, (grown, outputs, PAST))
            self._calm = extended(self._calm, calm)


def e_detectors(series: Ints, bets: Floats, start: Floats, alarm: NDArray[np.bool_]) -> Floats:
    """(R, K) log M at each row: a parallel prefix of M → e·max(M, 1) over the rows of a series, in logarithms.

    Args:
        series: (R,) codes.
        bets: (R, K) log e.
        start: (S, K) log M before.
        alarm: (R,) rows after which M starts again.

    Example:
        >>> nil = np.zeros(3, dtype=np.int64)
        >>> bets, start = np.log([[2.0], [3.0], [1.0]]), np.array([[-np.inf]])
        >>> found = e_detectors(nil, bets, start, np.array([False, True, False]))
        >>> np.exp(found[:, 0]).round(6).tolist()  # 2, 2·3, and again from 1
        [2.0, 6.0, 1.0]
    """
    order = np.argsort(series, kind="stable")
    held = series[order]
    m = bets[order].copy()
    b = m.copy()
    first = np.append(True, held[1:] != held[:-1])
    fresh = np.append(False, alarm[order][:-1]) & ~first
    b[first] = np.maximum(m[first] + start[held[first]], b[first])
    m[first | fresh] = -np.inf
    by = 1
    while by < len(m):
        b[by:] = np.maximum(m[by:] + b[:-by], b[by:])
        m[by:] = m[by:] + m[:-by]
        by *= 2
    found = np.empty_like(b)
    found[order] = b
    return found


def _mean_bet(low: Floats, high: Floats, power: float) -> Floats:
    """The mean of κ max(p, LEAST)^(κ−1) over p between two bounds (R,) that lie within 0 and 1.

    Example:
        >>> _mean_bet(np.array([0.0, 0.25]), np.array([1.0, 0.25]), 0.5).round(2).tolist()  # κ p^(κ−1) = 1 at p = 0.25
        [0.96, 1.0]
    """
    width = high - low
    rest = np.maximum(high, LEAST) ** power - np.maximum(low, LEAST) ** power
    flat = power * LEAST ** (power - 1) * (np.minimum(high, LEAST) - np.minimum(low, LEAST))
    at = power * np.maximum((low + high) / 2, LEAST) ** (power - 1)
    return np.asarray(np.where(width > 1e-9, (rest + flat) / np.maximum(width, 1e-9), at))
