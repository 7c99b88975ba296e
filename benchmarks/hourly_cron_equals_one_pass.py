"""A row an hour, trained and forecast each hour for 30 days, forecasts as one pass over the same rows, bit for bit.

The electricity demand of Victoria by the hour: 60 days in the table, and then 720 times: one row is added, `train
--online` goes on from its checkpoint, and a forecast of the next day is made. At a sample of hours another run learns
the same rows in one pass from the first; its forecast, and the state in its checkpoint, must be the same. The last
hours go through the command line: `ingest`, `train --online` and `forecast` in processes of their own.

Then what learning at once is worth: the error of the hourly forecasts beside those of the same checkpoints without what
is behind their last full micro-batch of 256 rows, which is ten days.

    python benchmarks/hourly_cron_equals_one_pass.py [--days 30] [--every 48] [--commands 3] [--models linear svdgp]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from _report import Claim, report

from streamgp_data import checkpoint
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.table import Table
from streamgp_pipelines import fit_stream, load
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.forecasting.forecast import Forecaster

DATA = Path(__file__).parent.parent / "pipelines" / "streamgp_pipelines" / "recipes" / "elecdemand.csv"
STREAMGP = [sys.executable, "-c", "from streamgp_cli.app import main; main()"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
BEFORE = 60 * 24
HORIZON = 24
OPTIONS: dict[str, Any] = {"target": "demand_gw", "horizon": HORIZON, "season": 168, "warmup": 600}


def take(source: Path, table: Path) -> Table:
    """The table with all rows of the file."""
    ingest(IngestConfig.read({"source": [str(source)], "table": str(table), "time": "timestamp", "every": "1h"}))
    return Table.open(table)


def learned(table: Path, home: Path, model: str, **options: Any) -> Forecaster:
    """Train as far as the table goes, and read the checkpoint."""
    fit_stream(table, model=model, checkpoint=home, device="cpu", **OPTIONS, **options)
    return load(home)


def waiting(home: Path) -> pl.DataFrame:
    """The forecast of a checkpoint whose last rows move the windows only."""
    forecaster = load(home)
    windows = forecaster.learner.windows
    forecaster.learner.branch = lambda rows: rows is not None and windows.push(rows)  # type: ignore[method-assign]
    return forecaster.forecast().frame


def same_state(one: Path, two: Path) -> bool:
    """Whether two checkpoints hold the same tensors, but for times."""
    states = [checkpoint.read(home).tensors for home in (one, two)]
    names = [(part, name) for part in states[0] if part not in ("clock", "tail") for name in states[0][part]]
    return all(torch.equal(*(state[part][name].nan_to_num() for state in states)) for part, name in names)


def command(*words: object) -> None:
    """One command line in a process of its own."""
    done = subprocess.run([*STREAMGP, *map(str, words)], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"streamgp {' '.join(map(str, words))}\nended with {done.returncode}\n{done.stderr}")


def commanded(home: Path, lines: list[str], model: str, rows: int, name: str) -> pl.DataFrame:
    """What the three commands forecast behind the first `rows` rows."""
    source, table, output = home / "hours.csv", home / "hours", home / f"{name}.parquet"
    source.write_text("".join(lines[: rows + 1]))
    command("ingest", source, "--table", table, "--time", "timestamp", "--every", "1h")
    options = [word for key, value in OPTIONS.items() for word in (f"--{key}", value)]
    uri = f"sqlite:///{home}/{name}.db"
    command("train", "--online", "--table", table, "--model", model, "--checkpoint", home / name, *options,
            "--device", "cpu", "--tracking-uri", uri)  # fmt: skip
    command("forecast", "--checkpoint", home / name, "--table", table, "--device", "cpu", "--output", output)
    return pl.read_parquet(output)


def compare(
    model: str, home: Path, lines: list[str], truth: Any, asked: argparse.Namespace
) -> tuple[list[str], list[str]]:
    """Run both ways, and print: the row of the results page, and what does not hold."""
    source = home / "demand.csv"
    hours = BEFORE + 24 * asked.days
    errors: dict[str, list[Any]] = {"at once": [], "waiting": []}
    equal, sampled, seconds = True, 0, []
    for rows in range(BEFORE, hours):
        source.write_text("".join(lines[: rows + 1]))
        take(source, home / "table")
        forecaster = learned(home / "table", home / "hourly", model)
        began = time.perf_counter()
        forecaster.observe()
        seconds.append(time.perf_counter() - began)
        hourly = forecaster.forecast().frame
        happened = truth[rows : rows + HORIZON]
        errors["at once"].append(hourly[model].to_numpy() - happened)
        errors["waiting"].append(waiting(home / "hourly")[model].to_numpy() - happened)
        if (rows - BEFORE) % asked.every == 0 or rows == hours - 1:
            whole = learned(home / "table", home / f"pass-{rows}", model)
            same = whole.forecast().frame.equals(hourly) and same_state(home / "hourly", home / f"pass-{rows}")
            equal, sampled = equal and same, sampled + 1
    print(f"{model}: {hours - BEFORE} hours, {sampled} of them beside one pass over the same rows: "
          f"{'all equal' if equal else 'NOT EQUAL'}")  # fmt: skip
    by_command = [commanded(home, lines, model, hours - asked.commands + n, "hour") for n in range(asked.commands)]
    if by_command:
        one = commanded(home, lines, model, hours - 1, "pass").equals(by_command[-1])
        said = "equal" if one else "NOT EQUAL"
        print(f"  {asked.commands} hours by the command line, the last beside one pass: {said}")
        equal = equal and one
    took = 1e3 * np.array(seconds)
    print(f"  learning the last rows took {np.median(took):.0f} ms (median), {took.max():.0f} ms at most")
    mae = {name: float(np.abs(np.array(found)).mean()) for name, found in errors.items()}
    rmse = {name: float(np.square(np.array(found)).mean() ** 0.5) for name, found in errors.items()}
    for name in errors:
        first = float(np.abs(np.array(errors[name]))[:, 0].mean())
        print(f"  {name:>8}: MAE {mae[name]:.4f}, RMSE {rmse[name]:.4f}, MAE of the next hour {first:.4f} GW")
    print(f"  learning at once: {100 * (1 - mae['at once'] / mae['waiting']):.1f} % less error")
    missed = [] if equal else [f"{model}: hourly and one pass differ"]
    if mae["at once"] > mae["waiting"]:
        missed.append(f"{model}: learning at once has more error")
    cells = [str(sampled), "yes" if equal else "**no**", f"{mae['waiting']:.4f}", f"{mae['at once']:.4f}"]
    return [model, *cells, f"{np.median(took):.0f}, {took.max():.0f}"], missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--every", type=int, default=48, help="hours between two comparisons")
    parser.add_argument("--commands", type=int, default=3, help="hours that go through the command line")
    parser.add_argument("--models", nargs="+", default=["linear", "svdgp"])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    head, *rows = DATA.read_text().splitlines(keepends=True)
    lines = [head, *rows[::2]]
    truth = pl.read_csv(DATA)["demand_gw"].to_numpy()[::2]
    rows_of_page, missed = [], []
    for model in asked.models:
        with tempfile.TemporaryDirectory() as folder:
            row, wrong = compare(model, Path(folder), lines, truth, asked)
            rows_of_page.append(row)
            missed += wrong
    text = (
        "A row an hour, trained and forecast each hour, forecasts as one pass over the same rows, bit for bit; "
        f"compared at a sample of the {24 * asked.days} hours. Learning the last rows "
        "at once has less error (MAE, GW, of the next day) than waiting for a full micro-batch of ten days."
    )
    columns = ["model", "hours compared", "equal", "MAE, waiting", "at once", "ms to learn: median, most"]
    report(__file__, Claim("Hourly runs", text, columns, rows_of_page, missed))
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
