"""Claim: a step of every method costs O(d³ + |b|d²) time and O(d² + |b|d) memory beside the features' own.

Features of normal numbers in float64, one column, one thread. Time: CPU milliseconds of `Estimator.estimate` (and
`ascend`), the least of some, at |b| = 64 for growing d and at d = 128 for growing |b|; the exponents are those between
the largest sizes. Memory: growth of the process's peak, each size in a process of its own
(Linux; LAPACK's workspace is in it).

    python benchmarks/finite_rkhs_step_costs.py
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import torch
from _report import Claim, report

from streamgp.base import FLOAT
from streamgp.models.finite_rkhs.training import FiniteTrainingConfig, estimator
from streamgp.objectives.finite_evidence import statistics
from streamgp.papers.finite_rkhs import ldb, minimax
from streamgp.training import finite_head
from streamgp.training.finite_head import FiniteHead, Scgd

METHODS = ("scgd", "minimax", "ldb", "bsgd", "none")
WIDTHS, SIZES = (128, 256, 512, 1024), (64, 512, 2048)
MEMORY_WIDTHS, MEMORY_SIZES = (512, 1024), (4096, 16384)
TIME_LIMITS, MEMORY_LIMITS = (3.3, 1.2), (2.2, 1.2)
"""Largest exponents in d and in |b|: caches add to what operations count."""


def measure(name: str, width: int, batch: int, repeats: int) -> tuple[float, float]:
    """Least CPU milliseconds of a step, growth of the peak in MB."""
    torch.set_num_threads(1)
    finite_head.EVERY = minimax.EVERY = ldb.EVERY = 1  # every cubic step is taken
    generator, total = torch.Generator().manual_seed(0), 10 * max(batch, width)
    warm = torch.randn(8, 8, dtype=FLOAT)
    torch.linalg.eigh(warm @ warm.T)
    torch.cholesky_inverse(torch.linalg.cholesky(warm @ warm.T + torch.eye(8)))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew, from what is resident now
    base = peak()
    method = estimator(FiniteTrainingConfig.model_validate({"method": name})) or Scgd(0.1)
    head = FiniteHead(width, 1)
    phi = torch.randn(batch, width, generator=generator, dtype=FLOAT)
    y = torch.randn(batch, 1, generator=generator, dtype=FLOAT)
    if method.looks:
        data = statistics([(phi, y)])
        eye = torch.eye(width, dtype=FLOAT) * float(total)
        method.begin(data._replace(gram=eye, rows=total), head)
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        method.estimate(phi, y, head, total)
        if method.ascends:
            method.ascend(phi, head, total)
        taken.append(time.process_time() - began)
    return 1e3 * min(taken), peak() - base


def peak() -> float:
    """Largest resident memory of this process, MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return float(line.split()[1]) / 1e3
    raise SystemExit("the peak of a process's memory is read from /proc/self/status, which has none here")


def apart(name: str, width: int, batch: int) -> float:
    """Memory of `measure` in a process of its own."""
    command = [sys.executable, __file__, "--method", name, "--width", str(width), "--batch", str(batch)]
    found: float = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[1]
    return found


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """Slope in logarithms between the last two."""
    return math.log(max(values[-1], 1e-9) / max(values[-2], 1e-9)) / math.log(sizes[-1] / sizes[-2])


def times() -> tuple[list[list[str]], list[str]]:
    """The table of times; what does not hold."""
    missed: list[str] = []
    page = []
    print(
        "ms a step        "
        + "".join(f"  d={d:<6}" for d in WIDTHS)
        + "power  "
        + "".join(f"  b={b:<6}" for b in SIZES)
        + "power"
    )
    for name in METHODS:
        by_width = [measure(name, d, 64, 12 if d < 1024 else 5)[0] for d in WIDTHS]
        by_size = [measure(name, 128, b, 12)[0] for b in SIZES]
        powers = (exponent(WIDTHS, by_width), exponent(SIZES, by_size))
        if any(power > limit for power, limit in zip(powers, TIME_LIMITS, strict=True)):
            missed.append(f"{name}: powers of time {powers[0]:.2f}, {powers[1]:.2f}")
        ends = [f"{value:.3g}" for value in (by_width[0], by_width[-1])]
        page.append([name, *ends, f"{powers[0]:.2f}", f"{powers[1]:.2f}"])
        cells = "".join(f"{v:10.3f}" for v in by_width) + f"{powers[0]:7.2f}"
        print(
            f"{name:17}{cells}" + "".join(f"{v:10.3f}" for v in by_size) + f"{powers[1]:7.2f}",
            flush=True,
        )
    return page, missed


def memory() -> list[str]:
    """The table of memory; what does not hold."""
    missed: list[str] = []
    print(
        "peak MB          "
        + "".join(f"  d={d:<6}" for d in MEMORY_WIDTHS)
        + "power  "
        + "".join(f"  b={b:<6}" for b in MEMORY_SIZES)
        + "power"
    )
    for name in METHODS:
        if name == "minimax":
            continue  # its eigendecomposition has a workspace of its own
        by_width = [apart(name, d, 64) for d in MEMORY_WIDTHS]
        by_size = [apart(name, 128, b) for b in MEMORY_SIZES]
        powers = (exponent(MEMORY_WIDTHS, by_width), exponent(MEMORY_SIZES, by_size))
        if any(power > limit for power, limit in zip(powers, MEMORY_LIMITS, strict=True)):
            missed.append(f"{name}: powers of memory {powers[0]:.2f}, {powers[1]:.2f}")
        cells = "".join(f"{v:10.1f}" for v in by_width) + f"{powers[0]:7.2f}" + "".join(f"{v:10.1f}" for v in by_size)
        print(f"{name:17}{cells}{powers[1]:7.2f}", flush=True)
    return missed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=METHODS, help="measure this one only, in this process")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()
    if arguments.method:
        print(json.dumps(measure(arguments.method, arguments.width, arguments.batch, 3)))
        return
    page, missed = times()
    missed += memory()
    verdict = "NOT held" if missed else "held"
    print(f"claimed: powers of d and |b| at most {TIME_LIMITS} in time, {MEMORY_LIMITS} in memory: {verdict}")
    text = (
        f"Time grows at most with the power {TIME_LIMITS[0]} of the features d and {TIME_LIMITS[1]} of the rows, "
        f"memory with {MEMORY_LIMITS[0]} and {MEMORY_LIMITS[1]}. CPU-milliseconds with every cubic step taken; the "
        "default takes every eighth."
    )
    columns = ["method", f"d = {WIDTHS[0]}", f"{WIDTHS[-1]:,}", "power of d", "of rows"]
    report(__file__, Claim("Cost of a step", text, columns, page, missed))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
