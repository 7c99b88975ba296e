"""What a training run opens before its first row: table, windows, model, checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from streamgp.base import Chunk, Json, Model, Offset, Simulates
from streamgp.errors import StateError, TableError, UsageError
from streamgp.evidence.initial import Initial, TakesInitial, initialise
from streamgp.forecasting.calibration import Calibration
from streamgp.model_config import models_with
from streamgp.windows.rows import times
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_data import checkpoint
from streamgp_data.disk import sync_above
from streamgp_data.table import SEQ, Table, TableMeta
from streamgp_pipelines.assembly import build_model, check_one_start, find_device, model_settings, with_kernel
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning import initial as initial_file
from streamgp_pipelines.learning import sizes
from streamgp_pipelines.learning.buckets import READ as DEALT
from streamgp_pipelines.learning.buckets import Buckets, buckets_for
from streamgp_pipelines.learning.checkpointing import fingerprint, manifest, match_machine, passed_over
from streamgp_pipelines.learning.collect import ROWS as COLLECTED
from streamgp_pipelines.learning.columns import columns_read, window_spec
from streamgp_pipelines.learning.curves import Curves
from streamgp_pipelines.learning.default_model import with_model
from streamgp_pipelines.learning.fleet import ModelOptions, fleet_learner, read_size
from streamgp_pipelines.learning.frames import Naming
from streamgp_pipelines.learning.heldout import held_out
from streamgp_pipelines.learning.learner import Learner, Schedule
from streamgp_pipelines.learning.restored import read_checkpoint
from streamgp_pipelines.learning.rollout import Rehearsal, simulators
from streamgp_pipelines.learning.seasons import overlooked, with_seasons
from streamgp_pipelines.learning.shard import Recipe, Since, Workers, here
from streamgp_pipelines.learning.tail import Tail
from streamgp_pipelines.learning.transforms import with_transforms
from streamgp_pipelines.learning.warmup import has_begun, warmup_rows
from streamgp_pipelines.learning.whole import check_columns, check_span, first_windows, without_values
from streamgp_pipelines.moments import Moments
from streamgp_pipelines.numbers import spoken
from streamgp_pipelines.pace import Pace

FEW = 20_000
"""Windows that are named as a sample that may fit into memory."""
AT_ONCE = 8192
"""Rows at least that are read at a time where some may be late."""
HOLE = 24
"""An interval of so many usual ones is a hole."""


class Columns:
    """A table as a Source of the columns that a run reads; it sees the version that the table is at.

    Args:
        table: to read.
        names: of the columns.
        size: rows of a chunk: the micro-batch, so that the place behind each one is a place in the table.
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
        offset: next unread row, behind the last full micro-batch.
        saved_rows: rows at the newest checkpoint; -1 before the first.
        saved_tail: rows behind them that the newest checkpoint holds too.
        fitted: in batch training: the model has said that more epochs would change nothing.
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
    fitted: bool = False
    warnings: list[str] = field(default_factory=list)

    @property
    def learned(self) -> bool:
        """Whether the model has learned anything."""
        if self.config.online:
            return self.learner.warmup.done_at is not None
        return self.learner.clock.updates > 0

    def save(self, tail: pa.RecordBatch | None = None, rows: int | None = None) -> None:
        """Write a checkpoint of the state after the last full micro-batch.

        Args:
            tail: the rows behind it.
            rows: how many rows the checkpoint stands for, where it is not those that the learner has seen.
        """
        about = manifest(self.config, self.learner, self.table, self.options, self.offset) | {"fitted": self.fitted}
        parts = self.learner.parts() | {"curves": self.curves, "tail": Tail(tail)}
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
    """Open the table, build the windows and the model, and go on from the checkpoint where there is one.

    Args:
        config: of the run.
        table: in place of that of the config; then no checkpoint is looked for.
        workers: makes where the buckets of a fleet live; by default here.

    Raises:
        UsageError, SchemaError: the options do not fit the table, or the run would not fit into memory.
        DataError: no window of the table is whole, or its values do not fit a transform.
        CheckpointError: the checkpoint is damaged, or was made with other options.
        ServiceError: the device is not there.
    """
    goes_on = table is None and checkpoint.exists(config.checkpoint)
    saved = read_checkpoint(config.checkpoint) if goes_on else None
    table = Table.open(config.table, config.durable) if table is None else table
    config = with_seasons(config, table, saved)
    spec = window_spec(config, table.schema, table.meta)
    config = with_model(config, spec)
    device = find_device(config.device)
    warmup = warmup_rows(config, spec, table, saved)
    spec = with_transforms(config, spec, table, warmup, saved)
    shape = spec.shape
    schedule = make_schedule(config, spec, table.meta, warmup)
    initial = None if config.init is None else initial_file.read(config.init)
    options = fingerprint(config, spec, schedule.warmup, initial)
    warnings = []
    if saved is not None:
        made: Any = saved.manifest["fingerprint"]
        checkpoint.check_fingerprint(made if has_begun(saved) else {**made, "warmup": schedule.warmup}, options)
        warnings = match_machine(saved, device) + passed_over(saved)
    fitted = schedule.warmup if config.online else min(config.sample or table.rows, table.rows)
    given = model_settings(config.model, config.set)
    if getattr(given, "shared", False) and not config.fleet:
        raise UsageError("shared=true shares a kernel among the series of a fleet", hint="add --fleet, or leave it out")
    if getattr(given, "pooled", False) and config.engine == "ray":
        message = "pooled=true learns one regression from all series, and workers learn series apart"
        raise UsageError(message, hint="leave out --engine ray, or pooled=true")
    batch = config.batch if config.online else max(config.batch, min(COLLECTED, table.rows))
    series = sizes.count_series(table)
    if config.fleet:
        fitted = min(fitted * series, table.rows)
    needed = (series, table.rows, fitted, len(config.level), batch, given)
    many = not config.online and not config.sample and fitted > FEW
    instead = f"--sample {FEW} holds no more windows; " if many else ""
    sizes.check(sizes.of_training(spec, *needed), config.max_memory, instead)
    for slow in sizes.slowness(shape):
        logging.getLogger("streamgp").warning(slow)  # now: the end may be far
    if saved is None and not config.follow:
        check_span(table, spec)
    model = build_model(config.model, config.set, shape, device, config.seed)
    spec = replace(spec, contexts=model.context)
    if config.online and (saved is None or not has_begun(saved)):
        model.check_fit(first_windows(table, spec, schedule.warmup))
    if initial is not None:
        options_set = with_kernel(config.model, config.set, initial)
        if isinstance(model, TakesInitial) and options_set != config.set:
            config = config.model_copy(update={"set": options_set})
            model = build_model(config.model, options_set, shape, device, config.seed)
        initialise(model, config.model, model_settings(config.model, config.set), initial)
        check_one_start(config.model, config.set)
        warnings += seen_before(config, initial, table, schedule)
    if model.family.binary and spec.transforms:
        raise UsageError("an outcome of 0 or 1 is not transformed", hint="leave out --transform")
    calibration = Calibration(
        config.level,
        config.quantiles,
        config.point,
        config.lower,
        config.upper,
        none=model.family.binary,
        transformed=bool(spec.transforms),
    )
    unused = [f"--{name}" for name in _OF_BANDS if calibration.none and name in config.model_fields_set]
    if unused:
        warnings.append(
            f"{', '.join(unused)} had no effect: the target is an outcome of 0 or 1, and its probability has no bands"
        )
    rehearsal = None
    if config.simulate is not None:
        warnings += check_simulates(config, model, spec)
        if config.online:
            rehearsal = Rehearsal(spec, config.simulate, calibration, config.seed)
    if calibration.none and config.alarm_rate is not None:
        raise UsageError("an outcome of 0 or 1 has no alarms", hint="leave out --alarm-rate")
    if config.fleet:
        learner: Learner = open_fleet(config, model, spec, calibration, schedule, series, saved, device, workers)
    else:
        learner = Learner(model, Windows(spec), calibration, schedule, device, rehearsal, config.alarm_rate)
    source = Columns(table, columns_read(spec), learner.size, hold=config.online)
    naming = Naming(config.model, calibration, Moments.of(table.meta), alarms=config.alarm_rate is not None)
    session = Session(config, table, learner, source, options, naming, warnings=warnings)
    if spec.series is not None and spec.time is not None and one_after_another(table, spec.time, spec.series):
        session.warnings.append(
            "the series of this table follow one another, and are learned in that order: "
            "ingest the source into a new table with --sort to interleave them by time"
        )
    if spec.time is not None and spec.every_ns is None and spec.lags:
        session.warnings += holes(table)
    if not config.online:
        check_columns(table, spec)
    elif nothing := without_values(table, spec.columns[len(spec.targets) :]):
        session.warnings.append(nothing)
    if spec.lags and not spec.simulated and "season" not in config.model_fields_set:
        session.warnings += overlooked(table, spec.targets[0])
    if isinstance(learner, Buckets):
        learner.remember(config.checkpoint, source)
    if saved is not None:
        check_table(saved, table)
        tail = Tail()
        saved.restore(learner.parts() | {"curves": session.curves, "tail": tail})
        if isinstance(learner, Buckets):
            with checkpoint.fitting(f"the shards of {saved.path}"):
                learner.load(saved.shards)
        session.saved_tail = 0 if tail.rows is None else tail.rows.num_rows
        learner.rows = session.saved_rows = saved.rows
        session.offset = saved.manifest["offset"]  # type: ignore[assignment]
        session.fitted = bool(saved.manifest["fitted"])
    return session


def open_fleet(
    config: TrainConfig,
    model: Model,
    spec: WindowSpec,
    calibration: Calibration,
    schedule: Schedule,
    series: int,
    saved: checkpoint.Saved | None,
    device: torch.device,
    workers: Callable[[Recipe, Since], Workers],
) -> Learner:
    """A fleet in one piece, or in buckets where it began so, or is to live in other processes.

    Raises:
        StateError: it began in one piece, and cannot be dealt to workers.
    """
    options, dealt = ModelOptions(config.model, config.set, config.seed), config.engine == "ray"
    buckets = dealt * buckets_for(series) if saved is None else cast(int, saved.manifest.get("buckets", 0))
    if buckets:
        size = read_size(config.batch, series, DEALT) if saved is None else cast(int, saved.manifest["read"])
        return Buckets(model, Recipe(options, spec, calibration, schedule, size, buckets), workers)
    if dealt:
        raise StateError(
            f"{config.checkpoint} has a fleet in one piece, which is not dealt to workers",
            hint="leave out --engine, or begin again with --fresh",
        )
    return fleet_learner(model, options, Windows(spec), calibration, schedule, device)


def check_simulates(config: TrainConfig, model: Model, spec: WindowSpec) -> list[str]:
    """See that the model can be run on its own output, and what --simulate trains of it.

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


def seen_before(config: TrainConfig, initial: Initial, table: Table, schedule: Schedule) -> list[str]:
    """What to know of the scores where hyper-parameters were found on rows that are scored."""
    about: Any = initial.found
    if (about.get("table") or {}).get("id") != table.id:
        return []
    last = int(about.get("last_row", 0))
    if not config.online:
        scored = held_out(config, table, min(table.rows, config.max_rows or table.rows)).nonzero()[:, 0]
        same = config.test_column is not None and about.get("test_column") == config.test_column
        if same or not len(scored) or int(scored[0]) >= last:
            return []
        return [
            "the hyper-parameters of --init were found on rows that are held out here: "
            "their test scores are optimistically biased"
        ]
    first = max(schedule.warmup, schedule.score_from or 0)
    if schedule.score_time is not None and table.meta.time is not None:
        parts = (times(chunk.rows, table.meta.time) for chunk in table.read({}, (table.meta.time,)))
        first = max(first, sum(int((part < schedule.score_time).sum()) for part in parts))
    if first >= last:
        return []
    return [
        f"the hyper-parameters of --init were found on rows before {last} of this table, and those from {first} on are "
        f"scored: --score-from {last} scores none of them"
    ]


def holes(table: Table) -> list[str]:
    """What to know of a table without a declared interval whose rows are regular but for some long gaps."""
    pace, meta = Pace.of(table), table.meta
    usual, longest = pace.median(), pace.longest()
    if not usual or not pace.regular() or longest < HOLE * usual:
        return []
    long, short = (spoken(value * 1e-6) if meta.clock else f"{value} steps" for value in (longest, usual))
    advice = f"; streamgp ingest with --every {short} makes it a gap, also of this table" if meta.clock else ""
    return [f"rows are {short} apart, and once {long}: windows count rows, and cross this hole{advice}"]


def one_after_another(table: Table, time: str, series: str) -> bool:
    """Whether the clock of the table starts over, as it does where series are stacked: a few times, and far back.

    A row is behind when its time lies in the first half of what the rows up to it span. Stacked series stay behind
    for many rows; rows that come a little late do not, nor does a clock that goes back and forth.
    One pass over the time column, and the same answer however the table is cut into chunks.
    """
    restarts, total = 0, 0
    seen: tuple[int, int, bool] | None = None  # first, newest, whether the last row was behind
    for rows, _ in table.read({}, (time,)):
        ticks = rows.column(time).cast(pa.int64()).to_numpy()
        first, newest, last = seen or (int(ticks[0]), int(ticks[0]), False)
        so_far = np.maximum.accumulate(np.maximum(ticks, newest))
        behind = ticks < first + (so_far - first) // 2
        restarts += int((behind & ~np.append(last, behind[:-1])).sum())
        total += int(behind.sum())
        seen = first, int(so_far[-1]), bool(behind[-1])
    return 0 < restarts < table.rows / 20 and total >= 10 * restarts and not _interleaved(table, series)


def _interleaved(table: Table, series: str) -> bool:
    """Whether one row in 20 is of another series than the row before it."""
    changes, last = 0, None
    for rows, _ in table.read({}, (series,)):
        names = rows.column(series)
        changes += int(pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False).sum()) + (
            names[0].as_py() != last
        )
        last = names[-1].as_py()
    return changes > table.rows / 20


def check_table(saved: checkpoint.Saved, table: Table) -> None:
    """See that the table is the one that the checkpoint has read.

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


def make_schedule(config: TrainConfig, spec: WindowSpec, meta: TableMeta, warmup: int) -> Schedule:
    """Warm-up and scoring of a run."""
    rows, time = None, None
    if config.score_from is not None:
        moments = Moments.of(meta)
        if moments.counts_rows(config.score_from):
            rows = int(config.score_from)
        else:
            time = moments.instant(config.score_from, "--score-from")
    return Schedule(config.batch, warmup, rows, time)
