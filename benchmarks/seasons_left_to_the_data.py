"""Whether `--season clock`, the default, is the best of the seasons that can be named by hand.

The default model, one pass a day ahead (ten steps for drives), over the first rows of each stream: without a season,
with the day, with the week, with both, and with the default. MAE of the default, and of no season, over the best of
the first four. Simulated streams: a day and a week; a day alone, whose week says nothing; a random walk of hours, which
has no season.

Rules are tried on the streams marked so; the others are to confirm them.

    STREAMGP_TEST_DATA=DIR python benchmarks/seasons_left_to_the_data.py [--streams HUFL,OT] [--rows 4000]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from _report import Claim, report
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
MOST = 1.005
FIRST = 1344
"""Rows that are learned and not scored: two weeks of quarter hours, four of half hours, eight of hours."""
HANDS = ("none", "day", "week", "both")
COLUMNS = ("stream", *HANDS, "the default", "rows of its seasons", "default over best", "none over best")


class Stream(NamedTuple):
    """Rows, the target, the interval, rows of a day (0: no clock has one), and other options."""

    rows: Callable[[int], pl.DataFrame]
    target: str
    every: str
    day: int
    options: Mapping[str, Any] = MappingProxyType({})
    chosen: bool = False


def public(file: str, target: str, *known: str, series: str = "") -> Callable[[int], pl.DataFrame]:
    """The first rows of some columns of a public set."""

    def read(rows: int) -> pl.DataFrame:
        frame = pl.read_parquet(Path(os.environ["STREAMGP_TEST_DATA"]) / f"{file}.parquet")
        if series:
            frame = frame.filter(pl.col("unique_id") == series)
        return frame.select("timestamp", target, *known).drop_nulls().sort("timestamp").head(rows)

    return read


def demand(rows: int) -> pl.DataFrame:
    return pl.read_csv(ROOT / "data" / "elecdemand.csv", try_parse_dates=True).head(rows)


def drives(rows: int) -> pl.DataFrame:
    frame = pl.read_parquet(Path(os.environ["STREAMGP_TEST_DATA"]) / "nds_drives.parquet")
    return frame.select("timestamp", pl.col("drive").cast(pl.String), "speed_mph").sort("timestamp").head(rows)


def simulated(kind: str) -> Callable[[int], pl.DataFrame]:
    """Hours of a day and a week, of a day alone, or of a random walk."""

    def made(rows: int) -> pl.DataFrame:
        generator, at = np.random.default_rng(11), np.arange(rows)
        shocks = generator.standard_normal(rows)
        noise = np.zeros(rows)
        for row in range(1, rows):
            noise[row] = (1.0 if kind == "walk" else 0.95) * noise[row - 1] + shocks[row]
        day = 8 * np.sin(2 * np.pi * at / 24) + 3 * np.cos(4 * np.pi * at / 24)
        scale: NDArray[Any] = np.where(at % 168 >= 120, 0.5, 1.0) if kind == "week" else np.ones(rows)
        y = 50 + noise + (0 if kind == "walk" else scale * day)
        times = [datetime(2024, 1, 1) + timedelta(hours=int(row)) for row in at]
        return pl.DataFrame({"timestamp": times, "y": y})

    return made


STREAMS = {
    "day and week simulated": Stream(simulated("week"), "y", "1h", 24, chosen=True),
    "day simulated": Stream(simulated("day"), "y", "1h", 24, chosen=True),
    "random walk simulated": Stream(simulated("walk"), "y", "1h", 24, chosen=True),
    "electricity workday": Stream(demand, "demand_gw", "30m", 48, {"known": "workday"}, chosen=True),
    "HUFL": Stream(public("etth1", "HUFL"), "HUFL", "1h", 24, chosen=True),
    "AEP": Stream(public("pjm_aep_hourly", "load_mw"), "load_mw", "1h", 24, chosen=True),
    "wind farm 1": Stream(public("gef2012_wind", "power", series="wf1"), "power", "1h", 24, chosen=True),
    "electricity temperature": Stream(demand, "demand_gw", "30m", 48, {"known": "workday,temperature_c"}),
    "OT": Stream(public("etth1", "OT"), "OT", "1h", 24),
    "MUFL": Stream(public("etth1", "MUFL"), "MUFL", "1h", 24),
    "LUFL": Stream(public("etth1", "LUFL"), "LUFL", "1h", 24),
    "GEFCom load temperature": Stream(
        public("gef2012_load", "zone01_kw", "station01_temp_f"), "zone01_kw", "1h", 24, {"known": "station01_temp_f"}
    ),
    "wind farm 4": Stream(public("gef2012_wind", "power", series="wf4"), "power", "1h", 24),
    "drives": Stream(drives, "speed_mph", "1s", 0, {"horizon": 10, "lags": 20, "series": "drive"}),
}


def by_hand(day: int) -> dict[str, str]:
    """What is named by hand."""
    return (
        {"none": "none"}
        if not day
        else {"none": "none", "day": f"{day}", "week": f"{7 * day}", "both": f"{day},{7 * day}"}
    )


def main(streams: list[str], rows: int) -> int:
    from streamgp_data import checkpoint
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig
    from streamgp_pipelines.learning.restored import recipe_of

    lines, missed = list[list[str]](), list[str]()
    for name in streams:
        stream = STREAMS[name]
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            stream.rows(rows).write_parquet(place / "rows.parquet")
            source = {"source": (str(place / "rows.parquet"),), "table": str(place / "table"), "every": stream.every}
            given = {key: stream.options[key] for key in ("series",) if key in stream.options}
            ingest(IngestConfig.read(source | given))
            error, found = dict[str, float](), ""
            for title, season in (by_hand(stream.day) | {"clock": "clock"}).items():
                own = {key: value for key, value in stream.options.items() if key != "series"}
                options: dict[str, Any] = {"horizon": stream.day, "score_from": str(FIRST)} | own
                options["season"] = season
                run = place / title
                began = time.process_time()
                made = fit_stream(place / "table", stream.target, checkpoint=run, device="cpu", **options)
                error[title] = made["mae"]
                print(name, title, f"{made['mae']:.5g}", f"{time.process_time() - began:.0f} s", flush=True)
                if title == "clock":
                    found = ",".join(map(str, recipe_of(checkpoint.read(run)).spec.seasons)) or "none"
        best = min(error[title] for title in by_hand(stream.day))
        shown = [f"{error[title]:.4g}" if title in error else "" for title in (*HANDS, "clock")]
        ratios = [error[title] / best for title in ("clock", "none")]
        title = f"{name} (chosen on)" if stream.chosen else name
        lines.append([title, *shown, found, *(f"{ratio:.3f}" for ratio in ratios)])
        print("  ".join(lines[-1]), flush=True)
        if ratios[0] > MOST:
            missed.append(f"{title}: {ratios[0]:.3f}")
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        f"The default model over the first {rows:,} rows of each stream, a day ahead (drives: ten steps), scored from "
        f"row {FIRST:,}: MAE by the seasons that are named, and of the default, `--season clock`. Claimed: it has at "
        f"most {MOST} times the MAE of the best of the four."
    )
    report(__file__, Claim("Seasons left to the data", text, COLUMNS, lines, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default=",".join(STREAMS), help="comma-separated; default: all")
    parser.add_argument("--rows", type=int, default=4000, help="rows of each stream; default: 4000")
    given = parser.parse_args()
    sys.exit(main(given.streams.split(","), given.rows))
