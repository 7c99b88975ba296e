"""Messages of brokers are in the table once, whatever is killed, and are read at half the speed of the plain client.

Each broker runs on loopback, Kafka as librdkafka's mock of a cluster in this process. Messages are published in parts,
each acknowledged by the broker; after each part `streamgp ingest --follow` is killed by SIGKILL and started again, and
the broker is started again twice. Then a backlog is read by the plain client, and by ingest; then messages come at a
steady rate, and each commit is timed.

    python benchmarks/live_sources_lose_nothing.py [--messages 100000] [--kills 10] [--only redis]

With `--only` the rows of the other brokers stay as they were measured before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _report import Claim, report

sys.path.insert(0, str(Path(__file__).parents[1]))

from streamgp_data import checkpoint
from streamgp_data.table import Table
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import IngestConfig, TrainConfig
from streamgp_pipelines.live.follow import follow
from streamgp_pipelines.live.garbage import collect_seldom
from streamgp_pipelines.training.online import OnlineRun
from streamgp_pipelines.training.train import train
from tests.live.brokers import BROKERS, PASSWORD, Broker, Followers, kafka, running
from tests.live.feeds import Memory, take

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("kafka", "redis", "nats", "mqtt")
PATIENCE = 300.0
RATE, SECONDS = 200, 10.0
ROUNDS = 5
"""Of reading Kafka, the plain client and ingest by turns: it takes a fraction of a second."""


def row(at: int) -> bytes:
    return json.dumps({"ds": (START + timedelta(seconds=at)).isoformat(), "y": float(at)}).encode()


@contextmanager
def broker(name: str, folder: Path) -> Iterator[tuple[Broker | None, str, Callable[[Sequence[bytes]], None]]]:
    """A broker that can be started again, if it can; its URL; what publishes there."""
    if name == "kafka":
        with kafka() as (url, publish):
            yield None, url, publish
        return
    with running(name, folder) as (found, publish):
        yield found, found.url.format(f":{PASSWORD}"), publish


def until(table: Path, rows: int) -> None:
    """Wait for so many rows."""
    end = time.monotonic() + PATIENCE
    while not Table.exists(table) or Table.open(table).rows < rows:
        if time.monotonic() > end:
            raise AssertionError(f"{table} has not {rows} rows")
        time.sleep(0.1)


def killed(name: str, folder: Path, messages: int, kills: int) -> tuple[int, int, int]:
    """Rows, distinct rows, and starts of the broker beside the first."""
    table, followers, restarts = folder / "table", Followers(), 0
    edges = np.linspace(1, messages, kills + 2).astype(int)
    with broker(name, folder) as (server, url, publish):
        process = followers(url, table, "--follow")
        publish([row(0)])
        until(table, 1)
        for part, (first, last) in enumerate(pairwise(edges.tolist())):
            publish([row(at) for at in range(first, last)])
            if part < kills:
                until(table, min(first + 1, last))  # it has taken some of this part
                process.kill()
                process.communicate()
                if server is not None and part in (kills // 3, 2 * kills // 3):
                    server.stop()
                    server.start()
                    restarts += 1
                process = followers(url, table, "--follow")
        try:
            until(table, messages)
        finally:
            followers.end()
    found = np.concatenate([chunk.rows.column("y").to_numpy() for chunk in Table.open(table).read(columns=["y"])])
    return len(found), len(np.unique(found)), restarts


def plain(name: str, url: str, messages: int, subscribe: bool = False) -> int:
    """Read so many messages with the client's own consumer; `subscribe` alone begins a session of MQTT."""
    host, port = url.split("@")[-1].split("//")[-1].split("/")[0].split(":")
    seen = 0
    if name == "mqtt":
        import paho.mqtt.client as mqtt

        ready = threading.Event()
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "plain", protocol=mqtt.MQTTv5)
        client.username_pw_set("plant", PASSWORD)
        properties = mqtt.Properties(mqtt.PacketTypes.CONNECT)
        properties.SessionExpiryInterval, properties.ReceiveMaximum = 0xFFFFFFFF, 1 << 13

        def count(*_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == messages:
                ready.set()

        client.on_message = count
        client.on_subscribe = lambda *_: ready.set() if subscribe else None
        client.connect(host, int(port), clean_start=False, properties=properties)
        client.subscribe("plant/#", options=mqtt.SubscribeOptions(qos=1, retainHandling=1))
        client.loop_start()
        assert ready.wait(PATIENCE)
        time.sleep(0.2)  # its last acknowledgement
        client.disconnect()
        client.loop_stop()
    elif name == "redis":
        import redis

        last: Any = "0-0"
        with redis.Redis(host, int(port), password=PASSWORD, protocol=2) as connection:
            while seen < messages:
                ((_, entries),) = connection.xread({"plant": last}, 4096, 1000)
                seen, last = seen + len(entries), entries[-1][0]
    elif name == "nats":
        seen = asyncio.run(_nats(host, port, messages))
    else:
        import confluent_kafka

        options = {"bootstrap.servers": f"{host}:{port}", "group.id": "plain", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(options)
        found = consumer.list_topics("plant", 10).topics["plant"].partitions
        beginning = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition("plant", number, beginning) for number in found])
        while seen < messages:
            seen += sum(one.value() is not None for one in consumer.consume(1 << 14, 1.0))
        consumer.close()
    return seen


async def _nats(host: str, port: str, messages: int) -> int:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    client, seen = await nats.connect(f"nats://{host}:{port}", user="plant", password=PASSWORD), 0
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await client.jetstream().pull_subscribe("plant.>", stream="PLANT", config=config)
    while seen < messages:
        seen += len(await subscription.fetch(1024, timeout=5))
    await client.close()
    return seen


def ingested(name: str, url: str, messages: int, table: str) -> int:
    """Read so many messages into a new table."""
    options = {"source": (url,), "table": table, "poll": 2.0}
    found: Any = follow(IngestConfig.read(options))["rows"]
    return int(found)


def _timed(work: Callable[..., int], given: tuple[Any, ...], answer: Connection) -> None:
    """In a process of its own: CPU seconds of the work, once all is imported."""
    import confluent_kafka  # noqa: F401
    import nats.js  # noqa: F401
    import paho.mqtt.client  # noqa: F401
    import redis  # noqa: F401

    with tempfile.TemporaryDirectory() as home:
        take(Path(home) / "table", Memory([row(at) for at in range(3000)]))
    if work is ingested:
        collect_seldom()  # as the command does
    began = time.process_time()
    found = work(*given)
    answer.send((found, time.process_time() - began))


def timed(work: Callable[..., int], *given: Any) -> float:
    """CPU seconds of a work that reads as many messages as its third argument says."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_timed, args=(work, given, there))
    process.start()
    there.close()
    found, seconds = here.recv()
    process.join()
    assert found == given[2], (work, found)
    return float(seconds)


def _commits(url: str, table: str, answer: Connection) -> None:
    """In a process of its own: seconds from `ds` to the commit, of every row, until as many have come."""
    waits: list[float] = []
    commit = Table.commit

    def measured(self: Table, rows: Any, *more: Any) -> None:
        commit(self, rows, *more)
        if rows is not None and "ds" in rows.column_names:
            now = time.time()
            waited = now - rows.column("ds").cast("int64").to_numpy() / 1e6
            waits.extend(waited[waited < 3600].tolist())  # those before were to begin with

    Table.commit = measured  # type: ignore[method-assign]
    follow(IngestConfig.read({"source": (url,), "table": table, "poll": 8.0}))
    answer.send(waits)


def _scores(url: str, table: str, answer: Connection) -> None:
    """In a process of its own: seconds from `ds` to the score of the forecast, of every row behind the first ones."""
    waits: list[float] = []
    keep = OnlineRun.keep

    def measured(self: OnlineRun, due: Any) -> None:
        if len(due.ds) and self.session.learner.warmup.done_at is not None:
            waited = time.time() - due.ds.numpy() / 1e9
            waits.extend(waited[waited < 3600].tolist())
        keep(self, due)

    OnlineRun.keep = measured  # type: ignore[method-assign]
    torch.set_num_threads(1)
    options = {"table": table, "checkpoint": f"{table}-model", "online": True, "follow": True, "source": url}
    options |= {"model": "linear", "lags": 4, "batch": 16, "warmup": 50, "max_rows": int(SECONDS) * RATE}
    train(TrainConfig.read(options), NoTracker)
    answer.send(waits)


def latencies(
    url: str, table: Path, publish: Callable[[Sequence[bytes]], None], work: Callable[..., None]
) -> np.ndarray[Any, Any]:
    """(N,) seconds from publishing to what `work` measures, at a steady rate."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(url, str(table), there))
    process.start()
    there.close()
    old, sent, end = datetime.now(UTC) - timedelta(days=1), 0, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if Table.exists(table) if work is _commits else checkpoint.exists(Path(f"{table}-model")):
            break
        steps = [old + timedelta(seconds=at) for at in range(sent, sent + 10)]  # until it has subscribed and begun
        publish([json.dumps({"ds": at.isoformat(), "y": 1.0}).encode() for at in steps])
        sent += 10
        time.sleep(0.2)
    time.sleep(2.0)
    for _ in range(int(SECONDS * 10)):
        began = time.monotonic()
        now = datetime.now(UTC)
        steps = [now + timedelta(microseconds=at) for at in range(RATE // 10)]
        publish([json.dumps({"ds": at.isoformat(timespec="microseconds"), "y": 1.0}).encode() for at in steps])
        time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))
    found = np.array(here.recv())
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--only", choices=NAMES, action="append")
    asked = parser.parse_args()
    assert set(NAMES) - {"kafka"} <= set(BROKERS)
    kept, speeds = ({row[0]: row for row in rows} for rows in before(asked.only or NAMES))
    for name in asked.only or NAMES:
        with tempfile.TemporaryDirectory() as home:
            for part in ("killed", "read", "_commits", "_scores"):
                (Path(home) / part).mkdir()
            total, distinct, restarts = killed(name, Path(home) / "killed", asked.messages, asked.kills)
            counts = asked.messages, asked.kills, restarts, total, distinct
            kept[name] = [name, *(f"{count:,}" for count in counts)]
            print(*kept[name], flush=True)
            with broker(name, Path(home) / "read") as (_, url, publish):
                table = str(Path(home) / "read" / "table")
                if name == "mqtt":  # sessions, before there is anything to read
                    plain(name, url, 0, subscribe=True)
                    session(url, table)
                for first in range(0, asked.messages, 10_000):  # a publisher of MQTT queues 65,535
                    publish([row(at) for at in range(first, min(first + 10_000, asked.messages))])
                given, rounds = (name, url, asked.messages), range(ROUNDS if name == "kafka" else 1)
                pairs = [(timed(plain, *given), timed(ingested, *given, f"{table}{at or ''}")) for at in rounds]
                own, ours = np.median(pairs, 0).tolist()
            found = []
            for work in (_commits, _scores):
                with broker(name, Path(home) / work.__name__) as (_, url, publish):
                    publish([])  # NATS makes its stream
                    found.append(latencies(url, Path(home) / work.__name__ / "table", publish, work))
            rates = [f"{asked.messages / seconds:,.0f}" for seconds in (own, ours)]
            quantiles = [f"{np.quantile(waits, level):.2f}" for waits in found for level in (0.5, 0.99)]
            speeds[name] = [name, *rates, f"{own / ours:.2f}", f"{min(map(len, found)):,}", *quantiles]
            print(*speeds[name], flush=True)
        held = written(asked.messages, *([rows[one] for one in NAMES if one in rows] for rows in (kept, speeds)))
    if not held:
        raise SystemExit(1)


def before(names: Sequence[str]) -> list[list[list[str]]]:
    """The rows of both tables of brokers that are not among these, as they were reported last."""
    file = Path(os.environ.get("BENCHMARK_RESULTS", "")) / f"{Path(__file__).stem}.json"
    claims = json.loads(file.read_bytes())["claims"] if file.is_file() else [{"rows": []}] * 2
    return [[row for row in claim["rows"] if row[0] not in names] for claim in claims]


def written(messages: int, kept: list[list[str]], speeds: list[list[str]]) -> bool:
    """Report what was measured so far; whether the claims hold."""
    missed = [f"{name}: {distinct} of {sent} messages, in {rows} rows" for name, sent, *_, rows, distinct in kept]
    missed = [said for said, row in zip(missed, kept, strict=True) if not row[1] == row[4] == row[5]]
    slow = [f"{row[0]}: {row[3]}" for row in speeds if float(row[3]) < 0.5]
    report(
        __file__,
        Claim(
            "Live sources lose nothing",
            "Messages published in parts to a broker on loopback (Kafka: librdkafka's mock of a cluster), while "
            "`ingest --follow` is killed by SIGKILL after each part, and the broker started again where it persists. "
            "Claimed: every message that the broker acknowledged is in the table exactly once.",
            ["broker", "messages", "kills", "restarts", "rows", "distinct"],
            kept,
            missed,
        ),
        Claim(
            "Live sources are read quickly",
            f"A backlog of {messages:,} messages of JSON, read by the plain client's own consumer, which leaves "
            "payloads as bytes, and into a table: messages a CPU-second, without imports (Kafka: medians "
            f"of {ROUNDS} rounds by turns). Claimed: at least 0.5 of the "
            f"plain client. Then {RATE} messages a second: seconds from publishing to the committed row, with the "
            "default `--linger` of 0.2, and in `train --online --source` (`linear`, micro-batches of 16) to the "
            "row that is scored against its forecast. The client runs with Python's defaults.",
            [
                "broker",
                "plain client",
                "ingest",
                "ratio",
                "messages timed",
                "commit p50",
                "p99",
                "score p50",
                "p99",
            ],
            speeds,
            slow,
        ),
    )
    return not missed and not slow


def session(url: str, table: str) -> None:
    """Begin the session of MQTT that ingest goes on with."""
    from streamgp_data.messages import open_feed

    _, feed = open_feed(url, table)
    feed.connect(lambda _: ())
    feed.close()


if __name__ == "__main__":
    main()
