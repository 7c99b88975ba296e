"""What a command that follows says of itself: to Prometheus, and on a line."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamgp.errors import ServiceError, UsageError
from streamgp_cli._health import watched
from streamgp_data.ingestion.taken import TakenRows
from streamgp_data.messages import Pending
from streamgp_data.retry import Stored
from streamgp_data.table import Table
from streamgp_pipelines.adapters.web import exporter
from streamgp_pipelines.adapters.web.exporter import exporting
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import IngestConfig, TrainConfig
from streamgp_pipelines.health import Health, Learned
from streamgp_pipelines.live import follow as engine
from streamgp_pipelines.training.train import train
from tests.live.feeds import Memory, row
from tests.pipelines.killed import wait_for


def scrape(port: int) -> dict[str, float]:
    """Samples by name and labels, read by the library of Prometheus."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [one for family in families for one in family.samples]
    return {" ".join([one.name, *one.labels.values()]): one.value for one in samples}


def test_what_was_taken_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SHORTEST", 0.001)
    payloads = [b"broken" if at in (3, 30) else row(at) for at in range(100)] + [row(7)]
    feed, health, seen = Memory(payloads, width=0, piece=20), Health(), list[dict[str, float]]()
    config: dict[str, Any] = {"source": ("memory://p",), "table": str(tmp_path / "t"), "poll": 0.01, "linger": 0.0}

    def look(_: Any) -> None:
        seen.append(scrape(port))
        feed.away = 2 if len(seen) == 2 else 0
        if seen[-1]["streamgp_ingest_rows_total accepted"] == 98:
            raise KeyboardInterrupt

    feed.others = Pending(7, 60.0, 90.0)
    monkeypatch.setattr(engine, "LOOK", 0.0)
    with exporting("0", health) as port, pytest.raises(KeyboardInterrupt):
        engine.follow(IngestConfig.read(config | {"follow": True}), look, feed=feed, health=health)
    last = seen[-1]
    assert last["streamgp_ingest_group_pending_messages"] == 7
    assert "other members hold 7, one of them silent for 1:30: taken over 60 s" in health.line()
    outcomes = {name: last[f"streamgp_ingest_rows_total {name}"] for name in ("accepted", "quarantined")}
    assert outcomes["accepted"] == 98 == Table.open(tmp_path / "t").rows and outcomes["quarantined"] >= 2
    assert last["streamgp_broker_reconnects_total"] == 1 and last["streamgp_broker_connected"] == 1
    assert last["streamgp_commit_seconds_bucket +Inf"] == last["streamgp_commit_seconds_count"] == len(seen)
    assert last["streamgp_ingest_delay_seconds"] > 0
    assert "98 rows taken" in health.line()


def test_what_was_learned_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, health = Memory([row(at) for at in range(1200)]), Health()
    engine.follow(IngestConfig.read({"source": ("memory://p",), "table": str(tmp_path / "t"), "poll": 0.01}), feed=feed)
    given = {"table": str(tmp_path / "t"), "checkpoint": tmp_path / "c", "model": "linear", "lags": 4, "batch": 50}
    train(TrainConfig.read(given | {"online": True, "warmup": 100}), NoTracker, health=health)
    with exporting("127.0.0.1:0", health) as port:
        found = scrape(port)
    assert found["streamgp_learned_rows"] == found["streamgp_table_rows"] == 1200
    assert found["streamgp_lag_rows"] == found["streamgp_lag_seconds"] == 0
    assert found["streamgp_score rmse"] >= 0


def test_the_lag_counts_from_when_rows_are_behind() -> None:
    learned = Learned()
    learned.look(10, 0, 20)
    since = learned.since
    learned.look(15, 0, 40)
    assert since is not None and learned.since == since
    learned.look(40, 40, 40)
    assert learned.lag == 0


def test_an_address_that_is_taken_or_none_is_refused() -> None:
    with exporting("0", Health()) as port, pytest.raises(ServiceError), exporting(str(port), Health()):
        pass
    with pytest.raises(UsageError):
        IngestConfig.read({"source": ("a.csv",), "table": "t", "metrics": "here"})


def test_systemd_is_told_when_rows_are_taken_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(0.1)
        with watched(True, None, quiet=True) as health:
            health.taken = TakenRows(connected=False)
            with pytest.raises(TimeoutError):
                systemd.recv(100)
            health.taken.connected = True
            systemd.settimeout(10)
            assert systemd.recv(100) == b"READY=1"
        assert systemd.recv(100) == b"STOPPING=1"


def test_lines_are_said_at_a_steady_interval() -> None:
    from streamgp_pipelines.health import reported

    lines = list[str]()
    with reported(Health(learned=Learned(rows=3, table=5)), lambda health: lines.append(health.line()), every=0.01):
        wait_for(lambda: len(lines) >= 3)
    assert set(lines) == {"3 rows learned, 2 behind"}


def test_the_figures_say_since_when_by_the_clock_on_the_wall() -> None:
    """Readers of the log have another monotonic clock, or none."""
    now = time.monotonic()
    health = Health(Stored(now - 60), TakenRows(waiting=3, since=now - 600), Learned(table=7))
    found: Any = json.loads(json.dumps(health.figures()))
    for text, ago in ((found["opening"]["away_since"], 60), (found["taken"]["since"], 600)):
        assert abs((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds() - ago) < 5
    assert found["learned"]["since"] is None and found["learned"]["table"] == 7
    assert found["taken"]["waiting"] == 3


def test_silent_connections_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "SILENT", 0.3)
    monkeypatch.setattr(exporter, "AT_ONCE", 2)
    with exporting("0", Health()) as port, ExitStack() as stack:
        at = ("127.0.0.1", port)
        silent = [stack.enter_context(socket.create_connection(at, 5)) for _ in range(2 * exporter.AT_ONCE)]
        assert all(_read(one) == b"" for one in silent)  # closed for their silence, or for want of a place
        assert "streamgp_store_away_seconds" in scrape(port)


def _read(one: socket.socket) -> bytes:
    try:
        return one.recv(100)
    except ConnectionResetError:
        return b""
