"""Marginal likelihood beside cross-validation where the model is right, and where it is not: made-up functions of one
input, an SE kernel, 120 rows to learn from, 400 others to score; `auto` chooses by the density of each row given all
others, under what either found on all rows.

    SE           a draw of the kernel itself, Gaussian noise: the model is right
    rough        a draw of a Matérn-1/2 kernel: the kernel is wrong
    steps        a function with jumps: the kernel is wrong
    heavy tails  an SE draw, noise of Student's t with 2 degrees of freedom
    uneven noise an SE draw, noise whose standard deviation grows tenfold over the input
    overlapping  an SE draw, noise that is correlated between neighbours
    smoother     a draw of a Matérn-3/2 kernel: the kernel is wrong
    sawtooth     a periodic function with jumps: the kernel is wrong
    outliers     an SE draw, one row in twelve with eight times the noise
    Laplace      an SE draw, noise of Laplace's distribution

Errors are those of the function without its noise, over its standard deviation, NLPD that of noisy values (heavy tails
make it large for both). How `auto` chooses was settled on SE, steps and heavy tails with other seeds, 200 to 211; the
last four streams were never looked at before. Claimed: where the model is right ML-II has the lower NLPD; `auto` has
an NLPD of at most 0.02 nats above the better one's mean on every stream. Heavy tails are looked at further: noise of
infinite variance has no expected NLPD under a Gaussian, so a mean over draws is its largest row's.

    python benchmarks/when_cross_validation_tunes_better.py [--draws 10] [--rows 120] [--kept FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from _report import Claim, report
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.evidence.admm import AdmmConfig, cv_admm
from streamgp.evidence.implicit import ImplicitConfig, cv_implicit
from streamgp.evidence.marginal_likelihood import MarginalLikelihoodConfig, maximise
from streamgp.evidence.tuned import Tuned
from streamgp.kernels import Tied, matern, squared_exponential
from streamgp.papers.gpcv_admm.held_out import Way, choose

HELD, LENGTH, NOISE = 400, 10.0, 0.3
"""Rows to score, length of the input in lengthscales, standard deviation of the noise."""
STREAMS = ("SE", "rough", "steps", "heavy tails", "uneven noise", "overlapping")
OTHERS = ("smoother", "sawtooth", "outliers", "Laplace")
"""Which only confirm."""
NEAR = 0.02
BLOCKS = 3
"""Of so many draws of heavy tails as `--draws` says; the first is that of the claim."""


class Draw(NamedTuple):
    """Inputs (n, 1), noisy targets (n, 1) standardised by the first rows, the function (n, 1); rows to learn first."""

    x: Tensor
    y: Tensor
    function: Tensor


def drawn(stream: str, rows: int, seed: int) -> Draw:
    """One function and its noise."""
    generator = torch.Generator().manual_seed(seed)
    count = rows + HELD
    x = LENGTH * torch.rand(count, 1, generator=generator, dtype=FLOAT)
    nu: Literal[0.5, 1.5] | None = 0.5 if stream == "rough" else 1.5 if stream == "smoother" else None
    plain = squared_exponential.build(squared_exponential.Config(), 1)
    kernel = plain if nu is None else matern.build(matern.Config(nu=nu), 1)
    with torch.no_grad():
        root = torch.linalg.cholesky(kernel(x, x) + 1e-8 * torch.eye(count, dtype=FLOAT))
    function = root @ torch.randn(count, 1, generator=generator, dtype=FLOAT)
    if stream == "steps":
        heights = torch.randn(6, generator=generator, dtype=FLOAT)
        function = heights[(x[:, 0] / LENGTH * 6).long().clamp(max=5), None]
    if stream == "sawtooth":
        function = 3.0 * (4.0 * x / LENGTH % 1.0) - 1.5
    noise = torch.randn(count, 1, generator=generator, dtype=FLOAT)
    if stream == "outliers":
        noise = torch.where(torch.rand(count, 1, generator=generator, dtype=FLOAT) < 1 / 12, 8.0 * noise, noise)
    if stream == "Laplace":
        noise = noise.sign() * torch.empty(count, 1, dtype=FLOAT).exponential_(2.0**0.5, generator=generator)
    if stream == "heavy tails":
        squares = torch.randn(count, 2, generator=generator, dtype=FLOAT).square().sum(1, keepdim=True)
        noise = 0.5 * noise / (squares / 2).sqrt()
    if stream == "uneven noise":
        noise = noise * 0.3 * 10.0 ** (x / LENGTH)
    if stream == "overlapping":
        order = x[:, 0].argsort()
        steady, value = noise[order].clone(), noise.new_zeros(1)
        for place in range(count):
            value = 0.9 * value + 0.19**0.5 * steady[place]
            steady[place] = value
        noise[order] = steady
    y = function + NOISE * noise
    location, scale = y[:rows].mean(), y[:rows].std()
    return Draw((x - x[:rows].mean()) / x[:rows].std(), (y - location) / scale, (function - location) / scale)


def likelihood(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor) -> Tuned:
    return maximise(kernel, log_noise, x, y, MarginalLikelihoodConfig(restarts=1, noise="shared"))


def implicit(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor) -> Tuned:
    return cv_implicit(kernel, log_noise, x, y, ImplicitConfig(restarts=1))


def admm(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor) -> Tuned:
    return cv_admm(kernel, log_noise, x, y, AdmmConfig(iterations=100))


def kept(found: Tuned, *_: object) -> Tuned:
    """What a way found before, on the same rows."""
    return found


WAYS: dict[str, Way] = {"ML-II": likelihood, "cv-implicit": implicit}
NAMES = (*WAYS, "auto")


@torch.no_grad()
def scored(tuned: Tuned, kernel: Tied, data: Draw, rows: int) -> tuple[float, float]:
    """Error of the function over its standard deviation, and NLPD of what was seen, of rows not learned."""
    one = Tied(kernel.config, kernel.groups, kernel.unit)
    one.load_state_dict(tuned.kernel)
    x, y, held = data.x[:rows], data.y[:rows], data.x[rows:]
    lower = torch.linalg.cholesky(one(x, x) + tuned.noise * torch.eye(rows, dtype=FLOAT))
    half = torch.linalg.solve_triangular(lower, one(x, held), upper=False)
    mean = half.T @ torch.linalg.solve_triangular(lower, y, upper=False)
    variance = (one.diagonal(held) - half.square().sum(0) + tuned.noise)[:, None]
    nlpd = 0.5 * ((data.y[rows:] - mean).square() / variance + (2 * math.pi * variance).log()).mean()
    error = (mean - data.function[rows:]).square().mean().sqrt() / data.function[rows:].std()
    return float(error), float(nlpd)


def draw(stream: str, rows: int, seed: int, ways: Mapping[str, Way]) -> dict[str, Any]:
    """Of each way its scores, and as "auto" the way that was chosen."""
    data = drawn(stream, rows, seed)
    kernel = Tied(squared_exponential.Config(), torch.zeros(1, dtype=torch.int64))
    start = torch.tensor([0.1], dtype=FLOAT).log()
    x, y = data.x[:rows], data.y[:rows]
    tuned = {name: way(kernel, start, x, y) for name, way in ways.items()}
    best = choose({name: partial(kept, one) for name, one in tuned.items()}, kernel, start, x, y)
    scores = {name: scored(one, kernel, data, rows) for name, one in tuned.items()}
    return {**scores, "auto": best.judged[0][0]}


def gap(found: Sequence[Mapping[str, Any]]) -> float:
    """NLPD of `auto` over that of the better way, in nats, means over draws."""
    means = {name: statistics.fmean(one[name][1] for one in found) for name in WAYS}
    return statistics.fmean(one[one["auto"]][1] for one in found) - min(means.values())


def tails(found: Sequence[Mapping[str, Any]], count: int, rows: int) -> Claim:
    """What decides the mean of heavy tails: each block of draws with and without the one of the largest row."""
    page, told = list[list[str]](), ""
    for first in range(0, len(found), count):
        block = found[first : first + count]
        held = [float(drawn("heavy tails", rows, first + place).y[rows:].abs().max()) for place in range(len(block))]
        worst = max(range(len(block)), key=lambda place: held[place])
        rest, one = [*block[:worst], *block[worst + 1 :]], block[worst]
        if not first:
            told = (
                f" In draw {worst} of the claim the row held out is {held[worst]:.0f} standard deviations away: "
                + "; ".join(f"{name} has an error of {one[name][0]:.3f} and NLPD {one[name][1]:.2f}" for name in WAYS)
                + f"; `auto` took {one['auto']}."
            )
        values = [[each[name][1] for each in block] for name in WAYS] + [[each[each["auto"]][1] for each in block]]
        cells = [f"{statistics.fmean(each):.3f}" for each in values] + [
            f"{statistics.median(each):.3f}" for each in values
        ]
        left = [f"{gap(rest):+.3f}"] if rest else [""]
        page.append([f"{first} to {first + len(block) - 1}", f"{held[worst]:.1f}", *cells, f"{gap(block):+.3f}", *left])
    text = (
        "Student's t with 2 degrees of freedom has no variance, thus the NLPD of a Gaussian no expectation: a mean "
        f"over draws is its largest row's, which the rows learned from do not foretell.{told} Largest row held out, in "
        "standard deviations of the rows learned from; NLPD of each, mean and median over draws; `auto` less the "
        "better one's mean, of all draws and without that of the largest row. Nothing is claimed."
    )
    columns = ["draws", "largest row", *(f"{name}, {what}" for what in ("mean", "median") for name in NAMES)]
    return Claim("Heavy tails", text, [*columns, "auto over the better", "without its largest"], page, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--admm", action="store_true", help="cv-admm in the place of cv-implicit: the same minimum")
    parser.add_argument("--kept", type=Path, help="a file of draws done, which is gone on with")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    ways = WAYS | ({"cv-implicit": admm} if asked.admm else {})
    done: dict[str, Any] = json.loads(asked.kept.read_text()) if asked.kept and asked.kept.exists() else {}
    page, missed = [], []

    def one(stream: str, seed: int) -> dict[str, Any]:
        key = f"{stream} {asked.rows} {seed} {asked.admm}"
        if key not in done:
            done[key] = draw(stream, asked.rows, seed, ways)
            if asked.kept:
                asked.kept.write_text(json.dumps(done))
        return dict(done[key])

    for stream in (*STREAMS, *OTHERS):
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
        chosen, began = 0, time.process_time()
        for seed in range(asked.draws):
            scores = one(stream, seed)
            for name in WAYS:
                found[name].append(scores[name])
            took = scores["auto"]
            chosen += took == "cv-implicit"
            found["auto"].append(scores[took])
        means = {name: [sum(each) / asked.draws for each in zip(*pairs, strict=True)] for name, pairs in found.items()}
        wins = sum(cv[0] < ml[0] for ml, cv in zip(found["ML-II"], found["cv-implicit"], strict=True))
        better = min(means[name][1] for name in WAYS)
        missed += [f"{stream}: auto's NLPD {means['auto'][1] - better:+.3f}"] * (means["auto"][1] > better + NEAR)
        if stream == "SE" and means["ML-II"][1] > means["cv-implicit"][1]:
            missed.append("SE: ML-II has the larger NLPD")
        cells = [f"{value:.3f}" for name in NAMES for value in means[name]]
        page.append([stream, *cells, f"{wins} of {asked.draws}", f"{chosen} of {asked.draws}"])
        print(f"{time.process_time() - began:5.0f} s", *page[-1], sep="  ", flush=True)
    text = (
        f"{asked.draws} draws of {asked.rows} rows, SE kernel: error of the function over its standard deviation, and "
        f"NLPD. Claimed: NLPD of ML-II is lower where the model is right; that of `auto`, which forecasts each row "
        f"from all others to choose, is at most {NEAR} above the better one's. The choice by these forecasts was "
        "settled on SE, steps and heavy tails with other seeds; the last four streams were never looked at before."
    )
    columns = [
        "stream",
        *(f"{name}, {what}" for name in NAMES for what in ("error", "NLPD")),
        "cv nearer",
        "auto took cv",
    ]
    further = [one("heavy tails", seed) for seed in range(BLOCKS * asked.draws)]
    heavy = tails(further, asked.draws, asked.rows)
    print(heavy.text, *("  ".join(row) for row in heavy.rows), sep="\n")
    report(__file__, Claim("When cross-validation tunes better", text, columns, page, missed), heavy)
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
