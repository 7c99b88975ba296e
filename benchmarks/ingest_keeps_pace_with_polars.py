"""Ingest of a large CSV takes at most 1.6 times as long as polars' own copy of it to Parquet, in less than 1 GB.

A generated CSV of five million rows (a time, four floats of full precision; about 480 MB) is read by
`polars.scan_csv(...).sink_parquet(...)`, which leaves the time as text; by the same with `try_parse_dates=True`, which
does what ingest must do too; by a bare loop of `write_deltalake` over polars' batches; and by ingest, with all of its
hashing, checking and counting. Every run is a process of its own; rounds alternate, so that a busy machine slows all
alike. Printed: seconds and CPU-seconds of each (median), the ratios, and the peak memory of each process.

    python benchmarks/ingest_keeps_pace_with_polars.py [--rows 5000000] [--rounds 3] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _report import Claim, report

LIMIT, LIMIT_MB = 1.6, 1000
NAMES = ("polars, times as text", "polars, times parsed", "bare deltalake appends", "streamgp ingest")


def generate(path: Path, rows: int) -> None:
    """A CSV with the columns ds, x0, x1, x2, x3, written in parts."""
    import numpy as np
    import polars as pl

    random = np.random.default_rng(0)
    part = 500_000
    with path.open("wb") as file:
        for first in range(0, rows, part):
            count = min(part, rows - first)
            seconds = np.arange(first, first + count).astype("timedelta64[s]")
            times = (np.datetime64("2015-01-01T00:00:00") + seconds).astype("datetime64[us]")
            values = {f"x{i}": random.normal(scale=10, size=count) for i in range(4)}
            frame = pl.DataFrame({"ds": times, **values})
            frame.write_csv(file, include_header=first == 0, datetime_format="%Y-%m-%d %H:%M:%S")


def polars_text(source: Path, target: Path) -> None:
    import polars as pl

    pl.scan_csv(source).sink_parquet(target)


def polars_times(source: Path, target: Path) -> None:
    import polars as pl

    pl.scan_csv(source, try_parse_dates=True).sink_parquet(target)


def bare_appends(source: Path, target: Path) -> None:
    import polars as pl
    from deltalake import write_deltalake

    for batch in pl.scan_csv(source, try_parse_dates=True).collect_batches(chunk_size=500_000):
        write_deltalake(target, batch.to_arrow(), mode="append")


def streamgp_ingest(source: Path, target: Path) -> None:
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines.config import IngestConfig

    ingest(IngestConfig.read({"source": [str(source)], "table": str(target)}))


RUNS: dict[str, Callable[[Path, Path], None]] = dict(
    zip(NAMES, (polars_text, polars_times, bare_appends, streamgp_ingest), strict=True)
)


def measure(name: str, source: Path, target: Path) -> None:
    """One run in this process, without its imports: prints seconds, CPU-seconds and peak memory as JSON."""
    import resource

    import deltalake  # noqa: F401  imported before the clock starts
    import polars  # noqa: F401

    if name == "streamgp ingest":
        import streamgp_data.ingestion.ingest  # noqa: F401
    began, cpu = time.perf_counter(), time.process_time()
    RUNS[name](source, target)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps([seconds, cpu, peak]))


def apart(name: str, source: Path, target: Path) -> list[float]:
    line = [sys.executable, __file__, "--measure", name, str(source), str(target)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="where the files are made")
    parser.add_argument("--measure", nargs=3, default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(asked.measure[0], Path(asked.measure[1]), Path(asked.measure[2]))
        return
    with tempfile.TemporaryDirectory(dir=asked.directory) as home:
        source = Path(home) / "rows.csv"
        generate(source, asked.rows)
        print(f"{asked.rows:,} rows, {source.stat().st_size / 1e6:,.0f} MB of CSV, {asked.rounds} rounds")
        found: dict[str, list[list[float]]] = {name: [] for name in NAMES}
        for turn in range(asked.rounds):
            for i, name in enumerate(NAMES):
                found[name].append(apart(name, source, Path(home) / f"out-{turn}-{i}"))
    middle = {name: [statistics.median(column) for column in zip(*runs, strict=True)] for name, runs in found.items()}
    print(f"{'':24} {'seconds':>9} {'CPU-s':>7} {'peak MB':>9} {'ratio':>7} {'CPU':>6}")
    base = middle[NAMES[0]]
    for name, (seconds, cpu, peak) in middle.items():
        print(f"{name:24} {seconds:9.2f} {cpu:7.2f} {peak:9.0f} {seconds / base[0]:7.2f} {cpu / base[1]:6.2f}")
    ours, parsed = middle[NAMES[3]], middle[NAMES[1]]
    kept = ours[0] <= LIMIT * parsed[0] and ours[2] < LIMIT_MB
    print(f"ingest takes {ours[0] / parsed[0]:.2f} x polars' copy with times parsed (limit {LIMIT}),")
    print(f"{ours[0] / base[0]:.2f} x the copy that leaves them text; peak {ours[2]:.0f} MB (limit {LIMIT_MB})")
    rows = [
        [name, f"{seconds:.2f}", f"{cpu:.2f}", f"{peak:.0f}", f"{seconds / parsed[0]:.2f}"]
        for name, (seconds, cpu, peak) in middle.items()
    ]
    text = (
        f"Ingest of a CSV of {asked.rows:,} rows takes at most {LIMIT} times as long as polars' own copy to Parquet "
        f"with the times parsed, in less than {LIMIT_MB} MB: medians of {asked.rounds} rounds."
    )
    columns = ["run", "seconds", "CPU-s", "peak MB", "seconds, ratio"]
    missed = [] if kept else [f"{ours[0] / parsed[0]:.2f} times, {ours[2]:.0f} MB"]
    report(__file__, Claim("Ingest", text, columns, rows, missed))
    raise SystemExit(0 if kept else "MISSED")


if __name__ == "__main__":
    main()
