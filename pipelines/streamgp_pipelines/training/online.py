"""Online training: one pass over the table, every row forecast before it is learned from."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event

import pyarrow as pa

from streamgp.base import Due, Progress, Step, Tracker
from streamgp.forecasting.silence import Silent
from streamgp_data.batches import micro_batches, together
from streamgp_data.retry import Retry
from streamgp_data.table import KNOWN
from streamgp_pipelines.health import Learned
from streamgp_pipelines.learning.curves import lap_metrics
from streamgp_pipelines.learning.predictions import Predictions
from streamgp_pipelines.learning.session import Session
from streamgp_pipelines.live.beside import Beside
from streamgp_pipelines.training.alarming import Bell
from streamgp_pipelines.training.summary import (
    add_point,
    alarm_metrics,
    late_metrics,
    note,
    overall_metrics,
    simulation,
    simulation_metrics,
)

POLL_SECONDS = 1.0

SAVING_SHARE = 10
"""While a table is followed, a checkpoint is written again after this many times what the last one took."""
UNSAVED = 60.0
"""Seconds of work after which a checkpoint is written where no --checkpoint-every is given, if `SAVING_SHARE` holds."""


def pause(intake: Beside | None) -> None:
    """Let some time go by before a table is looked at again, less where rows are taken into it.

    Raises:
        StreamgpError: of the intake.
    """
    if intake is None:
        time.sleep(POLL_SECONDS)
    else:
        intake.wait(POLL_SECONDS)


class OnlineRun:
    """The loop over micro-batches, with what happens between them: metrics, predictions, checkpoints.

    Args:
        session: opened, and restored where there was a checkpoint.
        tracker: of the run.
        predictions: where scored forecasts go, where they were asked for.
        progress: called with how far the run is.
        bell: passes alarms on, where it was asked for.
        intake: fills the table, where that is not left to others.
        say: called when the store of a table that is followed does not answer, and when it does again.
    """

    def __init__(
        self,
        session: Session,
        tracker: Tracker,
        predictions: Sequence[Predictions],
        progress: Callable[[Progress], None],
        bell: Bell | None = None,
        intake: Beside | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.session = session
        self.tracker = tracker
        self.predictions = predictions
        self.progress = progress
        self.bell = bell
        self.intake = intake
        self.health = Learned()
        self.ending = Event()
        """Once it is set, no store is waited for."""
        self._retry = Retry(str(session.table.path), say, self.ending, self.health)
        self.tail: pa.RecordBatch | None = None
        self.recent: list[Due] = []
        """The newest scored forecasts of a full micro-batch, of those that this process has made, where the picture of
        a model needs them: one that forecasts without known inputs shows what it forecasts next."""
        self._newest: list[Due] = []
        self._mark = self._saved_at = self._saving = 0.0
        self._rung = (-1, 0)  # rows and tail when alarms were passed on last

    def run(self) -> None:
        """Learn all rows of the table, or with `--follow` all rows that will ever come."""
        session, config = self.session, self.session.config
        session.learner.progress = self.progress
        if session.saved_rows < 0:
            self._save()  # with the warm-up that was chosen: a kill before the next one must not choose another
        self._mark = self._saved_at = time.perf_counter()
        if config.follow:
            while not self._retry.wait_for(self._pass):
                self._retry.wait_for(self._keep_up)
                if self.wait():
                    break
                self._mark = time.perf_counter()  # waiting is not work
                self._retry.wait_for(self._refresh)
            self._retry.wait_for(self.finish)
        else:
            self._pass()
            self.finish()

    def _keep_up(self) -> None:
        """At the end of the table as it is."""
        if self._is_news() and time.perf_counter() - self._saved_at > SAVING_SHARE * self._saving:
            self._save()
        self._ring()
        self.tracker.flush()
        self._look()

    def _refresh(self) -> None:
        self.session.table.refresh()
        self._look()

    def wait(self) -> bool:
        """Let some time go by before the table is looked at again; True ends the run."""
        pause(self.intake)
        return False

    def finish(self) -> None:
        """Write what the newest checkpoint does not hold."""
        if self._is_news():
            self._save()
        self._ring()

    def _pass(self) -> bool:
        """Read to the end of the table as it is now; True when `--max-rows` is reached."""
        session, limit = self.session, self.session.config.max_rows
        learner = session.learner
        self.tail = None
        keeps = session.table.meta.duplicates != "first" and session.table.rows > 0
        if keeps and KNOWN not in session.offset:  # the place within the first chunk that is read has none
            session.offset = {**session.offset, KNOWN: session.table.rows}
        if limit is not None and limit < learner.rows:
            session.warnings.append(f"this run has learned {learner.rows} rows already, more than --max-rows {limit}")
            return True
        for rows, offset in micro_batches(session.source, session.offset, lambda: learner.room):
            room = rows.num_rows if limit is None else min(rows.num_rows, limit - learner.rows)
            if room < learner.room:
                self.tail = rows.slice(0, room) if room else None
                break
            self._newest = []
            step = learner.learn(rows, self.keep)
            self.keep_silent(learner.silent())
            self.recent = self._newest or self.recent
            session.offset = offset
            self.between(step, rows.num_rows)
        self.tail = self._with_held(limit)
        return limit is not None and learner.rows + self._tail_rows() >= limit

    def _with_held(self, limit: int | None) -> pa.RecordBatch | None:
        """The rows after the last full micro-batch, and those that a table with a lateness keeps back."""
        held = self.session.source.held
        if held is None:
            return self.tail
        parts = [held] if self.tail is None else [self.tail, held]
        whole = together(parts)
        return whole if limit is None else whole.slice(0, limit - self.session.learner.rows)

    def _tail_rows(self) -> int:
        return 0 if self.tail is None else self.tail.num_rows

    def _is_news(self) -> bool:
        """Whether there are rows that the newest checkpoint does not hold."""
        session = self.session
        return (session.learner.rows, self._tail_rows()) != (session.saved_rows, session.saved_tail)

    def keep(self, due: Due) -> None:
        """Take in forecasts whose truth has come."""
        windows = self.session.learner.windows
        if len(due.y) and (windows.spec.known or not windows.spec.lags):
            self._newest.append(due)
        self.session.newest.add(due)
        for predictions in self.predictions:
            predictions.add(due, windows.names)
        if self.bell is not None:
            self.bell.add(due)

    def keep_silent(self, found: Sequence[Silent]) -> None:
        """Take in targets that fell silent."""
        self.session.newest.add_silent(found)
        for predictions in self.predictions:
            predictions.add_silent(found, self.session.learner.windows.names)
        if self.bell is not None:
            self.bell.add_silent(found)

    def between(self, step: Step | None, rows: int) -> None:
        """After one micro-batch of `rows`: tell its scores, write a checkpoint when it is time."""
        session, learner = self.session, self.session.learner
        lap = add_point(session.curves, learner, step, rows)
        self._look()
        if lap is not None:
            metrics = lap_metrics(lap, step) | learner.model.figures()
            self.health.scores = metrics
            counts = alarm_metrics(learner) | late_metrics(learner)
            self.tracker.metrics(metrics | self._overall() | counts, step=learner.rows)
            if learner.clock.total and learner.rows != self._total():
                self.tracker.metrics({"rows_per_second": learner.rows / learner.clock.total}, step=learner.rows)
            self._tell(note(lap))
        now = time.perf_counter()
        learner.clock.total += now - self._mark
        self._mark = now
        if self._is_due():
            self._save()

    def _is_due(self) -> bool:
        """Whether so much was learned since the newest checkpoint that it is time for another."""
        session, config = self.session, self.session.config
        if session.learner.rows - max(session.saved_rows, 0) >= config.checkpoint_every * session.learner.streams:
            return True
        unsaved = time.perf_counter() - self._saved_at
        return "checkpoint_every" not in config.model_fields_set and unsaved > max(UNSAVED, SAVING_SHARE * self._saving)

    def _look(self) -> None:
        session = self.session
        saved = max(session.saved_rows, 0) + session.saved_tail
        self.health.look(session.learner.rows + self._tail_rows(), saved, session.table.readable)

    def _overall(self) -> dict[str, float]:
        """The curves that the run's final scores end; at the table's end those are logged by `train`, at this step."""
        learner = self.session.learner
        if learner.rows == self._total():
            return {}
        return overall_metrics(learner.scores.overall()) | simulation_metrics(simulation(learner))

    def _total(self) -> int | None:
        """Rows that the run will have seen; None where there is no end."""
        session = self.session
        rows = session.table.readable
        return None if session.config.follow else min(rows, session.config.max_rows or rows)

    def _save(self) -> None:
        """Metrics and forecasts first: what a kill then loses is logged and written again by the replay."""
        began = time.perf_counter()
        self.tracker.flush()
        for predictions in self.predictions:
            predictions.write_part(self.session.learner.rows)
        self.session.save(self.tail)
        self._saved_at = time.perf_counter()
        self._saving = self._saved_at - began

    def _ring(self) -> None:
        """Pass alarms on, where rows have come since the last time."""
        news = self.session.learner.rows, self._tail_rows()
        if self.bell is not None and news != self._rung:
            self.bell.ring(self.tail)
            self._rung = news

    def _tell(self, text: str) -> None:
        self.progress(Progress("train", self.session.learner.rows, self._total(), text))
