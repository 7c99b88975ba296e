"""What a run does with its alarms: keep the rows that raised them, and pass them on."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from streamgp.base import Due
from streamgp.forecasting.silence import Silent
from streamgp_data.remote import shown
from streamgp_pipelines.files import replaced
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.predictions import SILENT, alarms_of, silent_alarms
from streamgp_pipelines.learning.session import Session
from streamgp_pipelines.notify import notify

MOST = 100
"""Newest alarms in one message; it says how many there were."""

RAISED = "raised.json"
"""In the checkpoint directory: rows after the last full micro-batch whose alarms were passed on already."""


class Bell:
    """Passes a run's alarms on, one message for all that came since the last.

    The rows after the last full micro-batch are judged at once; what they raised is not raised again when they are
    learned. A killed run repeats rows, and may raise their alarms again.

    Args:
        session: of a run that judges its rows.
        source: what the messages say they are from.
    """

    def __init__(self, session: Session, source: str = "train") -> None:
        self.session, self.source = session, source
        self.frames: list[pl.DataFrame] = []
        self.raised: set[tuple[str, ...]] = set()
        self._path = session.config.checkpoint / RAISED
        if session.saved_rows >= 0 and self._path.is_file():
            self.raised = {tuple(key) for key in json.loads(self._path.read_text())}

    def add(self, due: Due) -> None:
        """Keep the alarms of one micro-batch."""
        if due.alarm is not None and bool(due.alarm.any()):
            self.frames.append(self._of(due))

    def add_silent(self, found: Sequence[Silent]) -> None:
        """Keep the targets that fell silent in one micro-batch."""
        self.frames += [self._silent(one, self.session.learner) for one in found]

    def ring(self, tail: pa.RecordBatch | None) -> None:
        """Pass on what came since the last time, that of the rows after the last full micro-batch too."""
        session = self.session
        learner, newest = session.learner, list[pl.DataFrame]()
        online = learner.warmup.done_at is not None
        if online or learner.silences is not None:
            ahead, last = learner.preview(tail)
            newest = [self._of(due) for due in last if online] + [self._silent(one, ahead) for one in ahead.silent()]
        keys = {key(row) for part in newest for row in part.iter_rows(named=True)}
        rows = [row for part in (*self.frames, *newest) for row in part.iter_rows(named=True)]
        new = [row for row in rows if key(row) not in self.raised]
        self.frames = []
        if new and session.config.on_alarm is not None:
            event: dict[str, Any] = {"source": self.source, "checkpoint": shown(session.config.checkpoint)}
            failed = notify(session.config.on_alarm, event | {"count": len(new), "alarms": new[-MOST:]})
            if failed:
                session.warnings.append(f"--on-alarm: {len(new)} alarms were not passed on: {failed}")
                logging.getLogger("streamgp").warning(session.warnings[-1])
        if keys != self.raised:
            self.raised = keys
            with replaced(self._path, session.config.durable) as temporary:
                temporary.write_text(json.dumps(sorted(keys)))

    def _silent(self, found: Silent, learner: Learner) -> pl.DataFrame:
        return silent_alarms(found, learner.windows.names, self.session.naming, learner.windows.shape)

    def _of(self, due: Due) -> pl.DataFrame:
        learner = self.session.learner
        return alarms_of(due, learner.windows.names, self.session.naming, learner.windows.shape)


def key(row: dict[str, Any]) -> tuple[str, ...]:
    """What an alarm is known by."""
    found = str(row["unique_id"]), str(row["ds"]), str(row.get("target", ""))
    return (*found, SILENT) if row["alarm"] == SILENT else found
