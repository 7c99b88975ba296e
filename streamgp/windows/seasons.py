"""Which seasons a series has: those of its clock, or what its autocorrelation shows.

Where a day is 4 to 1,440 rows, people, machines and the weather follow it: the seasons are the day and the week. Of
rows a month or a quarter apart the season is the year. Else
the differences of the series are looked at, which have no slow level. The short season is the nearest peak of their
autocorrelation that is at least `LEAST`, and `NEAR` times the highest. Smooth signals are alike at all near lags, and a
random one of these is highest: a season D is higher than the lowest lag within D/2 on either side by `RISE` of its
height. Cycles that lose their phase are no season: 2D has `KEPT` of the height of D. Nor are slow waves, whose
differences stay alike over `SMOOTH` rows: the lags of a model foresee them, and it need not wait for a season. The long
season is the nearest peak of at least `LONG` among the multiples of the short one, once that was taken out by y_t −
y_{t−D}; it stands out and returns likewise. Either is higher than what the highest of the lags that were looked at
would be in white noise.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from streamgp.windows.calendar import DAY, WEEK, Floats

LEAST = 0.3
"""Autocorrelation of the short season at least."""
NEAR = 0.5
"""Least height of the short season, relative to the highest peak."""
RISE = 0.7
"""Least rise of the short season above the lowest lag within half a season on either side, relative to its height."""
KEPT = 0.7
"""Least autocorrelation two seasons apart, relative to that one season apart."""
SMOOTH = 24
"""A signal whose differences are, in the mean over these rows, NEAR as alike as one season ago needs no season."""
LONG = 0.1
"""Autocorrelation of the long season at least, of what the short one leaves."""
EXACT = 1e-9
"""Standard deviations of the series within which a value is the same as one season ago."""
FALSE = 1e-4
"""Probability that a series of white noise shows a season: of a table of ten columns, 1 in 1,000."""
MULTIPLES = 15
"""Short seasons in a long one at most."""
SHORTEST = 4
"""Rows in a season at least."""
LONGEST_DAY = 1440
"""Rows in a day at most, for the day to be a season."""
YEAR = 12
"""Months in a year."""
PERIODS = 3
"""Seasons that a series must hold."""
WINSOR = 5.0
"""Standard deviations that a difference counts for at most: a glitch is no season."""


def of_clock(every_ns: int | None, rows: float = math.inf) -> tuple[int, ...]:
    """The day and the week, where a series of this many rows at this interval holds three of them; else ().

    Example:
        >>> of_clock(30 * 60 * 10**9, 17_520), of_clock(3600 * 10**9, 100), of_clock(DAY), of_clock(10**7)
        ((48, 336), (24,), (7,), ())
    """
    if every_ns is None or DAY % every_ns:
        return ()
    return held((DAY // every_ns, WEEK // every_ns), rows)


def held(seasons: tuple[int, int], rows: float = math.inf) -> tuple[int, ...]:
    """Those of the day and the week, in rows, of which this many rows hold three; () where a day is too long.

    Example:
        >>> held((9, 45), 100), held((1, 5)), held((86_400, 604_800))
        ((9,), (5,), ())
    """
    if seasons[0] > LONGEST_DAY:
        return ()
    return tuple(season for season in seasons if season >= SHORTEST and PERIODS * season <= rows)


def of_months(months: int, rows: float = math.inf) -> tuple[int, ...]:
    """The year, where a series of `rows` rows this many months apart holds three of it; else ().

    Example:
        >>> of_months(1, 200), of_months(3), of_months(1, 35), of_months(12), of_months(0)
        ((12,), (4,), (), (), ())
    """
    year = YEAR // months if months and not YEAR % months else 0
    return (year,) if year >= SHORTEST and PERIODS * year <= rows else ()


def propose(y: Floats) -> tuple[int, ...]:
    """Rows in each season of an evenly spaced series, shortest first; () where there is none.

    Cost O(R log R) for R rows.

    Args:
        y: (R,), NaN where a value is missing.

    Example:
        >>> at = np.arange(2000)
        >>> day, weekend = np.sin(2 * np.pi * at / 24), at % 168 >= 120
        >>> propose(np.where(weekend, 0.3, 1.0) * day), propose(np.random.default_rng(0).standard_normal(2000))
        ((24, 168), ())
    """
    found, noise = _autocorrelation(np.diff(y))
    lags = np.arange(SHORTEST, len(noise) - 1)
    if not len(lags):
        return ()
    here, least = found[lags], np.maximum(LEAST, _significant(len(lags)) * noise[lags])
    high = lags[(here >= found[lags - 1]) & (here >= found[lags + 1]) & (here >= least)]
    peaks = np.array([lag for lag in high.tolist() if _returns(found, lag)], np.int64)
    if not len(peaks):
        return ()
    short = int(peaks[found[peaks] >= NEAR * found[peaks].max()][0])
    if found[2 : SMOOTH + 1].mean() >= NEAR * found[short]:
        return ()
    rest = y[short:] - y[:-short]
    left, noise = _autocorrelation(np.where(np.abs(rest) > EXACT * np.nanstd(y), rest, 0.0))
    left, noise = left[::short], noise[::short]
    for times in range(2, min(len(noise), MULTIPLES) - 1):
        if left[times] >= max(LONG, _significant(MULTIPLES) * noise[times]) and _returns(left, times):
            return short, times * short
    return (short,)


def _stands_out(found: Floats, lag: int) -> bool:
    """Whether an autocorrelation is the highest within half a lag, and falls by RISE of it on either side."""
    half = (lag + 1) // 2
    before, after = found[half:lag], found[lag + 1 : lag + lag // 2 + 1]
    rise = found[lag] - max(before.min(), after.min())
    return bool(found[lag] >= max(before.max(), after.max()) and rise >= RISE * found[lag])


def _returns(found: Floats, lag: int) -> bool:
    """Whether an autocorrelation stands out at a lag, and is nearly as high again at twice that lag."""
    near = lag // 8 + 1
    return _stands_out(found, lag) and bool(found[2 * lag - near : 2 * lag + near + 1].max() >= KEPT * found[lag])


def _significant(lags: int) -> float:
    """Standard deviations that the largest of this many autocorrelations of noise exceeds with a probability of
    FALSE."""
    return NormalDist().inv_cdf(1 - FALSE / lags)


def _autocorrelation(step: Floats) -> tuple[Floats, Floats]:
    """Of R values at lags 0, 1, … up to 3/4 R; empty where nothing varies. And, at the first R / PERIODS lags, the
    standard deviations that they would have if the values were differences of white noise.

    Sums over fewer pairs are scaled up. The deviations are √(1.5/(N (1 − k/R))) at lag k (Bartlett 1946: 1 + 2ρ₁² =
    1.5), with N the values that weigh: R, or fewer where few are far from 0.
    """
    step = np.where(np.isfinite(step), step, 0.0)
    limit = WINSOR * np.median(np.abs(step)) / 0.6745 if len(step) else 0.0
    step = np.clip(step, -limit, limit) if limit > 0 else step
    step = step - step.mean() if len(step) else step
    count = len(step) // PERIODS
    power = float(step @ step)
    if count <= SHORTEST or power <= 0 or not np.isfinite(power):
        return np.zeros(0), np.zeros(0)
    size = 1 << (2 * len(step) - 1).bit_length()
    spectrum = np.fft.rfft(step, size)
    weigh = min(6 * power**2 / float((step**4).sum()), len(step))
    pairs = 1 - np.arange(3 * len(step) // 4 + 1) / len(step)
    found = np.fft.irfft(spectrum * spectrum.conj(), size)[: len(pairs)] / (power * pairs)
    return np.asarray(found), np.sqrt(1.5 / weigh / pairs[:count])
