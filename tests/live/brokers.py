"""Real brokers on loopback, as plain processes that can be stopped and started again."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.forked import Forked, start
from tests.needs import needs

PASSWORD = "correct-horse-9f2"
"""Of the user `plant`."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Broker:
    """A server of one kind; `make` gives its command for (folder, port).

    Attributes:
        url: what is followed there; `{}` stands for the credentials.
    """

    def __init__(self, folder: Path, make: Callable[[Path, int], list[str]], url: str) -> None:
        self.port = free_port()
        self.url = url.replace("PORT", str(self.port))
        folder.mkdir()
        self._command = make(folder, self.port)
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        for _ in range(200):
            with socket.socket() as found:
                if not found.connect_ex(("127.0.0.1", self.port)):
                    return
            time.sleep(0.05)
        raise AssertionError(self._log.read_text())

    def stop(self) -> None:
        """As by SIGTERM: what it holds is on the disk."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None


def mosquitto(folder: Path, port: int) -> list[str]:
    passwords = folder / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "plant", PASSWORD], check=True)
    config = folder / "mosquitto.conf"
    settings = ["max_queued_messages 0", "persistence true", f"persistence_location {folder}/", "user root"]
    settings += [f"listener {port} 127.0.0.1", "allow_anonymous false", f"password_file {passwords}"]
    config.write_text("\n".join([*settings, ""]))
    return ["mosquitto", "-c", str(config)]


def mosquitto_tls(folder: Path, port: int) -> list[str]:
    command, key, certificate = mosquitto(folder, port), folder / "key.pem", folder / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    make += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with (folder / "mosquitto.conf").open("a") as config:
        config.write(f"keyfile {key}\ncertfile {certificate}\n")
    return command


def redis(folder: Path, port: int) -> list[str]:
    options = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "yes", "dir": str(folder)}
    options |= {"requirepass": PASSWORD}
    return ["redis-server", *(part for key, value in options.items() for part in (f"--{key}", value))]


def to_mqtt(port: int, payloads: Sequence[bytes], encrypted: bool = False) -> None:
    import paho.mqtt.client as mqtt

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "publisher", protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(500)
    client.username_pw_set("plant", PASSWORD)
    if encrypted:
        client.tls_set(cert_reqs=ssl.CERT_NONE)
        client.tls_insecure_set(True)
    client.connect("127.0.0.1", port)
    client.loop_start()
    # the first is retained, for those who subscribe later
    for sent in [client.publish("plant/a", payload, 1, retain=not at) for at, payload in enumerate(payloads)]:
        sent.wait_for_publish(30)
    client.disconnect()
    client.loop_stop()


def to_redis(port: int, payloads: Sequence[bytes]) -> None:
    import redis as library

    with library.Redis(port=port, password=PASSWORD) as client, client.pipeline(transaction=False) as pipe:
        for payload in payloads:
            pipe.xadd("plant", {"v": payload})
        pipe.execute()


def nats(folder: Path, port: int) -> list[str]:
    config = folder / "nats.conf"
    config.write_text(
        f'authorization {{ user: plant, password: "{PASSWORD}" }}\njetstream {{ store_dir: "{folder}" }}\n'
    )
    return ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-c", str(config)]


def to_nats(port: int, payloads: Sequence[bytes]) -> None:
    import nats as library
    from nats.js.errors import NotFoundError

    async def send() -> None:
        client = await library.connect(f"nats://127.0.0.1:{port}", user="plant", password=PASSWORD)
        stream = client.jetstream()
        try:
            await stream.find_stream_name_by_subject("plant.a")
        except NotFoundError:
            await stream.add_stream(name="PLANT", subjects=["plant.>"])
        for at in range(0, len(payloads), 100):
            await asyncio.gather(*(stream.publish("plant.a", payload) for payload in payloads[at : at + 100]))
        await client.close()

    asyncio.run(send())


@contextmanager
def kafka() -> Iterator[tuple[str, Callable[[Sequence[bytes]], None]]]:
    """librdkafka's mock of a cluster, in this process: no Kafka is packaged for Debian."""
    import confluent_kafka

    options = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
    producer = confluent_kafka.Producer(options, logger=logging.getLogger("mock"))
    (found,) = producer.list_topics(timeout=10).brokers.values()

    def publish(payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            producer.produce("plant", payload)
        assert producer.flush(30) == 0

    yield f"kafka://{found.host}:{found.port}/plant", publish


BROKERS: dict[str, tuple[Callable[[Path, int], list[str]], str, Callable[[int, Sequence[bytes]], None]]] = {
    "mqtt": (mosquitto, "mqtt://plant{}@127.0.0.1:PORT/plant/#", to_mqtt),
    "redis": (redis, "redis://{}@127.0.0.1:PORT/0?stream=plant", to_redis),
    "mqtts": (mosquitto_tls, "mqtts://plant{}@127.0.0.1:PORT/plant/#", partial(to_mqtt, encrypted=True)),
    "nats": (nats, "nats://plant{}@127.0.0.1:PORT/plant.>", to_nats),
    "nats-group": (nats, "nats://plant{}@127.0.0.1:PORT/plant.>?group=tables&claim=2", to_nats),
    "redis-group": (redis, "redis://{}@127.0.0.1:PORT/0?stream=plant&group=tables&claim=2", to_redis),
}


SERVER = {"mqtt": "mosquitto", "mqtts": "mosquitto", "redis": "redis-server", "nats": "nats-server"}


def over(*names: str) -> pytest.MarkDecorator:
    """A test of each of these kinds of brokers, as its `name`; Kafka's needs no server."""
    servers = {name: SERVER.get(name.partition("-")[0]) for name in names}
    cases = [pytest.param(name, marks=[needs(server)] if server else []) for name, server in servers.items()]
    return pytest.mark.parametrize("name", cases)


@contextmanager
def running(name: str, folder: Path) -> Iterator[tuple[Broker, Callable[[Sequence[bytes]], None]]]:
    """A broker, and what publishes there, each message acknowledged."""
    make, url, publish = BROKERS[name]
    broker = Broker(folder / "broker", make, url)
    broker.start()
    try:
        yield broker, lambda payloads: publish(broker.port, payloads)
    finally:
        broker.stop()


class Followers:
    """Processes of `streamgp ingest URL`."""

    def __init__(self) -> None:
        self._started: list[Forked] = []

    def __call__(self, url: str, table: Path, *options: str, **more: Any) -> Forked:
        """Start another one."""
        process = start("ingest", url, "--table", table, *options, **more)
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kill those that still run."""
        for process in self._started:
            process.kill()
            process.communicate()
