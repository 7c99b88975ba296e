"""Every system of the papers that can be typed (streamgp/papers/systems.toml) on one stream, beside the persistence,
`linear` and the default.

The half-hourly electricity demand of Victoria (data/elecdemand.csv), 2 steps ahead, workday known, 12 lags, season 48:
what `streamgp train --online --table demand --target demand_gw --known workday --horizon 2 --season 48 --lags 12` does
with the options of the entry, one thread, one process. Hyper-parameters of `streamgp tune` are found on windows of the
rows before the scored ones, and `exact` starts from them and keeps them (`--init FILE --set learn=once`). Printed: MAE,
CRPS of the model's own distribution and of the calibrated one, coverage of the raw and of the calibrated 95 % band,
CPU-seconds of the whole run, rows a CPU-second. Systems for outcomes of 0 and 1 forecast whether the demand is above
the median of the rows before the scored ones, from the outcomes of 12 rows: Brier's score, beside the persistence's.

    python benchmarks/systems_on_one_stream.py [--rows 2000] [--first 900] [--output FILE [--again]] [--only WORD ...]

With --output each run is kept in a JSON file as it ends; with --again those there are not run anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import Claim, report

from streamgp.papers.systems import System, systems

FILE = Path(__file__).parents[1] / "data" / "elecdemand.csv"
BASELINES = {
    "persistence": "persistence",
    "seasonal_naive": "seasonal naive",
    "linear": "linear",
    "auto": "the default",
}
DATA: dict[str, Any] = {"season": 48, "lags": 12, "known": "workday"}
TUNING_ROWS = 300
OUTCOMES = "persistence of outcomes"
COLUMNS = ["system", "typed", "MAE", "over persistence", "CRPS", "calibrated CRPS", "raw coverage", "calibrated"]
COLUMNS += ["CPU-s", "rows a CPU-s"]


def measurable() -> list[System]:
    """The entries that are walked."""
    return [one for one in systems() if one.state != "missing" and one.command]


def of_outcomes(one: System) -> bool:
    """Whether its targets are 0 and 1."""
    return one.settings.get("likelihood") == "logistic"


def run(
    table: Path, model: str, options: dict[str, Any], asked: argparse.Namespace, outcomes: bool = False, **more: Any
) -> dict[str, Any]:
    """One pass, and what it took."""
    from streamgp_pipelines import fit_stream

    data = DATA | {"horizon": 2, "score_from": str(asked.first), "max_rows": asked.rows, "device": "cpu"} | more
    target = "above" if outcomes else "demand_gw"
    with tempfile.TemporaryDirectory() as home:
        found: Any = fit_stream(table, target, model=model, set=options, checkpoint=Path(home) / "c", **data)
    if outcomes:
        return {"brier": found["rmse"] ** 2, "rows": found["rows"]}
    kept = {name: found[name] for name in ("mae", "crps", "calibrated_crps", "rows")}
    return kept | {"raw": found["raw_coverage"]["95"], "coverage": found["coverage"]["95"]}


def system(one: System, table: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """A run of an entry."""
    if one.command == "train":
        flags = {name: int(value) for name, value in one.flags.items()}
        return run(table, one.model, one.settings, asked, of_outcomes(one), **flags)
    from streamgp_pipelines.api import NoTracker
    from streamgp_pipelines.config import TuneConfig
    from streamgp_pipelines.tuning.tune import tune

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tuned.json"
        data = DATA | {"table": table, "target": "demand_gw", "horizon": 2, "output": file, "set": one.settings}
        data |= {"end": str(asked.first), "rows": TUNING_ROWS}
        tune(TuneConfig.read(data | one.flags), NoTracker)
        return run(table, "exact", {"learn": "once"}, asked, init=file)


def usual(one: System | str, found: dict[str, dict[str, Any]]) -> float:
    """The persistence's MAE at as many steps ahead, or its Brier score."""
    if one == OUTCOMES or (isinstance(one, System) and of_outcomes(one)):
        return float(found[OUTCOMES]["brier"])
    if isinstance(one, str):
        return float(found["persistence"]["mae"])
    return float(found[f"persistence, {one.flags['horizon']}" if "horizon" in one.flags else "persistence"]["mae"])


def timed(one: System | str, table: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """The same with its CPU-seconds; an error is a result."""
    import torch

    torch.manual_seed(0)
    began = time.process_time()
    try:
        if one == OUTCOMES:
            found = run(table, "persistence", {}, asked, outcomes=True)
        elif isinstance(one, str):
            model, _, horizon = one.partition(", ")
            found = run(table, model, {}, asked, **({"horizon": int(horizon)} if horizon else {}))
        else:
            found = system(one, table, asked)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return found | {"seconds": time.process_time() - began}


def row(name: str, typed: str, found: dict[str, Any], persistence: float) -> list[str]:
    """Of the table."""
    if "error" in found:
        return [name, typed, found["error"], *[""] * 7]
    if "brier" in found:
        cells = [f"Brier {found['brier']:.4f}", f"{found['brier'] / persistence:.3g}", *[""] * 4]
    else:
        cells = [f"{found['mae']:.4g}", f"{found['mae'] / persistence:.3g}"]
        cells += [f"{found[key]:.4g}" for key in ("crps", "calibrated_crps")]
        cells += [f"{found[key]:.3f}" for key in ("raw", "coverage")]
    return [name, typed, *cells, f"{found['seconds']:.1f}", f"{found['rows'] / found['seconds']:,.0f}"]


def claim(found: dict[str, dict[str, Any]], asked: argparse.Namespace) -> Claim:
    """One table: what stands beside, then line by line."""
    text = (
        f"Half-hourly electricity demand in GW, first {asked.rows:,} rows, 2 steps ahead, workday known, 12 lags, "
        f"season 48, one pass, scored from row {asked.first} on. MAE over that of the persistence as far ahead. CRPS "
        "and raw coverage (95 %) are of the model's own distribution, the calibrated ones of what is issued. "
        "The number is the line of the list: 1 GP-LSTM, 2 SVDGP, 3 QSGP, 4 finite-dimensional kernels, 5 GPCV-ADMM, "
        "whose hyper-parameters `exact` keeps. Defaults were chosen on this series among others. Systems for outcomes "
        f"of 0 and 1 forecast whether the demand is above its median before row {asked.first}: Brier's score, over "
        f"that of the persistence, {found[OUTCOMES]['brier']:.4f}."
    )
    first = float(found["persistence"]["mae"])
    rows = [row(said, f"`--model {name}`", found[name], first) for name, said in BASELINES.items()]
    for one in measurable():
        if one.type in found:
            rows.append(row(f"{one.line} {one.name}", f"`{one.type}`", found[one.type], usual(one, found)))
    return Claim("One stream", text, COLUMNS, rows, None)


def main(asked: argparse.Namespace) -> int:
    import polars as pl
    import torch

    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines.config import IngestConfig

    torch.set_num_threads(1)
    again = asked.again and asked.output is not None and asked.output.exists()
    found: dict[str, dict[str, Any]] = json.loads(asked.output.read_text("utf-8")) if again else {}
    with tempfile.TemporaryDirectory() as work:
        table = Path(work) / "demand"
        rows, source = pl.read_csv(FILE, infer_schema_length=None), Path(work) / "demand.csv"
        median = rows["demand_gw"][: asked.first].median()
        rows.with_columns((pl.col("demand_gw") > median).cast(pl.Float64).alias("above")).write_csv(source)
        ingest(IngestConfig.read({"source": (str(source),), "table": str(table), "timezone": "+10:00"}))
        chosen = [one for one in measurable() if not asked.only or any(word in one.type for word in asked.only)]
        others = sorted({one.flags["horizon"] for one in measurable() if "horizon" in one.flags})
        for one in [*BASELINES, *(f"persistence, {horizon}" for horizon in others), OUTCOMES, *chosen]:
            key = one if isinstance(one, str) else one.type
            if key in found:
                continue
            found[key] = timed(one, table, asked)
            print("  ".join(row(key, "", found[key], usual(one, found))), flush=True)
            if asked.output is not None:
                asked.output.write_text(json.dumps(found, indent=1), "utf-8")
    report(__file__, claim(found, asked))
    return int(any("error" in one for one in found.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--first", type=int, default=900, help="row from which on is scored")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--again", action="store_true", help="take what --output holds as it is")
    parser.add_argument("--only", nargs="+", default=[], help="run the entries whose command contains one of these")
    sys.exit(main(parser.parse_args()))
