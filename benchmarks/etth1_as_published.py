"""On ETTh1, in two protocols of online forecasting papers, the default has less squared error than the best known.

A protocol is the rows that standardise each of the seven channels, and the rows that are scored, every row an origin;
MSE over channels and steps 1 to H. A step is learned once its truth is known.

That of ADAPT-Z (Huang et al. 2025): the first 60 % standardise, the last 30 % are scored. The published figures are the
best of eight ways to adapt a net online, in the authors' own tables: of TimeFilter for H = 1, 24 and 48, of
iTransformer for H = 96; a net for each H. The nets were trained on the first 60 %; ours learns them in one pass.

20:5:75, that of PROCEED (Zhao & Shen 2025; `border_type` online of OnlineTSF): of 20 months of 30 days the first 4
standardise, and those behind the first 5 are scored. Its sets are ETTh2, ETTm1, Weather, ECL and Traffic, which no
package was found to ship, and no figure of ETTh1 in it was found. So two peers stand beside ours, in the same run: the
closed form of NLinear (Zeng et al. 2023), a linear map from 336 values, less the last of them, to 96, one for all
channels, fitted every week to all windows known by then, with the penalty of least past error; and `ridge` of
`streamgp compare`, a regression a step with seasons, fitted every week. Claimed, before any of these was run: the
default has no more MSE than either at H = 1, 24, 48 and 96.

Ours are `streamgp train --online` with data, target and `--horizon 96`, and no other option, a run a channel: it sees
no other channel, and has one model for all H. The interval is that of the mean over weeks of the test part, from 1,000
bootstrap samples of weeks.

    STREAMGP_TEST_DATA=DIR python benchmarks/etth1_as_published.py [--models auto,linear] [--rows 17420]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from _report import Claim, report
from numpy.typing import NDArray

CHANNELS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
STEPS = (1, 24, 48, 96)
PUBLISHED = {1: 0.1107, 24: 0.2942, 48: 0.3431, 96: 0.3930}
WEEK = 168
MONTH = 720
"""Rows of 30 days."""
BACK, PENALTIES = 336, (1.0, 10.0, 100.0, 1000.0, 10_000.0)
"""Of NLinear: values that it sees, and penalties, in windows of standardised values."""
RIDGE, NLINEAR = "ridge", "NLinear"
PEERS = (NLINEAR, RIDGE)

Floats = NDArray[np.float64]


class Protocol(NamedTuple):
    """Rows that standardise, the first origin, and the end of the rows that are scored."""

    trained: int
    first: int
    end: int


class Run(NamedTuple):
    """Of one channel: (R, H) forecasts, in its units, whether 95 % bands hold the truth, NaN where none was made;
    CPU-seconds."""

    mean: Floats
    inside: Floats
    spent: float


def protocols(rows: int) -> tuple[Protocol, Protocol]:
    """60:10:30 and 20:5:75; of fewer rows than there are, the same shares."""
    share = min(1.0, rows / (20 * MONTH))
    early = Protocol(int(4 * MONTH * share), int(5 * MONTH * share) - 1, int(20 * MONTH * share))
    return Protocol(int(0.6 * rows), int(0.7 * rows), rows), early


def ran(frame: pl.DataFrame, model: str, channel: str, folder: Path) -> Run:
    """One pass over a channel, by a model or the peer `ridge`."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import compare, fit_stream
    from streamgp_pipelines.config import IngestConfig

    rows, home = len(frame), folder / f"{model}-{channel}"
    home.mkdir()
    frame.select("timestamp", channel).write_parquet(home / "rows.parquet")
    ingest(IngestConfig.read({"source": (str(home / "rows.parquet"),), "table": str(home / "table")}))
    first = min(one.first for one in protocols(rows))
    options: dict[str, Any] = {"horizon": max(STEPS), "score_from": str(first), "device": "cpu"}
    began = time.process_time()
    if model == RIDGE:
        options |= {"level": (95.0,), "comparison": home / "runs"}
        compare(home / "table", channel, (model,), against=model, **options)
        table = pl.read_parquet(home / "runs" / model / "predictions.parquet")
    else:
        options |= {"level": "95"} | ({} if model == "auto" else {"model": model})
        fit_stream(home / "table", channel, checkpoint=home / "run", predictions=home / "p.parquet", **options)
        table = pl.read_parquet(home / "p.parquet")
    spent = time.process_time() - began
    (name,) = (
        column.removesuffix("-lo-95") for column in table.columns if column.endswith("-lo-95") and "raw" not in column
    )
    place = {at: row for row, at in enumerate(frame["timestamp"])}
    origin = np.array([place[at] for at in table["cutoff"]])
    step = np.array([place[at] for at in table["ds"]]) - origin
    found = Run(np.full((rows, max(STEPS)), np.nan), np.full((rows, max(STEPS)), np.nan), spent)
    found.mean[origin, step - 1] = table[name].to_numpy()
    covered = table["y"].is_between(pl.Series(table[f"{name}-lo-95"]), pl.Series(table[f"{name}-hi-95"]))
    found.inside[origin, step - 1] = covered.cast(pl.Float64).to_numpy()
    return found


def nlinear(frame: pl.DataFrame, protocol: Protocol) -> list[Run]:
    """The peer's forecasts of every channel, from the first origin of the protocol on."""
    began, horizon = time.process_time(), max(STEPS)
    values = frame.select(CHANNELS).to_numpy().T.astype(float)
    mean, spread = (
        part[:, None] for part in (values[:, : protocol.trained].mean(1), values[:, : protocol.trained].std(1))
    )
    scaled = (values - mean) / spread
    windows = np.lib.stride_tricks.sliding_window_view(scaled, BACK + horizon, axis=1)
    found = np.full((len(CHANNELS), values.shape[1], horizon), np.nan)
    gram, moment, learned = np.zeros((BACK, BACK)), np.zeros((BACK, horizon)), 0
    loss = np.zeros(len(PENALTIES))
    weights: list[Floats] = []
    for origin in range(protocol.first, protocol.end - 1, WEEK):
        known = max(0, origin + 1 - BACK - horizon + 1)  # windows, by their first row, whose last step is known
        x, y = parted(windows[:, learned:known])
        if weights:
            loss += [np.square(x @ one - y).sum() for one in weights]
        gram, moment, learned = gram + x.T @ x, moment + x.T @ y, known
        weights = [np.linalg.solve(gram + penalty * np.eye(BACK), moment) for penalty in PENALTIES]
        asked = np.arange(origin, min(origin + WEEK, values.shape[1]))
        past = np.lib.stride_tricks.sliding_window_view(scaled, BACK, axis=1)[:, asked + 1 - BACK]
        last = past[..., -1:]
        found[:, asked] = (past - last) @ weights[int(loss.argmin())] + last
    spent = (time.process_time() - began) / len(CHANNELS)
    nothing = np.full(found.shape[1:], np.nan)
    return [Run(one * spread[at] + mean[at], nothing, spent) for at, one in enumerate(found)]


def parted(windows: NDArray[Any]) -> tuple[Floats, Floats]:
    """Windows (C, N, BACK + H) as rows of x (C N, BACK) and y (C N, H), less the last value of x."""
    flat = windows.reshape(-1, windows.shape[-1])
    last = flat[:, BACK - 1 : BACK]
    return flat[:, :BACK] - last, flat[:, BACK:] - last


def judged(frame: pl.DataFrame, runs: list[Run], protocol: Protocol) -> tuple[Floats, Floats]:
    """Errors (C, origins, H) in standard deviations, and whether bands held, at origins with all steps scored."""
    origins = np.arange(protocol.first, protocol.end - max(STEPS))
    later = origins[:, None] + 1 + np.arange(max(STEPS))
    errors = []
    for channel, run in zip(CHANNELS, runs, strict=True):
        y = frame[channel].to_numpy()
        errors.append((run.mean[origins] - y[later]) / y[: protocol.trained].std())
    return np.stack(errors), np.stack([run.inside[origins] for run in runs])


def interval(by_origin: NDArray[Any]) -> tuple[float, float]:
    """95 % of the mean, by bootstrap over whole weeks of origins."""
    weeks = [week.mean() for week in np.array_split(by_origin, max(2, len(by_origin) // WEEK))]
    draws = np.random.default_rng(0).choice(weeks, (1000, len(weeks))).mean(1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def lines(
    frame: pl.DataFrame, model: str, runs: list[Run], protocol: Protocol, best: dict[int, float]
) -> tuple[list[list[str]], dict[int, float]]:
    """Rows of a table, and the MSE of each H. best: what it is held against, nothing where it is the peer itself."""
    error, inside = judged(frame, runs, protocol)
    spent, found, told = sum(one.spent for one in runs), {}, []
    for horizon in STEPS:
        square = np.square(error[..., :horizon]).mean((0, 2))
        low, high = interval(square)
        found[horizon] = float(square.mean())
        against = [f"{best[horizon]:.4f}", f"{found[horizon] / best[horizon]:.3f}"] if best else ["", ""]
        held = inside[..., :horizon].mean()
        figures = [f"{found[horizon]:.4f}", f"{low:.4f} to {high:.4f}", *against]
        more = [f"{np.abs(error[..., :horizon]).mean():.4f}", "" if np.isnan(held) else f"{held:.3f}", f"{spent:.0f}"]
        told.append([str(horizon), model, *figures, *more])
        print("  ".join(told[-1]), flush=True)
    return told, found


def missing(found: dict[int, float], best: dict[int, float], of: str) -> list[str]:
    """The H at which the error is larger than the best."""
    return [f"H = {h}: {found[h] / best[h]:.3f} of {of}" for h in STEPS if found[h] > best[h]]


def main(models: list[str], rows: int) -> int:
    frame = pl.read_parquet(Path(os.environ["STREAMGP_TEST_DATA"]) / "etth1.parquet").sort("timestamp").head(rows)
    late, early = protocols(rows)
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in (*models, RIDGE):
            runs[model] = [ran(frame, model, channel, Path(folder)) for channel in CHANNELS]
    runs[NLINEAR] = nlinear(frame, early)
    first, second, missed = list[list[str]](), list[list[str]](), ([], [])  # type: ignore[var-annotated]
    for model in models:
        told, found = lines(frame, model, runs[model], late, PUBLISHED)
        first += told
        missed[0].extend(missing(found, PUBLISHED, "the published MSE") if model == "auto" else [])
    peers = {}
    for peer in PEERS:
        told, peers[peer] = lines(frame, peer, runs[peer], early, {})
        second += told
    least = {h: min(one[h] for one in peers.values()) for h in STEPS}
    for model in models:
        told, found = lines(frame, model, runs[model], early, least)
        second += told
        missed[1].extend(missing(found, least, "the better peer's MSE") if model == "auto" else [])
    print("holds" if not any(missed) else "does not hold: " + "; ".join(missed[0] + missed[1]))
    text = (
        "ETTh1, seven channels, standardised by the first 60 % of the rows, the last 30 % scored, every row an origin, "
        "MSE and MAE over channels and steps 1 to H. Published: the least MSE in the tables of ADAPT-Z's authors, of "
        "eight ways to adapt a net online (TimeFilter at 1, 24, 48; iTransformer at 96), a net for each H. Ours: one "
        "run a channel with data, target and horizon 96, without the other channels; HUFL and OT are among the streams "
        "by which the default was chosen. Claimed: no more MSE."
    )
    split = (
        "The same in the split of PROCEED (Zhao & Shen 2025): of 20 months of 30 days the first 4 standardise, and "
        "those behind the first 5 are scored. Its sets are ETTh2, ETTm1, Weather, ECL and Traffic, which no package on "
        "PyPI was found to ship; no published figure of ETTh1 in it was found. So the peers are ours: NLinear in "
        "closed form (336 values to 96 steps, one map for all channels) and `ridge` of `streamgp compare`, both fitted "
        "every week to all that is known. Claimed of the default: no more MSE than the better of both, at each H."
    )
    names = ("H", "model", "MSE", "95 % interval", "{}", "over {}", "MAE", "95 % coverage", "CPU-s")
    of = ("published", "better peer")
    columns = [[name.format(one) for name in names] for one in of]
    titles = ("ETTh1 in the protocol of online forecasting papers", "ETTh1 in the split 20:5:75")
    both = zip(titles, (text, split), columns, (first, second), missed, strict=True)
    report(__file__, *(Claim(*one) for one in both))
    return 1 if any(missed) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="auto,linear", help="comma-separated; default: auto,linear")
    parser.add_argument("--rows", type=int, default=17_420, help="first rows of the set; default: all, 17420")
    given = parser.parse_args()
    sys.exit(main(given.models.split(","), given.rows))
