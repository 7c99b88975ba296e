"""Seasons: of a clock, and of what a series shows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from streamgp.windows.seasons import of_clock, propose
from tests.needs import needs, public

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


@pytest.mark.sampled
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


@pytest.mark.parametrize("rounded", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("period", [200, 289, 880])
def test_slow_waves_have_no_season_of_a_few_rows(period: int, rounded: float) -> None:
    """Neighbours of all lags are alike, and rounding makes one of them the highest: 4, 5 or 10 rows were a season."""
    y = 50 * np.cos(2 * np.pi * AT / period)
    y = np.round(y / rounded) * rounded if rounded else y
    assert propose(y) in ((), (period,))
    assert all(season > 60 for season in propose(y + 8 * np.cos(2 * np.pi * AT / 61.7) + 0.05 * NOISE))


@pytest.mark.parametrize(("period", "rounded"), [(60, 1.0), (15, 0.1), (60, 0.0)])
def test_a_rounded_wave_has_its_own_season(period: int, rounded: float) -> None:
    y = 10 * np.sin(2 * np.pi * AT / period) + 1e-3 * NOISE
    assert propose(np.round(y / rounded) * rounded if rounded else y) == (period,)


@pytest.mark.parametrize(("period", "kept"), [(8, 0.8), (24, 0.95), (100, 0.95), (300, 0.99)])
def test_cycles_that_lose_their_phase_are_no_season(period: int, kept: float) -> None:
    """Autoregressions of order 2 with complex roots."""
    first, second = 2 * kept * np.cos(2 * np.pi / period), -(kept**2)
    found = 0
    for seed in range(10):
        noise, y = np.random.default_rng(seed).standard_normal(3000), np.zeros(3000)
        for at in range(2, 3000):
            y[at] = first * y[at - 1] + second * y[at - 2] + noise[at]
        found += propose(y) != ()
    assert found <= 1


def test_a_season_beside_a_slow_wave_and_a_trend_is_found() -> None:
    y = np.sin(2 * np.pi * AT / 24) + 20 * np.sin(2 * np.pi * AT / 1500) + 0.1 * AT + 0.05 * NOISE
    assert propose(y) == (24,)


REAL = (
    ("elecdemand", "demand_gw", (48, 336)),
    ("etth1", "HUFL", (24,)),
    ("etth1", "OT", ()),
    ("pjm_aep_hourly", "load_mw", (24, 168)),
    ("gef2012_load", "load_total_kw", (24, 168)),
    ("gef2012_load", "station01_temp_f", (24,)),
    ("gef2012_wind", "power", ()),
    ("nds_drives", "speed_mph", ()),
    ("carobd_drive10", "vehicle_speed_km_h", ()),
    ("panda_exciting", "qd2_rad_s", ()),
    ("panda_exciting", "qd3_rad_s", ()),
)


@pytest.mark.parametrize(
    ("name", "column", "wanted"), [pytest.param(*case, marks=needs(f"{case[0]}.parquet"), id=case[1]) for case in REAL]
)
def test_what_real_series_show(name: str, column: str, wanted: tuple[int, ...]) -> None:
    y = pl.read_parquet(public(f"{name}.parquet"))[column].cast(pl.Float64).to_numpy()
    assert propose(y[:20_000]) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("rows", [20, 40, 100, 300])
def test_fewer_than_one_column_of_white_noise_in_a_thousand_has_a_season(rows: int) -> None:
    rng = np.random.default_rng(rows)
    assert sum(propose(rng.standard_normal(rows)) != () for _ in range(10_000)) < 10


@pytest.mark.parametrize(("rows", "season"), [(100, 12), (200, 24), (60, 7)])
def test_a_season_in_a_short_series_is_found(rows: int, season: int) -> None:
    at, noise = np.arange(rows), np.random.default_rng(1).standard_normal(rows)
    assert propose(np.sin(2 * np.pi * at / season) + 0.05 * noise)[:1] == (season,)
