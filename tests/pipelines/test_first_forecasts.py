"""The first forecasts of the default, when it has learned little: near the best naive forecast, and never absurd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamgp
from streamgp.forecasting.streams import Floats

DAY, WARM, SEEDS = 24, 84, 2
BOUND = 1.2
"""Times the mean absolute error of the better naive forecast."""


def made(shape: str, seed: int) -> pd.DataFrame:
    """Hourly rows: warm-up, a day of cutoffs, and the truths of the last."""
    draw, at = np.random.default_rng(seed), np.arange(WARM + 2 * DAY)
    noise, day = draw.normal(size=len(at)), 2 * np.pi * at / DAY
    known = np.sin(day) + 0.1 * draw.normal(size=len(at))
    y = {
        "constant": np.round(101 + 0.05 * noise, 2),
        "walk": 50 + noise.cumsum(),
        "season": 20 + 8 * np.sin(day) + 3 * np.sin(2 * day + 1) + noise,
        "trend": 10 + 0.2 * at + noise,
        "collinear": 10 + 3 * known + 0.5 * noise,
    }[shape]
    columns: dict[str, Any] = {"t": pd.date_range("2024-01-01", periods=len(at), freq="h"), "y": y}
    if shape == "collinear":
        columns |= {"u": known, "v": 2 * known + 0.001 * draw.normal(size=len(at))}
    return pd.DataFrame(columns)


def issued(frame: pd.DataFrame) -> pd.DataFrame:
    """Forecasts of the last day of cutoffs, with the place of each cutoff among the rows."""
    known = [name for name in ("u", "v") if name in frame]
    model = streamgp.Forecaster("y", time="t", horizon=DAY, season=DAY, every="1h", warmup=WARM, known=known)
    found = model.cross_validation(frame, h=DAY, n_windows=DAY, step_size=1)
    place = pd.Series(range(len(frame)), frame["t"].dt.tz_localize(None))
    at = found["cutoff"].dt.tz_localize(None) if found["cutoff"].dt.tz is not None else found["cutoff"]
    return found.assign(place=at.map(place).to_numpy())


def excursion(found: pd.DataFrame, y: Floats) -> float:
    """How far a forecast lies outside of the values seen by then, in their range."""
    low, high = np.minimum.accumulate(y)[found["place"]], np.maximum.accumulate(y)[found["place"]]
    mean = found["ensemble"].to_numpy()
    return float((np.maximum(mean - high, low - mean) / (high - low)).max())


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["constant", "walk", "season", "trend", "collinear"])
def test_the_first_day_after_the_warm_up_is_near_the_better_naive_forecast(shape: str) -> None:
    errors = np.zeros(3)
    for seed in range(SEEDS):
        frame = made(shape, seed)
        y, found = frame["y"].to_numpy(), issued(frame)
        assert len(found) == DAY * DAY and found["place"].min() == WARM
        place, step = found["place"].to_numpy(), found["step"].to_numpy()
        naive = [y[place], y[place + step - DAY]]
        errors += [np.abs(found["y"] - mean).mean() for mean in (found["ensemble"], *naive)]
        assert excursion(found, y) <= 1.0
    assert errors[0] <= BOUND * errors[1:].min(), errors
