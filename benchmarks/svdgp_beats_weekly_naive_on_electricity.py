"""SVDGP with no options of its own forecasts electricity demand a day ahead with at most 0.70 (workday known) and 0.50
(temperature too) of the weekly naive's mean absolute error, in one pass; and its defaults serve data they were not
made on.

Victoria's half-hourly demand of 2014 (data/elecdemand.csv): 48 steps ahead at every half hour, season 336, scored from
day 29 on, through the whole pipeline (table, windows, ledger, bands, checkpoints) on one thread. Where a folder has
etth1.parquet and pjm_aep_hourly.parquet, the same for transformer temperature and load, and the load of the AEP zone,
24 hours ahead. Printed per model: MAE, its ratio to the seasonal naive's, RMSE one step ahead, NLPD, coverage of
the raw and of the calibrated 95 % band, and seconds.

    python benchmarks/svdgp_beats_weekly_naive_on_electricity.py [--others FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _uci
from _report import Claim, report

ROOT = Path(__file__).parents[1]
MODELS = ("seasonal_naive", "linear", "svdgp")
COLUMNS = ("known", "model", "MAE", "over naive", "RMSE, 1 step", "NLPD", "raw 95 % coverage", "calibrated", "CPU-s")
OTHER_COLUMNS = (
    "stream",
    "naive MAE",
    "linear, over naive",
    "svdgp",
    "NLPD, linear",
    "svdgp",
    "calibrated 95 % coverage",
)
TEXT = (
    "Half-hourly demand in GW, 48 steps ahead, season 336, one pass, scored from day 29 on: the MAE of svdgp is at "
    "most 0.70 (workday known) and 0.50 (temperature too) of the weekly naive's, its RMSE one step ahead at most "
    "0.050. Its defaults were chosen on these runs."
)
OTHER_TEXT = (
    "24 hours ahead, season 24 (ETTh1) and 168 (PJM's AEP zone, first 20,000 hours). Only the prior of the linear part "
    "was chosen with these in sight too (decision 0007)."
)


@dataclass(frozen=True)
class Case:
    """One stream. limit: of the MAE over the seasonal naive's; first: of the RMSE one step ahead, target units."""

    file: str
    target: str
    options: dict[str, Any]
    ingest: dict[str, Any] = field(default_factory=dict)
    limit: float | None = None
    first: float | None = None
    rows: int | None = None


DAY_AHEAD = {"horizon": 48, "season": 336, "score_from": "1344"}
DEMAND = {"timezone": "+10:00"}
OURS = (
    Case("elecdemand.csv", "demand_gw", {**DAY_AHEAD, "known": "workday"}, DEMAND, 0.70, 0.050),
    Case("elecdemand.csv", "demand_gw", {**DAY_AHEAD, "known": "temperature_c,workday"}, DEMAND, 0.50, 0.050),
)
OTHERS = (
    Case("etth1.parquet", "OT", {"horizon": 24, "season": 24}),
    Case("etth1.parquet", "HUFL", {"horizon": 24, "season": 24}),
    Case("pjm_aep_hourly.parquet", "load_mw", {"horizon": 24, "season": 168}, rows=20_000),
)


def run(case: Case, folder: Path, model: str, work: Path) -> dict[str, Any]:
    """One pass, from the file."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig

    table = work / case.file.partition(".")[0]
    if not table.exists():
        ingest(IngestConfig.read({"source": (str(folder / case.file),), "table": str(table), **case.ingest}))
    options = case.options | ({"max_rows": case.rows} if case.rows else {})
    home = work / f"{case.file}-{case.target}-{case.options.get('known', '')}-{model}"
    began = time.process_time()
    found = dict(fit_stream(table, case.target, model=model, checkpoint=home, device="cpu", **options))
    found["cpu"] = time.process_time() - began
    return found


def ours(case: Case, found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Lines of the results page, a model each."""
    naive, known, rows = found["seasonal_naive"]["mae"], case.options["known"].replace(",", ", "), []
    for model, one in found.items():
        parts = [f"{one['mae']:.4f}", f"{one['mae'] / naive:.3f}", f"{one['steps'][0]['rmse']:.4f}"]
        bands = [f"{one[which]['95']:.3f}" for which in ("raw_coverage", "coverage")]
        rows.append([known, model, *parts, f"{one['nlpd']:.3f}", *bands, f"{one['cpu']:.1f}"])
    return rows


def others(case: Case, found: dict[str, dict[str, Any]]) -> list[str]:
    """A line of the results page."""
    naive, linear, svdgp = (found[model] for model in MODELS)
    ratios = [f"{one['mae'] / naive['mae']:.3f}" for one in (linear, svdgp)]
    name = f"{case.file.partition('.')[0]} {case.target}"
    nlpd = [f"{one['nlpd']:.3f}" for one in (linear, svdgp)]
    return [name, f"{naive['mae']:.4g}", *ratios, *nlpd, f"{svdgp['coverage']['95']:.3f}"]


def main(folder: Path) -> int:
    import torch

    torch.set_num_threads(1)
    cases = [(case, ROOT / "data") for case in OURS]
    cases += [(case, folder) for case in OTHERS if (folder / case.file).exists()]
    missed: list[str] = []
    day_ahead: list[list[str]] = []
    elsewhere: list[list[str]] = []
    with tempfile.TemporaryDirectory() as work:
        for case, home in cases:
            words = ", ".join(f"{key} {value}" for key, value in case.options.items())
            print(f"{case.file} {case.target}: {words}")
            found = {model: run(case, home, model, Path(work)) for model in MODELS}
            naive = found["seasonal_naive"]["mae"]
            for model, one in found.items():
                first, seconds = one["steps"][0]["rmse"], one["seconds"]["total"]
                print(
                    f"  {model:<15} mae {one['mae']:10.4f}  × {one['mae'] / naive:.3f}  rmse@1 {first:9.4f}  "
                    f"nlpd {one['nlpd']:7.3f}  coverage 95: raw {one['raw_coverage']['95']:.3f} "
                    f"calibrated {one['coverage']['95']:.3f}  {seconds:6.1f} s ({one['cpu']:.1f} s of processor)",
                    flush=True,
                )
            if case in OURS:
                day_ahead += ours(case, found)
            else:
                elsewhere.append(others(case, found))
            best = found["svdgp"]
            if case.limit is not None and best["mae"] > case.limit * naive:
                missed.append(f"{case.options['known']}: {best['mae'] / naive:.3f} > {case.limit}")
            if case.first is not None and best["steps"][0]["rmse"] > case.first:
                missed.append(f"one step ahead: {best['steps'][0]['rmse']:.4f} > {case.first}")
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    claims = [Claim("Electricity demand, day ahead", TEXT, COLUMNS, day_ahead, missed)]
    if elsewhere:
        claims.append(Claim("Other streams", OTHER_TEXT, OTHER_COLUMNS, elsewhere, None))
    report(__file__, *claims)
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", type=Path, default=_uci.FOLDER, help="folder of the other streams")
    sys.exit(main(parser.parse_args().others))
