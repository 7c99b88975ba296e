"""Claim: a stochastic step of QSGP at m = 10⁷ takes at most 1.3 times that at m = 10⁴, in under 0.6 GB of memory.

8 inputs, blocks of m̃ = 500 random Fourier features, regenerated from a seed; one thread. Each size and engine runs in a
process of its own, three times, sizes in turn; printed are CPU milliseconds a step (the least of 30 times 4 steps, of
all runs) and the process's peak memory, PyTorch's own 0.25 GB included, after 160 steps, a covariance and a prediction
of 100 rows. The engine is dual descent on 2048 rows. Memory is taken as blocks are drawn: a run that draws all of them
at 10⁷ adds 40 MB a column.

    python benchmarks/step_cost_is_flat_in_the_basis.py
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from _report import Claim, report

from streamgp.features import fourier
from streamgp.kernels import squared_exponential
from streamgp.regression.dual_descent import DualDescent

SIZES = (10_000, 1_000_000, 10_000_000)
TIME, MEMORY = 1.3, 0.6
ROUNDS = 3


def measure(size: int) -> tuple[float, float]:
    """CPU seconds a step, peak GB of this process."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2_048, 8, generator=generator, dtype=torch.float64)
    y = torch.sin(x[:, :1]) + 0.1 * torch.randn(2_048, 1, generator=generator, dtype=torch.float64)
    kernel = squared_exponential.build(squared_exponential.Config(lengthscale=2.0), 8)
    features = fourier.build(fourier.Config(size=size, width=500), kernel)
    made = DualDescent(features, 1).begin(0.01)
    rows = made.rows(x, y)
    for _ in range(40):
        made.step(rows)
    taken = []
    for _ in range(30):
        began = time.process_time()
        for _ in range(4):
            made.step(rows)
        taken.append((time.process_time() - began) / 4)
    made.mean(x[:100])
    made.covariance(rows).variance(features, x[:100])
    return min(taken), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def apart(size: int) -> tuple[float, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--one", "--size", str(size)]
    seconds, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return float(seconds), float(peak)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", action="store_true", help="measure one size only, in this process")
    parser.add_argument("--size", type=int, default=SIZES[-1])
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.size)))
        return
    missed: list[str] = []
    runs = [[apart(size) for size in SIZES] for _ in range(ROUNDS)]
    seconds = [min(run[0] for run in same) for same in zip(*runs, strict=True)]
    ratio, peak = seconds[-1] / seconds[0], max(run[-1][1] for run in runs)
    if ratio > TIME or peak >= MEMORY:
        missed.append(f"{ratio:.2f} times, {peak:.3f} GB")
    for size, taken in zip(SIZES, seconds, strict=True):
        print(f"m = {size:<12,}{1e3 * taken:10.2f} ms a step")
    print(f"largest/smallest {ratio:.2f}, peak {peak:.3f} GB at the largest")
    page = [["dual, on drawn blocks", f"{1e3 * seconds[0]:.2f}", f"{1e3 * seconds[-1]:.2f}", f"{ratio:.2f}"]]
    print(f"claimed: at most {TIME} times, under {MEMORY} GB: {'NOT held' if missed else 'held'}")
    text = (
        f"A step at 10⁷ functions takes at most {TIME} times that at 10⁴ (CPU-milliseconds), in under {MEMORY} GB "
        f"({peak:.3f})."
    )
    report(__file__, Claim("Cost of a stochastic step", text, ["step", "10⁴ functions", "10⁷", "ratio"], page, missed))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
