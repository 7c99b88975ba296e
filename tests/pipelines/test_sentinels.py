"""Sentinels and dead sensors in a run: their cost, what is said, and what switches the finding off."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import streamgp

HOURS, DAY = 700, 24
TIMES = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(HOURS)]


def stream(seed: int = 0) -> np.ndarray:
    noise = np.zeros(HOURS)
    for hour, step in enumerate(np.random.default_rng(seed).standard_normal(HOURS)[1:], 1):
        noise[hour] = 0.9 * noise[hour - 1] + 0.3 * step
    return 50 + 8 * np.sin(2 * np.pi * np.arange(HOURS) / DAY) + noise


def scored(columns: dict[str, Any], **options: Any) -> tuple[float, list[str]]:
    """MAE, and what is said."""
    frame = pl.DataFrame({"t": TIMES, **columns})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learned = streamgp.Forecaster("y", 6, season=DAY, time="t", every="1h", batch=128, model="linear", **options)
        learned.learn(frame)
    return learned.scores["mae"], [str(one.message) for one in caught]


@pytest.mark.sampled
@pytest.mark.parametrize("where", ["target", "input"])
def test_a_sentinel_costs_what_a_missing_value_does(where: str) -> None:
    y, x, rows = stream(), stream(1), np.flatnonzero(np.random.default_rng(2).random(HOURS) < 0.01)[1:]
    bad = y if where == "target" else x
    missing, (bad[rows[rows > 50]]) = bad.copy(), -999.0
    missing[rows[rows > 50]] = np.nan
    options = {"inputs": "x"} if where == "input" else {}
    other = {"y": missing, "x": x} if where == "target" else {"y": y, "x": missing}
    found, told = scored({"y": y, "x": x}, **options)
    blank, silent = scored(other, **options)
    assert found == blank and not silent
    assert [text for text in told if "-999 again and again" in text and 'sentinel="none"' in text] == told
    named, quiet = scored({"y": y, "x": x}, sentinel=-999, **options)
    assert named == blank and not quiet
    taken, quiet = scored({"y": y, "x": x}, sentinel="none", **options)
    assert taken > blank and not [text for text in quiet if "again" in text]


def test_a_dead_sensor_is_said_and_leaves_no_echo() -> None:
    y = stream()
    clean, _ = scored({"y": y})
    y[500:560] = y[500]
    found, told = scored({"y": y})
    taken, quiet = scored({"y": y}, sentinel="none")
    assert any("its sensor counts as dead" in text for text in told) and not quiet
    assert clean < found < 0.9 * taken
