"""The rows of data frames, learned as they come: what a `Forecaster` holds beside its options."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import polars as pl
import pyarrow as pa
import torch

from streamgp.base import Due, Json
from streamgp.errors import DataError, StateError, UsageError
from streamgp.forecasting.silence import Silent
from streamgp.fork import fork
from streamgp_data import checkpoint
from streamgp_data.batches import together
from streamgp_data.checkpoint import Saved
from streamgp_data.event_time import UNTIL
from streamgp_data.ingestion.pairing import day_columns
from streamgp_data.moments import Moments
from streamgp_data.table import SEQ, TableMeta
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.forecasting import forecast as forecasting
from streamgp_pipelines.forecasting.future import as_future
from streamgp_pipelines.learning.checkpointing import manifest
from streamgp_pipelines.learning.columns import columns_read, targets_in
from streamgp_pipelines.learning.curves import Curves
from streamgp_pipelines.learning.frames import Naming
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.newest import PART, NewestScored
from streamgp_pipelines.learning.predictions import alarms_of, silent_alarms
from streamgp_pipelines.learning.restored import read_checkpoint
from streamgp_pipelines.learning.session import open_session
from streamgp_pipelines.learning.tail import Tail
from streamgp_pipelines.memory import Frame, FrameReader, FrameSource, Kind, as_arrow, as_polars, kind_of
from streamgp_pipelines.ordering import Arrivals, in_order
from streamgp_pipelines.training.summary import add_point
from streamgp_pipelines.wording import Told

ALARMS = 10_000
"""Most rows of `alarms`."""


class FrameStream:
    """What was learned of frames.

    Args:
        config: of the run; None where it is of a checkpoint.
        columns: what the columns of a frame mean, as options of ingest.

    Attributes:
        learner: None before the first row.
        about: the manifest of a checkpoint.
        kind: of the frames.
        warnings: what should be known of the frames; `noted` has also what the model says.
        told: says each warning once.
        alarms: the rows that raised one, in parts.
        trace: evidence of the updates.
    """

    def __init__(self, config: TrainConfig | None, columns: Mapping[str, str | None]) -> None:
        self._config, self._columns = config, columns
        self.learner: Learner | None = None
        self.about: dict[str, Json] = {}
        self.kind: Kind = "polars"
        self.warnings: list[str] = []
        self.told, self.alarms = Told(), list[pl.DataFrame]()
        self.trace, self._curves = Curves(), Curves()
        self._reader: FrameReader | None = None
        self._newest: NewestScored | None = None
        self._tail: pa.RecordBatch | None = None
        self._arrivals = Arrivals(TableMeta())
        self._ahead: forecasting.Forecaster | None = None

    @classmethod
    def loaded(cls, path: Path, device: torch.device) -> Self:
        """The stream of a checkpoint, to be continued.

        Raises:
            CheckpointError: there is none, or it is damaged.
            StateError: it was trained in batch.
        """
        saved = read_checkpoint(path)
        about: Any = saved.manifest
        if about["fingerprint"]["mode"] != "online":
            raise StateError(f"{path} was trained in batch", hint="streamgp_pipelines.load forecasts from it")
        found = cls(None, {})
        found.learner, found._tail = forecasting.learner_of(saved, device)
        saved.restore({"curves": found._curves})
        found._newest = NewestScored.of(saved, found.learner.windows.shape, found.learner.calibration)
        found.about = dict(saved.manifest)
        found.kind = kind_of(about.get("frames"))
        found._arrivals = Arrivals.of(saved, found.learner.windows.spec)
        if (waiting := found._arrivals.waiting) is not None and found._tail is not None:
            found._tail = found._tail.slice(0, found._tail.num_rows - len(waiting.seq))
        if UNTIL in about["offset"]:
            found.warnings.append("the lateness of the table is not that of frames: sort them by time")
        found.warnings += [saved.warning] if saved.warning else []
        found.told(found.warnings)
        return found

    def read(self, frame: Frame, sort: bool = False) -> None:
        """Learn the rows of a frame, in the order of their times where they are sorted."""
        rows, self.kind = as_arrow(frame)
        self._ahead = None
        if self._reader is None:
            fresh = self._begin(rows, sort)
        else:
            fresh = self._take(self._reader.read(rows), self._reader.meta, sort)
        out = self._arrivals.release(fresh, self.names()) if fresh.num_rows else None
        if out is not None:
            self._advance(pa.Table.from_batches([out]))
        elif rows.num_rows and not fresh.num_rows:
            self.note("no row of a frame was new: all had times that were given before")
        self.told(self.noted())

    @property
    def rows(self) -> int:
        """Rows read so far, each once."""
        behind = None if self.learner is None else self.behind()
        return 0 if self.learner is None else self.learner.rows + (0 if behind is None else behind.num_rows)

    def ready(self) -> Learner:
        """The learner.

        Raises:
            StateError: there is none yet.
        """
        if self.learner is None:
            raise StateError("no rows were given yet", hint="call learn with a data frame first")
        return self.learner

    def view(self) -> forecasting.Forecaster:
        """A copy of the state that has learned all rows, to forecast from; made once until rows come."""
        if self._ahead is None:
            learner = self.ready()
            saved = Saved(Path("memory"), learner.rows, self.about | {"rows": learner.rows}, {}, {})
            ahead = fork(learner)
            ahead.scoring = False
            self._ahead = forecasting.Forecaster(saved, ahead, self.behind())
        return self._ahead

    def future(
        self, frame: Frame | None, view: forecasting.Forecaster, columns: tuple[str, ...] | None
    ) -> pa.Table | None:
        """A frame of the inputs `columns` (None: the known ones) that are known ahead.

        Raises:
            UsageError: there are none.
        """
        if frame is None:
            return None
        if not (view.spec.inputs if columns is not None else view.spec.known or not view.spec.lags):
            raise UsageError("no input has a future that is known", hint="leave future out, or name them: known=")
        data = as_polars(as_arrow(frame)[0])
        return as_future(data, view.spec, view.moments, columns, "future")

    def names_all(self, future: Frame) -> None:
        """See that a frame of known inputs has rows of every series.

        Raises:
            DataError: it has none of one, which is named.
        """
        windows, given = self.view().learner.windows, as_polars(as_arrow(future)[0])
        series = windows.spec.series
        if series is None or series not in given.columns or not (windows.spec.lags and windows.spec.known):
            return
        there = set(given[series].cast(pl.String))
        lacking = [name for name in windows.names if name not in there]
        if lacking:
            of = f" (nor {len(lacking) - 1} others)" if len(lacking) > 1 else ""
            raise DataError(
                f"future has no row of series {lacking[0]!r}{of}",
                hint="give the known inputs of every series, or use forecast(future=...), which leaves the others out",
            )

    def behind(self) -> pa.RecordBatch | None:
        """The rows after the last full micro-batch, those that wait among them."""
        parts = [part for part in (self._tail, self._arrivals.held()) if part is not None]
        return together(parts) if parts else None

    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return columns_read(self.ready().windows.spec)

    def note(self, text: str) -> None:
        """Warn of something, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def noted(self) -> list[str]:
        """What should be known of the stream and the model."""
        model, windows, counts = self.ready().model, self.ready().windows, self.ready().counts
        return [*self.warnings, *model.warnings(), *counts.warnings(), *self._arrivals.left_out(windows)]

    def raised(self, learner: Learner, found: Sequence[Due], silent: Sequence[Silent]) -> pl.DataFrame:
        """The rows that raised an alarm and the targets that fell silent, as `Forecaster.alarms` has them."""
        moments: Any = self.about["moments"]
        naming = Naming(learner.recipe.model, learner.calibration, Moments(**moments), alarms=True)
        about = learner.windows.names, naming, learner.windows.shape
        return pl.concat(
            [*(alarms_of(due, *about) for due in found), *(silent_alarms(one, *about) for one in silent)],
            how="diagonal_relaxed",
        )

    def save(self, path: Path) -> None:
        """Write a checkpoint.

        Raises:
            StateError: nothing was read yet, or a run of `train` has its checkpoint there, with more rows.
            ServiceError: it cannot be written.
        """
        learner = self.ready()
        parts = learner.parts() | {"curves": self._curves, "tail": Tail(self.behind()), "arrivals": self._arrivals}
        parts |= {PART: cast(NewestScored, self._newest)}
        rows: dict[str, Json] = {"rows": learner.rows, "frames": self.kind}
        checkpoint.write(path, learner.rows, parts, self.about | rows, shards=learner.shards(), instead=True)

    def first(self, rows: pa.Table) -> FrameReader:
        """Reads the first frame, which must have the targets."""
        assert self._config is not None
        check_targets(self._config.target, rows, self.kind, self._columns)
        return FrameReader(rows, **self._columns)

    def _begin(self, rows: pa.Table, sort: bool) -> pa.RecordBatch:
        """Find what the columns mean; of a new stream also the windows and the model. Returns the rows to learn."""
        if self.learner is not None:  # loaded: the stream continues
            reader = FrameReader.going_on(rows, self.learner.windows.spec, self.about["moments"], self.names())
            fresh = self._take(reader.rows, reader.meta, sort)
            self.about |= {"table": {"path": "memory", "id": reader.table.id, "version": 0}, "offset": {}}
        else:
            assert self._config is not None
            reader = self.first(rows)
            self._arrivals = Arrivals(reader.meta)
            fresh = self._take(reader.rows, reader.meta, sort)
            reader.begin_with(self._arrivals.resolved(fresh))
            session = open_session(self._config, reader.table)
            self._newest = session.newest
            self.learner, self.warnings = session.learner, [*session.warnings, *reader.notes]
            about = manifest(session.learner, reader.table, session.options, {})
            self.about = about | {"fitted": False}
        self._reader = reader
        reader.forget()
        return fresh

    def _take(self, rows: pa.Table, meta: TableMeta, sort: bool) -> pa.RecordBatch:
        """The rows of a frame that are no other row again, in the order of their times where they are sorted."""
        late: Any = self._config.late if self._config is not None else self.ready().windows.spec.late
        return self._arrivals.take(in_order(rows, meta) if sort else rows, late == "skip")

    def _advance(self, rows: pa.Table) -> None:
        """Learn every micro-batch that is full now."""
        learner = self.ready()
        rows = rows.select([SEQ, *self.names()] if self._arrivals.waiting is not None else [*self.names()])
        if self._tail is not None:
            rows = pa.concat_tables([pa.Table.from_batches([self._tail]).select(rows.column_names), rows])
        held = rows.combine_chunks().to_batches()[0]
        start = 0
        while held.num_rows - start >= learner.room:
            count = learner.room
            step, due = learner.advance(held.slice(start, count))
            cast(NewestScored, self._newest).add(due)
            silent = learner.silent()
            cast(NewestScored, self._newest).add_silent(silent)
            if silent or (due.alarm is not None and bool(due.alarm.any())):
                self.alarms = [pl.concat([*self.alarms, self.raised(learner, [due], silent)]).tail(ALARMS)]
            add_point(self._curves, learner, step, count)
            if step is not None and math.isfinite(step.loss):
                self.trace.add(learner.rows, float(count), {"evidence": -step.loss})
            start += count
        self._tail = held.slice(start) if start < held.num_rows else None


def check_targets(targets: Sequence[str], rows: pa.Table, kind: Kind, columns: Mapping[str, str | None]) -> None:
    """See that a frame has the columns to forecast.

    Args:
        targets: their names. rows: of the frame, which was of this `kind`. columns: the arguments of `FrameReader`.

    Raises:
        UsageError: one is not there; where columns seem to be the hours of a day, it says how to make rows of them.
    """
    try:
        targets_in(tuple(targets), rows.schema)
    except UsageError as error:
        time = columns.get("time")
        found = None
        if rows.num_rows and "did you mean" not in error.hint:
            found = day_columns(FrameSource(rows), time, columns.get("series"))
        if found is None:
            raise
        day, periods, _ = found
        kept = [day, *(name for name in rows.column_names if name not in (day, *periods.names))]
        made = f"df.unpivot(index={kept}, variable_name={periods.noun!r}, value_name='y').drop_nulls('y')"
        if kind == "pandas":
            rest = f"df.columns.difference({kept}, sort=False)"
            made = f"df.reset_index().melt({kept}, {rest}, {periods.noun!r}, 'y').dropna(subset='y')"
        raise UsageError(
            f"the columns {periods.span} are the {periods.noun}s of a day, and a row is to be one of them",
            hint=f"make rows of them: df = {made}; then Forecaster('y', time='{day},{periods.noun}').fit(df)",
        ) from None
