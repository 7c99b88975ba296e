"""What Prometheus reads at /metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from streamgp_pipelines.adapters.web.exporter import HealthCollector
from streamgp_pipelines.serving.intake import Receipt
from streamgp_pipelines.serving.service import Service
from streamgp_pipelines.serving.view import SERIES

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counts of requests and rows, and gauges of every learner.

    Args:
        service: that they are of.
    """

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        names = ("method", "path", "status")
        self._requests = Counter("streamgp_requests", "Requests answered", names, registry=self._registry)
        self._seconds = Histogram(
            "streamgp_request_seconds", "Time to answer", ("path",), buckets=SECONDS, registry=self._registry
        )
        self._rows = Counter(
            "streamgp_rows", "Rows of requests, by what became of them", ("table", "outcome"), registry=self._registry
        )
        self._registry.register(_Learners(service))
        hosts = service.hosts
        self._registry.register(HealthCollector(service.health, lambda: [host.health for host in hosts.values()]))

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        method = method if method in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def rows(self, table: str, found: Receipt) -> None:
        """Count the rows of a request."""
        outcomes = {"accepted": found.accepted, "duplicate": found.duplicates, "quarantined": len(found.quarantined)}
        for outcome, count in outcomes.items():
            self._rows.labels(table, outcome).inc(count)

    def page(self) -> bytes:
        """All of them, in the text format."""
        return generate_latest(self._registry)


class _Learners(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Gauges of the states that are shown."""
        gauges = {
            name: GaugeMetricFamily(f"streamgp_{name}", text, labels=["checkpoint"])
            for name, text in (
                ("table_rows", "Rows of the table"),
                ("learned_rows", "Rows that the state shown has learned"),
                ("saved_rows", "Rows in the newest checkpoint"),
                ("state_age_seconds", "Time since the state shown was made"),
                ("late_rows", "Rows that came too late to be learned"),
            )
        }
        scores = GaugeMetricFamily("streamgp_score", "Scores of all forecasts so far", labels=["checkpoint", "score"])
        ages = GaugeMetricFamily(
            "streamgp_value_age_seconds",
            f"Time since the last value of each target, of the first {SERIES:,}",
            labels=["checkpoint", "series", "target"],
        )
        now = datetime.now(UTC)
        for name, host in self._service.hosts.items():
            if host.view is None:
                continue
            gauges["table_rows"].add_metric([name], host.received())
            gauges["learned_rows"].add_metric([name], host.rows)
            gauges["saved_rows"].add_metric([name], max(host.session.saved_rows, 0) + host.session.saved_tail)
            gauges["state_age_seconds"].add_metric([name], time.monotonic() - host.shown_at)
            gauges["late_rows"].add_metric([name], host.view.forecaster.learner.windows.late)
            for score, value in host.view.figures().items():
                scores.add_metric([name, score], value)
            for series, target, age in host.view.ages(now):
                ages.add_metric([name, series, target], age)
        yield from (*gauges.values(), scores, ages)
