"""Digests of scores, forecasts and states of small runs: a change that should change no number is held against them.

    ensemble, linear, svdgp, qsgp, gp_lstm, finite_rkhs    demand of Victoria with the workday known, a day's season
    panel      ensemble on series of their own length, with missing values
    fleet      linear, a model a series; shared: svdgp, a shared kernel
    simulation linear on a rig, simulated on its way and at its end
    drives     linear on series that stand still now and then: point masses, a lower bound, the log, alarms
    outcomes   svdgp with a logistic likelihood
    killed     linear on the demand, killed (SIGKILL) after half its rows and started again: has the digests of linear
    served     linear, and rows that a service is sent; frames: the same rows in data frames
    others     every other model by its name, in few rows; batch-...: models that are trained in batch

Numbers are rounded to ten significant digits. States are digested without the names of their tensors and fields, so
that a renamed field is no difference. With --against, runs that differ are named with the largest relative difference
of their scores and of the sums of their forecasts and states, and the exit status is 1. Digests hold on one machine,
with one version of the packages.

    python benchmarks/digests.py [--output now.json] [--against then.json] [--rows 1200] [--runs linear panel]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from _report import Claim, report

ROOT = Path(__file__).parents[1]
MODELS = ("ensemble", "linear", "svdgp", "qsgp", "gp_lstm", "finite_rkhs")
BATCH = ("linear", "svdgp", "qsgp", "finite_rkhs", "gp_lstm")
APART = ("run_id", "checkpoint", "seconds", "rows_per_second", "update_ms", "peak_mb", "warnings", "offset", "new_rows")
"""Fields of a summary that hold times, identities or texts for people."""
DAY, DIGITS = 48, 10
TEXT = (
    "Scores, forecasts and states of small runs, rounded to ten digits: six models on a stream, a panel, fleets, a "
    "simulation, point masses, outcomes, a killed run, a served stream, data frames, the other models, batch training. "
    "The killed run ends with the digests of the whole one. CPU-seconds."
)

Found = dict[str, dict[str, float]]
"""What a run ended with: its scores by name, sums of the columns of its forecasts, sums of the parts of its state."""


# What is hashed


def rounded(values: Any) -> bytes:
    """Numbers of any shape, rounded to DIGITS significant digits; equal bytes for equal numbers."""
    import numpy as np

    given = np.asarray(values, dtype=np.float64).ravel()
    size = np.where(np.isfinite(given) & (given != 0), np.abs(given), 1.0)
    power = np.floor(np.log10(size))
    digits = np.round(np.where(np.isfinite(given), given, 0.0) / 10.0 ** (power - DIGITS + 1))
    kind = np.where(np.isnan(given), 2.0, np.where(np.isinf(given), np.sign(given), 0.0))
    return bytes(np.stack([digits, power, kind]).astype(np.int64).tobytes())


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of everything in nested mappings and lists."""
    if isinstance(value, Mapping | list | tuple):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in pairs:
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Digests:
    """Collects what a run ended with."""

    def __init__(self) -> None:
        self.hashes = {kind: hashlib.sha256() for kind in ("scores", "forecasts", "state")}
        self.numbers: Found = {kind: {} for kind in self.hashes}

    def scores(self, summary: Mapping[str, Any], name: str = "") -> None:
        """Add a summary, but for what stands in APART."""
        kept = {key: value for key, value in summary.items() if key not in APART}
        for key, value in sorted(flat(kept, name)):
            self.hashes["scores"].update(key.encode())
            if is_number(value):
                self.hashes["scores"].update(rounded(value))
                self.numbers["scores"][key] = float(value)
            else:
                self.hashes["scores"].update(str(value).encode())

    def forecasts(self, frame: Any, name: str) -> None:
        """Add a polars frame of forecasts."""
        for column in frame.columns:
            self.hashes["forecasts"].update(column.encode())
            series = frame[column]
            if series.dtype.is_numeric():
                values = series.cast(float).fill_null(math.nan).to_numpy()
                self.hashes["forecasts"].update(rounded(values))
                self.numbers["forecasts"][f"{name}.{column}"] = total(values)
            else:
                self.hashes["forecasts"].update("\n".join(map(str, series)).encode())

    def state(self, directory: Path) -> None:
        """Add the newest checkpoint, but for its stop-watch; in no order, and without names."""
        from streamgp_data import checkpoint

        found = list[bytes]()
        for state in checkpoint.read(directory).states():
            for part in sorted(state.rest.keys() - {"clock"}):
                tensors = [tensor.double().numpy() for tensor in state.tensors.get(part, {}).values()]
                found += [rounded(tensor) for tensor in tensors if tensor.size]
                rest = [value for _, value in flat(state.rest[part]) if value is not None]
                found += [rounded(value) if is_number(value) else str(value).encode() for value in rest]
                own = f"{state.name or 'all'}.{part}"
                self.numbers["state"][own] = sum(map(total, tensors)) + total([one for one in rest if is_number(one)])
        self.hashes["state"].update(b"|".join(sorted(found)))

    def written(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"digests": {kind: one.hexdigest()[:16] for kind, one in self.hashes.items()}, "numbers": self.numbers}


def total(values: Any) -> float:
    """Sum of the magnitudes of finite numbers."""
    import numpy as np

    given = np.abs(np.asarray(values, dtype=np.float64))
    return float(given[np.isfinite(given)].sum())


# Data


def tables(home: Path, rows: int) -> None:
    """Write CSV files of all streams and ingest those that are asked for."""
    import numpy as np
    import polars as pl

    draw = np.random.default_rng(0)
    lines = (ROOT / "data" / "elecdemand.csv").read_text("utf-8").splitlines(keepends=True)[: rows + 1]
    (home / "demand.csv").write_text("".join(lines))
    steps = np.arange(rows)
    wave = np.sin(steps / 12 * 2 * np.pi)
    frames = []
    for code in range(5):
        y = 10 + code + (1 + 0.3 * code) * np.roll(wave, code) + 0.2 * draw.standard_normal(rows)
        y[draw.random(rows) < 0.02] = np.nan
        frame = pl.DataFrame({"id": f"s{code}", "step": steps, "y": y, "x": draw.standard_normal(rows)})
        frames.append(frame.head(rows // 3 - 20 * code).fill_nan(None))
    pl.concat(frames).write_csv(home / "panel.csv")
    throttle, speed, noise, v = np.repeat(draw.random(rows // 20 + 1), 20)[:rows], [], draw.standard_normal(rows), 0.0
    for row in range(rows):
        v += 0.05 * (30 * throttle[row] - v)
        speed.append(v + 0.05 * noise[row])
    pl.DataFrame({"step": steps, "throttle": throttle, "speed": speed}).write_csv(home / "rig.csv")
    stood = np.maximum(0.0, np.cumsum(0.5 * draw.standard_normal((3, rows // 2)), 1))
    stood[:, rows // 2 - 3] += 25.0  # an alarm
    drives = [
        pl.DataFrame({"drive": f"d{code}", "step": np.arange(rows // 2), "speed": stood[code]}) for code in range(3)
    ]
    pl.concat(drives).write_csv(home / "drives.csv")
    chance = 1 / (1 + np.exp(-3 * wave))
    outcome = (draw.random(rows) < chance).astype(int)
    pl.DataFrame({"step": steps, "y": outcome, "x": wave}).write_csv(home / "outcomes.csv")


def table(home: Path, name: str) -> Path:
    """The table of a stream; made when it is first asked for."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines.config import IngestConfig

    path = home / f"{name}.table"
    if not path.exists():
        options = {"demand": {"time": "timestamp", "timezone": "+10:00", "every": "30m"}}
        options |= {"panel": {"time": "step", "series": "id"}, "drives": {"time": "step", "series": "drive"}}
        own = options.get(name, {"time": "step"}) | ({} if name == "demand" else {"time_format": "step"})
        ingest(IngestConfig.read({"source": (str(home / f"{name}.csv"),), "table": str(path), **own}))
    return path


# Runs


def stream(home: Path, name: str, data: str, target: str, **options: Any) -> Digests:
    """One prequential pass: its scores, its scored forecasts and the next one, and its checkpoint."""
    import polars as pl

    from streamgp_pipelines import fit_stream, load

    found, where = Digests(), home / name
    given: dict[str, Any] = {"device": "cpu", "checkpoint": where, "seed": 0, "batch": DAY} | options
    summary = fit_stream(table(home, data), target, predictions=home / f"{name}.parquet", **given)
    found.scores(summary)
    found.forecasts(pl.read_parquet(home / f"{name}.parquet"), "scored")
    if "known" not in options and "simulate" not in options:
        found.forecasts(load(where).forecast().frame, "next")
    found.state(where)
    return found


def demand(home: Path, name: str, model: str, **options: Any) -> Digests:
    """A model on the demand."""
    given: dict[str, Any] = {"model": model, "horizon": 6, "season": DAY, "known": "workday", "lags": 12} | options
    return stream(home, name, "demand", "demand_gw", **given)


def simulation(home: Path) -> Digests:
    """Of linear, rehearsed in training, then asked for."""
    import pyarrow as pa

    from streamgp_pipelines import load

    found = stream(home, "simulation", "rig", "speed", known="throttle", lags=4, horizon=1, simulate=20, model="linear")
    steps = 20
    ahead = load(home / "simulation")
    last: Any = ahead.history()["ds"].max()
    future = pa.table({"step": [last + step for step in range(1, steps + 1)], "throttle": [0.5] * steps})
    made = ahead.simulate(steps, paths=50, future=future, seed=1, levels=[80.0])
    found.forecasts(made.frame, "simulated")
    found.forecasts(made.paths(), "paths")
    return found


def killed(home: Path, rows: int) -> Digests:
    """The run of linear, killed after half its rows, and then run again."""
    code = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1]); import digests; from pathlib import Path;"
        "import streamgp_pipelines.api as api; fit = api.fit_stream\n"
        "def die(progress):\n"
        "    if progress.stage == 'train' and progress.done >= int(sys.argv[3]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "api.fit_stream = lambda *given, **options: fit(*given, progress=die, **options)\n"
        "digests.demand(Path(sys.argv[2]), 'killed', 'linear', checkpoint_every=96)\n"
    )
    table(home, "demand")
    words = [sys.executable, "-c", code, str(Path(__file__).parent), str(home), str(rows // 2)]
    status = subprocess.run(words, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode
    if status != -signal.SIGKILL:
        raise SystemExit(f"the run that should be killed ended with {status}")
    return demand(home, "killed", "linear", checkpoint_every=96)


def served(home: Path) -> Digests:
    """The rig: its first half is trained on, the other half posted to a service."""
    import polars as pl

    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig
    from streamgp_pipelines.config.serve import ServeConfig
    from streamgp_pipelines.live.bodies import JsonRows
    from streamgp_pipelines.serving.service import serving

    rows = pl.read_csv(home / "rig.csv")
    half, first, where, run = rows.height // 2, home / "first.csv", home / "first.table", home / "served"
    rows.head(half).write_csv(first)
    ingest(IngestConfig.read({"source": (str(first),), "table": str(where), "time": "step", "time_format": "step"}))
    fit_stream(where, "speed", inputs="throttle", lags=4, horizon=3, model="linear", checkpoint=run, batch=DAY)
    found = Digests()
    with serving(ServeConfig.read({"checkpoint": [run], "table": [str(where)], "max_ahead": 0})) as service:
        host = service.hosts["served"]
        intake, end = service.intake(host), time.monotonic() + 120
        intake.submit(JsonRows(rows.slice(half).to_dicts(), intake.table)).result(60)
        while host.rows < rows.height and service.error is None and time.monotonic() < end:
            time.sleep(0.01)
        if host.rows < rows.height or host.view is None:
            raise SystemExit(f"the service learned {host.rows} of {rows.height} rows: {service.error}")
        found.scores(json.loads(host.view.scores()))
        answer = json.loads(host.view.forecast("json", 3, (80.0,), (0.5,)))
        found.forecasts(pl.DataFrame(answer["forecast"]), "next")
    found.state(run)
    return found


def frames(home: Path) -> Digests:
    """The rig as data frames of several lengths."""
    import polars as pl

    from streamgp import Forecaster

    rows = pl.read_csv(home / "rig.csv")
    one = Forecaster("speed", 3, inputs="throttle", lags=4, time="step", time_format="step", model="svdgp", batch=DAY)
    for start, stop in ((0, 300), (300, 301), (301, 500)):
        one.learn(rows[start:stop])
    found = Digests()
    found.scores(one.scores)
    found.forecasts(one.forecast(levels=[80]), "next")
    one.save(home / "frames")
    found.state(home / "frames")
    return found


def batch(home: Path, model: str) -> Digests:
    """Training in batch, scored on rows held out."""
    from streamgp_pipelines.api import NoTracker
    from streamgp_pipelines.config import TrainConfig
    from streamgp_pipelines.training.train import train

    found, where = Digests(), home / f"batch-{model}"
    given = {"table": table(home, "rig"), "target": "speed", "known": "throttle", "lags": 4, "model": model}
    given |= {"test_tail": 0.3, "epochs": 3, "checkpoint": where, "device": "cpu", "max_rows": 600}
    found.scores(train(TrainConfig.read(given), NoTracker, lambda _: None))
    found.state(where)
    return found


def cases(home: Path, rows: int) -> dict[str, Callable[[], Digests]]:
    """Every run by name."""
    from streamgp import registry

    fleet: dict[str, Any] = {"horizon": 2, "season": 12, "lags": 4, "fleet": True, "warmup": 60, "batch": 12}
    few: dict[str, Any] = {"max_rows": 500, "lags": 6, "horizon": 3}
    drives: dict[str, Any] = {"horizon": 3, "lags": 6, "lower": 0.0, "alarm_rate": 0.001, "point": "median"}
    logistic = {"likelihood": "logistic", "gradient.mean_basis": 32, "gradient.covariance_basis": 16}
    found: dict[str, Callable[[], Digests]] = {}
    for model in MODELS:
        found[model] = partial(demand, home, model, model, **{"max_rows": 600} if model == "gp_lstm" else {})
    found |= {
        "panel": partial(
            stream, home, "panel", "panel", "y", model="ensemble", horizon=2, season=12, inputs="x", lags=4
        ),
        "fleet": partial(stream, home, "fleet", "panel", "y", model="linear", **fleet),
        "shared": partial(
            stream, home, "shared", "panel", "y", model="svdgp", set={"shared": True}, max_rows=200, **fleet
        ),
        "simulation": partial(simulation, home),
        "drives": partial(stream, home, "drives", "drives", "speed", model="linear", quantiles=(0.1, 0.9), **drives),
        "log": partial(demand, home, "log", "svdgp", transform="log", max_rows=600, level=(50.0, 90.0)),
        "outcomes": partial(
            stream,
            home,
            "outcomes",
            "outcomes",
            "y",
            model="svdgp",
            inputs="x",
            lags=4,
            horizon=2,
            max_rows=500,
            set=logistic,
        ),
        "killed": partial(killed, home, rows),
        "served": partial(served, home),
        "frames": partial(frames, home),
    }
    for model in registry.names("models"):
        if model not in MODELS:
            found[model] = partial(demand, home, model, model, **few | {"horizon": 1 if model == "wiski" else 3})
    return found | {f"batch-{model}": partial(batch, home, model) for model in BATCH}


# Comparison


def difference(one: Mapping[str, float], two: Mapping[str, float]) -> str:
    """The number that differs most, relatively, and by how much; or the names that only one has."""
    if missing := sorted(one.keys() ^ two.keys()):
        return f"{len(missing)} numbers have no counterpart, {missing[0]} is the first"
    apart = {key: abs(one[key] - two[key]) / max(abs(one[key]), abs(two[key]), 1e-300) for key in one}
    apart = {key: value for key, value in apart.items() if value > 0}
    worst = max(apart, key=apart.__getitem__, default="")
    return f"{worst} by {apart[worst]:.1e} of it" if worst else "no sum differs"


def compare(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """A line for every part of a run that differs, or is not in the other file."""
    lines = []
    for name, run in now.items():
        if name not in then:
            lines.append(f"{name}: there was none before")
            continue
        for kind, digest in run["digests"].items():
            if digest != then[name]["digests"][kind]:
                apart = difference(then[name]["numbers"][kind], run["numbers"][kind])
                lines.append(f"{name}: {kind} differ: {apart}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1200, help="of each stream, at most")
    parser.add_argument("--runs", nargs="+", default=[], help="by default all")
    parser.add_argument("--output", type=Path, help="write digests and numbers")
    parser.add_argument("--against", type=Path, help="a file of --output")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    found, cells, missed = dict[str, Any](), list[Sequence[str]](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        tables(Path(folder), asked.rows)
        runs = cases(Path(folder), asked.rows)
        for name in asked.runs or runs:
            began = os.times()
            found[name] = runs[name]().written()
            spent = sum(os.times()[:4]) - sum(began[:4])
            cells.append([name, *found[name]["digests"].values(), f"{spent:.1f}"])
            print("  ".join([f"{name:<17}", *cells[-1][1:]]), flush=True)
    if {"linear", "killed"} <= found.keys() and found["linear"]["digests"] != found["killed"]["digests"]:
        missed.append(f"the killed run differs: {compare({'killed': found['killed']}, {'killed': found['linear']})}")
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if asked.against:
        missed += compare(found, json.loads(asked.against.read_text("utf-8")))
        print("\n".join(missed) or f"all equal: {len(found)} runs")
    elif missed:
        print("\n".join(missed))
    report(__file__, Claim("Digests", TEXT, ["run", "scores", "forecasts", "state", "CPU-s"], cells, missed))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
