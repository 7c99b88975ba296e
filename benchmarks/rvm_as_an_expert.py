"""Whether `rvm` earns its time as one of the default model's experts, on the first 5,000 rows of streams of many kinds.

The default mix is trained as it is, and with `rvm` (its defaults) as one expert more; each run is a process of its own
with one thread. The rule was fixed before any of these runs: `rvm` is taken in if, on the streams that confirm, the
geometric mean of its calibrated CRPS over that without is at most 0.99, no ratio is above 1.01, and all runs together
take at most 1.5 times the CPU time. The streams that choose are those on which constants of the default were chosen;
the others confirm. Victoria's demand 2 steps ahead is where `rvm` was seen to be the best single model.

    python benchmarks/rvm_as_an_expert.py [--others FOLDER] [--streams a,b]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _uci
import polars as pl
from _report import Claim, report
from auto_beside_its_experts import STREAMS as LONG
from auto_beside_its_experts import Stream, demand

ROWS = 5000
EXPERTS = "linear,iterated,svdgp,persistence,seasonal_naive"
GAIN, WORSE, LONGER = 0.99, 1.01, 1.5
CHOSEN = ("demand-2", "workday", "temperature", "HUFL", "drives-1s", "drives-10s")
"""Streams in view when the question was asked, or when constants of the default were chosen."""
COLUMNS = ("stream", "CRPS without", "with", "ratio", "MAE ratio", "raw NLPD, less", "CPU-s without", "with", "weight")
TEXT = (
    "The default mix as it is, and with `rvm` as one expert more; the first 5,000 rows, one pass, calibrated CRPS. "
    "Claimed on the streams that confirm, by a rule fixed before the runs: a geometric mean of at most 0.99, no stream "
    "above 1.01, and at most 1.5 times the CPU time."
)


def signal(file: str, *names: str) -> pl.DataFrame:
    """Rows of a system without a clock: a second each."""
    rows = pl.read_parquet(_uci.FOLDER / file).select(names)
    return rows.with_row_index("timestamp").with_columns(pl.from_epoch("timestamp").alias("timestamp"))


SHORT = {
    "demand-2": Stream(
        demand,
        "demand_gw",
        {"horizon": 2, "season": "48", "lags": 12, "known": "workday", "score_from": "900"},
        {"every": "30m"},
    ),
    "CO2": Stream(
        lambda folder: pl.read_csv(Path(__file__).parents[1] / "data" / "mauna_loa_co2.csv").head(3000),
        "co2_ppm",
        {"horizon": 4, "lags": 8, "season": "52", "score_from": "300"},
        {"time": "date"},
    ),
    "actuator": Stream(
        lambda folder: signal("sysid_actuator.parquet", "valve_u", "pressure_p"),
        "pressure_p",
        {"horizon": 1, "lags": 10, "known": "valve_u", "score_from": "200"},
    ),
    "electric drive": Stream(
        lambda folder: signal("sysid_drives.parquet", "voltage_u1", "speed_z1"),
        "speed_z1",
        {"horizon": 1, "lags": 10, "known": "voltage_u1", "score_from": "200"},
    ),
    "ball and hoop": Stream(
        lambda folder: signal("ball_and_hoop.parquet", "u", "y"),
        "y",
        {"horizon": 5, "lags": 10, "known": "u", "score_from": "400"},
    ),
}
STREAMS = SHORT | LONG


def one(name: str, experts: str, others: Path) -> dict[str, float]:
    """A run in this process: scores, CPU-seconds of training, and the weight of `rvm`."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig

    stream = STREAMS[name]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        stream.rows(others).head(ROWS).write_parquet(work / "rows.parquet")
        source = {"source": (str(work / "rows.parquet"),), "table": str(work / "table")}
        ingest(IngestConfig.read({**source, "time": "timestamp", **stream.ingest}))
        began = time.process_time()
        options = {**stream.options, "set": {"experts": experts}}
        checkpoint = work / "checkpoint"
        found = fit_stream(
            work / "table", stream.target, model="ensemble", checkpoint=checkpoint, device="cpu", **options
        )
        spent = time.process_time() - began
    scores = {score: float(str(found[score])) for score in ("crps", "mae", "nlpd")}
    return {**scores, "seconds": spent, "weight": float(str(found["weights"].get("rvm", math.nan)))}


def apart(name: str, experts: str, others: Path) -> dict[str, float]:
    """`one` in a process of its own."""
    own = [sys.executable, __file__, "--others", str(others), "--streams", name, "--experts", experts]
    printed = subprocess.run(own, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(printed.stdout.splitlines()[-1]))


def mean(ratios: list[float]) -> float:
    """Geometric."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main(others: Path, streams: list[str]) -> int:
    lines, kept = list[list[str]](), list[tuple[str, dict[str, float], dict[str, float]]]()
    for name in streams:
        without, given = apart(name, EXPERTS, others), apart(name, f"{EXPERTS},rvm", others)
        kept.append((name, without, given))
        ratio, wide = given["crps"] / without["crps"], given["mae"] / without["mae"]
        cells = [f"{without['crps']:.4g}", f"{given['crps']:.4g}", f"{ratio:.3f}", f"{wide:.3f}"]
        cells += [f"{without['nlpd'] - given['nlpd']:.3f}", f"{without['seconds']:.0f}", f"{given['seconds']:.0f}"]
        lines.append([f"{name} (chosen on)" if name in CHOSEN else name, *cells, f"{given['weight']:.2f}"])
        print("  ".join(lines[-1]), flush=True)
    confirm = [entry for entry in kept if entry[0] not in CHOSEN]
    missed = list[str]()
    if confirm:
        ratios = [given["crps"] / without["crps"] for _, without, given in confirm]
        longer = sum(given["seconds"] for *_, given in kept) / sum(without["seconds"] for _, without, _ in kept)
        print(f"confirming: mean {mean(ratios):.4f}, most {max(ratios):.3f}; all: {longer:.2f} times the CPU time")
        missed += [f"mean {mean(ratios):.4f}"] if mean(ratios) > GAIN else []
        missed += [f"{name} {r:.3f}" for (name, *_), r in zip(confirm, ratios, strict=True) if r > WORSE]
        missed += [f"{longer:.2f} times the CPU time"] if longer > LONGER else []
    print("taken in" if not missed else "not taken in: " + "; ".join(missed))
    report(__file__, Claim("rvm as an expert of the default", TEXT, COLUMNS, lines, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", type=Path, default=_uci.FOLDER, help="folder of the streams that are not bundled")
    parser.add_argument("--streams", default=",".join(STREAMS), help="comma-separated; default: all")
    parser.add_argument("--experts", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not asked.experts:
        sys.exit(main(asked.others, asked.streams.split(",")))
    print(json.dumps(one(asked.streams, asked.experts, asked.others)))
