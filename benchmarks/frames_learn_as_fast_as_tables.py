"""A frame of 100,000 rows is learned at no less than 0.9 of the speed of the command line.

The same hourly rows, made up of a day, a week and noise, as a table on disk that `fit_stream` (what `streamgp train
--online` runs) learns with its checkpoints, and as a polars frame that `Forecaster.learn` takes in one piece, and in
pieces of a thousand rows. One thread; in turn, in one process, as often as `--rounds` says, the first round left out.
Processor seconds without imports and without ingest, which the frame has no need of; the speed is that of the medians.
The forecasts are the same: the scores are compared.

    python benchmarks/frames_learn_as_fast_as_tables.py [--rows 100000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _report import Claim, report

LEAST = 0.9
PIECE = 1000
CASES: dict[str, dict[str, Any]] = {
    "an hour ahead, 24 lags": {"horizon": 1, "lags": 24},
    "a day ahead, season of a day": {"horizon": 24, "season": 24},
}
COLUMNS = ("linear", "rows", "from", "CPU-s", "rows per CPU-s", "speed, over the table's")


def hourly(rows: int) -> pl.DataFrame:
    """ds, y."""
    hours, draw = np.arange(rows), np.random.default_rng(0)
    y = 100 + 10 * np.sin(2 * np.pi * hours / 24) + 5 * np.sin(2 * np.pi * hours / 168) + draw.normal(size=rows)
    start = datetime(2014, 1, 1)
    return pl.DataFrame({"ds": pl.Series(hours).cast(pl.Int64) * 3_600_000_000, "y": y}).with_columns(
        ds=pl.lit(start).dt.cast_time_unit("us") + pl.duration(microseconds=pl.col("ds"))
    )


def timed(frame: pl.DataFrame, table: Path, source: str, options: dict[str, Any]) -> tuple[float, float]:
    """Processor seconds of one pass, and its MAE."""
    import streamgp

    with tempfile.TemporaryDirectory() as home:
        began = time.process_time()
        if source == "a table":
            found: Any = streamgp.fit_stream(table, "y", model="linear", checkpoint=Path(home) / "c", **options)
            return time.process_time() - began, found["mae"]
        forecaster = streamgp.Forecaster("y", every="1h", model="linear", **options)
        pieces = [frame] if source == "a frame" else list(frame.iter_slices(PIECE))
        for piece in pieces:
            forecaster.learn(piece)
        forecaster.save(Path(home) / "c")
        return time.process_time() - began, forecaster.scores["mae"]


def main(rows: int, rounds: int) -> int:
    import torch

    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines.config import IngestConfig

    torch.set_num_threads(1)
    lines, missed, frame = list[list[str]](), list[str](), hourly(rows)
    sources = ("a table", "a frame", f"frames of {PIECE:,} rows")
    with tempfile.TemporaryDirectory() as folder:
        file, table = Path(folder) / "rows.parquet", Path(folder) / "table"
        frame.write_parquet(file)
        ingest(IngestConfig.read({"source": (str(file),), "table": str(table), "every": "1h"}))
        for name, case in CASES.items():
            options = case | {"warmup": 1000}  # which is found from the first frame, if it is not given
            passes = [[timed(frame, table, source, options) for source in sources] for _ in range(rounds + 1)][1:]
            errors = {round(mae, 9) for one in passes for _, mae in one}
            seconds = [statistics.median(one[at][0] for one in passes) for at in range(len(sources))]
            for source, own in zip(sources, seconds, strict=True):
                speed = seconds[0] / own
                lines.append([name, f"{rows:,}", source, f"{own:.2f}", f"{rows / own:,.0f}", f"{speed:.2f}"])
                print("  ".join(lines[-1]), flush=True)
                if source == "a frame" and speed < LEAST:
                    missed.append(f"{name}: {speed:.2f}")
            if len(errors) > 1:
                missed.append(f"{name}: scores differ, {errors}")
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        f"Forecaster.learn takes a frame of {rows:,} rows at no less than {LEAST} of the speed of `train --online` on "
        "a table of them, with the same scores: processor seconds of the pass, without imports and ingest, medians of "
        f"{rounds} rounds in turn in one process. Frames of {PIECE:,} rows are not claimed."
    )
    report(__file__, Claim("A frame is learned as fast as a table", text, COLUMNS, lines, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="default: 100000")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    arguments = parser.parse_args()
    sys.exit(main(arguments.rows, arguments.rounds))
