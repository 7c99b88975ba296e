"""Free simulation of four systems: models that `--simulate` trains, beside others on the same lags.

A model of one step is trained online on the first rows, and then simulated from 12 origins behind them, 100 paths, with
the true inputs; nothing is learned behind the first rows. quarter_drone is in closed loop: its control answers the
angle. The opponents have the same lags, inputs and rows, and are run on their own output: ARX by least squares,
LightGBM on the change of the target and, on the small sets, `narx` of one step, without --simulate.

Printed: the RMSE of all steps up to 1, 20, 50 and 200 of each method, and the coverage of calibrated 95 % bands at
these steps but the first. Hinges and stages of training were chosen on all four sets, bands on quarter_drone.

    python benchmarks/simulation_of_systems.py [--data FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _report import Claim, report
from _uci import FOLDER
from numpy.typing import NDArray

STEPS = (1, 20, 50, 200)
PATHS, LEVEL = 100, 95.0
ASKED = {20: 0.20, 50: 0.45, 200: 0.50}  # RMSE on quarter_drone
COLUMNS = ("data", "method", "RMSE to 1", "to 20", "to 50", "to 200", "coverage at 20", "at 50", "at 200", "CPU s")
LINEAR, NARX, PLAIN = ("linear", True), ("narx", True), ("narx", False)  # and whether they are trained for simulation


@dataclass(frozen=True)
class Case:
    """One system. given: the input; rows: to learn; first, every: of the 12 origins behind them."""

    name: str
    given: str
    target: str
    rows: int
    first: int
    every: int
    steps: int
    title: str
    models: tuple[tuple[str, bool], ...] = (PLAIN, LINEAR, NARX)
    origins: int = 12
    options: dict[str, Any] = field(default_factory=lambda: {"lags": 24})

    @property
    def lags(self) -> int:
        return int(self.options["lags"])


SHORT = {"lags": 10, "batch": 16, "warmup": 60}
ACTUATOR, DRIVES = ("sysid_actuator", "valve_u", "pressure_p"), ("sysid_drives", "voltage_u1", "speed_z1")
CASES = (
    Case("quarter_drone", "control_pct", "angle_deg", 14_000, 14_300, 250, 200, "quarter_drone", (LINEAR,)),
    Case("ball_and_hoop", "u", "y", 6_500, 6_500, 120, 200, "ball_and_hoop", (LINEAR, NARX)),
    Case(*ACTUATOR, 922, 922, 4, 50, "sysid_actuator 90/10", options=SHORT),
    Case(*ACTUATOR, 461, 461, 37, 50, "sysid_actuator 45/45", options=SHORT),
    Case(*DRIVES, 425, 425, 2, 50, "sysid_drives 85/15", options=SHORT),
    Case(*DRIVES, 225, 225, 15, 50, "sysid_drives 45/45", options=SHORT),
)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def on_lags(case: Case, y: Floats, u: Floats, origins: list[int], name: str) -> Floats:
    """(origins, steps) ARX or LightGBM on the change of the target, run on its own output."""
    lags = np.arange(1 - case.lags, 1)
    row = np.arange(len(lags) - 1, case.rows - 1)

    def features(past: Floats, at: Ints) -> Floats:
        return np.concatenate([np.ones((len(at), 1)), past, u[at[:, None] + [*lags, 1]]], 1)

    x, change = features(y[row[:, None] + lags], row), y[row + 1] - y[row]
    if name == "ARX":
        weights = np.linalg.lstsq(x, change, rcond=None)[0]

        def moved(values: Floats) -> Floats:
            return np.asarray(values @ weights)

    else:
        from lightgbm import LGBMRegressor

        trees = LGBMRegressor(n_estimators=200, learning_rate=0.05, n_jobs=1, verbose=-1).fit(x, change)

        def moved(values: Floats) -> Floats:
            return np.asarray(trees.booster_.predict(values))

    at = np.array(origins)
    past, found = y[at[:, None] + lags], []
    for step in range(case.steps):
        found.append(past[:, -1] + moved(features(past, at + step)))
        past = np.concatenate([past[:, 1:], found[-1][:, None]], 1)
    return np.stack(found, 1)


def simulated(
    case: Case, table: pl.DataFrame, origins: list[int], work: Path, model: str, trained: bool
) -> tuple[dict[str, Floats], float]:
    """Forecasts and ends of a model, (origins, steps) each, and the CPU seconds of its training.

    trained: for simulation; else for one step, and its paths are not calibrated.
    """
    from streamgp_pipelines import fit_stream, load
    from streamgp_pipelines.ingestion.ingest import IngestConfig, ingest

    home = work / f"{case.title} {model} {trained}".replace(" ", "-").replace("/", "-")
    home.mkdir()
    table.write_parquet(home / "rows.parquet")
    ingest(IngestConfig.read({"source": (str(home / "rows.parquet"),), "table": str(home / "t"), "time": "row"}))
    began = time.process_time()
    fit_stream(
        home / "t",
        case.target,
        model=model,
        known=case.given,
        horizon=1,
        simulate=case.steps if trained else None,
        max_rows=case.rows,
        checkpoint=home / "c",
        device="cpu",
        **case.options,
    )
    seconds = time.process_time() - began
    forecaster = load(home / "c")
    forecaster.observe()
    rows, seen = table.to_arrow().combine_chunks(), forecaster.learner.windows.rows
    parts: dict[str, list[Floats]] = {}
    for origin in origins:
        if origin + 1 > seen:
            forecaster.learner.watch(rows.slice(seen, origin + 1 - seen).to_batches()[0])
            seen = origin + 1
        future = rows.select([case.given]).slice(origin + 1, case.steps)
        found = forecaster.simulate(case.steps, PATHS, future, seed=0, levels=[LEVEL])
        for name in ("", "-lo-95", "-hi-95"):
            parts.setdefault(name, []).append(found.frame[f"{model}{name}"].to_numpy())
    return {name: np.stack(values) for name, values in parts.items()}, seconds


def rmse(forecast: Floats, truth: Floats, to: int) -> float:
    """Of all steps up to `to`."""
    return float(np.sqrt(((forecast - truth)[:, :to] ** 2).mean()))


def measure(case: Case, folder: Path, work: Path) -> tuple[list[tuple[str, ...]], list[str]]:
    """Rows of the table, and what was asked and does not hold."""
    table = pl.read_parquet(folder / f"{case.name}.parquet").select(case.given, case.target)
    y, u = table[case.target].to_numpy().astype(float), table[case.given].to_numpy().astype(float)
    origins = [case.first + case.every * at for at in range(case.origins)]
    truth = np.stack([y[at + 1 : at + 1 + case.steps] for at in origins])
    steps = [step for step in STEPS if step <= case.steps]
    empty = [""] * (len(STEPS) - len(steps))
    rows, missed = list[tuple[str, ...]](), list[str]()

    def add(name: str, forecast: Floats, covered: list[float] | None = None, cpu: str = "") -> None:
        scores = [f"{rmse(forecast, truth, step):.3f}" for step in steps]
        shares = [""] * (len(steps) - 1) if covered is None else [f"{share:.2f}" for share in covered]
        rows.append((case.title, name, *scores, *empty, *shares, *empty, cpu))

    add("last value", y[np.array(origins)][:, None] + 0 * truth)
    for name in ("ARX", "LightGBM"):
        began = time.process_time()
        found = on_lags(case, y, u, origins, name)
        add(name, found, cpu=f"{time.process_time() - began:.1f}")
    for model, trained in case.models:
        parts, seconds = simulated(case, table, origins, work, model, trained)
        held = (parts["-lo-95"] <= truth) & (truth <= parts["-hi-95"])
        covered = [float(held[:, step - 1].mean()) for step in steps[1:]]
        add(f"{model}, {'--simulate' if trained else 'one step'}", parts[""], covered, f"{seconds:.1f}")
        if trained:
            low = zip(steps[1:], covered, strict=True)
            wrong = [f"coverage {share:.2f} at {step}" for step, share in low if share < 0.9]
            if case.name == "quarter_drone":
                far = {step: rmse(parts[""], truth, step) for step in ASKED}
                wrong += [f"RMSE {far[step]:.2f} to {step}" for step, most in ASKED.items() if far[step] > most]
            missed += [f"{case.title}, {model}: {', '.join(wrong)}"] if wrong else []
    return rows, missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the data sets")
    folder = parser.parse_args().data
    rows: list[tuple[str, ...]] = []
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as work:
        for case in CASES:
            if (folder / f"{case.name}.parquet").exists():
                found, wrong = measure(case, folder, Path(work))
                rows, missed = rows + found, missed + wrong
    width = [max(len(row[at]) for row in [COLUMNS, *rows]) for at in range(len(COLUMNS))]
    for row in [COLUMNS, *rows]:
        print("  ".join(cell.ljust(wide) for cell, wide in zip(row, width, strict=True)))
    for one in missed:
        print(f"missed: {one}")
    text = (
        "Models of one step, trained online, then simulated from 12 origins with the true inputs, 100 paths. RMSE of "
        "all steps up to 1, 20, 50, 200; coverage of 95 % bands at 20, 50, 200. Asked on quarter_drone (closed loop): "
        "RMSE 0.20, 0.45, 0.50 and coverage 0.90. Hinges and stages were chosen on all four sets (drives 80/20, "
        "actuator 80/20), bands on quarter_drone. CPU seconds are of a busy machine. Free simulation in "
        "Al-Shedivat et al. (2017): Actuator 0.57 (NARX), 0.43 (GP-LSTM); Drives 0.38 and 0.32."
    )
    report(__file__, Claim("Calibrated simulations of systems", text, COLUMNS, rows, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
