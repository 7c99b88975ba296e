"""Over five splits QSGP on 10,000 functions has at most the RMSE that table 2 of Evans & Nair (2020) has of theirs, on
10⁵, on kin40k, protein and keggdirected, in at most 15 CPU-seconds a split.

The layout of that table: mean and standard deviation of the RMSE over the splits, MNLP of the first, all in the units
of the files, whose targets are not standardised; and coverage of the 95 % band on the first split. The covariance is
that of the default, of the first block for all. The paper trained for 100,000 steps, for at most 2.1 hours of a GPU a
split, and its five splits of 90 and 10 % are not known to be these. The last three sets are not in it.

    python benchmarks/qsgp_on_five_splits.py [--data FOLDER] [--sets kin40k pol] [--splits 0 1 2 3 4]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from _report import Claim, report
from _uci import FOLDER, Mark, load, path, trace

from streamgp.models import qsgp


class Paper(NamedTuple):
    """A row of table 2: mean and standard deviation of the RMSE, MNLP, of each model."""

    mean_field: tuple[float, float, float]
    chevron: tuple[float, float, float]
    svgp: tuple[float, float, float]


TABLE: dict[str, Paper | None] = {
    "kin40k": Paper((0.174, 0.004, 0.135), (0.175, 0.004, 0.139), (0.247, 0.004, 0.055)),
    "protein": Paper((0.602, 0.007, 1.34), (0.602, 0.007, 1.34), (0.542, 0.006, 1.06)),
    "keggdirected": Paper((0.135, 0.004, -0.821), (0.135, 0.004, -0.794), (0.124, 0.005, -0.953)),
    "pol": None,
    "bike": None,
    "elevators": None,
}
BUDGET = 15.0
HEAD = "set          model        rmse mean  (sd)      mnlp   coverage  CPU-s a split"


def fitted(name: str, folder: Path, split: int) -> Mark:
    """The state at the end of training."""
    rows = load(path(name, folder), split)
    model = qsgp.build(qsgp.Config.model_validate({"features": {"size": 10_000}}), rows.shape)
    (mark,) = trace(model, rows, last=True)
    return mark


def row(name: str, model: str, figures: tuple[float, float, float], more: str = "") -> None:
    mean, sd, mnlp = figures
    print(f"{name:<12} {model:<12} {mean:9.4f}  ({sd:.4f}) {mnlp:8.3f}   {more}", flush=True)


def main(folder: Path, sets: list[str], splits: list[int]) -> int:
    torch.set_num_threads(1)
    missed, page = [], []
    print(HEAD)
    for name in sets:
        if not path(name, folder).exists():
            print(f"there is no {path(name).name} at {folder}: give its folder with --data")
            continue
        ours = [fitted(name, folder, split) for split in splits]
        errors, seconds = [mark.scores.rmse for mark in ours], [mark.seconds for mark in ours]
        mean, sd = statistics.fmean(errors), statistics.stdev(errors) if len(errors) > 1 else 0.0
        first = ours[0].scores
        spent = f"{statistics.fmean(seconds):.1f}, at most {max(seconds):.1f}"
        row(name, "block", (mean, sd, first.mnlp), f"{first.coverage:8.3f}  {spent}")
        print(f"{'':<12} each split   {' '.join(f'{error:.4f}' for error in errors)}")
        paper = TABLE[name]
        beside = "" if paper is None else f"{paper.mean_field[0]} ({paper.mean_field[1]}), {paper.mean_field[2]}"
        page.append([name, f"{mean:.4f} ({sd:.4f})", f"{first.mnlp:.3f}", f"{first.coverage:.3f}", beside])
        if paper is None:
            continue
        for model, figures in zip(("QSGP-0", "QSGP-100", "SVGP"), paper, strict=True):
            row("", model, figures, "   paper")
        limit = min(paper.mean_field[0], paper.chevron[0])
        for what, found, most in (("rmse", mean, limit), ("CPU-s", max(seconds), BUDGET)):
            holds = "holds" if found <= most else "DOES NOT HOLD"
            print(f"{'':<12} {what} {found:.4f}, claimed at most {most:.4f}: {holds}")
            missed += [f"{name}: {what} {found:.4f} > {most:.4f}"] * (found > most)
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        "At most the RMSE of the paper's table 2 on its three sets, in at most 15 CPU-seconds a split. Mean (standard "
        "deviation) over five published splits, MNLP of the first. The paper has 10⁵ functions, hours of a GPU, other "
        "splits and the squared exponential everywhere. Nothing was chosen on splits 1 to 4."
    )
    columns = ["set", "RMSE", "MNLP", "95 % coverage", "paper's QSGP-0: RMSE, MNLP"]
    report(__file__, *([Claim("Five splits, beside the paper", text, columns, page, missed)] if page else []))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the uci_*.parquet")
    parser.add_argument("--sets", nargs="+", default=list(TABLE), choices=list(TABLE))
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2, 3, 4], choices=range(5))
    asked = parser.parse_args()
    sys.exit(main(asked.data, asked.sets, asked.splits))
