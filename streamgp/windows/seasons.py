"""Which seasons a series has: those of its clock, or what its autocorrelation shows.

Where a day is 4 to 1,440 rows, people, machines and the weather follow it: the seasons are the day and the week. Else
the differences of the series are looked at, which have no slow level. The short season is the nearest peak of their
autocorrelation that is at least `LEAST`, and `NEAR` times the highest. The long one is the nearest peak of at least
`LONG` among the multiples of the short one, once that was taken out by y_t − y_{t−D}. Either is higher than what the
highest of the lags that were looked at would be in white noise.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from streamgp.windows.calendar import DAY, WEEK, Floats

LEAST = 0.3
"""Autocorrelation of the short season at least."""
NEAR = 0.5
"""Of the highest peak, what the short season has at least."""
LONG = 0.1
"""Autocorrelation of the long season at least, of what the short one leaves."""
FALSE = 1e-4
"""Probability that a series of white noise shows a season: of a table of ten columns, 1 in 1,000."""
MULTIPLES = 15
"""Short seasons in a long one at most."""
SHORTEST = 4
"""Rows in a season at least."""
LONGEST_DAY = 1440
"""Rows in a day at most, for the day to be a season."""
PERIODS = 3
"""Seasons that a series must hold."""
WINSOR = 5.0
"""Standard deviations that a difference counts for at most: a glitch is no season."""


def of_clock(every_ns: int | None, rows: float = math.inf) -> tuple[int, ...]:
    """The day and the week, where a series of so many rows at this interval holds three of them; else ().

    Example:
        >>> of_clock(30 * 60 * 10**9, 17_520), of_clock(3600 * 10**9, 100), of_clock(DAY), of_clock(10**7)
        ((48, 336), (24,), (7,), ())
    """
    if every_ns is None or DAY % every_ns:
        return ()
    day, week = DAY // every_ns, WEEK // every_ns
    if day > LONGEST_DAY:
        return ()
    return tuple(season for season in (day, week) if season >= SHORTEST and PERIODS * season <= rows)


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
    lags = np.arange(SHORTEST, len(found) - 1)
    if not len(lags):
        return ()
    here, least = found[lags], np.maximum(LEAST, _significant(len(lags)) * noise[lags])
    peaks = lags[(here >= found[lags - 1]) & (here >= found[lags + 1]) & (here >= least)]
    if not len(peaks):
        return ()
    short = int(peaks[found[peaks] >= NEAR * found[peaks].max()][0])
    left, noise = (one[::short][:MULTIPLES] for one in _autocorrelation(y[short:] - y[:-short]))
    for times in range(2, len(left) - 1):
        enough = max(LONG, _significant(MULTIPLES) * noise[times])
        if left[times] >= max(enough, left[times - 1], left[times + 1]):
            return short, times * short
    return (short,)


def _significant(lags: int) -> float:
    """Standard deviations that the largest of so many autocorrelations of noise exceeds with a probability of FALSE."""
    return NormalDist().inv_cdf(1 - FALSE / lags)


def _autocorrelation(step: Floats) -> tuple[Floats, Floats]:
    """(R / PERIODS,) of R values at lags 0, 1, …; empty where nothing varies. And the standard deviations that they
    would have if the values were differences of white noise.

    These are √(1.5 (N − k)) / N at lag k (Bartlett 1946: 1 + 2ρ₁² = 1.5), with N the values that weigh: R, or fewer
    where few are far from 0.
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
    noise = np.sqrt(1.5 / weigh * (1 - np.arange(count) / len(step)))
    return np.asarray(np.fft.irfft(spectrum * spectrum.conj(), size)[:count] / power), noise
