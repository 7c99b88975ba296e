"""SCGD with mini-batches of 64 and the linear kernel reaches an NLML of at most −1.03 on bike and −1.13 on elevators
within 20 CPU-seconds.

To be reached were the figures of a prototype; the stretch are those of Shoham & Avron (2025), table 2: −1.366 (0.259)
and −1.427 (0.173) after 100 epochs. Their scale (`_finite`): exact, over all rows to learn, in the units of the files.
The other methods, and the controls, run for the same time if asked for; they claim nothing.

    python benchmarks/finite_rkhs_reaches_the_evidence.py [--data FOLDER] [--seconds 20] [--methods scgd ldb held]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from _finite import METHODS, Outcome, standardised, trained
from _report import Claim, report
from _uci import FOLDER, load, path

REACH = {"bike": (-1.03, -1.366), "elevators": (-1.13, -1.427)}
"""What is claimed, and the paper's mean."""
CLAIMING = "scgd"
BATCH, LOOKS = 64, 8


def told(name: str, method: str, found: Outcome) -> None:
    """The evaluations of a run in one line."""
    marks = "  ".join(f"{mark.seconds:.1f} s {mark.nlml:.3f}/{mark.rmse:.4f}" for mark in found.marks)
    best = found.best
    print(f"{name:<10} {method:<10} {marks}")
    print(
        f"{'':<21} least {best.nlml:.3f}, rmse {best.rmse:.4f}, noise {best.noise:.5f} at {best.seconds:.1f} s, "
        f"{found.last.epochs:.0f} epochs, {found.step:.2f} ms a step {found.failed}",
        flush=True,
    )


def main(folder: Path, seconds: float, methods: list[str], sets: list[str], split: int) -> int:
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # loads PyTorch's compiler
    missed, page = [], []
    for name in sets:
        rows = standardised(load(path(name, folder), split))
        for method in methods:
            found = trained(rows, method, "linear", BATCH, seconds, looks=LOOKS)
            told(name, method, found)
            if method != CLAIMING:
                continue
            most, stretch = REACH[name]
            holds = found.best.nlml <= most
            marks = found.marks[1::2]  # every second one
            times = [f"{mark.seconds:.0f} CPU-s" for mark in marks]
            page.append([name, *(f"{mark.nlml:.3f} / {mark.rmse:.3f}" for mark in marks), str(stretch)])
            missed += [f"{name}: {found.best.nlml:.3f} > {most}"] * (not holds)
            beside = "reached" if found.best.nlml <= stretch else "not reached"
            print(f"{'':<21} claimed {most}: {'holds' if holds else 'DOES NOT HOLD'}; the paper's {stretch}: {beside}")
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        f"SCGD, mini-batches of {BATCH}, linear kernel: NLML at most −1.03 on bike and −1.13 on elevators within "
        f"{seconds:g} CPU-seconds; NLML / RMSE. The paper's are after 100 epochs."
    )
    if page:
        columns = ["set", *times, "the paper's NLML"]
        report(__file__, Claim("Evidence within 20 seconds", text, columns, page, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the uci_*.parquet")
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU-seconds a run")
    parser.add_argument("--methods", nargs="+", default=[CLAIMING], choices=[*METHODS, "svgp"])
    parser.add_argument("--sets", nargs="+", default=list(REACH), choices=list(REACH))
    parser.add_argument("--split", type=int, default=0, choices=range(5))
    asked = parser.parse_args()
    sys.exit(main(asked.data, asked.seconds, asked.methods, asked.sets, asked.split))
