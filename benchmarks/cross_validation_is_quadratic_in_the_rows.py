"""Claim: an iteration of cv-admm or cv-implicit costs n^2.3 at most, one of ML-II n^2.8 at least, 500 to 4,000 rows.

SE process, inputs in [0, 10] per 500 rows, so that rows have as many neighbours at every size; hold-out of half the
rows; CPU-seconds of one thread, the median of several iterations after the first; exponents are the slope of the
logarithms. An iteration of cv-admm solves for z to 1e-8 or in 30 steps, one of cv-implicit its two systems to 1e-4;
with a preconditioner of at most 100 columns, and without.

    python benchmarks/cross_validation_is_quadratic_in_the_rows.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _report import Claim, report
from _tuning import PROCESSES, Rows, drawn, markdown, start

from streamgp.evidence.admm import AdmmConfig, Augmented
from streamgp.evidence.cross_validated import KernelVector, parts
from streamgp.evidence.implicit import CrossValidatedProblem as Reduced
from streamgp.evidence.implicit import ImplicitConfig
from streamgp.evidence.marginal_likelihood import LikelihoodProblem as Likelihood
from streamgp.evidence.marginal_likelihood import MarginalLikelihoodConfig

SIZES = (500, 1000, 2000, 4000)
MOST, LEAST = 2.3, 2.8
PROCESS = PROCESSES["SE"]


def admm(rows: Rows, **options: Any) -> Callable[[], object]:
    config = AdmmConfig(folds=1, **options)
    kernel, noise = start(PROCESS)
    learned = KernelVector(kernel, noise, config.floor)
    fold = Augmented(learned, rows.x, rows.y, parts(rows.x, config)[0], 2**31, config)
    return lambda: fold.step(0.02)


def implicit(rows: Rows, **options: Any) -> Callable[[], object]:
    problem = Reduced(*start(PROCESS), rows.x, rows.y, ImplicitConfig(folds=1, **options))
    at = problem.learned.read()

    def step() -> None:
        _, slope = problem(at)
        at.sub_(0.02 * slope.sign())

    return step


def likelihood(rows: Rows) -> Callable[[], object]:
    kernel, noise = start(PROCESS)
    problem = Likelihood(kernel, 1, rows.x, rows.y, MarginalLikelihoodConfig())
    at = problem.pack({name: value.detach() for name, value in kernel.named_parameters()}, noise)
    return lambda: problem(at)


WAYS: dict[str, tuple[Callable[[Rows], Callable[[], object]], int]] = {
    "cv-admm": (admm, 8),
    "cv-admm, not preconditioned": (lambda rows: admm(rows, rank=0), 4),
    "cv-implicit": (implicit, 8),
    "cv-implicit, not preconditioned": (lambda rows: implicit(rows, rank=0), 4),
    "ML-II": (likelihood, 2),
}


def seconds(step: Callable[[], object], turns: int) -> float:
    """The median of so many, after a first."""
    spent = []
    for _ in range(turns + 1):
        begun = time.process_time()
        step()
        spent.append(time.process_time() - begun)
    return statistics.median(spent[1:])


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    torch.set_num_threads(1)
    table, held = list[list[str]](), True
    data = {n: drawn(PROCESS, n, n / 50.0, seed=0, held=0) for n in SIZES}
    for way, (prepare, turns) in WAYS.items():
        spent = [seconds(prepare(data[n]), turns if n < 4000 or way != "ML-II" else 1) for n in SIZES]
        slope = float(np.polyfit(np.log(SIZES), np.log(spent), 1)[0])
        good = slope >= LEAST if way == "ML-II" else slope <= MOST
        held = held and good
        wanted = f"{'≥' if way == 'ML-II' else '≤'} {LEAST if way == 'ML-II' else MOST}"
        verdict = "yes" if good else "**no**"
        table.append([way, *(f"{1e3 * each:.1f}" for each in spent), f"{slope:.2f}", wanted, verdict])
        print(table[-1], flush=True)
    print(markdown(["CPU-ms an iteration", *(f"{n:,} rows" for n in SIZES), "exponent", "claimed", "holds"], table))
    missed = [f"{row[0]} {row[-3]}" for row in table if row[-1] != "yes"]
    text = "CPU-milliseconds, SE kernel, half of the rows held out; exponents over these rows (the paper's figure 3)."
    columns = ["method", *(f"{n:,} rows" for n in SIZES), "exponent", "claimed"]
    page = [row[:-1] for row in table]
    report(__file__, Claim("Cost of an iteration", text, columns, page, missed))
    if not held:
        sys.exit(1)


if __name__ == "__main__":
    main()
