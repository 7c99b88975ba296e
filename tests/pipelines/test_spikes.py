"""One value far from all others is scored, and bends no forecast."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import streamgp
from streamgp_pipelines import Forecaster

ROWS, FAR = 700, 1e4


def stream(spike: float | None) -> Any:
    """Seconds of a reading around 50, with a spike in the last row."""
    generator, y = np.random.default_rng(3), np.zeros(ROWS)
    for row in range(1, ROWS):
        y[row] = 0.9 * y[row - 1] + generator.standard_normal()
    y += 50.0
    if spike is not None:
        y[-1] = spike
    return pl.DataFrame({"ds": np.arange(ROWS), "y": y})


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["linear", "svdgp", "auto", "persistence"])
def test_the_forecast_behind_a_spike_is_the_usual_one_and_wider(model: str) -> None:
    def forecast(frame: pl.DataFrame) -> tuple[Any, Any, Forecaster]:
        made = streamgp.Forecaster("y", horizon=3, lags=8, model=model, season="none", time="ds").fit(frame)
        table = made.predict()
        name = next(column.removesuffix("-lo-95") for column in table.columns if column.endswith("-lo-95"))
        return table[name].to_numpy(), (table[f"{name}-hi-95"] - table[f"{name}-lo-95"]).to_numpy(), made

    usual, width, _ = forecast(stream(None))
    mean, wide, made = forecast(stream(FAR))
    assert np.abs(mean - usual).max() < 3.0  # y itself differs by its last row
    assert width[0] < wide[0] < 4.0 * width[0]
    more = stream(None).with_columns(pl.col("ds") + ROWS)
    assert any(note.startswith("y is 10000, ") for note in made.update(more).warnings)
