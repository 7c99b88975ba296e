"""A run that is killed (SIGKILL) again and again ends with the numbers of the run that nobody interrupted.

The command line itself: `streamgp ingest` and `streamgp train --online` with the default model on half-hourly
electricity demand, a day ahead, tracked in MLflow. The run is killed at random moments of its life, start-up and final
artifacts included, and started again with the same words. Then scores, every tensor of the checkpoint, the file of
forecasts and the metrics in MLflow are compared bit for bit, the last but for the figures that are times.

    python benchmarks/killed_runs_end_the_same.py [--kills 20] [--rows 6000] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _report import Claim, report

DATA = Path(__file__).parent.parent / "pipelines" / "streamgp_pipelines" / "recipes" / "elecdemand.csv"
STREAMGP = [sys.executable, "-c", "from streamgp_cli.app import main; main()"]
OPTIONS = "--online --target demand_gw --known workday --horizon 48 --season 48,336 --score-from 1344 --seed 0 --json"
TIMES = ("run_id", "checkpoint", "seconds", "rows_per_second", "update_ms", "peak_mb", "new_rows")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}


def words(home: Path, name: str, rows: int) -> list[str]:
    """The command line of one run over the first rows of the year."""
    own = ["--table", str(home / "demand"), "--checkpoint", str(home / name), "--checkpoint-every", "1024"]
    own += ["--max-rows", str(rows)]
    own += ["--predictions", str(home / f"{name}.parquet"), "--tracking-uri", f"sqlite:///{home}/{name}.db"]
    return [*STREAMGP, "train", *OPTIONS.split(), *own]


def run(line: list[str], ready: Callable[[], bool] = lambda: True) -> tuple[dict[str, Any], float, float]:
    """What a command printed, its seconds, and those until `ready`."""
    began, first = time.perf_counter(), None
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as told:
        with subprocess.Popen(line, env=ENVIRONMENT, stdout=printed, stderr=told) as process:
            while process.poll() is None:
                time.sleep(0.02)
                first = time.perf_counter() - began if first is None and ready() else first
        seconds = time.perf_counter() - began
        printed.seek(0), told.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(line)}\nended with {process.returncode}\n{told.read()}")
        return json.load(printed), seconds, first or seconds


def killed(line: list[str], seconds: float) -> bool:
    """Start the command and kill it after some seconds; whether it was still there."""
    with subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    if process.returncode not in (0, -9):
        raise SystemExit(f"a restarted run ended with {process.returncode}: {' '.join(line)}")
    return process.returncode == -9


def moment(draw: random.Random, seconds: float, ready: float) -> float:
    """One in five during start-up and warm-up, the others in what comes then; a sixth of it, as 20 kills must fit."""
    return draw.uniform(0.0, ready) if draw.random() < 0.2 else ready + draw.uniform(0.0, (seconds - ready) / 6)


def rows_of(checkpoint: Path) -> int:
    """Rows that a restart goes on from."""
    names = [path.name for path in checkpoint.glob("[0-9]*")]
    return max((int(name.split("-")[0]) for name in names), default=0)


def logged(database: Path) -> set[tuple[str, int, float]]:
    """The metrics in an MLflow store that are no times: name, step, value."""
    with sqlite3.connect(database) as store:
        found = store.execute("select key, step, value from metrics where is_nan = 0").fetchall()
    return {row for row in found if "second" not in row[0] and not row[0].startswith(("update_ms", "peak"))}


def compare(home: Path, whole: dict[str, Any], name: str, broken: dict[str, Any]) -> dict[str, bool]:
    """What was compared, and whether it was equal."""
    import polars as pl

    from streamgp_data import checkpoint

    one, two = (checkpoint.read(home / name) for name in ("whole", name))
    pairs = [
        (tensor, two.tensors[part][key])
        for part, named in one.tensors.items()
        if part != "clock"
        for key, tensor in named.items()
    ]
    frames = [pl.read_parquet(home / f"{name}.parquet") for name in ("whole", name)]
    scores = [{key: value for key, value in found.items() if key not in TIMES} for found in (whole, broken)]
    once = frames[1].unique(["ds", "cutoff"]).height == frames[1].height == broken["scored"]
    return {
        "equal scores": scores[0] == scores[1],
        f"equal weights and state, {len(pairs)} tensors": all(same(*pair) for pair in pairs),
        f"equal forecasts, {len(frames[0])} in the file": frames[0].equals(frames[1]),
        "equal metrics in MLflow": logged(home / "whole.db") == logged(home / f"{name}.db"),
        f"every row counted once, {broken['rows']} rows": broken["rows"] == whole["rows"] and once,
    }


def same(one: Any, two: Any) -> bool:
    """Whether two tensors have the same bytes."""
    return bool(one.shape == two.shape and one.numpy().tobytes() == two.numpy().tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=17_520, help="of the year, at most")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        run([*STREAMGP, "ingest", str(DATA), "--table", str(home / "demand"), "--time", "timestamp",
             "--timezone", "+10:00", "--every", "30m", "--json"])  # fmt: skip
        rows: list[list[str]] = []
        whole, seconds, ready = run(words(home, "whole", asked.rows), lambda: rows_of(home / "whole") > 0)
        print(f"uninterrupted: {whole['rows']} rows in {seconds:.1f} s, the first {ready:.1f} s before any checkpoint")
        moments, kills, begun, good = random.Random(asked.seed), 0, 0, True
        while kills < asked.kills:  # a run that gets through is compared, and another one begun
            name, places = f"broken{begun}", []
            begun += 1
            while kills < asked.kills and killed(words(home, name, asked.rows), moment(moments, seconds, ready)):
                kills += 1
                places.append(rows_of(home / name))
            if kills < asked.kills:
                seconds, ready = 0.7 * seconds, 0.7 * ready  # it got through: the machine is faster than it was
            checks = compare(home, whole, name, run(words(home, name, asked.rows))[0])
            print(f"kills {len(places)}, restarts {len(places)}, rows at the checkpoint after each: {places}")
            for what, so in checks.items():
                print(f"  {what}: {'yes' if so else 'NO'}", flush=True)
            good = good and all(checks.values())
            rows.append([str(len(places)), ", ".join(map(str, places)), "yes" if all(checks.values()) else "**no**"])
        print(f"kills in all: {kills}; {'all equal' if good else 'NOT EQUAL'}")
        text = (
            "A run of the default model that is killed (SIGKILL) at random moments and started again with the same "
            "command line ends as "
            f"the uninterrupted run of {whole['rows']:,} rows, bit for bit: scores, checkpoint, every forecast in the "
            "file, and the metrics in MLflow except times. One line a run."
        )
        missed = [] if good else [f"{sum(row[2] != 'yes' for row in rows)} of {len(rows)} runs differ"]
        columns = ["kills", "rows in the checkpoint at each", "equal"]
        report(__file__, Claim("Killed runs", text, columns, rows, missed))
        if not good:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
