"""A broker whose messages are learned by the process that takes them: each once in the table and in the model."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgp.errors import ServiceError, UsageError
from streamgp_data import checkpoint
from streamgp_data.messages import Address
from streamgp_data.table import Table
from streamgp_pipelines.adapters.web.metrics import Metrics
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.checkpointing import state_digest
from streamgp_pipelines.learning.tail import Tail
from streamgp_pipelines.live import follow as engine
from streamgp_pipelines.serving.service import serving
from streamgp_pipelines.training.train import train
from tests.forked import start
from tests.live.brokers import PASSWORD, running
from tests.live.feeds import Memory, row, take
from tests.needs import needs
from tests.pipelines.killed import wait_for
from tests.serving.conftest import ROWS, as_objects, config_of, home, new_rows, trained

__all__ = ["home", "trained"]
LINE = ["--online", "--model", "linear", "--lags", "4", "--warmup", "150", "--batch", "24", "--tracking-uri", "none"]
LINE += ["--season", "none"]  # a day has 1,440 of these rows


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A broker at memory://plant, whatever is asked for."""
    found, address = Memory([], piece=50), Address("memory", "plant", 0, "", {}, False, "")
    monkeypatch.setattr(engine, "open_feed", lambda *_: (address, found))
    monkeypatch.setattr(engine, "is_feed", lambda name: name.startswith("memory://"))
    return found


def config(home: Path, **more: Any) -> TrainConfig:
    given = {"table": str(home / "t"), "checkpoint": home / "c", "online": True, "model": "linear", "lags": 4}
    return TrainConfig.read(given | {"warmup": 150, "batch": 24, "source": "memory://plant"} | more)


def seen(path: Path) -> int:
    """Rows that a checkpoint has seen."""
    saved, tail = checkpoint.read(path), Tail()
    saved.restore({"tail": tail})
    return saved.rows + (0 if tail.rows is None else tail.rows.num_rows)


@pytest.mark.slow
def test_what_is_there_is_taken_and_learned_and_then_what_is_new(feed: Memory, tmp_path: Path) -> None:
    for count in (300, 400):
        feed.payloads = [row(at) for at in range(count)]
        assert train(config(tmp_path), NoTracker)["rows"] == count
        assert feed.acknowledged[-1] == count - 1 and seen(tmp_path / "c") == count


@pytest.mark.slow
def test_rows_are_learned_while_they_come_and_the_end_loses_none(feed: Memory, tmp_path: Path) -> None:
    feed.payloads = [row(at) for at in range(200)]
    publisher = threading.Timer(0.5, lambda: feed.payloads.extend(row(at) for at in range(200, 500)))
    publisher.start()
    found = train(config(tmp_path, follow=True, max_rows=500), NoTracker)
    assert found["rows"] == 500 == Table.open(tmp_path / "t").rows
    assert feed.acknowledged == list(range(500))


def hourly(start: int, stop: int) -> list[bytes]:
    return [row(60 * at, y=float(at % 24 + at % 7)) for at in range(start, stop)]


@pytest.mark.slow
def test_a_broker_that_begins_with_nothing_gives_the_seasons_of_its_clock(feed: Memory, tmp_path: Path) -> None:
    threading.Timer(0.3, lambda: feed.payloads.extend(hourly(0, 5))).start()
    threading.Timer(0.9, lambda: feed.payloads.extend(hourly(5, 600))).start()
    found = train(config(tmp_path, follow=True, max_rows=600), NoTracker)
    assert found["seasons"] == [24, 168] and found["rows"] == 600 == Table.open(tmp_path / "t").rows
    whole = config(tmp_path, checkpoint=tmp_path / "whole", source=None)
    assert train(whole, NoTracker)["seasons"] == [24, 168]
    assert state_digest(checkpoint.read(tmp_path / "whole")) == state_digest(checkpoint.read(tmp_path / "c"))


def test_an_error_of_the_broker_ends_a_run_that_waits_for_its_first_rows(
    feed: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.payloads, real = hourly(0, 5), Memory.poll

    def poll(self: Memory, most: int, timeout: float) -> list[Any]:
        if len(self.acknowledged) == 5:
            raise ServiceError("the broker refuses")
        return real(self, most, timeout)

    monkeypatch.setattr(Memory, "poll", poll)
    with pytest.raises(ServiceError, match="refuses"):
        train(config(tmp_path, follow=True), NoTracker)
    assert not checkpoint.exists(tmp_path / "c")


def test_an_error_of_the_broker_ends_the_run(feed: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.payloads = [row(at) for at in range(200)]
    real = Memory.poll

    def poll(self: Memory, most: int, timeout: float) -> list[Any]:
        if self.next >= 200 and len(self.acknowledged) == 200:
            raise ServiceError("the broker refuses")
        return real(self, most, timeout)

    monkeypatch.setattr(Memory, "poll", poll)
    with pytest.raises(ServiceError, match="refuses"):
        train(config(tmp_path, follow=True), NoTracker)
    assert Table.open(tmp_path / "t").rows == 200


def test_a_source_is_a_broker_and_belongs_to_an_online_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        train(config(tmp_path, source="rows.csv"), NoTracker)
    with pytest.raises(UsageError):
        config(tmp_path, online=False)


@pytest.mark.slow
def test_serve_learns_messages_beside_requests(feed: Memory, home: Path) -> None:
    feed.payloads = [json.dumps(one).encode() for one in as_objects(new_rows(20))]
    with serving(config_of(home, source="memory://plant")) as service:
        host = service.hosts["plain"]
        wait_for(lambda: host.rows == ROWS + 20 or service.error is not None)
        assert service.error is None
        page = Metrics(service).page().decode()
        assert f'streamgp_table_rows{{checkpoint="plain"}} {ROWS + 20}.0' in page
        assert 'streamgp_ingest_rows_total{outcome="accepted"} 20.0' in page
    assert Table.open(home / "table").rows == ROWS + 20 and seen(home / "plain") == ROWS + 20
    assert feed.acknowledged == list(range(20))


@pytest.mark.slow
def test_a_topic_that_is_the_series_is_asked_for_again(feed: Memory, tmp_path: Path) -> None:
    feed.payloads = [row(at) for at in range(200)]
    take(tmp_path / "t", feed, topic="unique_id", series="unique_id")
    feed.payloads += [row(at) for at in range(200, 300)]
    with pytest.raises(UsageError, match="unique_id") as refused:
        train(config(tmp_path), NoTracker)
    assert "--topic unique_id" in str(refused.value.hint)
    assert Table.open(tmp_path / "t").rows == 200 == len(feed.acknowledged)
    assert train(config(tmp_path, topic="unique_id"), NoTracker)["rows"] == 300


def test_rows_that_went_to_the_quarantine_are_counted(feed: Memory, tmp_path: Path) -> None:
    feed.payloads = [row(at) if at % 100 else b"{" for at in range(300)]
    (why,) = [one for one in train(config(tmp_path), NoTracker)["warnings"] if "quarantine" in one]
    assert why.startswith("3 rows") and f"describe --table {tmp_path / 't'}" in why


@needs("redis-server")
@pytest.mark.slow
def test_kills_leave_each_message_once_in_table_and_model(tmp_path: Path) -> None:
    table, model, count = tmp_path / "t", tmp_path / "c", 2500
    with running("redis", tmp_path) as (broker, publish):
        words = ["train", *LINE, "--source", broker.url.format(f":{PASSWORD}"), "--table", str(table), "--follow"]
        line = [*words, "--checkpoint", str(model), "--checkpoint-every", "150", "--linger", "0.02"]
        publish([row(at) for at in range(500)])
        for part in range(1, 5):
            process = start(*line)
            publish([row(at) for at in range(500 * part, 500 * part + 500)])
            try:
                if part < 4:  # somewhere in a commit, or in a checkpoint
                    wait_for(lambda least=500 * part: checkpoint.exists(model) and seen(model) > least, 60)
                    time.sleep(0.03 * part)
                    process.send_signal(signal.SIGKILL)
                else:
                    wait_for(lambda: seen(model) == count, 60)
                    process.send_signal(signal.SIGTERM)
            except BaseException:
                process.kill()
                raise
            finally:
                _, said = process.communicate(timeout=60)
        assert process.returncode == 143 and PASSWORD not in said, said
    found = [value for chunk in Table.open(table).read(columns=["y"]) for value in chunk.rows.column("y").to_pylist()]
    assert found == [float(at) for at in range(count)]
    assert start("train", *LINE, "--table", table, "--checkpoint", tmp_path / "once").wait() == 0
    assert state_digest(checkpoint.read(tmp_path / "once")) == state_digest(checkpoint.read(model))


@needs("redis-server")
@pytest.mark.slow
def test_a_real_broker_that_begins_with_nothing(tmp_path: Path) -> None:
    table, model = tmp_path / "t", tmp_path / "c"
    said, line = "", ["train", *LINE[:-2], "--table", str(table), "--horizon", "2", "--linger", "0.02"]
    with running("redis", tmp_path) as (broker, publish):
        for kill in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
            words = ["--source", broker.url.format(f":{PASSWORD}"), "--follow", "--checkpoint", str(model)]
            process = start(*line, *words)
            try:
                if not Table.exists(table):
                    publish(hourly(0, 5))
                    wait_for(lambda: Table.exists(table) and Table.open(table).rows == 5, 60)
                    time.sleep(1.0)  # it waits for more
                    assert not checkpoint.exists(model)
                elif not checkpoint.exists(model):
                    publish(hourly(5, 300))
                    wait_for(lambda: checkpoint.exists(model) and seen(model) >= 250, 60)
                else:
                    publish(hourly(300, 600))
                    wait_for(lambda: seen(model) == 600, 60)
                process.send_signal(kill)
            except BaseException:
                process.kill()
                raise
            finally:
                said += process.communicate(timeout=60)[1]
    assert said.count("rows are learned once a series has 12") == 2, said
    assert start(*line, "--season", "24", "--checkpoint", tmp_path / "once").wait() == 0
    assert state_digest(checkpoint.read(tmp_path / "once")) == state_digest(checkpoint.read(model))
