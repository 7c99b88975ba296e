"""Train several models on one stream and score them on the same forecasts."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch

from streamgp import registry
from streamgp.base import Json, Progress, Tracker
from streamgp.errors import ServiceError, StreamgpError, UsageError
from streamgp.forecasting.calibration import DECILES
from streamgp.forecasting.metrics import losses
from streamgp_data import checkpoint
from streamgp_data.table import Table
from streamgp_pipelines.comparing.cells import Cells, common_cells, scores
from streamgp_pipelines.comparing.differences import difference
from streamgp_pipelines.comparing.peers import PEERS, options_of
from streamgp_pipelines.config import AUTO, CompareConfig, TrainConfig
from streamgp_pipelines.files import replaced
from streamgp_pipelines.learning.checkpointing import set_aside
from streamgp_pipelines.learning.restored import read_checkpoint
from streamgp_pipelines.learning.survey import surveyed, with_shown
from streamgp_pipelines.learning.warmup import warmup_rows
from streamgp_pipelines.stages import finishing, staged
from streamgp_pipelines.tasks import Cluster, tasks_of
from streamgp_pipelines.titles import title
from streamgp_pipelines.training.train import Draw, train

if TYPE_CHECKING:
    from streamgp_pipelines.comparing.peers.peer import PeerOptions

_STANDS_IN = "persistence"
"""The model whose settings a peer's run is opened with."""
_PARTS = {"step": "step", "series": "unique_id", "target": "target", "hours": "hours"}
_OWN = {"comparison", "models", "set", "against", "level", "quantiles", "checkpoint_every"}
_OWN |= {"engine", "workers", "address"}


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        scores: by (all, step, series, target, hours) and the part, model, cells, rmse, mae, median_mae (MAE of the
            median; with `--point median`, of the part `all`, mean_mae in its place, None where the model has scored
            other forecasts too), calibrated_crps, pinball, coverage_95 and width_95 of each level, log_loss of
            outcomes of 0 and 1; of the part `all` also mase (None of several series or targets where the model has
            scored other forecasts too), nlpd (None where it has, or has no density), skill (1 − MAE / that of
            `against`), cpu_seconds (0 or so where there was nothing to learn any more), rows_per_second and state_mb,
            the size of the checkpoint; mase also of each of several series, where there is one target. Best CRPS first.
        differences: model, other, loss (mae, mse, calibrated_crps, pinball, log_loss), ratio of the mean losses, low
            and high of its 95 % interval, p of the Diebold-Mariano test; each pair of models once in each order.
        cells: forecasts that every model made, which all scores are of.
        left_out: forecasts that some models made and others did not.
        against: the model that the others are measured against.
        files: name -> path of what was written.
        run_id: of the tracker.
        warnings: of the models' runs, by model.
        weights: of the experts of each model that mixes some, at the end of its run.
        lost: how often a worker was lost, and its model went on in another.
    """

    scores: pl.DataFrame
    differences: pl.DataFrame
    cells: int
    left_out: int
    against: str
    files: dict[str, Path]
    run_id: str
    warnings: dict[str, list[str]]
    weights: dict[str, dict[str, float]]
    lost: int = 0


def compare(
    config: CompareConfig,
    tracker: Callable[[Path, str], Tracker],
    progress: Callable[[Progress], None] = lambda _: None,
    draw: Draw | None = None,
    picture: Callable[[Comparison, Path], object] | None = None,
    cluster: Cluster | None = None,
) -> Comparison:
    """Train each model, or let it go on from its checkpoint, and score all on the forecasts that every one made.

    Forecasters of other libraries (`peers`) have no checkpoint: they are run from the first row each time. All have
    the same warm-up. Costs what the models cost, and reading their forecasts once more. With `--engine ray` models
    are trained side by side, each on one thread: the same numbers as with one thread here.

    Args:
        config: what to compare.
        tracker: makes the tracker of a run from its directory and title. The comparison has a run, and each model one
            below it.
        progress: called with how far it is.
        draw: draws the plots of each model's run.
        picture: draws the comparison into a file.
        cluster: makes the workers of `--engine ray`; with them, `tracker` and `draw` are pickled.

    Raises:
        StreamgpError: whatever training raises.
        UsageError: a model or an option is unknown, or no forecast was made by all.
    """
    try:
        return _compare(config, tracker, progress, draw, picture, cluster)
    except StreamgpError as error:
        error.hint = error.hint.replace("--checkpoint", "--comparison")  # which a comparison has in its place
        raise


def _compare(
    config: CompareConfig,
    tracker: Callable[[Path, str], Tracker],
    progress: Callable[[Progress], None],
    draw: Draw | None,
    picture: Callable[[Comparison, Path], object] | None,
    cluster: Cluster | None,
) -> Comparison:
    tasks = tasks_of(config, cluster)
    if config.engine == "ray":
        torch.set_num_threads(1)  # as the workers have
    plan = _plan(config)
    config.comparison.mkdir(parents=True, exist_ok=True)
    name = "compare " + title("+".join(plan.runs), plan.targets, config.horizon)
    whole = tracker(config.comparison, name)
    with finishing(whole), closing(tasks):
        whole.params({"models": list(plan.runs), "against": plan.against, "horizon": config.horizon})
        cells = {name: (run, plan.peers.get(name)) for name, run in plan.runs.items()}
        below = _below(tracker, whole.run_id)
        summaries = tasks.run(partial(_cell, config.comparison, below, draw), cells, progress)
        for name, seconds in plan.seconds.items():
            summaries[name]["cpu_seconds"] += seconds
        progress(Progress("scores", 0, 1))
        made = replace(_compared(config, plan, summaries, whole.run_id), lost=tasks.lost)
        for name, frame in (("scores", made.scores), ("differences", made.differences)):
            with replaced(made.files[name]) as temporary:
                frame.write_parquet(temporary)
        if picture is not None:
            picture(made, made.files["picture"])
        _track(whole, made)
        progress(Progress("scores", 1, 1))
    return made


def _cell(
    home: Path,
    below: Callable[[Path, str], Tracker],
    draw: Draw | None,
    name: str,
    cell: tuple[TrainConfig, tuple[str, PeerOptions] | None],
    progress: Callable[[Progress], None],
) -> dict[str, Any]:
    """One model on the stream: the summary of its run, and `cpu_seconds`. A run that was killed continues."""
    run, peer = cell
    if not home.is_dir():
        hint = "--comparison must be on a file system that all machines of the cluster share"
        raise ServiceError(f"{platform.node()} has no directory {home}", hint=hint)
    registry.trust(f"{run.model} {dict(run.set)}")  # the user named them where the comparison was started
    began, stages = time.process_time(), staged(progress, name)
    if peer is None:
        found = train(run, below, stages, draw)
    else:
        from streamgp_pipelines.comparing.peers.peer import run_peer

        found = run_peer(*peer, run, below, stages)
    return found | {"cpu_seconds": time.process_time() - began}


@dataclass(frozen=True)
class _Plan:
    """What is to be done: the run of each model, the peers among them with their options, which one the others are
    measured against, the targets, the rows in a block of the bootstrap, and the CPU seconds that went into a model."""

    runs: dict[str, TrainConfig]
    peers: dict[str, tuple[str, PeerOptions]]
    against: str
    targets: tuple[str, ...]
    block: int
    seconds: dict[str, float]


def _plan(config: CompareConfig) -> _Plan:
    """Read what there is; a comparison that is continued, or takes another model in, keeps the warm-up that it has."""
    models, table = named(config), Table.open(config.table)
    seasons = with_shown(config, table).season
    season = seasons[0] if seasons and not isinstance(seasons, str) else 1
    against = config.against
    if against is None:
        naive = "seasonal_naive" if season > 1 else "persistence"
        lags = config.lags if config.lags is not None else int(table.meta.time is not None)
        against = naive if lags else next(iter(models))
    models.setdefault(against, (against, {}))
    peers: dict[str, tuple[str, PeerOptions]] = {}
    for name, (model, options) in models.items():
        if model in PEERS:
            if not _online(config):
                raise UsageError(f"--models {model} runs on streams", hint="leave it out, or leave out --test-column")
            peers[name] = model, options_of(model, options)
            models[name] = _STANDS_IN, {}
        elif model != AUTO:
            try:
                registry.check("models", model)
            except UsageError as error:
                raise UsageError(
                    str(error), hint=f"{error.hint}; for --models also {', '.join((AUTO, *PEERS))}"
                ) from None
    runs = {name: _run(config, name, *model) for name, model in models.items()}
    warmup = {True: 0, False: 0}  # of runs that go on, and of those that begin
    targets: tuple[str, ...] = ()
    seconds = dict.fromkeys(runs, 0.0)  # a model is imported here: that is a part of what it costs
    for name, run in runs.items():
        began = time.process_time()
        saved = read_checkpoint(run.checkpoint) if not run.fresh and checkpoint.exists(run.checkpoint) else None
        run, spec, survey = surveyed(run, table, saved)
        goes_on, targets = saved is not None, spec.targets
        warmup[goes_on] = max(warmup[goes_on], warmup_rows(run, spec, survey, saved))
        seconds[name] = time.process_time() - began
    if _online(config):
        update = {"warmup": warmup[True] or warmup[False]}
        runs = {name: run.model_copy(update=update) for name, run in runs.items()}
    if config.fresh:  # here, as a run whose worker is lost is to go on
        for name in runs.keys() - peers.keys():
            set_aside(runs[name].checkpoint)
        runs = {name: run.model_copy(update={"fresh": False}) for name, run in runs.items()}
    return _Plan(runs, peers, against, targets, max(config.horizon, season), seconds)


def named(config: CompareConfig) -> dict[str, tuple[str, dict[str, str]]]:
    """Name -> model and its options.

    Raises:
        UsageError: there is no model, two have the same name, or an option names none of them.

    Example:
        >>> config = CompareConfig.read({"table": "t", "models": "auto,small=svdgp", "set": ["small.basis=64"]})
        >>> named(config)
        {'auto': ('auto', {}), 'small': ('svdgp', {'basis': '64'})}
    """
    found: dict[str, tuple[str, dict[str, str]]] = {}
    if not config.models:
        raise UsageError("--models names no model", hint="such as --models auto,linear")
    for word in config.models:
        name, _, model = word.partition("=")
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UsageError(f"--models: {name!r} is no name", hint="names have letters, digits, '_', '-' and '.'")
        if name in found:
            raise UsageError(f"--models: two are called {name!r}", hint="name them, such as small=svdgp")
        found[name] = (model or name, {})
    for key, value in config.set.items():
        name = max((one for one in found if key.startswith(f"{one}.")), key=len, default=key.partition(".")[0])
        option = key[len(name) + 1 :]
        if name not in found or not option:
            raise UsageError(
                f"--set {key}: {name!r} is none of the models",
                hint=f"options are NAME.KEY=VALUE, with NAME one of {', '.join(found)}",
            )
        found[name][1][option] = value
    return found


def _online(config: CompareConfig) -> bool:
    return config.test_column is None and config.test_tail is None


def _run(config: CompareConfig, name: str, model: str, options: dict[str, str]) -> TrainConfig:
    """The settings of one model's run."""
    given: dict[str, Any] = {field: getattr(config, field) for field in config.model_fields_set - _OWN}
    home = config.comparison / name
    given |= {"model": model, "set": options, "checkpoint": home, "predictions": home / "predictions.parquet"}
    given |= {"level": config.level, "quantiles": tuple(sorted({*config.quantiles, *DECILES}))}
    if _online(config):
        given |= {"online": True, "checkpoint_every": config.checkpoint_every}
    return TrainConfig.read(given)


def _below(tracker: Callable[[Path, str], Tracker], parent: str) -> Callable[[Path, str], Tracker]:
    """Makes runs that are listed below another one."""

    def make(directory: Path, name: str) -> Tracker:
        run = tracker(directory, name)
        if parent:
            run.tags({"mlflow.parentRunId": parent})
        return run

    return make


def _compared(config: CompareConfig, plan: _Plan, summaries: dict[str, dict[str, Any]], run_id: str) -> Comparison:
    files = {name: (run.predictions or Path(), str(summaries[name]["model"])) for name, run in plan.runs.items()}
    cells = common_cells(files, config.level, {name for name, found in summaries.items() if "log_loss" in found})
    if not len(cells.keys):
        counts = ", ".join(f"{name} {made:,}" for name, made in cells.made.items())
        raise UsageError(
            f"no forecast was made by every model; they have scored: {counts}",
            hint="leave out a model that made none, or shorten --lags, --season or --warmup",
        )
    whole = scores(cells)
    base = float(whole.filter(model=plan.against)["mae"].item())
    extra = [
        _extra(name, run, summaries[name], cells, base, whole, name in plan.peers) for name, run in plan.runs.items()
    ]
    whole = whole.join(pl.DataFrame(extra, infer_schema_length=None), on="model", maintain_order="left")
    whole = whole.sort("calibrated_crps" if "calibrated_crps" in whole.columns else "mae", "mae", nulls_last=True)
    order = whole["model"].to_list()
    parts = {name: column for name, column in _PARTS.items() if column in cells.keys.columns}
    tables = [whole.with_columns(by=pl.lit("all"))]
    for name, column in parts.items():
        own = scores(cells, column)
        own = own.join(_series_mase(own, summaries), on=["part", "model"], how="left") if name == "series" else own
        tables.append(own.with_columns(by=pl.lit(name)))
    home = config.comparison
    return Comparison(
        scores=pl.concat(tables, how="diagonal_relaxed").select("by", pl.exclude("by", f"{config.point}_mae")),
        differences=_differences(cells, order, max(plan.block // cells.apart, 1), -(-config.horizon // cells.apart)),
        cells=len(cells.keys),
        left_out=max(cells.made.values()) - len(cells.keys),
        against=plan.against,
        files={"scores": home / "scores.parquet", "differences": home / "differences.parquet"}
        | {"picture": home / "comparison.png"},
        run_id=run_id,
        warnings={name: list(found["warnings"]) for name, found in summaries.items()},
        weights={name: found["weights"] for name, found in summaries.items() if found.get("weights")},
    )


def _extra(
    name: str, run: TrainConfig, found: dict[str, Any], cells: Cells, base: float, whole: pl.DataFrame, peer: bool
) -> dict[str, Json]:
    """What a run itself says of a model."""
    same = cells.made[name] == len(cells.keys)
    mae = float(whole.filter(model=name)["mae"].item())
    naive = found["mase_scale"] or {}
    scale = None if "series" in naive else naive.get("value")
    return {
        "model": name,
        "mase": found["mase"] if same else mae / scale if scale else None,
        "nlpd": found["nlpd"] if same and "log_loss" not in found and not peer else None,
        "mean_mae": found.get("mean_mae") if same else None,
        "skill": 1 - mae / base if base > 0 else None,
        "cpu_seconds": found["cpu_seconds"],
        "rows_per_second": found["rows_per_second"],
        "state_mb": None if peer else _size(run.checkpoint) / 1e6,
    }


def _series_mase(found: pl.DataFrame, summaries: dict[str, dict[str, Any]]) -> pl.DataFrame:
    """part, model, mase: the MAE of each series over the scale of its own, where it has one target."""
    scales = [
        (series, name, one.get("mase_scale") or None)
        for name, summary in summaries.items()
        for series, one in (summary.get("by_series") or {}).items()
    ]
    scale = pl.DataFrame(scales, {"part": pl.String, "model": pl.String, "scale": pl.Float64}, orient="row")
    return found.join(scale, on=["part", "model"]).select("part", "model", mase=pl.col("mae") / pl.col("scale"))


def _size(directory: Path) -> int:
    """Bytes of the newest checkpoint."""
    return sum(file.stat().st_size for file in read_checkpoint(directory).path.rglob("*") if file.is_file())


def _differences(cells: Cells, order: list[str], block: int, horizon: int) -> pl.DataFrame:
    """Each model beside each other one, in each loss that both have."""
    origin = (cells.keys["cutoff"].rank("dense").cast(pl.Int64) - 1).to_numpy()
    count = np.bincount(origin).astype(np.float64)
    sums = {
        (model, loss): np.bincount(origin, cells.losses[model][loss].to_numpy()).astype(np.float64)
        for model in order
        for loss in losses()
        if loss in cells.losses[model].columns
    }
    rows = [
        {"model": first, "other": other, "loss": loss}
        | vars(difference(sums[first, loss], sums[other, loss], count, block, horizon))
        for first, other in permutations(order, 2)
        for loss in losses()
        if (first, loss) in sums and (other, loss) in sums
    ]
    texts, numbers = ("model", "other", "loss"), ("ratio", "low", "high", "p")
    return pl.DataFrame(rows, schema=dict.fromkeys(texts, pl.String) | dict.fromkeys(numbers, pl.Float64))


def _track(run: Tracker, made: Comparison) -> None:
    """The scores of all models as metrics of the comparison's run, and its files."""
    whole = made.scores.filter(by="all")
    names = [name for name in whole.columns if whole.schema[name].is_numeric()]
    for row in whole.iter_rows(named=True):
        values = {f"{row['model']}.{name}": float(row[name]) for name in names if row[name] is not None}
        run.metrics(values, step=made.cells)
    for path in made.files.values():
        if path.is_file():
            run.artifact(path, "plots" if path.suffix == ".png" else "")
