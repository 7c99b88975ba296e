"""What scored forecasts say: PIT, losses by place in the cycle, residuals beside inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from streamgp.forecasting import outcomes
from streamgp.forecasting.calibration import sides
from streamgp.forecasting.scores import PHASES
from streamgp.windows.calendar import DAY
from streamgp.windows.windows import WindowSpec
from streamgp_data.moments import Moments
from streamgp_pipelines.learning.frames import percent
from streamgp_pipelines.learning.phases import Phases
from streamgp_pipelines.reporting.figures import bars, intervals, lines
from streamgp_pipelines.reporting.page import Figure

BINS = 12
"""Of an input that has more values than this."""
INPUTS = 12
"""Inputs whose residuals are drawn, at most."""
RESIDUALS = 200_000
"""Forecasts whose residuals are looked at, at most."""


def issued_quantiles(columns: Sequence[str], model: str, levels: Sequence[float]) -> dict[float, str]:
    """Probability -> column of the calibrated quantiles that a file has, increasing.

    Example:
        >>> issued_quantiles(["gp", "gp-lo-80", "gp-hi-80", "gp-q-0.5"], "gp", (80.0,))
        {0.1: 'gp-lo-80', 0.5: 'gp-q-0.5', 0.9: 'gp-hi-80'}
    """
    found: dict[float, str] = {}
    for level in levels:
        found |= dict(zip(sides(level), (f"{model}-{side}-{percent(level)}" for side in ("lo", "hi")), strict=True))
    head = f"{model}-q-"
    found |= {float(name.removeprefix(head)): name for name in columns if name.startswith(head)}
    return {p: found[p] for p in sorted(found) if found[p] in columns}


def pit(scored: pl.LazyFrame, quantiles: Mapping[float, str]) -> list[float]:
    """How many times as many truths as promised lie between neighbouring quantiles: (Q + 1,), all 1 if calibrated.

    The histogram of the probability integral transform F(y), whose bins are bounded by the quantiles that were issued:
    there F is known. A truth that several quantiles are equal to, as at a bound, is spread over their bins (Czado,
    Gneiting & Held, Biometrics 65, 2009: the non-randomised PIT).

    Example:
        >>> frame = pl.LazyFrame({"y": [0.0, 1.0, 2.0, 3.0], "q": [1.5, 1.5, 1.5, 2.5]})
        >>> pit(frame, {0.5: "q"})
        [1.0, 1.0]
    """
    names = list(quantiles.values())
    below = pl.sum_horizontal(pl.col(name) < pl.col("y") for name in names)
    upto = pl.sum_horizontal(pl.col(name) <= pl.col("y") for name in names)
    counts = scored.filter(pl.col("y").is_not_nan()).group_by(below.alias("first"), upto.alias("last")).len().collect()
    widths = np.diff([0.0, *quantiles, 1.0])
    mass = np.zeros(len(widths))
    for first, last, count in counts.iter_rows():
        part = slice(int(first), int(last) + 1)
        mass[part] += count * widths[part] / widths[part].sum()
    found: list[float] = (mass / max(mass.sum(), 1.0) / widths).tolist()
    return found


def pit_figure(named: Mapping[str, tuple[pl.LazyFrame, Mapping[float, str]]]) -> Figure:
    """The PIT histogram of one model or of several, whose quantiles are the same."""
    heights = {name: pit(*given) for name, given in named.items()}
    edges = [0.0, *next(iter(named.values()))[1], 1.0]
    middles = [round((low + high) / 2, 6) for low, high in pairwise(edges)]
    widths = [high - low for low, high in pairwise(edges)]
    return bars(
        "PIT: where truths fall in the forecast distribution",
        {name: (middles, values) for name, values in heights.items()},
        "probability",
        "truths, over those promised",
        widths=widths,
        nominal=[1.0],
        note="1 is calibrated; high ends: bands too narrow; a high middle: too wide; a slope: a bias. "
        "Bins lie between the quantiles that were issued.",
        alt="Share of truths between neighbouring quantiles over the share promised: "
        + ", ".join(f"{value:.2f}" for value in next(iter(heights.values())))
        + ", from the lowest to the highest.",
    )


def reliability(scored: pl.LazyFrame, model: str) -> list[dict[str, float]]:
    """The bins of `streamgp.forecasting.outcomes.reliability` from forecasts with their truths; `model`: the column of
    probabilities.

    Example:
        >>> frame = pl.LazyFrame({"y": [0.0, 1.0, 1.0, None], "p": [0.31, 0.35, 1.0, 0.5]})
        >>> [(round(one["probability"], 2), one["frequency"], one["forecasts"]) for one in reliability(frame, "p")]
        [(0.33, 0.5, 2), (1.0, 1.0, 1)]
    """
    known = scored.select("y", p=pl.col(model)).fill_nan(None).drop_nulls()
    place = (pl.col("p") * outcomes.BINS).cast(pl.Int64).clip(upper_bound=outcomes.BINS - 1).alias("bin")
    bins = known.group_by(place).agg(probability=pl.col("p").mean(), frequency=pl.col("y").mean(), forecasts=pl.len())
    return bins.sort("bin").drop("bin").collect().to_dicts()


def reliability_figure(named: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Figure]:
    """How often outcomes came true over how probable they were said to be; none where there are no forecasts.

    Args:
        named: name -> bins, as `reliability` has them.
    """
    drawn = {}
    for name, bins in named.items():
        ends = [outcomes.wilson(part["frequency"], part["forecasts"]) for part in bins]
        said, happened = ([part[kind] for part in bins] for kind in ("probability", "frequency"))
        drawn[name] = (said, happened, [low for low, _ in ends], [high for _, high in ends])
    note = "Lines are 95 % intervals (Wilson); on the dashed line the forecasts are calibrated."
    label = "probability of 1 as forecast"
    found = intervals("Reliability", drawn, label, "share of ones", diagonal=True, note=note)
    return [found] if any(named.values()) else []


def phase_of(spec: WindowSpec, moments: Moments) -> tuple[pl.Expr, list[str]] | None:
    """The sixth of the cycle that a forecast time lies in, as `Scores.breakdown` counts them, and their names.

    None where there is no cycle, or where times are numbers of seconds.
    """
    phases, every, ds = Phases(spec), spec.every_ns, pl.col("ds")
    period = phases.period
    if period < 2 or every is None or spec.time is None or moments.unit:
        return None
    ns = ds
    if moments.clock:
        ns = ds if phases.local or moments.zone is None else ds.dt.convert_time_zone("UTC")
        ns = ns.dt.replace_time_zone(None).dt.epoch("ns")
    place = (ns + every // 2) // every % period
    rows = (-(-np.arange(PHASES) * period // PHASES)).tolist()
    names = [f"row {row}" for row in rows]
    if phases.local and period * every == DAY:
        minutes = [row * every // 60_000_000_000 for row in rows]
        names = [f"{minute // 60:02d}:{minute % 60:02d}" for minute in minutes]
    return (place * PHASES // period).alias("phase"), names


def error_by_phase(
    scored: pl.LazyFrame, model: str, spec: WindowSpec, moments: Moments, y: str, binary: bool
) -> Figure | None:
    """The mean absolute error by sixth of the cycle, or the Brier score of probabilities of outcomes."""
    found = phase_of(spec, moments)
    if found is None:
        return None
    phase, names = found
    error = (pl.col("y") - pl.col(model)).fill_nan(None)
    table = scored.group_by(phase).agg((error**2 if binary else error.abs()).mean()).sort("phase").collect()
    values = dict(table.iter_rows())
    places = [place for place in range(PHASES) if place in values]
    ticks = [names[place] for place in places]
    drawn = {"brier" if binary else "MAE": (list(range(len(places))), [values[place] for place in places])}
    return lines(
        "Error by place in the cycle", drawn, "begins at", "per forecast" if binary else y, ticks=ticks, zero=True
    )


def residual_figures(
    scored: pl.LazyFrame, model: str, rows: pl.DataFrame | None, spec: WindowSpec, y: str, binary: bool
) -> tuple[list[Figure], str]:
    """What happened less what was forecast, beside the forecast and the inputs, and what they are of.

    Known inputs are those of the time that is forecast, the others those of the origin.

    Args:
        scored: forecasts with their truths.
        model: prefix of their columns.
        rows: unique_id, ds and the inputs of the table; None without one.
        spec: of the windows.
        y: what the axis of values is called.
        binary: whether these are probabilities of outcomes.
    """
    total = int(scored.select(pl.len()).collect().item())
    every = max(-(-total // RESIDUALS), 1)
    kept = scored.gather_every(every).select("unique_id", "ds", "cutoff", "y", pl.col(model).alias("_forecast"))
    frame = kept.with_columns(_residual=pl.col("y") - pl.col("_forecast")).collect()
    figures = [_beside(frame["_forecast"], frame["_residual"], "the forecast", y, binary)]
    own = [name for name in spec.inputs if name not in spec.known] if spec.lags else []
    known = [*spec.known] if spec.lags else [name for name in spec.columns if name not in spec.targets]
    wanted = [(name, "ds") for name in known] + [(name, "cutoff") for name in own]
    for name, at in wanted[:INPUTS] if rows is not None else ():
        assert rows is not None
        side = rows.select(pl.col("unique_id"), pl.col("ds").alias(at), pl.col(name).cast(pl.Float64).alias("_input"))
        side = side.unique(["unique_id", at], keep="first")
        joined = frame.join(side, on=["unique_id", at], how="inner")
        if joined.height:
            where = name if at == "ds" else f"{name}, at the origin"
            figures.append(_beside(joined["_input"], joined["_residual"], where, y, binary))
    notes = ["Points are medians of the truth less the forecast, lines hold 90 % of them."]
    if binary:
        notes = ["Points are means of the outcome less its probability, lines are 95 % intervals of the mean."]
    if every > 1:
        notes.append(f"Of {frame.height:,} of {total:,} forecasts, evenly spaced.")
    if rows is not None and len(wanted) > INPUTS:
        notes.append(f"The first {INPUTS} of {len(wanted)} inputs.")
    return figures, " ".join(notes)


def _beside(values: pl.Series, residual: pl.Series, name: str, y: str, binary: bool) -> Figure:
    """Residuals by value, or by bins of values that hold equally many."""
    frame = pl.DataFrame({"x": values, "r": residual}).fill_nan(None).drop_nulls()
    if frame["x"].n_unique() > BINS:
        edges = np.unique(np.quantile(frame["x"].to_numpy(), np.arange(1, BINS) / BINS))
        frame = frame.with_columns(bin=pl.Series(np.searchsorted(edges, frame["x"].to_numpy(), side="right")))
    else:
        frame = frame.with_columns(bin=pl.col("x"))
    r = pl.col("r")
    middle, low, high = r.median(), r.quantile(0.05, "linear"), r.quantile(0.95, "linear")
    if binary:
        reach = 1.96 * r.std().fill_null(0.0) / pl.len().sqrt()
        middle, low, high = r.mean(), r.mean() - reach, r.mean() + reach
    found = frame.group_by("bin").agg(x=pl.col("x").mean(), middle=middle, low=low, high=high).sort("bin")
    points = {
        "residual": (found["x"].to_list(), found["middle"].to_list(), found["low"].to_list(), found["high"].to_list())
    }
    title = f"Residuals beside {name}"
    return intervals(title, points, name, f"residual, {y}", across=[0.0])
