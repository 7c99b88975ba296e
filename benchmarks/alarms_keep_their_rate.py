"""Alarms come at the nominal false-alarm rate on real streams, and find injected faults within some rows.

linear, one step ahead, on six streams. Constants were chosen on the first three; the others confirm them. Nobody has
labelled the streams: every anomaly counts as false. A rate holds where the share of anomalies is within 20 % of it, or
differs by no more than 3 rows. Intervals are of independent Bernoulli draws (Clopper & Pearson 1934).

Faults begin at up to eight places in the second half of a stream, and go through the model; σ is the standard deviation
of its errors. stuck: the last value again and again; level: + 5 σ; variance: noise of variance 2 σ² is added, thrice
the variance with that of the errors; drift: 0.1 σ more at each row. Counted are the places with an alarm within 100
rows, and the median row of the first. "none" are the same rows without a fault. The peers of river see the same errors
over the same scale, with their defaults: ADWIN and PageHinkley on the errors and on their absolute values, and
HalfSpaceTrees with a filter of the highest scores at the same rate.

    python benchmarks/alarms_keep_their_rate.py [--others FOLDER]
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _uci
import numpy as np
import polars as pl
import pyarrow as pa
import torch
from _report import Claim, report
from numpy.typing import NDArray
from scipy.stats import beta

from streamgp.base import Due
from streamgp.forecasting.alarms import Alarms
from streamgp_data.batches import micro_batches
from streamgp_data.ingestion.ingest import ingest
from streamgp_pipelines.config import IngestConfig, TrainConfig
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.session import open_session

RATES = (0.01, 0.001)
PLACES, WITHIN = 8, 100
FAULTS = ("none", "stuck", "level", "variance", "drift")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """One stream; chosen: whether constants were chosen on it."""

    file: str
    target: str
    chosen: bool
    options: dict[str, Any]
    ingest: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case("elecdemand.parquet", "demand_gw", True, {"season": "48"}, {"every": "30m"}),
    Case("etth1.parquet", "OT", True, {"season": "24"}, {"every": "1h"}),
    Case("nds_drives.parquet", "speed_mph", True, {"lags": 8}, {"series": "drive", "sort": True}),
    Case("pjm_aep_hourly.parquet", "load_mw", False, {"season": "24", "max_rows": 20_000}),
    Case("gef2012_load.parquet", "load_total_kw", False, {"season": "24", "max_rows": 20_000}),
    Case("gef2012_wind.parquet", "power", False, {"season": "24", "lower": 0.0, "upper": 1.0, "max_rows": 20_000}),
)


class Stream:
    """A stream that was learned, with a copy of the learner before each place of a fault."""

    def __init__(self, case: Case, folder: Path, work: Path) -> None:
        data = pl.read_parquet(folder / case.file)
        if case.file == "gef2012_wind.parquet":
            data = data.filter(pl.col("unique_id") == "wf1").sort("timestamp")
        keys = [name for name in ("timestamp", "unique_id", "drive") if name in data.columns]
        data.select(*keys, case.target).write_parquet(work / case.file)
        table = work / case.file.removesuffix(".parquet")
        ingest(IngestConfig.read({"source": [str(work / case.file)], "table": str(table), **case.ingest}))
        given = {"table": str(table), "target": case.target, "online": True, "model": "linear", "alarm_rate": RATES[-1]}
        session = open_session(TrainConfig.read({**given, "checkpoint": str(work / "none"), **case.options}))
        self.learner = session.learner
        rows = min(case.options.get("max_rows", session.table.rows), session.table.rows)
        self.target, self.name = case.target, f"{case.file.removesuffix('.parquet')} {case.target}"
        places = np.linspace(0.5, 0.95, PLACES) * rows
        self.batches: list[pa.RecordBatch] = []
        self.dues: list[Due] = []
        self.copies: list[tuple[int, Learner]] = []
        for chunk, _ in micro_batches(session.source, {}, lambda: self.learner.room):
            if chunk.num_rows < self.learner.room or self.learner.rows + chunk.num_rows > rows:
                break
            if len(self.copies) < PLACES and self.learner.rows >= places[len(self.copies)]:
                self.copies.append((len(self.batches), copy.deepcopy(self.learner)))
            self.batches.append(chunk)
            self.dues.append(self.learner.advance(chunk)[1])
        self.sigma = float(np.std(np.concatenate([(due.y - due.predictive.mean[:, 0]).numpy() for due in self.dues])))

    def faulty(self, at: int, learner: Learner, fault: str, seed: int) -> list[Due]:
        """What a copy of the learner sees of `WITHIN` rows with a fault, from this micro-batch on."""
        learner, start, found = copy.deepcopy(learner), 0, []
        generator, last = np.random.default_rng(seed), None
        for chunk in self.batches[at:]:
            y = chunk.column(self.target).to_numpy(zero_copy_only=False).astype(float)
            rows = start + np.arange(len(y))
            last = y[np.flatnonzero(~np.isnan(y))[0]] if last is None else last
            changed = {
                "none": y,
                "stuck": np.where(np.isnan(y), y, last),
                "level": y + 5 * self.sigma,
                "variance": y + 2**0.5 * self.sigma * generator.standard_normal(len(y)),
                "drift": y + 0.1 * self.sigma * rows,
            }[fault]
            place = chunk.schema.get_field_index(self.target)
            found.append(learner.advance(chunk.set_column(place, chunk.schema.field(place), pa.array(changed)))[1])
            start += len(y)
            if start >= WITHIN:
                break
        return found


def errors(dues: list[Due]) -> Floats:
    """Errors over the calibration's scale."""
    parts = [((due.y - due.predictive.mean[:, 0]) / due.features[0].exp()).numpy() for due in dues]
    return np.concatenate(parts)


def raised(dues: list[Due]) -> NDArray[np.bool_]:
    """Where an alarm was raised; there is none in the warm-up."""
    return np.concatenate([due.alarm.numpy() > 0 for due in dues if due.alarm is not None])


class Peer:
    """A detector of river; `see` says at which errors it raises an alarm."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.parts = [make(), make()]

    def see(self, z: Floats) -> NDArray[np.bool_]:
        found = np.zeros(len(z), bool)
        for row, value in enumerate(z.tolist()):
            for part, seen in zip(self.parts, (value, abs(value)), strict=True):
                part.update(seen)
                found[row] |= part.drift_detected
        return found


class Trees:
    """river's HalfSpaceTrees; an alarm is a score above the running quantile 1 − α of the scores."""

    def __init__(self) -> None:
        from river import anomaly, compose, preprocessing

        trees = anomaly.HalfSpaceTrees(n_trees=10, height=8, seed=0)
        self.model = anomaly.QuantileFilter(compose.Pipeline(preprocessing.MinMaxScaler(), trees), q=1 - RATES[-1])

    def see(self, z: Floats) -> NDArray[np.bool_]:
        found = np.zeros(len(z), bool)
        for row, value in enumerate(z.tolist()):
            score = self.model.score_one({"z": value})
            found[row] = bool(self.model.classify(score))
            self.model.learn_one({"z": value})
        return found


def rates(stream: Stream) -> tuple[list[list[str]], list[str]]:
    """Rows of the table of rates, and what is missed."""
    table, missed, shape = [], [], stream.learner.windows.shape
    for rate in RATES:
        alarms = Alarms(shape, stream.learner.calibration.probabilities, rate)
        for due in stream.dues:
            alarms.judge(due)
        found, rows = alarms.raised.tolist(), alarms.rows
        low, high = beta.ppf([0.025, 0.975], [found[0], found[0] + 1], [rows - found[0] + 1, rows - found[0]]) / rate
        per = [count / rows / rate for count in found]
        table.append(
            [stream.name, f"{rate:g}", f"{rows:,}", f"{found[0]}", f"{per[0]:.2f}", f"{low:.2f} to {high:.2f}"]
        )
        table[-1] += [f"{per[1]:.2f}", f"{per[2]:.2f}"]
        if abs(found[0] - rate * rows) > max(0.2 * rate * rows, 3):
            missed.append(f"{stream.name} at {rate:g}: {per[0]:.2f} of the rate")
        for name, count in zip(("change", "stuck"), found[1:], strict=True):
            if count - rate / 2 * rows > max(0.1 * rate * rows, 3):
                missed.append(f"{stream.name} at {rate:g}: {name} {count / rows / rate:.2f} of the rate")
    return table, missed


def delays(stream: Stream) -> list[list[str]]:
    """Rows of the table of faults: for each detector the share of places found, and the median delay."""
    from river import drift

    makers = {"ADWIN": drift.ADWIN, "PageHinkley": drift.PageHinkley}
    peers: dict[str, Any] = {name: Peer(make) for name, make in makers.items()} | {"HalfSpaceTrees": Trees()}
    false = {"streamgp": float(np.mean(raised(stream.dues)))}
    before = np.cumsum([0, *(len(due.y) for due in stream.dues)])
    z, firsts = errors(stream.dues), {name: {fault: [] for fault in FAULTS} for name in ("streamgp", *peers)}
    for place, (at, learner) in enumerate(stream.copies):
        for name, peer in peers.items():
            part = peer.see(z[before[stream.copies[place - 1][0]] if place else 0 : before[at]])
            false[name] = false.get(name, 0.0) + float(part.sum())
        for fault in FAULTS:
            dues = stream.faulty(at, learner, fault, place)
            seen = {"streamgp": raised(dues)}
            seen |= {name: copy.deepcopy(peer).see(errors(dues)[:WITHIN]) for name, peer in peers.items()}
            for name, alarm in seen.items():
                hits = np.flatnonzero(alarm[:WITHIN])
                firsts[name][fault].append(float(hits[0]) if len(hits) else np.inf)
    table = []
    for name, found in firsts.items():
        share = false[name] if name == "streamgp" else false[name] / before[stream.copies[-1][0]]
        cells = [f"{1000 * share:.1f}"]
        for fault in FAULTS:
            hits = [one for one in found[fault] if one < np.inf]
            cells.append(f"{len(hits)}/{len(found[fault])}" + (f", {np.median(hits):.0f}" if hits else ""))
        table.append([stream.name, name, *cells])
    return table


def main(folder: Path) -> int:
    torch.set_num_threads(1)
    shares: list[list[str]] = []
    found: list[list[str]] = []
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        for case in CASES:
            if not (folder / case.file).exists():
                continue
            stream = Stream(case, folder, Path(place))
            rows, wrong = rates(stream)
            shares += rows
            missed += wrong
            if not case.chosen:
                found += delays(stream)
            for line in (*rows, *(found[-4:] if not case.chosen else ())):
                print("  ".join(line), flush=True)
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        "linear, one step ahead: the share of anomalies over the nominal rate is within 0.8 to 1.2, or 3 rows of it. "
        "Alarms of changes and stuck values, in the last columns, are at most 0.5 each, within the same tolerance. "
        "Constants were chosen on the first three streams. Intervals are those of independent rows."
    )
    columns = ("stream", "rate", "rows", "anomalies", "over nominal", "95 % interval", "change", "stuck")
    claims = [Claim("False alarms at the nominal rate", text, columns, shares, missed)]
    text = (
        "At rate 0.001: alarms in 1,000 rows without a fault; then for each fault at how many of its places an alarm "
        "came within 100 rows, and the median row of the first. The peers of river see the same errors. level: + 5 σ "
        "of the errors; variance: three times that of the errors; drift: 0.1 σ more at each row."
    )
    columns = ("stream", "detector", "alarms in 1,000", *FAULTS)
    claims.append(Claim("Delay to the detection of faults", text, columns, found, None))
    report(__file__, *claims)
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", type=Path, default=_uci.FOLDER, help="folder of the other streams")
    sys.exit(main(parser.parse_args().others))
