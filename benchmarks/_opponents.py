"""Day-ahead forecasters to compare with, on one series of a regular grid: the peers of `streamgp compare`.

Row i, column h − 1 of a forecast is that of y[i + h], issued at row i from y[..i] and the known inputs to row i + h.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

LEVELS = (0.025, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.975)
HISTORY = 8  # weeks that MSTL is fitted to


class Forecasts(NamedTuple):
    """point: (n, H). quantiles: (n, H, 11) at LEVELS. NaN where there is none."""

    point: Array
    quantiles: Array


@dataclass(frozen=True)
class Data:
    """One series.

    Attributes:
        y: (n,) NaN where the table has no row.
        known: of each input that is known ahead, (n,).
        day, week: rows in each.
        clock: (n,) local time, seconds since 1970.
        phase: (n,) row of the local day.
    """

    y: Array
    known: dict[str, Array]
    day: int
    week: int
    clock: Rows
    phase: Rows

    @property
    def filled(self) -> Array:
        """(n,) y, with the value of a week before where it is missing."""
        y = self.y.copy()
        for row in np.nonzero(np.isnan(y))[0]:
            y[row] = y[row - self.week] if row >= self.week else y[row - 1]
        return y

    @property
    def truth(self) -> Array:
        """(n, H) what the forecasts are of."""
        return at(self.y, np.arange(len(self.y))[:, None] + np.arange(1, self.day + 1))


def at(values: Array, rows: Rows) -> Array:
    """The values of these rows; NaN outside the series."""
    inside = (rows >= 0) & (rows < len(values))
    return np.where(inside, values[np.clip(rows, 0, len(values) - 1)], np.nan)


def peer(name: str, data: Data, *options: str) -> Forecasts:
    """What a peer of `streamgp compare` forecasts at every row behind its warm-up; `options`: such as mstl.every=97."""
    import torch

    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import compare
    from streamgp_pipelines.config import IngestConfig

    torch.set_num_threads(1)
    columns = {"timestamp": pl.from_epoch(pl.Series(data.clock), "s"), "y": data.y, **data.known}
    rows = pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None)).filter(pl.col("y").is_not_null())
    every = 86400 // data.day
    with tempfile.TemporaryDirectory() as folder:
        table, home = Path(folder) / "table", Path(folder) / "models"
        rows.write_parquet(Path(folder) / "rows.parquet")
        source = (str(Path(folder) / "rows.parquet"),)
        ingest(IngestConfig.read({"source": source, "table": str(table), "every": f"{every}s"}))
        given: dict[str, Any] = {"horizon": data.day, "season": (data.day, data.week), "known": tuple(data.known)}
        given |= {"comparison": home, "level": (95.0,), "set": options, "device": "cpu"}
        compare(table, "y", (name,), against=name, **given)
        found = pl.read_parquet(home / name / "predictions.parquet")
    begin = int(data.clock[0])
    row = (found["cutoff"].dt.epoch("s").to_numpy() - begin) // every
    step = (found["ds"].dt.epoch("s").to_numpy() - begin) // every - row
    near = step <= data.day  # the horizon counts rows, so that behind a missing row it reaches further
    row, step, found = row[near], step[near], found.filter(pl.Series(near))
    point = np.full((len(data.y), data.day), np.nan)
    quantiles = np.full((len(data.y), data.day, len(LEVELS)), np.nan)
    point[row, step - 1] = found[name].to_numpy()
    sides = [f"{name}-lo-95", *[f"{name}-q-{p}" for p in LEVELS[1:-1]], f"{name}-hi-95"]
    quantiles[row, step - 1] = found.select(sides).to_numpy()
    return Forecasts(point, quantiles)


def lightgbm(data: Data) -> Forecasts:
    """Gradient-boosted trees, with the defaults of the peer."""
    return peer("lightgbm", data)


def ridge(data: Data) -> Forecasts:
    """A linear regression a step, with the defaults of the peer."""
    return peer("ridge", data)


def mstl(data: Data) -> Forecasts:
    """MSTL (statsforecast), at every fifth day and five hours, fitted to eight weeks."""
    every = 5 * data.day + 5 * data.day // 24
    return peer("mstl", data, f"mstl.every={every}", f"mstl.history={HISTORY * data.week}")
