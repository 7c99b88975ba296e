"""Several steps ahead: one column a step, or one step run on its own output? Both, from the same origins, in one run.

Each model learns a stream twice, online: once for all steps ahead (`--horizon H`), and once for one step, trained for
simulation where it can be (`--horizon 1 --simulate H`). From origins H + 3 rows apart, in micro-batches that neither
has learned yet, the first issues its columns and the second 60 paths. Both see the same: inputs that are known ahead
are given to both; where nothing is known ahead, columns that one sees in the past are simulated beside the target by
the other.

Printed per stream, model and step: RMSE and raw CRPS of both, and their paired difference in standard errors, positive
where simulation is better.

    python benchmarks/direct_columns_beside_simulation.py [--data FOLDER] [--streams a,b] [--models linear,narx]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from _report import Claim, report
from _uci import FOLDER
from numpy.typing import NDArray

MODELS = ("linear", "narx", "gp_lstm")
PATHS, FEWEST = 60, 20
SURE = 3.0
"""Standard errors from which on one is better: there are some two hundred comparisons."""
COLUMNS = (
    "stream", "model", "steps ahead", "origins", "RMSE, columns", "simulated", "difference / s.e.",
    "CRPS, columns", "simulated", "difference / s.e.",
)  # fmt: skip
ABOUT = (
    "Each model learns online twice: all steps ahead at once (columns), and one step, simulated by 60 paths "
    "(`--simulate`). Both forecast from the same origins, in rows that neither has learned. Inputs known ahead "
    "(quarter_drone, ball_and_hoop, two tanks) are given to both; columns that one sees in the past are simulated "
    "beside the target by the other. CRPS is raw. Differences are paired, in standard errors, positive where "
    "simulation is better. The default mix weighs columns and an iterated step online (decision 24)."
)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stream:
    """known: inputs that are known ahead; beside: columns that are seen in the past, or simulated beside the target."""

    rows: Callable[[Path], pl.DataFrame]
    target: str
    horizon: int
    known: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=lambda: {"lags": 20})
    ingest: dict[str, Any] = field(default_factory=lambda: {"time": "row"})


def columns(file: str, *names: str, rows: int | None = None) -> Callable[[Path], pl.DataFrame]:
    return lambda folder: pl.read_parquet(folder / file).select(names).head(rows or sys.maxsize)


def drives(*names: str) -> Callable[[Path], pl.DataFrame]:
    def read(folder: Path) -> pl.DataFrame:
        rows = pl.read_parquet(folder / "nds_drives.parquet").sort("timestamp")
        return rows.select("timestamp", pl.col("drive").cast(pl.String), "speed_mph", *names)

    return read


def two_tanks(_: Path) -> pl.DataFrame:
    """Two tanks one below the other, with a pump that follows a random staircase: level of the lower, measured."""
    generator = np.random.default_rng(0)
    u = np.repeat(generator.uniform(0.1, 1.0, 400), generator.integers(10, 40, 400))[:8000]
    level, found = np.array([0.3, 0.3]), np.empty(len(u))
    for at, now in enumerate(u):
        out = 0.12 * np.sqrt(np.maximum(level, 0.0))
        level = level + np.array([0.12 * now - out[0], out[0] - out[1]])
        found[at] = level[1]
    return pl.DataFrame({"pump": u, "level": found + 0.005 * generator.standard_normal(len(u))})


DRIVE = {"series": "drive", "every": "1s"}
CAR = ("vehicle_speed_km_h", "engine_rpm", "throttle_pct")
STREAMS = {
    "drives, speed": Stream(drives(), "speed_mph", 30, ingest=DRIVE),
    "drives, speed and acceleration": Stream(drives("accel_x"), "speed_mph", 30, beside=("accel_x",), ingest=DRIVE),
    "carobd_drive10": Stream(columns("carobd_drive10.parquet", *CAR), CAR[0], 20, beside=CAR[1:]),
    "etth1 HUFL": Stream(
        columns("etth1.parquet", "timestamp", "HUFL", rows=8000), "HUFL", 24,
        options={"season": "24,168"}, ingest={"every": "1h"},
    ),
    "quarter_drone, closed loop": Stream(
        columns("quarter_drone.parquet", "control_pct", "angle_deg", rows=12_000), "angle_deg", 50, ("control_pct",)
    ),
    "ball_and_hoop": Stream(columns("ball_and_hoop.parquet", "u", "y"), "y", 50, ("u",)),
    "two tanks, made": Stream(two_tanks, "level", 50, ("pump",)),
}  # fmt: skip


def crps_of_paths(paths: Floats, truth: Floats) -> Floats:
    """(P, N, H), (N, H) -> (N, H): mean |x − y| less half the mean |x − x'| over pairs of different paths."""
    count, place = len(paths), np.arange(1, len(paths) + 1)[:, None, None]
    apart = (np.sort(paths, 0) * (2 * place - count - 1)).sum(0) / (count * (count - 1) / 2)
    return np.asarray(np.abs(paths - truth).mean(0) - apart / 2)


def scored(
    stream: Stream, table: pl.DataFrame, home: Path, model: str, simulated: bool
) -> dict[int, tuple[Floats, Floats]]:
    """By origin, the row of the table: squared errors and CRPS of the steps ahead, (H,) each."""
    from streamgp.base import FLOAT, Inputs, Simulates
    from streamgp.windows.paths import rows_ahead
    from streamgp.windows.windows import Windows
    from streamgp_data.batches import micro_batches
    from streamgp_pipelines.config import TrainConfig
    from streamgp_pipelines.learning.rollout import drawing, rollout
    from streamgp_pipelines.learning.session import open_session

    steps, series = stream.horizon, stream.ingest.get("series")
    targets = (stream.target, *stream.beside) if simulated else (stream.target,)
    more: dict[str, Any] = {"horizon": 1, "simulate": steps} if simulated else {"horizon": steps}
    if stream.beside and not simulated:
        more["inputs"] = ",".join(stream.beside)
    settings = {"table": home / "t", "target": targets, "online": True, "model": model, "device": "cpu"}
    session = open_session(
        TrainConfig.read(
            {**settings, "known": stream.known or None, **more, **stream.options, "checkpoint": home / "no"}
        )
    )
    learner = session.learner
    reach = learner.windows.reach
    spec = replace(learner.windows.spec, series="origin")
    key = table[series].to_numpy() if series else np.zeros(len(table), np.int64)
    place = pl.DataFrame({"key": key}).select(pl.int_range(pl.len()).over("key")).to_series().to_numpy()
    own = {one: np.flatnonzero(key == one) for one in np.unique(key)}
    found = dict[int, tuple[Floats, Floats]]()

    def at_origins(first: int, last: int) -> None:
        """Forecasts from origins among these rows."""
        some = [
            row for row in range(first, last)
            if place[row] % (steps + 3) == 0 and place[row] >= reach and place[row] + steps < len(own[key[row]])
        ]  # fmt: skip
        if not some:
            return
        around = [own[key[row]][place[row] + 1 - reach : place[row] + 1 + steps] for row in some]
        names = [f"{row:07}" for row in some]

        def taken(start: int, stop: int | None) -> Any:
            parts = [
                table[rows[start:stop].tolist()].with_columns(origin=pl.lit(name))
                for rows, name in zip(around, names, strict=True)
            ]
            whole = pl.concat(parts).drop([series] if series else [])
            return whole.to_arrow().combine_chunks().to_batches()[0]

        truth = np.stack([table[stream.target].to_numpy()[rows[-steps:]] for rows in around])
        windows = Windows(spec)
        with torch.no_grad():
            if simulated:
                windows.push(taken(0, reach))
                values = rows_ahead(windows, taken(reach, None), steps)[:, :, len(targets) :]
                assert isinstance(learner.model, Simulates)
                draw = drawing(learner.model, PATHS, first)
                y = torch.full((PATHS, len(some), steps), torch.nan, dtype=FLOAT)

                def observed(x: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
                    value, seen = (part.nan_to_num(0.0).clamp(-1e12, 1e12) for part in draw(x))
                    return value, seen

                for step, (_, value) in enumerate(rollout(observed, windows, np.arange(len(some)), PATHS, values)):
                    if value is not None:
                        y[:, :, step] = value.unflatten(0, (PATHS, -1))[:, :, 0]
                seen = table[stream.target].to_numpy()[: first + 1]
                low, high = np.nanmin(seen), np.nanmax(seen)
                paths = y.numpy().clip(2 * low - high, 2 * high - low)  # as `--simulate` limits paths that explode
                which, mean, crps = np.arange(len(some)), paths.mean(0), crps_of_paths(paths, truth)
            else:
                asks, _ = windows.push(taken(0, None))
                at = asks.position.numpy()
                wanted = np.array([len(around[0]) * place_ + reach - 1 for place_ in range(len(some))])
                asked = np.flatnonzero(np.isin(at, wanted))
                which = (at[asked] // len(around[0])).astype(int)
                issued = learner.model.predict(asks.x.rows(torch.from_numpy(asked)))
                mean, crps = issued.mean.numpy(), issued.crps(torch.from_numpy(truth[which])).numpy()
        for row, forecast, score in zip(which, mean, crps, strict=True):
            error = (forecast - truth[row]) ** 2
            if np.isfinite(error).all() and np.isfinite(score).all():
                found[some[row]] = error, score

    for rows, _ in micro_batches(session.source, session.offset, lambda: learner.room):
        if learner.warmup.done_at is not None:
            at_origins(learner.rows, learner.rows + rows.num_rows)
        if rows.num_rows < learner.room:
            break
        learner.advance(rows)
    return found


def difference(one: Floats, other: Floats) -> float:
    """Mean of the paired differences in standard errors."""
    apart = one - other
    return float(apart.mean() / max(apart.std(ddof=1) / len(apart) ** 0.5, 1e-300))


def measure(name: str, data: Path, models: list[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Rows of the table, and where simulation is better."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines.config import IngestConfig

    stream = STREAMS[name]
    table, lines, won = stream.rows(data), list[tuple[str, ...]](), list[str]()
    steps = sorted({1, stream.horizon // 5, stream.horizon // 2, stream.horizon})
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            table.write_parquet(home / "rows.parquet")
            source = {"source": (str(home / "rows.parquet"),), "table": str(home / "t")}
            ingest(IngestConfig.read({**source, **stream.ingest}))
            began = time.process_time()
            direct, runs = (scored(stream, table, home, model, simulated) for simulated in (False, True))
        both = sorted(direct.keys() & runs.keys())
        if len(both) < FEWEST:
            raise SystemExit(f"{name}: {len(both)} origins have forecasts of both kinds")
        errors, crps, run_errors, run_crps = (
            np.stack([kind[row][part] for row in both]) for kind, part in product((direct, runs), (0, 1))
        )
        for step in steps:
            cells, at = list[str](), step - 1
            for kind, ours, theirs in (("RMSE", errors, run_errors), ("CRPS", crps, run_crps)):
                root = np.sqrt if kind == "RMSE" else np.asarray
                means = [float(root(part[:, at].mean())) for part in (ours, theirs)]
                apart = difference(ours[:, at], theirs[:, at])
                cells += [*(f"{mean:.4g}" for mean in means), f"{apart:+.1f}"]
                if apart > SURE:
                    won.append(f"{name}, {model}, {kind} at {step}: {means[1] / means[0]:.2f}")
            lines.append((name, model, str(step), str(len(both)), *cells))
            print("  ".join(lines[-1]), flush=True)
        print(f"{time.process_time() - began:.0f} CPU seconds", file=sys.stderr)
    return lines, won


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the data sets")
    parser.add_argument("--streams", default=";".join(STREAMS), help="semicolon-separated; default: all")
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    asked = parser.parse_args()
    lines, won = list[tuple[str, ...]](), list[str]()
    for name in asked.streams.split(";"):
        more, better = measure(name, asked.data, asked.models.split(","))
        lines, won = lines + more, won + better
    print("simulation is better: " + ("; ".join(won) or "nowhere"))
    report(__file__, Claim("Columns or simulation", ABOUT, COLUMNS, lines, None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
