"""A checkpoint that learns in a thread of its own, and what its newest state answers."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pyarrow as pa
from pydantic_core import to_json

from streamgp.base import Step
from streamgp.errors import StateError
from streamgp.fork import fork
from streamgp_data.batches import SKIP
from streamgp_data.checkpoint import Saved
from streamgp_data.moments import Moments
from streamgp_data.remote import unanswered
from streamgp_data.table import SEQ, Table
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.assembly import find_device
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.forecasting import forecast as forecasting
from streamgp_pipelines.learning.checkpointing import manifest, match_machine, passed_over
from streamgp_pipelines.learning.columns import columns_read
from streamgp_pipelines.learning.frames import Naming
from streamgp_pipelines.learning.newest import NewestScored
from streamgp_pipelines.learning.restored import read_checkpoint
from streamgp_pipelines.learning.seasons import of_no_row
from streamgp_pipelines.learning.session import Columns, Session, check_table
from streamgp_pipelines.serving.futures import read_future, write_future
from streamgp_pipelines.serving.view import LearnerView
from streamgp_pipelines.training.alarming import Bell
from streamgp_pipelines.training.online import POLL_SECONDS, OnlineRun

SHARE = 10
"""While rows come, a new state is shown after this many times what showing the last one took."""


def resume(
    directory: Path, tables: dict[str, Table], device: str, checkpoint_every: int, on_alarm: str | None = None
) -> Session:
    """The session of a checkpoint as `train --online` would go on with it: its options are in the checkpoint.

    Args:
        directory: of the checkpoint.
        tables: by their identity; the checkpoint's own is opened where it was, if it is not among them.
        device: to compute on.
        checkpoint_every: rows between checkpoints.
        on_alarm: what alarms are passed on to; where it raises none, a warning says so.

    Raises:
        CheckpointError: there is none, or it is damaged.
        StateError: it was trained in batch.
        TableError: its table is not there, or was rolled back.
    """
    saved = read_checkpoint(directory)
    about: dict[str, Any] = saved.manifest
    options = about["fingerprint"]
    if options["mode"] != "online":
        raise StateError(f"{directory} was trained in batch, and learns no further", hint="train it with --online")
    found = find_device(device)
    warnings = match_machine(saved, found) + passed_over(saved)
    table = tables.get(about["table"]["id"]) or Table.open(about["table"]["path"])
    check_table(saved, table)
    warnings += of_no_row(saved, table.meta)
    learner, tail = forecasting.learner_of(saved, found)
    if on_alarm is not None and learner.alarms is None:
        warnings.append("it raises no alarms for --on-alarm: train it with --alarm-rate 0.001")
    recipe, spec = learner.recipe, learner.windows.spec
    config = TrainConfig.model_construct(
        table=table.path,
        checkpoint=directory,
        target=spec.targets,
        horizon=spec.horizon,
        model=recipe.model,
        set=dict(recipe.options),
        seed=recipe.seed,
        batch=recipe.schedule.batch,
        simulate=recipe.simulate,
        checkpoint_every=checkpoint_every,
        on_alarm=on_alarm,
        online=True,
        follow=True,
    )
    naming = Naming(config.model, learner.calibration, Moments.of(table.meta), alarms=learner.alarms is not None)
    source = Columns(table, columns_read(spec), config.batch, hold=True)
    session = Session(config, table, learner, source, options, naming, warnings=warnings)
    saved.restore({"curves": session.curves})
    session.newest = NewestScored.of(saved, learner.windows.shape, learner.calibration)
    session.offset, session.fitted = about["offset"], bool(about["fitted"])
    session.saved_rows, session.saved_tail = saved.rows, 0 if tail is None else tail.num_rows
    return session


def give_back() -> None:
    """Let the operating system have the memory of the state shown before; glibc keeps it in pieces otherwise."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class _Ended(Exception):
    """The learner was asked to end."""


class Host(OnlineRun):
    """The loop of `train --online --follow` in a thread; after rows were learned, a copy of the state is shown.

    Args:
        name: of the checkpoint.
        session: of `resume`.
        failed: called, in the learner's thread, when the learner ends with an error.
        say: as of `OnlineRun`.
    """

    def __init__(
        self,
        name: str,
        session: Session,
        failed: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        bell = None if session.learner.alarms is None else Bell(session, "serve")
        super().__init__(session, NoTracker(session.config.checkpoint), (), lambda _: None, bell, say=say)
        self.name = name
        self.error: BaseException | None = None
        self.view: LearnerView | None = None
        self.future: tuple[int, pa.Table] | None = None
        """The known inputs that were given last, and which they are: 0 are those that were given before a restart."""
        if (before := read_future(session.config.checkpoint)) is not None:
            self.future = (0, before)
        self.received: Callable[[], int] = lambda: session.table.rows
        """Rows of the table, as far as this process knows."""
        self._keeping = Lock()
        self._failed = failed
        self._news = Event()
        self.shown_at = self._cost = 0.0
        self._thread = Thread(target=self._learn, name=f"learner {name}", daemon=True)

    @property
    def rows(self) -> int:
        """Rows that the state that is shown has learned."""
        return 0 if self.view is None else self.view.rows

    @property
    def lagging(self) -> bool:
        """Whether the newest row was received more than a horizon after the newest that the state shown has learned,
        by the mean number of rows a series."""
        if self.view is None:
            return False
        waiting = self.received() - self.view.rows
        horizon: int = self.view.spec.horizon
        return waiting > horizon * max(len(self.view.forecaster.learner.windows.names), 1)

    @property
    def reach(self) -> float:
        """Seconds that rows may be ahead of their time: known inputs by the horizon, others by an interval."""
        windows = self.session.learner.windows
        return float(windows.newest().every.max(initial=0)) / 1e9 * (windows.spec.horizon if windows.spec.known else 1)

    def alarms(self) -> bytes:
        """The newest alarms that the state which is shown has raised, as JSON.

        Raises:
            StateError: the checkpoint raises none.
        """
        view = self.view
        if view is None or view.alarm_counts is None:
            raise StateError(f"checkpoint {self.name} raises no alarms", hint="train it with --alarm-rate 0.001")
        rate = self.session.learner.alarm_rate
        state = {"name": self.name, "rows": view.rows, "rate": rate, "counts": view.alarm_counts}
        return to_json(state | {"alarms": view.alarms().to_dicts()}, inf_nan_mode="null")

    def keep_future(self, future: tuple[int, pa.Table]) -> None:
        """Use known inputs from now on, after a restart as well, unless later ones were given meanwhile.

        Raises:
            ServiceError: they cannot be written.
        """
        with self._keeping:
            if self.future is None or self.future[0] < future[0]:
                write_future(self.session.config.checkpoint, future[1])
                self.future = future

    def start(self) -> None:
        """Begin to learn."""
        self._thread.start()

    def wake(self) -> None:
        """Rows have come."""
        self._news.set()

    def stop(self) -> None:
        """End after the micro-batch at hand, with a checkpoint."""
        self.ending.set()
        self._news.set()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join()

    def between(self, step: Step | None, rows: int) -> None:
        """As in training; the state is shown now and then while there is much to learn."""
        super().between(step, rows)
        if time.monotonic() - self.shown_at > SHARE * self._cost:
            self._show(sum(int(self.session.offset.get(name, 0)) for name in (SEQ, SKIP)))
        if self.ending.is_set():
            raise _Ended

    def wait(self) -> bool:
        """Show the state, then wait for rows."""
        learned, read = self.session.learner.rows + self._tail_rows(), self.session.table.rows
        patience = POLL_SECONDS
        if self.view is None or learned != self.view.rows:
            late = self.shown_at + SHARE * self._cost - time.monotonic()
            if late <= 0:
                self._show(read)
            else:
                patience = min(late, POLL_SECONDS)
        else:
            self.view.read = read
        self._news.wait(patience)
        self._news.clear()
        return self.ending.is_set()

    def _show(self, read: int) -> None:
        began = time.monotonic()
        session, tail = self.session, self.tail
        learner = fork(session.learner)
        about = manifest(learner, session.table, session.options, session.offset)
        saved = Saved(session.config.checkpoint, learner.rows, about | {"fitted": False}, {}, {})
        forecaster = forecasting.Forecaster(saved, learner, tail)
        forecaster.observe()
        alarms = learner.raised() or None
        newest = session.newest.ahead(forecaster.counted, learner.silent())
        rows = session.learner.rows + self._tail_rows()
        self.view = LearnerView(forecaster, self.name, rows, newest, alarms, read)
        give_back()
        self.shown_at = time.monotonic()
        self._cost = self.shown_at - began

    def _learn(self) -> None:
        try:
            try:
                self.run()
            except _Ended:
                self.finish()
        except BaseException as error:  # the service ends with it
            if self.ending.is_set() and unanswered(error):
                return  # the next start continues from the last checkpoint
            self.error = error
            self._failed()
