"""Batch training on a sample of the windows needs no more memory for more rows, and forecasts as well.

A driven system is learned by `svdgp` with 48 lags of four columns, once with all windows in memory and once with
`--sample 10000`, which reads the others again from the table; each run is a process of its own. Peak is the greatest
resident memory of the process, less that of one that has imported the same and learned 2,000 rows.

Claimed, before the figures were seen: with the sample the peak of the largest table is at most 1.25 times that of the
smallest, and at most a third of the windows' own bytes; the RMSE of rows held out is within 3 % of that with all
windows.

    python benchmarks/a_sample_bounds_memory.py [--rows 80000,160000,320000]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import Claim, report

LAGS, SAMPLE, BASIS, FEW = 48, 10_000, 128, 2_000
GROWTH, PART, WORSE = 1.25, 1 / 3, 0.03


def driven(path: Path, rows: int) -> None:
    """A table of y, which follows three inputs with a delay."""
    import numpy as np
    import pyarrow as pa
    from scipy.signal import lfilter

    from streamgp_data.table import Table, TableMeta

    generator = np.random.default_rng(0)
    u = lfilter([0.2], [1, -0.8], generator.normal(size=(3, rows)))
    y = lfilter([0.0, 0.1], [1, -0.9], np.tanh(2 * u[0]) + u[1] * u[2]) + 0.02 * generator.normal(size=rows)
    data = pa.table({"y": y, **{f"u{at}": u[at] for at in range(3)}})
    table = Table.create(path, data.schema, TableMeta())
    for start in range(0, rows, 20_000):
        table.append(data.slice(start, 20_000), "driven", start + 1)


def learn(table: Path, home: Path, sample: int | None) -> dict[str, Any]:
    """Train, in this process; its peak of memory in MB, CPU-seconds and scores."""
    import torch

    from streamgp_pipelines.api import NoTracker
    from streamgp_pipelines.config import TrainConfig
    from streamgp_pipelines.training.train import train

    options = {
        "table": table, "target": "y", "known": "u*", "lags": LAGS, "test_tail": 0.1, "checkpoint": home, "epochs": 1,
        "model": "svdgp", "set": {"basis": BASIS}, "device": "cpu", "max_memory": "12GB", "sample": sample,
    }  # fmt: skip
    torch.set_num_threads(1)
    began = time.process_time()
    found: Any = train(TrainConfig.read({k: v for k, v in options.items() if v is not None}), NoTracker)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak": peak, "cpu": time.process_time() - began, "rmse": found["rmse"], "crps": found["calibrated_crps"]}


def apart(table: Path, home: Path, sample: int | None) -> dict[str, Any]:
    """`learn` in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps([str(table), str(home), sample])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="80000,160000,320000", help="comma separated")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if asked.one:
        table, home, sample = json.loads(asked.one)
        print(json.dumps(learn(Path(table), Path(home), sample)))
        return
    sizes = [int(size) for size in asked.rows.split(",")]
    missed, rows, load = list[str](), list[list[str]](), os.getloadavg()[0]
    peaks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        driven(home / "few", FEW)
        usual = apart(home / "few", home / "of-few", None)["peak"]
        for size in sizes:
            driven(home / f"t{size}", size)
            both = [apart(home / f"t{size}", home / f"c{size}-{sample}", sample) for sample in (None, SAMPLE)]
            windows = 0.9 * size * (LAGS * 4 + 3 + 1) * 8 / 2**20
            for way, each in zip(("all windows", f"--sample {SAMPLE}"), both, strict=True):
                above = each["peak"] - usual
                scores = [f"{each['rmse']:.5f}", f"{each['crps']:.5f}"]
                rows.append([f"{size:,}", f"{windows:.0f}", way, f"{above:.0f}", f"{each['cpu']:.1f}", *scores])
                print(rows[-1], flush=True)
            peaks.append(both[1]["peak"] - usual)
            if abs(both[1]["rmse"] / both[0]["rmse"] - 1) > WORSE:
                missed.append(f"{size} rows: RMSE {both[1]['rmse']:.5f} beside {both[0]['rmse']:.5f}")
    if peaks[-1] > GROWTH * peaks[0]:
        missed.append(f"the peak grew by {peaks[-1] / peaks[0]:.2f}")
    if peaks[-1] > PART * windows:
        missed.append(f"the peak is {peaks[-1] / windows:.2f} of the windows")
    text = (
        f"`svdgp` of {BASIS} functions on {LAGS} lags of four columns, a tenth of the rows held out. Peak is resident "
        f"memory above that of a process that has learned {FEW:,} rows. Claimed: with the sample the peak of the "
        f"largest table is at most {GROWTH} times that of the smallest and at most a third of the windows' bytes, and "
        f"the RMSE is within {WORSE:.0%}. When it began, the load on the two cores was {load:.0f}."
    )
    columns = ["rows", "MB of windows", "way", "peak, MB", "CPU-s", "RMSE", "CRPS"]
    report(__file__, Claim("A sample bounds the memory of training in batch", text, columns, rows, missed))
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
