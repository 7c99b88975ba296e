"""The peers of `streamgp compare` are no straw men: no worse than what their users would write in ten minutes.

The load of GEFCom2012 (all zones), hourly, no known inputs, MAE at steps 1, 6, 12 and 24 from row 1,344 on.

lightgbm  LGBMRegressor a step on 15 obvious columns (last values, the same hour of days and weeks before, means,
          hour, weekday, month), the change from the last value, 300 trees, refitted every 4 weeks on all before
ridge     scikit-learn's Ridge on the same columns, standardised, hour and weekday as indicators, refitted every week

Claimed: each peer, with its defaults, has at most the MAE of its recipe at each of these steps. `auto` is shown beside.

    python benchmarks/peers_beside_plain_recipes.py [--others FOLDER] [--rows 9000] [--models lightgbm,ridge,auto]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _uci
import numpy as np
import polars as pl
from _report import Claim, report
from numpy.typing import NDArray

Array = NDArray[np.float64]

FIRST, DAY, WEEK = 1344, 24, 168
STEPS = (1, 6, 12, 24)
TARGET = "load_total_kw"
COLUMNS = ("model", *(f"MAE, step {step}" for step in STEPS), "CPU-s of these steps", "CPU-s of all")
TEXT = (
    "Load of GEFCom2012, first {rows:,} hours, MAE in kW from row 1,344 on. Plain LightGBM has a model a step on 15 "
    "columns, 300 trees, refitted every four weeks; the plain ridge the same columns, refitted every week. lightgbm "
    "and ridge are the peers of compare with their defaults. Processor seconds of the recipes are of four of 24 steps. "
    "Claimed: each peer has at most the MAE of its recipe at these steps."
)


def at(values: Array, row: Any) -> Array:
    """Values at these rows, NaN outside."""
    inside = (row >= 0) & (row < len(values))
    return np.where(inside, values[np.clip(row, 0, len(values) - 1)], np.nan)


def columns(y: Array, times: pl.Series, step: int) -> Array:
    """(n, 15) what a first attempt looks at, at each row."""
    row = np.arange(len(y))
    to = row + step
    daily = to - -(-step // DAY) * DAY  # the newest row at the same hour

    def rolling(rows: int, of: Any) -> Array:
        found = np.full(len(y), np.nan)
        found[rows - 1 :] = of(np.lib.stride_tricks.sliding_window_view(y, rows), axis=1)
        return found

    found = [y, *(at(y, row - lag) for lag in (1, 2, 3, DAY - 1))]
    found += [at(y, back) for back in (daily, daily - DAY, to - WEEK, to - 2 * WEEK)]
    found += [rolling(DAY, np.mean), rolling(WEEK, np.mean), rolling(DAY, np.std)]
    clock = times.dt.hour(), times.dt.weekday(), times.dt.month()
    return np.stack([*found, *(at(part.to_numpy().astype(float), to) for part in clock)], 1)


def recipe(name: str, y: Array, times: pl.Series) -> tuple[list[float], float]:
    """MAE of each of the steps, and processor seconds."""
    from lightgbm import LGBMRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    began, errors = time.process_time(), []
    trees = name == "plain lightgbm"
    every = 4 * WEEK if trees else WEEK
    for step in STEPS:
        table, change = columns(y, times, step), at(y, np.arange(len(y)) + step) - y
        if not trees:
            hour, weekday = (np.nan_to_num(table[:, column]).astype(int) for column in (-3, -2))
            table = np.concatenate([table[:, :-3], np.eye(24)[hour], np.eye(8)[weekday]], 1)
        model: Any = LGBMRegressor(n_estimators=300, learning_rate=0.05, n_jobs=1, verbose=-1)
        if not trees:
            model = make_pipeline(StandardScaler(), Ridge(1.0))
        made = np.full(len(y), np.nan)
        for begin in range(FIRST, len(y) - step, every):
            rows, ahead = np.arange(2 * WEEK, begin - step + 1), slice(begin, min(begin + every, len(y) - step))
            model.fit(table[rows], change[rows])
            predict = model.booster_.predict if trees else model.predict
            made[ahead] = predict(table[ahead])
        errors.append(float(np.nanmean(np.abs(made - change)[FIRST:])))
    return errors, time.process_time() - began


def main(others: Path, rows: int, models: list[str]) -> int:
    import torch

    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import compare
    from streamgp_pipelines.config import IngestConfig

    torch.set_num_threads(1)
    data = pl.read_parquet(others / "gef2012_load.parquet").sort("timestamp").select("timestamp", TARGET).head(rows)
    y = data[TARGET].to_numpy().astype(float)
    for row in np.flatnonzero(np.isnan(y)):
        y[row] = y[row - WEEK]
    found, lines = dict[str, list[float]](), list[list[str]]()
    for name in [f"plain {one}" for one in ("lightgbm", "ridge") if one in models]:
        found[name], spent = recipe(name, y, data["timestamp"])
        lines.append([name, *(f"{mae:.0f}" for mae in found[name]), f"{spent:.0f}", ""])
        print("  ".join(lines[-1]), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        data.write_parquet(work / "rows.parquet")
        ingest(IngestConfig.read({"source": (str(work / "rows.parquet"),), "table": str(work / "t"), "every": "1h"}))
        for name in models:
            given: dict[str, Any] = {"horizon": DAY, "season": (DAY, WEEK), "score_from": str(FIRST), "device": "cpu"}
            made = compare(work / "t", TARGET, (name,), against=name, comparison=work / "models", **given)
            steps = dict(made.scores.filter(by="step").select("part", "mae").rows())
            found[name] = [steps[str(step)] for step in STEPS]
            spent = made.scores.filter(by="all")["cpu_seconds"].item()
            lines.append([name, *(f"{mae:.0f}" for mae in found[name]), "", f"{spent:.0f}"])
            print("  ".join(lines[-1]), flush=True)
    missed = [
        f"{name}, step {step}: {own:.0f} beside {plain:.0f}"
        for name in ("lightgbm", "ridge")
        if name in models
        for step, own, plain in zip(STEPS, found[name], found[f"plain {name}"], strict=True)
        if own > plain
    ]
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    report(__file__, Claim("Peers beside plain recipes", TEXT.format(rows=rows), COLUMNS, lines, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", type=Path, default=_uci.FOLDER, help="folder of gef2012_load.parquet")
    parser.add_argument("--rows", type=int, default=39_600, help="first hours that are used")
    parser.add_argument("--models", default="lightgbm,ridge,auto", help="of lightgbm, ridge, and models of ours")
    given = parser.parse_args()
    sys.exit(main(given.others, given.rows, given.models.split(",")))
