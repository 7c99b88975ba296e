"""A fleet on Ray workers has the numbers of a fleet in one process, with workers killed, at a stated cost.

Hourly series are simulated as in `fleet_costs_a_fraction_of_single_runs`, and learned online by `linear`, one step
ahead, from 24 lags, micro-batches of 48 rows. One process learns them as one piece; then buckets are learned in one
process, by 1 and by 2 workers, and by 2 workers that are killed (SIGKILL) ten times, in turn. CPU-seconds are user and
system time of learning, without imports and the start of Ray: of the process that reads, and of workers.

Claimed: forecasts of every series within 1e-7 of one process, the same bits for any number of workers and with kills.

    python benchmarks/ray_fleet_equals_one_process.py [--series 1000] [--steps 700]
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import Claim, report
from fleet_costs_a_fraction_of_single_runs import generate, simulated

BATCH, WARMUP, LAGS = 48, 200, 24
KILLS, CLOSE = 10, 1e-7


def cpu(pid: int) -> float:
    """User and system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def learn(table: Path, home: Path, workers: int | None, kills: int = 0) -> dict[str, Any]:
    """Learn the table: as one piece (None), in buckets here (0) or on workers; costs, and what was forecast."""
    import polars as pl
    import torch

    from streamgp_data import checkpoint
    from streamgp_pipelines.adapters.ray.workers import RayWorkers
    from streamgp_pipelines.api import NoTracker
    from streamgp_pipelines.config import TrainConfig
    from streamgp_pipelines.learning.checkpointing import state_digest
    from streamgp_pipelines.learning.shard import here
    from streamgp_pipelines.training.train import train

    spent: dict[str, Any] = {"worker": 0.0}

    class Measured(RayWorkers):
        calls = 0

        def run(self, name: str, arguments: Any) -> dict[int, Any]:
            begun = not self.actors
            self.start()
            if begun:
                pids = [self.pid(worker) for worker in range(self.count)]
                spent["began"], spent["idle"] = time.perf_counter(), sum(cpu(pid) for pid in pids)
                spent["driver"] = time.process_time()
            if name == "take":
                self.calls += 1
            if kills and name == "take" and self.calls % spent["every"] == 0 and spent["killed"] < kills:
                os.kill(self.pid(spent["killed"] % self.count), signal.SIGKILL)
                spent["killed"] += 1
            return super().run(name, arguments)

        def close(self) -> None:
            if not kills and self.actors:
                spent["worker"] = sum(cpu(self.pid(worker)) for worker in range(self.count)) - spent["idle"]
            spent["lost"] = self.lost
            super().close()

    spent |= {"killed": 0, "every": 1, "lost": 0}
    path = home.with_suffix(".parquet")
    options = {
        "table": table, "target": "y", "checkpoint": home, "predictions": path, "model": "linear", "online": True,
        "fleet": True, "lags": LAGS, "batch": BATCH, "warmup": WARMUP, "device": "cpu", "checkpoint_every": 200,
    }  # fmt: skip
    if workers is not None:
        options |= {"engine": "ray"} | ({"workers": workers} if workers else {})
    torch.set_num_threads(1)
    cluster = None if workers is None else (lambda config, recipe, since: here(recipe, since))
    if workers:
        cluster = lambda config, recipe, since: Measured(recipe, since, config.workers)  # noqa: E731
    spent["began"], spent["driver"] = time.perf_counter(), time.process_time()
    found = train(TrainConfig.read(options), lambda folder, _: NoTracker(folder), cluster=cluster)
    return {
        "wall": time.perf_counter() - spent["began"],
        "driver": time.process_time() - spent["driver"],
        "worker": spent["worker"],
        "lost": spent["lost"],
        "model": sum(found["seconds"][name] for name in ("predict", "update")),
        "crps": found["calibrated_crps"],
        "issued": pl.read_parquet(path).sort("unique_id", "cutoff", "ds"),
        "digest": state_digest(checkpoint.read(home)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=700)
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    from polars.testing import assert_frame_equal

    missed, load = [], os.getloadavg()[0]
    ways: list[tuple[str, int | None, int]] = [
        ("one process, one piece", None, 0),
        ("one process, buckets", 0, 0),
        ("1 worker", 1, 0),
        ("2 workers", 2, 0),
        (f"2 workers, {KILLS} killed", 2, KILLS),
    ]
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        generate(home / "warm", simulated(4, 300), several=True)
        learn(home / "warm", home / "warm-run", None)  # imports
        generate(home / "table", simulated(asked.series, asked.steps), several=True)
        for at, (title, workers, kills) in enumerate(ways):
            measured.append(learn(home / "table", home / f"run{at}", workers, kills))
            print(title, {name: value for name, value in measured[-1].items() if name != "issued"}, flush=True)
    one, buckets, *rest = measured
    try:
        assert_frame_equal(buckets["issued"], one["issued"], rel_tol=CLOSE, abs_tol=CLOSE)
    except AssertionError:
        missed.append("buckets forecast otherwise than one piece")
    for (title, _, _), found in zip(ways[2:], rest, strict=True):
        if not found["issued"].equals(buckets["issued"]) or found["digest"] != buckets["digest"]:
            missed.append(f"{title}: other numbers")
    if measured[-1]["lost"] != KILLS:
        missed.append(f"{measured[-1]['lost']} workers were replaced, not {KILLS}")
    whole = one["driver"]
    rows = [
        [
            title,
            f"{found['driver']:.1f}",
            "" if not workers or kills else f"{found['worker']:.1f}",
            "" if kills else f"{(found['driver'] + found['worker']) / whole:.2f}",
            "" if kills else f"{found['model']:.1f}",
            f"{found['wall']:.0f}",
        ]
        for (title, workers, kills), found in zip(ways, measured, strict=True)
    ]
    text = (
        f"{asked.series:,} simulated hourly series of {asked.steps} steps, `linear`, one step ahead, every forecast "
        f"written. Claimed: forecasts within {CLOSE:g} of those of one process, and the same bits in forecasts and "
        f"checkpoint for any number of workers, also with {KILLS} SIGKILLs. What is not in the models is windows, "
        f"calibration, scores and transport. When it began, the load on the two cores was {load:.0f}."
    )
    columns = ["way", "CPU-s of the reader", "CPU-s of workers", "over one process", "of these in models", "wall s"]
    report(__file__, Claim("A fleet on Ray workers", text, columns, rows, missed))
    print(rows)
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
