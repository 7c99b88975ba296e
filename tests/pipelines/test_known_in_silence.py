"""A machine that is silent for an hour is forecast as well after it as if it had not been."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from streamgp_data.ingestion.ingest import ingest
from streamgp_pipelines import fit_stream
from streamgp_pipelines.config import IngestConfig

ROWS, HOUR, START = 960, 60, 700
BEGIN = datetime(2024, 1, 1)


def slow(generator: np.random.Generator, rate: float, size: float) -> np.ndarray:
    shocks, found = size * np.sqrt(1 - rate**2) * generator.standard_normal(ROWS), np.zeros(ROWS)
    for row in range(1, ROWS):
        found[row] = rate * found[row - 1] + shocks[row]
    return found


def machine(seed: int) -> pl.DataFrame:
    """Minutes of a machine that a known load drives."""
    generator = np.random.default_rng(seed)
    load = 50 + slow(generator, 0.95, 20.0)
    times = [BEGIN + timedelta(minutes=at) for at in range(ROWS)]
    return pl.DataFrame({"t": times, "y": 20 + 1.6 * load + slow(generator, 0.8, 1.5), "load": load})


def ran(frame: pl.DataFrame, place: Path) -> pl.DataFrame:
    """All forecasts: cutoff and ds in minutes, and their means."""
    place.mkdir()
    frame.write_parquet(place / "rows.parquet")
    source = {"source": (str(place / "rows.parquet"),), "table": str(place / "table"), "every": "1m", "time": "t"}
    ingest(IngestConfig.read(source))
    cells = place / "cells.parquet"
    options = {"model": "linear", "known": "load", "horizon": 5, "season": (HOUR,)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_stream(place / "table", "y", checkpoint=place / "run", predictions=cells, **options)  # type: ignore[arg-type]
    minutes = [(pl.col(name) - BEGIN).dt.total_minutes().alias(name) for name in ("cutoff", "ds")]
    low, high = "linear-lo-95", "linear-hi-95"
    return pl.read_parquet(cells).select(*minutes, mean="linear", low=low, high=high)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["rows", "y", "both"])
def test_the_hour_after_a_silence_is_forecast_as_well_as_without_it(lost: str, tmp_path: Path) -> None:
    errors, usual, covered = list[float](), list[float](), list[float]()
    for seed in range(2):
        frame = machine(seed)
        silent = pl.int_range(pl.len()).is_between(START, START + HOUR - 1)
        gone = {"rows": [], "y": ["y"], "both": ["y", "load"]}[lost]
        holed = frame.with_columns(pl.when(~silent).then(pl.col(name)).alias(name) for name in gone)
        holed = frame.filter(~silent) if lost == "rows" else holed
        whole = ran(frame, tmp_path / f"whole{seed}").rename({"mean": "usual"}).drop("low", "high")
        both = ran(holed, tmp_path / f"holed{seed}").join(whole, on=["cutoff", "ds"])
        both = both.filter(pl.col("cutoff").is_between(START + HOUR, START + 2 * HOUR))
        y = frame["y"].to_numpy()[both["ds"].to_numpy()]
        errors.append(np.abs(both["mean"].to_numpy() - y).mean())
        usual.append(np.abs(both["usual"].to_numpy() - y).mean())
        covered.append(((both["low"].to_numpy() <= y) & (y <= both["high"].to_numpy())).mean())
    assert len(both) > 250 and np.mean(errors) < 1.15 * np.mean(usual)  # it was 1.5 to 2.2 times as much
    assert np.mean(covered) > 0.9
