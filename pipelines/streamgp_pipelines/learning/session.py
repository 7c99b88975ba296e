"""What a training run opens before its first row: table, windows, model, checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import polars as pl
import pyarrow as pa
import torch

from streamgp.base import Chunk, Json, Model, Offset, Simulates
from streamgp.errors import StateError, TableError, UsageError
from streamgp.evidence.initial import Initial, TakesInitial, initialise
from streamgp.forecasting.calibration import Calibration
from streamgp.model_config import models_with
from streamgp.online.scaling import STILL
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint
from streamgp_data.disk import sync_above
from streamgp_data.instants import ELAPSED
from streamgp_data.moments import Moments
from streamgp_data.table import SEQ, Table, TableMeta
from streamgp_pipelines.assembly import build_model, check_one_start, find_device, model_settings, with_kernel
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning import initial as initial_file
from streamgp_pipelines.learning import sizes
from streamgp_pipelines.learning.buckets import READ as DEALT
from streamgp_pipelines.learning.buckets import Buckets, buckets_for
from streamgp_pipelines.learning.checkpointing import fingerprint, manifest, match_machine, passed_over
from streamgp_pipelines.learning.collect import ROWS as COLLECTED
from streamgp_pipelines.learning.columns import columns_read
from streamgp_pipelines.learning.curves import Curves
from streamgp_pipelines.learning.default_model import with_model
from streamgp_pipelines.learning.frames import Naming
from streamgp_pipelines.learning.heldout import held_out
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.making import learner_of
from streamgp_pipelines.learning.newest import PART, NewestScored
from streamgp_pipelines.learning.own_units import KNOWN, unlike
from streamgp_pipelines.learning.partial import read_size
from streamgp_pipelines.learning.recipe import Recipe, Schedule
from streamgp_pipelines.learning.restored import parts_in, read_checkpoint, recipe_of
from streamgp_pipelines.learning.rollout import simulators
from streamgp_pipelines.learning.seasons import notes, overlooked
from streamgp_pipelines.learning.shard import Since, Workers, here
from streamgp_pipelines.learning.survey import Survey, surveyed
from streamgp_pipelines.learning.tail import Tail
from streamgp_pipelines.learning.transforms import with_transforms
from streamgp_pipelines.learning.warmup import has_begun, least, warmup_rows
from streamgp_pipelines.learning.whole import (
    check_columns,
    check_span,
    first_windows,
    without_changes,
    without_values,
)

SEEN = 500
"""Rows from which on a target that never falls is taken for the reading of a counter."""
FEW = 20_000
"""Windows that are named as a sample that may fit into memory."""
AT_ONCE = 8192
"""Rows at least that are read at a time where some may be late."""


class Columns:
    """A table as a Source of the columns that a run reads; it sees the version that the table is at.

    Args:
        table: to read.
        names: of the columns.
        size: rows of a chunk: the micro-batch, so that the end of each one is a position in the table.
        hold: keep back the rows that newer ones may still come before, in a table with a lateness.

    Attributes:
        held: the rows that the last reading kept back, in the order of their times.
    """

    def __init__(self, table: Table, names: tuple[str, ...], size: int, hold: bool = False) -> None:
        self.table = table
        self.names = names
        self.size = size
        self.hold = hold
        self.held: pa.RecordBatch | None = None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([self.table.schema.field(name) for name in self.names])

    def read(self, after: Offset) -> Iterator[Chunk]:
        """Rows from `after` on, in the order of the table."""
        self.held = None
        if self.table.meta.lateness is not None:  # its offsets are not those of single rows
            yield from self.table.read(after, self.names, max(self.size, AT_ONCE), self._keep if self.hold else None)
            return
        for rows, behind in self.table.read(after, self.names):
            for start in range(0, rows.num_rows, self.size):
                piece = rows.slice(start, self.size)
                yield Chunk(piece, {**behind, SEQ: piece.column(SEQ)[-1].as_py() + 1})

    def _keep(self, rows: pa.RecordBatch | None) -> None:
        self.held = rows


_OF_BANDS = ("level", "quantiles", "point", "lower", "upper")
"""Options that say nothing of probabilities of outcomes."""


@dataclass
class Session:
    """A run that is ready for its next row.

    Attributes:
        offset: next unread row, after the last full micro-batch.
        saved_rows: rows at the newest checkpoint; -1 before the first.
        saved_tail: rows after these that the newest checkpoint holds too.
        before: rows that the run had when this process began.
        fitted: in batch training: the model has said that more epochs would change nothing.
        survey: of the table when it was opened; None where a service continues.
        newest: scored forecasts.
    """

    config: TrainConfig
    table: Table
    learner: Learner
    source: Columns
    options: dict[str, Json]
    naming: Naming
    curves: Curves = field(default_factory=Curves)
    offset: Offset = field(default_factory=dict)
    saved_rows: int = -1
    saved_tail: int = 0
    before: int = 0
    fitted: bool = False
    warnings: list[str] = field(default_factory=list)
    survey: Survey | None = None
    newest: NewestScored = field(init=False)

    def __post_init__(self) -> None:
        self.newest = NewestScored(self.learner.windows.shape, self.learner.calibration)

    @property
    def learned(self) -> bool:
        """Whether the model has learned anything."""
        if self.config.online:
            return self.learner.warmup.done_at is not None
        return self.learner.clock.updates > 0

    def save(self, tail: pa.RecordBatch | None = None, rows: int | None = None) -> None:
        """Write a checkpoint of the state after the last full micro-batch.

        Args:
            tail: the rows after it.
            rows: how many rows the checkpoint stands for, where it is not those that the learner has seen.
        """
        about = manifest(self.learner, self.table, self.options, self.offset) | {"fitted": self.fitted}
        parts = self.learner.parts() | {"curves": self.curves, "tail": Tail(tail), PART: self.newest}
        rows = self.learner.rows if rows is None else rows
        if self.config.durable:
            self.table.sync()
        checkpoint.write(self.config.checkpoint, rows, parts, about, shards=self.learner.shards())
        if self.config.durable:
            sync_above(self.config.checkpoint)
        self.saved_rows, self.saved_tail = self.learner.rows, 0 if tail is None else tail.num_rows


def open_session(
    config: TrainConfig, table: Table | None = None, workers: Callable[[Recipe, Since], Workers] = here
) -> Session:
    """Open the table, build the windows and the model, and continue from the checkpoint if there is one.

    Args:
        config: of the run.
        table: in place of that of the config, whose rows come later; then no checkpoint is looked for.
        workers: makes where the buckets of a fleet live; by default here.

    Raises:
        UsageError, SchemaError: the options do not fit the table, or the run would not fit into memory.
        DataError: no window of the table is whole, or its values do not fit a transform.
        CheckpointError: the checkpoint is damaged, or was made with other options.
        ServiceError: the device is not there.
    """
    given, stored = config, table is None
    known = read_checkpoint(config.checkpoint) if stored and checkpoint.exists(config.checkpoint) else None
    saved = known if known is not None and has_begun(known) else None  # without a row nothing was found yet
    table = Table.open(config.table, config.durable) if table is None else table
    config, spec, survey = surveyed(config, table, saved)
    config = with_model(config, spec)
    device = find_device(config.device)
    warmup = warmup_rows(config, spec, survey, saved)
    spec = with_transforms(config, spec, survey, warmup, saved)
    schedule = make_schedule(config, table.meta, warmup, grows(given, spec, warmup, saved))
    initial = None if config.init is None else initial_file.read(config.init)
    options = fingerprint(config, spec, warmup, initial)
    warnings = [] if known is None else check_options(known, options, given, device)
    check_size(config, spec, survey, warmup)
    if known is None and stored and not config.follow:
        check_span(survey, spec)
    config, model = made_model(config, spec, survey, warmup, saved, initial, device)
    if initial is not None:
        warnings += seen_before(config, initial, survey, schedule)
    recipe, more = made_recipe(config, model, spec, schedule, survey, saved)
    learner = learner_of(recipe, device, model, workers)
    source = Columns(table, columns_read(spec), learner.size, hold=config.online)
    naming = Naming(config.model, recipe.calibration, Moments.of(table.meta), alarms=config.alarm_rate is not None)
    session = Session(config, table, learner, source, options, naming, survey=survey)
    session.warnings = [*warnings, *more, *remarks(config, spec, survey), *without_changes(survey)]
    if saved is None:
        session.warnings += counters(survey) + of_days(survey) + of_unlike_scale(config, recipe, survey)
    session.warnings += notes(given, spec, survey, warmup, saved is not None, not stored)
    if config.fleet and "season" not in given.model_fields_set and spec.lags and not spec.seasons:
        session.warnings += overlooked(survey)
    if given.calendar and recipe.settings().knows_calendar(spec.shape):
        session.warnings.append(
            f"--calendar adds nothing: with seasons {config.model} has hour, weekday and time of the year anyway"
        )
    if isinstance(learner, Buckets):
        learner.remember(config.checkpoint, source)
    if known is not None:
        check_table(known, table)
    if saved is not None:
        go_on(session, saved)
    return session


def check_options(
    saved: checkpoint.Saved, options: dict[str, Json], given: TrainConfig, device: torch.device
) -> list[str]:
    """Check that a checkpoint was made with the options of this run; warnings if the machine is another.

    Raises:
        CheckpointError: it was made with others.
    """
    made: Any = saved.manifest["fingerprint"]
    if not has_begun(saved):
        found = ("warmup", "season", "lags", "batch") if isinstance(given.season, str) else ("warmup",)
        own = () if given.calendar is not None else ("calendar",)
        made = {**made, **{name: options[name] for name in (*found, *own) if name in options}}
    checkpoint.check_fingerprint(made, options)
    return match_machine(saved, device) + passed_over(saved)


def check_size(config: TrainConfig, spec: WindowSpec, survey: Survey, warmup: int) -> None:
    """Check that a run is possible and fits into memory; a warning if its steps will be slow.

    Raises:
        UsageError: it is not, or does not.
    """
    table, series = survey.table, survey.count
    given = model_settings(config.model, config.set)
    if getattr(given, "shared", False) and not config.fleet:
        raise UsageError("shared=true shares a kernel among the series of a fleet", hint="add --fleet, or leave it out")
    if getattr(given, "pooled", False) and config.engine == "ray":
        message = "pooled=true learns one regression from all series, and workers learn series apart"
        raise UsageError(message, hint="leave out --engine ray, or pooled=true")
    batch = config.batch if config.online else max(config.batch, min(COLLECTED, table.rows))
    fitted = warmup if config.online else min(config.sample or table.rows, table.rows)
    if config.fleet:
        fitted = min(fitted * series, table.rows)
    many = not config.online and not config.sample and fitted > FEW
    instead = f"--sample {FEW} holds no more windows; " if many else ""
    raises = config.alarm_rate is not None
    parts = sizes.of_training(spec, series, table.rows, fitted, len(config.level), batch, given, raises)
    sizes.check(parts, config.max_memory, instead)
    for slow in sizes.slowness(spec.shape):
        logging.getLogger("streamgp").warning(slow)  # now: the end may be far


def made_model(
    config: TrainConfig,
    spec: WindowSpec,
    survey: Survey,
    warmup: int,
    saved: checkpoint.Saved | None,
    initial: Initial | None,
    device: torch.device,
) -> tuple[TrainConfig, Model]:
    """The model before its first row, and the options with the kernel that the hyper-parameters of --init are of.

    Raises:
        UsageError: an option or a value is unknown, or the hyper-parameters do not fit.
        DataError: the warm-up has too few windows for it.
    """
    model = build_model(config.model, config.set, spec.shape, device, config.seed)
    if config.online and saved is None:
        model.check_fit(first_windows(survey, spec, warmup))
    if initial is None:
        return config, model
    options = with_kernel(config.model, config.set, initial)
    if isinstance(model, TakesInitial) and options != config.set:
        config = config.model_copy(update={"set": options})
        model = build_model(config.model, options, spec.shape, device, config.seed)
    initialise(model, config.model, model_settings(config.model, config.set), initial)
    check_one_start(config.model, config.set)
    return config, model


def made_recipe(
    config: TrainConfig,
    model: Model,
    spec: WindowSpec,
    schedule: Schedule,
    survey: Survey,
    saved: checkpoint.Saved | None,
) -> tuple[Recipe, list[str]]:
    """All that the learner is made of, and what to know of options that change nothing.

    Raises:
        UsageError: an option does not go with the model.
        StateError: a fleet began in one piece, and cannot be dealt to workers.
    """
    spec, binary, warnings = replace(spec, contexts=model.context), model.family.binary, list[str]()
    if binary and spec.transforms:
        raise UsageError("an outcome of 0 or 1 is not transformed", hint="leave out --transform")
    bounds = config.level, config.quantiles, config.point, config.floor, config.upper
    finds = config.lower is None and not spec.transforms
    calibration = Calibration(*bounds, none=binary, transformed=bool(spec.transforms), finds=finds)
    unused = [f"--{name}" for name in _OF_BANDS if binary and name in config.model_fields_set]
    if unused:
        warnings.append(
            f"{', '.join(unused)} had no effect: the target is an outcome of 0 or 1, and its probability has no bands"
        )
    if config.simulate is not None:
        warnings += check_simulates(config, model, spec)
    if binary and config.alarm_rate is not None:
        raise UsageError("an outcome of 0 or 1 has no alarms", hint="leave out --alarm-rate")
    if binary and config.scale == "series":
        raise UsageError("an outcome of 0 or 1 has no units of its own", hint="leave out --scale series")
    buckets, read = dealt(config, survey.count, saved) if config.fleet else (0, 0)
    recipe = replace(
        Recipe.of(config.model, config.set, spec, schedule, calibration, config.seed),
        simulate=config.simulate if config.online else None,
        alarm_rate=config.alarm_rate,
        scale="all" if binary or not config.online else config.scale,
        buckets=buckets,
        read=read,
    )
    return recipe, warnings


def remarks(config: TrainConfig, spec: WindowSpec, survey: Survey) -> list[str]:
    """Notes on the rows of the table.

    Raises:
        DataError: a column that batch training learns has no value.
    """
    found = []
    elapsed = survey.table.meta.time_format in ELAPSED  # each series then has a start of its own
    if survey.order.one_after_another and not elapsed:
        found.append(
            "the series of this table follow one another, and are learned in that order: "
            "ingest the source into a new table with --sort to interleave them by time"
        )
    if spec.time is not None and spec.lags:
        found += survey.pace.notes(survey.table.meta)
    if not config.online:
        check_columns(survey)
    elif nothing := without_values([name for name in survey.empty if name not in spec.targets]):
        found.append(nothing)
    return found


def counters(survey: Survey) -> list[str]:
    """Notes on targets that look like the reading of a counter, whose differences should be forecast."""
    spec, opening = survey.spec, survey.opening
    if not spec.lags or opening is None or opening.num_rows < SEEN:
        return []
    rows, found = pl.DataFrame(pl.from_arrow(opening)), list[str]()
    for name in spec.targets:
        values = pl.col(name).cast(pl.Float64, strict=False).fill_nan(None)
        change = rows.select(values.diff().over(spec.series or pl.lit(0))).to_series()
        rises, falls = int((change > 0).sum()), int((change < 0).sum())
        if 2 * rises > opening.num_rows and 100 * falls <= rises:
            found.append(
                f"{name} {'hardly ever' if falls else 'never'} falls, as the reading of a meter: to forecast what is "
                "used, write by how much each row is above the one before into a column, and take that as the target"
            )
    return found


def of_unlike_scale(config: TrainConfig, recipe: Recipe, survey: Survey) -> list[str]:
    """Notes on targets whose scale differs from series to series, where one model learns them in one unit for all."""
    spec, opening = recipe.spec, survey.opening
    online = config.online and config.simulate is None
    if online or spec.series is None or spec.fleet or opening is None or recipe.settings().own_units(spec.shape):
        return []
    rows, found = pl.DataFrame(pl.from_arrow(opening)), list[str]()
    for name in spec.targets:
        values = pl.col(name).cast(pl.Float64, strict=False).fill_nan(None).drop_nulls()
        each = rows.group_by(spec.series).agg(spread=values.std(), level=values.mean(), count=values.len())
        still = pl.col("spread") <= STILL * pl.col("level").abs()
        known = each.filter((pl.col("count") >= KNOWN) & ~still)
        if unlike(known["spread"].to_numpy()):
            instead = "--fleet, or without --simulate" if config.online else "--online"
            found.append(
                f"the series are of unlike scale, and the largest decide what is learned of {name}: train with "
                f"{instead}, or divide each series by its own size"
            )
    return found


def of_days(survey: Survey) -> list[str]:
    """Notes on inputs that may sum up their day, and are not known yet in its first rows."""
    return [
        f"{name} has one value in each day: if it is of the rows of its day, such as their mean or total, the first of "
        "them do not know it yet, and forecasts will be worse than these scores: leave it out"
        for name in survey.of_days.names()
    ]


def go_on(session: Session, saved: checkpoint.Saved) -> None:
    """Bring a session back to the state of a checkpoint.

    Raises:
        CheckpointError: it does not fit.
    """
    learner, tail = session.learner, Tail()
    saved.restore(parts_in(saved, learner.parts()) | {"curves": session.curves, "tail": tail})
    session.newest = NewestScored.of(saved, learner.windows.shape, learner.calibration)
    if isinstance(learner, Buckets):
        with checkpoint.fitting(f"the shards of {saved.path}"):
            learner.load(saved.shards)
    session.saved_tail = 0 if tail.rows is None else tail.rows.num_rows
    learner.rows = session.saved_rows = saved.rows
    session.before = saved.rows + session.saved_tail
    session.offset = cast(Offset, saved.manifest["offset"])
    session.fitted = bool(saved.manifest["fitted"])


def dealt(config: TrainConfig, series: int, saved: checkpoint.Saved | None) -> tuple[int, int]:
    """The buckets of a fleet and the rows that they read at a time: where it began so, or is to live in other
    processes; (0, 0) in one piece.

    Raises:
        StateError: it began in one piece, and cannot be dealt to workers.
    """
    away = config.engine == "ray"
    if saved is None:
        return (buckets_for(series), read_size(config.batch, series, DEALT)) if away else (0, 0)
    began = recipe_of(saved)
    if away and not began.buckets:
        raise StateError(
            f"{config.checkpoint} has a fleet in one piece, which is not dealt to workers",
            hint="leave out --engine, or begin again with --fresh",
        )
    return began.buckets, began.read


def check_simulates(config: TrainConfig, model: Model, spec: WindowSpec) -> list[str]:
    """Check that the model can be run on its own output, and trained for that with --simulate.

    Raises:
        UsageError: it cannot, or it is trained in batch and for one step all the same.
    """
    if not (spec.lags and spec.horizon == 1 and isinstance(model, Simulates)) or model.family.binary:
        raise UsageError(
            f"--simulate {config.simulate} needs a model that draws functions of its own past, one step ahead",
            hint=f"use --horizon 1, --lags 1 or more, and --model {' or '.join(simulators())}",
        )
    if model_settings(config.model, config.set).simulates == "trained":
        return []
    instead = " or ".join(models_with("trained"))
    if not config.online:
        raise UsageError(
            f"--simulate {config.simulate} trains nothing of {config.model}, which learns one step ahead",
            hint=f"use --model {instead}, or --online, which calibrates the bands of its simulations",
        )
    return [
        f"{config.model} learns one step ahead, and --simulate calibrates its bands alone: --model {instead} do more"
    ]


def seen_before(config: TrainConfig, initial: Initial, survey: Survey, schedule: Schedule) -> list[str]:
    """Notes on scores of rows on which the hyper-parameters were found."""
    about: Any = initial.found
    table = survey.table
    if (about.get("table") or {}).get("id") != table.id:
        return []
    last = int(about.get("last_row", 0))
    if not config.online:
        scored = held_out(config, survey, min(table.rows, config.max_rows or table.rows)).nonzero()[:, 0]
        same = config.test_column is not None and about.get("test_column") == config.test_column
        if same or not len(scored) or int(scored[0]) >= last:
            return []
        return [
            "the hyper-parameters of --init were found on rows that are held out here: "
            "their test scores are optimistically biased"
        ]
    first = max(schedule.warmup, schedule.score_from or 0)
    first = max(first, survey.before)
    if first >= last:
        return []
    return [
        f"the hyper-parameters of --init were found on rows before {last} of this table, and those from {first} on are "
        f"scored: --score-from {last} scores none of them"
    ]


def check_table(saved: checkpoint.Saved, table: Table) -> None:
    """Check that the table is the one that the checkpoint has read.

    Raises:
        TableError: it is another one, or it has lost rows.
    """
    known: dict[str, Any] = saved.manifest["table"]  # type: ignore[assignment]
    if known["id"] != table.id:
        raise TableError(
            f"table {table.path} is not the one that this checkpoint was trained on ({known['path']})",
            hint="use that table, or train on this one with another --checkpoint",
        )
    if table.rows < saved.rows:
        raise TableError(
            f"table {table.path} has {table.rows} rows, but {saved.rows} were learned: it was rolled back",
            hint="restore the table, or train again: streamgp train --fresh",
        )


def grows(given: TrainConfig, spec: WindowSpec, warmup: int, saved: checkpoint.Saved | None) -> bool:
    """Whether micro-batches begin short: as the run began, or where none are asked for and a model is fitted to enough
    windows before them."""
    if saved is not None:
        return recipe_of(saved).schedule.grows
    return given.online and "batch" not in given.model_fields_set and warmup >= least(spec)


def make_schedule(config: TrainConfig, meta: TableMeta, warmup: int, growing: bool) -> Schedule:
    """Micro-batches, warm-up and scoring of a run."""
    rows, time = None, None
    if config.score_from is not None:
        moments = Moments.of(meta)
        if moments.counts_rows(config.score_from):
            rows = int(config.score_from)
        else:
            time = moments.instant(config.score_from, "--score-from")
    return Schedule(config.batch, warmup, rows, time, growing)
