"""Rows that come later than the lateness make forecasts better with `--late use` than with `--late skip`.

Of each stream 3 % of the rows are late by more than its lateness: half of them alone, by 4 to 24 rows, half in runs of
4 to 48 rows that a device sent afterwards, together. One pass over the rows in order, then over those that come late,
with each policy. Errors are compared on the cells that all three runs made.

    STREAMGP_TEST_DATA=DIR python benchmarks/late_rows_still_help.py [--models auto,linear] [--rows 9000]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from _report import Claim, report
from missing_values_cost_little import KEYS, Stream, streams

LATENESS = 2
"""Rows."""
COLUMNS = (
    "data",
    "model",
    "late rows",
    "--late",
    "late rows used",
    "forecasts",
    "MAE",
    "over in order",
    "coverage 95 %",
)


def delayed(frame: pl.DataFrame, seed: int = 5) -> tuple[pl.DataFrame, int]:
    """The rows as they arrive, and how many are late."""
    generator, place = np.random.default_rng(seed), np.arange(len(frame), dtype=float)
    late = np.zeros(len(frame), bool)
    for start in np.flatnonzero(generator.random(len(frame)) < 0.01):
        late[start] = True
        place[start] += generator.integers(4, 25) + 0.5
    for start in np.flatnonzero(generator.random(len(frame)) < 0.01 / 26):
        end = start + generator.integers(4, 49)
        late[start:end] = True
        place[start:end] = end + LATENESS + 2 + 0.5
    return frame[np.argsort(place, kind="stable").tolist()], int(late.sum())


def cells(stream: Stream, frame: pl.DataFrame, place: Path, model: str, late: str) -> tuple[pl.DataFrame, int]:
    """The scored forecasts of one pass, and the late rows that it used."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig

    place.mkdir()
    frame.write_parquet(place / "rows.parquet")
    lateness = f"{LATENESS * int(stream.every[:-1])}{stream.every[-1]}"
    given = {"source": (str(place / "rows.parquet"),), "table": str(place / "table"), "every": stream.every}
    ingest(IngestConfig.read(given | {"lateness": lateness}))
    options = stream.options | {"model": model, "late": late, "predictions": place / "cells.parquet", "online": True}
    run = fit_stream(place / "table", stream.columns[0], checkpoint=place / "checkpoint", device="cpu", **options)
    found = pl.read_parquet(place / "cells.parquet").drop_nulls("y")
    name = found.columns[found.columns.index("y") + 1]
    covered = pl.col("y").is_between(pl.col(f"{name}-lo-95"), pl.col(f"{name}-hi-95"))
    return found.select(*KEYS, "y", forecast=name, covered=covered), int(str(run["late_used"]))


def main(models: list[str], rows: int) -> int:
    lines, missed = list[list[str]](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for (title, stream), model in ((one, model) for one in streams(rows).items() for model in models):
            mixed, late = delayed(stream.frame)
            runs = {
                name: cells(stream, frame, Path(folder) / f"{title} {model} {name}", model, policy)
                for name, frame, policy in (
                    ("in order", stream.frame, "skip"),
                    ("skip", mixed, "skip"),
                    ("use", mixed, "use"),
                )
            }
            common = runs["in order"][0].select(KEYS)
            for found, _ in runs.values():
                common = common.join(found, on=KEYS, how="semi")
            error = {}
            for name, (found, used) in runs.items():
                both = found.join(common, on=KEYS, how="semi")
                error[name] = float((both["y"] - both["forecast"]).abs().mean())
                about = [f"{late if name != 'in order' else 0:,}", name, f"{used:,}", f"{len(found):,}"]
                told = [f"{error[name]:.5f}", f"{error[name] / error['in order']:.4f}", f"{both['covered'].mean():.3f}"]
                lines.append([title, model, *about, *told])
                print("  ".join(lines[-1]), flush=True)
            if error["use"] > error["skip"]:
                missed.append(f"{title}, {model}: {error['use'] / error['skip']:.4f} of the error of skip")
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        f"The first {rows:,} rows, a day ahead (half a day of half hours), lateness {LATENESS} rows, 3 % of the rows "
        "later than it; MAE on the cells that all three runs made. Claimed: --late use has no larger error than "
        "--late skip."
    )
    report(__file__, Claim("Late rows still help", text, COLUMNS, lines, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="auto,linear", help="comma-separated; default: auto,linear")
    parser.add_argument("--rows", type=int, default=9000, help="rows of each stream; default: 9000")
    arguments = parser.parse_args()
    sys.exit(main(arguments.models.split(","), arguments.rows))
