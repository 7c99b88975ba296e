"""Metrics on their way to MLflow: buffered, sent in batches, kept on disk while the store does not answer."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamgp.forecasting.metrics import Kind, of_kind

if TYPE_CHECKING:
    from mlflow.entities import Metric

SPILL = "unsent_metrics.json"
BATCH = 1000  # MLflow's limit of one call
SECONDS = 3.0  # between sends, when fewer than a batch wait
_FORBIDDEN = re.compile(r"[^\w\-. :/]")
_GROUPS = re.compile(f"^({'|'.join(['overall', *of_kind(Kind.BAND)])})_")
_log = logging.getLogger("streamgp.tracking")


class MetricBuffer:
    """Points (key, value, step) that wait to be sent, in order.

    Laws:
        - Nothing is lost: points that could not be sent are on disk when `flush` returns.
        - Nothing is doubled: points at or before the newest step that the store already has of a key are dropped, which
          is what a replay after a kill logs again.

    Args:
        send: sends at most `BATCH` metrics, or raises.
        directory: where unsent points are kept.
        started_ms: the time stamp of step 0, in ms since 1970; step s has this plus s.
        newest: the newest step that the store has of each key.
    """

    def __init__(
        self, send: Callable[[list[Metric]], None], directory: Path, started_ms: int, newest: Mapping[str, int]
    ) -> None:
        self._send = send
        self._spill = directory / SPILL
        self._started_ms = started_ms
        self._newest = dict(newest)
        self._points: list[tuple[str, float, int]] = []
        self._sent_at = time.monotonic()
        self._wait = 0.0  # seconds to leave a store alone that has just failed
        if self._spill.exists():
            self._points = [(key, value, step) for key, value, step in json.loads(self._spill.read_text("utf-8"))]
            self._points = [point for point in self._points if point[2] > self._newest.get(point[0], -1)]

    @property
    def waiting(self) -> int:
        """Points that the store does not have yet."""
        return len(self._points)

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Take these values at this step; sends when a batch is full or enough time has passed."""
        for name, value in values.items():
            key = metric_key(name)
            if math.isfinite(value) and step > self._newest.get(key, -1):
                self._points.append((key, float(value), step))
        due = time.monotonic() - self._sent_at >= SECONDS or len(self._points) >= BATCH
        if due and not self._resting:
            self.flush()

    def flush(self, now: bool = False) -> bool:
        """Send all that waits, and keep on disk what could not be sent. True when everything was sent.

        Args:
            now: ask the store even if it has failed a moment ago.
        """
        from mlflow.entities import Metric

        if not now and self._resting:
            self._keep()
            return False
        self._sent_at = time.monotonic()
        try:
            while self._points:
                batch = self._points[:BATCH]
                self._send([Metric(key, value, self._started_ms + step, step) for key, value, step in batch])
                self._points = self._points[BATCH:]
        except Exception as error:  # whatever a store may raise: tracking must not stop the training
            if not self._wait:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
                _log.warning("the tracking store does not take metrics (%s): they are kept and sent later", reason)
            self._wait = min(max(2 * self._wait, 15.0), 300.0)
            self._keep()
            return False
        self._wait = 0.0
        self._spill.unlink(missing_ok=True)
        return True

    @property
    def _resting(self) -> bool:
        return time.monotonic() - self._sent_at < self._wait

    def _keep(self) -> None:
        temporary = self._spill.with_name(f".{SPILL}.tmp")
        with temporary.open("w", encoding="utf-8") as stream:
            json.dump(self._points, stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self._spill)


def metric_key(name: str) -> str:
    """A name as MLflow takes it, with a slash after its group: the UI gathers charts by what is before a slash.

    Example:
        >>> metric_key("coverage_95"), metric_key("overall_rmse"), metric_key("rmse(y)")
        ('coverage/95', 'overall/rmse', 'rmse_y_')
    """
    return _GROUPS.sub(r"\1/", _FORBIDDEN.sub("_", name))
