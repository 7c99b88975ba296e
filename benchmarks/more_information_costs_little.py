"""Columns, lags and a calendar that carry nothing cost the default model at most 2 % of its error.

Victoria's half-hourly demand, day ahead, `--known workday`, scored from row 1344; then the same run with one thing
more: the calendar, the temperature as an input, twice the lags, five columns of noise and a constant as known inputs.
For `auto` and for `linear`; RMSE and MAE over those of the first run.

    python benchmarks/more_information_costs_little.py [--models auto,linear]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _report import Claim, report

ROOT = Path(__file__).parents[1]
MOST = 1.02
NOISE = tuple(f"noise_{at}" for at in range(5))
CASES: dict[str, dict[str, Any]] = {
    "the workday": {},
    "calendar": {"calendar": True},
    "temperature as an input": {"inputs": "temperature_c"},
    "96 lags": {"lags": 96},
    "noise and a constant": {"known": ",".join(("workday", *NOISE, "constant"))},
}
COLUMNS = ("model", "with", "RMSE, GW", "MAE, GW", "RMSE, over without", "MAE, over without", "CPU-s")
TEXT = (
    "Half-hourly demand, day ahead, one pass, scored from row 1344. The first line knows the workday; each other line "
    "has one thing more, which carries nothing or is known already. Claimed: at most 2 % more error."
)


def prepared(work: Path) -> Path:
    """The table, with columns of noise."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines.config import IngestConfig

    rows = pl.read_csv(ROOT / "data" / "elecdemand.csv")
    generator = np.random.default_rng(7)
    noise = {name: generator.standard_normal(len(rows)) for name in NOISE}
    rows.with_columns(**{name: pl.Series(values) for name, values in noise.items()}, constant=pl.lit(1.0)).write_csv(
        work / "rows.csv"
    )
    ingest(IngestConfig.read({"source": (str(work / "rows.csv"),), "table": str(work / "table"), "every": "30m"}))
    return work / "table"


def main(models: list[str]) -> int:
    import time

    from streamgp_pipelines import fit_stream

    lines, missed = list[list[str]](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        table = prepared(Path(folder))
        for model in models:
            first: dict[str, Any] = {}
            for name, options in CASES.items():
                given = {"known": "workday", "horizon": 48, "season": "48,336", "score_from": "1344", **options}
                began = time.process_time()
                place = Path(folder) / f"{model} {name}"
                found = fit_stream(table, "demand_gw", model=model, checkpoint=place, device="cpu", **given)
                spent, first = time.process_time() - began, first or found
                ratios = [found[score] / first[score] for score in ("rmse", "mae")]
                if max(ratios) > MOST:
                    missed.append(f"{model} with {name}: {max(ratios):.3f}")
                cells = [f"{found['rmse']:.4f}", f"{found['mae']:.4f}", *(f"{ratio:.3f}" for ratio in ratios)]
                lines.append([model, name, *cells, f"{spent:.0f}"])
                print("  ".join(lines[-1]), flush=True)
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    report(__file__, Claim("More information costs little", TEXT, COLUMNS, lines, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="auto,linear", help="comma-separated; default: auto,linear")
    sys.exit(main(parser.parse_args().models.split(",")))
