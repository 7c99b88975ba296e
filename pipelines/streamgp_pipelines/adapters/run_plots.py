"""The pictures of a training run: error, coverage, width and weights over the rows seen, and over the steps ahead.

Probabilities of outcomes have no bands: in place of coverage and width, how often what was said came true.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgp.forecasting.metrics import Place, shown
from streamgp_pipelines.adapters.plots import (
    SUFFIXES,
    Curve,
    plot_alarms,
    plot_curves,
    plot_forecast,
    plot_reliability,
    plot_steps,
)
from streamgp_pipelines.reporting import page
from streamgp_pipelines.reporting.fans import forecast_page
from streamgp_pipelines.titles import axis_label

if TYPE_CHECKING:
    import polars as pl

    from streamgp_pipelines.forecasting.results import Forecast
    from streamgp_pipelines.learning.curves import Curves
    from streamgp_pipelines.training.outlook import NewestAlarms, Outlook

FORECASTS = (*SUFFIXES, page.SUFFIX)
"""Suffixes of the file of a forecast."""


def draw_run(
    curves: Curves,
    summary: dict[str, Any],
    outlook: Outlook | None,
    folder: Path,
    judged: NewestAlarms | None = None,
) -> None:
    """Draw what a run has seen into a directory, one file a picture; what was never scored is not drawn.

    Args:
        curves: of the run.
        summary: what `train` returns.
        outlook: the forecast at the run's end; None where there is none.
        folder: existing directory.
        judged: its newest values and their alarms; None where it judges none.
    """
    _draw_over_rows(curves, summary, folder)
    _draw_in_parts(summary, folder)
    if outlook is not None:
        draw_forecast(outlook.forecast, folder / "forecast.png", outlook.truth)
    if judged is not None:
        targets, unit = summary.get("target") or [], summary.get("unit") or ""
        plot_alarms(judged.frame, folder / "alarms.png", model=judged.model, level=judged.level,
                    moments=judged.moments, target=targets[0] if len(targets) == 1 else "", unit=unit)  # fmt: skip
    if summary.get("reliability"):
        parts = {name: part["reliability"] for name, part in (summary.get("targets") or {}).items()}
        plot_reliability(parts or {"forecasts": summary["reliability"]}, folder / "reliability.png")


def _draw_over_rows(curves: Curves, summary: dict[str, Any], folder: Path) -> None:
    """Error, coverage, width and weights over the rows seen."""
    coverage, width = summary.get("coverage") or {}, summary.get("width") or {}
    errors, unit = _errors(summary)
    weights = sorted(name for name in curves.values if name.startswith("weight_"))
    over_rows = {
        "error.png": ({name: _points(curves, name) for name in errors}, "Error since the last point", unit),
        "coverage.png": (
            {f"{level} %": _points(curves, f"coverage_{level}") for level in coverage},
            "Coverage of the calibrated bands (dashed: nominal)",
            "share of truths inside",
        ),
        "width.png": (
            {f"{level} %": _points(curves, f"width_{level}") for level in width},
            "Width of the calibrated bands",
            _values(summary),
        ),
        "weights.png": (
            {name.removeprefix("weight_").replace("_", " "): _points(curves, name) for name in weights},
            "Weights of the experts, mean over the steps",
            "weight",
        ),
    }
    nominal = {f"{level} %": float(level) / 100 for level in coverage}
    for file, (lines, title, label) in over_rows.items():
        drawn = {name: points for name, points in lines.items() if points}
        if drawn:
            marks = nominal if file == "coverage.png" else None
            plot_curves(drawn, folder / file, title=title, ylabel=label, nominal=marks)


def _draw_in_parts(summary: dict[str, Any], folder: Path) -> None:
    """Error by step ahead; coverage by step, phase, tenth of the stream and series."""
    errors, unit = _errors(summary)
    steps = [step for step in summary.get("steps") or [] if step.get("rmse") is not None]
    if len(steps) > 1:
        ahead = {name: [float(step[name]) for step in steps] for name in errors}
        plot_steps(ahead, folder / "error_by_step.png", title="Error by steps ahead", ylabel=unit)
    for part, (pieces, label) in _parts(summary, steps).items():
        known = {
            f"{level} %": [float(one["coverage"][level]) for one in pieces]
            for level in summary.get("coverage") or {}
            if len(pieces) > 1 and all(one["coverage"][level] is not None for one in pieces)
        }
        if known:
            title = f"Coverage of the calibrated bands by {part}"
            bottom = max(0.0, min(map(min, known.values())) - 0.05)
            path = folder / f"coverage_by_{part}.png"
            plot_steps(known, path, title=title, ylabel="share of truths inside", xlabel=label, bottom=bottom)


def _errors(summary: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """The errors that are drawn, and what their axis is called."""
    binary = "log_loss" in summary
    return shown(Place.PICTURES, binary), "per forecast" if binary else _values(summary)


def _values(summary: dict[str, Any]) -> str:
    """What an axis of values is called."""
    return axis_label("+".join(summary.get("target") or []), summary.get("unit") or "") or "target units"


def _parts(summary: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, tuple[list[dict[str, Any]], str]]:
    """What coverage is drawn over: part -> its pieces and the name of the axis."""
    by = summary.get("coverage_by") or {}
    return {
        "step": (steps if by else [], "steps ahead"),
        "phase": (by.get("phases") or [], "sixth of the season"),
        "tenth": (by.get("tenths") or [], "tenth of the stream"),
        "series": (list((by.get("series") or {}).values()), "series"),
    }


def draw_forecast(found: Forecast, path: Path, truth: pl.DataFrame | None = None) -> None:
    """A forecast with everything that it says of itself: target, unit, clock and zone.

    Args:
        found: the forecast.
        path: file to write; its suffix chooses the format: a picture, or .html, a page that needs nothing else.
        truth: what happened afterwards, where that is known.
    """
    if path.suffix == page.SUFFIX:
        page.write(forecast_page(found, truth), path)
        return
    plot_forecast(
        found.frame,
        found.history,
        path,
        model=found.model,
        levels=found.levels,
        truth=truth,
        spikes=found.spikes,
        unit=found.unit,
        binary=found.binary,
        moments=found.moments,
        target=found.target,
    )


def _points(curves: Curves, name: str) -> Curve:
    return [(float(rows), value) for rows, value in curves.get(name) if math.isfinite(value)]
