"""Rows a second of a day-ahead forecast at every row: linear and auto beside LightGBM and river, in one run.

Half-hourly electricity demand with the workday known, 48 steps ahead, one pass, one thread. A row costs a forecast of
48 steps and learning the row. Processor seconds of the pass are counted, without imports.

linear, auto        `fit_stream` with target, horizon, seasons and known input given: forecasts, calibrated bands,
                    scores and checkpoints, in micro-batches of a day
lightgbm            the peer of `streamgp compare` with its defaults: a model a step, refitted every four weeks
river bayesian      one BayesianLinearRegression a step on ten columns: the demand now, a day, two days and a week
                    before the step, the workday, and the phase of the day; row by row
river snarimax      SNARIMAX(p=12, d=0, q=0, m=48, sp=3) by gradient steps, with the workday, iterated 48 steps

What a row does differs: river makes no bands, and neither writes checkpoints. Errors are those from row 1344 on,
over the weekly naive's.

Needs the extra `bench`.

    python benchmarks/rows_a_second.py [--rows 17520] [--models linear auto lightgbm]
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _opponents import Array, Data, at, lightgbm
from _report import Claim, report
from auto_against_opponents import ROOT, STREAMS, gridded, read

FIRST, DAY, WEEK = 1344, 48, 336
WARM = 2 * WEEK
"""Rows that river sees before its first forecast."""
TEXT = (
    "Half-hourly electricity demand with the workday known, a forecast of the next 48 steps at every row, one pass, "
    "one thread; processor seconds of the pass without imports. linear and auto also issue and score calibrated bands "
    "and write checkpoints; LightGBM is the peer of compare, with conformal bands; river (row by row) "
    "only forecasts. river has a Bayesian linear regression of ten columns a step, and SNARIMAX iterated 48 "
    "steps. MAE is over the weekly naive's on the same rows. No limit is set."
)


def ours(model: str, rows: int) -> tuple[float, float]:
    """CPU-s of the pass, and the MAE."""
    import torch

    from streamgp.base import Progress
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig

    torch.set_num_threads(1)
    began: list[float] = []

    def note(progress: Progress) -> None:
        began.append(time.process_time())

    with tempfile.TemporaryDirectory() as home:
        table = Path(home) / "table"
        ingest(
            IngestConfig.read(
                {"source": (str(ROOT / "data" / STREAMS["workday"].file),), "table": str(table), "timezone": "+10:00"}
            )
        )
        options: dict[str, Any] = {"horizon": DAY, "season": f"{DAY},{WEEK}", "known": "workday", "max_rows": rows}
        options |= {"score_from": str(FIRST), "checkpoint": Path(home) / "c", "device": "cpu", "progress": note}
        found: Any = fit_stream(table, "demand_gw", model=model, **options)
        return began[-1] - began[0], found["mae"]


def bayesian(data: Data) -> Array:
    """(n, 48) one regression a step."""
    from river.linear_model import BayesianLinearRegression  # type: ignore[import-not-found]

    y, known = data.filled, data.known["workday"]
    models = [BayesianLinearRegression() for _ in range(DAY)]
    point = np.full((len(y), DAY), np.nan)

    def columns(row: int, step: int) -> dict[str, float]:
        to = row + step
        angle = 2 * math.pi * float(data.phase[to]) / DAY
        return {
            "one": 1.0,
            "now": y[row],
            "day": y[to - DAY],
            "days": y[to - 2 * DAY],
            "week": y[to - WEEK],
            "change": y[row] - y[row - WEEK],
            "workday": known[to],
            "workday before": known[to - WEEK],
            "sin": math.sin(angle),
            "cos": math.cos(angle),
        }

    for row in range(WEEK, len(y) - DAY):
        for step, model in enumerate(models, 1):
            if row - step >= WEEK:
                model.learn_one(columns(row - step, step), y[row])
        if row >= WARM:
            point[row] = [model.predict_one(columns(row, step)) for step, model in enumerate(models, 1)]
    return point


def snarimax(data: Data) -> Array:
    """(n, 48) one model, iterated."""
    from river.linear_model import LinearRegression  # type: ignore[import-not-found]
    from river.optim import SGD  # type: ignore[import-not-found]
    from river.preprocessing import StandardScaler  # type: ignore[import-not-found]
    from river.time_series import SNARIMAX  # type: ignore[import-not-found]

    y, known = data.filled, data.known["workday"]
    learner = StandardScaler() | LinearRegression(SGD(1e-3), intercept_lr=1e-2)  # with larger steps it diverges
    model = SNARIMAX(p=12, d=0, q=0, m=DAY, sp=3, regressor=learner)
    point = np.full((len(y), DAY), np.nan)
    for row in range(len(y) - DAY):
        model.learn_one(y[row], {"workday": known[row]})
        if row >= WARM:
            ahead = [{"workday": value} for value in known[row + 1 : row + 1 + DAY]]
            point[row] = model.forecast(horizon=DAY, xs=ahead)
    return point


OTHERS = {"lightgbm": lambda data: lightgbm(data).point, "river bayesian": bayesian, "river snarimax": snarimax}
MODELS = ("linear", "auto", *OTHERS)


def error(data: Data, point: Array) -> float:
    """Mean absolute error from row FIRST on."""
    return float(np.nanmean(np.abs(point - data.truth)[FIRST:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=17_520)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    table, cells = read(STREAMS["workday"], ROOT), []
    for model in asked.models:
        data, rows = gridded(table.head(asked.rows), STREAMS["workday"]), asked.rows
        naive = error(data, at(data.y, np.arange(rows)[:, None] + np.arange(1, DAY + 1) - WEEK))
        if model in OTHERS:
            OTHERS[model](gridded(table.head(2000), STREAMS["workday"]))  # imports, and what is compiled
            began = time.process_time()
            point = OTHERS[model](data)
            spent, mae = time.process_time() - began, error(data, point)
        else:
            spent, mae = ours(model, rows)
        cells.append([model, f"{rows:,}", f"{spent:.1f}", f"{rows / spent:.0f}", f"{mae / naive:.3f}"])
        print("  ".join(cells[-1]), flush=True)
    columns = ["model", "rows", "CPU-s", "rows a second", "MAE, over naive"]
    report(__file__, Claim("Rows a second", TEXT, columns, cells, None))


if __name__ == "__main__":
    main()
