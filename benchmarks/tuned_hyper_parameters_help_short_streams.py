"""A stream that begins with hyper-parameters which were tuned on earlier rows scores better at first: with a warm-up of
40 rows the CRPS of the next 100 rows falls by 5 % or more, of svdgp and of exact.

The demand of Victoria (data/elecdemand.csv), 4 half hours ahead, 24 lags, workday and temperature known. Tuned is on
600 windows of the first 8,000 rows; 8 streams begin anew at row 9,000, 10,000, …, 16,000, and know nothing of what came
before but the file. Each model runs as it is, with the file as the start of its own search, and with the file alone
(learn=once); svdgp without its linear part, whose 80 slopes so few rows do not determine. Beside them the persistence.
Printed: means over the 8 streams, and how many of them have the lower CRPS. The claim is about ml with learn=once, and
about nothing else.

    python benchmarks/tuned_hyper_parameters_help_short_streams.py [--warmup 40] [--scored 100]
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _report import Claim, report

from streamgp_data.ingestion.ingest import ingest
from streamgp_pipelines import fit_stream
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import IngestConfig, TuneConfig
from streamgp_pipelines.tuning.tune import tune

SOURCE = Path(__file__).parents[1] / "data" / "elecdemand.csv"
WINDOWS: dict[str, Any] = {"known": "workday,temperature_c", "lags": 24, "horizon": 4, "season": "none"}
MODELS: dict[str, dict[str, Any]] = {"persistence": {}, "svdgp": {"linear": "false"}, "exact": {}}
METHODS = ("ml", "cv-implicit", "cv-admm")
TUNED_ROWS, FIRST, STREAMS, BETWEEN, FALL = 8000, 9000, 8, 1000, 0.95


def table(home: Path, lines: list[str], start: int, stop: int) -> Path:
    """A table of some rows of the file; lines[0] is its header."""
    source, made = home / f"{start}.csv", home / f"table-{start}"
    source.write_text("\n".join([lines[0], *lines[1 + start : 1 + stop]]) + "\n")
    ingest(IngestConfig.read({"source": [str(source)], "table": made, "every": "30m", "timezone": "+10:00"}))
    return made


def scores(where: Path, model: str, home: Path, warmup: int, **options: Any) -> dict[str, float]:
    found: Any = fit_stream(
        where, "demand_gw", model=model, warmup=warmup, batch=16, checkpoint=home, device="cpu", **WINDOWS, **options
    )
    return {"rmse": found["rmse"], "crps": found["crps"], "nlpd": found["nlpd"], "coverage": found["coverage"]["95"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--scored", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    began, held, page, missed = time.process_time(), True, [], list[str]()
    lines = SOURCE.read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        past, files = table(home, lines, 0, TUNED_ROWS), {}
        for method in METHODS:
            files[method] = home / f"{method}.json"
            asked = {"table": past, "target": "demand_gw", "rows": 600, "method": method, "output": files[method]}
            found: Any = tune(TuneConfig.read(asked | WINDOWS), NoTracker)
            print(f"{method}: loss {found['loss_before']:.3f} -> {found['loss']:.3f}, {found['cpu_seconds']:.1f} CPU-s")
        starts = range(FIRST, FIRST + STREAMS * BETWEEN, BETWEEN)
        streams = [table(home, lines, start, start + given.warmup + given.scored) for start in starts]
        print(f"\nwarm-up of {given.warmup} rows, {given.scored} rows scored, means of {STREAMS} streams")
        print(f"{'model':8}{'hyper-parameters':28}{'RMSE':>8}{'CRPS':>8}{'NLPD':>8}{'95 %':>7}  lower CRPS")
        for model, own in MODELS.items():
            cases: dict[str, dict[str, Any]] = {"" if model == "persistence" else "found by itself": {"set": own}}
            for method, file in files.items() if model != "persistence" else ():
                cases[f"start from {method}"] = {"set": own, "init": file}
                cases[f"{method}, learn=once"] = {"set": own | {"learn": "once"}, "init": file}
            plain: list[dict[str, float]] = []
            for label, options in cases.items():
                each = [
                    scores(where, model, home / f"{model}-{label}-{n}", given.warmup, **options)
                    for n, where in enumerate(streams)
                ]
                plain = plain or each
                mean = {name: sum(one[name] for one in each) / STREAMS for name in each[0]}
                lower = sum(one["crps"] < other["crps"] for one, other in zip(each, plain, strict=True))
                print(
                    f"{model:8}{label:28}{mean['rmse']:8.3f}{mean['crps']:8.4f}{mean['nlpd']:8.3f}"
                    f"{mean['coverage']:7.3f}  {lower} of {STREAMS}",
                    flush=True,
                )
                numbers = [f"{mean[name]:.{digits}f}" for name, digits in (("rmse", 3), ("crps", 4), ("nlpd", 3))]
                page.append([model, label, *numbers, f"{lower} of {STREAMS}"])
                if label == "ml, learn=once":
                    usual = sum(one["crps"] for one in plain) / STREAMS
                    good = math.isfinite(mean["crps"]) and mean["crps"] <= FALL * usual
                    missed += [] if good else [f"{model}: {mean['crps'] / usual:.3f} of the CRPS"]
                    held &= good
    print(f"\nclaimed: ml, learn=once at {FALL} of the CRPS or less: {'holds' if held else 'DOES NOT HOLD'}")
    print(f"{time.process_time() - began:.0f} CPU-seconds")
    text = (
        f"Means of {STREAMS} short streams of electricity demand, {given.warmup} rows of warm-up, {given.scored} "
        f"scored: with a file tuned by ml and learn=once the CRPS is at most {FALL} of that without. "
        "Beside them the persistence. svdgp has no linear part: so few rows do not determine its 80 slopes."
    )
    columns = ["model", "hyper-parameters", "RMSE", "CRPS", "NLPD", "lower CRPS"]
    report(__file__, Claim("Short streams", text, columns, page, missed))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
