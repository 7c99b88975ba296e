"""Free simulation of four systems: bands that `--simulate` calibrates, and RMSE beside ARX and persistence.

A model of one step is trained online on the first rows, and then simulated from origins behind them, 100 paths, with
the true inputs; nothing is learned behind the first rows. quarter_drone is in closed loop: its control answers the
angle. The ARX opponent is least squares on the same lags of the same rows, run on its own output.

Printed: the RMSE of all steps up to 1, 20, 50 and 200 of each method, and, of the paths and of the calibrated bands,
the coverage of 95 % bands at these steps but the first. quarter_drone was chosen on; the other sets only confirm.

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


@dataclass(frozen=True)
class Case:
    """One system. given: the input; rows: to learn; every: rows between the 12 origins behind them."""

    name: str
    given: str
    target: str
    rows: int
    first: int
    every: int
    steps: int
    known: bool = False
    origins: int = 12
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        lags = self.options["lags"]
        return f"{self.name}, {lags} lags" + (", input known" if self.known else "")


DRONE = ("quarter_drone", "control_pct", "angle_deg", 14_000, 14_300)
RIDGE = {"set": {"ridge": 1e-4}}  # lags of a fast clock are almost collinear
SHORT = {**RIDGE, "lags": 10, "batch": 16, "warmup": 60}
CASES = (
    Case(*DRONE, 250, 200, options={"lags": 24, **RIDGE}),
    Case(*DRONE, 250, 200, True, options={"lags": 24, **RIDGE}),
    Case(*DRONE, 250, 200, True, options={"lags": 100, **RIDGE}),
    Case("ball_and_hoop", "u", "y", 6_500, 6_500, 120, 200, options={"lags": 24, **RIDGE}),
    Case("sysid_actuator", "valve_u", "pressure_p", 820, 820, 12, 50, options=SHORT),
    Case("sysid_drives", "voltage_u1", "speed_z1", 400, 400, 3, 50, options=SHORT),
)
Floats = NDArray[np.float64]


def arx(case: Case, y: Floats, u: Floats, origins: list[int]) -> Floats:
    """(origins, steps) least squares on the lags, run on its own output."""
    lags = np.arange(1 - case.options["lags"], 1)
    row = np.arange(len(lags) - 1, case.rows - 1)
    ahead = [1] if case.known else []

    def features(past: Floats, at: NDArray[np.int64]) -> Floats:
        return np.concatenate([np.ones((len(at), 1)), past, u[at[:, None] + [*lags, *ahead]]], 1)

    weights = np.linalg.lstsq(features(y[row[:, None] + lags], row), y[row + 1], rcond=None)[0]
    at = np.array(origins)
    past, found = y[at[:, None] + lags], []
    for step in range(case.steps):
        found.append(features(past, at + step) @ weights)
        past = np.concatenate([past[:, 1:], found[-1][:, None]], 1)
    return np.stack(found, 1)


def simulated(case: Case, table: pl.DataFrame, origins: list[int], work: Path) -> tuple[dict[str, Floats], float]:
    """Calibrated and raw forecasts and ends of `linear`, (origins, steps) each, and the CPU seconds of its training."""
    from streamgp_pipelines import fit_stream, load
    from streamgp_pipelines.ingestion.ingest import IngestConfig, ingest

    home = work / case.title.replace(" ", "")
    home.mkdir()
    table.write_parquet(home / "rows.parquet")
    ingest(IngestConfig.read({"source": (str(home / "rows.parquet"),), "table": str(home / "t"), "time": "row"}))
    given: dict[str, Any] = {"known" if case.known else "inputs": case.given, **case.options}
    began = time.process_time()
    fit_stream(
        home / "t",
        case.target,
        model="linear",
        horizon=1,
        simulate=case.steps,
        max_rows=case.rows,
        checkpoint=home / "c",
        device="cpu",
        **given,
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
        for name in ("", "-lo-95", "-hi-95", "-raw-lo-95", "-raw-hi-95"):
            parts.setdefault(name, []).append(found.frame[f"linear{name}"].to_numpy())
    return {name: np.stack(values) for name, values in parts.items()}, seconds


def rmse(forecast: Floats, truth: Floats, to: int) -> float:
    """Of all steps up to `to`."""
    return float(np.sqrt(((forecast - truth)[:, :to] ** 2).mean()))


def measure(case: Case, folder: Path, work: Path) -> tuple[list[tuple[str, ...]], list[str]]:
    """Rows of the table, and what was claimed and does not hold."""
    table = pl.read_parquet(folder / f"{case.name}.parquet").select(case.given, case.target)
    y, u = table[case.target].to_numpy(), table[case.given].to_numpy()
    origins = [case.first + case.every * at for at in range(case.origins)]
    truth = np.stack([y[at + 1 : at + 1 + case.steps] for at in origins])
    found, seconds = simulated(case, table, origins, work)
    bare = simulated_mean(found)
    last = y[np.array(origins)][:, None] + 0 * truth
    steps = [step for step in STEPS if step <= case.steps]

    def line(name: str, forecast: Floats, ends: str = "", cpu: str = "") -> tuple[str, ...]:
        scores = [f"{rmse(forecast, truth, step):.3f}" for step in steps]
        covered = [f"{held(ends)[:, step - 1].mean():.2f}" for step in steps[1:]] if ends else [""] * (len(steps) - 1)
        empty = [""] * (len(STEPS) - len(steps))
        return (case.title, name, *scores, *empty, *covered, *empty, cpu)

    def held(ends: str) -> NDArray[np.bool_]:
        low, high = (found[f"{'-raw' if ends == 'raw' else ''}-{side}-95"] for side in ("lo", "hi"))
        return np.asarray((low <= truth) & (truth <= high))

    rows = [
        line("last value", last),
        line("ARX", arx(case, y, u, origins)),
        line("linear, paths", bare, "raw"),
        line("linear, --simulate", found[""], "calibrated", f"{seconds:.1f}"),
    ]
    missed = [
        f"coverage {held('calibrated')[:, step - 1].mean():.2f} at {step}"
        for step in steps[1:]
        if held("calibrated")[:, step - 1].mean() < 0.9
    ]
    if case.name == "quarter_drone":
        missed += [
            f"RMSE {rmse(found[''], truth, step):.2f} to {step}"
            for step, most in ASKED.items()
            if rmse(found[""], truth, step) > most
        ]
    return rows, [f"{case.title}: {', '.join(missed)}"] if missed else []


def simulated_mean(found: dict[str, Floats]) -> Floats:
    """The middle of the paths' band: where the paths themselves are."""
    return 0.5 * (found["-raw-lo-95"] + found["-raw-hi-95"])


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
        "`linear` of one step (ridge=1e-4), trained online, then simulated from 12 origins with the true inputs, 100 "
        "paths. RMSE of all steps up to 1, 20, 50, 200; coverage of 95 % bands at 20, 50, 200. The method was chosen "
        "on quarter_drone (closed loop; asked RMSE 0.20, 0.45, 0.50 and coverage 0.90); the other sets confirm."
    )
    report(__file__, Claim("Calibrated simulations of systems", text, COLUMNS, rows, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
