"""What Prometheus reads of a command that follows: `--metrics HOST:PORT`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from threading import BoundedSemaphore
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamgp.errors import ServiceError
from streamgp_data.ingestion.taken import BOUNDS, TakenRows
from streamgp_data.retry import Stored
from streamgp_pipelines.health import Health, Learned

SILENT = 10.0
"""Seconds that a client may say nothing."""

AT_ONCE = 32
"""Connections that are answered together: a scraper has one, and files are for the table."""


@contextmanager
def exporting(address: str, health: Health) -> Iterator[int]:
    """Answer GET /metrics in a thread; gives the port.

    Args:
        address: HOST:PORT, or a port of this machine alone; port 0 is any.
        health: what is shown.

    Raises:
        ServiceError: the address cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(HealthCollector(health))
    try:
        server, thread = start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ServiceError(f"--metrics {address}: cannot listen: {reason}", hint="choose another port") from None
    _bound(server)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _bound(server: WSGIServer) -> None:
    """Connections end that say nothing, and no more are taken than there are places."""
    places = BoundedSemaphore(AT_ONCE)
    given: Any = server.RequestHandlerClass

    class Bounded(given):  # type: ignore[misc]
        """One connection."""

        timeout = SILENT

        def handle(self) -> None:
            """Answer one request, where there is a place."""
            if not places.acquire(blocking=False):
                return
            try:
                with suppress(OSError):  # silent, or gone
                    super().handle()
            finally:
                places.release()

    server.RequestHandlerClass = Bounded


class HealthCollector(Collector):
    """The measures of a command, as they are when they are asked for.

    Args:
        health: of the command.
        more: gives what else is kept in a store.
    """

    def __init__(self, health: Health, more: Callable[[], Iterable[Stored]] = tuple) -> None:
        self._health, self._more = health, more

    def collect(self) -> Iterator[Metric]:
        """Counters and gauges of what the command does."""
        parts = (self._health.opening, self._health.taken, self._health.learned, *self._more())
        away = max(part.away for part in parts if part is not None)
        yield _gauge("store_away_seconds", "How long the store of a table or checkpoint has not answered", away)
        if self._health.taken is not None:
            yield from _of_intake(self._health.taken)
        if self._health.learned is not None:
            yield from _of_learner(self._health.learned)


def _of_intake(taken: TakenRows) -> Iterator[Metric]:
    rows = CounterMetricFamily("streamgp_ingest_rows", "Rows since the start, by outcome", labels=["outcome"])
    for outcome in ("accepted", "quarantined", "redelivered", "late"):
        rows.add_metric([outcome], getattr(taken, outcome))
    yield rows
    yield _gauge("ingest_waiting_messages", "Messages that are collected and not committed", taken.waiting)
    yield _gauge("ingest_lag_seconds", "How long the oldest of them has waited", taken.lag)
    if taken.pending is not None:
        text = "Messages that other members of the group were sent and have not acknowledged"
        yield _gauge("ingest_group_pending_messages", text, taken.pending.messages)
    if taken.newest is not None:
        yield _gauge("ingest_delay_seconds", "Now minus the time of the newest row", time.time() - taken.newest)
    if taken.connected is not None:
        yield _gauge("broker_connected", "Whether the broker is there", float(taken.connected))
        yield CounterMetricFamily("streamgp_broker_reconnects", "How often it came back", taken.reconnects)
    counts = list(accumulate(taken.commits))
    bounds = [*map(str, BOUNDS), "+Inf"]
    yield HistogramMetricFamily(
        "streamgp_commit_seconds",
        "Time of a commit",
        buckets=list(zip(bounds, map(float, counts), strict=True)),
        sum_value=taken.commit_seconds,
    )


def _of_learner(learned: Learned) -> Iterator[Metric]:
    yield _gauge("table_rows", "Rows of the table", learned.table)
    yield _gauge("learned_rows", "Rows that were seen", learned.rows)
    yield _gauge("saved_rows", "Rows in the newest checkpoint", learned.saved)
    yield _gauge("lag_rows", "Rows of the table that were not seen", max(0, learned.table - learned.rows))
    yield _gauge("lag_seconds", "How long there have been such rows", learned.lag)
    scores = GaugeMetricFamily("streamgp_score", "Scores of the newest rows", labels=["score"])
    for name, value in dict(learned.scores).items():
        scores.add_metric([name], value)
    yield scores


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"streamgp_{name}", text, value)
