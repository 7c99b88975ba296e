"""Tune hyper-parameters on windows of a table: what `streamgp tune` does.

A window is standardised, and a target is turned into what is learned of it, as the models do it (`KernelInputs`,
`online.reference`, `Standardiser`), so that a model which is given the result starts from the same function.

Windows overlap and are not independent: those that are used are spread over the rows, one drawn from each of `rows`
stretches of equal length, so that no hour of the day is always the one that is looked at.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from streamgp import choice, registry
from streamgp.base import FLOAT, Inputs, Json, Progress, Tracker
from streamgp.errors import DataError, UsageError
from streamgp.evidence.initial import Initial, one_start, plain, structure
from streamgp.evidence.starts import centres
from streamgp.evidence.tuned import Attempt, Tuned
from streamgp.kernels import Tied
from streamgp.online.inputs import KernelInputs
from streamgp.online.reference import LearnedReference, reference
from streamgp.online.scaling import Standardiser
from streamgp_data.numbers import number
from streamgp_data.table import Table
from streamgp_pipelines.assembly import as_text, flatten
from streamgp_pipelines.config import TuneConfig
from streamgp_pipelines.files import check_writable
from streamgp_pipelines.learning import initial as files
from streamgp_pipelines.learning import sizes
from streamgp_pipelines.learning.collect import ROWS, collect
from streamgp_pipelines.learning.columns import columns_read
from streamgp_pipelines.learning.heldout import held_out
from streamgp_pipelines.learning.session import Columns
from streamgp_pipelines.learning.survey import surveyed
from streamgp_pipelines.learning.whole import advice, check_columns
from streamgp_pipelines.stages import finishing
from streamgp_pipelines.tasks import Cluster, Report, Tasks, tasks_of
from streamgp_pipelines.tuning.methods import METHODS, AutoOptions, find, read_options
from streamgp_pipelines.tuning.report import readable, train_line
from streamgp_pipelines.tuning.rows import edges, spread

SPARE = 4
"""Windows that are looked at for each that is wanted: some are not whole."""
FEWEST = 10
"""Windows below which hyper-parameters are not to be had."""
NOISE = 0.1
"""σ² that a search starts from, in units of the standardised target's variance."""


@dataclass(frozen=True)
class Lesson:
    """What is tuned on, and what it stands for.

    Attributes:
        x: (n, W) standardised windows.
        y: (n, T) standardised departures of the targets from their reference.
        groups: (W,) the channel of each column.
        scale, target_scale: (G,), (T,) what a standardised unit is.
    """

    x: Tensor
    y: Tensor
    groups: Tensor
    scale: Tensor
    target_scale: Tensor


class Tuning:
    """A table, its windows and the options: everything that is known before the work.

    Raises:
        UsageError, SchemaError: the options do not fit the table or the method.
        TableError: there is no table.
        ServiceError: the file may not be written.
    """

    def __init__(self, config: TuneConfig) -> None:
        self.table = Table.open(config.table)
        self.config, self.spec, self.survey = surveyed(config, self.table)
        config = self.config
        self.before = None if config.init is None else files.read(config.init)
        check_writable(config.output, "--output")
        given = flatten(config.set)
        if self.before is not None and not any(key.split(".")[0] == "kernel" for key in given):
            given = given | {"kernel": dict(self.before.kernel)}
        self.options = read_options(config.method, given, config.seed)
        if self.before is not None:
            self.before.check(self.spec.shape, self.options.target, self.options.decay)
            self.before.fits(self.options.kernel)
            one_start(self.options.kernel)
        if self.options.period is not None and not _has_period(self.options.kernel):
            raise UsageError(
                f"kernel={choice.part_name(self.options.kernel)} has no period to start from",
                hint="leave out --set period, or use kernel=periodic, locally_periodic or sum",
            )
        if isinstance(self.options, AutoOptions):
            self.options = self.options.for_windows(self.spec.shape.lags)
        check_columns(self.survey)
        before, behind = edges(config, self.table, self.spec)
        held = held_out(config, self.survey, self.table.rows)
        self.learnable = int(held.logical_not().sum())  # rows that training in batch would learn
        self.hidden = held | behind  # (R,) nothing is learned of their targets
        self.rows = (self.hidden | before).logical_not().nonzero()[:, 0].numpy()  # that are chosen from
        if not len(self.rows):
            raise UsageError(
                "all rows between --start and --end are held out",
                hint="tune on rows that --test-column or --test-tail leave",
            )
        wanted, read = min(config.rows, len(self.rows)), min(ROWS, self.table.rows)
        parts = sizes.of_tuning(self.spec, self.survey.count, wanted, read, dense=config.method in ("ml", "auto"))
        sizes.check(parts, config.max_memory)

    def plan(self) -> dict[str, Json]:
        """What would be done."""
        shape = self.spec.shape
        return {
            "table": self.config.table,
            "rows": self.table.rows,
            "table_version": self.table.version,
            "method": self.config.method,
            "kernel": choice.part_name(self.options.kernel),
            "target": list(shape.targets),
            "learned": self.options.target,
            "past_channels": list(shape.past) if shape.lags else [],
            "future_channels": list(shape.future),
            "lags": shape.lags,
            "horizon": shape.horizon,
            "season": shape.season,
            "columns_forecast": shape.columns,
            "rows_to_choose_from": len(self.rows),
            "windows": min(self.config.rows, len(self.rows)),
            "output": str(self.config.output),
        }

    def lesson(self, report: Callable[[int], None]) -> Lesson:
        """Whole windows, spread over the rows, standardised.

        Raises:
            DataError: there are too few.
        """
        generator = np.random.default_rng(self.config.seed)
        chosen = torch.zeros_like(self.hidden)
        looked = self.rows[spread(len(self.rows), SPARE * self.config.rows, generator)]
        chosen[torch.from_numpy(looked)] = True
        end = int(self.hidden.logical_not().nonzero()[-1]) + 1
        found = collect(
            Columns(self.table, columns_read(self.spec), ROWS), self.spec, self.hidden[:end], chosen, report
        )
        whole = 0 if found is None else int(torch.isfinite(found[1]).all(1).sum())
        if found is None or whole < FEWEST:
            raise DataError(
                f"{whole} of the {len(looked)} windows that were looked at are whole, too few to tune on",
                hint=advice(self.survey, self.spec, FEWEST),
            )
        x, y = found
        there = torch.isfinite(y).all(1)
        x, y = x.rows(there), y[there]
        some = torch.from_numpy(spread(len(y), self.config.rows, generator))
        return self._standardised(x.rows(some), y[some])

    def _standardised(self, x: Inputs, y: Tensor) -> Lesson:
        shape = self.spec.shape
        inputs, outputs = KernelInputs(shape), Standardiser(shape.columns)
        departure = reference(self.options.target, shape, self.options.decay)
        if isinstance(departure, LearnedReference):
            departure.fit(x, y, y.new_ones(len(y)))
        inputs.scaling.fit(x)
        rest = y - departure(x)
        outputs.fit(rest, y)
        return Lesson(inputs(x), outputs.transform(rest), inputs.groups, inputs.scale, outputs.scale)

    def start(self, lesson: Lesson) -> tuple[Tied, Tensor]:
        """The kernel that a search starts from, and (T,) log σ²."""
        options = self.options
        kernel = Tied(options.kernel, lesson.groups)
        log_noise = torch.full((lesson.y.shape[1],), math.log(NOISE), dtype=FLOAT)
        if self.before is not None:
            log_noise = self.before.onto(kernel, lesson.scale, lesson.target_scale)
        elif plain(options.kernel):
            with torch.no_grad():
                for name, value in centres(kernel, lesson.x).items():
                    kernel.get_parameter(name).copy_(value)
        if options.period is not None:
            periods = (options.period * kernel.unit / lesson.scale).log()
            with torch.no_grad():
                for name, value in kernel.named_parameters():
                    if name.rpartition(".")[2] == "log_period":
                        value.copy_(periods)
        return kernel, log_noise

    def result(self, lesson: Lesson, kernel: Tied, tuned: Tuned, before: float | None) -> Initial:
        """What was found, as a file holds it."""
        sizes = torch.bincount(lesson.groups).to(FLOAT)
        found: dict[str, Json] = {
            "method": self.config.method,
            "rows": len(lesson.y),
            "loss_before": before,
            "loss": tuned.loss,
            "iterations": len(tuned.history),
            "evaluations": tuned.evaluations,
            "cpu_seconds": tuned.seconds,
            "failures": list(tuned.failures),
            "capped": tuned.capped,
            "held_out": {name: score for name, score in tuned.judged if math.isfinite(score)},
            "options": {key: as_text(value) for key, value in sorted(flatten(self.config.set).items())},
            "seed": self.config.seed,
            "table": {"path": str(self.table.path), "id": self.table.id, "version": self.table.version},
            "last_row": int(self.rows[-1]) + 1,
            "test_column": self.config.test_column,
            "test_tail": self.config.test_tail,
            "test_blocks": self.config.test_blocks,
        }
        return Initial(
            self.spec.shape,
            self.options.target,
            self.options.decay,
            structure(self.options.kernel),
            {name: tuned.kernel[name] for name, _ in kernel.named_parameters()},
            lesson.scale / (kernel.unit * sizes.sqrt()),
            lesson.target_scale,
            tuned.noise.sqrt() * lesson.target_scale,
            found,
        )


def tune(
    config: TuneConfig,
    tracker: Callable[[Path, str], Tracker],
    progress: Callable[[Progress], None] = lambda _: None,
    cluster: Cluster | None = None,
) -> dict[str, Json]:
    """Find hyper-parameters, write them to `config.output`, and return a summary.

    Args:
        config: what to do.
        tracker: makes the run's tracker from a directory and the run's title.
        progress: called with how far the run is.
        cluster: makes the workers of `--engine ray`, which try the starts side by side, each on one thread.

    Returns:
        run_id, method, kernel, `channels` and `targets` (their hyper-parameters in their own units), loss_before, loss,
        rows, iterations, evaluations, cpu_seconds, failures, capped, lost (workers), output, next (a command line),
        table_version.

    Raises:
        UsageError, SchemaError: the options do not fit the table or the method.
        DataError: there are too few whole windows, or `config.init` is damaged.
        NumericalError: no start led anywhere.
        ServiceError: the file or the tracking store cannot be written.
    """
    tuning, tasks = Tuning(config), tasks_of(config, cluster)
    if config.engine == "ray":
        torch.set_num_threads(1)  # as the workers have
    with tempfile.TemporaryDirectory() as folder:
        run = tracker(Path(folder), f"tune {config.method} {Path(config.table).name}")
        with finishing(run), closing(tasks):
            return _tune(tuning, run, progress, tasks)


def _start(attempt: Callable[[Tensor], Attempt], parts: str, name: str, start: Tensor, report: Report) -> Attempt:
    """Try one start."""
    registry.trust(parts)  # the user named them where the tuning was started
    found = attempt(start)
    report(Progress(name, 1, 1, f"loss {number(found.found.value)}"))
    return found


def _has_period(kernel: BaseModel) -> bool:
    """Whether there is a period among a kernel's hyper-parameters."""
    names = dict(choice.build("kernels", kernel, 1).named_parameters())
    return any(name.rpartition(".")[2] == "log_period" for name in names)


def _tune(tuning: Tuning, run: Tracker, progress: Callable[[Progress], None], tasks: Tasks) -> dict[str, Json]:
    config, table = tuning.config, tuning.table
    skip = {"set", "table", "output", "tracking_uri", "experiment", "engine", "workers", "address"}
    settings: dict[str, Any] = config.model_dump(mode="json", exclude=skip)
    settings |= {f"set.{key}": value for key, value in flatten(config.set).items()} | {"lags": tuning.spec.lags}
    run.params(
        {"command": "tune"} | {key: value for key, value in settings.items() if value not in (None, [], "", False)}
    )
    run.dataset(Path(table.path).name, str(table.path), table.version, table.schema)
    lesson = tuning.lesson(lambda read: progress(Progress("read", read, len(tuning.hidden))))
    kernel, log_noise = tuning.start(lesson)
    progress(Progress("tune", 0, 1, f"{config.method} on {len(lesson.y)} windows"))

    def each(attempt: Callable[[Tensor], Attempt], starts: Sequence[Tensor]) -> Iterable[Attempt]:
        named = {f"start {number}": start for number, start in enumerate(starts)}
        return tasks.run(partial(_start, attempt, str(config.set)), named, progress).values()

    tuned, before = find(config.method, tuning.options, kernel, log_noise, lesson.x, lesson.y, each)
    progress(Progress("tune", 1, 1, f"loss {'-' if before is None else number(before)} -> {number(tuned.loss)}"))
    result = tuning.result(lesson, kernel, tuned, before)
    shown = readable(result, table.schema)
    files.write(config.output, result, shown)
    for step, loss in enumerate([before, *tuned.history]):
        if loss is not None:
            run.metrics({"loss": loss}, step)
    if not tuned.history or tuned.loss != tuned.history[-1]:
        run.metrics({"loss": tuned.loss}, len(tuned.history) + 1)
    run.tags({"cpu_seconds": f"{tuned.seconds:.1f}"})
    run.artifact(config.output)
    run.flush()
    return {
        "run_id": run.run_id,
        **{key: value for key, value in result.found.items() if key not in ("options", "table")},
        "loss_is": METHODS[tuned.judged[0][0] if tuned.judged else config.method].loss,
        "lost": tasks.lost,
        "kernel": dict(result.kernel),
        **shown,
        "learned": result.target,
        "output": str(config.output),
        "next": train_line(config, result, tuning.learnable),
        "table_version": table.version,
    }
