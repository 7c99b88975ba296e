"""Claim: a gradient step of SVDGP costs time linear in the mean's basis functions (Cheng & Boots 2017, section 3.4).

One thread; kin40k's widths (8 inputs, 1 target), 512 rows a step, 128 covariance functions, 512 to 8192 mean functions.
Printed: CPU milliseconds a step (median of 15), and the slope of log time over log functions, whose bound is 1.15.

    python benchmarks/step_cost_is_linear_in_mean_functions.py
"""

from __future__ import annotations

import math
import statistics
import time

import torch
from _report import Claim, report

from streamgp.base import Shape
from streamgp.models.svdgp import Config
from streamgp.models.svdgp.gradient import GradientPosterior

SIZES = (512, 1024, 2048, 4096, 8192)
ROWS, WIDTH, STEPS = 512, 8, 15
BOUND = 1.15


def step_seconds(size: int) -> float:
    """Median CPU seconds of a step with a full basis of `size` mean functions."""
    gradient = {"mean_basis": size, "covariance_basis": 128, "grow": size + 128}
    inputs = tuple(f"u{number}" for number in range(WIDTH))
    shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", *inputs), future=inputs)
    model = GradientPosterior(Config.model_validate({"gradient": gradient}), shape, WIDTH)
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(size + 128, WIDTH, dtype=torch.float64, generator=generator)
    y = torch.sin(points[:, :1])
    model.start(points, y)
    model.posterior.add(points, model.hyper)
    for name, value in model.named_parameters():
        model.iterate[name].copy_(value.detach())
    weights = torch.ones(ROWS, dtype=torch.float64)
    seconds = []
    for _ in range(STEPS + 2):
        began = time.process_time()
        model.ascend(points[:ROWS], y[:ROWS], weights)
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[2:])


def slope(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Least-squares slope of log seconds over log sizes."""
    x, y = [math.log(s) for s in sizes], [math.log(s) for s in seconds]
    mx, my = statistics.mean(x), statistics.mean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


def main() -> None:
    torch.set_num_threads(1)
    seconds = [step_seconds(size) for size in SIZES]
    cells = "  ".join(f"{size}: {1e3 * s:.0f} ms" for size, s in zip(SIZES, seconds, strict=True))
    fitted = slope(SIZES, seconds)
    print(f"{cells}   slope {fitted:.2f} (bound {BOUND}: {'held' if fitted <= BOUND else 'NOT held'})")
    page = [["hybrid", f"{fitted:.2f}"]]
    missed = [f"{fitted:.2f}"] if fitted > BOUND else []
    text = (
        f"Linear in the functions of the mean: slope of log time over log functions, {SIZES[0]} to {SIZES[-1]:,}, at "
        f"most {BOUND}."
    )
    report(__file__, Claim("Cost of a gradient step", text, ["basis", "slope"], page, missed))
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
