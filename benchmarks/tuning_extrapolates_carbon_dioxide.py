"""Claim: tuned kernels forecast eleven years of CO₂ better than untrained ones; whether by likelihood or by hold-out.

Mauna Loa, monthly means of data/mauna_loa_co2.csv; learned from 1958 to 1990, tested on 1991 to 2001. SE, and SE+LP
(21) of Xu et al. (2019) without its tie of the lengthscales, since ours are in other units; targets standardised by the
training rows, inputs in years. Restarts as the table says. The error is standardised: the mean squared error over the
variance of the training rows, and beside it that over the variance of the test rows, where 1 is their own mean.

The paper learns to 2008, tests on 2009 to 2015, and reports 1.408 (GPML) and 1.307 (GPCV-ADMM).

    python benchmarks/tuning_extrapolates_carbon_dioxide.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from _report import Claim, report
from _tuning import START_NOISE, Rows, error, markdown, tied, tuned_kernel

from streamgp.base import FLOAT
from streamgp.evidence.admm import AdmmConfig, cv_admm
from streamgp.evidence.implicit import ImplicitConfig, cv_implicit
from streamgp.evidence.marginal_likelihood import MarginalLikelihoodConfig, maximise
from streamgp.evidence.tuned import Tuned

FILE = Path(__file__).parent.parent / "data" / "mauna_loa_co2.csv"
SPLIT = 1991.0
FAMILIES: dict[str, Any] = {
    "SE": {"name": "squared_exponential", "lengthscale": 10.0},
    "SE+LP": {
        "name": "sum",
        "parts": [
            {"name": "squared_exponential", "lengthscale": 50.0},
            {"name": "locally_periodic", "lengthscale": 50.0, "period": 1.0, "outputscale": 0.1},
        ],
    },
}
"""Untrained: decades for the trend, a year for the period; what anyone would write down."""
RESTARTS = 5


def read() -> tuple[Rows, float, float]:
    """Standardised rows, and the training rows' standard deviation and the test rows' variance over its square."""
    table = pd.read_csv(FILE, parse_dates=["date"]).dropna()
    months = table.groupby([table.date.dt.year, table.date.dt.month]).co2_ppm.mean()
    years = torch.tensor([year + (month - 0.5) / 12.0 for year, month in months.index], dtype=FLOAT)[:, None]
    values = torch.from_numpy(months.to_numpy().copy())[:, None]
    early = years[:, 0] < SPLIT
    mean, scale = values[early].mean(), values[early].std()
    y, x = (values - mean) / scale, years - SPLIT
    return Rows(x[early], y[early], x[~early], y[~early]), float(scale), float(y[~early].var())


def ways() -> dict[str, Callable[..., Tuned]]:
    """All get the given start and as many further ones."""
    ml = MarginalLikelihoodConfig(restarts=RESTARTS)
    last = {"folds": 1, "holdout": 1 / 3, "arrangement": "contiguous", "restarts": RESTARTS}
    anywhere = {"folds": 2, "restarts": RESTARTS}
    return {
        "ML-II": lambda *a: maximise(*a, ml),
        "cv-implicit, last third held out": lambda *a: cv_implicit(*a, ImplicitConfig(**last)),
        "cv-implicit, two random folds": lambda *a: cv_implicit(*a, ImplicitConfig(**anywhere)),
        "cv-admm, last third held out": lambda *a: cv_admm(*a, AdmmConfig(**last, iterations=200)),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    torch.set_num_threads(1)
    rows, scale, spread = read()
    noise, table, best = torch.full((1,), START_NOISE - 3.0, dtype=FLOAT), list[list[str]](), dict[str, float]()
    for family, options in FAMILIES.items():
        kernel = tied(options)
        before = error(kernel, noise.exp(), rows)
        found = {"untrained": (before, 0.0, kernel, float(noise.exp()))}
        for way, tune in ways().items():
            got = tune(kernel, noise, rows.x, rows.y)
            own = tuned_kernel(kernel, got)
            found[way] = (error(own, got.noise, rows), got.seconds, own, float(got.noise))
        best[family] = min(mse for way, (mse, *_) in found.items() if way != "untrained") / before
        for way, (mse, spent, own, sigma) in found.items():
            scales = [value.detach().exp() for name, value in own.named_parameters() if "output" not in name]
            values = [f"{float(value):.3g}" for value in scales]
            line = [family, way, f"{mse:.4f}", f"{mse / spread:.3f}", f"{mse**0.5 * scale:.2f}"]
            table.append([*line, " ".join(values), f"{sigma:.2g}", f"{spent:.1f}"])
            print(table[-1], flush=True)
    print(f"{len(rows.x)} months to learn from, {len(rows.held)} to test on")
    head = ["kernel", "way", "standardised MSE", "over the test rows' variance", "RMSE, ppm"]
    print(markdown([*head, "lengthscales, period (years)", "noise", "CPU-s"], table))
    for family, ratio in best.items():
        print(f"{family}: best tuned error over the untrained one {ratio:.3f} (claimed: below 1)")
    text = (
        f"Mauna Loa to 1990, tested on {len(rows.held)} months to 2001: the best tuned kernel forecasts better than "
        "the untrained one. The error is over the variance of the training rows."
    )
    page = [[line[0], line[1], line[2], line[4], line[-1]] for line in table]
    missed = [f"{family} {ratio:.3f}" for family, ratio in best.items() if ratio >= 1.0]
    columns = ["kernel", "method", "error", "RMSE, ppm", "CPU-s"]
    report(__file__, Claim("Carbon dioxide", text, columns, page, missed))
    if not all(ratio < 1.0 for ratio in best.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
