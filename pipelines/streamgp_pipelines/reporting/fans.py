"""Forecasts beside what happened, for the date picker of a report: which ones, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from streamgp_data.moments import Moments
from streamgp_pipelines.forecasting.results import Forecast
from streamgp_pipelines.learning.frames import percent
from streamgp_pipelines.reporting.page import Fan, Page, Section
from streamgp_pipelines.titles import axis_label

NUMBERS = 300_000
"""Numbers of all fans, at most: about 1.2 MB of the page."""
MOST = 366
"""Origins of a series, at most."""
PANELS = 6
"""Series, or targets of a series, at most."""
_APART = 1.5
"""Usual steps from which on there was no forecast between two times."""
_REGULAR = 0.8
"""Share of the steps that are near the usual one."""
TRUTHS = 24
"""Truths of one fan, at least: forecasts of fewer steps are shown one after another."""


def fan(
    scored: Mapping[str, pl.LazyFrame],
    prefixes: Mapping[str, str],
    levels: Sequence[float],
    moments: Moments,
    y: str,
    binary: bool = False,
) -> Fan:
    """The fans of one model, or of several at the same origins.

    Of more origins than fit, the page has some that are evenly spaced, and the newest; of more series the first by
    name. Its note says so.

    Args:
        scored: name of each model -> scored forecasts, as `--predictions` writes them; at least one row.
        prefixes: name -> that of its columns.
        levels: the bands, in percent.
        moments: how times are written.
        y: what the axis of values is called.
        binary: whether these are probabilities of outcomes.
    """
    whole = next(iter(scored.values()))
    has = whole.collect_schema().names()
    keys = [key for key in ("unique_id", "target") if key in has]
    panels = whole.select(keys).unique().sort(keys).collect()
    shown = panels.head(PANELS)
    origins = whole.join(shown.lazy(), on=keys, how="semi").group_by([*keys, "cutoff"]).len().collect()
    for other in list(scored)[1:]:
        both = scored[other].select([*keys, "cutoff"]).unique().collect()
        origins = origins.join(both, on=[*keys, "cutoff"], how="semi")
    steps = int(origins["len"].max() or 1)  # type: ignore[arg-type]
    row = math.ceil(TRUTHS / steps)  # windows one after another in a fan
    before = min(max(steps * row, 24), 96)
    size = steps * row * (2 + len(scored) * (1 + 2 * len(levels))) + 2 * before
    most = max(min(NUMBERS // (size * max(shown.height, 1)), MOST), 1)
    longest, made = 0, []
    for panel in shown.iter_rows(named=True):
        own = origins.filter(**panel).sort("cutoff")
        own = own.filter(pl.col("cutoff") <= own.filter(pl.col("len") == own["len"].max())["cutoff"].max())
        longest = max(longest, own.height)
        parts = {one: frame.filter(**panel).drop(keys) for one, frame in scored.items()}
        label = " · ".join(str(part) for part in panel.values())
        made.append({"name": label, "views": _views(parts, prefixes, levels, moments, own, steps, row, before, most)})
    kept = max((len(one["views"]) for one in made), default=0)
    notes = []
    if row > 1:
        notes.append(f"Forecasts of {steps} step{'s' * (steps > 1)}, one after another.")
    if kept < longest:
        notes.append(f"{kept:,} of {longest:,} origins, evenly spaced, and the newest.")
    if shown.height < panels.height:
        notes.append(f"The first {shown.height} of {panels.height:,} series, by name.")
    times = moments.on_axis(whole.select("ds").head(0).collect()["ds"])
    title = "Forecast beside what happened"
    about = _about(title, list(scored), levels, moments, y, binary, times.dtype.is_temporal())
    return Fan(title, about | {"panels": made}, " ".join(notes))


def forecast_page(found: Forecast, truth: pl.DataFrame | None = None) -> Page:
    """A forecast, with the newest values before it, and what happened afterwards where that is known.

    Args:
        found: the forecast.
        truth: unique_id, ds, [target,] y.
    """
    model, levels, moments = found.model, () if found.binary else found.levels, found.moments
    keys = [key for key in ("unique_id", "target") if key in found.frame.columns]
    panels = found.frame.select(keys).unique(maintain_order=True)
    frame = found.frame
    if truth is None:
        frame = frame.with_columns(y=pl.lit(None, pl.Float64))
    else:
        frame = frame.join(truth.select(*keys, "ds", "y"), on=[*keys, "ds"], how="left")
    steps, made = 0, list[dict[str, Any]]()
    for panel in panels.head(PANELS).iter_rows(named=True):
        ahead, past = frame.filter(**panel).sort("ds"), found.history.filter(**panel).sort("ds")
        apart = past.clear() if found.spikes is None else found.spikes.filter(**panel)
        apart = apart.filter(pl.col("ds") >= past["ds"].min())
        view = {
            "issued": stamps(ahead["cutoff"].head(1), moments)[0],
            "t": stamps(ahead["ds"], moments),
            "y": _rounded(ahead["y"]),
            "cuts": [],
            "before": {
                "t": stamps(past["ds"], moments),
                "y": _rounded(past["y"]),
                "cuts": stretches(past["ds"], usual_step(past["ds"])),
            },
            "aside": {"t": stamps(apart["ds"], moments), "y": _rounded(apart["y"])},
            "models": [[_rounded(ahead[name]) for name in _names(model, levels)]],
        }
        made.append({"name": " · ".join(str(part) for part in panel.values()), "views": [view]})
        steps = max(steps, ahead.height)
    title = f"{model}: {steps} step{'s' * (steps != 1)} ahead"
    y = axis_label(found.target, found.unit)
    dated = moments.on_axis(frame["ds"]).dtype.is_temporal()
    note = f"The first {PANELS} of {panels.height:,} series." if panels.height > PANELS else ""
    data = _about(title, [model], levels, moments, y, found.binary, dated) | {"panels": made}
    return Page(title, found.target, [Section("Forecast", [Fan(title, data, note)])])


def _about(
    title: str, models: Sequence[str], levels: Sequence[float], moments: Moments, y: str, binary: bool, dated: bool
) -> dict[str, Any]:
    """What all fans of a page share."""
    return {
        "title": title,
        "models": list(models),
        "levels": [float(level) for level in levels],
        "middle": "probability of 1" if binary else "forecast",
        "binary": binary,
        "dated": dated,
        "x": moments.label,
        "y": y,
    }


def _names(prefix: str, levels: Sequence[float]) -> list[str]:
    """Columns of the forecast, then of the lower and the upper end of each band, narrow to wide."""
    return [prefix, *(f"{prefix}-{side}-{percent(level)}" for level in levels for side in ("lo", "hi"))]


def _views(
    scored: Mapping[str, pl.LazyFrame],
    prefixes: Mapping[str, str],
    levels: Sequence[float],
    moments: Moments,
    origins: pl.DataFrame,
    steps: int,
    row: int,
    before: int,
    most: int,
) -> list[dict[str, Any]]:
    """The fans of one series, oldest first."""
    starts = max(origins.height - (row - 1) * steps, 1)
    chosen = np.unique(np.linspace(0, starts - 1, min(most, starts)).round().astype(int))
    ranks = np.minimum(chosen[:, None] + steps * np.arange(row), origins.height - 1)
    wanted = origins[np.unique(ranks)].select("cutoff")
    first = next(iter(scored.values()))
    seen = first.group_by("ds").agg(pl.col("y").first()).sort("ds").collect()
    common = first.select("cutoff", "ds", "y").join(wanted.lazy(), on="cutoff", how="semi")
    for frame in scored.values():
        common = common.join(frame.select("cutoff", "ds"), on=["cutoff", "ds"], how="semi")
    keys = common.sort("cutoff", "ds").collect()
    windows = keys.with_row_index("at").group_by("cutoff", maintain_order=True).agg(pl.col("at"))
    place = dict(windows.iter_rows())
    numbers = {name: _numbers(keys, frame, prefixes[name], levels) for name, frame in scored.items()}
    ds, truths = stamps(keys["ds"], moments), _rounded(keys["y"])
    past, values = stamps(seen["ds"], moments), _rounded(seen["y"])
    cutoffs = origins["cutoff"]
    issued = stamps(cutoffs, moments)
    behind, usual = seen["ds"].search_sorted(keys["ds"]).to_list(), usual_step(seen["ds"])
    found = []
    for group in ranks.tolist():
        at = [one for rank in dict.fromkeys(group) for one in place.get(cutoffs[rank], [])]
        if not at:
            continue
        until = behind[at[0]]
        since = slice(max(until - before, 0), until)
        found.append(
            {
                "issued": issued[group[0]],
                "t": [ds[one] for one in at],
                "y": [truths[one] for one in at],
                "cuts": stretches(keys["ds"].gather(at), usual),
                "before": {"t": past[since], "y": values[since], "cuts": stretches(seen["ds"][since], usual)},
                "models": [[[column[one] for one in at] for column in numbers[name]] for name in scored],
            }
        )
    return found


def _numbers(keys: pl.DataFrame, frame: pl.LazyFrame, prefix: str, levels: Sequence[float]) -> list[list[float | None]]:
    """The columns of `_names`; a value for each key."""
    names = _names(prefix, levels)
    chosen = frame.select("cutoff", "ds", *names).join(keys.lazy().select("cutoff").unique(), on="cutoff", how="semi")
    found = keys.select("cutoff", "ds").join(chosen.collect(), on=["cutoff", "ds"], how="left", maintain_order="left")
    return [_rounded(found[name]) for name in names]


def stretches(ds: pl.Series, usual: float | None) -> list[int]:
    """Where a line is broken: the places after a time that nothing was forecast for, at which another stretch begins.

    Args:
        ds: (N,) times, in order.
        usual: of `usual_step`.

    Example:
        >>> hours = pl.Series([0, 1, 2, 3, 9, 10, 11, 12])
        >>> stretches(hours, usual_step(hours)), stretches(hours, None)
        ([4], [])
    """
    if usual is None or len(ds) < 2:
        return []
    found: list[int] = (np.flatnonzero(np.diff(ds.to_physical().to_numpy()) > _APART * usual) + 1).tolist()
    return found


def usual_step(ds: pl.Series) -> float | None:
    """The time from one row to the next, in units of these (N,) times in order; None where it is not the same for most,
    so that no time is known to lack a forecast."""
    steps = np.diff(ds.unique().sort().to_physical().to_numpy())
    if not len(steps):
        return None
    usual = float(np.median(steps))
    return usual if np.mean(np.abs(steps - usual) <= usual / 2) >= _REGULAR else None


def _rounded(column: pl.Series) -> list[float | None]:
    """Five significant digits; null for what is no number."""
    return column.fill_nan(None).round_sig_figs(5).to_list()


def stamps(times: pl.Series, moments: Moments) -> list[Any]:
    """Times as plotly reads them: by the clock on the wall and as short as they are, or numbers."""
    times = moments.on_axis(times)
    if not isinstance(times.dtype, pl.Datetime):
        return times.to_list()
    wall = times.dt.replace_time_zone(None)
    whole = bool((wall.dt.microsecond() == 0).all())
    short = whole and bool((wall.dt.second() == 0).all())
    form = "%Y-%m-%d %H:%M" + ("" if short else ":%S" if whole else ":%S%.6f")
    return wall.dt.strftime(form).to_list()
