"""Milliseconds of a row that is learned and forecast from at once: `learn_one(row)`, then `predict_one()`.

Two streams, three models, one thread. The forecaster has learned some thousand rows in one frame before; then each row
is learned and the next steps are forecast, as a user of river does, through micro-batches, as rows behind the last full
one are learned again for each forecast.

demand     half-hourly electricity demand, 48 steps ahead, a day's and a week's season
vehicle    speed and throttle of a simulated drive at 10 Hz, 10 steps ahead, without seasons

    python benchmarks/row_by_row.py [--warm 3000] [--rows 200] [--streams demand vehicle] [--models auto linear svdgp]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from _report import Claim, report

from streamgp import Forecaster

ROOT = Path(__file__).parents[1]
MODELS = ("auto", "linear", "svdgp")
TEXT = (
    "CPU milliseconds, one thread, of one row learned (learn_one) and the next steps forecast after it (predict_one), "
    "each row, by a forecaster that has learned some thousand rows before. demand: half-hourly, 48 steps ahead, "
    "seasons of a day and a week, micro-batches of 48 rows. vehicle: 10 Hz, 10 steps ahead, no season, micro-batches "
    "of 256. "
    "Most rows only wait in their micro-batch; the 99th percentile of learn is that of one which fills it. "
    "No limit is set."
)


def demand(count: int) -> pl.DataFrame:
    """timestamp, demand_gw"""
    rows = pl.read_csv(ROOT / "data" / "elecdemand.csv", try_parse_dates=True, n_rows=count)
    return rows.select("timestamp", "demand_gw")


def vehicle(count: int) -> pl.DataFrame:
    """ds, speed, throttle: first order dynamics, a pedal that moves every four seconds, noise."""
    draw, speed, found = np.random.default_rng(0), 0.0, []
    throttle = np.repeat(draw.random(count // 40 + 1), 40)[:count]
    for pedal in throttle:
        speed += 0.02 * (30.0 * pedal - speed)
        found.append(speed + 0.05 * draw.standard_normal())
    start = datetime(2026, 1, 1)
    times = [start + timedelta(milliseconds=100 * row) for row in range(count)]
    return pl.DataFrame({"ds": times, "speed": found, "throttle": throttle})


def of_demand(model: str) -> Forecaster:
    return Forecaster("demand_gw", 48, model=model, season=[48, 336], every="30m", time="timestamp")


def of_vehicle(model: str) -> Forecaster:
    return Forecaster("speed", 10, model=model, inputs="throttle", every="100ms", season="none")


STREAMS: dict[str, tuple[Callable[[int], pl.DataFrame], Callable[[str], Forecaster]]] = {
    "demand": (demand, of_demand),
    "vehicle": (vehicle, of_vehicle),
}


def milliseconds(rows: pl.DataFrame, forecaster: Forecaster, warm: int) -> np.ndarray:
    """(2, N) CPU-ms of each row after the first `warm`, learned and forecast from."""
    forecaster.learn(rows[:warm])
    forecaster.predict_one()
    spent = []
    for row in rows[warm:].iter_rows(named=True):
        began = time.process_time()
        forecaster.learn_one(row)
        learned = time.process_time()
        forecaster.predict_one()
        spent.append((learned - began, time.process_time() - learned))
    return 1000.0 * np.array(spent).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=STREAMS)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    cells = []
    for stream in asked.streams:
        make, begin = STREAMS[stream]
        rows = make(asked.warm + asked.rows)
        for model in asked.models:
            found = milliseconds(rows, begin(model), asked.warm)
            figures = [f(part) for part in found for f in (np.median, lambda part: np.quantile(part, 0.99))]
            cells.append([stream, model, *(f"{figure:.1f}" for figure in figures), f"{found.sum(0).mean():.1f}"])
            print("  ".join(cells[-1]), flush=True)
    columns = ["stream", "model", "learn p50", "learn p99", "predict p50", "predict p99", "a row, mean"]
    report(__file__, Claim("Row by row", TEXT, columns, cells, None))


if __name__ == "__main__":
    main()
