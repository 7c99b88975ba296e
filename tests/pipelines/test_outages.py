"""What a forecast says and knows of outages: which target is old, by how much, and that a level has moved before."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import streamgp

HOURS = 600


def stream(rows: int = HOURS + 24, seed: int = 0) -> np.ndarray:
    """A day of hours, and slow noise."""
    generator = np.random.default_rng(seed)
    noise = np.zeros(rows)
    for row in range(1, rows):
        noise[row] = 0.9 * noise[row - 1] + 0.3 * generator.standard_normal()
    return 50 + 8 * np.sin(2 * np.pi * np.arange(rows) / 24) + noise


def table(columns: dict[str, np.ndarray], lost: dict[str, int] | None = None) -> pl.DataFrame:
    """The first rows; of some columns the last so many values are missing."""
    times = [datetime(2024, 1, 1) + timedelta(hours=row) for row in range(HOURS)]
    frame = {"t": pl.Series(times)}
    for name, values in columns.items():
        own = values[:HOURS].copy()
        own[HOURS - (lost or {}).get(name, 0) :] = np.nan
        frame[name] = pl.Series(own).fill_nan(None)
    return pl.DataFrame(frame)


def forecast(frame: pl.DataFrame, target: Any = "y", **options: Any) -> tuple[pl.DataFrame, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learned = streamgp.Forecaster(
            target, 24, season=24, time="t", every="1h", model="linear", batch=60, **options
        ).learn(frame)
        found = learned.forecast(levels=[95])
    return found, [str(one.message) for one in caught]


def test_an_outage_before_the_forecast_costs_accuracy_not_honesty_and_is_told() -> None:
    y, covered, wider = stream(), [], []
    for hours in (1, 12, 100):
        found, told = forecast(table({"y": y}, {"y": hours}))
        low, high = (found[f"linear-{end}-95"].to_numpy() for end in ("lo", "hi"))
        covered.append(((low <= y[HOURS:]) & (y[HOURS:] <= high)).mean())
        wider.append((high - low)[0])
        assert any(f"y was last known {hours} step" in text for text in told)
        assert np.abs(found["linear"].to_numpy() - y[HOURS:]).mean() < 3.0
    assert np.mean(covered) > 0.9 and wider[0] < wider[1] <= wider[2]


@pytest.mark.sampled
@pytest.mark.parametrize(("new", "gone"), [(3, 6), (3, 30), (12, 30), (24, 6), (48, 6)])
def test_a_level_that_moved_before_an_outage_is_where_it_is_after_it(new: int, gone: int) -> None:
    y = stream()
    y[HOURS - gone - new :] += 400.0
    found, _ = forecast(table({"y": y}, {"y": gone}))
    assert np.abs(found["linear"].to_numpy() - y[HOURS:]).mean() < 25.0


def test_of_two_targets_the_one_that_is_old_is_named_and_wider() -> None:
    both = {"y": stream(), "z": stream(seed=1)}
    found, told = forecast(table(both, {"z": 30}), ["y", "z"])
    usual, _ = forecast(table(both), ["y", "z"])
    width = pl.col("linear-hi-95") - pl.col("linear-lo-95")
    share = [
        dict(one.group_by("target").agg(width.first() / width.last()).iter_rows()) for one in (found, usual)
    ]  # of the first step's width in the last one's: an old target makes it larger
    assert share[0]["z"] > 1.3 * share[1]["z"] and share[0]["y"] < 1.1 * share[1]["y"]
    assert [text for text in told if "last known" in text] == [
        "z was last known 30 steps before the newest row: the bands are wider for it"
    ]


def test_inputs_that_are_lost_and_series_that_have_ended_are_told() -> None:
    y, x = stream(), stream(seed=2)
    _, told = forecast(table({"y": y, "x": x}, {"x": 40}), inputs="x")
    assert any(text.startswith("x had no value in the newest 24 rows") for text in told)
    parts = [table({"y": stream(seed=at)}).with_columns(s=pl.lit(name)) for at, name in enumerate("ABC")]
    panel = pl.concat([parts[0], parts[1].head(HOURS - 60), parts[2]]).sort("t", "s")
    _, told = forecast(panel, series="s")
    assert any("the rows of B end up to 60 steps before the newest of all" in text for text in told)
