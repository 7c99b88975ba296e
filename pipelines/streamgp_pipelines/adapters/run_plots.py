"""The pictures of a training run: error, coverage and width over the rows seen, and over the steps ahead.

Probabilities of outcomes have no bands: in place of coverage and width, how often what was said came true.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from streamgp_pipelines.adapters.plots import Curve, plot_curves, plot_reliability, plot_steps
from streamgp_pipelines.curves import Curves

_ERRORS = ("rmse", "mae", "crps")
_LOSSES = ("log_loss", "brier", "calibration_error")


def draw_run(curves: Curves, summary: dict[str, Any], folder: Path) -> None:
    """Draw what a run has seen into a directory, one file a picture; what was never scored is not drawn.

    Args:
        curves: of the run.
        summary: what `train` returns.
        folder: existing directory.
    """
    binary = "log_loss" in summary
    errors, unit = (_LOSSES, "per forecast") if binary else (_ERRORS, "target units")
    coverage, width = summary.get("coverage") or {}, summary.get("width") or {}
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
            "target units",
        ),
    }
    nominal = {f"{level} %": float(level) / 100 for level in coverage}
    for file, (lines, title, label) in over_rows.items():
        drawn = {name: points for name, points in lines.items() if points}
        if drawn:
            marks = nominal if file == "coverage.png" else None
            plot_curves(drawn, folder / file, title=title, ylabel=label, nominal=marks)
    steps = [step for step in summary.get("steps") or [] if step.get("rmse") is not None]
    if len(steps) > 1:
        ahead = {name: [float(step[name]) for step in steps] for name in errors}
        plot_steps(ahead, folder / "error_by_step.png", title="Error by steps ahead", ylabel=unit)
    if summary.get("reliability"):
        parts = {name: part["reliability"] for name, part in (summary.get("targets") or {}).items()}
        plot_reliability(parts or {"forecasts": summary["reliability"]}, folder / "reliability.png")


def _points(curves: Curves, name: str) -> Curve:
    return [(float(rows), value) for rows, value in curves.get(name) if math.isfinite(value)]
