"""Ratios of processor time beside peers, each repeated in turn in one run, with their spread.

kiss      an epoch of a deep kernel on 10⁴ rows against one full-batch step of GPyTorch's with SKI, in the faster of
          float32 and float64: mlp and lstm, mini-batches of 64 and 128; at least 8 times faster
kin40k    GPyTorch's SVGP, 30 CPU-seconds, beside the time in which svgp and blocks of qsgp (10⁴ functions) have its
          RMSE: at least 3 and 8. And one pass of svdgp over the rows as a stream (default options, batches of 512)
          beside the time in which GPyTorch's SVGP, which sees all rows from the beginning, has svdgp's RMSE: at least 3
stream    electricity demand a day ahead: CPU-seconds of LightGBM refits and of river's Bayesian linear regression over
          those of `linear`, with bands, scores and checkpoints. Once, and only reported: the errors differ

Needs the extra `bench`; about 20 minutes for five repeats on an idle core. With --parts, the rows of the others stay as
they were measured before.

    python benchmarks/speed_beside_peers.py [--parts kiss kin40k stream] [--repeats 5] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from _report import Claim, report
from _uci import FOLDER

Ratios = list[tuple[str, float | None, list[float]]]
"""What, the least median that is claimed, and the ratio of each repeat."""
FASTER, SOONER = 8.0, 3.0
BUDGET, MOST, EVERY = 30.0, 90.0, 3.0
"""CPU-seconds of GPyTorch's SVGP: until its RMSE is a goal, until it has lost, and between two looks at its RMSE."""
TEXT = (
    "Processor time of the peer over ours, repeated in turn in one run: median, least and most. kiss: an epoch on "
    "10,000 rows, beside a step of GPyTorch's deep kernel with SKI in the faster of float32 and float64. svgp, qsgp: "
    "until the held-out RMSE that GPyTorch's SVGP has on kin40k after 30 CPU-seconds. svdgp: one pass over kin40k as a "
    "stream, beside GPyTorch's SVGP until it has the same held-out RMSE, with all rows from the beginning. stream: a "
    "day ahead, `linear` with bands and checkpoints beside refits of LightGBM and river's Bayesian regression, which "
    "only forecast; nothing is claimed."
)


def kiss(repeats: int, data: Path) -> Ratios:
    """Epochs, in turn with the peer's."""
    from _speed import Ours, Peer, clocked, rows

    made, found = rows(10_000), Ratios()
    for net in ("mlp", "lstm"):
        ours = {batch: Ours(made, net, batch) for batch in (64, 128)}
        theirs = [Peer(made, net, dtype) for dtype in (torch.float32, torch.float64)]
        works = [*(one.epoch for one in ours.values()), *(one.epoch for one in theirs)]
        rounds = [[next(clocked(work, 1)) for work in works] for _ in range(repeats + 1)][1:]
        for at, batch in enumerate(ours):
            found.append((f"kiss, {net}, batch {batch}", FASTER, [min(one[2:]) / one[at] for one in rounds]))
    return found


def kin40k(repeats: int, data: Path) -> Ratios:
    """Time to an RMSE: the peer's, of svgp and qsgp; that of svdgp's pass, of the peer."""
    import _svgp
    from _uci import load, path, trace
    from svdgp_keeps_its_score_on_a_sorted_stream import one_pass
    from svgp_beats_gpytorch_on_kin40k import standardised

    from streamgp.models import qsgp, svdgp, svgp

    split = load(path("kin40k", data))
    shuffled = torch.randperm(len(split.x), generator=torch.Generator().manual_seed(0))
    blocks = qsgp.Config.model_validate({"features": {"size": 10_000}})
    found: dict[str, list[float]] = {"svgp, kin40k": [], "qsgp, kin40k": [], "svdgp, one pass over kin40k": []}
    for repeat in range(repeats):
        streamed, spent = one_pass(svdgp.Config(), split, shuffled, "svdgp")
        goal, seconds, reached = float("nan"), float("nan"), float("inf")
        for mark in _svgp.train(standardised(split), [EVERY * look for look in range(1, int(MOST / EVERY) + 1)]):
            if mark.seconds >= BUDGET and goal != goal:
                goal, seconds = mark.scores.rmse, mark.seconds
            if mark.scores.rmse <= streamed:
                reached = min(reached, mark.seconds)
            if goal == goal and np.isfinite(reached):
                break
        print(
            f"  repeat {repeat}: {goal:.4f} after {seconds:.1f} CPU-s, {streamed:.4f} after {reached:.1f}", flush=True
        )
        found["svdgp, one pass over kin40k"].append(reached / spent)
        for name, model in (
            ("svgp", svgp.build(svgp.Config(), split.shape)),
            ("qsgp", qsgp.build(blocks, split.shape)),
        ):
            marks = (mark.seconds for mark in trace(model, split) if mark.scores.rmse <= goal)
            found[f"{name}, kin40k"].append(seconds / next(marks, float("inf")))
    claimed = {"qsgp, kin40k": FASTER}
    return [(what, claimed.get(what, SOONER), ratios) for what, ratios in found.items()]


def stream(repeats: int, data: Path) -> Ratios:
    """CPU-seconds of each pass."""
    from auto_against_opponents import ROOT, STREAMS, gridded, read
    from rows_a_second import OTHERS, error, ours

    whole, names = read(STREAMS["workday"], ROOT), ("lightgbm", "river bayesian")
    spent: dict[str, list[float]] = {name: [] for name in names}
    errors: dict[str, float] = {}
    for _ in range(repeats):
        seconds, own = ours("linear", len(whole))
        for name in names:
            made = gridded(whole, STREAMS["workday"])
            began = time.process_time()
            point = OTHERS[name](made)
            spent[name].append((time.process_time() - began) / seconds)
            errors[name] = error(made, point) / own
    return [(f"stream, {name}, MAE {errors[name]:.2f} times ours", None, spent[name]) for name in names]


PARTS: dict[str, Callable[[int, Path], Ratios]] = {"kiss": kiss, "kin40k": kin40k, "stream": stream}


def before(parts: list[str]) -> list[list[str]]:
    """The rows of the other parts, as they were reported last."""
    file = Path(os.environ.get("BENCHMARK_RESULTS", "")) / f"{Path(__file__).stem}.json"
    rows = json.loads(file.read_bytes())["claims"][0]["rows"] if file.is_file() else []
    return [row for row in rows if not any(part in row[0] for part in parts)]


def main(parts: list[str], repeats: int, data: Path) -> int:
    torch.set_num_threads(1)
    cells = before(parts)
    for part in parts:
        for what, claimed, ratios in PARTS[part](1 if part == "stream" else repeats, data):
            limit = "" if claimed is None else f"{claimed:.0f}"
            numbers = statistics.median(ratios), min(ratios), max(ratios)
            cells.append([what, limit, *(f"{value:.2f}" for value in numbers)])
            print("  ".join(cells[-1]), flush=True)
    cells.sort(key=lambda row: [part in row[0] for part in PARTS], reverse=True)
    claimed = [row for row in cells if row[1]]
    missed = [f"{row[0]}: {row[2]}" for row in claimed if not float(row[1]) <= float(row[2]) < float("inf")]
    text = f"{TEXT} {repeats} repeats, of stream one; kiss, kin40k and stream may be of several runs."
    report(__file__, Claim("Speed beside peers", text, ["what", "claimed", "median", "least", "most"], cells, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the uci_*.parquet")
    asked = parser.parse_args()
    sys.exit(main(asked.parts, asked.repeats, asked.data))
