"""Scores of forecasts as they were issued, overall and per step ahead, in constant memory.

rmse  √ mean (y − μ)²          mae   mean |y − μ|         both of the point forecast, target units
mean_mae, median_mae           mae of both forecasts that can be the point forecast (`Calibration.point`)
nlpd  mean −log p(y)           crps  mean CRPS            both of the raw distribution
mase  mae / mean |y[t] − y[t−S]|, the denominator taken before scoring starts and the same for every step. Of several
      series it is the mean over the series, each divided by its own; a series without a denominator is left out.
      rmse and mae mix the series, and belong to those with the largest values.
coverage, width, interval_score           of the calibrated bands, as issued
raw_coverage, raw_width, raw_interval_score    of the distribution's own quantiles
calibrated_crps                of the calibrated distribution, from its quantiles
pinball, raw_pinball           mean pinball loss of the nine deciles

The interval score of a band of level 1 − α is its width + 2/α · the distance of a truth outside to it (Gneiting &
Raftery 2007, equation 43). Coverage is also counted by place in the cycle, by tenth of the stream and by series.

Probabilities of outcomes 0 and 1 have those of `outcomes` beside them, and no bands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Due, Json, Shape
from streamgp.forecasting import outcomes
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.issued import PHASE
from streamgp.forecasting.metrics import METRICS, Kind
from streamgp.forecasting.outliers import Largest, Outliers
from streamgp.forecasting.scored import Scored
from streamgp.forecasting.streams import longer, whole
from streamgp.state import Arrays, Declared, Value, Whole

_ORDER = (Kind.POINT, Kind.QUANTILES, Kind.BAND)
"""Of the sums that are kept."""
_SUMS = ("sums", "before", "phases", "blocks", "past", "past_before")
_BY_SERIES = ("naive", "own", "own_before", "series", "past_own")
COUNT = 0
"""Place of the number of forecasts in sums and counts; what was summed over them follows."""
PHASES = 6
"""Blocks of a cycle whose coverage is counted."""
BLOCKS = 80
"""Pieces of the stream whose coverage is counted, which add up to tenths; when all are full, neighbours are merged."""
MOST_SERIES = 100
"""Series whose coverage is reported; of more, those with the lowest and the highest."""


SEVERAL = 5
"""Series, at least, of which one is said to decide the scores of all."""


class Heaviest(NamedTuple):
    """A series by its code, its share of the absolute error of all, and mae and mase of the others."""

    series: int
    share: float
    mae: float
    mase: float | None


class Scores(Declared):
    """Running sums per output column; Stateful.

    Args:
        shape: what the model is built for.
        calibration: which quantiles are issued.
        binary: whether the forecasts are of outcomes 0 and 1.
        period: rows of a cycle; 1: no cycle.

    Example:
        >>> from streamgp.base import Inputs
        >>> from streamgp.predictives.gaussian import Gaussian
        >>> shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
        >>> scores = Scores(shape, Calibration((95.0,)))
        >>> scores.scale(torch.tensor([[3.0], [5.0]]), torch.tensor([[1.0], [1.0]]))
        >>> one = torch.ones(2, 1, dtype=torch.float64)
        >>> issued, nil = Gaussian(0 * one, 0.5 * one, 0.5 * one), torch.zeros(2, dtype=torch.int64)
        >>> y, x = torch.tensor([1.5, -2.5], dtype=torch.float64), Inputs(one[:0], one[:0])
        >>> half, none = 0.25 * torch.arange(-5, 6).double()[:, None].expand(11, 2), torch.zeros(1, 2)
        >>> scores.add(Due(nil, nil, nil, nil, nil, y, issued, half, none, x, one[:0], one[None]))
        >>> summary = scores.summary()
        >>> summary["mae"], round(summary["mase"], 3), summary["coverage"], round(summary["rmse"], 3)
        (2.0, 0.667, {'95': 0.0}, 2.062)
    """

    STATE = (
        Arrays(*_SUMS, grows=False),
        *(Arrays(name) for name in _BY_SERIES),
        Value("_span", int, key="span"),
        Whole("_largest"),
    )

    def __init__(self, shape: Shape, calibration: Calibration, binary: bool = False, period: int = 1) -> None:
        self.shape, self.calibration, self.binary, self.period = shape, calibration, binary, period
        self.levels = () if calibration.none else calibration.levels
        kinds = _ORDER[:1] if calibration.none else _ORDER
        self._means = [one for kind in kinds for one in METRICS if one.kind is kind and one.value is not None]
        sizes = [len(self.levels) if one.kind is Kind.BAND else 1 for one in self._means]
        ends = list(accumulate([1, *sizes]))  # the first sum counts the forecasts
        self._rows = {one.name: slice(*pair) for one, pair in zip(self._means, pairwise(ends), strict=True)}
        count = ends[-1] + outcomes.ROWS * binary
        self._sums = np.zeros((count, shape.columns))  # (M, T)
        self._before = np.zeros((count, shape.columns))  # (M, T) at the last lap
        self._naive = np.zeros((0, 2, shape.outputs))  # (S, 2, O) sum and count of |y[t] − y[t−S]|
        self._own = np.zeros((0, 2, shape.columns))  # (S, 2, T) forecasts, and sum of |y − μ|
        self._own_before = np.zeros((0, 2, shape.columns))  # (S, 2, T) at the last lap
        inside = 1 + len(self.levels)  # forecasts, and truths inside of each band
        self._phases = np.zeros((PHASES, inside))
        self._series = np.zeros((0, inside))
        self._blocks = np.zeros((BLOCKS, inside))
        self._span = 1  # rows of the stream in a block
        self._past = np.zeros(2)  # sum and count of |y[t] − y[t−S]|
        self._past_before = np.zeros(2)  # at the last lap
        self._past_own = np.zeros((0, 2, shape.outputs))  # (S, 2, O) the same
        self._largest = Largest(shape.outputs, shape.horizon)

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        for name in ("naive", "blocks", "phases", "series", "past_own"):
            if bool(tensors[name].isnan().any()):
                raise ValueError(f"{name} has counts that are no numbers")
        if not bool(tensors["sums"][COUNT].isfinite().all()):
            raise ValueError("sums has counts that are no numbers")

    @property
    def scored(self) -> int:
        """Forecasts scored so far: one a truth and step ahead."""
        return int(self._sums[COUNT].sum())

    def scale(self, y: Tensor, seasonal: Tensor, series: Tensor | None = None) -> None:
        """Take rows into the denominator of MASE; call it with the rows before scoring starts, and with no others.

        Args:
            y: (R, O) truths; NaN is left out.
            seasonal: (R, O) the same targets one season before.
            series: (R,) codes; left out where there is one series.
        """
        code = np.zeros(len(y), np.int64) if series is None else series.numpy()
        change = (y - seasonal).abs().numpy()
        known = ~np.isnan(change)
        self._naive = _room(self._naive, code)
        np.add.at(self._naive, code, np.stack([np.where(known, change, 0.0), known], 1))

    def follow(self, y: Tensor, seasonal: Tensor, series: Tensor | None = None) -> None:
        """Take rows (R, O) of series (R,) that are scored into the error of the naive forecast: of all, a lap, and
        each series."""
        change = (y - seasonal).abs().numpy()
        if self.shape.lags and not self.binary:
            known = ~np.isnan(change)
            self._past += np.nansum(change), np.count_nonzero(known)
            code = np.zeros(len(y), np.int64) if series is None else series.numpy()
            self._past_own = _room(self._past_own, code)
            np.add.at(self._past_own, code, np.stack([np.where(known, change, 0.0), known], 1))

    def add(self, due: Due) -> None:
        """Score forecasts."""
        column, y, quantiles, issued = due.column, due.y, due.quantiles, due.predictive
        series, position, features = due.series, due.position, due.features
        if not len(y):
            return
        mean = self.calibration.of(issued.mean[:, 0], quantiles, "mean")
        error = y - self.calibration.of(mean, quantiles)
        scored = Scored(y, error, self.calibration.probabilities, quantiles, self.levels, issued, mean)
        parts = [torch.ones_like(y)[None]]
        parts += [one.value(scored).reshape(-1, len(y)) for one in self._means if one.value is not None]
        if self.levels:
            self._count((y >= scored.low) & (y <= scored.high), series, position, features)
        if self.binary:
            parts.append(outcomes.values(issued, y[:, None])[..., 0])
        values = torch.cat(parts).numpy()  # (M, R)
        where = column.numpy()
        self._sums += _by_column(values, where, self.shape.columns)
        code = series.numpy()
        square, absolute = (values[self._rows[name].start] for name in ("rmse", "mae"))
        self._largest.add(code, due.ds.numpy(), where // self.shape.horizon, square)
        self._own = _room(self._own, code)
        for at, row in enumerate((values[COUNT], absolute)):
            np.add.at(self._own.reshape(-1), (2 * code + at) * self.shape.columns + where, row)

    def _count(self, inside: Tensor, series: Tensor, position: Tensor, features: Tensor) -> None:
        """Coverage by place in the cycle, series and piece of the stream. inside: (K, R)."""
        levels = len(inside)
        codes = (1 << np.arange(levels)) @ inside.numpy()  # (R,) which bands a truth is inside of, a bit each
        kinds = 1 << levels
        meaning = np.concatenate([np.ones((1, kinds)), np.arange(kinds) >> np.arange(levels)[:, None] & 1]).T

        def add(total: NDArray[np.float64], place: NDArray[np.int64]) -> None:
            if (place == place[0]).all():  # where each sum waits for the one before, counting is slow
                total[place[0]] += np.bincount(codes, minlength=kinds) @ meaning
            else:
                total += np.bincount(place * kinds + codes, minlength=len(total) * kinds).reshape(-1, kinds) @ meaning

        if self.period > 1 and len(features):
            add(self._phases, whole(features[PHASE].numpy() * PHASES / self.period).clip(0, PHASES - 1))
        held, rows = series.numpy(), position.numpy()
        self._series = _room(self._series, held)
        add(self._series, held)
        while rows.max() >= self._span * BLOCKS:
            halved = self._blocks.reshape(BLOCKS // 2, 2, -1).sum(1)
            self._blocks, self._span = np.concatenate([halved, np.zeros_like(halved)]), 2 * self._span
        add(self._blocks, rows // self._span)

    def gather(self, parts: Sequence[tuple[Scores, NDArray[np.int64], int]]) -> None:
        """Become the sum of the scores of parts of the series, in their order; laps stay those of these scores.

        Args:
            parts: the scores of each, the codes of its series here, and the rows that it has read. A tenth of the
                stream is a tenth of the rows of each.
        """
        for name in ("sums", "phases", "past"):
            setattr(self, f"_{name}", sum((getattr(part, f"_{name}") for part, _, _ in parts), np.zeros(())))
        series = max((int(codes.max(initial=-1)) for _, codes, _ in parts), default=-1) + 1
        for name in ("naive", "own", "series", "past_own"):
            old = getattr(self, f"_{name}")
            total = np.zeros((series, *old.shape[1:]))
            for part, codes, _ in parts:
                own = getattr(part, f"_{name}")
                total[codes[: len(own)]] = own
            setattr(self, f"_{name}", total)
        self._largest.gather([(part._largest, codes) for part, codes, _ in parts])
        rows = sum(own for _, _, own in parts)
        while rows > self._span * BLOCKS:
            self._span *= 2
        self._blocks = np.zeros_like(self._blocks)
        for part, _, own in parts:
            begun = np.concatenate([np.zeros((1, self._blocks.shape[1])), part._blocks.cumsum(0)])
            edges = np.arange(BLOCKS + 1) * self._span / part._span * (own / max(rows, 1))
            self._blocks += np.diff([np.interp(edges, np.arange(BLOCKS + 1), row) for row in begun.T]).T

    def breakdown(self, names: Sequence[str] = ()) -> dict[str, Json]:
        """Coverage of every band in parts of what was scored; {} without bands.

        Args:
            names: of the series, by code.

        Returns:
            phases: by sixth of a cycle, where all were met, from the row and up to the row of the cycle; tenths: of the
            stream, each a tenth of the forecasts; series: by name, where there are several, at most 100 of them.
            Each as forecasts scored and coverage by level.
        """
        if not self.levels:
            return {}
        found: dict[str, Json] = {}
        if self.period > 1:
            borders = -(-np.arange(PHASES + 1) * self.period // PHASES)
            there = np.flatnonzero(borders[:-1] < borders[1:])
            if self._phases[there, COUNT].all():  # else the stream is too short to say anything of a cycle
                found["phases"] = [
                    {"from": int(borders[k]), "to": int(borders[k + 1])} | self._part(self._phases[k]) for k in there
                ]
        total = np.concatenate([np.zeros((1, self._blocks.shape[1])), self._blocks.cumsum(0)])
        share = total[:, COUNT] / max(total[-1, COUNT], 1.0)
        at = np.stack([np.interp(np.arange(11) / 10, share, row) for row in total.T], 1)
        found["tenths"] = [self._part(part) for part in np.diff(at, axis=0)]
        if len(self._series) > 1:
            codes = np.flatnonzero(self._series[:, COUNT])
            if len(codes) > MOST_SERIES:
                order = codes[np.argsort(self._series[codes, -1] / self._series[codes, COUNT], kind="stable")]
                codes = np.sort(np.append(order[: MOST_SERIES // 2], order[-MOST_SERIES // 2 :]))
            found["series"] = {
                names[code] if code < len(names) else str(code): self._part(self._series[code])
                for code in codes.tolist()
            }
        return found

    def by_series(self, names: Sequence[str] = ()) -> dict[str, Json]:
        """The error of the point forecast in each of several series; {} of one, and of outcomes.

        Args:
            names: of the series, by code.

        Returns:
            by name: scored, mae, mase and mase_scale, what it divides by (`naive` of this series; None without lags
            and of a series without rows before scoring starts), naive_mae (`past_naive_mae` of these rows; None where
            the horizon is longer than a season or no row has a season before), and ratio, mae / naive_mae. Of several
            targets each has these by its name.
        """
        if len(self._own) < 2 or self.binary:
            return {}
        outputs, horizon = self.shape.outputs, self.shape.horizon
        sums = self._own.reshape(-1, 2, outputs, horizon).sum(3)
        past = np.zeros((max(len(sums), len(self._past_own), len(self._naive)), 2, outputs))
        past[: len(self._past_own)] = self._past_own
        scales = np.zeros_like(past)
        if self.shape.lags:
            scales[: len(self._naive)] = self._naive
        exact = horizon <= self.shape.season
        found: dict[str, Json] = {}
        for code in np.flatnonzero(sums[:, COUNT].any(1)).tolist():
            parts: dict[str, Json] = {}
            for at, target in enumerate(self.shape.targets):
                (rows, total), (change, count) = sums[code, :, at].tolist(), past[code, :, at].tolist()
                mae = total / rows if rows else None
                naive = change / count if count and exact else None
                before, pairs = scales[code, :, at].tolist()
                scale = before / pairs if pairs else None
                parts[target] = {
                    "scored": int(rows),
                    "mae": mae,
                    "mase": _ratio(mae, scale),
                    "mase_scale": scale,
                    "naive_mae": naive,
                    "ratio": _ratio(mae, naive),
                }
            name = names[code] if code < len(names) else str(code)
            found[name] = parts if outputs > 1 else parts[self.shape.targets[0]]
        return found

    def heaviest(self) -> dict[str, Heaviest]:
        """By target, the one of several series that makes more than half of the absolute error, where there is one."""
        found: dict[str, Heaviest] = {}
        sums = self._own.reshape(-1, 2, self.shape.outputs, self.shape.horizon).sum(3)
        for at, target in enumerate(self.shape.targets):
            rows, absolute = sums[:, :, at].T
            if np.count_nonzero(rows) < SEVERAL or self.binary:
                continue
            code, total = int(absolute.argmax()), absolute.sum()
            if absolute[code] > 0.5 * total:
                rest = self._own.copy()
                rest[code] = 0.0
                columns = at * self.shape.horizon + np.arange(self.shape.horizon)
                mae = float((total - absolute[code]) / (rows.sum() - rows[code]))
                found[target] = Heaviest(code, float(absolute[code] / total), mae, self._mase(rest, columns))
        return found

    def _part(self, counts: NDArray[np.float64]) -> dict[str, Json]:
        """(1 + K,) forecasts and truths inside -> scored, coverage by level."""
        scored = float(counts[COUNT])
        shares = (counts[COUNT + 1 :] / scored).tolist() if scored else [None] * len(self.levels)
        coverage: dict[str, Json] = {f"{level:g}": share for level, share in zip(self.levels, shares, strict=True)}
        return {"scored": round(scored), "coverage": coverage}

    def outliers(self) -> dict[str, Outliers]:
        """By target, the few truths that decide its RMSE, where there are such."""
        kept = self._sums[[COUNT, self._rows["rmse"].start, self._rows["mae"].start]]
        rows, square, absolute = kept.reshape(3, self.shape.outputs, self.shape.horizon).sum(2).tolist()
        found = {
            name: self._largest.outliers(at, rows[at], square[at], absolute[at])
            for at, name in enumerate(self.shape.targets)
        }
        return {name: one for name, one in found.items() if one is not None}

    def summary(self) -> dict[str, Json]:
        """All scores since the beginning.

        Returns:
            scored, rmse, mae, mean_mae, median_mae, nlpd, crps, mase, calibrated_crps, pinball, raw_pinball, coverage,
            raw_coverage, width, raw_width, interval_score, raw_interval_score (the last six by level), those of
            `outcomes` where these are what is forecast, `steps`: the same for every step ahead (without the
            reliability), and, with several targets, `targets`: the same for each. The overall rmse, mae, … then mix the
            targets' units; mase is the mean of the targets'. None where nothing was scored.
        """
        return self._report()

    def overall(self) -> dict[str, Json]:
        """The overall figures of `summary` alone: those of every step and target together."""
        return self._figures(self._sums, self._own, np.arange(self.shape.columns))

    def lap(self) -> dict[str, Json]:
        """The scores since the last lap: a curve over the stream. The overall figures only, and `naive_mae` of the
        seasonal naive forecast, where it is known (`past_naive_mae`)."""
        since, self._before = self._sums - self._before, self._sums.copy()
        before = np.zeros_like(self._own)
        before[: len(self._own_before)] = self._own_before
        own, self._own_before = self._own - before, self._own.copy()
        (total, count), self._past_before = (self._past - self._past_before).tolist(), self._past.copy()
        past: dict[str, Json] = {"naive_mae": total / count * self._seasons_back} if count else {}
        return self._figures(since, own, np.arange(self.shape.columns)) | past

    @property
    def _seasons_back(self) -> float:
        """Seasons from a truth back to the value that the seasonal naive forecast repeats, the mean over the steps."""
        return float(np.mean(-(-np.arange(1, self.shape.horizon + 1) // self.shape.season)))

    def past_naive_mae(self) -> float | None:
        """Mean error of the seasonal naive forecast in the rows of `follow`; None where it is not known.

        That of step h repeats the value k = ⌈h/S⌉ seasons before, and |y[t] − y[t−kS]| is at most k changes of one
        season: mean |y[t] − y[t−S]| times the mean k, an equality where H ≤ S, and else an upper bound.
        """
        total, count = self._past.tolist()
        return total / count * self._seasons_back if count else None

    def naive(self) -> Json:
        """What MASE divides by: the mean |y[t] − y[t−S]| before scoring starts, S steps back; None without lags.

        Returns:
            steps_back: S, one season or 1; then for the target, or by the name of each of several, rows: how many
            pairs there were, and value: their mean, in the target's unit, None without any. Where there are several
            series (`series`, how many), each is divided by its own mean, and value is that of all.
        """
        if not self.shape.lags:
            return None
        each: list[dict[str, Json]] = [
            {"rows": int(count), "value": change / count if count else None}
            for change, count in self._naive.sum(0).T.tolist()
        ]
        found: dict[str, Json] = {"steps_back": self.shape.season}
        if len(self._naive) > 1:
            found["series"] = len(self._naive)
        if len(each) == 1:
            return found | each[0]
        return found | {"targets": dict(zip(self.shape.targets, each, strict=True))}

    def _report(self) -> dict[str, Json]:
        sums, own, outputs, horizon = self._sums, self._own, self.shape.outputs, self.shape.horizon
        columns = np.arange(self.shape.columns).reshape(outputs, horizon)
        report = self._figures(sums, own, columns.reshape(-1))
        if self.binary:
            report["reliability"] = self._reliability(sums, columns.reshape(-1))
        report["steps"] = [{"step": h + 1} | self._figures(sums, own, columns[:, h]) for h in range(horizon)]
        if outputs > 1:
            report["targets"] = {
                name: self._figures(sums, own, columns[o])
                | ({"reliability": self._reliability(sums, columns[o])} if self.binary else {})
                | {"steps": [{"step": h + 1} | self._figures(sums, own, columns[o, h : h + 1]) for h in range(horizon)]}
                for o, name in enumerate(self.shape.targets)
            }
        return report

    def _figures(
        self, sums: NDArray[np.float64], own: NDArray[np.float64], columns: NDArray[np.int64]
    ) -> dict[str, Json]:
        total = sums[:, columns].sum(1)
        rows = float(total[COUNT])
        mean = [value / rows if rows else None for value in total.tolist()]
        figures: dict[str, Json] = {"scored": int(rows)}
        for one in METRICS:
            if one.name == "mase":
                figures["mase"] = self._mase(own, columns)
            elif one.name in self._rows:
                found = mean[self._rows[one.name]]
                found = [value if value is None or not one.root else value**0.5 for value in found]
                by_level: dict[str, Json] = {f"{level:g}": v for level, v in zip(self.levels, found, strict=False)}
                figures[one.name] = by_level if one.kind is Kind.BAND else found[0]
            elif one.kind is Kind.BAND:
                figures[one.name] = {}
        if self.binary:
            figures |= outcomes.figures(total[-outcomes.ROWS :], rows, figures["nlpd"], figures["crps"])
        return figures

    def _reliability(self, sums: NDArray[np.float64], columns: NDArray[np.int64]) -> Json:
        return outcomes.reliability(sums[-outcomes.ROWS :, columns].sum(1))

    def _mase(self, own: NDArray[np.float64], columns: NDArray[np.int64]) -> float | None:
        """The mean over the targets of the mean over the series of mae / scale; None without lags, or where a target
        has no series whose scale is known and not zero."""
        if not self.shape.lags:
            return None
        ratios = []
        for target in np.unique(columns // self.shape.horizon):
            part = columns[columns // self.shape.horizon == target]
            series = min(len(own), len(self._naive))
            rows, absolute = own[:series, :, part].sum(2).T
            change, count = self._naive[:series, :, target].T
            known = (rows > 0) & (change > 0)
            if not known.any():
                return None
            ratios.append((absolute[known] / rows[known] * count[known] / change[known]).mean())
        return float(np.mean(ratios))


def _ratio(error: float | None, scale: float | None) -> float | None:
    """None where one is not known, or the scale is 0."""
    return error / scale if error is not None and scale else None


def _by_column(values: NDArray[np.float64], column: NDArray[np.int64], columns: int) -> NDArray[np.float64]:
    """(M, R) -> (M, T) sums of each column, in the order of the rows."""
    if columns == 1:  # where each sum waits for the one before, counting is slow
        return np.asarray(values.sum(1, keepdims=True))
    if len(column) % columns == 0 and (column.reshape(-1, columns) == np.arange(columns)).all():
        return np.asarray(values.reshape(len(values), -1, columns).sum(1))
    return np.stack([np.bincount(column, row, columns) for row in values])


def _room(array: NDArray[np.float64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """The array with a row for each of these series."""
    grown = int(codes.max()) + 1 - len(array) if len(codes) else 0
    return longer(array, grown) if grown > 0 else array
