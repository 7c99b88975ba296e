"""`compare` finds where the default model wins and where it loses beside LightGBM and statsforecast, on five sets.

The first 3,000 rows of the demand of Victoria (hourly means), the load of PJM's AEP zone, HUFL of ETTh1, a wind farm
with its forecasts of the wind, and the load of a zone of GEFCom2012 with a station's temperature; a day ahead, each
model with its defaults. Known inputs are given to all; AutoETS, AutoARIMA and MSTL cannot use them.

Per set and model: MAE, calibrated CRPS, coverage of the 95 % band, both losses of `auto` over the model's with 95 %
intervals, processor seconds. Claimed: the cells of all models are the same, checked in their files, and the comparison
takes at most 1.1 times the processor time of its models. Nothing is claimed of who wins.

    python benchmarks/compare_on_five_sets.py [--others FOLDER] [--sets a,b] [--models auto,lightgbm] [--rows 3000]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import _uci
import polars as pl
from _report import Claim, report
from auto_beside_its_experts import STREAMS, Stream, demand

LONGEST = 1.1
MODELS = ("auto", "linear", "seasonal_naive", "lightgbm", "autoets", "autoarima", "mstl")
DAY = {"horizon": 24, "season": "24,168", "lags": 24}
COLUMNS = ("set", "model", "MAE", "calibrated CRPS", "coverage", "auto over it: MAE", "CRPS", "CPU-s")
TEXT = (
    "The first {rows:,} hours of each set, a day ahead, each model with its defaults, on the forecasts that all made: "
    "those of statsforecast forecast every 25 hours. The first 672 hours are not scored. Ratios below 1: `auto` is "
    "better; with 95 % intervals of a block bootstrap. Claimed: the same cells for all, and at most 1.1 times the "
    "processor time of the models."
)


def hourly(folder: Path) -> pl.DataFrame:
    """The demand of Victoria, means of both half hours."""
    rows = demand(folder).with_columns(pl.col("timestamp").str.to_datetime(time_zone="UTC"))
    return rows.group_by_dynamic("timestamp", every="1h").agg(pl.col("demand_gw", "workday").mean())


SETS = {
    "Victoria": Stream(hourly, "demand_gw", {**DAY, "known": "workday"}),
    **{name: STREAMS[key] for name, key in (("AEP", "AEP-8000"), ("HUFL", "HUFL"), ("wind", "wind"))},
    "GEF-load": STREAMS["GEF-load"],
}


def shown(found: pl.DataFrame) -> str:
    """A ratio and its interval."""
    if found.is_empty() or found["ratio"][0] is None:
        return "–"
    ratio, low, high = found.select("ratio", "low", "high").row(0)
    return f"{ratio:.3f}" + ("" if low is None else f" ({low:.3f}–{high:.3f})")


def main(others: Path, sets: list[str], models: list[str], rows: int) -> int:
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import compare
    from streamgp_pipelines.config import IngestConfig

    lines, missed = list[list[str]](), list[str]()
    for name in sets:
        stream = SETS[name]
        try:
            data = stream.rows(others).head(rows)
        except FileNotFoundError as error:
            print(f"{name}: {error}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            data.write_parquet(work / "rows.parquet")
            table = {"source": (str(work / "rows.parquet"),), "table": str(work / "table"), "every": "1h"}
            ingest(IngestConfig.read({**table, **stream.ingest}))
            given = {**stream.options, "score_from": "672", "comparison": work / "models", "device": "cpu"}
            began = time.process_time()
            made = compare(work / "table", stream.target, tuple(models), **given)  # type: ignore[arg-type]
            total = time.process_time() - began
            keys = ["unique_id", "cutoff", "ds"]
            files = [pl.read_parquet(work / "models" / model / "predictions.parquet", columns=keys) for model in models]
        common = files[0]
        for file in files[1:]:
            common = common.join(file, on=keys, how="semi")
        whole = made.scores.filter(by="all")
        if whole["cells"].unique().to_list() != [common.height]:
            missed.append(f"{name}: other cells")
        for model in models:
            one = whole.row(by_predicate=pl.col("model") == model, named=True)
            cells = [name, model, *(f"{one[score]:.4g}" for score in ("mae", "calibrated_crps"))]
            cells += [f"{one['coverage_95']:.3f}"]
            for loss in ("mae", "calibrated_crps"):
                cells.append(shown(made.differences.filter(model="auto", other=model, loss=loss)))
            lines.append([*cells, f"{one['cpu_seconds']:.0f}"])
            print("  ".join(lines[-1]), flush=True)
        longer = total / whole["cpu_seconds"].sum()
        print(f"{name}: {made.cells:,} forecasts; time {longer:.3f} of the models'", flush=True)
        if longer > LONGEST:
            missed.append(f"{name}: time {longer:.2f}")
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    report(__file__, Claim("compare on five sets", TEXT.format(rows=rows), COLUMNS, lines, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", type=Path, default=_uci.FOLDER, help="folder of the sets that are not bundled")
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated; default: all")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--rows", type=int, default=3000, help="first rows of each set")
    given = parser.parse_args()
    sys.exit(main(given.others, given.sets.split(","), given.models.split(","), given.rows))
