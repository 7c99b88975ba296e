"""QSGP on 10,000 functions, on kin40k: RMSE at most 0.174 and MNLP at most 0 within 15 CPU-seconds of one thread, RMSE
at most 0.145 within 30; a smaller RMSE and MNLP than GPyTorch's SVGP with 512 inducing points at equal time, and the
RMSE that SVGP has after 30 CPU-seconds in at most 1/8 of them. On protein RMSE at most 0.53, on keggdirected at most
0.130, within 10 CPU-seconds.

No other option is set. Mask split0, hyper-parameters included in the time. What counts is the state at the last epoch
that ended within the budget, and not the best of them. SVGP runs in the same process (`_svgp.py`). Evans & Nair (2020)
have 0.174 and 0.135 on kin40k after hours of training on a GPU (table 2).

    python benchmarks/qsgp_beats_svgp_on_uci.py [--data FOLDER] [--sets kin40k protein keggdirected]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import _svgp
import torch
from _report import Claim, report
from _uci import FOLDER, Mark, Split, load, path, trace

from streamgp.models import qsgp

LIMITS: dict[str, list[tuple[float, float, float | None]]] = {
    "kin40k": [(15.0, 0.174, 0.0), (30.0, 0.145, None)],
    "protein": [(10.0, 0.53, None)],
    "keggdirected": [(10.0, 0.130, None)],
}
"""Of each set: CPU-seconds, RMSE, MNLP."""
CONFIG = qsgp.Config.model_validate({"features": {"size": 10_000}})
PEER, BUDGETS, FRACTION = "kin40k", (15.0, 30.0), 1 / 8


def told(who: str, mark: Mark) -> str:
    return f"  {who:<6} {mark.seconds:6.2f} CPU-s  {mark.scores}  {mark.step.basis:6d} functions, {mark.step.done}"


def within(marks: list[Mark], budget: float) -> Mark | None:
    """The last that ended in time."""
    early = [mark for mark in marks if mark.seconds <= budget]
    return early[-1] if early else None


class Claims:
    """What was measured beside what is claimed; `missed` says what does not hold."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def most(self, what: str, found: float, limit: float, digits: int = 4) -> None:
        holds = found <= limit
        words = f"{what}: {found:.{digits}f}, claimed at most {limit:.{digits}f}"
        print(f"  {words}: {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
        self.missed += [] if holds else [words]


def against_svgp(rows: Split, marks: list[Mark], claims: Claims) -> Mark:
    """SVGP's last state. It has the whole of each budget, ours the epochs that ended within."""
    peers = list(_svgp.train(rows, [FRACTION * max(BUDGETS), *BUDGETS]))
    for peer in peers:
        print(told("svgp", peer), flush=True)
    for budget, peer in zip(BUDGETS, peers[1:], strict=True):
        ours = within(marks, budget)
        for what, place in (("rmse", 0), ("mnlp", 1)):
            found = ours.scores[place] if ours else float("inf")
            claims.most(f"{what} within {budget:.0f} CPU-s beside svgp's", found, peer.scores[place])
    goal = peers[-1].scores.rmse
    reached = min((mark.seconds for mark in marks if mark.scores.rmse <= goal), default=float("inf"))
    claims.most(f"CPU-s until svgp's last rmse of {goal:.4f}", reached, FRACTION * max(BUDGETS), 2)
    return peers[-1]


def main(folder: Path, sets: list[str]) -> int:
    torch.set_num_threads(1)
    claims, page = Claims(), []
    for name in sets:
        if not path(name, folder).exists():
            print(f"there is no {path(name).name} at {folder}: give its folder with --data")
            continue
        rows, marks = load(path(name, folder)), []
        print(f"{name}: {len(rows.y)} rows, {rows.x.shape[1]} inputs")
        for mark in trace(qsgp.build(CONFIG, rows.shape), rows):
            marks.append(mark)
            print(told("qsgp", mark), flush=True)
        for budget, rmse, mnlp in LIMITS[name]:
            mark = within(marks, budget)
            claims.most(f"rmse within {budget:.0f} CPU-s", mark.scores.rmse if mark else float("inf"), rmse)
            if mnlp is not None:
                claims.most(f"mnlp within {budget:.0f} CPU-s", mark.scores.mnlp if mark else float("inf"), mnlp)
        page.append(cells(f"{name}, qsgp", marks[-1]))
        if name == PEER:
            page.append(cells(f"{name}, GPyTorch SVGP", against_svgp(rows, marks, claims)))
    print("holds" if not claims.missed else "does not hold: " + "; ".join(claims.missed))
    text = (
        "10,000 random Fourier features, no other option, first published split, RMSE / MNLP in the units of the "
        "files: on kin40k RMSE at most 0.174 and MNLP at most 0 within 15 CPU-seconds, RMSE at most 0.145 within 30, "
        "less than SVGP's of each, and its last RMSE in an eighth of the time; on protein 0.53 and on keggdirected "
        "0.130 within 10. SVGP is as in GPyTorch's examples, with 512 inducing points; the paper's has 0.247. "
        "Noise floor, block width and sweeps were chosen on these splits."
    )
    columns = ["set, model", "at the end", "CPU-s", "95 % coverage"]
    report(__file__, *([Claim("Regression at equal time", text, columns, page, claims.missed)] if page else []))
    return 1 if claims.missed else 0


def cells(name: str, mark: Mark) -> list[str]:
    """A row of the results page."""
    found = mark.scores
    return [name, f"{found.rmse:.4f} / {found.mnlp:.3f}", f"{mark.seconds:.1f}", f"{found.coverage:.3f}"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the uci_*.parquet")
    parser.add_argument("--sets", nargs="+", default=list(LIMITS), choices=list(LIMITS))
    asked = parser.parse_args()
    sys.exit(main(asked.data, asked.sets))
