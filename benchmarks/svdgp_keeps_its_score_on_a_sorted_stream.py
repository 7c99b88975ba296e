"""On kin40k as a stream sorted by its first input, one pass in batches of 512 rows, SVDGP's RMSE is at most 0.27 within
20 CPU-seconds of one thread, and at most 1.15 times that of the same rows shuffled.

Test-then-train. What counts is the RMSE on the held-out rows after the pass: on a sorted stream it tells what was kept
of rows seen long ago. The prequential RMSE, of each batch before it is learned, is printed beside it: there every
batch lies where nothing has been seen yet. The second size, with twice the basis, aims at 0.20 within 40 CPU-seconds.

    python benchmarks/svdgp_keeps_its_score_on_a_sorted_stream.py [--data uci_kin40k.parquet] [--small]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from _report import Claim, report
from _uci import Split, load, path, rmse, scores, windows
from torch import Tensor

from streamgp.models import svdgp

BATCH, RATIO = 512, 1.15
SIZES = {
    "defaults": (svdgp.Config(), 0.27, 20.0),
    "basis 2048, evidence_rows 800, rebuild 8000": (
        svdgp.Config(basis=2048, evidence_rows=800, rebuild=8000),
        0.20,
        40.0,
    ),
}


def one_pass(config: svdgp.Config, split: Split, order: Tensor, name: str) -> tuple[float, float]:
    """Held-out RMSE and CPU-seconds of a pass."""
    model, x, y = svdgp.build(config, split.shape), split.x[order], split.y[order]
    errors, began = [], time.process_time()
    for start in range(0, len(y), BATCH):
        rows, truths = windows(x[start : start + BATCH]), y[start : start + BATCH]
        if start:
            errors.append(model.predict(rows).mean - truths)
        model.update(rows, truths)
    taken = time.process_time() - began
    found = scores(model.predict(windows(split.held)), split.truth)
    ahead = rmse(torch.cat(errors), torch.zeros(1, dtype=y.dtype))
    print(f"  {name:<9} {found}  prequential rmse {ahead:.4f}  {taken:.1f} CPU-s", flush=True)
    return found.rmse, taken


def main(data: Path, small: bool) -> int:
    if not data.exists():
        print(f"there is no {data.name} at {data.parent}: give it with --data")
        return 0
    torch.set_num_threads(1)
    split = load(data)
    shuffled = torch.randperm(len(split.x), generator=torch.Generator().manual_seed(0))
    orders = {"sorted": torch.argsort(split.x[:, 0], stable=True), "shuffled": shuffled}
    missed: list[str] = []
    page = []
    for number, (size, (config, limit, seconds)) in enumerate(SIZES.items()):
        if number and small:
            continue
        print(size)
        found = {name: one_pass(config, split, order, name) for name, order in orders.items()}
        (error, taken), ratio = found["sorted"], found["sorted"][0] / found["shuffled"][0]
        holds = error <= limit and ratio <= RATIO and taken <= seconds
        print(
            f"  sorted {error:.4f} (limit {limit}) in {taken:.1f} CPU-s (limit {seconds:.0f}), "
            f"ratio {ratio:.3f} (limit {RATIO}): {'holds' if holds else 'does not hold'}"
        )
        cells = [f"{found[name][0]:.4f}" for name in orders]
        page.append([size, *cells, f"{ratio:.2f}", f"{taken:.1f}"])
        if not holds and not number:  # the larger size is an aim
            missed.append(f"{error:.4f}, ratio {ratio:.2f}, {taken:.1f} CPU-s")
    text = (
        "kin40k in one pass, sorted by its first input: held-out RMSE at most 0.27 within 20 CPU-seconds, and at most "
        f"{RATIO} times that of shuffled rows. The second line aims at 0.20 within 40."
    )
    report(__file__, Claim("A sorted stream", text, ["options", "sorted", "shuffled", "ratio", "CPU-s"], page, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=path("kin40k"))
    parser.add_argument("--small", action="store_true", help="the defaults alone")
    asked = parser.parse_args()
    sys.exit(main(asked.data, asked.small))
