"""The forecasts that every model made, and the losses of each model there.

A cell is one forecast: a series, an origin, a time that is forecast and a target.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch

from streamgp.forecasting.calibration import DECILES, sides
from streamgp.forecasting.metrics import METRICS, Kind, Place
from streamgp.forecasting.scored import Scored
from streamgp_pipelines.learning.frames import percent

AT_ONCE = 200_000
"""Cells whose quantiles are in memory at a time."""
HOURS = 4
"""Of a block of the day."""
LEAST = 1e-15
"""Probability below which the log loss of an outcome grows no more."""


@dataclass(frozen=True)
class Cells:
    """What the models are scored on.

    Attributes:
        keys: unique_id, ds, cutoff, target where there are several, step (ahead) and, of a clock, hours (a block of
            the day, such as "08-12 h"); one row a cell, in the order of time.
        losses: name of the model -> a column for each loss (`metrics.losses`), one row a cell: mse and mae, for
            forecasts with bands median_mae, calibrated_crps and pinball, and for each level coverage_95 (0 or 1) and
            width_95; for outcomes of 0 and 1 log_loss.
        made: name -> how many forecasts it has scored, those too that another model has not.
        apart: origins from one of them to the next, where some model forecasts at some only; else 1.
    """

    keys: pl.DataFrame
    losses: dict[str, pl.DataFrame]
    made: dict[str, int]
    apart: int = 1


def common_cells(
    files: Mapping[str, tuple[Path, str]], levels: tuple[float, ...], binary: Collection[str] = ()
) -> Cells:
    """The cells that are in every file, and each model's losses there.

    Memory: 8 · (6 + 2 · levels) bytes a cell and model.

    Args:
        files: name of the model -> what `train --predictions` wrote, with deciles, and the prefix of its columns.
        levels: widths of the bands in percent.
        binary: names of models that forecast the probability of 1.
    """
    scans = {name: pl.scan_parquet(path) for name, (path, _) in files.items()}
    first = next(iter(scans.values()))
    names = [name for name in ("unique_id", "target", "cutoff", "ds") if name in first.collect_schema().names()]
    common = first.select(*names, "step").collect()
    origins = common["cutoff"].unique()
    for scan in scans.values():
        keys = scan.select(names).collect()
        origins = max(origins, keys["cutoff"].unique(), key=len)
        common = common.join(keys, on=names, how="semi")
    common = common.sort("cutoff", "ds", *names[:-2])
    there = origins.sort().search_sorted(common["cutoff"].unique().sort())
    apart = int(there.cast(pl.Int64).diff().median() or 1)  # type: ignore[arg-type]
    losses, made = {}, {}
    for name, (_, prefix) in files.items():
        made[name] = int(scans[name].select(pl.len()).collect().item())
        found = common.select(names).join(scans[name].collect(), on=names, how="left", maintain_order="left")
        parts = [*found.iter_slices(AT_ONCE)] or [found]
        losses[name] = pl.concat([_losses(part, prefix, levels, name in binary) for part in parts])
    if common.schema["ds"].base_type() == pl.Datetime:
        start = pl.col("ds").dt.hour() // HOURS * HOURS
        block = pl.format("{}-{} h", start.cast(pl.String).str.zfill(2), (start + HOURS).cast(pl.String).str.zfill(2))
        common = common.with_columns(hours=block)
    return Cells(common, losses, made, apart)


def _losses(part: pl.DataFrame, model: str, levels: tuple[float, ...], binary: bool) -> pl.DataFrame:
    """The losses of some forecasts."""
    y = torch.from_numpy(part["y"].to_numpy().copy())
    error = y - torch.from_numpy(part[model].to_numpy().copy())
    banded = f"{model}-q-0.5" in part.columns
    where = {p: f"{model}-q-{p:g}" for p in DECILES} if banded else {}
    for level in levels if banded else ():
        where |= zip(sides(level), (f"{model}-{side}-{percent(level)}" for side in ("lo", "hi")), strict=True)
    known = sorted(where)
    quantiles = torch.from_numpy(part.select(where[p] for p in known).to_numpy().T.copy())
    one = Scored(y, error, known, quantiles, levels if banded else ())
    found: dict[str, object] = {}
    for metric in METRICS:
        if metric.value is None or Place.LOSSES not in metric.shown or (metric.kind is not Kind.POINT and not banded):
            continue
        value = metric.value(one).numpy()
        if metric.kind is Kind.BAND:
            found |= {f"{metric.name}_{percent(level)}": row for level, row in zip(levels, value, strict=True)}
        else:
            found[metric.loss or metric.name] = value
    if binary:
        likely = y - error  # the probability of 1
        found["log_loss"] = -torch.where(y > 0.5, likely, 1 - likely).clamp(min=LEAST).log().numpy()
    return pl.DataFrame(found)


def scores(cells: Cells, by: str | None = None) -> pl.DataFrame:
    """Mean losses of each model: of all cells, or of those with each value of a column of `cells.keys`.

    Returns:
        part (text), model, cells, rmse, mae and the means of the other losses.
    """
    part = pl.lit("all") if by is None else cells.keys[by].cast(pl.String)
    order = pl.lit(0) if by is None else cells.keys[by].rank("dense")
    tables, scored = [], {metric.loss: metric for metric in METRICS if metric.loss}
    for name, losses in cells.losses.items():
        means = {
            scored[loss].name if loss in scored else loss: _mean(loss, loss in scored and scored[loss].root)
            for loss in losses.columns
        }
        table = (
            losses.with_columns(part=part, order=order)
            .group_by("order", "part")
            .agg(
                pl.lit(name).alias("model"),
                cells=pl.len().cast(pl.Int64),
                **means,
            )
        )
        tables.append(table)
    return pl.concat(tables, how="diagonal").sort("order", maintain_order=True).drop("order")


def _mean(loss: str, root: bool) -> pl.Expr:
    return pl.col(loss).mean().sqrt() if root else pl.col(loss).mean()
