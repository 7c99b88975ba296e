"""The point forecast beside its bands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tests.pipelines.worlds import frame_of, make_table, run


def test_the_mean_may_be_outside_of_a_band_where_values_stand_still_and_the_median_is_not(tmp_path: Path) -> None:
    """A speed that is 0 for 100 rows at a time: the band ends at the stop, the mean counts the start to come."""
    rng = np.random.default_rng(0)
    rows = np.arange(2800)
    stands = np.repeat(np.arange(28) % 2 == 0, 100)
    y = np.where(stands, 0.0, 10 + 3 * np.sin(rows / 9) + rng.normal(size=2800))
    make_table(tmp_path / "table", frame_of(2800).with_columns(y=pl.Series(y)))
    outside = {}
    for point in ("mean", "median"):
        file = tmp_path / f"{point}.parquet"
        options = {"model": "linear", "lags": 8, "horizon": 3, "season": (), "warmup": 400, "lower": 0.0, "batch": 128}
        run(tmp_path / "table", tmp_path / point, point=point, predictions=file, **options)
        found = pl.read_parquet(file).filter(pl.col("y") == 0).tail(1400)
        outside[point] = (~pl.Series(found["linear"]).is_between(found["linear-lo-80"], found["linear-hi-80"])).mean()
    assert outside["mean"] > 0.2
    assert outside["median"] == 0
