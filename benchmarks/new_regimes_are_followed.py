"""A stream whose daily pattern ends: the default moves to persistence, and back when the pattern returns.

Five weeks of an hourly pattern of day and week with noise are simulated; then comes a random walk, an almost constant
level, a week of the walk, or a day and a half of it. Forecasts of 24 hours ahead are judged by the day of their origin
after the change, beside persistence and the value of 24 hours before, which know nothing of a change.

Claimed of the default, over the mean of all drawn streams of each kind: from the third day on at most twice the MAE of
the better of the two naive forecasts, where the new regime stays, and 95 % bands that cover at least 0.9. Of the first
two days nothing is claimed: a forecast of 24 hours is known to be wrong a day later.

    python benchmarks/new_regimes_are_followed.py [--models auto,linear,svdgp] [--streams 5]
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import torch
from _report import Claim, report
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DAY, BEFORE, AFTER = 24, 35, 14
"""Rows of a day; days of the pattern, and after the change."""
KINDS = {"walk": None, "level": None, "a week of the walk": 7 * DAY, "36 hours of the walk": 36}
"""And the rows after which the pattern returns."""
PARTS = {"days 1 and 2": (0, 2), "days 3 to 7": (2, 7), "days 8 to 13": (7, 13)}
MOST, COVERED = 2.0, 0.9
START = dt.datetime(2024, 1, 1)
COLUMNS = ("then", "model", "when", "MAE", "over persistence", "over the day before", "95 %")


def drawn(kind: str, seed: int) -> Floats:
    generator = np.random.default_rng(seed)
    t, change = np.arange((BEFORE + AFTER) * DAY), BEFORE * DAY
    y = 100 + 30 * np.sin(2 * np.pi * t / DAY) + 8 * np.cos(4 * np.pi * t / DAY) + 8 * (t // DAY % 7 >= 5)
    y = y + generator.normal(0, 2, len(t))
    end = change + (KINDS[kind] or AFTER * DAY)
    steps = generator.normal(0, 0.2 if kind == "level" else 1.2, end - change)
    y[change:end] = 60 + (steps if kind == "level" else np.cumsum(steps))
    return y


def issued(y: Floats, model: str) -> pl.DataFrame:
    """What `train --online` issued: cutoff, ds, y and the forecast with its 95 % band."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig

    times = [START + dt.timedelta(hours=hour) for hour in range(len(y))]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = Path(folder)
        pl.DataFrame({"ds": times, "y": y}).write_parquet(place / "rows.parquet")
        given = {"source": (str(place / "rows.parquet"),), "table": str(place / "table"), "time": "ds", "every": "1h"}
        ingest(IngestConfig.read(given))
        where = {"predictions": place / "issued.parquet", "checkpoint": place / "checkpoint"}
        fit_stream(place / "table", "y", model=model, horizon=DAY, device="cpu", **where)
        found = pl.read_parquet(place / "issued.parquet")
    name = next(column for column in found.columns if f"{column}-lo-95" in found.columns)
    return found.rename({name: "mean", f"{name}-lo-95": "low", f"{name}-hi-95": "high"})


def judged(y: Floats, forecasts: pl.DataFrame) -> dict[str, tuple[float, ...]]:
    """A part after the change -> MAE of the forecasts, of persistence and of the day before, and the coverage."""
    hour = ((pl.col("cutoff") - START).dt.total_minutes() // 60).alias("row")
    ahead = ((pl.col("ds") - START).dt.total_minutes() // 60).alias("to")
    rows = forecasts.drop_nulls("y").with_columns(hour, ahead)
    row, to = rows["row"].to_numpy(), rows["to"].to_numpy()
    truth, mean = rows["y"].to_numpy(), rows["mean"].to_numpy()
    covered = rows.select(pl.col("y").is_between("low", "high"))["y"].to_numpy()
    errors = (np.abs(truth - mean), np.abs(truth - y[row]), np.abs(truth - y[to - DAY]), covered)
    day = (row - BEFORE * DAY) / DAY
    found = dict[str, tuple[float, ...]]()
    for part, (first, last) in PARTS.items():
        own = (day >= first) & (day < last)
        found[part] = tuple(float(one[own].mean()) for one in errors)
    return found


def main(models: list[str], streams: int) -> int:
    torch.set_num_threads(1)
    lines, missed = list[list[str]](), list[str]()
    for kind, model in ((kind, model) for kind in KINDS for model in models):
        all_of_them = [judged(y, issued(y, model)) for y in (drawn(kind, 1000 + seed) for seed in range(streams))]
        for part in PARTS:
            own, last, before, covered = np.mean([one[part] for one in all_of_them], 0).tolist()
            cells = [f"{own:.3g}", f"{own / last:.2f}", f"{own / before:.2f}", f"{covered:.3f}"]
            lines.append([kind, model, part, *cells])
            print("  ".join(lines[-1]), flush=True)
            claimed = model == "auto" and KINDS[kind] is None and part != "days 1 and 2"
            if claimed and (own > MOST * min(last, before) or covered < COVERED):
                over = own / min(last, before)
                missed.append(f"{kind}, {part}: {over:.2f} of the naive error, coverage {covered:.3f}")
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        "Five weeks of a pattern of day and week, hourly; then a random walk, an almost constant level, or the walk "
        f"for a while; {streams} simulated streams of each kind, 24 hours ahead, by the day of the origin since then. "
        f"Claimed of the default from the third day on, where the new regime stays: at most {MOST:g} times the MAE of "
        f"the better of persistence and the value of the day before, and bands that cover {COVERED:g}. The constants "
        "were chosen on other draws."
    )
    report(__file__, Claim("New regimes", text, COLUMNS, lines, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="auto,linear,svdgp", help="comma-separated; default: auto,linear,svdgp")
    parser.add_argument("--streams", type=int, default=5, help="of each kind; default: 5")
    asked = parser.parse_args()
    sys.exit(main(asked.models.split(","), asked.streams))
