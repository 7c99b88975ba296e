"""Seasons: of a clock, and of what a series shows."""

from __future__ import annotations

import numpy as np
import pytest

from streamgp.windows.seasons import of_clock, propose

AT = np.arange(3000)
NOISE = np.random.default_rng(0).standard_normal(3000)


@pytest.mark.parametrize(
    ("y", "wanted"),
    [
        (np.sin(2 * np.pi * AT / 24) + 0.1 * NOISE, (24,)),
        (np.where(AT % 168 >= 120, 0.3, 1.0) * np.sin(2 * np.pi * AT / 24) + 0.05 * NOISE, (24, 168)),
        (NOISE, ()),
        (np.cumsum(NOISE), ()),
        (np.zeros(3000), ()),
        (AT.astype(float), ()),
        (NOISE[:3], ()),
        (NOISE[:0], ()),
    ],
    ids=["day", "day and week", "noise", "walk", "nothing", "line", "three rows", "no rows"],
)
def test_what_a_series_shows(y: np.ndarray, wanted: tuple[int, ...]) -> None:
    assert propose(y) == wanted


def test_gaps_and_glitches_hide_no_season() -> None:
    y = np.sin(2 * np.pi * AT / 24) + 0.1 * NOISE
    y[::50] = np.nan
    y[777] = 1e9
    assert propose(y) == (24,)


def test_a_clock_has_a_day_and_a_week_where_the_series_is_long_enough() -> None:
    minute = 60 * 10**9
    assert of_clock(30 * minute, 2000) == (48, 336)
    assert of_clock(30 * minute, 500) == (48,)
    assert of_clock(30 * minute, 100) == ()
    assert of_clock(7 * minute, 10**6) == ()  # no whole number of rows a day
    assert of_clock(10**9, 10**7) == ()  # seconds: a day is too far away
    assert of_clock(24 * 60 * minute, 1000) == (7,)
    assert of_clock(None, 1000) == ()


@pytest.mark.parametrize("kind", ["normal", "exponential", "rare"])
@pytest.mark.parametrize("rows", [40, 100])
def test_white_noise_has_no_season(kind: str, rows: int) -> None:
    """Short series, of which some lag of many always has an autocorrelation above 0.3: 1 in 1,000 columns at most."""
    rng = np.random.default_rng(rows)
    columns = {
        "normal": lambda: rng.standard_normal(rows),
        "exponential": lambda: rng.exponential(size=rows),
        "rare": lambda: (rng.random(rows) < 0.05).astype(float),
    }
    assert sum(propose(columns[kind]()) != () for _ in range(1000)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("rows", [20, 40, 100, 300])
def test_fewer_than_one_column_of_white_noise_in_a_thousand_has_a_season(rows: int) -> None:
    rng = np.random.default_rng(rows)
    assert sum(propose(rng.standard_normal(rows)) != () for _ in range(10_000)) < 10


@pytest.mark.parametrize(("rows", "season"), [(100, 12), (200, 24), (60, 7)])
def test_a_season_in_a_short_series_is_found(rows: int, season: int) -> None:
    at, noise = np.arange(rows), np.random.default_rng(1).standard_normal(rows)
    assert propose(np.sin(2 * np.pi * at / season) + 0.05 * noise)[:1] == (season,)
