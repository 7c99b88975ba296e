"""Where the target is late by a constant delay, and where rows arrive hours late, forecasts go on as through outages:
as good as a longer horizon is, better than the last known week, in bands that cover the truth.

A constant delay D of 3 hours and of a day: a row comes at once, with its known inputs and without a target; its target
comes D later, in a second version of the row (`duplicates="last"`, `lateness=` D). At every 47th row of the stream,
which meets all hours, the next day is forecast, from targets up to D before. Beside it, of the same steps: the same
model on the stream that is not late, from the row D before, as the steps behind D of a horizon of two days; and the
value of the week before.

Rows that arrive late: a device is silent ten times, for 1 row to 10 days, and sends these rows 3 hours after it is
back, or a day, in turn; its new rows come on time (lateness 2 rows, `--late use`). Forecasts at every row that came on
time: those until the old rows come, and those of the day after. Beside them the stream in order, and the last known
week. The first quarter of a stream is not judged.

Claimed of each model, over all streams, before anything was run. Constant delay: a forecast at every row; an MAE of at
most 1.05 times that of the horizon h + D, and at most that of the naive one; coverage of the 95 % band 0.92 to 0.98.
Late rows: a forecast at every row; until they come an MAE of at most 1.05 times the naive one; on the day after of at
most 1.05 times that in order; coverage 0.92 to 0.98 in both.

    STREAMGP_TEST_DATA=DIR python benchmarks/late_streams_are_known.py [--models auto,linear,svdgp] [--rows 5000]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from itertools import cycle

import numpy as np
import polars as pl
import torch
from _report import Claim, report
from numpy.typing import NDArray
from outages_are_known import Run, Stream, empty, last_season, one_pass, outages
from outages_are_known import streams as all_streams

STREAMS = ("electricity", "PJM load (chosen on)", "ETTh1 HUFL", "GEFCom wind")
MODELS = ("auto", "linear", "svdgp")
DELAYS = {"3 h": 1 / 8, "a day": 1.0}
"""In days."""
FIRST, EVERY = 0.25, 47
"""Of the stream: the share that is not judged, and the rows from one forecast to the next under a constant delay."""
LATENESS = 2
WORSE, COVERED = 1.05, (0.92, 0.98)
PARTS = ("until they come", "the day after")
CONSTANT = ("stream", "model", "late by", "forecasts", "MAE", "over h + D", "over naive", "95 %", "95 %, h + D")
LATE = ("stream", "model", "when", "forecasts", "MAE", "over naive", "over in order", "95 %", "95 %, in order")

Floats = NDArray[np.float64]
Figures = tuple[float, ...]


def streams(rows: int) -> dict[str, Stream]:
    """Four of those of outages, on the grid of their clock."""
    found = {title: one for title, one in all_streams(rows).items() if title in STREAMS}
    return {title: one._replace(frame=one.frame.upsample("ds", every=one.every)) for title, one in found.items()}


def replayed(stream: Stream, order: NDArray[np.int64], model: str, horizon: int, late: bool) -> Run:
    """The forecasts of one pass over the rows in this order, at every row."""
    frame = stream.frame.select("ds", stream.target, *stream.known)[order.tolist()]
    if not late:
        return one_pass(stream, frame, model, horizon)
    lateness = f"{LATENESS * int(stream.every[:-1])}{stream.every[-1]}"
    return one_pass(stream, frame, model, horizon, {"lateness": lateness}, {"late": "use"})


def delayed(stream: Stream, delay: int, model: str) -> tuple[Run, NDArray[np.int64]]:
    """Forecasts of a day where targets are late by `delay` rows, and the rows from which they were asked for."""
    from streamgp import Forecaster
    from streamgp.errors import StreamgpWarning

    frame, day = stream.frame.select("ds", stream.target, *stream.known), stream.day
    nothing = frame.with_columns(pl.lit(None, frame.schema[stream.target]).alias(stream.target))
    minutes = delay * 24 * 60 // day
    forecaster = Forecaster(
        stream.target,
        day,
        season=[day, 7 * day],
        known=stream.known,
        every=stream.every,
        model=model,
        duplicates="last",
        lateness=f"{minutes}m",
        levels=[95],
        device="cpu",
    )
    asked = np.arange(int(FIRST * len(frame)), len(frame) - day, EVERY)
    found, before = empty(len(frame), day), -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamgpWarning)  # that the target is old, each time
        for row in asked.tolist():
            told = slice(max(0, before + 1 - delay), row + 1 - delay)  # targets that came since
            forecaster.learn(pl.concat([frame[told], nothing[max(before + 1, told.stop) : row + 1]]))
            ahead = frame[row + 1 : row + 1 + day].drop(stream.target)
            made = forecaster.forecast(future=ahead if stream.known else None)
            (name,) = (one for one in made.columns if f"{one}-lo-95" in made.columns)
            found.mean[row], found.low[row] = made[name].to_numpy(), made[f"{name}-lo-95"].to_numpy()
            found.high[row], before = made[f"{name}-hi-95"].to_numpy(), row
    return found, asked


def from_before(run: Run, delay: int, day: int) -> Run:
    """The forecasts of the next day at each row, from the row `delay` before."""
    moved = [
        np.concatenate([np.full((delay, day), np.nan), part[: len(part) - delay, delay:][:, :day]]) for part in run
    ]
    return Run(*moved)


def truths(y: Floats, horizon: int) -> Floats:
    """(R, H) what the forecasts are of."""
    longer = np.append(y, np.full(horizon, np.nan))
    return np.lib.stride_tricks.sliding_window_view(longer[1:], horizon)[: len(y)]


def judged(rows: NDArray[np.int64], truth: Floats, run: Run, naive: Floats, usual: Run) -> Figures:
    """Share of the rows with a forecast, MAE, MAE over that of `usual` and of the naive, both coverages."""
    y, mean = truth[rows], run.mean[rows]
    known = np.isfinite(y) & np.isfinite(mean) & np.isfinite(usual.mean[rows]) & np.isfinite(naive[rows])
    if not known.any():
        return (float(np.isfinite(mean).all(1).mean()), *[np.nan] * 5)
    error, of_naive, of_usual = (np.abs(y - part[rows])[known].mean() for part in (run.mean, naive, usual.mean))
    covered = [((one.low[rows] <= y) & (y <= one.high[rows]))[known].mean() for one in (run, usual)]
    return float(np.isfinite(mean).all(1).mean()), error, error / of_usual, error / of_naive, *covered


def told(figures: Figures) -> list[str]:
    """As cells of the table."""
    made, error, *rest = figures
    return [f"{made:.1%}", "" if np.isnan(error) else f"{error:.4g}", *(f"{value:.3f}" for value in rest)]


def averaged(found: list[Figures]) -> Figures:
    """Means over streams; an MAE has none."""
    made, _, *rest = np.nanmean(found, 0).tolist()
    return (made, np.nan, *rest)


def constant(title: str, stream: Stream, model: str) -> dict[str, Figures]:
    """Figures of one model on one stream, by the delay."""
    y, day = stream.frame[stream.target].to_numpy().astype(float), stream.day
    whole = replayed(stream, np.arange(len(y)), model, 2 * day, late=False)
    naive = last_season(y, 7 * day, day)
    found = {}
    for name, days in DELAYS.items():
        delay = round(days * day)
        run, asked = delayed(stream, delay, model)
        found[name] = judged(asked, truths(y, day), run, naive, from_before(whole, delay, day))
        print("constant", title, model, name, *told(found[name]), flush=True)
    return found


def silences(y: Floats, day: int) -> tuple[NDArray[np.int64], Floats, list[NDArray[np.int64]]]:
    """The order in which rows arrive, what of y never was on time, and the rows of each part, by `PARTS`."""
    place, hidden = np.arange(len(y), dtype=float), y.copy()
    until, after = [], []
    for (start, length), days in zip(outages(len(y), day), cycle(DELAYS.values()), strict=False):
        end, delay = start + length, round(days * day)
        place[start:end] = end + delay - 0.5
        hidden[start:end] = np.nan
        until.append(np.arange(end, end + delay))
        after.append(np.arange(end + delay, end + delay + day))
    whole = [np.concatenate(part) for part in (until, after)]
    rows = [part[(part >= FIRST * len(y)) & (part < len(y) - day)] for part in whole]
    return np.argsort(place, kind="stable"), hidden, rows


def late(title: str, stream: Stream, model: str) -> dict[str, Figures]:
    """Figures of one model on one stream, by when."""
    y, day = stream.frame[stream.target].to_numpy().astype(float), stream.day
    order, hidden, rows = silences(y, day)
    usual = replayed(stream, np.arange(len(y)), model, day, late=False)
    run = replayed(stream, order, model, day, late=True)
    naive = last_season(hidden, 7 * day, day)
    found = {name: judged(at, truths(y, day), run, naive, usual) for name, at in zip(PARTS, rows, strict=True)}
    for name, figures in found.items():
        print("late", title, model, name, *told(figures), flush=True)
    return found


def swapped(figures: Figures) -> Figures:
    """The naive one first."""
    made, error, of_usual, of_naive, *rest = figures
    return (made, error, of_naive, of_usual, *rest)


def main(models: list[str], rows: int) -> int:
    torch.set_num_threads(1)
    pairs = [(title, stream, model) for title, stream in streams(rows).items() for model in models]
    tables, missed = ([], []), ([], [])  # type: ignore[var-annotated]
    for at, measure in enumerate((constant, late)):
        every = dict[tuple[str, str], list[Figures]]()
        for title, stream, model in pairs:
            for name, figures in measure(title, stream, model).items():
                every.setdefault((model, name), []).append(figures)
                tables[at].append([title, model, name, *told(swapped(figures) if at else figures)])
        for (model, name), found in every.items():
            made, error, of_usual, of_naive, covered, usually = mean = averaged(found)
            del error, usually
            tables[at].append(["**all**", model, name, *told(swapped(mean) if at else mean)])
            if made < 1:
                missed[at].append(f"{model}, {name}: a forecast at {made:.3f} of the rows")
            if not at:
                poor = of_usual > WORSE or of_naive > 1
            else:
                poor = of_naive > WORSE if name == PARTS[0] else of_usual > WORSE
            if poor or not COVERED[0] <= covered <= COVERED[1]:
                ratios = f"{of_usual:.3f} of the error {'in order' if at else 'at h + D'}, {of_naive:.3f} of the naive"
                missed[at].append(f"{model}, {name}: {ratios}, coverage {covered:.3f}")
    print("holds" if not any(missed) else "does not hold: " + "; ".join(missed[0] + missed[1]))
    first = (
        f"The first {rows:,} rows of each stream, seasons of a day and a week. A row comes at once without its target, "
        'which comes 3 hours or a day later, in a second version of the row (`duplicates="last"`, `lateness=` that '
        f"delay); at every {EVERY}th row the next day is forecast. *over h + D*: over the MAE of the same model from "
        "the newest row with a target, at these steps, where nothing is late; *over naive*: over that of the week "
        f"before. Claimed of each model over all streams: a forecast at every row, at most {WORSE} times the error at "
        f"h + D and at most that of the naive one, a coverage of the 95 % band of {COVERED[0]} to {COVERED[1]}."
    )
    second = (
        f"The first {rows:,} rows, a day ahead; ten times a device is silent, for 1 row to 10 days, and sends these "
        f"rows 3 hours or a day, in turn, after its new ones come again (lateness {LATENESS} rows, `--late use`). "
        "Forecasts at each row that came on time: until the old ones come, and on the day after; not in the "
        "first quarter. Claimed of each model "
        f"over all streams: a forecast at every row; until they come at most {WORSE} times the MAE of the last known "
        f"week, on the day after {WORSE} times that of the stream in order; coverage {COVERED[0]} to {COVERED[1]}."
    )
    rest = [model for model in MODELS if model not in models]
    first, second = (f"{text} Not run: {', '.join(rest)}." if rest else text for text in (first, second))
    titles = ("A target that is late by a constant delay", "Rows that arrive hours late")
    both = zip(titles, (first, second), (CONSTANT, LATE), tables, missed, strict=True)
    report(__file__, *(Claim(*one) for one in both))
    return 1 if any(missed) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated; default: auto,linear,svdgp")
    parser.add_argument("--rows", type=int, default=5000, help="rows of each stream; default: 5000")
    asked = parser.parse_args()
    sys.exit(main(asked.models.split(","), asked.rows))
