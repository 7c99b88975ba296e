"""Forecast from a checkpoint: the next steps of every series, with calibrated bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import torch

from streamgp.base import Due, Offset
from streamgp.errors import DataError, StateError, UsageError
from streamgp.forecasting.calibration import Calibration
from streamgp.online.inputs import LARGEST
from streamgp.windows.paths import inputs_ahead
from streamgp.windows.windows import Asks, WindowSpec
from streamgp_data import checkpoint
from streamgp_data.batches import SKIP, micro_batches
from streamgp_data.delta import SEQ
from streamgp_data.disk import memory_at_hand
from streamgp_data.intervals import nanoseconds
from streamgp_data.moments import Moments
from streamgp_data.remote import mirror
from streamgp_data.table import Table
from streamgp_pipelines.assembly import find_device
from streamgp_pipelines.config import ForecastConfig
from streamgp_pipelines.files import check_writable
from streamgp_pipelines.forecasting import past, simulate
from streamgp_pipelines.forecasting.future import read_future
from streamgp_pipelines.forecasting.issued import as_pairs, history, spikes
from streamgp_pipelines.forecasting.outages import after_outages
from streamgp_pipelines.forecasting.results import SUFFIXES, Forecast, Simulation, check_workbook, in_order, write
from streamgp_pipelines.learning import making, sizes
from streamgp_pipelines.learning.buckets import Buckets
from streamgp_pipelines.learning.checkpointing import passed_over, refuse_passed_over
from streamgp_pipelines.learning.columns import columns_read
from streamgp_pipelines.learning.frames import Naming
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.predictions import frame
from streamgp_pipelines.learning.restored import moments_of, parts_in, read_checkpoint, recipe_of
from streamgp_pipelines.learning.session import Columns, check_table
from streamgp_pipelines.learning.tail import Tail
from streamgp_pipelines.learning.whole import no_newest_window

__all__ = ["Forecast", "Forecaster", "Simulation", "forecast", "load", "write"]

PATHS = 200
"""Sample paths of a simulation that does not say how many."""

OBSERVED_ROWS = 4096
"""Rows read at a time after the checkpoint: nothing depends on it."""
BEHIND = 0.1
"""A warning says so where the model has not learned more newer rows than this share of those that it has learned."""


class Forecaster:
    """Forecasts from a checkpoint, without the training data. Built by `load`; the README has an example that runs.

    forecaster = load("checkpoint")
    forecaster.observe(table)  # optional: later rows of the table move the windows
    forecaster.forecast(horizon=24).frame

    Args:
        saved: the checkpoint.
        learner: of its state, which is the forecaster's own from now on; None makes one.
        tail: the rows after the last full micro-batch, where a learner is given.
        device: to compute on.
    """

    def __init__(
        self,
        saved: checkpoint.Saved,
        learner: Learner | None = None,
        tail: pa.RecordBatch | None = None,
        device: torch.device | None = None,
    ) -> None:
        about: dict[str, Any] = saved.manifest
        if learner is None:
            learner, tail = learner_of(saved, device)
        self.learner, self.tail = learner, tail
        self.calibration = learner.calibration
        """Bands, quantiles and point of the training."""
        self.offset: Offset = about["offset"]
        """Position of the next row to read from the table."""
        self._again = 0 if tail is None else tail.num_rows  # rows after it that the learner has
        self._online = about["fingerprint"]["mode"] == "online"
        self._moved = False
        self.counted: list[Due] = []
        """Pairs of forecasts and truths that rows after the last full micro-batch made."""
        self.unit: str = about["unit"]
        self.units: dict[str, str] = about["units"]
        """Of the columns that windows are made of, of those that have one."""
        self.moments = moments_of(saved)
        """How times are written."""
        self._passed = passed_over(saved)
        self.warnings = list(self._passed)
        """Warnings about the checkpoint."""
        self._about = about
        self._saved = replace(saved, tensors={}, rest={})

    def naming(self, calibration: Calibration | None = None) -> Naming:
        """Column names of this forecaster's frames; calibration: that of the training when left out."""
        return Naming(self.learner.recipe.model, calibration or self.calibration, self.moments)

    @property
    def table(self) -> str:
        """Where the table of the training was."""
        return str(self._about["table"]["path"])

    @property
    def end(self) -> int:
        """Rows of the table that its windows have seen."""
        return sum(int(self.offset.get(name, 0)) for name in (SEQ, SKIP)) + self._again

    @property
    def binary(self) -> bool:
        """Whether outcomes of 0 and 1 are forecast."""
        return self.learner.model.family.binary

    @property
    def target(self) -> str:
        """The column that is forecast; "" where there are several."""
        return self.spec.targets[0] if len(self.spec.targets) == 1 else ""

    @property
    def spec(self) -> WindowSpec:
        """The columns and steps of a window."""
        return self.learner.windows.spec

    def observe(self, table: Table | None = None) -> None:
        """Move to the newest row of the checkpoint, or of a table.

        Rows of the checkpoint after its last full micro-batch are learned in memory; the checkpoint does not change.
        Later rows of the table move the windows and the volatility of the bands; nothing else is learned from them.

        Raises:
            TableError: the table is not the one that the checkpoint was trained on.
        """
        self._learn_tail()
        if table is None:
            return
        check_table(self._saved, table)
        learned = self.end
        if table.meta.lateness is None:  # otherwise newer rows may come before some of them: windows leave out the rest
            self.offset = {**self.offset, SKIP: int(self.offset.get(SKIP, 0)) + self._again}
        self._again = 0
        source, passed = Columns(table, columns_read(self.spec), OBSERVED_ROWS), 0
        for rows, after in micro_batches(source, self.offset, OBSERVED_ROWS):
            self.learner.watch(rows)
            self.offset = after
            passed += rows.num_rows
        if self._online and passed > max(BEHIND * learned, 2 * self.learner.size):
            self.warnings.append(
                f"the model has learned {learned:,} rows of {table.path}, and {passed:,} newer ones only move "
                "its window: run streamgp train again, without --max-rows, and it learns them"
            )

    def _learn_tail(self) -> None:
        """Once: learn the rows after the last full micro-batch; a model of batch training has learned what it may."""
        if self._moved:
            return
        self._moved = True
        if self._online:
            self.counted = self.learner.branch(self.tail)

    def forecast(
        self,
        horizon: int | None = None,
        levels: Sequence[float] | None = None,
        future: pa.Table | None = None,
        quantiles: Sequence[float] | None = None,
    ) -> Forecast:
        """Forecast steps 1 to `horizon` after the newest row of every series.

        Args:
            horizon: steps ahead; the trained horizon when left out, and never more.
            levels: bands in percent; those of the training when left out.
            future: values of the known inputs at those steps.
            quantiles: probabilities of quantiles beside the bands; those of the training when left out.

        Raises:
            StateError: the model has not been fitted yet.
            UsageError: the horizon is longer than the trained one, a level is none, or known inputs have no future.
            DataError: no series has a whole window at its newest row.
        """
        found, warnings = self.steps(horizon, levels, future, quantiles)
        naming = self.naming(self._wanted(levels, quantiles))
        more: Any = {"target": self.target, "point": naming.calibration.point, "warnings": warnings}
        return Forecast(found, self.history(), *self._about_it(naming), **more, spikes=self.spikes())

    def steps(
        self,
        horizon: int | None = None,
        levels: Sequence[float] | None = None,
        future: pa.Table | None = None,
        quantiles: Sequence[float] | None = None,
    ) -> tuple[pl.DataFrame, tuple[str, ...]]:
        """The frame and the warnings of `forecast`."""
        self._ready()
        shape, windows = self.learner.windows.shape, self.learner.windows
        steps = shape.horizon if horizon is None else horizon
        if steps < 1:
            raise UsageError(f"a forecast has one step or more, not {steps}", hint=f"at most {shape.horizon}")
        if steps > shape.horizon:
            alone = shape.horizon == 1 and shape.lags > 0
            instead = "simulate with --paths 200" if alone else f"forecast at most {shape.horizon}"
            raise UsageError(
                f"--horizon {steps} is beyond the {shape.horizon} steps that this checkpoint was trained for",
                hint=f"{instead}, or train again with --horizon {steps}",
            )
        naming = self.naming(self._wanted(levels, quantiles))
        asks = self.ask(future, steps)
        found = frame(as_pairs(self.learner, asks, naming.calibration), windows.names, naming, shape).drop("step", "y")
        kept = found.filter(pl.int_range(pl.len()) % shape.horizon < steps)
        warnings = (*self._left_out(asks, future), *after_outages(asks, windows, naming), *self._held(future, steps))
        return kept, warnings

    def ask(self, future: pa.Table | None = None, needed: int | None = None) -> Asks:
        """A question at the newest row of every series, or at every row of `future` without lags.

        Args:
            future: values of the known inputs.
            needed: steps ahead that it must have; the trained horizon when left out.

        Raises:
            StateError, UsageError, DataError: as `forecast`.
        """
        self._ready()
        windows, known = self.learner.windows, self.spec.known
        if known and self.spec.lags and future is not None:
            ahead = inputs_ahead(windows, future, needed or self.spec.horizon, known)
            simulate.check_given(ahead, known, windows, self.naming(), future)
        asks = windows.ask_last(future, needed)
        fitted = self.learner.fitted(asks.series)
        if not bool(fitted.all()):
            asks = asks.rows(fitted)
        if not len(asks.origin):
            raise no_newest_window(windows)
        return asks

    def simulate(
        self,
        horizon: int,
        paths: int = PATHS,
        future: pa.Table | None = None,
        seed: int = 0,
        plug_in: bool = False,
        levels: Sequence[float] | None = None,
        quantiles: Sequence[float] | None = None,
    ) -> Simulation:
        """Simulate steps 1 to `horizon` after the newest row of every series: a rollout of the model on its own output.

        The model must have been trained for one step. Bands and paths are calibrated where the training simulated its
        past (`--simulate`); see `simulate.path_columns`.

        Args:
            horizon: K, steps ahead.
            paths: P sample paths a series.
            future: values of every input, known or not, at each of those steps.
            seed: of every draw.
            plug_in: feed back means along one path instead; the band is that of one step, and so too narrow.
            levels: bands in percent; the trained ones when left out.
            quantiles: probabilities of quantiles beside the bands; the trained ones when left out.

        Raises:
            StateError: the model has not been fitted yet.
            UsageError: the model was trained for several steps, has no lags or draws no functions; a level is none, or
                there are too few paths for it; inputs have no future.
            DataError: no series has a whole window at its newest row, or the future or a season lacks a value.
            NumericalError: the paths grew beyond all bounds.
        """
        self._ready()
        windows, model = self.learner.windows, self.learner.model
        naming = self.naming(self._wanted(levels, quantiles))
        if plug_in:
            run = simulate.plug_in(model, windows, horizon, future, naming, self.learner.own_units)
        else:
            own = self.learner.own_units
            run = simulate.sample_paths(model, windows, horizon, paths, seed, future, naming, own)
        rehearsed = self.learner.rehearsal
        warnings: tuple[str, ...] = ()
        bands = None if plug_in or rehearsed is None or not rehearsed.bands.scored else rehearsed.bands
        if bands is not None and horizon > bands.steps:
            warnings = (f"bands are calibrated up to --simulate {bands.steps} steps ahead: beyond, the raw ones stand",)
        found = simulate.frame_of_run(run, windows.names, self.spec.targets, naming, bands)
        samples = run.y if bands is None else simulate.calibrated_paths(run, bands)
        about = self._about_it(naming)
        past, apart = self.history(), self.spikes()
        return Simulation(found, past, *about, target=self.target, samples=samples, warnings=warnings, spikes=apart)

    def history(self) -> pl.DataFrame:
        """The newest rows of every series, long format: unique_id, ds, [target,] y."""
        return history(self.learner.windows, self.naming())

    def spikes(self) -> pl.DataFrame:
        """The last spikes among these rows, where they are missing, in the same columns."""
        return spikes(self.learner.windows, self.naming())

    def _about_it(self, naming: Naming) -> tuple[str, tuple[float, ...], str, bool, Moments]:
        return naming.model, naming.levels, self.unit, self.binary, self.moments

    def _left_out(self, asks: Asks, future: pa.Table | None) -> list[str]:
        """A warning where series that should have a forecast have none."""
        spec, names = self.spec, self.learner.windows.names
        if not spec.lags:
            return []
        wanted = set(names)
        if spec.series is not None and spec.known and future is not None:
            wanted &= set(future.column(spec.series).cast(pa.string()).to_pylist())
        missing = sorted(wanted - {names[code] for code in asks.series.unique().tolist()})
        if not missing:
            return []
        shown = ", ".join(missing[:5]) + (" and others" if len(missing) > 5 else "")
        return [
            f"{len(missing)} of {len(wanted)} series have no forecast: their rows do not make a whole window and "
            f"season{', or their model is in its warm-up' * spec.fleet}: {shown}"
        ]

    def _held(self, future: pa.Table | None, steps: int) -> list[str]:
        """A note where the future of known inputs ends before the trained horizon, as a shorter forecast allows."""
        spec = self.spec
        if not (spec.known and spec.lags) or future is None or steps == spec.horizon:
            return []
        ahead = inputs_ahead(self.learner.windows, future, spec.horizon, spec.known)
        lacking = np.flatnonzero(np.isnan(ahead.values[ahead.named]).any(axis=(0, 2)))
        if not len(lacking):
            return []
        return [
            f"the model was trained to see {', '.join(spec.known)} {spec.horizon} steps ahead, and the future ends "
            f"{lacking[0]} steps ahead: the last values stand for the others"
        ]

    def _wanted(self, levels: Sequence[float] | None, quantiles: Sequence[float] | None) -> Calibration:
        """Bands and quantiles as asked for, or those of the training; there are none where outcomes are forecast.

        Raises:
            UsageError: a level is no percentage, a quantile no probability, or there are no bands.
        """
        if self.binary and (levels is not None or quantiles is not None):
            raise UsageError(
                "this checkpoint forecasts the probability of an outcome of 0 or 1, which has no bands",
                hint="leave out --level; the -std-latent column, where positive, says how far the probability is known",
            )
        found = self.calibration
        if levels is not None:
            found = replace(found, levels=in_order(levels))
        if quantiles is not None:
            if isinstance(quantiles, str) or not all(isinstance(p, Real) and 0 < p < 1 for p in quantiles):
                raise UsageError("quantiles are probabilities between 0 and 1", hint="such as 0.1 and 0.9")
            found = replace(found, quantiles=tuple(sorted(set(quantiles))))
        return found

    def _ready(self) -> None:
        """Move on to the checkpoint's newest row, and see that the model is fitted."""
        self.observe()
        if self.learner.warmup.done_at is None:
            hint = "train on more rows, or with a shorter --warmup and --fresh"
            if self.learner.rows >= self.learner.recipe.schedule.warmup:
                names = ", ".join(self.spec.targets)
                hint += f"; of {names} no window is whole: values are missing, or beyond {LARGEST:.0e}"
            if self._passed:
                hint = "run train again with the same line"
            raise StateError("; ".join([*self._passed, unfitted(self.learner)]), hint=hint)


def unfitted(learner: Learner) -> str:
    """What is missing of a warm-up that is not over."""
    rows, needed = learner.rows, learner.recipe.schedule.warmup
    of = f" of the {needed} that it needs" if rows < needed else ", and no window of them without a gap"
    of = f"; it needs {needed} of a series" if learner.recipe.spec.fleet else of
    return f"the model is still in its warm-up ({rows} rows{of}): it has learned nothing yet"


def learner_of(saved: checkpoint.Saved, device: torch.device | None = None) -> tuple[Learner, pa.RecordBatch | None]:
    """The learner in its saved state, and the rows after its last full micro-batch."""
    with checkpoint.fitting(f"what {saved.path} says of its model"):
        return _learner_of(saved, device or torch.device("cpu"))


def _learner_of(saved: checkpoint.Saved, device: torch.device) -> tuple[Learner, pa.RecordBatch | None]:
    recipe, tail = recipe_of(saved), Tail()
    spec, levels, batch = recipe.spec, len(recipe.calibration.levels), recipe.schedule.batch
    sizes.check(sizes.of_training(spec, 1, saved.rows, 0, levels, batch, recipe.settings()), memory_at_hand())
    learner = making.learner_of(recipe, device)
    saved.restore(parts_in(saved, learner.parts()) | {"tail": tail})
    learner.rows = saved.rows
    if isinstance(learner, Buckets):
        learner.load(saved.shards)
        learner.look()
    return learner, tail.rows


def load(directory: str | Path, device: str = "cpu", strict: bool = False) -> Forecaster:
    """The newest checkpoint in a directory that is whole (or one checkpoint itself), ready to forecast; no table is
    needed. A newer one that is damaged is skipped, with a warning.

    Args:
        directory: of the checkpoint.
        device: to compute on.
        strict: whether a damaged one is refused instead.

    Raises:
        CheckpointError: there is none, or it is damaged.
        ServiceError: the device is not there.
    """
    saved = read_checkpoint(mirror(directory))
    if strict:
        refuse_passed_over(saved)
    return Forecaster(saved, device=find_device(device))


def forecast(config: ForecastConfig) -> Forecast:
    """`streamgp forecast`: read the checkpoint, move on to the table's newest row, forecast or simulate, write.

    Raises:
        UsageError, DataError, CheckpointError, TableError: as `Forecaster.forecast`, `Forecaster.simulate` and `load`.
    """
    for flag, path in (("--output", config.output), ("--samples", config.samples), ("--plot", config.plot)):
        if path is not None:
            check_writable(path, flag, () if flag == "--plot" else SUFFIXES, make=True)
            check_workbook(path)
    assert config.checkpoint is not None, "a model of the registry is fetched first"
    forecaster = load(config.checkpoint, config.device, config.strict)
    if config.table is not None:
        forecaster.observe(Table.open(config.table))
    _check_memory(forecaster, config)
    future, notes = None, list[str]()
    if config.future is not None:
        spec = forecaster.spec
        if not (spec.inputs if config.simulates else spec.known or not spec.lags):
            raise UsageError(
                "--future would change nothing: this checkpoint has no inputs whose future is known",
                hint="leave it out, or train with --known COLUMNS",
            )
        columns = forecaster.spec.inputs if config.simulates else None
        future, notes = read_future(
            config.future, forecaster.spec, forecaster.moments, columns, forecaster.units, config.time_format
        )
    try:
        found = _asked(forecaster, config, future)
    except DataError as error:  # half a line that was left out may be what is missing
        raise type(error)(error.message, hint="; ".join([error.hint, *notes])) from None
    if config.output is not None:
        write(found.frame, config.output)
    history = found.history if config.plot is None else _past(forecaster, found, config)
    return replace(found, history=history, warnings=(*forecaster.warnings, *notes, *found.warnings))


def _asked(forecaster: Forecaster, config: ForecastConfig, future: pa.Table | None) -> Forecast:
    """The forecast, or the simulation, that is asked for; samples are written.

    Raises:
        DataError: the future lacks a value; and as `Forecaster.forecast`.
    """
    levels = config.level if "level" in config.model_fields_set else None
    quantiles = config.quantiles if "quantiles" in config.model_fields_set else None
    if not config.simulates:
        found = forecaster.forecast(config.horizon, levels, future, quantiles)
    else:
        steps = forecaster.spec.horizon if config.horizon is None else config.horizon
        paths = PATHS if config.paths is None else config.paths
        found = forecaster.simulate(steps, paths, future, config.seed, config.plug_in, levels, quantiles)
        if config.samples is not None:
            write(found.paths(), config.samples)
    return found


def _past(forecaster: Forecaster, found: Forecast, config: ForecastConfig) -> pl.DataFrame:
    """The history that is drawn: of the checkpoint and, where that holds too little, of the table of the training."""
    keys = [key for key in ("unique_id", "target") if key in found.frame.columns]
    steps = found.frame.height // max(found.frame.select(keys).n_unique(), 1)
    spec, every, history = forecaster.spec, forecaster.spec.every_ns, found.history
    rows = past.wanted(steps, config.history)
    if rows is None and every is not None:
        rows = -(-(nanoseconds(config.history or "") or 0) // every)
    held = min(history.group_by(keys).len()["len"].to_list(), default=0) if keys else history.height
    if spec.lags and spec.time is not None and rows is not None and held < rows:
        table = past.of_training(config.table or forecaster.table)
        if table is not None and table.id == forecaster.offset.get("table", table.id):
            history = past.longer(history, table, spec, forecaster.naming(), rows, forecaster.end)
    return past.recent(history, steps, config.history)


def _check_memory(forecaster: Forecaster, config: ForecastConfig) -> None:
    """See that what was asked for fits into memory.

    Raises:
        UsageError: it does not.
    """
    spec, series = forecaster.spec, len(forecaster.learner.windows.names)
    parts = {"the forecast (--horizon)": sizes.forecast(spec.shape, series, len(config.level))}
    if config.simulates:
        steps = spec.horizon if config.horizon is None else config.horizon
        paths = 1 if config.plug_in else PATHS if config.paths is None else config.paths
        parts["the paths (--paths, --horizon)"] = sizes.simulation(spec, series, paths, steps)
    sizes.check(parts, config.max_memory)
