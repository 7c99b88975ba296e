"""Scores and processor time of every model with its defaults, as JSON, to be compared before and after a change.

On a stream: the half-hourly electricity demand of Victoria (data/elecdemand.csv), 48 steps ahead, seasons 48 and 336,
scored from day 29 on, one pass; once with the workday known, once with the temperature too. In batch: the first split
of two UCI sets, as many epochs as the model asks for, at most so many seconds. Each run is a process of its own with
one thread.

    python benchmarks/every_model_scores.py --output now.json [--before then.json] [--models linear svdgp]
    [--cases workday temperature kin40k elevators] [--data FOLDER] [--seconds 30]

With --before, a line of differences is printed for each run, and the exit status is 1 where an error (MAE, RMSE), a
CRPS or a NLPD is more than 1 % worse or the time more than 10 % longer.
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
from typing import Any

import _uci
from _report import Claim, report

OWN = Path(__file__).parents[1] / "data"
STREAMS = {"workday": "workday", "temperature": "temperature_c,workday"}
SETS = ("kin40k", "elevators")
ONLINE = [
    "persistence",
    "seasonal_naive",
    "ensemble",
    "linear",
    "svdgp",
    "qsgp",
    "svgp",
    "rvm",
    "exact",
    "finite_rkhs",
    "gp_lstm",
    "gp_narx",
    "lstm",
    "narx",
]
BATCH = ("linear", "svdgp", "qsgp", "svgp", "rvm", "exact", "finite_rkhs", "gp_narx")
SCORES, WORSE, LONGER = ("mae", "rmse", "crps", "nlpd"), 0.01, 0.10


def stream(case: str, model: str, home: Path) -> dict[str, float]:
    """One pass over the demand."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig

    source = {"source": (str(OWN / "elecdemand.csv"),), "table": str(home / "table"), "timezone": "+10:00"}
    ingest(IngestConfig.read(source))
    options: dict[str, Any] = {"horizon": 48, "season": (48, 336), "score_from": "1344", "known": STREAMS[case]}
    began = time.process_time()
    found: Any = fit_stream(home / "table", "demand_gw", model=model, checkpoint=home / "c", device="cpu", **options)
    spent = time.process_time() - began
    scores = {name: found[name] for name in SCORES}
    return scores | {"coverage": found["coverage"]["95"], "raw": found["raw_coverage"]["95"], "seconds": spent}


def regression(case: str, model: str, data: Path, seconds: float) -> dict[str, float]:
    """The epochs that the model asks for, on one split."""
    import torch

    from streamgp import registry
    from streamgp.base import Model

    split = _uci.load(_uci.path(case, data))
    module: Any = registry.load("models", model)
    torch.manual_seed(0)
    learner: Model = module.build(module.Config(), split.shape)
    rows = slice(0, 2000) if model == "exact" else slice(None)
    x, y = _uci.windows(split.x[rows]), split.y[rows]
    began = time.process_time()
    for _ in learner.fit(x, y, learner.epochs_for(len(y))):
        if time.process_time() - began > seconds:
            break
    spent = time.process_time() - began
    found = _uci.scores(learner.predict(_uci.windows(split.held)), split.truth)
    return {"rmse": found.rmse, "nlpd": found.mnlp, "raw": found.coverage, "seconds": spent}


def one(asked: argparse.Namespace, case: str, model: str) -> dict[str, float]:
    """A run in a process of its own."""
    own = [sys.executable, __file__, "--data", str(asked.data), "--seconds", str(asked.seconds)]
    own += ["--cases", case, "--models", model, "--alone"]
    printed = subprocess.run(own, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(printed.stdout.splitlines()[-1]))


def worse(now: dict[str, float], then: dict[str, float]) -> list[str]:
    """What is worse than before, and by how much."""
    found = []
    for name in SCORES:
        if name in now and now[name] - then[name] > WORSE * (1.0 if name == "nlpd" else abs(then[name])):
            found.append(f"{name} {then[name]:.4f} -> {now[name]:.4f}")
    if now["seconds"] > (1 + LONGER) * then["seconds"] + 1.0:
        found.append(f"seconds {then['seconds']:.1f} -> {now['seconds']:.1f}")
    return found


def main(asked: argparse.Namespace) -> int:
    before = json.loads(asked.before.read_text()) if asked.before else {}
    found, fell = {}, False
    for case in asked.cases:
        for model in ONLINE if case in STREAMS else BATCH:
            if asked.models and model not in asked.models:
                continue
            key = f"{case}/{model}"
            found[key] = one(asked, case, model)
            line = "  ".join(f"{name} {value:.4g}" for name, value in found[key].items())
            if key in before and (less := worse(found[key], before[key])):
                fell, line = True, f"{line}  WORSE: {'; '.join(less)}"
            print(f"{key:<28} {line}", flush=True)
            if asked.output:
                asked.output.write_text(json.dumps(found, indent=1))
    report(__file__, *claims(found))
    return int(fell)


def claims(found: dict[str, dict[str, float]]) -> list[Claim]:
    """The tables of the results page, of those models that ran on both cases of a table."""
    calibrated = [run["coverage"] for run in found.values() if "coverage" in run] or [float("nan")]
    streams = (
        "Half-hourly electricity demand in GW, 48 steps ahead, seasons 48 and 336 as in the README, one pass, scored "
        "from day 29 on; known ahead is the workday, or the measured temperature too. The calibrated 95 % bands cover "
        f"{min(calibrated):.3f} to {max(calibrated):.3f}. The defaults of svdgp, qsgp and finite_rkhs were chosen on "
        "such runs with the season 336 alone."
    )
    batch = (
        "Two UCI sets, first of five published splits, at most 30 CPU-seconds a fit; scores in the units of the files. "
        "exact has the first 2,000 rows."
    )
    made = []
    for cases, models, title, text, score in (
        (tuple(STREAMS), ONLINE, "Streams", streams, "mae"),
        (SETS, BATCH, "Batch regression", batch, "rmse"),
    ):
        rows = []
        for model in models:
            runs = [found[key] for case in cases if (key := f"{case}/{model}") in found]
            if len(runs) == len(cases):
                cells = [cell for run in runs for cell in (f"{run[score]:.4f}", f"{run['nlpd']:.3f}")]
                rows.append([model, *cells, f"{max(run['seconds'] for run in runs):.1f}"])
        columns = ["model", *(f"{case}, {label}" for case in cases for label in (score.upper(), "NLPD")), "CPU-s"]
        if rows:
            made.append(Claim(title, text, columns, rows, None))
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--before", type=Path, help="JSON file of an earlier run")
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--cases", nargs="+", default=[*STREAMS, *SETS], choices=[*STREAMS, *SETS])
    parser.add_argument("--data", type=Path, default=_uci.FOLDER, help="folder of the UCI sets")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a run in batch, at most")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.alone:
        sys.exit(main(arguments))
    case, model = arguments.cases[0], arguments.models[0]
    if case in STREAMS:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(stream(case, model, Path(folder))))
    else:
        print(json.dumps(regression(case, model, arguments.data, arguments.seconds)))
