"""The picture of a comparison: each model's loss beside that of one of them, and the error by steps ahead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from streamgp.forecasting.metrics import Place, shown, title
from streamgp_pipelines.adapters.plots import COLOURS, figure_of, save, tidy

if TYPE_CHECKING:
    from streamgp_pipelines.comparing.compare import Comparison


def draw_comparison(made: Comparison, path: Path) -> Path:
    """Draw a comparison.

    Above: mean losses over those of `made.against`, with 95 % intervals where there are any. Below, where there are
    several steps ahead: the mean absolute error of each step.

    Args:
        made: what `compare` found.
        path: file to write; its suffix chooses the format (png, svg, pdf).
    """
    steps = made.scores.filter(by="step")
    several = steps["part"].n_unique() > 1
    order = made.scores.filter(by="all")["model"].to_list()
    beside = made.differences.filter(other=made.against)
    losses = [name for name in (*shown(Place.DRAWN), *shown(Place.DRAWN, binary=True)) if name in beside["loss"]]
    others = [name for name in order if name != made.against]
    figure = figure_of(8.0, 1.6 + 0.35 * len(others) * len(losses) + 3.2 * several)
    axes = figure.add_subplot(2 if several else 1, 1, 1)
    axes.axvline(1.0, color="#9aa0a8", lw=0.9, ls="--")
    for shift, loss in enumerate(losses):
        for place, name in enumerate(others):
            found = next(beside.filter(model=name, loss=loss).iter_rows(named=True), None)
            if found is None or found["ratio"] is None:
                continue
            at = place + 0.3 * shift
            axes.plot(found["ratio"], at, "os"[shift], color=COLOURS[shift], label=title(loss) if not place else None)
            if found["low"] is not None:
                axes.plot([found["low"], found["high"]], [at, at], color=COLOURS[shift], lw=1.5)
    axes.set_yticks(range(len(others)), others)
    axes.invert_yaxis()
    axes.set_xlabel(f"over that of {made.against}; lines are 95 % intervals")
    axes.set_title(f"Error on the same {made.cells:,} forecasts", loc="left", fontsize=11)
    axes.legend(fontsize=8, frameon=False)
    tidy(axes)
    if several:
        below = figure.add_subplot(2, 1, 2)
        for index, name in enumerate(order):
            part = steps.filter(model=name).with_columns(pl.col("part").cast(pl.Int64)).sort("part")
            style = "-" if index < len(COLOURS) else "--"
            below.plot(part["part"], part["mae"], style, color=COLOURS[index % len(COLOURS)], lw=1.5, label=name)
        below.set_xlabel("steps ahead")
        below.set_ylabel("mean absolute error")
        below.set_ylim(bottom=0.0)
        below.legend(fontsize=8, frameon=False, ncols=3)
        tidy(below)
    return save(figure, path)
