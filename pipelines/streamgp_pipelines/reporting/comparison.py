"""The report of a comparison, from what `compare` has written."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import polars as pl

from streamgp.errors import DataError
from streamgp.forecasting.metrics import Place, losses
from streamgp.forecasting.metrics import title as called
from streamgp_data import checkpoint
from streamgp_data.moments import Moments
from streamgp_pipelines.comparing.cells import Cells, common_cells
from streamgp_pipelines.learning.restored import moments_of, read_checkpoint, recipe_of
from streamgp_pipelines.reporting.fans import fan, stamps
from streamgp_pipelines.reporting.figures import intervals, lines
from streamgp_pipelines.reporting.page import Figure, HtmlTable, Page, Section
from streamgp_pipelines.reporting.scored import issued_quantiles, pit_figure, reliability, reliability_figure
from streamgp_pipelines.titles import axis_label, title

BINS = 60
"""Stretches of time whose losses are drawn, at most."""
PARTS = 60
"""Series, or other parts without an order, whose losses are drawn, at most."""

_NUMBERS = ("ratio", "low", "high", "p")
_BY = {"step": "step ahead", "hours": "time of day", "target": "target", "series": "series"}


def comparison_page(directory: Path) -> Page:
    """The report of a comparison.

    Args:
        directory: of `streamgp compare`.

    Raises:
        DataError: there is none.
        CheckpointError: the checkpoint of a model is damaged.
    """
    try:
        scores, differences = (pl.read_parquet(directory / f"{name}.parquet") for name in ("scores", "differences"))
    except (OSError, pl.exceptions.PolarsError):
        raise DataError(f"{directory} holds no comparison", hint="streamgp compare writes one") from None
    whole = scores.filter(by="all")
    models: list[str] = whole["model"].to_list()
    saved = next((name for name in models if checkpoint.exists(directory / name)), None)
    if saved is None:
        raise DataError(f"{directory} holds no checkpoint of its models", hint="streamgp compare makes them again")
    found = read_checkpoint(directory / saved)
    about: dict[str, Any] = found.manifest
    spec, moments = recipe_of(found).spec, moments_of(found)
    levels = tuple(float(name[9:]) for name in scores.columns if name.startswith("coverage_"))
    y = axis_label("+".join(spec.targets), about["unit"])
    y = "all targets" if len(spec.targets) > 1 else y
    paths = {name: directory / name / "predictions.parquet" for name in models}
    absent = [name for name, path in paths.items() if not path.is_file()]
    skill = whole.filter(pl.col("skill") == 0)["model"].to_list()
    against = next((name for name in skill if name in ("seasonal_naive", "persistence")), (skill or models)[0])
    sections = [
        Section("Scores", [_scores(whole)], f"Of the {whole['cells'][0]:,} forecasts that every model made."),
        Section("Differences", [*_differences(differences, models, against)]),
    ]
    home = quote(str(directory / saved))
    missing = [f"Weights, basis and table of a model, such as {saved}: streamgp report --checkpoint {home}."]
    if absent:
        missing.append(
            f"Forecasts, PIT, losses over time: there are no forecasts of {', '.join(absent)}; compare again."
        )
    else:
        scans = {name: pl.scan_parquet(path) for name, path in paths.items()}
        columns = {name: scan.collect_schema().names() for name, scan in scans.items()}
        prefixes = {name: own[own.index("y") + 1] for name, own in columns.items()}
        quantiles = {name: issued_quantiles(own, prefixes[name], levels) for name, own in columns.items()}
        outcomes = [name for name in models if not quantiles[name]]  # probabilities have no bands
        cells = common_cells({name: (paths[name], prefixes[name]) for name in models}, levels, outcomes)
        bands = () if outcomes else levels
        sections.append(Section("Forecasts", [fan(scans, prefixes, bands, moments, y, bool(outcomes))]))
        sections.append(Section("Over time", _over_time(cells, moments, levels, y)))
        same = _common(scans, cells)
        most = max((list(own) for own in quantiles.values()), key=len)  # the bins that models share
        pits = {name: (same[name], quantiles[name]) for name in models if most and list(quantiles[name]) == most}
        bins = {name: reliability(same[name], prefixes[name]) for name in outcomes}
        sections.append(Section("Calibration", [*([pit_figure(pits)] if pits else []), *reliability_figure(bins)]))
    sections += [Section(f"By {label}", _by(scores, part, label, models, levels, y)) for part, label in _BY.items()]
    name = title(" and ".join(models) if len(models) < 3 else f"{len(models)} models", spec.targets, spec.horizon)
    said = f"streamgp {about['streamgp']} · comparison of {', '.join(models)} · measured against {against}"
    return Page(f"compare {name}", said, sections, missing)


def _common(scans: dict[str, pl.LazyFrame], cells: Cells) -> dict[str, pl.LazyFrame]:
    """The forecasts of each model that every model made."""
    names = [name for name in ("unique_id", "target", "cutoff", "ds") if name in cells.keys.columns]
    keys = cells.keys.lazy().select(names)
    return {name: scan.join(keys, on=names, how="semi") for name, scan in scans.items()}


def _scores(whole: pl.DataFrame) -> HtmlTable:
    known = [name for name in whole.columns if whole[name].is_not_null().any()]
    names = [name for name in known if name not in ("by", "part", "model", "cells")]
    heads = ["model", *(called(name) + (" %" if name[-1:].isdigit() else "") for name in names)]
    return HtmlTable("", heads, whole.select("model", *names).rows(), "Best calibrated CRPS first.")


def _differences(table: pl.DataFrame, models: list[str], against: str) -> list[Figure | HtmlTable]:
    """Mean losses over those of one model, with their intervals; and those of all pairs as numbers."""
    beside = table.filter(other=against)
    named: dict[str, Any] = {}
    others = [name for name in models if name != against]
    for loss, label in losses().items():
        found = beside.filter(pl.col("loss") == loss, pl.col("ratio").is_not_null())
        rows = {row["model"]: row for row in found.iter_rows(named=True)}
        at = [place for place, name in enumerate(others) if name in rows]
        ratios = [rows[others[place]]["ratio"] for place in at]
        ends = [[rows[others[place]][end] for place in at] for end in ("low", "high")]
        low, high = ([_or(*pair) for pair in zip(end, ratios, strict=True)] for end in ends)
        if at:
            named[label] = (at, ratios, low, high)
    drawn: list[Figure | HtmlTable] = []
    if named:
        note = "Below 1 is better; lines are 95 % intervals of a block bootstrap."
        name = f"Mean losses over those of {against}"
        drawn.append(intervals(name, named, "ratio", "", across=[1.0], ticks=others, sideways=True, note=note))
    pairs = [
        [f"{row['model']} over {row['other']}", called(row["loss"]), *(row[name] for name in _NUMBERS)]
        for row in table.iter_rows(named=True)
    ]
    heads = ["models", "loss", "ratio", "95 % from", "to", "p (Diebold-Mariano)"]
    drawn.append(HtmlTable("All pairs", heads, pairs))
    return drawn


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _over_time(cells: Cells, moments: Moments, levels: tuple[float, ...], y: str) -> list[Figure]:
    """Losses of every model, and coverage of the widest band, by stretch of time."""
    ticks = cells.keys["ds"].to_physical()
    low, high = float(ticks.min()), float(ticks.max())  # type: ignore[arg-type]
    place = ((ticks - low) / max(high - low, 1) * BINS).cast(pl.Int64).clip(upper_bound=BINS - 1).alias("bin")
    middle = cells.keys.select(place, "ds").group_by("bin").agg(pl.col("ds").min()).sort("bin")
    at = stamps(middle["ds"], moments)
    kinds = {loss: name[0].upper() + name[1:] for loss, name in losses(Place.DRAWN).items()}
    kinds |= {f"coverage_{level:g}": f"Coverage of the {level:g} % band" for level in levels[-1:]}
    found = []
    for loss, name in kinds.items():
        named = {
            model: (at, losses.select(place, loss).group_by("bin").agg(pl.col(loss).mean()).sort("bin")[loss].to_list())
            for model, losses in cells.losses.items()
            if loss in losses.columns
        }
        inside = loss.startswith("coverage")
        if named:
            nominal = [levels[-1] / 100] if inside else []
            label = "share of truths inside" if inside else y
            found.append(lines(name, named, moments.label, label, nominal=nominal))
    return found


def _by(
    scores: pl.DataFrame, part: str, label: str, models: list[str], levels: tuple[float, ...], y: str
) -> list[Figure]:
    """Losses of every model in parts of the forecasts; nothing where there is one part."""
    table = scores.filter(by=part)
    names = table["part"].unique(maintain_order=True).to_list()
    if len(names) < 2:
        return []
    note = f"The first {PARTS} of {len(names)}." if part != "step" and len(names) > PARTS else ""
    shown = names if part == "step" else names[:PARTS]
    kinds = {loss: name[0].upper() + name[1:] for loss, name in losses(Place.DRAWN).items()}
    kinds |= {f"coverage_{level:g}": f"Coverage of the {level:g} % band" for level in levels[-1:]}
    found = []
    for kind, name in kinds.items():
        if kind not in table.columns or table[kind].is_null().all():
            continue
        named = {}
        for model in models:
            values = dict(table.filter(model=model).select("part", kind).iter_rows())
            places = [int(one) for one in shown] if part == "step" else list(range(len(shown)))
            named[model] = (places, [values.get(one) for one in shown])
        inside = kind.startswith("coverage")
        ticks = [] if part == "step" else shown
        nominal = [levels[-1] / 100] if inside else []
        across = "share of truths inside" if inside else y
        options: dict[str, Any] = {"nominal": nominal, "ticks": ticks, "zero": not inside, "note": note}
        found.append(lines(f"{name} by {label}", named, label, across, **options))
    return found
