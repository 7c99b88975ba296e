"""Claim: a deep kernel on our grid head trains at least 8 times faster than GPyTorch's DKL with SKI, and predicts flat.

The same encoder from the same weights, the same 32×32 grid for latents in [−1, 1]², the same starting θ, one thread,
one after the other in the same run, CPU-seconds:

    epoch          n = 10⁴: ours (refresh, θ-steps, mini-batches of 128 over all rows) against one full-batch step of
                   theirs, mlp and lstm encoders; >= 8. And ours at n = 10⁵ over n = 10⁴; <= 12
    equal NLML     n = 6000: theirs trains; ours (mini-batches of 64) trains until its NLML is as good as their best;
                   >= 10. Both judged by the same dense exact GP (float64) at the latents, which is not timed
    prediction     µs a row: training rows 10³ … 10⁵, the slowest over the fastest, and a batch of 10⁵ over one of 10³
                   (small batches pay a fixed part of a millisecond); <= 1.3
    memory         of predicting 10⁵ rows, beyond what is asked and answered, over that of 10⁴ rows; <= 4 MB more
    figure 7       of Al-Shedivat et al. (2017): epochs against n, for grids of 16², 32² and 48² (no claim)

Theirs has GPyTorch's default settings, in float32 and float64. Ours is float64, the lstm's steps float32.

    python benchmarks/deep_kernels_train_faster_than_ski.py [--parts epoch nlml ...]

About 20 minutes part by part on a shared machine, most of them GPyTorch's.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from _report import Claim, report
from _sequences import CPU, markdown
from _speed import LAYOUT, Ours, Peer, Rows, clocked, nlml, rows, seconds, turns

from streamgp.base import Inputs, Model, Shape
from streamgp_pipelines.assembly import build_model

SHAPE = Shape(targets=("y",), horizon=1, lags=LAYOUT.lags, past=("y", "u"), future=())
SIZES = (1000, 10_000, 100_000)
LIMITS = {"epoch": 8.0, "growth": 12.0, "nlml": 10.0, "flat": 1.3, "memory": 4.0}
BATCH = 128
"""Rows of our mini-batches where an epoch is compared: the optimiser's default. The models' is 64."""
DEFAULT = 64
"""Of the models; nothing is claimed with these."""
PEER_STEPS, EVERY, MOST = 40, 10, 40
"""Steps of theirs, steps between two judgements of it, and epochs of ours after which it has lost."""

TEXT = (
    "Beside GPyTorch's deep kernel with SKI, in the faster of float32 and float64: the same encoder (mlp or lstm), "
    f"grid and start, its default settings; one made system, one seed. Mini-batches have {BATCH} rows; "
    f"with {DEFAULT}, the default, lstm's epoch misses the limit."
)

Verdicts = list[tuple[str, float, float, bool]]
"""What is claimed, measured, its limit (nan: nothing is claimed), whether it is a least one."""


def epoch(verdicts: Verdicts) -> str:
    """Epochs at 10⁴ rows, and ours at 10⁵."""
    table: list[list[str]] = []
    data = rows(SIZES[1])
    for net in ("mlp", "lstm"):
        ours = {batch: statistics.median(seconds(Ours(data, net, batch).epoch, 7)) for batch in (DEFAULT, BATCH, 256)}
        theirs = {
            name: statistics.median(seconds(Peer(data, net, dtype).epoch, 3))
            for name, dtype in (("float32", torch.float32), ("float64", torch.float64))
        }
        fastest = min(theirs.values())
        for batch, mine in ours.items():
            table.append([net, str(batch), *(f"{t:.3f}" for t in (mine, *theirs.values())), f"{fastest / mine:.1f}"])
        verdicts.append((f"epoch at 10,000 rows, {net}, times faster", fastest / ours[BATCH], LIMITS["epoch"], True))
        verdicts.append((f"the same in mini-batches of {DEFAULT}, {net}", fastest / ours[DEFAULT], math.nan, True))
    long = rows(SIZES[2])
    for net in ("mlp", "lstm"):
        few, many = (statistics.median(seconds(Ours(part, net, BATCH).epoch, 3)) for part in (data, long))
        verdicts.append((f"epoch at 100,000 rows over 10,000, {net}", many / few, LIMITS["growth"], False))
    head = ["encoder", "our batch", "ours, s", "GPyTorch float32, s", "float64, s", "times faster than its faster one"]
    return "An epoch at 10,000 rows, CPU-seconds.\n\n" + markdown(head, table)


def equal_nlml(verdicts: Verdicts) -> str:
    """Time to GPyTorch's best NLML."""
    data, table, best = rows(6000), [], (float("inf"), 0.0)
    for rate in (0.01, 0.03):
        peer, spent = Peer(data, "mlp", torch.float32, rate), 0.0
        for step in range(0, PEER_STEPS, EVERY):
            spent += sum(clocked(peer.epoch, EVERY))
            value = nlml(peer.judged(), data)
            table.append([f"GPyTorch, rate {rate:g}", f"{step + EVERY} steps", f"{spent:.2f}", f"{value:.4f}"])
            best = min(best, (value, spent))
    ours, spent, value = Ours(data, "mlp"), 0.0, float("inf")
    for done in range(1, MOST + 1):
        spent += sum(clocked(ours.epoch, 1))
        value = nlml(ours.judged(), data)
        table.append(["ours", f"{done} epochs", f"{spent:.2f}", f"{value:.4f}"])
        if value <= best[0]:
            break
    ratio = best[1] / spent if value <= best[0] else 0.0
    verdicts.append(("time to equal NLML at 6,000 rows, times shorter", ratio, LIMITS["nlml"], True))
    head = ["", "after", "CPU-s", "NLML a row, nats"]
    return "NLML of the exact GP at the latents, 6,000 rows, mlp.\n\n" + markdown(head, table)


def model(count: int) -> tuple[Model, Inputs]:
    """A gp_narx fitted for one epoch on so many rows, and its windows."""
    data = rows(count)
    x = windows(data)
    built = build_model("gp_narx", {"pretrain": 0, "training": {"batch": 256}}, SHAPE, CPU, 0)
    for _ in built.fit(x, data.y[:, None], 1):
        pass
    return built, x


def windows(data: Rows) -> Inputs:
    """As a model gets them."""
    return Inputs(data.z.unflatten(1, (LAYOUT.lags, LAYOUT.past)), torch.zeros(len(data.z), 1, 0, dtype=data.z.dtype))


def prediction(verdicts: Verdicts) -> str:
    """µs a row: medians of calls that take turns."""
    few, asked = Ours(rows(SIZES[0]), "mlp"), rows(SIZES[-1])
    few.epoch()
    learned = [few.predicts(rows(count), asked.z[: SIZES[1]]) for count in SIZES]
    by_training = [1e6 * spent / SIZES[1] for spent in turns(learned)]
    built, _ = model(SIZES[1])
    x = windows(asked)
    answers = [asking(built, x.rows(slice(0, size))) for size in SIZES]
    by_batch = [1e6 * spent / size for spent, size in zip(turns(answers), SIZES, strict=True)]
    flat = max(by_training) / min(by_training)
    verdicts.append(("prediction a row, training rows 1,000 to 100,000", flat, LIMITS["flat"], False))
    grown = by_batch[-1] / by_batch[0]
    verdicts.append(("prediction a row, batch of 100,000 over 1,000", grown, LIMITS["flat"], False))
    table = [
        ["encoder and head, same weights and θ, by training rows", *(f"{cell:.2f}" for cell in by_training)],
        ["gp_narx whole, by rows in a batch", *(f"{cell:.2f}" for cell in by_batch)],
    ]
    return "Prediction, CPU-µs a row.\n\n" + markdown(["", *(f"{size:,}" for size in SIZES)], table)


def asking(built: Model, x: Inputs) -> Callable[[], object]:
    """A prediction to be timed."""
    return lambda: built.predict(x)


def memory(verdicts: Verdicts) -> str:
    """Peak resident memory of one prediction, each in a process of its own."""
    grown = {}
    for size in SIZES:
        own = [sys.executable, __file__, "--child", str(size)]
        grown[size] = float(subprocess.run(own, check=True, capture_output=True, text=True).stdout)
    verdicts.append(
        ("memory of predicting 100,000 rows over 10,000, MB", grown[SIZES[2]] - grown[SIZES[1]], 4.0, False)
    )
    table = [[f"{size:,}", f"{size * LAYOUT.width * 8e-6:.1f}", f"{held:.1f}"] for size, held in grown.items()]
    head = ["rows", "of inputs, MB", "grown beyond inputs and answers, MB"]
    return "Peak resident memory of one prediction.\n\n" + markdown(head, table)


def child(size: int) -> None:
    """Print the MB that a prediction of `size` rows adds at its peak, less its answer."""
    built, x = model(2000)
    asked = windows(rows(size))
    built.predict(x)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here (Linux)
    before = status("VmRSS")
    answer = built.predict(asked)
    print(status("VmHWM") - before - 1e-6 * sum(part.nbytes for part in answer.parameters()))


def status(name: str) -> float:
    """MB, of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1.024e-3 * next(float(line.split()[1]) for line in lines if line.startswith(name))


def figure(verdicts: Verdicts) -> str:
    """Figure 7: time against rows and grid."""
    del verdicts
    table = []
    sizes = (1000, 3000, 10_000, 30_000, 100_000)
    parts = [rows(size) for size in sizes]
    for grid in (16, 32, 48):
        epochs = []
        for part in parts:
            ours = Ours(part, "mlp", grid=grid)
            epochs.append(statistics.median(seconds(ours.epoch, 3)))
        per_row = 1e6 * statistics.median(seconds(ours.predicts(parts[2], parts[2].z), 5)) / sizes[2]
        table.append([f"{grid}²", *(f"{t:.3f}" for t in epochs), f"{per_row:.2f}"])
    head = ["grid", *(f"{size:,} rows" for size in sizes), "prediction, µs a row"]
    return "Figure 7, ours: an epoch, CPU-seconds (mlp, batch 64).\n\n" + markdown(head, table)


PARTS = {"epoch": epoch, "nlml": equal_nlml, "prediction": prediction, "memory": memory, "figure": figure}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.child:
        child(asked.child)
        return
    verdicts: Verdicts = []
    texts = []
    for name in asked.parts:
        texts.append(PARTS[name](verdicts))
        print(texts[-1], "\n", flush=True)
    held = [
        math.isnan(limit) or ((value >= limit) if least else (value <= limit)) for _, value, limit, least in verdicts
    ]
    table = [
        [claim, f"{value:.2f}", "", ""]
        if math.isnan(limit)
        else [claim, f"{value:.2f}", f"{'≥' if least else '≤'} {limit:g}", "yes" if good else "**no**"]
        for (claim, value, limit, least), good in zip(verdicts, held, strict=True)
    ]
    texts.insert(0, markdown(["claim", "measured", "limit", "holds"], table))
    print(texts[0])
    missed = [f"{row[0]}: {row[1]}" for row, good in zip(table, held, strict=True) if not good]
    report(__file__, Claim("Speed", TEXT, ["claim", "measured", "limit"], [row[:3] for row in table], missed))
    if not all(held):
        sys.exit(1)


if __name__ == "__main__":
    main()
