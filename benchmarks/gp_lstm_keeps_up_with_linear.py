"""gp_lstm online has no more error than the regression that it stands on, in at most five times the processor time.

One pass over each stream, no option but data, target, horizon, series and inputs: the speed of 23 drives, 1 to 30
seconds ahead (lags 20); the load of a utility (GEFCom2012) an hour ahead, 6,000 hours, with eleven temperatures.
When a net is trained was chosen with all of them in view.

Per stream and model: scores, coverage of the 95 % band, processor seconds. `mix` is the ensemble of linear, gp_lstm
and persistence; the last column is the weight that it gives to gp_lstm, or that of what a net adds to its regression.

    python benchmarks/gp_lstm_keeps_up_with_linear.py [--data FOLDER] [--streams a,b] [--models linear,gp_lstm]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _uci
import polars as pl
from _report import Claim, report

MODELS, FULL = ("linear", "gp_lstm", "mix", "lstm"), ("drives-30s", "load-1h")  # where all models run
SCORES, TIMES = ("mae", "rmse", "crps"), 5.0
LOAD = "load_total_kw"


def drives(folder: Path) -> pl.DataFrame:
    rows = pl.read_parquet(folder / "nds_drives.parquet")
    return rows.select("timestamp", pl.col("drive").cast(pl.String), "speed_mph").sort("timestamp")


def load(folder: Path) -> pl.DataFrame:
    rows = pl.read_parquet(folder / "gef2012_load.parquet")
    return rows.select("timestamp", LOAD, pl.col("^station.*$"))[:6000]


DRIVE = {"series": "drive", "every": "1s"}
STREAMS: dict[str, tuple[Callable[[Path], pl.DataFrame], dict[str, Any], str, dict[str, Any]]] = {
    "drives-30s": (drives, DRIVE, "speed_mph", {"horizon": 30, "lags": 20}),
    "drives-10s": (drives, DRIVE, "speed_mph", {"horizon": 10, "lags": 20}),
    "drives-5s": (drives, DRIVE, "speed_mph", {"horizon": 5, "lags": 20}),
    "drives-1s": (drives, DRIVE, "speed_mph", {"horizon": 1, "lags": 20}),
    "load-1h": (load, {"every": "1h"}, LOAD, {"horizon": 1, "inputs": "station*", "score_from": "1344"}),
}
COLUMNS = (
    "stream", "model", "MAE", "RMSE", "CRPS", "raw NLPD", "95 % coverage", "CPU-s", "CPU-s, over linear", "weight",
)  # fmt: skip
ABOUT = (
    "One pass, no option but data, target, horizon, series and inputs. gp_lstm has at most linear's MAE, "
    "RMSE and CRPS, in at most 5 times linear's processor time, of the whole run; `mix` is the ensemble of linear, "
    "gp_lstm and persistence. `weight` is what it gives to gp_lstm, or that of what a net alone adds to its "
    "regression. When a net is trained was chosen with all of these streams in view."
)


def one(name: str, model: str, data: Path) -> dict[str, Any]:
    """The summary of a run, in this process."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig

    rows, ingested, target, options = STREAMS[name]
    if model == "mix":
        model, options = "ensemble", options | {"set": {"experts": "linear,gp_lstm,persistence"}}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        rows(data).write_parquet(home / "rows.parquet")
        source = {"source": (str(home / "rows.parquet"),), "table": str(home / "table")}
        ingest(IngestConfig.read({**source, **ingested}))
        began = time.process_time()
        found = fit_stream(home / "table", target, model=model, checkpoint=home / "c", device="cpu", **options)
    kept = {score: found[score] for score in (*SCORES, "nlpd")}
    weights = found["weights"]
    return (
        kept
        | {"weight": weights.get("gp_lstm", weights.get("net"))}
        | {"coverage": found["coverage"]["95"], "seconds": time.process_time() - began}
    )


def main(asked: argparse.Namespace) -> int:
    if asked.alone:
        print(json.dumps(one(*asked.alone.split(","), asked.data)))
        return 0
    lines, missed = list[list[str]](), list[str]()
    for name in asked.streams.split(","):
        found: dict[str, dict[str, Any]] = {}
        for model in asked.models.split(",")[: None if name in FULL else 2]:
            command = [sys.executable, __file__, "--data", str(asked.data), "--alone", f"{name},{model}"]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # a process for each
            run = found[model] = json.loads(printed.splitlines()[-1])
            over = f"{run['seconds'] / found['linear']['seconds']:.1f}" if "linear" in found else ""
            weight = "" if run["weight"] is None else f"{run['weight']:.2f}"
            scores = [f"{run[score]:.4g}" for score in (*SCORES, "nlpd")]
            lines.append([name, model, *scores, f"{run['coverage']:.3f}", f"{run['seconds']:.1f}", over, weight])
            print("  ".join(lines[-1]), flush=True)
        if {"linear", "gp_lstm"} <= found.keys():
            line, net = found["linear"], found["gp_lstm"]
            missed += [
                f"{name}: {score} {net[score] / line[score]:.3f} of linear's"
                for score in SCORES
                if net[score] > line[score]
            ]
            if net["seconds"] > TIMES * line["seconds"]:
                missed.append(f"{name}: {net['seconds'] / line['seconds']:.1f} times linear's processor time")
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    report(__file__, Claim("Learning online", ABOUT, COLUMNS, lines, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=_uci.FOLDER, help="folder of the streams that are not bundled")
    parser.add_argument("--streams", default=",".join(STREAMS), help="comma-separated; default: all")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    sys.exit(main(parser.parse_args()))
