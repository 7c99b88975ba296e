"""Time per row, memory and the size of a checkpoint do not grow with the rows seen.

A generated stream of a million hourly rows with a daily and a weekly season is learned online in one pass, three steps
ahead, in micro-batches of 256 rows, on one thread, for each model in a process of its own. Printed at a tenth, half
and all of the rows: microseconds per row of processor time (over the last half of these rows), resident memory and the
size of a checkpoint. Claimed: from the second quarter of the rows to the last half, memory and checkpoint grow by at
most a twentieth, and the time a row by at most a fifth.
The curves in a checkpoint are counted apart: they have a point a thousand rows until they have 512, and then no more.

    python benchmarks/state_stays_flat.py [--rows 1000000] [--models linear svdgp auto]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TypeAlias

from _report import Claim, report

SVDGP = {"basis": "128", "reservoir": "1024", "evidence_rows": "100"}
OPTIONS: dict[str, dict[str, str]] = {
    "linear": {},
    "seasonal_naive": {},
    "svdgp": SVDGP,
    "auto": {f"svdgp.{name}": value for name, value in SVDGP.items()},
}
BATCH = 256
MOST = {"time a row": 1.2, "memory": 1.05, "checkpoint without curves": 1.05}
Line: TypeAlias = tuple[int, float, float, int, int]
"""Rows seen, CPU-µs a row, resident MB, bytes of a checkpoint, of its curves."""


def generate(path: Path, rows: int) -> None:
    """A table with the columns t, y and x."""
    import numpy as np
    import pyarrow as pa

    from streamgp_data.table import Table, TableMeta

    random, hours = np.random.default_rng(0), np.arange(rows)
    x = np.convolve(random.normal(size=rows + 4), np.ones(5) / 2, "valid")
    y = 3 * np.sin(2 * np.pi * hours / 24) + np.sin(2 * np.pi * hours / 168) + x + random.normal(scale=0.3, size=rows)
    times = pa.array(1_000_000_000_000_000 + hours * 3_600_000_000, pa.timestamp("us", "UTC"))
    data = pa.table({"t": times, "y": y, "x": x})
    table = Table.create(path, data.schema, TableMeta(time="t", zone="UTC", every_ns=3_600 * 10**9))
    for start in range(0, rows, 100_000):
        table.append(data.slice(start, 100_000), "generated", start)


def resident() -> int:
    """Resident memory of this process in bytes, as Linux counts it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def learn(table: Path, home: Path, model: str, marks: list[int]) -> None:
    """One run, and a line for every mark."""
    import torch

    from streamgp.base import Progress
    from streamgp_data import checkpoint
    from streamgp_pipelines import fit_stream

    torch.set_num_threads(1)
    seen: list[tuple[int, float]] = []
    lines: list[Line] = []

    def note(progress: Progress) -> None:
        if progress.stage != "train":
            return
        seen.append((progress.done, time.process_time()))
        if len(lines) < len(marks) and progress.done >= 0.99 * marks[len(lines)]:
            first = next(at for at in seen if at[0] >= 0.5 * marks[len(lines)])
            per_row = (seen[-1][1] - first[1]) / (seen[-1][0] - first[0])
            saved = checkpoint.read(home)
            size = sum(file.stat().st_size for file in saved.path.iterdir())
            curves = sum(tensor.nbytes for tensor in saved.tensors["curves"].values())
            lines.append((marks[len(lines)], 1e6 * per_row, resident() / 1e6, size, curves))

    options: dict[str, Any] = {"lags": 6, "horizon": 3, "season": 24, "inputs": "x", "device": "cpu", "batch": BATCH}
    found = fit_stream(
        table, "y", model=model, checkpoint=home, checkpoint_every=5_000, set=OPTIONS[model], progress=note, **options
    )
    print(f"{model}: {found['rows']} rows, {found['rows_per_second']:.0f} rows a second, rmse {found['rmse']:.4f}")
    for rows, per_row, memory, size, curves in lines:
        kept = f"{size / 1e3:.0f} kB a checkpoint, {curves / 1e3:.0f} kB of it curves"
        print(f"  at {rows:>9,} rows: {per_row:7.1f} μs a row, {memory:6.0f} MB resident, {kept}")
    home.with_suffix(".json").write_text(json.dumps(lines))
    grown = ", ".join(f"{name} × {ratio:.3f}" for name, ratio in growth(lines).items())
    print(f"  from {lines[-2][0]:,} to {lines[-1][0]:,} rows: {grown}", flush=True)


def growth(lines: list[Line]) -> dict[str, float]:
    """How many times the figures at half of the rows those at the end are."""
    first, last = lines[-2:]
    return {
        "time a row": last[1] / first[1],
        "memory": last[2] / first[2],
        "checkpoint without curves": (last[3] - last[4]) / (first[3] - first[4]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--models", nargs="+", default=["linear", "svdgp", "auto"], choices=list(OPTIONS))
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    marks = [asked.rows // 10, asked.rows // 2, asked.rows]
    if asked.table is not None:
        learn(asked.table, asked.table.parent / asked.models[0], asked.models[0], marks)
        return
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table"
        generate(table, asked.rows)
        for model in asked.models:
            own = [sys.executable, __file__, "--rows", str(asked.rows), "--models", model, "--table", str(table)]
            subprocess.run(own, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
        found = {model: json.loads((Path(folder) / f"{model}.json").read_text()) for model in asked.models}
    rows = [
        [model, f"{seen:,}", f"{spent:.1f}", f"{memory:.0f}", f"{size / 1e3:.0f}", f"{curves / 1e3:.0f}"]
        for model, lines in found.items()
        for seen, spent, memory, size, curves in lines
    ]
    text = (
        "Time a row, memory and the size of a checkpoint do not grow with the rows of a stream; svdgp has a basis of "
        f"{SVDGP['basis']}, beside others too. Micro-batches of {BATCH} rows, 3 steps ahead. The score curves in a "
        "checkpoint grow until they have 512 points. Claimed, from half of the rows to all: memory and checkpoint "
        "without curves grow by at most 5 %, the time a row by at most 20 %."
    )
    missed = [
        f"{model}: {name} × {ratio:.2f}"
        for model, lines in found.items()
        for name, ratio in growth(lines).items()
        if ratio > MOST[name]
    ]
    columns = ["model", "rows seen", "CPU-µs a row", "resident MB", "checkpoint kB", "of it curves"]
    report(__file__, Claim("Long streams", text, columns, rows, missed))
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
