"""During an outage of the target forecasts go on, no worse than the last known season, in bands that cover the truth.

Ten outages, of 1 row to 10 days, are drawn into each stream at random places, far from each other; the rows stand in
the table without a target. Forecasts are asked at every row, a day ahead, and judged by the truths that were hidden
from the product: those of the rows within an outage, those of the day after it, and those of the second week after it,
when its hole is what a week ago says. Beside them the same model without outages, and the naive forecast of the last
week that is known.

Claimed of each model, over all streams: within outages an MAE of at most 1.05 times the naive one's and a coverage of
the 95 % band of 0.92 to 0.98; on the day after, at most 1.05 times the better of the naive one and of 1.1 times the
model without outages; a forecast at every row. How much wider old targets make a forecast was chosen on PJM's load; no
other stream played a part.

    STREAMGP_TEST_DATA=DIR python benchmarks/outages_are_known.py [--models auto,linear,svdgp] [--rows 8760]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from _report import Claim, report
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
DAYS = (0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 10.0)
"""Lengths of outages; and one row."""
WORSE, AFTER = 1.05, 1.1
COVERED = (0.92, 0.98)
PARTS = ("in", "the day after", "the second week")
COLUMNS = ("stream", "model", "when", "forecasts", "MAE", "over naive", "over no outage", "95 %", "95 %, no outage")

Floats = NDArray[np.float64]


class Stream(NamedTuple):
    """A table, its target and known inputs, rows of a day."""

    frame: pl.DataFrame
    target: str
    known: tuple[str, ...]
    every: str
    day: int


class Run(NamedTuple):
    """(R, H) forecasts at every row, and the ends of their 95 % bands; NaN where none was made."""

    mean: Floats
    low: Floats
    high: Floats


def streams(rows: int) -> dict[str, Stream]:
    """Electricity is on every machine; the others are read from STREAMGP_TEST_DATA."""
    demand = pl.read_csv(ROOT / "data" / "elecdemand.csv", try_parse_dates=True).rename({"timestamp": "ds"})
    found = {"electricity": Stream(demand, "demand_gw", ("workday",), "30m", 48)}
    if folder := os.environ.get("STREAMGP_TEST_DATA"):
        for title, file, target in (
            ("PJM load (chosen on)", "pjm_aep_hourly", "load_mw"),
            ("ETTh1 HUFL", "etth1", "HUFL"),
            ("ETTh1 OT", "etth1", "OT"),
        ):
            frame = pl.read_parquet(Path(folder) / f"{file}.parquet").rename({"timestamp": "ds"})
            found[title] = Stream(frame, target, (), "1h", 24)
        load = pl.read_parquet(Path(folder) / "gef2012_load.parquet").rename({"timestamp": "ds"})
        found["GEFCom load"] = Stream(load.drop_nulls("load_total_kw"), "load_total_kw", (), "1h", 24)
        wind = pl.read_parquet(Path(folder) / "gef2012_wind.parquet").rename({"timestamp": "ds"})
        found["GEFCom wind"] = Stream(wind.filter(pl.col("unique_id") == "wf1"), "power", (), "1h", 24)
    return {title: one._replace(frame=one.frame.head(rows)) for title, one in found.items()}


def outages(rows: int, day: int, seed: int = 1) -> list[tuple[int, int]]:
    """First row and length of outages that lie at least a week apart, where there is room, in the last 85 % of rows."""
    generator = np.random.default_rng(seed)
    lengths = np.array([1, *(max(2, round(part * day)) for part in DAYS)])
    generator.shuffle(lengths)
    begin = int(0.15 * rows)
    room = (rows - begin - lengths.sum() - 3 * day) // len(lengths)
    found, at = [], begin
    for length in lengths.tolist():
        found.append((at + int(generator.integers(max(room // 2, 1), max(room, 2))), length))
        at += room + length
    return found


def empty(rows: int, horizon: int) -> Run:
    """No forecast yet."""
    return Run(*(np.full((rows, horizon), np.nan) for _ in Run._fields))


def ran(stream: Stream, y: Floats, model: str, horizon: int) -> Run:
    """The forecasts of one pass at every row, where the target is y."""
    frame = stream.frame.select("ds", *stream.known).with_columns(pl.Series(stream.target, y).fill_nan(None))
    return one_pass(stream, frame, model, horizon)


def one_pass(
    stream: Stream,
    frame: pl.DataFrame,
    model: str,
    horizon: int,
    ingested: Mapping[str, Any] = MappingProxyType({}),
    trained: Mapping[str, Any] = MappingProxyType({}),
) -> Run:
    """The forecasts of one pass over the rows of a frame, in their order, by the rows of the stream. Those whose truth
    never comes are in no file of predictions: a ledger that keeps all of them stands in. ingested, trained: options."""
    from streamgp.base import Predictive
    from streamgp.forecasting.calibration import Calibration
    from streamgp.windows.ledger import Ledger
    from streamgp.windows.windows import Asks
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig
    from streamgp_pipelines.learning import learner

    found = empty(len(stream.frame), horizon)
    places = {at: row for row, at in enumerate(stream.frame["ds"].dt.epoch("ns").to_list())}
    ends = [Calibration().probabilities.index(p) for p in (0.025, 0.975)]

    class Kept(Ledger):
        """Keeps all forecasts."""

        def add(self, asks: Asks, predictive: Predictive) -> None:
            super().add(asks, predictive)
            self.place = np.array([places[at] for at in asks.cutoff.tolist()], np.int64)
            found.mean[self.place] = predictive.mean.numpy()

        def calibrate(self, quantiles: torch.Tensor, features: torch.Tensor) -> None:
            super().calibrate(quantiles, features)
            if quantiles.shape[1]:
                found.low[self.place], found.high[self.place] = quantiles[ends].numpy()

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        frame.write_parquet(place / "rows.parquet")
        given = {"source": (str(place / "rows.parquet"),), "table": str(place / "table"), "every": stream.every}
        ingest(IngestConfig.read(given | {"time": "ds"} | dict(ingested)))
        options: dict[str, Any] = {"horizon": horizon, "season": (stream.day, 7 * stream.day)}
        options |= {"known": ",".join(stream.known)} if stream.known else {}
        options |= trained
        usual, learner.Ledger = learner.Ledger, Kept  # type: ignore[misc]
        try:
            fit_stream(
                place / "table", stream.target, model=model, checkpoint=place / "checkpoint", device="cpu", **options
            )
        finally:
            learner.Ledger = usual  # type: ignore[misc]
    return found


def last_season(y: Floats, season: int, horizon: int) -> Floats:
    """(R, H) the last value known at each row of the step's phase."""
    found, last = np.full((len(y), horizon), np.nan), np.full(season, np.nan)
    for row, value in enumerate(y):
        if value == value:
            last[row % season] = value
        found[row] = last[(row + 1 + np.arange(horizon)) % season]
    return found


def main(models: list[str], rows: int) -> int:
    torch.set_num_threads(1)
    lines, missed = list[list[str]](), list[str]()
    every: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for title, stream in streams(rows).items():
        y, horizon = stream.frame[stream.target].to_numpy().astype(float), stream.day
        spans, hidden = outages(len(y), stream.day), y.copy()
        for start, length in spans:
            hidden[start : start + length] = np.nan
        truth = np.stack([np.append(y, np.full(horizon, np.nan))[1 + h : 1 + h + len(y)] for h in range(horizon)], 1)
        naive = last_season(hidden, 7 * stream.day, horizon)
        for model in models:
            with_outages, without = ran(stream, hidden, model, horizon), ran(stream, y, model, horizon)
            for part, (first, length) in zip(PARTS, ((0, 0), (0, stream.day), (7, 7 * stream.day)), strict=True):
                own = [
                    np.arange(start, start + gone)
                    if part == "in"
                    else np.arange(start + gone + first * stream.day, start + gone + first * stream.day + length)
                    for start, gone in spans
                ]
                figures = judged([at[at < len(y)] for at in own], truth, with_outages, without, naive)
                every.setdefault((model, part), []).append(figures)
                lines.append([title, model, part, *told(figures)])
                print("  ".join(lines[-1]), flush=True)
    for (model, part), found in every.items():
        made, error, over_naive, over_usual, covered, _ = mean = tuple(np.mean(found, 0).tolist())
        del error
        lines.append(["**all**", model, part, *told((mean[0], np.nan, *mean[2:]))])
        if made < 1:
            missed.append(f"{model}, {part}: a forecast at {made:.3f} of the rows")
        if part == "in" and not (over_naive <= WORSE and COVERED[0] <= covered <= COVERED[1]):
            missed.append(f"{model}, in outages: {over_naive:.3f} of the naive error, coverage {covered:.3f}")
        if part == "the day after" and over_usual > WORSE * AFTER and over_naive > WORSE:
            missed.append(f"{model}, the day after: {over_usual:.3f} of the error without outages")
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        f"The first {rows:,} rows of each stream, a day ahead, seasons of a day and a week; ten outages of 1 row to 10 "
        "days of the target, each counting as much as any other. Claimed of each model over all streams: a forecast at "
        f"every row; within outages at most {WORSE} times the MAE of the last known week and a coverage of the 95 % "
        f"band of {COVERED[0]} to {COVERED[1]}; on the day after at most {WORSE} times the better of the naive error "
        f"and {AFTER} times that of the model without outages. Widths were chosen on PJM's load alone."
    )
    report(__file__, Claim("Outages are known", text, COLUMNS, lines, missed))
    return 1 if missed else 0


def judged(spans: list[NDArray[np.int64]], truth: Floats, run: Run, usual: Run, naive: Floats) -> tuple[float, ...]:
    """Share of the rows with a forecast, MAE, MAE over the naive one's and over that of the run without outages, and
    both coverages: means over outages, of which each counts as much."""
    found = []
    for rows in spans:
        y, mean = truth[rows], run.mean[rows]
        known = np.isfinite(y) & np.isfinite(mean) & np.isfinite(usual.mean[rows])
        if not known.any():
            continue
        errors = [np.abs(y - part[rows])[known].mean() for part in (run.mean, naive, usual.mean)]
        covered = [((one.low[rows] <= y) & (y <= one.high[rows]))[known].mean() for one in (run, usual)]
        found.append([np.isfinite(mean).all(1).mean(), *errors, *covered])
    made, error, of_naive, of_usual, covered_now, covered_usually = np.mean(found, 0).tolist()
    return made, error, error / of_naive, error / of_usual, covered_now, covered_usually


def told(figures: tuple[float, ...]) -> list[str]:
    """As cells of the table."""
    made, error, *rest = figures
    return [f"{made:.1%}", "" if np.isnan(error) else f"{error:.4g}", *(f"{value:.3f}" for value in rest)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="auto,linear,svdgp", help="comma-separated; default: auto,linear,svdgp")
    parser.add_argument("--rows", type=int, default=8760, help="rows of each stream; default: 8760")
    asked = parser.parse_args()
    sys.exit(main(asked.models.split(","), asked.rows))
