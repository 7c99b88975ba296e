"""Claim: cv-implicit tunes to within 2 % of ML-II's test error in at most half its time from 1,000 rows on.

The layout of table 1 of Xu et al. (2019): draws from SE, LP and SE+LP processes, inputs in [0, 10] for 500 rows and in
[0, 20] above, Monte Carlo; beside the paper's numbers for GPCV-ADMM and for the GPML toolbox. All hyper-parameters are
tuned, variances and noise too, from the same start. CPU-seconds, one thread; test error is of 500 targets with noise,
by the exact GP on all rows. ADMM is the paper's naive two-fold scheme with at most 100 iterations. Beside it figure 2:
the convergence of one fold, of one draw from the SE process, whose lengthscale is claimed to be within a tenth of its
last value from iteration 50 on, with 500 rows as with 1,000; and from which iteration on that holds in ten draws.

    python benchmarks/cross_validation_tunes_as_well_as_likelihood_in_less_time.py --trials 50 6 2 --admm 10 2 1
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _report import Claim, report
from _tuning import NOISE, PROCESSES, admm, drawn, error, implicit, likelihood, markdown, start, tied, tuned_kernel

from streamgp.evidence.admm import LAST, RATE, AdmmConfig, AdmmRun, Augmented
from streamgp.evidence.cross_validated import KernelVector

SIZES = {500: 10.0, 1000: 20.0, 2000: 20.0}
"""Rows, and the range of their inputs."""
WAYS: dict[str, Any] = {"ML-II": likelihood, "cv-implicit": implicit, "cv-admm": admm}
PAPER = {  # test MSE of GPCV-ADMM and GPML, and their estimates
    "SE": {500: ("0.12, 0.13", "0.46; 0.52"), 1000: ("0.12, 0.14", "0.50; 0.50"), 2000: ("0.12, 0.14", "0.50; 0.53")},
    "LP": {
        500: ("0.13, 0.36", "0.34 1.13; 0.55 1.06"),
        1000: ("0.17, 0.44", "0.39 1.06; 0.52 1.16"),
        2000: ("0.26, 0.28", "0.44 1.19; 0.53 1.02"),
    },
    "SE+LP": {
        500: ("0.18, 0.21", "3.73 0.94 2.38; 3.62 1.08 2.38"),
        1000: ("0.13, 0.15", "3.74 0.95 2.14; 3.61 1.05 2.27"),
        2000: ("0.34, 0.37", "3.94 0.99 2.10; 3.69 1.09 2.13"),
    },
}
MARGIN, SHARE = 1.02, 0.5
CLAIMED = ("ML-II", "cv-implicit")
ITERATIONS, MARKS = 100, (1, 2, 5, 10, 20, 50, 75, 100)
"""Of figure 2, and those that are printed."""
DRAWS, NEAR = 10, 0.1
"""Of figure 2's process, and how near the lengthscale's last value is near."""


def trial(name: str, n: int, seed: int, ways: Sequence[str]) -> dict[str, Any]:
    """Of each way: estimates, test error, CPU-seconds, evaluations."""
    process = PROCESSES[name]
    rows, found = drawn(process, n, SIZES[n], seed), dict[str, Any]()
    for way in ways:
        got = WAYS[way](process, rows)
        values = [float(got.kernel[part].exp()) for part in process.shown]
        mse = error(tuned_kernel(tied(process.start), got), got.noise, rows)
        found[way] = {
            "values": values,
            "noise": float(got.noise),
            "mse": mse,
            "seconds": got.seconds,
            "evaluations": got.evaluations,
        }
    return found


def course(n: int, seed: int) -> tuple[list[float], list[list[str]]]:
    """Lengthscales of Algorithm 1 on one fold of one draw from the SE process, and the rows of figure 2's table."""
    process, rows = PROCESSES["SE"], list[list[str]]()
    drawn_rows = drawn(process, n, SIZES[n], seed)
    kernel, log_noise = start(process)
    config = AdmmConfig(folds=1, iterations=ITERATIONS)
    (split,) = AdmmRun(kernel, log_noise, drawn_rows.x, drawn_rows.y, config).splits
    learned = KernelVector(kernel, log_noise, config.floor)
    own = Augmented(learned, drawn_rows.x, drawn_rows.y, split, int(2**30 * config.memory), config)
    lengths = list[float]()
    for done in range(ITERATIONS):
        own.step(RATE * (LAST + (1.0 - LAST) * 0.5 * (1.0 + math.cos(math.pi * done / ITERATIONS))))
        lengths.append(float(learned.kernel.log_lengthscale.detach().exp()))  # type: ignore[operator, union-attr]
        if done + 1 not in MARKS:
            continue
        fold, z = own.fold, own.fitted
        off = fold.product(z) - fold.y_fitted
        gap = z - fold.solve(fold.y_fitted, tolerance=1e-8, iterations=1000).value
        held = fold.error(z).square().sum()
        value = held + (own.dual * off).sum() + 0.5 * config.rho * off.square().sum()
        rows.append(
            [f"{n:,}", str(done + 1), f"{lengths[-1]:.3f}", f"{z.norm():.1f}", f"{gap.square().sum():.3g}",
             f"{float(held) / own.values:.4f}", f"{float(value) / own.values:.4f}"]
        )  # fmt: skip
    return lengths, rows


def convergence() -> list[Claim]:
    """Figure 2, and from which iteration on the lengthscale stays where it ends, in further draws."""
    rows, settled, missed = list[list[str]](), list[list[str]](), list[str]()
    for n in (500, 1000):
        since = list[int]()
        for seed in range(DRAWS):
            lengths, marks = course(n, seed)
            off = [abs(length / lengths[-1] - 1.0) for length in lengths]
            since.append(1 + max((done + 1 for done, part in enumerate(off) if part > NEAR), default=0))
            if seed == 0:
                rows += marks
                worst = max(range(ITERATIONS // 2, ITERATIONS), key=lambda done: off[done])
                missed += [f"{n:,} rows: {off[worst]:.4f} at iteration {worst + 1}"] * (off[worst] > NEAR)
        early = sum(first <= ITERATIONS // 2 + 1 for first in since)
        cells = [f"{statistics.median(since):g}", str(min(since)), str(max(since)), f"{early} of {DRAWS}"]
        settled.append([f"{n:,}", *cells])
    text = (
        "One fold of one draw from the SE process, started at a lengthscale of 1: ‖z‖, the gap ‖z − C⁻¹y‖², the error "
        "of the rows held out and the augmented Lagrangian, a value held out. Claimed: from iteration 50 on the "
        "lengthscale is within a tenth of its last value, with 500 rows as with 1,000."
    )
    columns = ["rows", "iteration", "lengthscale", "‖z‖", "gap", "error held out", "Lagrangian"]
    about = (
        f"From which iteration on the lengthscale is within a tenth of its last value, in {DRAWS} draws. The paper "
        "shows one, and says that the iterations needed do not grow with the rows. Nothing is claimed: the iteration "
        "50 that is claimed of one draw is about the median of all, so that draws pass it or do not."
    )
    heads = ["rows", "median", "least", "most", "within it after 50"]
    return [
        Claim("Figure 2: convergence", text, columns, rows, missed),
        Claim("Figure 2: further draws", about, heads, settled, None),
    ]


def spread(values: Sequence[float]) -> str:
    """The median, and the spread of the middle half as a standard deviation."""
    if len(values) < 4:
        return f"{statistics.median(values):.2f}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({(high - low) / 1.349:.2f})"


def mean_and_deviation(values: Sequence[float]) -> str:
    """As the paper's table 1 has estimates."""
    spread = f" ({statistics.stdev(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, nargs=3, default=[10, 3, 1], help="for 500, 1,000 and 2,000 rows")
    parser.add_argument("--admm", type=int, nargs=3, default=[3, 1, 0], help="of these, with ADMM, which is slower")
    parser.add_argument("--kept", type=Path, help="a file of trials done, which is gone on with")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    done: dict[str, Any] = json.loads(asked.kept.read_text()) if asked.kept and asked.kept.exists() else {}
    table, held, estimates = list[list[str]](), True, list[list[str]]()
    missed: list[str] = []
    shares: list[str] = []
    for n, trials, slow in zip(SIZES, asked.trials, asked.admm, strict=True):
        for name in PROCESSES:
            for seed in range(trials):
                key = f"{name} {n} {seed}"
                wanted = [way for way in WAYS if way != "cv-admm" or seed < slow]
                missing = [way for way in wanted if way not in done.get(key, {})]
                if missing:
                    done[key] = {**done.get(key, {}), **trial(name, n, seed, missing)}
                    if asked.kept:
                        asked.kept.write_text(json.dumps(done))
            for way in WAYS:
                runs = [done[f"{name} {n} {seed}"][way] for seed in range(slow if way == "cv-admm" else trials)]
                if not runs:
                    continue
                values = " ".join(spread(each) for each in zip(*(run["values"] for run in runs), strict=True))
                mse = statistics.mean(run["mse"] for run in runs)
                seconds = statistics.mean(run["seconds"] for run in runs)
                theirs = PAPER[name][n] if way == "ML-II" else ("", "")
                count = statistics.mean(run["evaluations"] for run in runs)
                noise = spread([run["noise"] for run in runs])
                parts = [mean_and_deviation(each) for each in zip(*(run["values"] for run in runs), strict=True)]
                sigma = mean_and_deviation([run["noise"] for run in runs])
                which = {"ML-II": 1, "cv-admm": 0}.get(way)
                paper = "" if which is None else PAPER[name][n][1].split("; ")[which]
                estimates.append([f"{name}, {n:,}", way, str(len(runs)), ", ".join(parts), sigma, paper])
                table.append(
                    [
                        name,
                        f"{n:,}",
                        way,
                        str(len(runs)),
                        values,
                        noise,
                        f"{mse:.4f}",
                        f"{seconds:.2f}",
                        f"{count:.0f}",
                        *theirs,
                    ]
                )
            pairs = [done[f"{name} {n} {seed}"] for seed in range(trials)]
            if n >= 1000 and pairs:
                sums = {(w, key): sum(p[w][key] for p in pairs) for w in CLAIMED for key in ("mse", "seconds")}
                worse = sums["cv-implicit", "mse"] / sums["ML-II", "mse"]
                longer = sums["cv-implicit", "seconds"] / sums["ML-II", "seconds"]
                good = worse <= MARGIN and longer <= SHARE
                held = held and good
                shares.append(f"{worse:.3f} of the error in {longer:.3f} of the time ({name}, {n:,} rows)")
                missed += [] if good else [shares[-1]]
                print(
                    f"{name}, {n} rows: test error {worse:.3f} of ML-II's (at most {MARGIN}), "
                    f"time {longer:.3f} of it (at most {SHARE}): {'holds' if good else 'MISSED'}"
                )
    head = ["process", "rows", "way", "trials", "estimates", "noise", "test MSE", "CPU-s", "evaluations"]
    print(f"\nNoise drawn: {NOISE}.\n")
    print(markdown([*head, "paper's MSE: ADMM, GPML", "its estimates: ADMM; GPML"], table))
    by: dict[str, dict[str, list[str]]] = {}
    for row in table:
        by.setdefault(f"{row[0]}, {row[1]}", {})[row[2]] = row
    page = [
        [key, *(found[way][k] if way in found else "" for k in (6, 7) for way in WAYS)] for key, found in by.items()
    ]
    text = "; ".join(
        ["cv-implicit has a test error within 2 % of ML-II's in at most half of its time from 1,000 rows on", *shares]
    )
    columns = ["process, rows", *(f"{what}, {way}" for what in ("MSE", "CPU-s") for way in WAYS)]
    drawn_from = "; ".join(
        f"{name}: {', '.join(f'{tied(process.true).state_dict()[part].exp().item():g}' for part in process.shown)}"
        for name, process in PROCESSES.items()
    )
    about = (
        "Lengthscales, then the period: means of what was found over draws, standard deviations in brackets. Drawn: "
        f"{drawn_from}; noise {NOISE}. The paper's are of 50 draws. Nothing is claimed."
    )
    names = ["process, rows", "method", "draws", "estimates", "noise variance", "the paper's estimates"]
    figure2 = convergence()
    for one in figure2:
        print(markdown(list(one.columns), [list(row) for row in one.rows]))
    report(
        __file__,
        Claim("Test error and time", f"{text}.", columns, page, missed if shares else None),
        Claim("Estimates", about, names, estimates, None),
        *figure2,
    )
    if not held or figure2[0].missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
