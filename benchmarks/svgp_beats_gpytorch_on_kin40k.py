"""SVGP with 512 inducing points has, after 30 CPU-seconds of one thread, a smaller RMSE and MNLP than GPyTorch's SVGP
with 512 inducing points after the same time, on kin40k and protein, and needs at most a third of them for the RMSE that
GPyTorch's has then.

Ours runs with its defaults; what counts is the last epoch that ended within the budget, the estimation of
hyper-parameters and every sweep over all rows included. GPyTorch has the settings of its own examples (`_svgp.py`), and
standardised inputs.
Printed beside: CPU time of a training step of either, on mini-batches of 1,024 rows.

    python benchmarks/svgp_beats_gpytorch_on_kin40k.py [--data FOLDER] [--sets kin40k protein] [--budget 30]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import _svgp
import torch
from _report import Claim, report
from _uci import FOLDER, Mark, Split, load, path, trace, windows

from streamgp.models import svgp
from streamgp.models.svgp.posterior import SvgpPosterior

PART = 1 / 3
STEPS = 20


def told(who: str, mark: Mark) -> str:
    return f"  {who:<8} {mark.seconds:6.2f} CPU-s  {mark.scores}  {mark.step.done}"


def step_time(rows: Split) -> float:
    """CPU-seconds of one of our steps, between a few that are not counted and the end."""
    model = svgp.build(svgp.Config(), rows.shape)
    assert isinstance(model.posterior, SvgpPosterior)
    x, trainer = windows(rows.x), model.posterior.trainer
    next(iter(model.fit(x, rows.y, 1)))
    z, y = model.inputs(x), (rows.y - model.outputs.location) / model.outputs.scale
    trainer.steps(z, y, torch.ones_like(y[:, 0]), model.generator, 3)
    began = time.process_time()
    trainer.steps(z, y, torch.ones_like(y[:, 0]), model.generator, STEPS)
    return (time.process_time() - began) / STEPS


def standardised(rows: Split) -> Split:
    """With inputs of unit spread, as ours makes them: in float32 GPyTorch cannot factorise protein's as they are."""
    location, scale = rows.x.mean(0), rows.x.std(0).clamp(min=1e-12)
    return rows._replace(x=(rows.x - location) / scale, held=(rows.held - location) / scale)


def compare(rows: Split, budget: float) -> tuple[list[str], list[str]]:
    """Of one set: what of the claim does not hold, and the cells of the results page."""
    ours = list[Mark]()
    for mark in trace(svgp.build(svgp.Config(), rows.shape), rows):
        if mark.seconds > budget:
            break
        ours.append(mark)
        print(told("ours", mark), flush=True)
    (peer,) = _svgp.train(standardised(rows), [budget])
    print(told("gpytorch", peer))
    theirs = peer.seconds / int(peer.step.done.split()[0])
    print(f"  a step: ours {1e3 * step_time(rows):.0f} ms, GPyTorch's {1e3 * theirs:.0f} ms of CPU time", flush=True)
    if not ours:
        return [f"no epoch ended within {budget:.0f} CPU-s"], ["", "", "", told_short(peer)]
    missed = []
    for what, place in (("rmse", 0), ("mnlp", 1)):
        if ours[-1].scores[place] > peer.scores[place]:
            missed.append(f"{what} {ours[-1].scores[place]:.4f} > {peer.scores[place]:.4f}")
    reached = min((mark.seconds for mark in ours if mark.scores.rmse <= peer.scores.rmse), default=float("inf"))
    print(f"  GPyTorch's last rmse is reached after {reached:.1f} CPU-s, claimed {PART * budget:.1f}")
    missed += [f"its rmse after {reached:.1f} CPU-s"] if reached > PART * budget else []
    marks = (ours[0], ours[min(1, len(ours) - 1)], ours[-1], peer)
    return missed, [told_short(mark) for mark in marks]


def told_short(mark: Mark) -> str:
    """RMSE / MNLP, CPU-seconds."""
    return f"{mark.scores.rmse:.4f} / {mark.scores.mnlp:.3f}, {mark.seconds:.1f} s"


def main(folder: Path, sets: list[str], budget: float) -> int:
    torch.set_num_threads(1)
    missed, page = [], []
    for name in sets:
        if not path(name, folder).exists():
            print(f"there is no {path(name).name} at {folder}: give its folder with --data")
            continue
        rows = load(path(name, folder))
        print(f"{name}: {len(rows.y)} rows, {rows.x.shape[1]} inputs")
        wrong, cells = compare(rows, budget)
        missed += [f"{name}: {what}" for what in wrong]
        page.append([name, *cells])
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        f"512 inducing points each, RMSE / MNLP in the units of the files: after {budget:.0f} CPU-seconds svgp has "
        "the smaller RMSE and MNLP, and it needs at most a third of them for GPyTorch's RMSE. Our time includes the "
        "choice of the kernel."
    )
    columns = ["set", "first epoch", "second", "last", "GPyTorch"]
    report(__file__, *([Claim("Regression, beside GPyTorch's SVGP", text, columns, page, missed)] if page else []))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the uci_*.parquet")
    parser.add_argument("--sets", nargs="+", default=["kin40k", "protein"])
    parser.add_argument("--budget", type=float, default=30.0, help="CPU-seconds of either")
    asked = parser.parse_args()
    sys.exit(main(asked.data, asked.sets, asked.budget))
