"""Train a model on a table, online or in batch; run again with the same settings, it continues."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, TypeAlias, cast

import polars as pl
import torch

from streamgp.base import Due, Json, ModelCard, Progress, Tracker
from streamgp.errors import UsageError
from streamgp.forecasting.metrics import series_table
from streamgp_data import checkpoint, remote
from streamgp_data.retry import Retry
from streamgp_data.table import Table
from streamgp_pipelines.assembly import flatten
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.config.ingest import FromBroker
from streamgp_pipelines.files import check_writable
from streamgp_pipelines.health import Health, Learned
from streamgp_pipelines.learning.checkpointing import held, set_aside, state_digest, unless_refused
from streamgp_pipelines.learning.curves import Curves
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.predictions import Predictions, frame, silent_rows
from streamgp_pipelines.learning.recipe import Recipe
from streamgp_pipelines.learning.restored import read_checkpoint
from streamgp_pipelines.learning.seasons import CLOCK_ROWS
from streamgp_pipelines.learning.session import Session, open_session
from streamgp_pipelines.learning.shard import Since, Workers, here
from streamgp_pipelines.learning.survey import is_undecided
from streamgp_pipelines.live.beside import Beside, taking
from streamgp_pipelines.stages import finishing
from streamgp_pipelines.titles import title
from streamgp_pipelines.training.alarming import Bell
from streamgp_pipelines.training.batch import BatchRun, SharedRows, check_samples, check_shares
from streamgp_pipelines.training.online import OnlineRun, pause
from streamgp_pipelines.training.outlook import NewestAlarms, Outlook, judged, outlook
from streamgp_pipelines.training.summary import (
    alarm_metrics,
    late_metrics,
    overall_metrics,
    simulation,
    simulation_metrics,
    summary,
)

Draw: TypeAlias = Callable[[Curves, dict[str, Json], Outlook | None, Path, NewestAlarms | None], None]
"""Draws a run's curves, scores and forecast into a directory."""
Cluster: TypeAlias = Callable[[TrainConfig, Recipe, Since], Workers]
"""Makes the workers that the buckets of a fleet are dealt to."""
Sharing: TypeAlias = Callable[[TrainConfig], SharedRows]
"""Makes the workers that share the rows of a batch."""


def train(
    config: TrainConfig,
    tracker: Callable[[Path, str], Tracker],
    progress: Callable[[Progress], None] = lambda _: None,
    draw: Draw | None = None,
    cluster: Cluster | None = None,
    say: Callable[[str], None] = lambda _: None,
    health: Health | None = None,
    sharing: Sharing | None = None,
) -> dict[str, Json]:
    """Learn the table and return the summary.

    Args:
        config: what to do.
        tracker: makes the run's tracker from its checkpoint directory and the run's title, before row one.
        progress: called with how far the run is.
        draw: makes the run's plots; None makes none.
        cluster: makes the workers of `--engine ray` for a fleet.
        say: called when the broker of --source, or the store of a table that is followed, is away, and when it is back.
        health: kept up to date, while the run is online.
        sharing: makes those that share the rows of training in batch.

    Returns:
        run_id, rows, warmup, forecasts (all, scored, and skipped by reason), rmse, mae, nlpd, crps, mase, mase_scale,
        naive_mae, coverage, raw_coverage, width by level, `steps` (the same for each step ahead), weights (of a mix's
        experts), rows_per_second, seconds, update_ms, batch, peak_mb, checkpoint, offset, table_version, warnings,
        registered (name and version of the model in the tracker's registry, and whether it is the champion).

    Raises:
        UsageError, SchemaError: the options do not fit the table.
        StateError: the checkpoint or the table does not fit the options, or another process holds it.
        ServiceError: the disk or the tracking store refused.
    """
    _check_places(config)
    messages, health = config.intake(config.table, config.follow), health or Health()
    if config.follow:
        state = Retry(remote.shown(config.checkpoint), say, Event(), health.opening)
        state.wait_for(partial(remote.refresh, config.checkpoint))
    if config.fresh:
        set_aside(config.checkpoint)
    with (
        held(config.checkpoint),
        unless_refused(config.checkpoint) as learned,
        taking(messages, say, health) as intake,
    ):
        session, sums = _open(config, cluster, sharing, say, health, intake)
        spec = session.learner.windows.spec
        run = tracker(config.checkpoint, title(session.config.model, spec.targets, spec.horizon))
        with finishing(run):
            try:
                _describe(session, run)
                return _train(session, run, progress, draw, sums, intake, health, say)
            finally:
                session.learner.close()
                if sums is not None:
                    sums.close()
                learned(session.learned)


def _check_places(config: TrainConfig) -> None:
    """See that what a run writes can be written.

    Raises:
        UsageError: it cannot.
    """
    for flag, path in (("--predictions", config.predictions), ("--alarms", config.alarms)):
        if path is not None:
            check_writable(path, flag, (".parquet",), make=True)
    if Table.exists(config.checkpoint):
        raise UsageError(f"--checkpoint {config.checkpoint} is a table", hint="name another directory")


def _open(
    config: TrainConfig,
    cluster: Cluster | None,
    sharing: Sharing | None,
    say: Callable[[str], None],
    health: Health,
    intake: Beside | None,
) -> tuple[Session, SharedRows | None]:
    """The session, once its table is there, and the workers that share the rows of a batch.

    A table that is followed, and has no rows to tell the step of its clock by, is waited for.

    Raises:
        UsageError: the workers of `--engine ray` were not given, or the model has nothing for them or for a sample.
    """
    away = config.engine == "ray"
    if away and (cluster if config.fleet else sharing) is None:
        home = "streamgp_pipelines.adapters.ray"
        given = f"cluster={home}.workers.ray_workers" if config.fleet else f"sharing={home}.sums.ray_sums"
        raise UsageError("--engine ray was not given its workers", hint=f"give {given}")
    if away:
        torch.set_num_threads(1)  # as the workers have
    workers = here if cluster is None or not away else partial(cluster, config)
    begin = partial(open_session, config, workers=workers)
    opening = Retry(config.table, say, Event(), health.opening)
    if config.follow:
        opening.wait_for(partial(Table.exists, config.table))
        begin = begin if away else partial(opening.wait_for, begin)
    session = begin()
    if config.follow:
        if session.saved_rows < 0 and opening.wait_for(partial(is_undecided, config, session.table)):
            session.learner.close()
            _wait_for_clock(config, session.table, opening, say, health, intake)
            session = begin()
        for warning in session.warnings:  # now: the end may be far
            say(warning)
    sums = None if sharing is None or not away or config.fleet else sharing(config)
    if sums is not None:
        check_shares(session.learner.model, session.config.model)
    if config.sample is not None:
        check_samples(session.learner.model, session.config.model)
    return session, sums


def _wait_for_clock(
    config: TrainConfig,
    table: Table,
    opening: Retry,
    say: Callable[[str], None],
    health: Health,
    intake: Beside | None,
) -> None:
    """Until there are rows to tell the seasons by; they stay in the table, and are learned from the first one on.

    Raises:
        StreamgpError: of the intake, or the table is another one now.
    """
    say(f"rows are learned once a series has {CLOCK_ROWS}, whose times say which seasons there are (see --season)")
    health.learned = Learned()
    while opening.wait_for(partial(is_undecided, config, table)):
        health.learned.look(0, 0, table.readable)
        pause(intake)
        opening.wait_for(table.refresh)


def _train(
    session: Session,
    run: Tracker,
    progress: Callable[[Progress], None],
    draw: Draw | None,
    sums: SharedRows | None,
    intake: Beside | None,
    health: Health,
    say: Callable[[str], None],
) -> dict[str, Json]:
    config, learner = session.config, session.learner
    predictions, alarms = (
        None
        if path is None
        else Predictions(
            config.checkpoint, session.naming, learner.windows.shape, alarms=at == 1, durable=config.durable
        )
        for at, path in enumerate((config.predictions, config.alarms))
    )
    both = [part for part in (predictions, alarms) if part is not None]
    for part in both:
        part.resume(learner.rows)
    if config.online:
        online = OnlineRun(
            session, run, both, progress, None if config.on_alarm is None else Bell(session), intake, say
        )
        health.learned = online.health
        online.run()
        ahead, last = learner.preview(online.tail)
        shown = draw is not None or predictions is not None or alarms is not None
        scored = [_frame(session, ahead, due) for due in last] if shown else []
        alarmed = judged(session, ahead, last) if draw is not None else None
        recent = online.recent
    else:
        batch = BatchRun(session, run, predictions, progress, sums)
        alarmed = None
        (ahead, scored), recent = batch.run(), [] if batch.recent is None else [batch.recent]
    if predictions is not None and config.predictions is not None:
        written, wanted = predictions.assemble(config.predictions, scored), ahead.scores.scored
        if written < wanted:
            session.warnings.append(
                f"{config.predictions} holds {written} of {wanted} scored forecasts: the others were scored in a run "
                "without --predictions"
            )
    if alarms is not None and config.alarms is not None:
        raised = pl.col(f"{session.naming.model}-alarm").is_not_null()
        silent = [silent_rows(one, ahead.windows.names, session.naming, ahead.windows.shape) for one in ahead.silent()]
        alarms.assemble(config.alarms, [*(part.filter(raised) for part in scored), *silent])
    if health.taken is not None and health.taken.quarantined:
        session.warnings.append(
            f"{health.taken.quarantined} rows of --source went to the quarantine and were not learned: "
            f"streamgp describe --table {session.table.path} says why"
        )
    found = summary(session, ahead, run.run_id)
    progress(Progress("artifacts", 0, 1))
    newest = scored if draw is None else [*(_frame(session, ahead, due) for due in recent), *scored]
    finish(session, ahead, run, found, newest, draw, alarmed)
    progress(Progress("artifacts", 1, 1))
    return found


def _describe(session: Session, run: Tracker) -> None:
    """Parameters and data set, before the first row."""
    config, table = session.config, session.table
    skip = {"set", "init", "table", "checkpoint", "predictions", "tracking_uri", "experiment", "fresh", "follow"}
    skip |= {"max_memory", "alarms", "on_alarm", "engine", "workers", "address", "metrics", *FromBroker.model_fields}
    params: dict[str, Json] = json.loads(config.model_dump_json(exclude=skip))
    params |= {f"set.{key}": value for key, value in flatten(config.set).items()}
    params |= {"lags": session.learner.windows.spec.lags, "warmup": session.learner.schedule.warmup}
    if "init" in session.options:
        params["init"] = session.options["init"]
    run.params({key: value for key, value in params.items() if value not in (None, [], "")})
    run.dataset(Path(table.path).name, str(table.path), table.version, table.schema)


def _frame(session: Session, ahead: Learner, due: Due) -> pl.DataFrame:
    return frame(due, ahead.windows.names, session.naming, ahead.windows.shape)


def finish(
    session: Session,
    ahead: Learner,
    run: Tracker,
    found: dict[str, Json],
    newest: Sequence[pl.DataFrame],
    draw: Draw | None,
    alarmed: NewestAlarms | None = None,
) -> None:
    """Final metrics, scores of each step ahead and of each series, plots and the model that forecasts alone.

    Where nothing came since these were logged, they are not made again.
    """
    speed = found["rows_per_second"]
    scores = overall_metrics(found) | simulation_metrics(simulation(ahead)) | alarm_metrics(ahead)
    scores |= late_metrics(ahead)
    run.metrics(scores | ({"rows_per_second": speed} if isinstance(speed, float) else {}), ahead.rows)
    home = session.config.checkpoint
    found["registered"] = run.model(checkpoint.newest(home), lambda: card(session, found, read_checkpoint(home)))

    def show() -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "summary.json").write_text(json.dumps(found, indent=1))
            heads, rows = series_table(cast("dict[str, Any]", found["by_series"]))
            if rows:
                each = pl.DataFrame(rows, heads, orient="row", infer_schema_length=None)
                each.write_csv(Path(folder) / "series.csv")
            if draw is not None:
                draw(session.curves, found, outlook(session, newest), Path(folder), alarmed)
            for path in sorted(Path(folder).iterdir()):
                run.artifact(path, "plots" if path.suffix == ".png" else "")
            run.flush()

    with_plots = "" if draw is None else " with plots"
    run.once(f"{ahead.rows} rows, {ahead.clock.updates} updates, table {session.table.version}{with_plots}", show)
    run.flush()


def card(session: Session, found: dict[str, Json], saved: checkpoint.Saved) -> ModelCard:
    """What the run's model is for and how it scored."""
    spec, table = session.learner.windows.spec, session.table
    metric = "log_loss" if "log_loss" in found else "calibrated_crps"
    score, scored = found[metric], found["scored"]
    return ModelCard(
        model=session.config.model,
        table=str(table.path),
        table_id=table.id,
        targets=spec.targets,
        horizon=spec.horizon,
        season=spec.season,
        protocol="prequential" if session.config.online else "held out",
        metric=metric,
        score=score if isinstance(score, float) else None,
        scored=scored if isinstance(scored, int) else 0,
        rows=saved.rows,
        state=state_digest(saved),
    )
