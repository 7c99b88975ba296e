"""Twelve faults in six streams: how wrong forecasts are in a fault, on the day after it and a week later, and whether
the bands know.

Six are of the measurement, and forecasts are judged by what was there: outages of three hours, a day and five days,
sentinels (-999 in one row of a hundred), a sensor that stands still for two days, glitches of twenty standard
deviations in one row of two hundred. Six are of the world, and forecasts are judged by what came: a burst of six hours,
a level fifty standard deviations lower for ten days, one that is three lower from then on, noise of half a standard
deviation for ten days, a random walk in place of the pattern for five days, and a pattern that comes an hour later from
then on. Each is put into a stream at several places and hours, a day ahead, with seasons of day and week.

Beside the errors: those of the same model without the fault, for faults of the measurement; and the best of three naive
forecasts from what is known: the last value, that of a day before, that of a week before. Means over streams are
geometric.

Claimed of the default, for each fault in the mean of the streams: of measurements, in each part at most 1.1 times the
better of the model without the fault and the naive forecasts, and a coverage of the 95 % band of 0.9 to 0.99; of
changes, after the first day at most 1.25 times the best naive one, and a coverage of 0.9 at least. Nothing was chosen
on these faults.

    STREAMGP_TEST_DATA=DIR python benchmarks/faults_on_six_streams.py [--models auto,linear,svdgp] [--rows 4000]
        [--streams electricity]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from _report import Claim, report
from outages_are_known import Floats, Run, last_season, ran, streams

PLACES = (0.35, 0.5, 0.65, 0.8)
HOURS = (3, 9, 15, 21)
"""Of the day, at which the fault of each place begins."""
MOST, COVERED = 1.1, (0.9, 0.99)
MOST_OF_CHANGES = 1.25
PARTS = ("in it", "the day after", "a week later")
BY_MODEL = ("fault", "model", "when", "over no fault", "over naive", "95 %")
BY_STREAM = ("fault", "stream", *(f"{what}, {part}" for part in PARTS for what in ("over naive", "95 %")))


class Fault(NamedTuple):
    """Attributes:
    name: for the tables.
    days: that it lasts; None to the end of the stream.
    real: whether the world has changed, in place of what is measured.
    made: (values from the place on, standard deviation of the stream, rows of a day, generator) -> what is measured.
    all_over: whether it is strewn over the stream, in place of standing at some places.
    """

    name: str
    days: float | None
    real: bool
    made: Callable[[Floats, float, int, np.random.Generator], Floats]
    all_over: bool = False


def _missing(y: Floats, sd: float, day: int, generator: np.random.Generator) -> Floats:
    return np.full_like(y, np.nan)


def _strewn(share: float, put: Callable[[Floats, float], Floats]) -> Callable[..., Floats]:
    def made(y: Floats, sd: float, day: int, generator: np.random.Generator) -> Floats:
        return np.where(generator.random(len(y)) < share, put(y, sd), y)

    return made


FAULTS = (
    Fault("outage of 3 hours", 0.125, False, _missing),
    Fault("outage of a day", 1.0, False, _missing),
    Fault("outage of 5 days", 5.0, False, _missing),
    Fault("sentinels, 1 %", None, False, _strewn(0.01, lambda y, sd: np.full_like(y, -999.0)), True),
    Fault("dead sensor, 2 days", 2.0, False, lambda y, *_: np.full_like(y, y[0])),
    Fault("glitches, 0.5 %", None, False, _strewn(0.005, lambda y, sd: y + 20 * sd), True),
    Fault("burst of 6 hours", 0.25, True, lambda y, sd, *_: y + 8 * sd),
    Fault("50 sd lower, 10 days", 10.0, True, lambda y, sd, *_: y - 50 * sd),
    Fault("3 sd lower from then on", None, True, lambda y, sd, *_: y - 3 * sd),
    Fault("noise, 10 days", 10.0, True, lambda y, sd, _, generator: y + generator.normal(0, 0.5 * sd, len(y))),
    Fault("random walk, 5 days", 5.0, True, lambda y, sd, day, g: y[0] + g.normal(0, sd / day**0.5, len(y)).cumsum()),
    Fault("an hour later from then on", None, True, lambda y, _, day, g: np.append(y[: day // 24], y)[: len(y)]),
)


class Case(NamedTuple):
    """A fault in a stream. measured: what the product sees, where the fault is; known: of it what is no fault;
    spans: of origins, for each part."""

    measured: Floats
    known: Floats
    truth: Floats
    spans: dict[str, list[np.ndarray]]


def cased(fault: Fault, y: Floats, day: int, seed: int) -> Case:
    generator, sd = np.random.default_rng(seed), float(np.nanstd(y[: len(y) // 3]))
    measured, known = y.copy(), y.copy()
    spans: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    whole = fault.days is None
    places = [0.3 if fault.all_over else 0.5] if whole else PLACES
    for place, hour in zip(places, HOURS, strict=False):
        start = int(place * len(y)) // day * day + hour * day // 24
        end = len(y) if whole else start + max(round((fault.days or 0) * day), 1)
        measured[start:end] = fault.made(y[start:end], sd, day, generator)
        gone = measured[start:end] != y[start:end]
        known[start:end] = measured[start:end] if fault.real else np.where(gone, np.nan, y[start:end])
        if fault.all_over:
            spans[PARTS[0]].append(np.arange(start, len(y)))
        elif whole:
            for part, (first, last) in zip(PARTS, ((0, 1), (1, 2), (7, 14)), strict=True):
                spans[part].append(np.arange(start + first * day, start + last * day))
        else:
            spans[PARTS[0]].append(np.arange(start, min(end, start + day) if fault.real else end))
            spans[PARTS[1]].append(np.arange(end, end + day))
            first = max(start + 7 * day, end + day)
            spans[PARTS[2]].append(np.arange(first, first + max(end - start, day)))
    return Case(measured, known, measured if fault.real else y, spans)


def ahead(y: Floats, horizon: int) -> Floats:
    """(R, H) the values 1 to H rows after each."""
    return np.stack([np.append(y, np.full(horizon, np.nan))[1 + h : 1 + h + len(y)] for h in range(horizon)], 1)


def judged(case: Case, run: Run, usual: Run, day: int) -> dict[str, tuple[float, float, float]]:
    """A part -> MAE over that of the run without the fault, and over the best naive one; coverage of the 95 % band."""
    truth = ahead(case.truth, day)
    naive = [last_season(case.known, season, day) for season in (1, day, 7 * day)]
    found = dict[str, tuple[float, float, float]]()
    for part, spans in case.spans.items():
        if not spans:
            continue
        rows = np.concatenate(spans)
        y = truth[rows[rows < len(truth)]]
        rows = rows[rows < len(truth)]
        some = np.isfinite(y) & np.isfinite(run.mean[rows]) & np.isfinite(usual.mean[rows])
        some &= np.all([np.isfinite(one[rows]) for one in naive], 0)
        own, without, *of_naive = (np.abs(one[rows] - y)[some].mean() for one in (run.mean, usual.mean, *naive))
        covered = ((run.low[rows] <= y) & (y <= run.high[rows]))[some].mean()
        found[part] = (float(own / without), float(own / min(of_naive)), float(covered))
    return found


def main(models: list[str], rows: int, titles: list[str]) -> int:
    torch.set_num_threads(1)
    found: dict[tuple[str, str, str], dict[str, tuple[float, float, float]]] = {}
    six = {title.removesuffix(" (chosen on)"): stream for title, stream in streams(rows).items()}
    six = {title: stream for title, stream in six.items() if not titles or title in titles}
    for title, stream in six.items():
        y = stream.frame[stream.target].to_numpy().astype(float)
        for model in models:
            usual = ran(stream, y, model, stream.day)
            for seed, fault in enumerate(FAULTS):
                case = cased(fault, y, stream.day, seed)
                run = ran(stream, case.measured, model, stream.day)
                found[fault.name, model, title] = judged(case, run, usual, stream.day)
                print(title, model, fault.name, found[fault.name, model, title], flush=True)
    by_model, by_stream, missed = list[list[str]](), list[list[str]](), list[str]()
    for fault in FAULTS:
        for model in models:
            of_all = [found[fault.name, model, title] for title in six]
            for part in of_all[0]:
                without, of_naive, covered = np.array([one[part] for one in of_all]).T
                mean, naive = np.exp(np.log(without).mean()), np.exp(np.log(of_naive).mean())
                cells = ["" if fault.real else f"{mean:.2f}", f"{naive:.2f}", f"{covered.mean():.3f}"]
                by_model.append([fault.name, model, part, *cells])
                better = np.exp(np.log(of_naive if fault.real else np.maximum(without, of_naive)).mean())
                wrong = better > (MOST_OF_CHANGES if fault.real else MOST) or covered.mean() < COVERED[0]
                wrong |= not fault.real and covered.mean() > COVERED[1]
                if model == "auto" and wrong and not (fault.real and part == PARTS[0]):
                    missed.append(f"{fault.name}, {part}: {better:.2f}, coverage {covered.mean():.3f}")
        for title in six if "auto" in models else ():
            own = found[fault.name, "auto", title]
            cells = [cell for part in PARTS for cell in _cells(own.get(part))]
            by_stream.append([fault.name, title, *cells])
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    low, high = COVERED
    text = TEXT.format(rows=rows, most=MOST, low=low, high=high, of_changes=MOST_OF_CHANGES)
    text = " ".join(text.split())
    report(
        __file__,
        Claim("Twelve faults in six streams", text, BY_MODEL, by_model, missed),
        Claim("Twelve faults, by stream", "The same of the default, stream by stream.", BY_STREAM, by_stream, None),
    )
    return 1 if missed else 0


def _cells(figures: tuple[float, float, float] | None) -> list[str]:
    return ["", ""] if figures is None else [f"{figures[1]:.2f}", f"{figures[2]:.3f}"]


TEXT = """
The first {rows:,} rows of electricity, PJM load, ETTh1 HUFL and OT, GEFCom load and wind, a day ahead. Six faults of
what is measured, judged by what was there, and six of the world, judged by what came; each at up to four places.
*over no fault*: MAE over that of the same model without it; *over naive*: over the best of the last value, the day
and the week before; means over streams are geometric. Of a change the first day, or what is shorter, is *in it*; what
lasts to the end has no other end: *the day after* is its second, *a week later* its second week. Claimed of the
default: of measurements at most {most} times the better of both, coverage {low} to {high}; of changes, but for the
first day, at most {of_changes} times the best naive one, coverage {low} at least. Nothing was chosen on these faults.
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="auto,linear,svdgp", help="comma-separated; default: auto,linear,svdgp")
    parser.add_argument("--rows", type=int, default=4000, help="rows of each stream; default: 4000")
    parser.add_argument("--streams", default="", help="comma-separated titles; default: all")
    asked = parser.parse_args()
    sys.exit(main(asked.models.split(","), asked.rows, [title for title in asked.streams.split(",") if title]))
