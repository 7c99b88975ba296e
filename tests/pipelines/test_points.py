"""Both point forecasts: what the mean and the median of a forecast score."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from streamgp import Forecaster


def scores(y: np.ndarray, point: str) -> dict[str, float]:
    """Of `linear` on a stream without a memory."""
    found = Forecaster("y", model="linear", lags=2, season="none", time="row", point=point, seed=0)
    return dict(found.fit(pl.DataFrame({"y": y})).scores)


def test_the_median_has_the_least_absolute_error_and_the_mean_the_least_squared_one() -> None:
    y = np.random.default_rng(0).normal(size=1200)
    symmetric, skewed, other = scores(y, "mean"), scores(np.exp(y), "mean"), scores(np.exp(y), "median")
    assert symmetric["median_mae"] == pytest.approx(symmetric["mean_mae"], rel=0.01)
    assert skewed["median_mae"] < 0.95 * skewed["mean_mae"] and skewed["rmse"] < other["rmse"]
    assert skewed["mae"] == skewed["mean_mae"] and other["mae"] == pytest.approx(other["median_mae"], rel=1e-12)
    for name in ("mean_mae", "median_mae"):  # what is said of the other one is what it scores
        assert other[name] == pytest.approx(skewed[name], rel=1e-12)
