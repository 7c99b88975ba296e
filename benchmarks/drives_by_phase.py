"""Forecasts of a car's speed are at least as good as the best other, and hold while it stands, starts and stops.

Three logs: 23 drives of several cars (speed in mph, 1 s), one drive of another car (km/h, 0.5 s), a minute of a third
(m/s, 0.1 s). Models see the last 20 speeds of the drive and nothing else, and are asked 1, 5, 10 and 30 s ahead, each
in a run of its own. Scored are the same rows for all, from row 1,000 on (200 of the minute): RMSE of the mean, MAE of
the median, CRPS from 11 quantiles, coverage of the 95 % band. `ridge`, `lightgbm` and a plain `lstm` are refitted at
every eleventh of the log on all rows before, with conformal bands of their own last 2,000 errors. Standing is below
0.5 mph; starting and stopping are a change by more than 0.5 mph a second over three seconds. Constants were chosen on
the 23 drives at 1 and 10 s, those of the use of point masses on the second car at 10 and 30 s too; all else confirms.

    python benchmarks/drives_by_phase.py [--others FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import _uci
import numpy as np
import polars as pl
import torch
from _opponents import LEVELS, Array
from _report import Claim, report

from streamgp_pipelines.comparing.peers.ridge import solved

LAGS, STEPS, ERRORS = 20, (1, 5, 10, 30), 2000
HIDDEN, FIRST, LATER = 32, 40, 10  # units of the LSTM, epochs of its first fit and of the others
OURS, OTHERS = ("auto", "linear", "persistence"), ("ridge", "lightgbm", "lstm")
PHASES = ("standing", "starting", "cruising", "stopping")
P = np.array(LEVELS)
PENALTY = np.array([3.0])
TREES: dict[str, Any] = {
    "n_estimators": 100,
    "learning_rate": 0.06,
    "num_leaves": 31,
    "min_child_samples": 50,
    "colsample_bytree": 0.7,
    "subsample": 0.8,
    "subsample_freq": 1,
    "n_jobs": 1,
    "random_state": 0,
    "verbose": -1,
}
COLUMNS = ("log", "s", "model", "RMSE", "MAE", "CRPS", "coverage", *PHASES)
PARTS = ("log", "s", *PHASES)
TEXT = (
    "Speed of 23 drives (nds, mph), a second car (carobd, km/h) and a third (comma2k19, m/s, one minute) from 20 past "
    "speeds; the same rows for all. RMSE of means, MAE of medians, coverage of 95 % bands, over all and by phase. "
    "Claimed: RMSE, MAE and CRPS of auto are within 1 % of the best other's (else: the ratio), coverage is 0.93 to "
    "0.97 in all phases of nds and carobd. Chosen on nds at 1 and 10 s, and when point masses are used on carobd at 10 "
    "and 30 s too. A band that ends at a stop includes all of it: with 2.5 % there, it covers 0.975."
)


class Net(torch.nn.Module):
    """A plain LSTM over the past speeds and a linear layer: the change of speed until `ahead`, directly."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.lstm, self.head = torch.nn.LSTM(1, HIDDEN, batch_first=True), torch.nn.Linear(HIDDEN, 1)
        self.adam = torch.optim.Adam(self.parameters(), 2e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, LAGS) oldest first -> (N,)"""
        return torch.as_tensor(self.head(self.lstm(x[..., None])[0][:, -1])[:, 0])

    def fit(self, x: torch.Tensor, y: torch.Tensor, epochs: int) -> None:
        """Least squares, from the weights of before."""
        for _ in range(epochs):
            for rows in torch.randperm(len(y)).split(128):
                self.adam.zero_grad()
                torch.nn.functional.mse_loss(self(x[rows]), y[rows]).backward()
                torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)
                self.adam.step()


class Log:
    """A log: (timestamp, drive, v), the rows of a second, the unit in mph, and the first row that is scored."""

    def __init__(self, frame: pl.DataFrame, hertz: int, unit: float, steps: tuple[int, ...], first: int) -> None:
        self.frame, self.hertz, self.unit, self.steps, self.first = frame, hertz, unit, steps, first
        self.v = frame["v"].to_numpy()
        drive = frame["drive"].rank("dense").to_numpy()
        self.place = (
            np.arange(len(drive))
            - np.r_[0, np.flatnonzero(np.diff(drive)) + 1][np.cumsum(np.r_[0, np.diff(drive) != 0])]
        )
        self.left = np.r_[np.flatnonzero(np.diff(drive)), len(drive) - 1][
            np.cumsum(np.r_[0, np.diff(drive) != 0])
        ] - np.arange(len(drive))

    def phases(self) -> list[str]:
        back = np.minimum(3 * self.hertz, self.place)
        rise = (self.v - self.v[np.arange(len(self.v)) - back]) / self.unit * self.hertz / np.maximum(back, 1)
        names = np.where(rise > 0.5, "starting", np.where(rise < -0.5, "stopping", "cruising"))
        return np.where(self.v < 0.5 * self.unit, "standing", names).tolist()


def logs(folder: Path) -> dict[str, Log]:
    def made(v: pl.Series, hertz: int) -> pl.DataFrame:
        times = [datetime.fromtimestamp(1.6e9 + k / hertz, UTC) for k in range(len(v))]
        return pl.DataFrame({"timestamp": times, "drive": ["one"] * len(v), "v": v.cast(pl.Float64)})

    nds = pl.read_parquet(folder / "nds_drives.parquet").sort("timestamp")
    nds = nds.select("timestamp", pl.col("drive").cast(pl.String), pl.col("speed_mph").alias("v"))
    car = pl.read_parquet(folder / "carobd_drive10.parquet")["vehicle_speed_km_h"]
    comma = pl.read_parquet(folder / "comma2k19_segment.parquet").sort("timestamp")
    comma = comma.group_by_dynamic("timestamp", every="100ms").agg(pl.col("speed_m_s").last())
    return {
        "nds": Log(nds, 1, 1.0, STEPS, 1000),
        "carobd": Log(made(car, 2), 2, 1.609, STEPS, 1000),
        "comma2k19": Log(made(comma["speed_m_s"], 10), 10, 0.447, (1, 5), 200),
    }


def ours(log: Log, model: str, ahead: int, work: Path) -> tuple[Array, Array]:
    """(n,) means and (n, 11) quantiles of the row `ahead` steps on, by origin; NaN where there is none."""
    from streamgp_pipelines import fit_stream

    options = {"horizon": ahead, "lags": LAGS, "quantiles": LEVELS, "predictions": work / "predictions.parquet"}
    fit_stream(work / "table", "v", model=model, checkpoint=work / f"{model}-{ahead}", device="cpu", **options)
    found = pl.read_parquet(work / "predictions.parquet")
    name = found.columns[found.columns.index("y") + 1]
    keys = ["drive", "timestamp"]
    rows = log.frame.select("drive", pl.col("timestamp").dt.epoch("ms")).with_row_index("row")
    found = found.filter(pl.col("step") == ahead).with_columns(pl.col("cutoff").dt.epoch("ms"))
    found = found.rename({"unique_id": "drive", "cutoff": "timestamp"}).join(rows, on=keys)
    mean, quantiles = np.full(len(log.v), np.nan), np.full((len(log.v), len(P)), np.nan)
    mean[found["row"]] = found[name].to_numpy()
    quantiles[found["row"]] = found.select([f"{name}-q-{p:g}" for p in LEVELS]).to_numpy()
    return mean, quantiles


def others(log: Log, model: str, ahead: int) -> tuple[Array, Array]:
    """The same of a model that is refitted now and then, with conformal bands."""
    from lightgbm import LGBMRegressor

    v, n, row = log.v, len(log.v), np.arange(len(log.v))
    x = np.stack([v[row - np.minimum(lag, log.place)] for lag in range(LAGS)] + [np.ones(n)], 1)
    fair = (log.place >= LAGS - 1) & (log.left >= ahead)
    truth = np.where(fair, v[np.minimum(row + ahead, n - 1)], np.nan)
    mean, quantiles = np.full(n, np.nan), np.full((n, len(P)), np.nan)
    borders, net = np.linspace(log.first, n, 11).astype(int), Net()
    unit = v[: log.first].std()
    past, target = (torch.tensor(part / unit, dtype=torch.float32) for part in (x[:, -2::-1].copy(), truth - v))
    for start, stop in pairwise(borders):
        known, asked = np.flatnonzero(fair & (row + ahead <= start)), slice(start, stop)
        if model == "ridge":
            weights = solved(x[known].T @ x[known], x[known].T @ (truth - v)[known, None], PENALTY)[0, :, 0]
            fitted = x @ weights + v
        elif model == "lstm":
            net.fit(past[known], target[known], LATER if start > log.first else FIRST)
            with torch.no_grad():
                fitted = net(past).double().numpy() * unit + v
        else:
            trees = LGBMRegressor(**TREES).fit(x[known, :-1], (truth - v)[known])
            fitted = np.asarray(trees.booster_.predict(x[:, :-1], num_threads=1)) + v
        mean[asked] = fitted[asked]
    errors = np.where(fair, truth - mean, np.nan)
    for start in range(log.first, n, 50):
        past = errors[: max(start - ahead, 0) + 1]
        past = past[np.isfinite(past)][-ERRORS:]
        if len(past) >= 50:
            quantiles[start : start + 50] = mean[start : start + 50, None] + np.quantile(past, P)
    return mean, quantiles


def scores(y: Array, mean: Array, quantiles: Array) -> tuple[float, float, float, float]:
    """RMSE, MAE of the median, CRPS and coverage."""
    around = np.r_[0.0, P, 1.0]
    miss = y[:, None] - quantiles
    crps = np.maximum(P * miss, (P - 1) * miss) @ (around[2:] - around[:-2])
    inside = (y >= quantiles[:, 0]) & (y <= quantiles[:, -1])
    mae = np.abs(miss[:, len(P) // 2])
    return float(np.sqrt(((y - mean) ** 2).mean())), float(mae.mean()), float(crps.mean()), float(inside.mean())


def main(folder: Path) -> int:
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines.config import IngestConfig

    table, parts, missed = list[list[str]](), list[list[str]](), list[str]()
    for name, log in logs(folder).items():
        with tempfile.TemporaryDirectory() as place:
            work = Path(place)
            log.frame.write_parquet(work / "rows.parquet")
            source = {"source": (str(work / "rows.parquet"),), "table": str(work / "table"), "series": "drive"}
            ingest(IngestConfig.read(source | {"every": f"{1000 // log.hertz}ms"}))
            for seconds in log.steps:
                ahead = seconds * log.hertz
                found = {model: ours(log, model, ahead, work) for model in OURS}
                found |= {model: others(log, model, ahead) for model in OTHERS}
                rows = np.flatnonzero(log.left >= ahead)
                rows = rows[np.all([np.isfinite(q[rows]).all(1) for _, q in found.values()], 0)]
                y, phase = log.v[rows + ahead], np.array(log.phases())[rows]
                all_of = {model: scores(y, m[rows], q[rows]) for model, (m, q) in found.items()}
                for model, (mean, quantiles) in found.items():
                    held = [
                        scores(y[own], mean[rows][own], quantiles[rows][own])[3] if own.sum() > 100 else None
                        for own in (phase == part for part in PHASES)
                    ]
                    figures = [f"{score:.4g}" for score in all_of[model][:3]] + [f"{all_of[model][3]:.3f}"]
                    cells = [name, str(seconds), model, *figures]
                    table.append(cells + ["" if part is None else f"{part:.3f}" for part in held])
                    print("  ".join(table[-1]), flush=True)
                    if model == "auto" and name != "comma2k19":
                        off = [f"{p} {x:.3f}" for x, p in zip(held, PHASES, strict=True) if x and not 0.93 <= x <= 0.97]
                        missed += [f"{name}-{seconds}s: {', '.join(off)}"] if off else []
                best = [min(one[k] for model, one in all_of.items() if model != "auto") for k in range(3)]
                worse = [
                    f"{score} {all_of['auto'][k] / best[k]:.3f}"
                    for k, score in enumerate(("RMSE", "MAE", "CRPS"))
                    if all_of["auto"][k] > 1.01 * best[k]
                ]
                missed += [f"{name}-{seconds}s: {', '.join(worse)}"] if worse else []
                ratios = []
                for own in (phase == part for part in PHASES):
                    each = {m: scores(y[own], a[rows][own], q[rows][own]) for m, (a, q) in found.items() if own.any()}
                    least = [min(one[k] for m, one in each.items() if m != "auto") for k in range(3) if each]
                    over = [f"{each['auto'][k] / one:.2f}" for k, one in enumerate(least)]
                    ratios.append("/".join(over) if own.sum() > 100 else "")
                parts.append([name, str(seconds), *ratios])
    print("\n".join("  ".join(cells) for cells in parts))
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    report(
        __file__,
        Claim("Speed of cars, by phase", TEXT, COLUMNS, table, missed),
        Claim(
            "auto in each phase", "RMSE/MAE/CRPS of auto over the least of any other model there.", PARTS, parts, None
        ),
    )
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", type=Path, default=_uci.FOLDER, help="folder of the logs")
    sys.exit(main(parser.parse_args().others))
