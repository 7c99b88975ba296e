"""Day-ahead forecasters to compare with: LightGBM, a ridge a step, MSTL with AutoARIMA; one series on a regular grid.

Row i, column h − 1 of a forecast is that of y[i + h], issued at row i from y[..i] and the known inputs to row i + h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

LEVELS = (0.025, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.975)
FIRST = 3  # weeks before the first fit
REFIT = 2  # weeks between two fits of LightGBM
ERRORS = 8  # weeks of past errors in the conformal bands
HISTORY = 8  # weeks that MSTL is fitted to
SHARE = 0.25  # of the pairs of origin and step that LightGBM learns: neighbours say nearly the same
TREES: dict[str, Any] = {
    "n_estimators": 200,
    "learning_rate": 0.06,
    "num_leaves": 31,
    "min_child_samples": 200,
    "colsample_bytree": 0.7,
    "subsample": 0.8,
    "subsample_freq": 1,
    "n_jobs": 1,
    "random_state": 0,
    "verbose": -1,
}
PENALTIES = (3.0, 30.0, 300.0, 3000.0)


class Forecasts(NamedTuple):
    """point: (n, H). quantiles: (n, H, 11) at LEVELS. NaN where there is none."""

    point: Array
    quantiles: Array


@dataclass(frozen=True)
class Data:
    """One series.

    Attributes:
        y: (n,) NaN where the table has no row.
        known: of each input that is known ahead, (n,).
        day, week: rows in each.
        phase, weekday, yearday: (n,) of local time: row of the day, 0 to 6, 1 to 366.
    """

    y: Array
    known: dict[str, Array]
    day: int
    week: int
    phase: Rows
    weekday: Rows
    yearday: Rows

    @property
    def filled(self) -> Array:
        """(n,) y, with the value of a week before where it is missing."""
        y = self.y.copy()
        for row in np.nonzero(np.isnan(y))[0]:
            y[row] = y[row - self.week] if row >= self.week else y[row - 1]
        return y

    @property
    def truth(self) -> Array:
        """(n, H) what the forecasts are of."""
        return at(self.y, np.arange(len(self.y))[:, None] + np.arange(1, self.day + 1))


def at(values: Array, rows: Rows) -> Array:
    """The values of these rows; NaN outside the series."""
    inside = (rows >= 0) & (rows < len(values))
    return np.where(inside, values[np.clip(rows, 0, len(values) - 1)], np.nan)


def rolling(values: Array, rows: int) -> Array:
    """(n,) mean of the last `rows` values, of fewer at the start."""
    total = np.cumsum(np.r_[0.0, values])
    end = np.arange(1, len(values) + 1)
    begin = np.maximum(end - rows, 0)
    return np.asarray((total[end] - total[begin]) / (end - begin))


def conformal(point: Array, data: Data) -> Array:
    """(n, H, 11) the forecast plus quantiles of its own errors of the last weeks, per step, once a day."""
    n, steps = point.shape
    errors = data.truth - point
    quantiles = np.full((n, steps, len(LEVELS)), np.nan)
    begin = int(np.argmax(np.isfinite(point[:, 0])))
    for row in range(begin + 2 * data.day, n, data.day):
        origins = row - np.arange(1, steps + 1) - np.arange(ERRORS * data.week)[:, None]  # whose target is known
        past = np.where(origins >= begin, errors[np.maximum(origins, 0), np.arange(steps)], np.nan)
        past = np.sort(past, 0)  # NaN last
        count = np.isfinite(past).sum(0)
        place = np.clip(np.outer(LEVELS, count + 1) - 1, 0, count - 1)
        low = place.astype(int)
        high = np.minimum(low + 1, count - 1)
        column = np.arange(steps)
        between = past[low, column] + (place - low) * (past[high, column] - past[low, column])
        quantiles[row : row + data.day] = point[row : row + data.day, :, None] + between.T
    return quantiles


def lightgbm(data: Data) -> Forecasts:
    """Gradient-boosted trees for all steps together, fitted to the departure from a week before, every two weeks."""
    from lightgbm import LGBMRegressor

    y, n, steps = data.filled, len(data.y), data.day
    point = np.full((n, steps), np.nan)
    taken = np.random.default_rng(0).random((n, steps)) < SHARE
    inputs: list[Array] = []
    targets: list[Array] = []
    done = np.zeros((n, steps), bool)
    origin, step = np.arange(n)[:, None], np.arange(1, steps + 1)
    for begin in range(FIRST * data.week, n, REFIT * data.week):
        new = taken & ~done & (origin >= data.week) & (origin + step <= begin)
        done |= new
        row, column = np.nonzero(new)
        known = np.isfinite(at(data.y, row + column + 1))
        row, column = row[known], column[known]
        inputs.append(columns(data, y, row, column + 1))
        targets.append(y[row + column + 1] - y[row + column + 1 - data.week])
        model = LGBMRegressor(**TREES).fit(np.concatenate(inputs), np.concatenate(targets))
        row, column = (part.ravel() for part in np.mgrid[begin : min(begin + REFIT * data.week, n), 0:steps])
        departure = np.asarray(model.booster_.predict(columns(data, y, row, column + 1), num_threads=1))
        point[row, column] = departure + at(y, row + column + 1 - data.week)
    return Forecasts(point, conformal(point, data))


def columns(data: Data, y: Array, row: Rows, step: Rows) -> Array:
    """(N, F) what LightGBM sees of the origin `row` and the target `row` + `step`."""
    day, week, to = data.day, data.week, row + step
    quarter, days, weeks = rolling(y, day // 4), rolling(y, day), rolling(y, week)
    last, daily, weekly = y[row], days[row], weeks[row]
    before = [at(y, to - day), at(y, to - 2 * day), at(y, to - 3 * day), at(y, to - week), at(y, to - 2 * week)]
    found: list[Array] = [
        last,
        *before,
        at(y, to - week + 1),
        at(y, to - week - 1),
        at(y, np.minimum(to - day + 1, row)),
    ]
    found += [at(y, row - lag) for lag in (1, 2, 3, day // 4, day // 2)]
    found += [last - at(y, row - week), last - at(y, row - day), daily - at(days, row - week), daily - weekly]
    found += [before[0] - before[3], before[1] - before[3], before[3] - before[4], before[0] - at(y, to - day - week)]
    found += [last - weekly, before[3] - weekly, daily, weekly, quarter[row], quarter[row] - at(quarter, row - week)]
    found += [at(quarter, to - day), step.astype(float)]
    found += [calendar[to % len(y)].astype(float) for calendar in (data.phase, data.weekday, data.yearday)]
    for values in data.known.values():
        mean, ahead = rolling(np.nan_to_num(values), day), at(values, to)
        found += [ahead, ahead - at(values, to - day), ahead - at(values, to - week), ahead - at(values, row)]
        found += [at(mean, to), at(mean, to) - at(mean, to - week)]
    return np.stack(found, 1)


def ridge(data: Data) -> Forecasts:
    """One linear regression a step, refitted weekly on all before; of four penalties that of least past error."""
    n, steps, week = len(data.y), data.day, data.week
    point = np.full((n, steps), np.nan)
    y, truth = data.filled, data.truth
    level = rolling(y, week)
    for step in range(1, steps + 1):
        x = np.nan_to_num(window(data, y, level, np.arange(n - step), step))
        target = truth[: n - step, step - 1] - level[: n - step]
        gram, moment = np.zeros((x.shape[1], x.shape[1])), np.zeros(x.shape[1])
        loss, known = np.zeros(len(PENALTIES)), 2 * week
        trial = np.full((n - step, len(PENALTIES)), np.nan)
        for begin in range(FIRST * week, n - step, week):
            rows = np.arange(known, begin - step + 1)  # origins whose target has become known
            rows = rows[np.isfinite(target[rows])]
            known = begin - step + 1
            gram += x[rows].T @ x[rows]
            moment += x[rows].T @ target[rows]
            if np.isfinite(trial[rows]).all(1).any():
                loss = 0.8 * loss + np.nanmean(np.abs(trial[rows] - target[rows, None]), 0)
            ahead = slice(begin, min(begin + week, n - step))
            trial[ahead] = x[ahead] @ solved(gram, moment)
            point[ahead, step - 1] = trial[ahead, int(np.argmin(loss))] + level[ahead]
    return Forecasts(point, conformal(point, data))


def solved(gram: Array, moment: Array) -> Array:
    """(W, P) weights for every penalty, on standardised columns; the last column is the constant, not penalised."""
    count, total = gram[-1, -1], gram[-1]
    mean = total / count
    scale = np.sqrt(np.maximum(np.diag(gram) / count - mean**2, 0.0))
    scale = np.where(scale < 1e-9, np.inf, scale)[:-1]  # a constant column has no weight
    centred = (gram - np.outer(total, total) / count)[:-1, :-1] / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(centred)
    side = vectors.T @ ((moment[:-1] - mean[:-1] * moment[-1]) / scale)
    slopes = (vectors @ (side[:, None] / (np.maximum(values, 0.0)[:, None] + np.array(PENALTIES)))) / scale[:, None]
    return np.concatenate([slopes, (moment[-1] / count - mean[:-1] @ slopes)[None]])


def window(data: Data, y: Array, level: Array, row: Rows, step: int) -> Array:
    """(N, W) lags of a day and references less the weekly mean, calendar and known inputs of the target, a constant.

    Harmonics of the day have weights of their own at weekends and for each known input.
    """
    day, week, to = data.day, data.week, row + step
    lags = [at(y, row - lag) for lag in range(day)]
    lags += [at(y, to - back) for back in (day, 2 * day, 3 * day, week, 2 * week)]
    found = [lag - level[row] for lag in lags]
    angle = 2 * np.pi * data.phase[to] / day
    harmonics = [turn(k * angle) for k in (1, 2, 3, 4) for turn in (np.sin, np.cos)]
    weekdays = [(data.weekday[to] == which).astype(float) for which in range(7)]
    kinds = [(data.weekday[to] >= 5).astype(float), *(at(values, to) for values in data.known.values())]
    found += [*harmonics, *weekdays, *(kind * harmonic for kind in kinds for harmonic in harmonics[:4])]
    for values in data.known.values():
        found += [at(values, to), at(values, to) ** 2, at(values, to - day), at(values, to - week)]
    return np.stack([*found, np.ones(len(row))], 1)


def mstl(data: Data, first: int) -> Forecasts:
    """MSTL with AutoARIMA for its trend (statsforecast), at every fifth day and five hours; its own quantiles."""
    from statsforecast.models import MSTL, AutoARIMA  # type: ignore[import-untyped]

    n, steps, y = len(data.y), data.day, data.filled
    point, quantiles = np.full((n, steps), np.nan), np.full((n, steps, len(LEVELS)), np.nan)
    bands = (20, 40, 60, 80, 95)
    names = [f"lo-{band}" for band in reversed(bands)] + ["mean"] + [f"hi-{band}" for band in bands]
    for row in range(first, n - steps, 5 * data.day + 5 * data.day // 24):
        model = MSTL(season_length=[data.day, data.week], trend_forecaster=AutoARIMA())
        found = model.forecast(y[max(0, row + 1 - HISTORY * data.week) : row + 1], h=steps, level=list(bands))
        point[row] = found["mean"]
        quantiles[row] = np.stack([found[name] for name in names], 1)
    return Forecasts(point, quantiles)
